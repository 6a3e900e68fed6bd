//! Golden bytes: what each message, link frame and header is on the wire, to the last bit. `docs/protocol.md` shows the
//! same bytes, and a test here holds it to that. A change of these bytes is a change of the protocol.

use super::*;
use crate::error::{Culprit, Failure, LastCall, Status};
use crate::types::{
    Call, CallKind, ChecksumScope, DType, Device, Epoch, GroupId, HostName, Incarnation, JobInstance, LaunchId,
    Process, ReduceOp, Role, Secret, SharedMemory, Token, TokenHash,
};
use std::sync::Arc;

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn counting<const N: usize>(from: u8) -> [u8; N] {
    std::array::from_fn(|i| from.wrapping_add(i as u8))
}

fn host() -> HostName {
    HostName { name: "a".into(), key: "a/boot".into() }
}

fn process() -> Process {
    Process { pid: 812, start_ticks: 4711, pid_namespace: 0xf000_0001 }
}

fn culprit() -> Culprit {
    Culprit { role: Role::Worker, rank: Some(3), node_id: "3".into(), host: "b".into(), pid: 812, last_call: None }
}

pub(super) fn call() -> Call {
    Call {
        kind: CallKind::Allreduce,
        dtype: Some(DType::Float32),
        op: Some(ReduceOp::Sum),
        root: None,
        count: 1024,
        layout: 0,
    }
}

fn failure() -> Failure {
    Failure {
        status: Status::PeerLost,
        culprit: Some(Culprit { last_call: Some(LastCall { group: GroupId::WORLD, sequence: 41 }), ..culprit() }),
        cause: "was lost: its connection ended".into(),
        epoch: Epoch(1),
        group: Some(GroupId::WORLD),
        sequence: 42,
    }
}

pub(super) fn member(index: u32) -> Member {
    Member {
        index,
        role: Role::Worker,
        rank: index,
        local_rank: index,
        node_id: index.to_string(),
        host: host(),
        process: process(),
        addresses: vec!["10.0.0.1:4000".parse().unwrap(), "[fd00::1]:4000".parse().unwrap()],
        device: Device { id: Some(5), ip: None },
    }
}

fn register() -> Register {
    Register {
        protocol_lowest: 1,
        protocol_highest: 1,
        features: 0,
        version: "0.1.0".into(),
        job_id: Some("job".into()),
        role: Role::Worker,
        node_id: "3".into(),
        node_id_given: true,
        rank: Some(3),
        incarnation: Incarnation(counting(0x10)),
        host: host(),
        process: process(),
        addresses: vec!["10.0.0.1:4000".parse().unwrap()],
        worker_num: 4,
        server_num: 0,
        recovery: false,
        instance: Some(JobInstance(counting(0x30))),
        told: Told { epoch: Epoch(2), change: 7, group: 3 },
        device: Device { id: Some(5), ip: Some([10, 0, 0, 9].into()) },
        reentry: Some(Box::new(Reentry { tokens: vec![Token([2; 32])], next: TokenHash([3; 32]) })),
        launch: Some(LaunchId([4; 16])),
        derived_job: Some("Open MPI 7".into()),
    }
}

fn agreed() -> Agreed {
    let (heartbeat_timeout_ms, checksums, shared_memory) = (5000, ChecksumScope::Network, SharedMemory::Require);
    let (thresholds, store_key_max, store_value_max) = (vec![65536], 4096, 16 << 20);
    Agreed { heartbeat_timeout_ms, checksums, thresholds, store_key_max, store_value_max, shared_memory }
}

fn formed() -> Formed {
    Formed {
        instance: JobInstance(counting(0x30)),
        generation: 4,
        epoch: Epoch(1),
        index: 1,
        rank: 1,
        local_rank: 1,
        local_size: 2,
        worker_num: 2,
        server_num: 0,
        secret: Secret(counting(0x80)),
        agreed: agreed(),
        restarts: 1,
        creations: vec![Creations { parent: GroupId::WORLD, count: 2 }],
        members: Members::new(vec![Arc::new(member(0)), Arc::new(member(1))]),
        features: Later(FEATURE_CARRIERS),
    }
}

fn progress() -> GroupProgress {
    GroupProgress { group: GroupId::WORLD, entered: 42, finished: 41, call: Some(call()), age_ms: 1500 }
}

