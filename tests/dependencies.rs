//! What the library and the command bring along: each crate has a reason on docs/dependencies.md, a licence that users can take, and
//! one version. Advisories need a data base from the network: `cargo deny check advisories` reads it where it is installed.

use std::collections::BTreeMap;
use std::process::Command;

/// Licences that ask for no more than to be named.
const ALLOWED: [&str; 8] = ["MIT", "Apache-2.0", "ISC", "BSD-3-Clause", "Unicode-3.0", "Zlib", "Unlicense", "0BSD"];

/// Whether a licence in SPDX's words can be kept: of what is joined by OR one, of what is joined by AND all.
fn is_allowed(licence: &str) -> bool {
    let words = licence.replace(['(', ')'], " ");
    if licence.contains(" AND ") {
        return words.split(" AND ").all(|part| part.split(" OR ").any(|one| ALLOWED.contains(&one.trim())));
    }
    words.split(" OR ").any(|one| ALLOWED.contains(&one.trim()))
}

/// All crates of the tree, with versions and licences.
fn tree(more: &[&str]) -> BTreeMap<String, Vec<(String, String)>> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    let output =
        cargo.args(["tree", "--offline", "-e", "normal", "--prefix", "none", "-f", "{p}\t{l}"]).args(more).output();
    let output = output.expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut crates: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let (package, licence) = line.split_once('\t').expect("package and licence");
        let mut words = package.split(' ');
        let (name, version) = (words.next().unwrap().to_owned(), words.next().unwrap().to_owned());
        let versions = crates.entry(name).or_default();
        let found = (version, licence.trim_end_matches(" (*)").to_owned());
        if !versions.contains(&found) {
            versions.push(found);
        }
    }
    crates.remove("muster").expect("the tree begins with this crate");
    crates
}

/// The first cell of each row of the page's tables.
fn listed() -> Vec<String> {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/dependencies.md")).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    rows.flat_map(|(names, _)| names.split("`, `").map(str::to_owned).collect::<Vec<_>>()).collect()
}

#[test]
fn each_dependency_has_a_reason_a_licence_and_one_version() {
    let (crates, listed) = (tree(&[]), listed());
    assert!(crates.len() > 10, "{crates:?}");
    for (name, versions) in &crates {
        assert!(listed.contains(name), "{name} is not on docs/dependencies.md: it needs a reason");
        assert_eq!(versions.len(), 1, "{name} is there in several versions: {versions:?}");
        let licence = &versions[0].1;
        assert!(is_allowed(licence), "{name} has the licence {licence:?}");
    }
    for name in listed {
        assert!(crates.contains_key(&name), "docs/dependencies.md lists {name}, which nothing needs");
    }
}

/// The library alone brings none of what the command needs.
#[test]
fn the_library_brings_less_than_the_command() {
    let (all, library) = (tree(&[]), tree(&["--no-default-features"]));
    assert!(library.keys().all(|name| all.contains_key(name)) && library.len() < all.len());
    assert!(!library.contains_key("lexopt"));
}

#[test]
fn licences_are_read_as_they_are_written() {
    for (licence, allowed) in [
        ("MIT OR Apache-2.0", true),
        ("GPL-3.0 OR MIT", true),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
        ("Apache-2.0 AND ISC", true),
        ("GPL-3.0", false),
        ("MIT AND GPL-3.0", false),
        ("", false),
    ] {
        assert_eq!(is_allowed(licence), allowed, "{licence}");
    }
}
