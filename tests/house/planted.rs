//! Files that break the rules, each in its own way, and files that only look as if they did.

use super::rules::RULES;
use super::source::Source;

/// The rules that a file breaks.
fn broken(path: &str, text: &str) -> Vec<&'static str> {
    let source = Source::parse(path, text);
    RULES.iter().filter(|(_, check)| !check(&source).is_empty()).map(|(name, _)| *name).collect()
}

fn caught(rule: &str, path: &str, text: &str) {
    assert!(broken(path, text).contains(&rule), "{rule} does not catch this in {path}:\n{text}");
}

fn clean(path: &str, text: &str) {
    assert_eq!(broken(path, text), Vec::<&str>::new(), "in {path}:\n{text}");
}

#[test]
fn imports_that_point_up_or_sideways_are_caught() {
    for (path, text) in [
        ("src/wire/frame.rs", "use crate::net::Poller;"),
        ("src/wire/frame.rs", "use crate::{error::Error, net::Poller};"),
        (
            "src/wire/frame.rs",
            "use {crate::error::Error, crate::{types::Time, membership::{self as other, Scheduler}}};",
        ),
        ("src/wire/frame.rs", "use super::super::runtime;"),
        ("src/wire/mod.rs", "use super::agent::Agent;"),
        ("src/membership/ranks.rs", "fn f() { let _ = crate::schedules::kernels::reduce; }"),
        ("src/membership/ranks.rs", "fn f() { super::super::agent::f(); }"),
        ("src/membership/ranks.rs", "fn f(x: &::muster::agent::Agent) {}"),
        ("src/agent/mod.rs", "mod inner { fn f() { super::super::super::net::f() } }"),
        ("src/agent/mod.rs", "mod inner { use super::super::membership::Rules; }"),
        ("src/agent/mod.rs", "fn f() { println!(\"{}\", crate::membership::f()); }"),
        ("src/agent/mod.rs", "macro_rules! m { () => { $crate::net::Poller::new() } }"),
        ("src/schedules/mod.rs", "pub use crate::runtime::Group;"),
        ("src/schedules/mod.rs", "pub(crate) use crate::net as sockets;"),
        ("src/types/time.rs", "use crate::wire::Message;"),
        ("src/types/time.rs", "use crate::error::Error;"),
        ("src/net/tcp.rs", "use crate::agent::Agent;"),
        ("src/net/tcp.rs", "use crate::journal::Disk;"),
        ("src/journal/file_disk.rs", "use crate::net::fork::Guarded;"),
        ("src/journal/log.rs", "use crate::membership::Scheduler;"),
        ("src/journal/log.rs", "fn f() { crate::runtime::log::warn(\"\") }"),
        ("src/membership/mod.rs", "use crate::journal::Journal;"),
        ("src/runtime/node/agent_thread.rs", "use crate::ffi::Handle;"),
        ("src/bin/muster/main.rs", "use muster::agent::Agent;"),
        ("src/bin/muster/main.rs", "fn f() { muster::membership::f() }"),
        ("src/helpers/mod.rs", "fn f() {}"),
    ] {
        caught("layers", path, text);
    }
}

#[test]
fn detours_through_the_root_are_caught() {
    for (path, text) in [
        ("src/lib.rs", "pub mod net; pub use net::Poller;"),
        ("src/lib.rs", "pub use crate::runtime::*;"),
        ("src/wire/frame.rs", "use crate::Poller;"),
        ("src/wire/frame.rs", "use crate as all; fn f() { all::net::f() }"),
        ("src/wire/frame.rs", "use crate::*;"),
        ("src/wire/frame.rs", "use super::super as all;"),
        ("src/wire/frame.rs", "use super::super::{self as all};"),
        ("src/wire/frame.rs", "extern crate muster as all;"),
    ] {
        caught("layers", path, text);
    }
    caught("no_foreign_files", "src/wire/mod.rs", "#[path = \"../net/tcp.rs\"] mod tcp;");
    caught("no_foreign_files", "src/wire/mod.rs", "include!(\"../net/tcp.rs\");");
}