fn heartbeat() -> Heartbeat {
    let (progress, gone_on, waits) = (vec![progress()], vec![GroupId(3)], vec![wait()]);
    Heartbeat { sequence: 2, echoed: 1, progress, gone_on, waits, carriers: Later(vec![carried()]) }
}

fn carried() -> GroupCarrier {
    GroupCarrier { group: GroupId::WORLD, carrier: Carrier::Memory, words: "2 ranks on host b".into() }
}

fn wait() -> MessageWait {
    MessageWait { group: GroupId::WORLD, sends: false, peer: Some(2), tag: None, age_ms: 1500 }
}

fn absent() -> Absent {
    let (culprit, state, call) = (culprit(), StragglerState::Outside, Some(call()));
    let member = Straggler { culprit, state, sequence: 41, call, age_ms: 12_000, wait: None };
    Absent { query: 7, total: 1, members: vec![member] }
}

fn store_begin() -> StoreBegin {
    StoreBegin {
        request: 9,
        answered_below: 8,
        operation: StoreOperation::Set,
        keys: vec![Blob::new(&b"key"[..])],
        delta: 0,
        expected_bytes: 0,
        value_bytes: 5,
    }
}

fn store_reply() -> StoreReply {
    StoreReply { request: 9, status: 0, reason: String::new(), number: 0, change: 3, value_bytes: 0 }
}

/// One row: the name in the document, the message, its payload.
type Row = (&'static str, Message, &'static str);

/// Every message once, in order of kind.
pub(super) fn messages() -> Vec<Row> {
    [life(), breaking(), asking(), status(), watching(), store(), launching()].concat()
}

/// Kinds 1 to 9.
fn life() -> Vec<Row> {
    let rejected = Rejected { status: Status::Rejected, reason: "job id \"a\", not \"b\"".into() };
    vec![
        (
            "Register",
            Message::Register(register()),
            "0100010000000000000000000500302e312e300103006a6f6201010033010103000000101112131415161718191a1b1c\
             1d1e1f0100610600612f626f6f742c0300006712000000000000010000f00000000001000000040a000001a00f040000\
             00000000000001303132333435363738393a3b3c3d3e3f02000000000000000700000000000000030000000105000000\
             01040a000009010100000002020202020202020202020202020202020202020202020202020202020202020303030303\
             0303030303030303030303030303030303030303030303030303030104040404040404040404040404040404010a004f70656e204d50492037",
        ),
        ("Rejected", Message::Rejected(rejected), "f9ffffff13006a6f62206964202261222c206e6f7420226222"),
        (
            "Formed",
            Message::Formed(formed()),
            "303132333435363738393a3b3c3d3e3f0400000000000000010000000000000001000000010000000100000002000000\
             0200000000000000808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f8813000000000000\
             01010000000000010000000000001000000000000000000001000000000201000000010000000000000002000000000000\
             0002000000000000000100000000000000000100300100610600612f626f6f742c0300006712000000000000010000f0\
             0000000002000000040a000001a00f06fd000000000000000000000000000001a00f0105000000000100000001010000\
             00010000000100310100610600612f626f6f742c0300006712000000000000010000f00000000002000000040a000001\
             a00f06fd000000000000000000000000000001a00f0105000000000100000000000000",
        ),
        (
            "Heartbeat",
            Message::Heartbeat(heartbeat()),
            "0200000000000000010000000000000001000000000000002a00000000000000290000000000000001030a000000000000040000000000000000000000000000dc050000000000000100000003000000010000000000000000010200000000dc050000000000000100000000000000021100322072616e6b73206f6e20686f73742062",
        ),
        ("HeartbeatEcho", Message::HeartbeatEcho(HeartbeatEcho { sequence: 2 }), "0200000000000000"),
        (
            "NotYet",
            Message::NotYet(NotYet { wait_ms: 50, reason: "wait".into(), long: true }),
            "320000000000000004007761697401",
        ),
        (
            "PassBy",
            Message::PassBy(PassBy { reason: "another job".into() }),
            "0b00616e6f74686572206a6f62",
        ),
        ("Report", Message::Report, ""),
        ("TimeUp", Message::TimeUp, ""),
        ("Leave", Message::Leave, ""),
        ("Bye", Message::Bye, ""),
        ("Gone", Message::Gone, ""),
    ]
}

