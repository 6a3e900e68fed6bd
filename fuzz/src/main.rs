//! libFuzzer around one of the library's decoders: the one that FUZZ_TARGET names.

#![no_main]

use libfuzzer_sys::fuzz_target;
use muster::fuzz::{Target, TARGETS};
use std::sync::LazyLock;

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    let found = TARGETS.iter().find(|(known, _)| *known == name);
    *found.unwrap_or_else(|| {
        let known: Vec<&str> = TARGETS.iter().map(|(known, _)| *known).collect();
        panic!("FUZZ_TARGET is {name:?}: expected one of {}", known.join(", "))
    })
});

fuzz_target!(|bytes: &[u8]| (TARGET.1)(bytes));
