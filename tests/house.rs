//! Holds the house to its rules: layers, rooms without IO, where `unsafe` may stand, lengths, statics.
//!
//! Most rules look at one file at a time (`house/source.rs` reads it, `house/rules.rs` judges it), so that each can be
//! shown a file that breaks it (`house/planted.rs`). Layers inside the runtime, circles and the size of types are seen in the
//! house as a whole (`house/shape.rs`, `house/whole.rs`). Of files in C, C++ and Python only lengths are judged
//! (`house/lengths.rs`).

#[path = "house/lengths.rs"]
mod lengths;
#[path = "house/map.rs"]
mod map;
#[path = "house/planted.rs"]
mod planted;
#[path = "house/rules.rs"]
mod rules;
#[path = "house/shape.rs"]
mod shape;
#[path = "house/source.rs"]
mod source;
#[path = "house/whole.rs"]
mod whole;

use source::Source;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it for every test"))
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder of the repository can be read");
    entries.map(|entry| entry.expect("an entry of it too").path()).collect()
}

fn files(folder: &Path, endings: &[&str], into: &mut Vec<PathBuf>) {
    for path in entries(folder) {
        if path.is_dir() {
            files(&path, endings, into);
        } else if path.extension().is_some_and(|own| endings.iter().any(|ending| own == *ending)) {
            into.push(path);
        }
    }
}

/// The files with such endings in these folders, by their paths in the repository, with their texts.
fn texts(folders: &[PathBuf], endings: &[&str]) -> Vec<(String, String)> {
    let (root, mut paths) = (root(), Vec::new());
    for folder in folders {
        files(folder, endings, &mut paths);
    }
    paths.sort();
    let read = |path: &PathBuf| {
        let text = fs::read_to_string(path).expect("a source file can be read");
        let name = path.strip_prefix(&root).expect("it lies in the repository").to_string_lossy().replace('\\', "/");
        (name, text)
    };
    paths.iter().map(read).collect()
}

fn sources() -> Vec<Source> {
    texts(&[root().join("src")], &["rs"]).iter().map(|(name, text)| Source::parse(name, text)).collect()
}

/// The files in C, C++ and Python in the folders of the repository. What is hidden, or what git ignores, is none of the project's.
fn others() -> Vec<(String, String)> {
    let ignored = fs::read_to_string(root().join(".gitignore")).expect("a file of the repository can be read");
    let is_own = |path: &PathBuf| {
        let name = path.file_name().expect("it has a name").to_string_lossy();
        path.is_dir() && !name.starts_with('.') && !ignored.lines().any(|line| line.strip_prefix('/') == Some(&name))
    };
    let folders: Vec<PathBuf> = entries(&root()).into_iter().filter(is_own).collect();
    texts(&folders, lengths::ENDINGS)
}

#[test]
fn the_house_keeps_its_rules() {
    let mut broken = Vec::new();
    for source in sources() {
        for (rule, check) in rules::RULES {
            for (line, sentence) in check(&source) {
                broken.push(format!("{}:{line}: {rule}: {sentence}", source.path));
            }
        }
    }
    assert!(broken.is_empty(), "{} violations:\n{}", broken.len(), broken.join("\n"));
}

#[test]
fn the_rules_see_the_house() {
    let sources = sources();
    let count = |count: fn(&Source) -> usize| sources.iter().map(count).sum::<usize>();
    assert!(sources.len() > 30);
    assert!(count(|source| source.names.iter().filter(|name| name.parts[0] == "crate").count()) > 300);
    assert!(count(|source| source.functions.len()) > 300);
    assert!(count(|source| source.unsafes.len()) > 10);
}

#[test]
fn files_in_other_languages_are_short() {
    let mut broken = Vec::new();
    for (path, text) in &others() {
        for (rule, check) in lengths::RULES {
            broken
                .extend(check(path, text).iter().map(|(line, sentence)| format!("{path}:{line}: {rule}: {sentence}")));
        }
    }
    assert!(broken.is_empty(), "{} violations:\n{}", broken.len(), broken.join("\n"));
}

#[test]
fn the_lengths_are_those_of_the_projects_files() {
    let others = others();
    for ending in lengths::ENDINGS {
        assert!(others.iter().any(|(path, _)| path.ends_with(&format!(".{ending}"))), "no file ends with .{ending}");
    }
    let count = |is: fn(&str) -> bool| {
        let some = others.iter().filter(|(path, _)| is(path));
        some.map(|(path, text)| lengths::functions(path, text).len()).sum::<usize>()
    };
    assert!(count(|path| path.ends_with(".py")) > 1000 && count(|path| !path.ends_with(".py")) > 1000);
    for (path, reason) in lengths::LONG {
        let is_long = |(own, text): &(String, String)| own == path && text.lines().count() > lengths::FILE_LINES_MAX;
        assert!(others.iter().any(is_long), "{path} is listed ({reason}), and not long: strike it");
    }
}

/// The statics that are named, and are not there.
fn missing_statics(sources: &[Source]) -> Vec<String> {
    let is_there = |path: &str, name: &str| {
        let own = sources.iter().filter(|source| source.path == path).flat_map(|source| &source.statics);
        own.into_iter().any(|found| found.name == name)
    };
    let missing = rules::STATICS.iter().filter(|(path, name, _)| !is_there(path, name));
    missing.map(|(path, name, reason)| format!("{path} has no static {name} ({reason})")).collect()
}

#[test]
fn every_named_static_exists() {
    assert_eq!(missing_statics(&sources()), Vec::<String>::new());
    let one = Source::parse("src/runtime/base/log.rs", "static SINK: u8 = 0;");
    assert_eq!(missing_statics(&[one]).len(), rules::STATICS.len() - 1, "all but that one are missed");
}

#[test]
fn the_house_as_a_whole_keeps_its_rules() {
    let broken = whole::broken(&sources());
    assert!(broken.is_empty(), "{} violations:\n{}", broken.len(), broken.join("\n"));
}

#[test]
fn the_code_map_is_as_the_layers() {
    let read = |name: &str| fs::read_to_string(root().join(name)).expect("a file of the repository can be read");
    assert_eq!(map::differences(&read("ARCHITECTURE.md")), Vec::<String>::new());
    assert_eq!(map::unlisted(&read("src/lib.rs")), Vec::<&str>::new());
}

/// `MUSTER_BLESS=1` draws it anew.
#[test]
fn the_picture_of_the_runtime_is_as_the_code() {
    let (path, drawn) = (root().join("docs/architecture/runtime.md"), whole::picture(&sources()));
    if std::env::var_os("MUSTER_BLESS").is_some() {
        fs::create_dir_all(path.parent().expect("it lies in a folder")).expect("the folder can be made");
        fs::write(&path, &drawn).expect("the picture can be written");
    }
    assert_eq!(fs::read_to_string(&path).expect("the picture is checked in"), drawn, "MUSTER_BLESS=1 draws it anew");
}