/// Kinds 10 to 14.
fn breaking() -> Vec<Row> {
    let suspect = Suspect { peer: 3, evidence: "its link ended".into() };
    let report = PeerReport { peer: 3, state: PeerState::Left, culprit: culprit() };
    vec![
        ("Suspect", Message::Suspect(suspect), "030000000e00697473206c696e6b20656e646564"),
        ("PeerReport", Message::PeerReport(report), "03000000020101030000000100330100622c03000000"),
        (
            "Verdict",
            Message::Verdict(Verdict { failure: failure() }),
            "f5ffffff010101030000000100330100622c030000010000000029000000000000001e00776173206c6f73743a2069747320636f6e6e656374696f6e2065\
             6e646564010000000000000001000000002a00000000000000",
        ),
        (
            "LostNodes",
            Message::LostNodes(LostNodes { epoch: Epoch(2), nodes: vec![1, 3] }),
            "0200000000000000020000000100000003000000",
        ),
        (
            "Known",
            Message::Known(Known { epoch: Epoch(2), failure: None, lost: vec![1], revoked: Vec::new() }),
            "020000000000000000010000000100000000000000",
        ),
        (
            "Revoke",
            Message::Revoke(Revoke { failure: failure() }),
            "f5ffffff010101030000000100330100622c030000010000000029000000000000001e00776173206c6f73743a2069747320636f6e6e656374696f6e2065\
             6e646564010000000000000001000000002a00000000000000",
        ),
        (
            "Revoked",
            Message::Revoked(Revoked { failure: failure() }),
            "f5ffffff010101030000000100330100622c030000010000000029000000000000001e00776173206c6f73743a2069747320636f6e6e656374696f6e2065\
             6e646564010000000000000001000000002a00000000000000",
        ),
    ]
}

/// Kinds 15 to 19.
fn asking() -> Vec<Row> {
    let where_are = WhereAre { query: 7, group: GroupId::WORLD, sequence: 42, about: Some(3) };
    vec![
        ("WhereAre", Message::WhereAre(where_are), "0700000000000000000000002a000000000000000103000000"),
        (
            "Absent",
            Message::Absent(absent()),
            "070000000000000001000000010000000101030000000100330100622c0300000002290000000000000001030a000000000000040000000000000000000000000000e02e00000000000000",
        ),
        (
            "AskCall",
            Message::AskCall(AskCall { group: GroupId::WORLD, sequence: 42 }),
            "000000002a00000000000000",
        ),
        (
            "Called",
            Message::Called(Called { group: GroupId::WORLD, sequence: 42, call: Some(call()) }),
            "000000002a0000000000000001030a000000000000040000000000000000000000000000",
        ),
        ("Locate", Message::Locate(Locate { index: 3 }), "03000000"),
        (
            "MakeGroup",
            Message::MakeGroup(MakeGroup { parent: GroupId(4), nth: 2, sequence: 9, digest: 0x0102_0304, wish: GroupWish::Ranks(vec![2, 0]) }),
            "04000000020000000000000009000000000000000403020101020000000200000000000000",
        ),
        (
            "MakeGroup",
            Message::MakeGroup(MakeGroup {
                parent: GroupId(4), nth: 3, sequence: 10, digest: 0, wish: GroupWish::Colour { colour: Some(7), key: -1 },
            }),
            "0400000003000000000000000a0000000000000000000000020107000000ffffffff",
        ),
        (
            "GroupMade",
            Message::GroupMade(GroupMade { parent: GroupId(4), nth: 2, group: Some(GroupId(5)), members: vec![3, 1] }),
            "0400000002000000000000000105000000020000000300000001000000",
        ),
        ("FreeGroup", Message::FreeGroup(FreeGroup { group: GroupId(5) }), "05000000"),
        ("GroupFreed", Message::GroupFreed(GroupFreed { group: GroupId(5) }), "05000000"),
        (
            "MakeByMembers",
            Message::MakeByMembers(MakeByMembers { ask: 7, wants: true, tag: "ring".into(), nth: 2, members: vec![3, 1] }),
            "070000000000000001040072696e670200000000000000020000000300000001000000",
        ),
        (
            "MadeByMembers",
            Message::MadeByMembers(MadeByMembers { ask: 7, group: Some(GroupId(5)), failure: None }),
            "0700000000000000010500000000",
        ),
        ("Recover", Message::Recover(Recover { epoch: Epoch(2), inside: true }), "020000000000000001"),
        (
            "NotRecovered",
            Message::NotRecovered(NotRecovered { failure: failure() }),
            "f5ffffff010101030000000100330100622c030000010000000029000000000000001e00776173206c6f73743a2069747320636f6e6e656374696f6e2065\
             6e646564010000000000000001000000002a00000000000000",
        ),
        ("InEpoch", Message::InEpoch(InEpoch { epoch: Epoch(3) }), "0300000000000000"),
        (
            "Located",
            Message::Located(Located { member: member(3) }),
            "030000000103000000030000000100330100610600612f626f6f742c0300006712000000000000010000f00000000002\
             000000040a000001a00f06fd000000000000000000000000000001a00f010500000000",
        ),
        (
            "Abort",
            Message::Abort(Abort { code: -1, reason: "loss is NaN".into() }),
            "ffffffff0b006c6f7373206973204e614e",
        ),
    ]
}

