//! What is left of a journal when the machine, or the process, dies in the middle of anything.

use super::*;

/// How many stories the long test plays.
const SEEDS: u64 = 3_000;

/// The records of a journal.
type Contents = Vec<Vec<u8>>;

fn outcome(disk: &MemoryDisk, seed: u64) -> Contents {
    all(&open(disk).unwrap_or_else(|error| panic!("seed {seed}: {error}")))
}

/// The process or the machine dies in the middle of each operation of `work`, by several seeds. What is left must be one of
/// `allowed`, and the last of them once `work` has come to its end. Each of them must be left at times.
fn die_everywhere(prepare: impl Fn(&mut Journal), work: impl Fn(&mut Journal) -> Result<()>, allowed: &[&[&[u8]]]) {
    let mut left = vec![0; allowed.len()];
    for seed in 0..60 {
        for operations in 0.. {
            let seed = seed * 1000 + operations;
            let disk = MemoryDisk::new(seed);
            let mut journal = open(&disk).unwrap().journal;
            prepare(&mut journal);
            disk.crash_after(operations);
            let done = work(&mut journal).is_ok();
            let disk = if seed % 3000 < 1000 { disk.kill() } else { disk.crash() };
            let found = outcome(&disk, seed);
            let which = allowed.iter().position(|allowed| found == *allowed);
            let which = which.unwrap_or_else(|| panic!("seed {seed}: {found:?} is left"));
            assert!(!done || which + 1 == allowed.len(), "seed {seed}: what had been done is undone");
            left[which] += 1;
            if done {
                break;
            }
        }
    }
    assert!(left.iter().all(|times| *times > 0), "{left:?}");
}

#[test]
fn compaction_leaves_the_old_or_the_new() {
    die_everywhere(
        |journal| append(journal, &[b"old", b"older"]),
        |journal| journal.rewrite([b"new"]),
        &[&[b"old", b"older"], &[b"new"]],
    );
}

#[test]
fn archiving_leaves_the_old_or_an_empty_one() {
    die_everywhere(|journal| append(journal, &[b"done"]), Journal::archive, &[&[b"done"], &[]]);
}

#[test]
fn archiving_loses_nothing() {
    for seed in 0..1000 {
        let disk = MemoryDisk::new(seed);
        let mut journal = open(&disk).unwrap().journal;
        append(&mut journal, &[b"first"]);
        journal.append(&[b"not yet synced"]).unwrap();
        disk.crash_after(1 + seed % 9);
        let archived = journal.archive().is_ok();
        assert_eq!(archived, seed % 9 >= 7, "seed {seed}");
        let disk = disk.crash();
        let place =
            if disk.names().unwrap().contains(&format!("{ARCHIVED}1")) { "scheduler.journal.1" } else { JOURNAL };
        assert!(!archived || place != JOURNAL, "seed {seed}");
        let whole = disk.bytes(place);
        disk.put(JOURNAL, &whole);
        assert_eq!(outcome(&disk, seed), [&b"first"[..], b"not yet synced"], "seed {seed}: in {place}");
    }
}

#[test]
fn beginning_leaves_nothing_that_is_in_the_way() {
    for seed in 0..600 {
        let disk = MemoryDisk::new(seed);
        disk.crash_after(seed % 8);
        let opened = open(&disk);
        assert_eq!(opened.is_ok(), seed % 8 == 7, "seed {seed}");
        drop(opened);
        assert!(outcome(&disk.crash(), seed).is_empty());
    }
}

#[test]
fn a_start_that_dies_loses_nothing() {
    for seed in 0..2000 {
        let disk = MemoryDisk::new(seed);
        let mut journal = open(&disk).unwrap().journal;
        append(&mut journal, &[b"one", b"two"]);
        journal.append(&[[3; 2000], [4; 2000]]).unwrap();
        let disk = disk.crash();
        disk.crash_after(seed % 6);
        let read = open(&disk).map(|opened| all(&opened));
        let found = outcome(&disk.crash(), seed);
        assert!(found.starts_with(&[b"one".to_vec(), b"two".to_vec()]), "seed {seed}");
        if let Ok(read) = read {
            assert_eq!(found, read, "seed {seed}: what was read was not durable");
        }
    }
}

/// Lives follow each other. What was synced comes back, in order, with at most some of what was not synced.
#[test]
fn whatever_was_synced_is_read_again() {
    let (mut torn, mut records) = (0, 0);
    for seed in 0..SEEDS {
        let mut chance = seed;
        let mut draw = |end: u64| {
            chance = chance.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (chance >> 33) % end
        };
        let mut disk = MemoryDisk::new(seed);
        // What must be there; what may be there behind it; and what may be there instead of both.
        let (mut sure, mut maybe, mut instead) = (Contents::new(), Contents::new(), None);
        for _life in 0..4 {
            let opened = open(&disk).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            let found = all(&opened);
            torn += u32::from(opened.note.is_some());
            let written = [&sure[..], &maybe].concat();
            let kept = found.starts_with(&sure) && written.starts_with(&found);
            assert!(kept || instead.as_ref() == Some(&found), "seed {seed}: {sure:?} {maybe:?} became {found:?}");
            (sure, maybe, instead) = (found, Contents::new(), None);
            records += sure.len();
            let mut journal = opened.journal;
            disk.crash_after(draw(30));
            loop {
                let done = match draw(12) {
                    0 => {
                        let snapshot: Contents = (0..draw(3)).map(|byte| vec![byte as u8; 40]).collect();
                        instead = Some(snapshot.clone());
                        journal.rewrite(&snapshot).map(|()| (sure, maybe) = (snapshot, Contents::new()))
                    }
                    1 => {
                        instead = Some(Contents::new());
                        // Archiving syncs first.
                        journal.archive().map(|()| (sure, maybe) = Default::default())
                    }
                    2..6 => journal.sync().map(|()| sure.append(&mut maybe)),
                    _ => {
                        let batch: Contents =
                            (0..1 + draw(4)).map(|_| vec![draw(256) as u8; draw(1500) as usize]).collect();
                        maybe.extend(batch.iter().cloned());
                        journal.append(&batch)
                    }
                };
                if done.is_err() {
                    break;
                }
                instead = None;
            }
            disk = if draw(4) == 0 { disk.kill() } else { disk.crash() };
        }
    }
    assert!(torn > 500 && records > 5000, "{torn} torn tails, {records} records");
}
