use super::super::record::RECORD_HEAD_BYTES;
use super::*;
use crate::journal::testdisk::MemoryDisk;
use std::path::Path;

fn open(disk: &MemoryDisk) -> Result<Opened> {
    Journal::open(Box::new(disk.clone()), 7)
}

fn all(opened: &Opened) -> Vec<Vec<u8>> {
    opened.records.iter().map(<[u8]>::to_vec).collect()
}

fn append(journal: &mut Journal, records: &[&[u8]]) {
    journal.append(records).unwrap();
    journal.sync().unwrap();
}

/// A disk whose journal has a snapshot and three synced batches: its bytes, where the snapshot ends, and where each
/// record behind it ends, with whether its batch ends there.
fn written() -> (Vec<u8>, usize, Vec<(usize, bool)>) {
    let disk = MemoryDisk::new(0);
    let mut journal = open(&disk).unwrap().journal;
    journal.rewrite([&b"snapshot"[..], b""]).unwrap();
    let (snapshot, mut ends) = (journal.length as usize, Vec::new());
    for batch in [&[&b"one"[..], b""][..], &[b"three"], &[b"four", &[5; 300], b"six"]] {
        for (at, record) in batch.iter().enumerate() {
            journal.append(&[record]).unwrap();
            ends.push((journal.length as usize, at + 1 == batch.len()));
        }
        journal.sync().unwrap();
    }
    (disk.bytes(JOURNAL), snapshot, ends)
}

const WRITTEN: [&[u8]; 8] = [b"snapshot", b"", b"one", b"", b"three", b"four", &[5; 300], b"six"];

fn holding(bytes: &[u8]) -> MemoryDisk {
    let disk = MemoryDisk::new(0);
    disk.put(JOURNAL, bytes);
    disk
}

#[test]
fn records_come_back_in_order_at_every_start() {
    let mut disk = MemoryDisk::new(1);
    let mut expected: Vec<Vec<u8>> = Vec::new();
    for start in 0..20u8 {
        let mut opened = open(&disk).unwrap();
        assert_eq!(all(&opened), expected);
        assert_eq!((opened.note.clone(), opened.records.is_empty()), (None, start == 0));
        for length in [0, 1, 1000, 70_000] {
            let batch = [vec![start; length], vec![!start; 3]];
            opened.journal.append(&batch).unwrap();
            expected.extend(batch);
        }
        opened.journal.append(&[[0u8; 0]; 0]).unwrap();
        opened.journal.sync().unwrap();
        drop(opened);
        disk = disk.crash();
    }
}

#[test]
fn every_prefix_gives_exactly_the_whole_records() {
    let (bytes, snapshot, ends) = written();
    for length in 0..=bytes.len() {
        let disk = holding(&bytes[..length]);
        if length < snapshot {
            let error = open(&disk).err().unwrap();
            assert_eq!(error.status(), Status::Journal, "{length}");
            assert!(error.message().starts_with("the journal /memory/scheduler.journal is damaged"), "{error}");
            assert_eq!(disk.bytes(JOURNAL), bytes[..length], "nothing is touched");
            continue;
        }
        let whole = ends.iter().filter(|(end, _)| *end <= length).count();
        let end = if whole == 0 { snapshot } else { ends[whole - 1].0 };
        let mut opened = open(&disk).unwrap();
        assert_eq!(all(&opened), WRITTEN[..2 + whole], "{length}");
        let note = (end < length).then(|| {
            let torn = length - end;
            format!(
                "/memory/scheduler.journal: {torn} bytes at offset {end} were being written when the scheduler ended, \
                 and are cut off"
            )
        });
        assert_eq!(opened.note, note);
        append(&mut opened.journal, &[b"next"]);
        drop(opened);
        let opened = open(&disk.crash()).unwrap();
        assert_eq!(all(&opened), [&WRITTEN[..2 + whole], &[b"next"]].concat(), "{length}");
    }
}