fn status_part() -> StatusPart {
    let job = StatusJob {
        instance: JobInstance(counting(0x30)),
        job_id: Some("job".into()),
        version: "0.1.0".into(),
        recovery: true,
        worker_num: 4,
        server_num: 0,
        generation: 2,
        age_ms: 60_000,
        epoch: Epoch(1),
        phase: JobPhase::Running,
        words: "4 workers".into(),
        failure: Some(failure()),
    };
    let (state, calls, waits) = (NodeStanding::Away, vec![progress()], vec![wait()]);
    let (address, device) = (Some(([10, 0, 0, 3], 4000).into()), Device { id: Some(5), ip: None });
    let place = Some(StatusPlace { host_key: "b/boot".into(), local_rank: 1, address, device });
    let node = StatusNode { who: culprit(), state, heard_ms: Some(300), restarts: 1, calls, more: 2, waits, place };
    let group = StatusGroup {
        group: GroupId::WORLD,
        failure: None,
        sequence: 42,
        call: Some(call()),
        inside: 3,
        age_ms: 1500,
        absent: 1,
        members: absent().members,
    };
    StatusPart { job: Some(job), nodes: vec![node], groups: vec![group], last: true, carriers: Later(vec![carried()]) }
}

/// Kinds 30 and 31.
fn status() -> Vec<Row> {
    vec![
        ("StatusQuery", Message::StatusQuery(StatusQuery { protocol_lowest: 1, protocol_highest: 1 }), "01000100"),
        ("StatusPart", Message::StatusPart(status_part()), "01303132333435363738393a3b3c3d3e3f0103006a6f620500302e312e30010400000000000000020000000000000060ea00000000000001000000000000000209003420776f726b65727301f5ffffff010101030000000100330100622c030000010000000029000000000000001e00776173206c6f73743a2069747320636f6e6e656374696f6e20656e646564010000000000000001000000002a00000000000000010000000101030000000100330100622c0300000002012c010000000000000100000001000000000000002a00000000000000290000000000000001030a000000000000040000000000000000000000000000dc0500000000000002000000010000000000000000010200000000dc05000000000000010600622f626f6f740100000001040a000003a00f0105000000000100000000000000002a0000000000000001030a00000000000004000000000000000000000000000003000000dc0500000000000001000000010000000101030000000100330100622c0300000002290000000000000001030a000000000000040000000000000000000000000000e02e00000000000000010100000000000000021100322072616e6b73206f6e20686f73742062"),
    ]
}

/// Kinds 44 and 45.
fn watching() -> Vec<Row> {
    let why = Some("rank 3 is lost".to_string());
    let (instance, phase) = (JobInstance(counting(0x30)), JobPhase::Broken);
    let news = JobNews { instance, phase, recovery: true, why, ended: false };
    vec![
        ("Watch", Message::Watch(Watch { protocol_lowest: 1, protocol_highest: 1 }), "01000100"),
        ("JobNews", Message::JobNews(news), "303132333435363738393a3b3c3d3e3f0301010e0072616e6b2033206973206c6f737400"),
    ]
}

/// Kinds 32 to 35.
fn store() -> Vec<Row> {
    vec![
        (
            "StoreBegin",
            Message::StoreBegin(store_begin()),
            "090000000000000008000000000000000101000000030000006b6579000000000000000000000000000000000500000000\
             000000",
        ),
        (
            "StorePiece",
            Message::StorePiece(StorePiece { request: 9, bytes: Blob::new(&b"value"[..]) }),
            "09000000000000000500000076616c7565",
        ),
        ("StoreCancel", Message::StoreCancel(StoreCancel { request: 9 }), "0900000000000000"),
        (
            "StoreReply",
            Message::StoreReply(store_reply()),
            "0900000000000000000000000000000000000000000003000000000000000000000000000000",
        ),
    ]
}

