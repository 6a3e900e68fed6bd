//! The border of the library: what it exports is what `abi/symbols.txt` lists and what the header declares, its SONAME
//! carries the ABI number, the header compiles as strict C and C++, and its numbers are the library's own.

use muster::error::Status;
use muster::types::{DType, ReduceOp};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it for every test"))
}

/// The shared library that cargo has built together with this test: it lies beside it.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("a running program has a path");
    let library = test.parent().expect("it lies in a folder").join("libmuster.so");
    assert!(library.exists(), "{} is missing; cargo builds it with the tests", library.display());
    library
}

/// A folder of this test's own.
fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("abi-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("cargo's folder for tests can be written");
    folder
}

/// What a program prints; it must succeed.
fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program} {arguments:?}: {}\n{text}{errors}", output.status);
    text.into_owned()
}

fn header() -> String {
    fs::read_to_string(root().join("include/muster.h")).expect("include/muster.h is there; `make header` makes it")
}

/// The header without comments.
fn declarations() -> String {
    let header = header();
    let mut parts = header.split("/*");
    let mut code = parts.next().unwrap_or_default().to_owned();
    parts.for_each(|part| code.push_str(part.split_once("*/").map_or("", |(_, after)| after)));
    code
}

fn is_of_a_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// The functions that the header declares: names before an opening parenthesis.
fn declared() -> BTreeSet<String> {
    let code = declarations();
    let names =
        code.match_indices('(').map(|(at, _)| code[..at].rsplit(|c| !is_of_a_name(c)).next().unwrap_or_default());
    names.filter(|name| name.starts_with("muster_")).map(str::to_owned).collect()
}

/// The constants that the header defines.
fn constants() -> BTreeMap<String, i64> {
    let code = declarations();
    let defines = code.lines().filter_map(|line| line.strip_prefix("#define MUSTER_")?.split_once(' '));
    let number = |text: &str| text.trim().trim_matches(['(', ')']).parse().ok();
    defines.filter_map(|(name, text)| Some((name.to_owned(), number(text)?))).collect()
}

fn exported() -> BTreeSet<String> {
    let library = library();
    let symbols = output("nm", &["-D", "--defined-only", &library.to_string_lossy()]);
    symbols.lines().filter_map(|line| line.split_whitespace().last()).map(str::to_owned).collect()
}

#[test]
fn the_exported_symbols_are_the_listed_ones() {
    let path = root().join("abi/symbols.txt");
    let exported: String = exported().iter().map(|name| format!("{name}\n")).collect();
    if std::env::var_os("MUSTER_BLESS").is_some() {
        fs::create_dir_all(path.parent().expect("it lies in a folder")).expect("abi can be made");
        return fs::write(&path, exported).expect("the list can be written");
    }
    let listed = fs::read_to_string(&path).unwrap_or_default();
    let only = |these: &str, those: &str| -> Vec<String> {
        these.lines().filter(|name| !those.lines().any(|other| other == *name)).map(str::to_owned).collect()
    };
    assert!(
        exported == listed,
        "abi/symbols.txt: exported, not listed: {:?}; listed, not exported: {:?}. If that is meant: \
         `MUSTER_BLESS=1 cargo test --test abi`",
        only(&exported, &listed),
        only(&listed, &exported),
    );
}

/// The structs that the header defines, with their members.
fn structs() -> BTreeMap<String, Vec<String>> {
    let code = declarations();
    let bodies = code.split("typedef struct {").skip(1).filter_map(|text| text.split_once('}'));
    let member = |line: &str| {
        let name = line.trim().strip_suffix(';')?.rsplit(' ').next()?;
        Some(name.split('[').next().unwrap_or(name).trim_start_matches('*').to_owned())
    };
    bodies
        .map(|(body, rest)| {
            let name = rest.split(';').next().unwrap_or_default().trim().to_owned();
            (name, body.lines().filter_map(member).collect())
        })
        .collect()
}