#[test]
fn what_points_down_is_clean() {
    clean("src/wire/frame.rs", "use super::codec::{Decoder, Encoder}; use crate::{error::Error, types::*};");
    clean(
        "src/wire/frame.rs",
        "// use crate::net;\n/// [`crate::net`]\nfn f() -> &'static str { \"crate::net::Poller\" }",
    );
    clean(
        "src/runtime/node/agent_thread.rs",
        "use crate::{agent, membership, net, schedules, wire}; use crate::runtime::groups::group::Group;",
    );
    clean("src/runtime/node/agent_thread.rs", "mod net; use net::Own;");
    clean("src/bin/muster/main.rs", "mod run; use crate::run::agent::X; use muster::{config, net, runtime};");
    clean("src/sim/world.rs", "use crate::{agent::Agent, membership::Scheduler};");
    clean("src/agent/mod.rs", "#[cfg(test)] mod tests { use crate::membership::Scheduler; }");
    clean("src/ffi/mod.rs", "pub use crate::runtime::Node;");
}

#[test]
fn io_in_a_room_without_io_is_caught() {
    for text in [
        "use std::net::TcpStream;",
        "use std::{fmt, net::{IpAddr, UdpSocket}};",
        "use std::net; fn f() { net::TcpListener::bind(\"\") }",
        "use std::net as addresses; fn f(x: addresses::TcpStream) {}",
        "use std as s; fn f() { s::thread::spawn(|| {}) }",
        "use ::std::net::*;",
        "use std::*;",
        "fn f() { std::thread::sleep(x) }",
        "fn f() { let now = ::std::time::Instant::now(); }",
        "use std::time::{Duration, SystemTime};",
        "use std::time; fn f() { time::Instant::now() }",
        "fn f() { assert!(std::fs::read(\"x\").is_ok()) }",
        "fn f() -> std::io::Result<()> { Ok(()) }",
        "fn f() { libc::getpid() }",
        "use mio::Poll;",
        "pub use std::net::TcpStream as Plain;",
        "#[cfg(test)] mod tests { use std::net::TcpStream; }",
        "fn f() { std::arch::is_x86_feature_detected!(\"avx2\"); }",
    ] {
        for path in ["src/wire/frame.rs", "src/membership/mod.rs", "src/agent/mod.rs", "src/schedules/shape.rs"] {
            caught("io_free", path, text);
        }
    }
    clean("src/wire/codec.rs", "use std::net::{IpAddr, SocketAddr}; use std::time::Duration; use std::sync::Arc;");
    clean("src/schedules/kernels/mod.rs", "use std::arch::x86_64::_mm_pause;");
    clean("src/net/tcp.rs", "use std::net::TcpStream;");
}

#[test]
fn ranks_in_net_are_caught() {
    for text in [
        "fn f(rank: u32) {}",
        "use crate::types::Rank as R;",
        "struct S { local_rank: u32 }",
        "type G = crate::types::GroupId;",
    ] {
        caught("net_knows_no_ranks", "src/net/tcp.rs", text);
    }
    clean("src/net/tcp.rs", "/// Knows nothing of ranks.\nfn frank(franked: u32) {}");
}

#[test]
fn writing_outside_runtime_is_caught() {
    for text in [
        "fn f() { std::fs::write(\"x\", \"y\") }",
        "use std::fs; fn f() { fs::File::create(\"x\") }",
        "use std::fs::File as F; fn f() { F::create(\"x\") }",
        "use std::fs::{self, OpenOptions};",
        "use std::fs::*;",
    ] {
        caught("only_runtime_persists", "src/config/tls.rs", text);
        caught("only_runtime_persists", "src/net/tcp.rs", text);
    }
    clean("src/config/tls.rs", "use std::fs::{self, File}; fn f() { fs::read(\"x\"); File::open(\"x\"); }");
    clean("src/runtime/base/disk.rs", "fn f() { std::fs::write(\"x\", \"y\") }");
}