/// Kinds 36 and 37.
fn launching() -> Vec<Row> {
    let ended = ChildEnded {
        host: host(),
        process: process(),
        how: HowEnded::Killed,
        number: 9,
        launch: Some(LaunchId([4; 16])),
    };
    let abandoned = Abandoned { host: host(), processes: vec![process()], launches: vec![LaunchId([4; 16])] };
    vec![
        (
            "ChildEnded",
            Message::ChildEnded(ended),
            "0100610600612f626f6f742c0300006712000000000000010000f00000000002090000000104040404040404040404040404040404",
        ),
        (
            "Abandoned",
            Message::Abandoned(abandoned),
            "0100610600612f626f6f74010000002c0300006712000000000000010000f0000000000100000004040404040404040404040404040404",
        ),
    ]
}

/// One row: the name in the document, the kind of the frame, its payload as encoded now, its payload as it must be.
pub(super) fn link_frames() -> Vec<(&'static str, LinkKind, Vec<u8>, &'static str)> {
    fn bytes(value: &impl Wire) -> Vec<u8> {
        let mut to = Encoder::default();
        value.put(&mut to);
        to.bytes
    }
    let hello = LinkHello {
        epoch: Epoch(1),
        group: GroupId::WORLD,
        channel: Channel::Messages,
        from: 0,
        to: 1,
        incarnation: Incarnation(counting(0x10)),
        proof: counting(0x80),
        features: 0,
    };
    let reject = LinkReject { reason: LinkRejectReason::Crossing };
    vec![
        (
            "LinkHello",
            LinkKind::Hello,
            bytes(&hello),
            "010000000000000000000000010000000001000000101112131415161718191a1b1c1d1e1f808182838485868788898a8b\
             8c8d8e8f0000000000000000",
        ),
        (
            "LinkAccept",
            LinkKind::Accept,
            bytes(&LinkAccept { proof: counting(0x90), features: 0 }),
            "909192939495969798999a9b9c9d9e9f0000000000000000",
        ),
        ("LinkReject", LinkKind::Reject, bytes(&reject), "01"),
        (
            "LinkRevoke",
            LinkKind::Revoke,
            bytes(&LinkRevoke { failure: failure() }),
            "f5ffffff010101030000000100330100622c030000010000000029000000000000001e00776173206c6f73743a2069747320636f6e6e656374696f6e2065\
             6e646564010000000000000001000000002a00000000000000",
        ),
        ("LinkLeave", LinkKind::Leave, Vec::new(), ""),
        ("LinkBeat", LinkKind::Beat, bytes(&LinkBeat { has_scheduler: false, asks: 3, answers: 0 }), "000300000000000000"),
        (
            "LinkSuspect",
            LinkKind::Suspect,
            bytes(&LinkSuspect { peer: 3, evidence: "it closed".into() }),
            "030000000900697420636c6f736564",
        ),
        ("LinkKeepAlive", LinkKind::KeepAlive, Vec::new(), ""),
    ]
}

/// A whole frame: a Locate of node 3, asked by node 1.
const FRAME: &str = "4d5553540111000001000000040000000000000051da15e703000000f270f133";
/// A frame of kind 33 and 262,145 zero bytes: its header, the checksum of its first piece, and its second piece whole.
const TWO_PIECES: (&str, &str, &str) = ("4d55535401210000010000000100040000000000f237c3f8", "22ea0ee2", "008def02d2");

#[test]
fn messages_are_their_golden_bytes_both_ways() {
    for (name, message, golden) in messages() {
        let payload = message.encode();
        assert_eq!(hex(&payload), golden, "{name}");
        assert_eq!(Message::decode(message.kind(), &payload).as_ref(), Ok(&message), "{name}");
    }
}

#[test]
fn every_kind_has_golden_bytes() {
    let kinds: Vec<u8> = messages().iter().map(|(_, message, _)| message.kind()).collect();
    for kind in 0..=u8::MAX {
        let known = !matches!(Message::decode(kind, &[]), Err(error) if error.0.starts_with("unknown message"));
        assert_eq!(known, kinds.contains(&kind), "message {kind}");
        let long = kind == LinkKind::Data as u8 || kind == LinkKind::Message as u8;
        let linked = link_frames().iter().any(|(_, link, _, _)| *link as u8 == kind) || long;
        assert_eq!(LinkKind::from_code(kind).is_ok(), linked, "link frame {kind}");
    }
}

