use super::*;
use crate::journal::testdisk::MemoryDisk;
use std::collections::HashMap;

fn identity(node_id: &str) -> Identity {
    of(node_id, Some([1; 32]), Some([2; 32]))
}

fn of(node_id: &str, current: Option<Token>, next: Option<Token>) -> Identity {
    let own = Entry { job_id: Some("job".into()), current, next };
    Identity { node_id: node_id.into(), own, aside: Vec::new() }
}

#[test]
fn what_is_stored_is_loaded() {
    let disk = MemoryDisk::new(1);
    let longest = "\u{fffd}".repeat(NAME_MAX / 3);
    for node_id in ["0", "", "worker 1/2", longest.as_str()] {
        assert_eq!(Identity::load(&disk, node_id).unwrap(), None);
        identity(node_id).store(&disk).unwrap();
        assert_eq!(Identity::load(&disk, node_id).unwrap(), Some(identity(node_id)));
    }
}

#[test]
fn a_store_is_durable_and_replaces_the_one_before() {
    let mut disk = MemoryDisk::new(2);
    for (current, next) in [(None, None), (None, Some([8; 32])), (Some([8; 32]), None), (Some([8; 32]), Some([9; 32]))]
    {
        for job_id in [None, Some("j".repeat(NAME_MAX))] {
            for aside in [Vec::new(), vec![identity("1").own; 9]] {
                let own = Entry { job_id: job_id.clone(), current, next };
                let kept = Identity { node_id: "0".into(), own, aside };
                kept.store(&disk).unwrap();
                disk = disk.crash();
                assert_eq!(Identity::load(&disk, "0").unwrap(), Some(kept));
            }
        }
    }
    assert_eq!(Identity::load(&disk, "1").unwrap(), None);
}

#[test]
fn names_and_jobs_that_are_too_long_are_refused() {
    let disk = MemoryDisk::new(3);
    let long = "x".repeat(NAME_MAX + 1);
    let own = Entry { job_id: Some(long.clone()), ..Entry::default() };
    for wrong in [identity(&long), Identity { own, ..identity("0") }] {
        let error = wrong.store(&disk).unwrap_err();
        assert_eq!(error.status(), Status::Limit);
        assert!(error.message().contains("256 bytes: expected 255 at most"), "{error}");
    }
    assert_eq!(disk.operations(), 0);
}

#[test]
fn a_crash_at_any_moment_leaves_the_old_one_or_the_new_one() {
    let (old, new) = (identity("0"), of("0", Some([2; 32]), None));
    let (mut olds, mut news) = (0, 0);
    for seed in 0..2000 {
        let disk = MemoryDisk::new(seed);
        old.store(&disk).unwrap();
        disk.crash_after(seed % 6);
        let stored = new.store(&disk).is_ok();
        assert_eq!(stored, seed % 6 == 5);
        let disk = disk.crash();
        let found = Identity::load(&disk, "0").unwrap_or_else(|error| panic!("seed {seed}: {error}")).unwrap();
        assert!(found == new || (found == old && !stored), "seed {seed}");
        if found == old {
            olds += 1;
        } else {
            news += 1;
        }
        new.store(&disk).unwrap();
        assert_eq!(
            Identity::load(&disk, "0").unwrap(),
            Some(new.clone()),
            "seed {seed}: what is left over is in no way"
        );
    }
    assert!(olds > 500 && news > 500, "{olds} old, {news} new");
}

#[test]
fn damage_anywhere_is_refused_and_says_what_to_do() {
    let disk = MemoryDisk::new(4);
    Identity { aside: vec![identity("1").own], ..identity("0") }.store(&disk).unwrap();
    let whole = disk.bytes("node-0.identity");
    let refused = |bytes: &[u8]| {
        disk.put("node-0.identity", bytes);
        let error = Identity::load(&disk, "0").expect_err("a damaged file is refused");
        assert_eq!(error.status(), Status::Journal);
        assert!(error.message().starts_with("the identity file /memory/node-0.identity is damaged"), "{error}");
        assert!(error.message().contains("remove it to go on"), "{error}");
    };
    for length in 0..whole.len() {
        refused(&whole[..length]);
    }
    for at in 0..whole.len() {
        for flip in [1, 0x80, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] ^= flip;
            refused(&bytes);
        }
    }
    refused(&[&whole[..], b"\0"].concat());
}

