//! The rules of the house, each a function from one file to what breaks it.

use super::source::{Function, Name, Source};

/// What breaks a rule: the line, and the sentence.
pub type Broken = Vec<(usize, String)>;

/// A rule with its name.
pub type Rule = (&'static str, fn(&Source) -> Broken);

/// All of them.
pub const RULES: &[Rule] = &[
    ("layers", layers),
    ("io_free", io_free),
    ("net_knows_no_ranks", net_knows_no_ranks),
    ("only_runtime_persists", only_runtime_persists),
    ("unsafe_has_its_rooms", unsafe_has_its_rooms),
    ("unsafe_says_why", unsafe_says_why),
    ("single_libc_calls", single_libc_calls),
    ("short_files", short_files),
    ("long_tests_beside", long_tests_beside),
    ("short_functions", short_functions),
    ("named_statics", named_statics),
    ("no_foreign_files", no_foreign_files),
];

/// Each room, and the rooms that it may name besides itself.
pub const LAYERS: &[(&str, &[&str])] = &[
    ("types", &[]),
    ("wiping", &[]),
    ("error", &["types"]),
    ("config", &["wiping", "error", "types"]),
    ("wire", &["config", "error", "types"]),
    ("strangers", &["types"]),
    ("membership", &["strangers", "wire", "config", "error", "types"]),
    ("agent", &["wire", "config", "error", "types"]),
    ("schedules", &["wire", "config", "error", "types"]),
    ("journal", &["wire", "config", "error", "types"]),
    ("net", &["wire", "config", "error", "types"]),
    ("tls", &["net", "config", "wiping", "error", "types"]),
    ("secret", &["tls", "net", "wire", "config", "wiping", "error", "types"]),
    (
        "runtime",
        &[
            "secret",
            "strangers",
            "tls",
            "net",
            "journal",
            "membership",
            "agent",
            "schedules",
            "wire",
            "config",
            "error",
            "types",
        ],
    ),
    (
        "ffi",
        &[
            "runtime",
            "secret",
            "tls",
            "net",
            "journal",
            "membership",
            "agent",
            "schedules",
            "wire",
            "config",
            "error",
            "types",
        ],
    ),
    ("bin", &["ffi", "runtime", "secret", "tls", "net", "wire", "config", "error", "types"]),
];

const IO_FREE: &[&str] = &["types", "strangers", "wire", "membership", "agent", "schedules"];

/// What a room without IO may not name, and the exceptions: plain values.
const IO: &[&str] = &[
    "std::net",
    "std::thread",
    "std::fs",
    "std::io",
    "std::os",
    "std::env",
    "std::process",
    "std::time",
    "core::net",
    "core::time",
    "libc",
    "mio",
    "std::path",
];
const PLAIN: &[&str] = &[
    "std::net::SocketAddr",
    "std::net::SocketAddrV4",
    "std::net::SocketAddrV6",
    "std::net::IpAddr",
    "std::net::Ipv4Addr",
    "std::net::Ipv6Addr",
    "std::time::Duration",
    "core::time::Duration",
];

/// What changes files.
const WRITES: &[&str] = &[
    "std::fs::OpenOptions",
    "std::fs::DirBuilder",
    "std::fs::File::create",
    "std::fs::File::create_new",
    "std::fs::File::options",
    "std::fs::write",
    "std::fs::rename",
    "std::fs::copy",
    "std::fs::remove_file",
    "std::fs::remove_dir",
    "std::fs::remove_dir_all",
    "std::fs::create_dir",
    "std::fs::create_dir_all",
    "std::fs::hard_link",
    "std::fs::soft_link",
    "std::fs::set_permissions",
    "std::fs::*",
    "std::os::unix::fs::symlink",
    "libc::open",
    "libc::openat",
    "libc::creat",
    "libc::rename",
    "libc::unlink",
    "libc::mkdir",
    "libc::ftruncate",
];

/// Where `unsafe` may stand.
const UNSAFE_ROOMS: &[&str] =
    &["src/ffi/", "src/schedules/kernels", "src/runtime/memory/buffer", "src/wiping/", "src/net/", "src/bin/"];

const FILE_LINES_MAX: usize = 500;
const INLINE_TEST_LINES_MAX: usize = 150;
const TEST_FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;
const TEST_FUNCTION_LINES_MAX: usize = 80;

/// The statics that there are, each with its reason. Nothing else belongs to a process as a whole.
pub const STATICS: &[(&str, &str, &str)] = &[
    ("src/runtime/base/log.rs", "SINK", "process-wide: where log lines go"),
    ("src/runtime/base/log.rs", "HANDLERS", "part of that sink: registered once"),
    ("src/runtime/base/log.rs", "HELD", "part of that sink: its lock, while this thread forks"),
    ("src/ffi/guard.rs", "LAST_ERROR", "per thread: the last failing call's sentence"),
    ("src/ffi/guard.rs", "AT_THREADS_END", "per thread: frees that sentence"),
    ("src/ffi/messages.rs", "PROBER", "per thread: how it has asked for messages lately"),
    ("src/ffi/request.rs", "TESTER", "per thread: how it has tested requests lately"),
    ("src/ffi/request.rs", "NOTIFIES", "per thread: whether it is in a function that was told of a request's end"),
    ("src/net/fork.rs", "TABLE", "process-wide: the descriptors that a forked child must close"),
    ("src/net/fork.rs", "GENERATION", "part of that table: how often this process was forked"),
    ("src/net/fork.rs", "HANDLERS", "part of that table: registered once"),
    ("src/net/fork.rs", "HELD", "part of that table: its lock, while this thread forks"),
    ("src/wiping/allocator.rs", "ALLOCATOR", "process-wide: the allocator, which has no state"),
    ("src/wiping/allocator.rs", "SCOPES", "per thread: whether it handles secrets"),
    ("src/wiping/hidden.rs", "PLACE", "process-wide: where that allocator keeps what is needed later of secrets"),
    ("src/wiping/hidden.rs", "TAKEN", "part of that heap: which of its blocks are taken"),
    ("src/tls/password.rs", "TAKEN", "process-wide: the passwords that came by a descriptor, which can be read once"),
    ("src/bin/muster/status/ask.rs", "ASKER", "process-wide: what the command shows a scheduler under TLS"),
    ("src/config/table.rs", "TABLE", "constant: every setting"),
    ("src/config/launchers.rs", "LAUNCHERS", "constant: the launchers that are known"),
    ("src/schedules/algorithm.rs", "ALGORITHMS", "constant: the algorithms"),
    ("src/schedules/algorithm.rs", "FIRST_LINES", "constant: where the lines of each kind begin in them"),
    ("src/schedules/algorithm.rs", "EXACT", "constant: the algorithms of exact sums"),
];

/// Imports point down only.
fn layers(source: &Source) -> Broken {
    let room = source.room();
    if ["sim", "fuzz"].contains(&room) {
        return Vec::new();
    }
    let product = source.names.iter().filter(|name| !name.test);
    if room.is_empty() {
        // The root only lists the rooms: what it brought in would be there for everyone.
        return say(product.filter(|name| name.imported), |name| format!("the root brings in {}", name.text()));
    }
    let Some((_, below)) = LAYERS.iter().find(|(name, _)| *name == room) else {
        return vec![(1, format!("{room} is no room that the house knows"))];
    };
    let upwards = product.filter(|name| name.parts[0] == "crate").filter(|name| match name.parts.get(1) {
        Some(other) => other != room && !below.contains(&other.as_str()),
        None => true,
    });
    say(upwards, |name| format!("{room} names {}", name.text()))
}

/// Rooms without IO name no socket, thread, file or clock.
fn io_free(source: &Source) -> Broken {
    if !IO_FREE.contains(&source.room()) {
        return Vec::new();
    }
    let kernels = source.path.starts_with("src/schedules/kernels");
    let foreign = source.names.iter().filter(|name| {
        let alias = name.imported && ["std", "core"].contains(&name.text().trim_end_matches("::*"));
        let arch = !kernels && ["std::arch", "core::arch"].iter().any(|path| is_within(name, path));
        alias || arch || (names_any(name, IO) && !names_any(name, PLAIN))
    });
    say(foreign, |name| format!("{} has no IO, and names {}", source.room(), name.text()))
}

/// `net` knows nothing of ranks.
fn net_knows_no_ranks(source: &Source) -> Broken {
    if source.room() != "net" {
        return Vec::new();
    }
    let ranks = source.words.iter().filter(|(word, _)| {
        let word = word.to_lowercase();
        word.split('_').any(|part| part == "rank" || part == "ranks") || word == "groupid"
    });
    ranks.map(|(word, line)| (*line, format!("net knows nothing of ranks, and names {word}"))).collect()
}

/// Nobody but `runtime` writes files. (The command keeps its workers' logs.)
fn only_runtime_persists(source: &Source) -> Broken {
    if ["runtime", "journal", "sim", "bin"].contains(&source.room()) {
        return Vec::new();
    }
    let writes = source.names.iter().filter(|name| !name.test && names_any(name, WRITES));
    say(writes, |name| format!("only runtime persists, and here is {}", name.text()))
}

fn unsafe_has_its_rooms(source: &Source) -> Broken {
    if UNSAFE_ROOMS.iter().any(|room| source.path.starts_with(room)) {
        return Vec::new();
    }
    source.unsafes.iter().map(|block| (block.line, "unsafe has no place here".to_owned())).collect()
}

/// A comment with SAFETY stands right before each `unsafe`, or before the statement that it is in.
fn unsafe_says_why(source: &Source) -> Broken {
    let lines: Vec<&str> = source.text.lines().map(str::trim).collect();
    let silent = source.unsafes.iter().filter(|block| !says_why(&lines, block.line));
    silent.map(|block| (block.line, "unsafe without a SAFETY sentence before it".to_owned())).collect()
}

fn says_why(lines: &[&str], line: usize) -> bool {
    let mut commented = false;
    for before in lines[..line - 1].iter().rev().take(40) {
        let comment = before.starts_with("//");
        if comment && (before.contains("SAFETY:") || before.contains("# Safety")) {
            return true;
        }
        let attribute = before.starts_with("#[");
        // Another statement ends above: what is written before it belongs to that one.
        let ends = before.is_empty() || before.ends_with([';', '}']) || (before.ends_with('{') && commented);
        if !comment && !attribute && (ends || commented) {
            return false;
        }
        commented |= comment;
    }
    false
}

/// In `net` and in the command an unsafe block holds one call of libc.
fn single_libc_calls(source: &Source) -> Broken {
    if !["net", "bin"].contains(&source.room()) || source.is_test() {
        return Vec::new();
    }
    let calls = source.unsafes.iter().filter_map(|block| Some((block.line, source.libc_calls(block)?)));
    let many = calls.filter(|(_, calls)| *calls > 1);
    many.map(|(line, calls)| (line, format!("{calls} calls of libc in one unsafe block"))).collect()
}

fn short_files(source: &Source) -> Broken {
    let max = if source.is_test() { TEST_FILE_LINES_MAX } else { FILE_LINES_MAX };
    match source.text.lines().count() {
        lines if lines > max => vec![(max + 1, format!("{lines} lines: {max} at most"))],
        _ => Vec::new(),
    }
}

/// Tests that are long stand in a file of their own.
fn long_tests_beside(source: &Source) -> Broken {
    let lines: usize = source.test_modules.iter().map(|(_, lines)| lines).sum();
    let first = source.test_modules.first().filter(|_| lines > INLINE_TEST_LINES_MAX);
    let sentence = format!("{lines} lines of tests: more than {INLINE_TEST_LINES_MAX} stand in a file beside this one");
    first.map(|(line, _)| (*line, sentence)).into_iter().collect()
}

fn short_functions(source: &Source) -> Broken {
    let max = |function: &Function| if function.test { TEST_FUNCTION_LINES_MAX } else { FUNCTION_LINES_MAX };
    let long = source.functions.iter().filter(|function| function.lines > max(function));
    long.map(|long| (long.line, format!("{} has {} lines: {} at most", long.name, long.lines, max(long)))).collect()
}

/// Whatever lives as long as the process is known by name.
fn named_statics(source: &Source) -> Broken {
    let unknown = source.statics.iter().filter(|found| {
        let named = STATICS.iter().any(|(path, name, _)| *path == source.path && *name == found.name);
        found.mutable || (!named && !found.test)
    });
    unknown.map(|found| (found.line, format!("static {} is not among the named ones", found.name))).collect()
}

/// A file of another room doesn't come in by its path.
fn no_foreign_files(source: &Source) -> Broken {
    let foreign = source.included.iter().filter(|(path, _)| path.contains('/') || !path.ends_with("_test.rs"));
    foreign.map(|(path, line)| (*line, format!("{path} is brought in by its path"))).collect()
}

fn is_within(name: &Name, path: &str) -> bool {
    let parts = path.split("::");
    let mut own = name.parts.iter();
    parts.into_iter().all(|part| own.next().is_some_and(|mine| mine == part))
}

fn names_any(name: &Name, paths: &[&str]) -> bool {
    paths.iter().any(|path| is_within(name, path))
}

fn say<'a>(names: impl Iterator<Item = &'a Name>, sentence: impl Fn(&Name) -> String) -> Broken {
    names.map(|name| (name.line, sentence(name))).collect()
}