#[test]
fn link_frames_are_their_golden_bytes_both_ways() {
    for (name, kind, payload, golden) in link_frames() {
        assert_eq!(hex(&payload), golden, "{name}");
        assert_eq!(decode_link(kind, &payload), Ok(payload.clone()), "{name}");
    }
}

/// Decodes a link frame's payload and encodes it again.
pub(super) fn decode_link(kind: LinkKind, payload: &[u8]) -> Result<Vec<u8>, WireError> {
    fn again<T: Wire>(payload: &[u8]) -> Result<Vec<u8>, WireError> {
        let mut from = Decoder::new(payload);
        let value = T::take(&mut from)?;
        from.finish()?;
        let mut to = Encoder::default();
        value.put(&mut to);
        Ok(to.bytes)
    }
    match kind {
        LinkKind::Hello => again::<LinkHello>(payload),
        LinkKind::Accept => again::<LinkAccept>(payload),
        LinkKind::Reject => again::<LinkReject>(payload),
        LinkKind::Revoke => again::<LinkRevoke>(payload),
        LinkKind::Beat => again::<LinkBeat>(payload),
        LinkKind::Suspect => again::<LinkSuspect>(payload),
        LinkKind::Data | LinkKind::Message | LinkKind::Leave | LinkKind::KeepAlive => {
            Decoder::new(payload).finish().map(|()| Vec::new())
        }
    }
}

#[test]
fn frames_are_their_golden_bytes() {
    let locate = Message::Locate(Locate { index: 3 });
    assert_eq!(hex(&locate.to_frame(1)), FRAME);
    let mut bytes = Vec::new();
    encode_frame(33, 1, &vec![0; PIECE_BYTES + 1], &mut bytes);
    let first = HEADER_BYTES + PIECE_BYTES;
    let shown = (&bytes[..HEADER_BYTES], &bytes[first..first + CHECKSUM_BYTES], &bytes[first + CHECKSUM_BYTES..]);
    assert_eq!((&hex(shown.0)[..], &hex(shown.1)[..], &hex(shown.2)[..]), TWO_PIECES);
}

#[test]
fn the_document_shows_the_same_bytes() {
    let mut wanted: Vec<(&str, &str)> = messages().into_iter().map(|(name, _, golden)| (name, golden)).collect();
    wanted.extend(link_frames().into_iter().map(|(name, _, _, golden)| (name, golden)));
    wanted.push(("the frame", FRAME));
    wanted.extend([TWO_PIECES.0, TWO_PIECES.1, TWO_PIECES.2].map(|golden| ("the frame of two pieces", golden)));
    shows(wanted);
}

/// The document has each of these as a word.
pub(super) fn shows(wanted: Vec<(&str, &str)>) {
    let document = include_str!("../../docs/protocol.md");
    let words: Vec<&str> = document.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    for (name, golden) in wanted {
        assert!(words.contains(&golden), "docs/protocol.md does not show {name} as {golden}");
    }
}

#[test]
fn no_damaged_byte_panics_and_what_still_decodes_encodes_to_itself() {
    for (name, message, _) in messages() {
        let payload = message.encode();
        for at in 0..payload.len() {
            for value in 0..=u8::MAX {
                let mut damaged = payload.clone();
                damaged[at] = value;
                if let Ok(read) = Message::decode(message.kind(), &damaged) {
                    assert_eq!(read.encode(), damaged, "{name}, byte {at} = {value}");
                }
            }
        }
    }
    for (name, kind, payload, _) in link_frames() {
        for at in 0..payload.len() {
            for value in 0..=u8::MAX {
                let mut damaged = payload.clone();
                damaged[at] = value;
                if let Ok(again) = decode_link(kind, &damaged) {
                    assert_eq!(again, damaged, "{name}, byte {at} = {value}");
                }
            }
        }
    }
}

#[test]
fn damage_of_a_header_is_noticed() {
    let frame = Message::Locate(Locate { index: 3 }).to_frame(1);
    for at in 0..frame.len() {
        for bit in 0..8 {
            let mut damaged = frame.clone();
            damaged[at] ^= 1 << bit;
            assert!(peek_frame(&damaged, CONTROL_PAYLOAD_MAX).is_err(), "frame, byte {at}, bit {bit}");
        }
    }
}
