use super::*;

const SALT: u64 = 0x0102_0304_0506_0708;

/// A file with this snapshot, and behind it batches that were each synced.
fn file(snapshot: &[&[u8]], batches: &[&[&[u8]]]) -> Vec<u8> {
    let encoder = RecordEncoder { salt: SALT };
    let mut bytes = head(SALT);
    for record in snapshot {
        let offset = bytes.len() as u64;
        encoder.put(&mut bytes, offset, HEAD_BYTES as u64, record);
    }
    let offset = bytes.len() as u64;
    encoder.put_mark(&mut bytes, offset);
    for batch in batches {
        let synced = bytes.len() as u64;
        for record in *batch {
            let offset = bytes.len() as u64;
            encoder.put(&mut bytes, offset, synced, record);
        }
    }
    bytes
}

fn payloads(bytes: &[u8]) -> Result<Vec<&[u8]>, String> {
    Ok(scan(bytes)?.payloads.into_iter().map(|payload| &bytes[payload]).collect())
}

#[test]
fn a_file_lies_as_the_table_says() {
    let bytes = file(&[b"a"], &[&[b"bc"]]);
    let expected: Vec<&[u8]> = vec![
        b"mustrjnl\x05\0\0\0",
        &[104, 120, 61, 106],
        &[8, 7, 6, 5, 4, 3, 2, 1],
        &[35, 244, 59, 187],
        &[28, 0, 0, 0, 0, 0, 0, 0, 28, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0],
        &[221, 178, 203, 220],
        b"a",
        &[53, 0, 0, 0, 0, 0, 0, 0, 28, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff],
        &[16, 152, 146, 150],
        &[77, 0, 0, 0, 0, 0, 0, 0, 77, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0],
        &[116, 188, 43, 157],
        b"bc",
    ];
    assert_eq!(bytes, expected.concat());
    let scan = scan(&bytes).unwrap();
    assert_eq!(scan.end, bytes.len());
    assert_eq!(payloads(&bytes).unwrap(), [&b"a"[..], b"bc"]);
}

#[test]
fn what_lies_behind_the_first_hole_of_an_unsynced_batch_is_torn_off() {
    let long = [7u8; 5000];
    let whole = file(&[b"snapshot"], &[&[b"synced"], &[&long, &long, &long]]);
    let second = whole.len() - 2 * (RECORD_HEAD_BYTES + long.len());
    for hole in [second..second + 4096, second + 100..second + 101, second + 16..second + 20, second..whole.len()] {
        let mut torn = whole.clone();
        torn[hole.clone()].fill(0);
        let found = scan(&torn).unwrap_or_else(|wrong| panic!("{hole:?}: {wrong}"));
        assert_eq!((found.payloads.len(), found.end), (3, second), "{hole:?}");
        // Another batch stands behind it: so the batch with the hole had been synced.
        let (offset, synced) = (torn.len() as u64, torn.len() as u64);
        RecordEncoder { salt: SALT }.put(&mut torn, offset, synced, b"later");
        assert_eq!(
            scan(&torn).unwrap_err(),
            format!("is damaged at offset {second}: it had been synced there, as the record at offset {offset} shows")
        );
    }
}

#[test]
fn a_later_batch_whose_own_sync_point_is_older_proves_nothing() {
    let mut bytes = file(&[], &[&[b"synced"]]);
    let synced = bytes.len() as u64;
    for record in [b"one", b"two"] {
        let offset = bytes.len() as u64;
        RecordEncoder { salt: SALT }.put(&mut bytes, offset, synced, record);
    }
    bytes[synced as usize + RECORD_HEAD_BYTES] ^= 1;
    assert_eq!(payloads(&bytes).unwrap(), [b"synced"]);
}

#[test]
fn what_a_file_began_with_is_never_torn() {
    let bytes = file(&[b"one", b"two"], &[&[b"three"]]);
    let end = file(&[b"one", b"two"], &[]).len();
    for length in 0..end {
        let wrong = scan(&bytes[..length]).unwrap_err();
        assert!(wrong.starts_with("is damaged"), "{length}: {wrong}");
    }
    assert_eq!(payloads(&bytes[..end]).unwrap(), [b"one", b"two"]);
}

#[test]
fn records_of_another_file_are_not_taken_for_its_own() {
    // These bytes stand for what an older file left on the disk: the same bytes at the same place, but with another salt.
    let old = file(&[], &[&[b"first"], &[b"stale"]]);
    let mut new = head(SALT + 1);
    RecordEncoder { salt: SALT + 1 }.put_mark(&mut new, HEAD_BYTES as u64);
    let end = new.len();
    new.extend_from_slice(&old[end..]);
    let found = scan(&new).unwrap();
    assert_eq!((found.payloads.len(), found.end), (0, end));
}

