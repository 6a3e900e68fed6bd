//! The limits, each at its edge and just beyond it. And a claimed count costs nothing.

use super::codec::take_name;
use super::golden_test::messages;
use super::*;
use crate::types::{
    ChecksumScope, Device, Epoch, GroupId, HostName, JobInstance, LaunchId, Process, Role, Secret, SharedMemory,
};
use std::sync::Arc;

fn encoded(value: &impl Wire) -> Vec<u8> {
    let mut to = Encoder::default();
    value.put(&mut to);
    to.bytes
}

fn taken<T: Wire>(bytes: &[u8]) -> Result<T, WireError> {
    let mut from = Decoder::new(bytes);
    let value = T::take(&mut from)?;
    from.finish()?;
    Ok(value)
}

fn member(index: u32, name: &str, addresses: usize) -> Member {
    Member {
        index,
        role: Role::Worker,
        rank: index,
        local_rank: 0,
        node_id: name.to_owned(),
        host: HostName { name: name.to_owned(), key: name.to_owned() },
        process: Process { pid: 1, start_ticks: 1, pid_namespace: 1 },
        addresses: vec!["[fd00::1]:4000".parse().expect("an address"); addresses],
        device: Device::default(),
    }
}

#[test]
fn a_name_may_be_as_long_as_its_limit_and_no_longer() {
    for (length, good) in [(NAME_MAX, true), (NAME_MAX + 1, false)] {
        let bytes = encoded(&"x".repeat(length));
        assert_eq!(take_name(&mut Decoder::new(&bytes), "node id").is_ok(), good);
        assert_eq!(taken::<Member>(&encoded(&member(0, &"x".repeat(length), 1))).is_ok(), good);
    }
    let error = taken::<Member>(&encoded(&member(0, &"x".repeat(300), 1))).unwrap_err();
    assert_eq!(error.0, "a node id of 300 bytes: the limit is 255");
}

#[test]
fn a_sentence_is_cut_at_a_character_border() {
    for lead in 0..4 {
        let long = "x".repeat(lead) + &"🦀".repeat(SENTENCE_MAX);
        let read: String = taken(&encoded(&long)).expect("the cut leaves UTF-8");
        assert!(long.starts_with(&read));
        assert!(read.len() <= SENTENCE_MAX && read.len() > SENTENCE_MAX - 4, "{}", read.len());
    }
    let whole = "x".repeat(SENTENCE_MAX);
    assert_eq!(taken::<String>(&encoded(&whole)), Ok(whole));
}

#[test]
fn a_longer_sentence_or_one_that_is_not_utf8_is_refused() {
    let mut bytes = encoded(&((SENTENCE_MAX + 1) as u16));
    bytes.resize(2 + SENTENCE_MAX + 1, b'x');
    assert_eq!(taken::<String>(&bytes).unwrap_err().0, "a text of 4097 bytes: the limit is 4096");
    assert_eq!(taken::<String>(&[2, 0, 0xc3, 0x28]).unwrap_err().0, "a text that is not UTF-8");
}

#[test]
fn a_node_has_at_most_so_many_addresses() {
    assert!(taken::<Member>(&encoded(&member(0, "a", ADDRESSES_MAX))).is_ok());
    let error = taken::<Member>(&encoded(&member(0, "a", ADDRESSES_MAX + 1))).unwrap_err();
    assert!(error.0.starts_with("9 addresses announced"), "{error}");
}