#[test]
fn no_flipped_byte_gives_a_wrong_record() {
    let (bytes, _, ends) = written();
    let batches: Vec<usize> = ends.iter().filter(|(_, last)| *last).map(|(end, _)| *end).collect();
    let last_batch = batches[batches.len() - 2];
    for at in 0..bytes.len() {
        for flip in [1, 4, 0x80, 0xff] {
            let mut bytes = bytes.clone();
            bytes[at] ^= flip;
            match open(&holding(&bytes)) {
                Ok(opened) => {
                    assert!(at >= last_batch, "{at}: a damaged batch that had been synced is refused");
                    let before = 2 + ends.iter().filter(|(end, _)| *end <= at).count();
                    assert_eq!(all(&opened), WRITTEN[..before], "{at}");
                    assert!(opened.note.is_some(), "{at}");
                }
                Err(error) => {
                    assert!(at < last_batch, "{at}: a torn tail is cut: {error}");
                    assert_eq!(error.status(), Status::Journal);
                    assert!(error.message().contains("/memory/scheduler.journal is damaged at offset "), "{error}");
                    assert!(error.message().contains("restore it from a copy, or move it away"), "{error}");
                }
            }
        }
    }
}

#[test]
fn zeros_behind_the_end_are_cut_off() {
    let (bytes, ..) = written();
    for zeros in [1, RECORD_HEAD_BYTES - 1, RECORD_HEAD_BYTES, 100_000] {
        let opened = open(&holding(&[&bytes[..], &vec![0; zeros]].concat())).unwrap();
        assert_eq!(all(&opened), WRITTEN);
        assert!(opened.note.unwrap().contains(&format!("{zeros} bytes at offset {}", bytes.len())));
    }
}

#[test]
fn a_newer_version_is_refused_with_both() {
    let (mut bytes, ..) = written();
    bytes[8] = 6;
    let check = crc32fast::hash(&bytes[..12]).to_le_bytes();
    bytes[12..16].copy_from_slice(&check);
    let error = open(&holding(&bytes)).err().unwrap();
    assert_eq!(error.status(), Status::Journal);
    assert!(error.message().contains("has format version 6, and this library reads version 5"), "{error}");
}

#[test]
fn a_second_one_is_refused_until_the_first_is_dropped_or_dies() {
    let disk = MemoryDisk::new(2);
    let first = open(&disk).unwrap();
    let error = open(&disk).err().unwrap();
    let begin =
        format!("another scheduler (pid {}) uses this journal: /memory/scheduler.journal: ", std::process::id());
    assert_eq!(error.status(), Status::Journal);
    assert!(error.message().starts_with(&begin), "{error}");
    drop(first);
    let second = open(&disk).unwrap();
    assert!(open(&disk).is_err());
    let disk = disk.kill();
    open(&disk).unwrap();
    drop(second);
}

#[test]
fn what_is_too_long_is_refused_and_nothing_else() {
    let disk = MemoryDisk::new(3);
    let mut journal = open(&disk).unwrap().journal;
    append(&mut journal, &[b"one"]);
    let (long, before) = (vec![0; RECORD_MAX + 1], disk.operations());
    let error = journal.append(&[b"two", &long[..]]).unwrap_err();
    assert_eq!(error.status(), Status::Limit);
    assert!(error.message().contains("67108865 bytes") && error.message().contains("67108864"), "{error}");
    assert_eq!(disk.operations(), before);
    append(&mut journal, &[b"three"]);
    assert_eq!(all(&open(&disk.crash()).unwrap()), [&b"one"[..], b"three"]);
}

#[test]
fn a_full_disk_ends_the_journal_and_costs_nothing_that_was_synced() {
    for space in 0..60 {
        let disk = MemoryDisk::new(space as u64);
        let mut journal = open(&disk).unwrap().journal;
        append(&mut journal, &[b"one"]);
        disk.fill_after(space);
        let error = journal.append(&[&[2; 20], &[3; 20]]).unwrap_err();
        assert_eq!(error.status(), Status::Journal);
        let begin = "cannot write to /memory/scheduler.journal: No space left on device";
        assert!(error.message().starts_with(begin) && error.message().contains("free space"), "{error}");
        let before = disk.operations();
        assert_eq!(journal.sync().unwrap_err(), error);
        assert_eq!(journal.append(&[b"five"]).unwrap_err(), error);
        assert_eq!(journal.rewrite([b"six"]).unwrap_err(), error);
        assert_eq!(journal.archive().unwrap_err(), error);
        assert_eq!(disk.operations(), before, "nothing more is tried");
        let opened = open(&disk.kill()).unwrap();
        let whole = 1 + space / (RECORD_HEAD_BYTES + 20);
        assert_eq!(all(&opened), [&b"one"[..], &[2; 20], &[3; 20]][..whole.min(3)], "{space}");
    }
}

