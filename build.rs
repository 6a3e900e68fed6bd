//! Gives the shared library its SONAME, which carries the ABI number, and finds out whether the linker has the unwinder as
//! a static library, which the command is then linked with.

use std::path::Path;
use std::process::Command;

/// Must equal `MUSTER_ABI_VERSION` in the header; `tests/abi.rs` compares the two.
const ABI_VERSION: u32 = 1;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libmuster.so.{ABI_VERSION}");
    println!("cargo:rerun-if-env-changed=RUSTC_LINKER");
    if std::env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|libc| libc == "gnu") && has_static_unwinder() {
        println!("cargo:rustc-cfg=static_unwinder");
    }
}

/// Whether the linker finds libgcc_eh.a: it then says where, and otherwise repeats the name.
fn has_static_unwinder() -> bool {
    let linker = std::env::var_os("RUSTC_LINKER").unwrap_or_else(|| "cc".into());
    let found = Command::new(linker).arg("-print-file-name=libgcc_eh.a").output();
    found.is_ok_and(|found| Path::new(String::from_utf8_lossy(&found.stdout).trim()).is_absolute())
}