/// What programs carry within them of the header: a line for each constant, each struct and each member, with its number, or its
/// size and place.
fn numbers() -> String {
    let mut prints = String::new();
    for name in constants().keys() {
        prints += &format!("    printf(\"MUSTER_{name} %lld\\n\", (long long)MUSTER_{name});\n");
    }
    for (name, members) in structs() {
        prints += &format!("    printf(\"{name} %zu\\n\", sizeof({name}));\n");
        for member in members {
            let place = format!("offsetof({name}, {member}), sizeof((({name} *)0)->{member})");
            prints += &format!("    printf(\"{name}.{member} at %zu, %zu\\n\", {place});\n");
        }
    }
    let folder = scratch("numbers");
    let (program, source) = (folder.join("program"), folder.join("program.c"));
    let text = format!("#include \"muster.h\"\n#include <stdio.h>\n\nint main(void) {{\n{prints}    return 0;\n}}\n");
    fs::write(&source, text).expect("the folder can be written");
    let include = format!("-I{}", root().join("include").display());
    output(
        "cc",
        &["-std=c99", "-Wall", "-Werror", &include, "-o", &program.to_string_lossy(), &source.to_string_lossy()],
    );
    let told = output(&program.to_string_lossy(), &[]);
    fs::remove_dir_all(&folder).expect("what was made can be removed");
    told
}

#[test]
fn the_numbers_in_the_header_are_the_checked_in_list() {
    let path = root().join("abi/numbers.txt");
    let numbers = numbers();
    assert!(structs().len() > 3 && structs().values().all(|members| members.len() > 1), "{:?}", structs());
    if std::env::var_os("MUSTER_BLESS").is_some() {
        return fs::write(&path, numbers).expect("the list can be written");
    }
    let listed = fs::read_to_string(&path).unwrap_or_default();
    let lost: Vec<&str> = listed.lines().filter(|line| !numbers.lines().any(|other| other == *line)).collect();
    assert!(
        numbers == listed,
        "abi/numbers.txt: the header no longer has {lost:?}. A line may be added, and a struct may grow at its end \
         (docs/abi.md); then: `MUSTER_BLESS=1 cargo test --test abi`"
    );
}

#[test]
fn the_exported_symbols_are_the_declared_ones() {
    assert!(!declared().is_empty());
    assert_eq!(exported(), declared());
}

/// What an entry calls to be a panic boundary: the guards themselves, or a function of its file that is one.
const BOUNDARIES: [&str; 8] =
    ["guard(", "guard_or(", "guard_number(", "small(", "number(", "borrowed(", "run(", "start("];
/// Entries that only read a constant, or hand a pointer to `free`.
const CANNOT_PANIC: [&str; 4] = ["muster_abi_version", "muster_version", "muster_status_string", "muster_free"];

/// Whether an entry with this body calls a boundary, and not only something whose name ends like one.
fn is_guarded(body: &str) -> bool {
    let ends_a_name = |before: &str| before.ends_with(|c: char| is_of_a_name(c) || c == ':' || c == '.');
    BOUNDARIES.iter().any(|boundary| body.match_indices(boundary).any(|(at, _)| !ends_a_name(&body[..at])))
}

#[test]
fn what_only_ends_like_a_boundary_is_none() {
    for body in ["thread::start(group)", "group.run(call)", "is_small(group)", "unguard(|| Ok(()))", "start_of(group)"]
    {
        assert!(!is_guarded(&format!("\n    unsafe {{ {body} }}")), "{body}");
    }
    assert!(is_guarded("\n    unsafe { run(group, |group| group.run(call)) }") && is_guarded("guard(|| Ok(()))"));
}

#[test]
fn every_entry_is_a_panic_boundary() {
    let mut seen = BTreeSet::new();
    for entry in fs::read_dir(root().join("src/ffi")).expect("the folder is there") {
        let text = fs::read_to_string(entry.expect("it can be listed").path()).expect("a source can be read");
        for function in text.split("extern \"C\" fn muster_").skip(1) {
            let name = format!("muster_{}", function.split('(').next().unwrap_or_default());
            let body = function.split_once('{').map_or("", |(_, rest)| rest.split("\n}").next().unwrap_or_default());
            assert!(is_guarded(body) != CANNOT_PANIC.contains(&name.as_str()), "{name}: {body}");
            seen.insert(name);
        }
    }
    assert_eq!(seen, declared());
}