#[test]
fn a_sync_that_fails_is_not_tried_again() {
    for seed in 0..200 {
        let disk = MemoryDisk::new(seed);
        let mut journal = open(&disk).unwrap().journal;
        append(&mut journal, &[b"one"]);
        journal.append(&[b"two"]).unwrap();
        disk.fail_sync_after(0);
        let error = journal.sync().unwrap_err();
        assert!(error.message().starts_with("cannot sync /memory/scheduler.journal: "), "{error}");
        let before = (disk.syncs(), disk.operations());
        assert_eq!(journal.sync().unwrap_err(), error);
        assert_eq!(journal.append(&[b"three"]).unwrap_err(), error);
        assert_eq!(journal.sync().unwrap_err(), error);
        assert_eq!((disk.syncs(), disk.operations()), before);
        let found = all(&open(&disk.crash()).unwrap());
        assert!(found == [b"one"] || found == [b"one", b"two"], "seed {seed}");
    }
}

#[test]
fn what_is_read_after_a_sync_that_failed_is_durable_then() {
    for seed in 0..200 {
        let disk = MemoryDisk::new(seed);
        let mut journal = open(&disk).unwrap().journal;
        journal.append(&[b"one"]).unwrap();
        disk.fail_sync_after(0);
        journal.sync().unwrap_err();
        drop(journal);
        let disk = disk.kill();
        let mut opened = open(&disk).unwrap();
        let read = all(&opened);
        append(&mut opened.journal, &[b"two"]);
        drop(opened);
        let found = all(&open(&disk.crash()).unwrap());
        assert_eq!(found, [&read[..], &[b"two".to_vec()]].concat(), "seed {seed}");
    }
}

#[test]
fn nothing_to_sync_is_no_sync() {
    let disk = MemoryDisk::new(4);
    let mut journal = open(&disk).unwrap().journal;
    let before = disk.syncs();
    journal.sync().unwrap();
    append(&mut journal, &[b"one"]);
    journal.sync().unwrap();
    assert_eq!(disk.syncs(), before + 1);
}

#[test]
fn what_the_disk_refuses_at_the_start_is_told() {
    for (code, why) in [(libc::EROFS, "Read-only file system"), (libc::EACCES, "Permission denied")] {
        let disk = MemoryDisk::new(5);
        disk.refuse_changes(code);
        let error = open(&disk).err().unwrap();
        assert_eq!(error.status(), Status::Journal);
        assert!(error.message().starts_with(&format!("cannot lock /memory/scheduler.lock: {why}")), "{error}");
        let disk = MemoryDisk::new(5);
        disk.refuse_reads(code);
        let error = open(&disk).err().unwrap();
        assert!(error.message().starts_with(&format!("cannot read /memory/scheduler.journal: {why}")), "{error}");
    }
}

#[test]
fn what_an_opener_has_read_is_durable() {
    // The last scheduler died before it synced, and the machine dies right after the next one has read.
    for seed in 0..200 {
        let disk = MemoryDisk::new(seed);
        let mut journal = open(&disk).unwrap().journal;
        journal.append(&[b"one"]).unwrap();
        let disk = disk.kill();
        let found = all(&open(&disk).unwrap());
        assert_eq!(found, [b"one"]);
        assert_eq!(all(&open(&disk.crash()).unwrap()), found, "seed {seed}");
    }
}

#[test]
fn a_rewrite_takes_the_place_of_everything_before() {
    let disk = MemoryDisk::new(6);
    let mut journal = open(&disk).unwrap().journal;
    append(&mut journal, &[b"one", b"two"]);
    let snapshot: Vec<Vec<u8>> = (0..40u8).map(|byte| vec![byte; 100_000]).collect();
    journal.rewrite(&snapshot).unwrap();
    append(&mut journal, &[b"three"]);
    let disk = disk.crash();
    let mut opened = open(&disk).unwrap();
    assert_eq!(all(&opened), [&snapshot[..], &[b"three".to_vec()]].concat());
    assert_eq!(disk.names().unwrap(), [JOURNAL]);
    opened.journal.rewrite([b"little"]).unwrap();
    assert!(disk.bytes(JOURNAL).len() < 200);
}

