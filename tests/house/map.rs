//! The code map of ARCHITECTURE.md and the table of `src/lib.rs`, as the layers have it.

use super::rules::LAYERS;
use std::collections::BTreeSet;

/// The rooms of a list such as `wire and below, types`, after those above it in the map.
fn rooms(words: &str, above: &[&str]) -> BTreeSet<String> {
    let (words, without) = words.split_once(" but ").unwrap_or((words, ""));
    let mut found = BTreeSet::new();
    for word in words.split(", ").filter(|word| !word.is_empty()) {
        let name = word.strip_suffix(" and below").unwrap_or(word);
        match name {
            "all of the above" => found.extend(above.iter().map(|room| (*room).to_owned())),
            name => _ = found.insert(name.to_owned()),
        }
        let below = LAYERS.iter().find(|(room, _)| name != word && *room == name).map_or(&[][..], |(_, below)| below);
        found.extend(below.iter().map(|room| (*room).to_owned()));
    }
    found.remove(without);
    found
}

/// What the map says of each room that the layers do not say, and the reverse. `sim` may use all, and is no layer.
pub fn differences(map: &str) -> Vec<String> {
    let mut above: Vec<&str> = Vec::new();
    let mut wrong = Vec::new();
    for row in map.lines().filter_map(|line| line.strip_prefix("| `src/")) {
        let cells: Vec<&str> = row.trim_end_matches('|').split(" | ").map(str::trim).collect();
        let room = cells[0].trim_end_matches('`').split('/').next().expect("there is a first one");
        let said = rooms(cells.get(2).unwrap_or(&""), &above);
        let layer = LAYERS.iter().find(|(name, _)| *name == room).map(|(_, below)| below);
        let held = layer.map(|below| below.iter().map(|room| (*room).to_owned()).collect::<BTreeSet<_>>());
        above.push(room);
        match held {
            Some(held) if held == said => {}
            None if room == "sim" => {}
            held => wrong.push(format!("{room}: the map says {said:?}, the layers {held:?}")),
        }
    }
    let missing = LAYERS.iter().filter(|(room, _)| !above.contains(room));
    wrong.extend(missing.map(|(room, _)| format!("{room} is not in the map")));
    wrong
}

/// The rooms of the library that this table lacks.
pub fn unlisted(root: &str) -> Vec<&'static str> {
    let rooms = LAYERS.iter().map(|(room, _)| *room).filter(|room| *room != "bin");
    rooms.filter(|room| !root.contains(&format!("//! | [`{room}`] | "))).collect()
}

#[test]
fn a_map_that_differs_is_found() {
    let row = |(room, below): &(&str, &[&str])| format!("| `src/{room}` | what it is | {} |\n", below.join(", "));
    let good: String = LAYERS.iter().map(row).collect();
    assert_eq!(differences(&good), Vec::<String>::new());
    for (from, to) in [
        ("| `src/types` | what it is |  |", "| `src/types` | what it is | error |"),
        ("| `src/strangers` | what it is | types |", "| `src/strangers` | what it is | |"),
        ("| `src/strangers` | what it is | types |\n", ""),
        ("| `src/strangers` |", "| `src/others` |"),
        ("| `src/runtime` | what it is |", "| `src/runtime` | what it is | all of the above,"),
    ] {
        assert!(good.contains(from), "{from}");
        assert_ne!(differences(&good.replace(from, to)), Vec::<String>::new(), "{to}");
    }
    assert!(unlisted("//! | [`types`] | the nouns |").contains(&"error"));
    assert!(!unlisted("//! | [`types`] | the nouns |").contains(&"types"));
}