#[test]
fn a_copy_of_the_journal_within_it_is_a_payload() {
    let inner = file(&[b"x"], &[&[b"y"], &[b"z"]]);
    // The copy lies right behind a torn record, where a search for whole ones begins.
    let mut bytes = inner.clone();
    let (start, encoder) = (bytes.len(), RecordEncoder { salt: SALT });
    encoder.put(&mut bytes, start as u64, start as u64, b"torn");
    let behind = bytes.len() as u64;
    encoder.put(&mut bytes, behind, start as u64, &inner);
    bytes[start + RECORD_HEAD_BYTES] ^= 1;
    assert_eq!(scan(&bytes).unwrap().end, start);
}

#[test]
fn bytes_that_are_lost_or_added_in_the_middle_are_damage() {
    let long = [7u8; 5000];
    let whole = file(&[b"snapshot"], &[&[b"first"], &[&long, b"second"], &[b"third"], &[b"fourth"]]);
    let last = whole.len() - RECORD_HEAD_BYTES - b"fourth".len();
    let begins = file(&[b"snapshot"], &[]).len();
    // This goes up to the last batch but one: nothing tells that the last one was synced.
    let end = last - RECORD_HEAD_BYTES - b"third".len();
    for at in (begins..end).step_by(7) {
        for count in [1, 2, 23, 24, 25, 4096] {
            let lost = [&whole[..at], &whole[(at + count).min(end)..]].concat();
            let added = [&whole[..at], &vec![0xa5; count], &whole[at..]].concat();
            for damaged in [lost, added] {
                let wrong = scan(&damaged).expect_err("it is damaged");
                assert!(wrong.starts_with("is damaged at offset "), "{at} {count}: {wrong}");
            }
        }
    }
}

#[test]
fn a_search_for_records_ends() {
    // Behind a torn record: 1 MiB in which a record might begin at each byte, all as long as what is left.
    let mut bytes = file(&[], &[&[b"torn"]]);
    let torn = bytes.len() - RECORD_HEAD_BYTES - b"torn".len();
    bytes[torn] ^= 1;
    bytes.resize(1 << 20, 0);
    for at in (torn + 64..bytes.len() - 64).step_by(RECORD_HEAD_BYTES) {
        let room = (bytes.len() - at - RECORD_HEAD_BYTES) as u32;
        bytes[at..at + 8].copy_from_slice(&(torn as u64 + 9).to_le_bytes());
        bytes[at + 8..at + 16].copy_from_slice(&(torn as u64 + 9).to_le_bytes());
        bytes[at + 16..at + 20].copy_from_slice(&room.to_le_bytes());
    }
    let wrong = scan(&bytes).unwrap_err();
    assert!(wrong.contains("looks like records"), "{wrong}");
}

#[test]
fn absurd_lengths_and_sync_points_are_no_records() {
    let bytes = file(&[], &[]);
    let (end, encoder) = (bytes.len() as u64, RecordEncoder { salt: SALT });
    for length in [RECORD_MAX as u32 + 1, u32::MAX - 1, 6] {
        let mut bytes = bytes.clone();
        encoder.put_parts(&mut bytes, end, end, length, b"short");
        assert_eq!(scan(&bytes).unwrap().end as u64, end, "{length}");
    }
    for (offset, synced) in [(end + 1, end), (end, end + 1), (end, u64::MAX), (u64::MAX, end)] {
        let mut bytes = bytes.clone();
        encoder.put(&mut bytes, offset, synced, b"short");
        assert_eq!(scan(&bytes).unwrap().end as u64, end, "{offset} {synced}");
    }
    let mut marked = bytes.clone();
    encoder.put_mark(&mut marked, end);
    assert!(scan(&marked).unwrap_err().contains("second mark"));
}

#[test]
fn a_record_of_the_greatest_length_is_read_and_no_longer_one() {
    let mut longest = vec![3u8; RECORD_MAX];
    let bytes = file(&[], &[&[&longest], &[b"behind"]]);
    let found = payloads(&bytes).unwrap();
    assert!(found[0] == longest && found[1] == b"behind");
    longest.push(3);
    assert!(payloads(&file(&[], &[&[&longest]])).unwrap().is_empty());
}

#[test]
fn a_version_that_is_not_known_is_told_from_damage() {
    let mut newer = file(&[], &[]);
    newer[..PREFIX_BYTES].copy_from_slice(&prefix(MAGIC, 7));
    assert_eq!(scan(&newer).unwrap_err(), "has format version 7, and this library reads version 5");
    newer[8] ^= 1;
    assert_eq!(scan(&newer).unwrap_err(), "is damaged at offset 0");
    assert_eq!(scan(b"").unwrap_err(), "is damaged: it has 0 bytes, and begins with at least 16");
    assert_eq!(scan(b"#!/bin/sh\nexit 0\n").unwrap_err(), "is damaged at offset 0");
}