#[test]
fn a_file_that_is_not_in_its_place_any_more_is_noticed_until_it_is_written_anew() {
    let removed: fn(&MemoryDisk) = |disk| disk.remove(JOURNAL).unwrap();
    let moved: fn(&MemoryDisk) = |disk| disk.rename(JOURNAL, "kept").unwrap();
    let replaced: fn(&MemoryDisk) = |disk| disk.put(JOURNAL, b"another");
    for displace in [removed, moved, replaced] {
        let disk = MemoryDisk::new(5);
        let mut journal = open(&disk).unwrap().journal;
        append(&mut journal, &[b"one"]);
        assert!(!journal.is_displaced());
        displace(&disk);
        append(&mut journal, &[b"two"]);
        assert!(journal.is_displaced());
        journal.rewrite([b"both"]).unwrap();
        append(&mut journal, &[b"three"]);
        assert!(!journal.is_displaced());
        drop(journal);
        assert_eq!(all(&open(&disk.kill()).unwrap()), [&b"both"[..], b"three"]);
    }
}

#[test]
fn it_is_worth_compacting_beyond_a_mebibyte_and_four_snapshots() {
    let disk = MemoryDisk::new(7);
    let mut journal = open(&disk).unwrap().journal;
    let parts = |journal: &mut Journal| {
        let mut parts = 0;
        while !journal.should_compact() {
            journal.append(&[[0; 100 << 10]]).unwrap();
            parts += 1;
        }
        parts
    };
    assert_eq!(parts(&mut journal), 11);
    journal.rewrite([vec![0; 1000 << 10]]).unwrap();
    assert!(!journal.should_compact());
    journal.append(&[vec![0; 1000 << 10]]).unwrap();
    drop(journal);
    let mut journal = open(&disk).unwrap().journal;
    assert!(journal.should_compact(), "how much of it is a snapshot is not known after a start");
    journal.rewrite([vec![0; 1000 << 10]]).unwrap();
    assert_eq!(parts(&mut journal), 30, "then it is");
}

#[test]
fn starts_do_not_make_a_journal_grow() {
    // None of these lives appends enough to be worth a rewrite by itself.
    let disk = MemoryDisk::new(9);
    for _ in 0..20 {
        let mut journal = open(&disk).unwrap().journal;
        for _ in 0..4 {
            journal.append(&[[0; 100 << 10]]).unwrap();
            if journal.should_compact() {
                journal.rewrite([b"little"]).unwrap();
            }
        }
        let length = disk.bytes(JOURNAL).len();
        assert!(length < 12 * (100 << 10), "{length} bytes");
    }
}

#[test]
fn the_journals_of_the_last_three_jobs_are_kept() {
    let mut disk = MemoryDisk::new(8);
    // These are not numbers of ours.
    for name in ["scheduler.journal.03", "scheduler.journal.x", "scheduler.journal."] {
        disk.put(name, b"");
    }
    for job in 1..=6u8 {
        let mut journal = open(&disk).unwrap().journal;
        append(&mut journal, &[&[job]]);
        let whole = disk.bytes(JOURNAL);
        journal.archive().unwrap();
        assert_eq!(disk.bytes(&format!("{ARCHIVED}{job}")), whole);
        append(&mut journal, &[b"begun"]);
        disk = disk.crash();
        let opened = open(&disk).unwrap();
        assert_eq!(all(&opened), [b"begun"]);
        assert_eq!(opened.journal.path(), Path::new("/memory/scheduler.journal"));
        drop(opened);
        let mut numbers: Vec<String> = disk.names().unwrap();
        numbers.retain(|name| name.strip_prefix(ARCHIVED).is_some_and(|end| end.parse::<u8>().is_ok_and(|n| n > 0)));
        numbers.retain(|name| name != "scheduler.journal.03");
        let expected: Vec<String> = (1.max(job.saturating_sub(2))..=job).map(|n| format!("{ARCHIVED}{n}")).collect();
        assert_eq!(numbers, expected);
    }
    assert_eq!(disk.names().unwrap().len(), 7);
}

#[test]
fn files_of_one_life_have_salts_of_their_own() {
    let disk = MemoryDisk::new(9);
    let mut journal = open(&disk).unwrap().journal;
    let salt = || disk.bytes(JOURNAL)[16..24].to_vec();
    let mut salts = vec![salt()];
    journal.rewrite([b"x"]).unwrap();
    salts.push(salt());
    journal.archive().unwrap();
    salts.push(salt());
    drop(journal);
    let mut journal = Journal::open(Box::new(disk.clone()), 1000).unwrap().journal;
    salts.push(salt());
    journal.rewrite([b"y"]).unwrap();
    salts.push(salt());
    salts.sort();
    salts.dedup();
    assert_eq!(salts.len(), 5);
}

#[path = "crash_test.rs"]
mod crash;