#[test]
fn a_heartbeat_reports_on_at_most_so_many_groups() {
    let (_, golden, _) = messages().swap_remove(3);
    let Message::Heartbeat(mut heartbeat) = golden else { panic!("the fourth is the heartbeat") };
    let (progress, wait) = (heartbeat.progress[0].clone(), heartbeat.waits[0].clone());
    for (groups, good) in [(PROGRESS_MAX, true), (PROGRESS_MAX + 1, false)] {
        heartbeat.progress = vec![heartbeat.progress[0].clone(); groups];
        assert_eq!(taken::<Heartbeat>(&encoded(&heartbeat)).is_ok(), good);
        assert!(encoded(&heartbeat).len() as u64 <= CONTROL_PAYLOAD_MAX);
    }
    heartbeat.progress.clear();
    for (groups, good) in [(GONE_ON_MAX, true), (GONE_ON_MAX + 1, false)] {
        heartbeat.gone_on = vec![GroupId(3); groups];
        assert_eq!(taken::<Heartbeat>(&encoded(&heartbeat)).is_ok(), good);
    }
    heartbeat.gone_on.clear();
    for (waits, good) in [(WAITS_MAX, true), (WAITS_MAX + 1, false)] {
        heartbeat.waits = vec![heartbeat.waits[0].clone(); waits];
        assert_eq!(taken::<Heartbeat>(&encoded(&heartbeat)).is_ok(), good);
    }
    heartbeat.waits.clear();
    heartbeat.carriers.0[0].words = "x".repeat(SENTENCE_MAX);
    for (groups, good) in [(CARRIERS_MAX, true), (CARRIERS_MAX + 1, false)] {
        heartbeat.carriers.0 = vec![heartbeat.carriers.0[0].clone(); groups];
        assert_eq!(taken::<Heartbeat>(&encoded(&heartbeat)).is_ok(), good);
    }
    heartbeat.carriers.0.truncate(CARRIERS_MAX);
    heartbeat.progress = vec![progress; PROGRESS_MAX];
    heartbeat.gone_on = vec![GroupId(3); GONE_ON_MAX];
    heartbeat.waits = vec![wait; WAITS_MAX];
    assert!(encoded(&heartbeat).len() as u64 <= CONTROL_PAYLOAD_MAX, "all of it at once");
}

#[test]
fn a_piece_of_the_store_keeps_its_limit() {
    for (length, good) in [(STORE_PIECE_BYTES, true), (STORE_PIECE_BYTES + 1, false)] {
        let bytes = Blob::new(vec![7; length]);
        assert_eq!(taken::<StorePiece>(&encoded(&StorePiece { request: 1, bytes })).is_ok(), good);
    }
}

#[test]
fn a_blob_travels_in_pieces_that_add_up_to_it() {
    for length in [0, 1, STORE_PIECE_BYTES - 1, STORE_PIECE_BYTES, STORE_PIECE_BYTES + 1, 3 * STORE_PIECE_BYTES] {
        let blob = Blob::new((0..length).map(|i| i as u8).collect::<Vec<_>>());
        let pieces: Vec<Blob> = blob.pieces().collect();
        assert_eq!(pieces.len(), length.div_ceil(STORE_PIECE_BYTES));
        let joined: Vec<u8> = pieces.iter().flat_map(|piece| piece.as_slice().to_vec()).collect();
        assert_eq!(joined, blob.as_slice());
    }
}