#[test]
fn the_soname_carries_the_abi_number() {
    let dynamic = output("readelf", &["-d", &library().to_string_lossy()]);
    let wanted = format!("[libmuster.so.{}]", constants()["ABI_VERSION"]);
    let soname = dynamic.lines().find(|line| line.contains("(SONAME)"));
    assert!(soname.is_some_and(|line| line.ends_with(&wanted)), "SONAME {wanted} expected:\n{dynamic}");
}

#[test]
fn the_header_has_the_version_of_the_package() {
    let part = |text: &str| text.parse::<i64>().expect("cargo gives numbers");
    let (major, minor) = (part(env!("CARGO_PKG_VERSION_MAJOR")), part(env!("CARGO_PKG_VERSION_MINOR")));
    assert_eq!(constants()["ABI_VERSION"], major, "the SONAME's number is the major one");
    assert_eq!(constants()["HEADER_VERSION"], major | minor << 16, "src/ffi/constants.rs: the minor number has grown");
}

/// Compiles a program that includes the header twice and refers to every function; links it when told to.
fn compile(compiler: &str, standard: &str, suffix: &str, link: bool) {
    let folder = scratch(&format!("{standard}-{link}"));
    let uses: String = declared().iter().map(|name| format!("    (any_function){name},\n")).collect();
    let text = format!(
        "#include \"muster.h\"\n#include \"muster.h\"\n\ntypedef void (*any_function)(void);\n\
         any_function all[] = {{\n{uses}}};\n\nint main(void) {{\n    return all[0] == 0;\n}}\n"
    );
    let (program, source) = (folder.join("program"), folder.join(format!("program.{suffix}")));
    fs::write(&source, text).expect("the folder can be written");
    let (include, library) = (format!("-I{}", root().join("include").display()), library());
    let (standard, program, source) = (format!("-std={standard}"), program.to_string_lossy(), source.to_string_lossy());
    let library = library.to_string_lossy();
    let mut arguments =
        vec![&*standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror", &include, "-o", &program, &source];
    arguments.push(if link { &library } else { "-c" });
    output(compiler, &arguments);
    fs::remove_dir_all(&folder).expect("what was made can be removed");
}

#[test]
fn the_header_compiles_as_c_and_links() {
    ["c99", "c11", "gnu99"].into_iter().for_each(|standard| compile("cc", standard, "c", false));
    compile("cc", "c99", "c", true);
}

#[test]
fn the_header_compiles_as_cpp_and_links() {
    ["c++11", "c++17", "c++20"].into_iter().for_each(|standard| compile("c++", standard, "cpp", false));
    compile("c++", "c++11", "cpp", true);
}

#[test]
fn the_numbers_of_the_header_are_the_librarys() {
    let constants = constants();
    let mut statuses = 0;
    for (name, number) in &constants {
        let code = i32::try_from(*number).expect("the header's numbers are small");
        if name.starts_with("ERR_") || ["OK", "IN_PROGRESS", "SCHEDULER_DONE"].contains(&name.as_str()) {
            let text = Status::from_code(code).map(|status| status.text().to_string_lossy().into_owned());
            let named = text.as_ref().and_then(|text| text.split(':').next());
            assert_eq!(named, Some(name.as_str()), "MUSTER_{name} is {number}");
            statuses += 1;
        }
    }
    assert_eq!((-100..100).filter(|code| Status::from_code(*code).is_some()).count(), statuses);
    let number = |name: String| constants.get(&name.to_uppercase()).copied();
    for dtype in DType::ALL {
        assert_eq!(number(dtype.to_string()), Some(i64::from(dtype.code())), "{dtype}");
    }
    for op in ReduceOp::ALL {
        assert_eq!(number(op.to_string()), Some(i64::from(op.code())), "{op}");
    }
}