#[test]
fn another_nodes_file_and_another_version_are_refused() {
    let disk = MemoryDisk::new(5);
    identity("1").store(&disk).unwrap();
    let mut bytes = disk.bytes("node-1.identity");
    disk.put("node-0.identity", &bytes);
    let error = Identity::load(&disk, "0").unwrap_err();
    assert!(error.message().contains("is that of node id \"1\", not of \"0\": remove it"), "{error}");
    for version in [1, 3] {
        bytes[..PREFIX_BYTES].copy_from_slice(&prefix(MAGIC, version));
        disk.put("node-1.identity", &bytes);
        let error = Identity::load(&disk, "1").unwrap_err();
        let both = format!("has format version {version}, and this library reads version 2: remove it to go on");
        assert!(error.message().contains(&both), "{error}");
    }
}

#[test]
fn what_the_disk_refuses_is_told() {
    let disk = MemoryDisk::new(6);
    disk.fill_after(10);
    let error = identity("0").store(&disk).unwrap_err();
    assert!(error.message().starts_with("cannot write to /memory/node-0.identity.new: No space left"), "{error}");
    disk.refuse_changes(libc::EROFS);
    let error = identity("0").store(&disk).unwrap_err();
    assert!(error.message().starts_with("cannot create /memory/node-0.identity.new: Read-only"), "{error}");
    disk.refuse_reads(libc::EACCES);
    let error = Identity::load(&disk, "0").unwrap_err();
    assert!(error.message().starts_with("cannot read /memory/node-0.identity: Permission denied"), "{error}");
}

#[test]
fn a_sync_that_fails_leaves_the_old_one() {
    let disk = MemoryDisk::new(7);
    identity("0").store(&disk).unwrap();
    disk.fail_sync_after(0);
    let error = of("0", None, Some([2; 32])).store(&disk).unwrap_err();
    assert!(error.message().starts_with("cannot sync /memory/node-0.identity.new"), "{error}");
    assert_eq!(Identity::load(&disk.crash(), "0").unwrap(), Some(identity("0")));
}

#[test]
fn distinct_ids_have_distinct_names_that_any_file_system_takes() {
    let mut ids: Vec<String> =
        ["", ".", "..", "a", "A", "%41", "a/b", "a\\b", "a%2fb", "\0", "\u{e4}", "\u{c4}", "0", "00"]
            .iter()
            .map(|id| (*id).to_owned())
            .collect();
    // Ids around the longest length that is a name as it is; longer ones are equal at the beginning or at the end.
    for length in 64..=NAME_MAX {
        for letter in ["a", "A", "/"] {
            ids.push(letter.repeat(length));
            ids.push(format!("{}b", letter.repeat(length - 1)));
            ids.push(format!("b{}", letter.repeat(length - 1)));
        }
    }
    ids.push(format!("{}~{}", "a".repeat(ESCAPED_KEPT), "0".repeat(32)));
    let mut seen = HashMap::new();
    for id in &ids {
        let name = file_name(id);
        assert!(name.len() + ".new".len() <= 255, "{name}");
        assert!(name.bytes().all(|byte| byte.is_ascii_graphic() && !b"/\\:*?\"<>|".contains(&byte)), "{name}");
        if let Some(other) = seen.insert(name.to_lowercase(), id) {
            panic!("{id:?} and {other:?} are both {name}");
        }
    }
    assert_eq!(file_name("worker-1.x_y"), "node-worker-1.x_y.identity");
    assert_eq!(file_name("A b"), "node-%41%20b.identity");
}

#[test]
fn the_hash_is_fnv_1a() {
    assert_eq!(fnv1a(b""), 0x6c62272e07bb014262b821756295c58d);
    assert_eq!(fnv1a(b"a"), 0xd228cb696f1a8caf78912b704e4a8964);
}

#[test]
fn tokens_are_not_shown() {
    let shown = format!("{:?}", of("0", Some([0xab; 32]), None));
    let entry = r#"Entry { job_id: Some("job"), current: Some("hidden"), next: None }"#;
    assert_eq!(shown, format!(r#"Identity {{ node_id: "0", own: {entry}, aside: [] }}"#));
}