#[test]
fn unsafe_in_the_wrong_place_or_without_a_reason_is_caught() {
    let with_reason = "fn f() {\n    // SAFETY: it is so.\n    unsafe { g() }\n}";
    for path in ["src/wire/frame.rs", "src/runtime/node/agent_thread.rs", "src/config/mod.rs", "src/schedules/shape.rs"]
    {
        caught("unsafe_has_its_rooms", path, with_reason);
        caught("unsafe_has_its_rooms", path, "// SAFETY: it is so.\nunsafe impl Send for X {}");
        caught("unsafe_has_its_rooms", path, "macro_rules! m { () => { unsafe { g() } } }");
    }
    for text in [
        "fn f() { unsafe { g() } }",
        "fn f() {\n    // SAFETY: of the other.\n    unsafe { g() };\n    unsafe { g() }\n}",
        "// SAFETY: too far away.\n\nfn f() {\n    g();\n    unsafe { g() }\n}",
        "unsafe impl Send for X {}",
        "fn f() {\n    // Not so.\n    unsafe { g() }\n}",
    ] {
        caught("unsafe_says_why", "src/ffi/mod.rs", text);
    }
    for text in [
        with_reason,
        "/// Does it.\n///\n/// # Safety\n///\n/// None.\n#[no_mangle]\npub unsafe extern \"C\" fn f() {}",
        "fn f() {\n    // SAFETY: it is so,\n    // and stays so.\n    let x = a\n        .b(unsafe { g() });\n}",
        "type F = unsafe extern \"C\" fn(i32);",
        "// \"unsafe\" in words\nfn f() -> &'static str { \"unsafe { }\" }",
    ] {
        clean("src/ffi/mod.rs", text);
    }
}

#[test]
fn more_than_one_libc_call_in_a_block_is_caught() {
    for text in [
        "fn f() {\n    // SAFETY: so.\n    unsafe { libc::close(libc::dup(1)) };\n}",
        "fn f() {\n    // SAFETY: so.\n    unsafe {\n        libc::close(1);\n        libc::close(2);\n    }\n}",
        "use libc::close as shut;\nfn f() {\n    // SAFETY: so.\n    unsafe {\n        shut(1);\n        shut(2);\n    }\n}",
    ] {
        caught("single_libc_calls", "src/net/socket.rs", text);
        caught("single_libc_calls", "src/bin/muster/sys.rs", text);
    }
    clean("src/net/socket.rs", "fn f() {\n    // SAFETY: so.\n    unsafe { libc::fcntl(1, libc::F_GETFD) };\n}");
}

#[test]
fn long_files_and_functions_are_caught() {
    caught("short_files", "src/wire/frame.rs", &"\n".repeat(501));
    caught("short_files", "src/wire/frame_test.rs", &"\n".repeat(601));
    clean("src/wire/frame.rs", &"\n".repeat(500));
    clean("src/wire/frame_test.rs", &"\n".repeat(600));
    let tests = |lines: usize| format!("#[cfg(test)]\nmod tests {{\n{}}}", "    use x::y;\n".repeat(lines - 2));
    caught("long_tests_beside", "src/wire/frame.rs", &tests(151));
    caught("long_tests_beside", "src/wire/frame.rs", &(tests(100) + "\n" + &tests(51)));
    clean("src/wire/frame.rs", &tests(150));
    clean("src/wire/frame_test.rs", &tests(151));
    let function = |lines: usize| format!("impl X {{\n    fn f() {{\n{}    }}\n}}", "        g();\n".repeat(lines - 2));
    caught("short_functions", "src/wire/frame.rs", &function(71));
    clean("src/wire/frame.rs", &function(70));
    for path in ["src/wire/frame_test.rs", "src/sim/world.rs"] {
        caught("short_functions", path, &function(81));
        clean(path, &function(80));
    }
}

#[test]
fn unnamed_statics_are_caught() {
    for text in [
        "static COUNT: AtomicU32 = AtomicU32::new(0);",
        "fn f() { static ONCE: OnceLock<u32> = OnceLock::new(); }",
        "thread_local! { static LAST: Cell<u32> = const { Cell::new(0) }; }",
        "static mut TABLE: u32 = 0;",
    ] {
        caught("named_statics", "src/runtime/node/agent_thread.rs", text);
    }
    caught("named_statics", "src/net/fork.rs", "static mut TABLE: u32 = 0;");
    clean("src/net/fork.rs", "static TABLE: Mutex<u32> = Mutex::new(0);");
    clean("src/net/tcp.rs", "fn f(x: &'static str) -> impl Fn() + 'static { move || {} }");
}
