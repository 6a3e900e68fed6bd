//! `include/muster.h` is what cbindgen makes of `src/ffi`. `make header` (which is this test with MUSTER_BLESS=1) writes it.

use std::fs;
use std::path::{Path, PathBuf};

/// What belongs together in the header, in the order in which one reads it; other files of `src/ffi` follow.
const ORDER: &[&str] = &[
    "constants",
    "about",
    "settings",
    "life",
    "scheduler",
    "cluster",
    "group",
    "collectives",
    "reductions",
    "lists",
    "messages",
    "store",
];

fn ffi_files(root: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(root.join("src/ffi")).expect("src/ffi can be read");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("its entries too").path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "rs"));
    // mod.rs only lists the others, and cbindgen would follow it to them a second time.
    files.retain(|path| !path.ends_with("mod.rs") && !path.to_string_lossy().ends_with("_test.rs"));
    let place = |path: &PathBuf| {
        let stem = path.file_stem().expect("a file has a name").to_string_lossy().into_owned();
        (ORDER.iter().position(|name| *name == stem).unwrap_or(ORDER.len()), stem)
    };
    files.sort_by_key(place);
    files
}

fn generate(root: &Path) -> String {
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("cbindgen.toml can be read");
    let builder = cbindgen::Builder::new().with_config(config);
    let builder = ffi_files(root).into_iter().fold(builder, |builder, path| builder.with_src(path));
    let mut header = Vec::new();
    builder.generate().expect("cbindgen understands src/ffi").write(&mut header);
    in_the_manner_of_c(&String::from_utf8(header).expect("the sources are UTF-8"))
}

/// What cbindgen leaves to be done: comments of one line on one line, negative constants in parentheses, and Rust's
/// heading for what a caller must see to in plain words.
fn in_the_manner_of_c(header: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in header.lines() {
        let line = match line.strip_prefix("#define ").and_then(|define| define.split_once(" -")) {
            Some((name, number)) => format!("#define {name} (-{number})"),
            None => line.replace("* # Safety", "* Requires:"),
        };
        let opened = lines.len().checked_sub(2).filter(|at| lines[*at].trim() == "/**" && line.trim() == "*/");
        match opened {
            Some(at) => {
                let sentence = lines[at + 1].trim().trim_start_matches("* ").to_owned();
                let indent = lines[at].len() - lines[at].trim_start().len();
                lines.truncate(at);
                lines.push(format!("{}/** {sentence} */", " ".repeat(indent)));
            }
            None => lines.push(line),
        }
    }
    lines.join("\n") + "\n"
}

#[test]
fn the_header_is_the_one_that_the_sources_make() {
    let root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it for every test"));
    let path = root.join("include/muster.h");
    let made = generate(&root);
    if std::env::var_os("MUSTER_BLESS").is_some() {
        fs::create_dir_all(path.parent().expect("it lies in a folder")).expect("include can be made");
        return fs::write(&path, made).expect("the header can be written");
    }
    let there = fs::read_to_string(&path).unwrap_or_default();
    let differs = there.lines().zip(made.lines()).position(|(there, made)| there != made);
    let line = differs.unwrap_or_else(|| there.lines().count().min(made.lines().count())) + 1;
    assert!(there == made, "include/muster.h differs from src/ffi, from line {line} on; run `make header`");
}