#[test]
fn the_largest_registration_fits_before_registration_and_the_largest_table_after() {
    let name = "x".repeat(NAME_MAX);
    let (_, golden, _) = messages().swap_remove(0);
    let Message::Register(mut register) = golden else { panic!("the first is the registration") };
    register.version.clone_from(&name);
    register.job_id = Some(name.clone());
    register.node_id.clone_from(&name);
    register.host = HostName { name: name.clone(), key: name.clone() };
    register.addresses = member(0, "", ADDRESSES_MAX).addresses;
    register.instance = Some(JobInstance([0; 16]));
    assert!(encoded(&register).len() as u64 <= UNREGISTERED_PAYLOAD_MAX);
    register.launch = Some(LaunchId([0; 16]));
    assert!(encoded(&register).len() as u64 <= UNREGISTERED_PAYLOAD_MAX);
    let (processes, launches) = (vec![register.process; ABANDONED_MAX], vec![LaunchId([0; 16]); ABANDONED_MAX]);
    let abandoned = Abandoned { host: register.host, processes, launches };
    assert!(encoded(&abandoned).len() as u64 <= UNREGISTERED_PAYLOAD_MAX);

    let formed = Formed {
        instance: JobInstance([0; 16]),
        generation: 1,
        epoch: Epoch(1),
        index: 0,
        rank: 0,
        local_rank: 0,
        local_size: 1,
        worker_num: FULL_TABLE_NODES as u32,
        server_num: 0,
        secret: Secret([0; 32]),
        agreed: Agreed {
            heartbeat_timeout_ms: 5000,
            checksums: ChecksumScope::Network,
            thresholds: vec![0; 64],
            store_key_max: 4096,
            store_value_max: 16 << 20,
            shared_memory: SharedMemory::Auto,
        },
        restarts: 0,
        creations: vec![Creations { parent: GroupId::WORLD, count: 1 }; CREATIONS_MAX],
        members: Members::new(
            (0..FULL_TABLE_NODES as u32).map(|index| Arc::new(member(index, &name, ADDRESSES_MAX))).collect(),
        ),
        features: Later(u64::MAX),
    };
    assert!(encoded(&formed).len() as u64 <= CONTROL_PAYLOAD_MAX, "{} bytes", encoded(&formed).len());
}

#[test]
fn a_count_beyond_what_the_message_holds_is_refused_before_anything_is_set_aside() {
    let claim = u32::MAX.to_le_bytes();
    // A vector of this length would take 64 GiB. If that memory were reserved, this test would fail.
    assert!(taken::<Vec<u64>>(&claim).unwrap_err().0.starts_with("4294967295 elements announced"));
    let mut padded = claim.to_vec();
    padded.resize(1000, 0);
    assert!(taken::<Vec<Member>>(&padded).is_err());
    padded[..4].copy_from_slice(&996u32.to_le_bytes());
    assert!(taken::<Vec<Member>>(&padded).is_err());
    assert!(taken::<Blob>(&claim).is_err());
}

#[test]
fn an_announced_payload_beyond_the_limit_is_refused_by_its_header_alone() {
    for length in [UNREGISTERED_PAYLOAD_MAX + 1, u64::MAX] {
        for flags in [0, FLAG_UNCHECKED] {
            let header = FrameHeader { kind: 1, flags, node: 0, length }.encode();
            let error = peek_frame(&header, UNREGISTERED_PAYLOAD_MAX).unwrap_err();
            assert_eq!(error.0, format!("a frame of {length} bytes: the limit is 65536 here"));
        }
    }
    let header = FrameHeader { kind: 1, flags: 0, node: 0, length: UNREGISTERED_PAYLOAD_MAX }.encode();
    assert_eq!(peek_frame(&header, UNREGISTERED_PAYLOAD_MAX), Ok(None));
}

#[test]
fn flags_and_versions_that_are_not_known_are_refused() {
    let header = FrameHeader { kind: 1, flags: 2, node: 0, length: 0 }.encode();
    assert!(FrameHeader::decode(&header).unwrap_err().0.starts_with("frame flags 0x0002"));
    let mut newer = FrameHeader { kind: 1, flags: 0, node: 0, length: 0 }.encode();
    newer[4] = 2;
    let checksum = crc32fast::hash(&newer[..HEADER_BYTES - CHECKSUM_BYTES]).to_le_bytes();
    newer[HEADER_BYTES - CHECKSUM_BYTES..].copy_from_slice(&checksum);
    assert!(FrameHeader::decode(&newer).unwrap_err().0.starts_with("frame version 2"));
}

#[test]
fn a_registration_of_a_later_protocol_still_tells_its_range() {
    let payload = [&7u16.to_le_bytes()[..], &9u16.to_le_bytes(), b"whatever that version says"].concat();
    assert_eq!(Register::protocol_range(&payload), Ok((7, 9)));
    assert!(Register::protocol_range(&payload[..3]).is_err());
}
