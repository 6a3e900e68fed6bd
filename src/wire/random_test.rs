//! Round trips of random messages, and random bytes fed to every decoder. Everything follows from a seed, which a failure
//! prints.

use super::golden_cuts_test::is_refused_or_says_less;
use super::golden_test::{decode_link, hex, link_frames, messages};
use super::*;
use crate::error::{Culprit, Failure, LastCall, Status};
use crate::types::{
    Call, CallKind, ChecksumScope, DType, Device, Epoch, GroupId, HostName, Incarnation, JobInstance, LaunchId,
    Process, ReduceOp, Role, Secret, SharedMemory, Token, TokenHash,
};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// A small generator (xorshift64*): the same numbers from the same seed.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end`. Small numbers, large ones and the ends are all frequent.
    fn below(&mut self, end: u64) -> u64 {
        match self.number() % 8 {
            0 => 0,
            1 => end - 1,
            _ => self.number() % end,
        }
    }

    fn choose<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.number() as usize % from.len()]
    }

    fn list<T>(&mut self, max: u64, mut make: impl FnMut(&mut Random) -> T) -> Vec<T> {
        (0..self.below(max + 1)).map(|_| make(self)).collect()
    }

    fn option<T>(&mut self, make: impl FnOnce(&mut Random) -> T) -> Option<T> {
        self.number().is_multiple_of(2).then(|| make(self))
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.number() as u8)
    }

    fn u64(&mut self) -> u64 {
        self.below(u64::MAX)
    }

    fn u32(&mut self) -> u32 {
        self.below(1 << 32) as u32
    }

    fn flag(&mut self) -> bool {
        self.number().is_multiple_of(2)
    }

    /// At most `max` bytes of text, of characters of one to four bytes.
    fn text(&mut self, max: usize) -> String {
        let length = self.below(max as u64 + 1) as usize;
        let mut text = String::new();
        while text.len() + 4 <= length {
            text.push(self.choose(&['a', '7', ' ', '\n', '\0', 'ß', '東', '🦀']));
        }
        text
    }

    fn role(&mut self) -> Role {
        self.choose(&[Role::Scheduler, Role::Worker, Role::Server])
    }

    fn host(&mut self) -> HostName {
        HostName { name: self.text(NAME_MAX), key: self.text(NAME_MAX) }
    }

    fn process(&mut self) -> Process {
        Process { pid: self.u32(), start_ticks: self.u64(), pid_namespace: self.u64() }
    }

    fn address(&mut self) -> SocketAddr {
        let ip = if self.flag() { IpAddr::from(self.array::<4>()) } else { IpAddr::from(self.array::<16>()) };
        SocketAddr::new(ip, self.number() as u16)
    }

    fn addresses(&mut self) -> Vec<SocketAddr> {
        self.list(ADDRESSES_MAX as u64, Random::address)
    }

    fn status(&mut self) -> Status {
        let code = self.below(27) as i32 - 24;
        Status::from_code(code).expect("-24 to 2 are all in use")
    }

    fn culprit(&mut self) -> Culprit {
        Culprit {
            role: self.role(),
            rank: self.option(Random::u32),
            node_id: self.text(NAME_MAX),
            host: self.text(NAME_MAX),
            pid: self.u32(),
            last_call: self.option(|random| LastCall { group: GroupId(random.u32()), sequence: random.u64() }),
        }
    }

    fn failure(&mut self) -> Failure {
        Failure {
            status: self.status(),
            culprit: self.option(Random::culprit),
            cause: self.text(SENTENCE_MAX),
            epoch: Epoch(self.u64()),
            group: self.option(|random| GroupId(random.u32())),
            sequence: self.u64(),
        }
    }

    fn call(&mut self) -> Call {
        let own = DType::of_bytes(self.u32() % (2 * DType::ELEMENT_BYTES_MAX));
        let dtype = self.option(|random| own.unwrap_or_else(|| random.choose(&DType::ALL)));
        let count = self.u64();
        Call {
            kind: self.choose(&CallKind::ALL),
            dtype,
            op: self.option(|random| match random.number() % 3 {
                0 => random.choose(&ReduceOp::ALL),
                1 => ReduceOp::Given { commutative: random.number() % 2 == 0 },
                _ => ReduceOp::User { number: random.u32() >> 2, commutative: random.number() % 2 == 0 },
            }),
            root: self.option(Random::u32),
            count: if dtype.is_some_and(DType::is_opaque) { count % DType::ADDRESSABLE_BYTES } else { count },
            layout: self.u64(),
        }
    }

    fn member(&mut self) -> Member {
        Member {
            index: self.u32(),
            role: self.role(),
            rank: self.u32(),
            local_rank: self.u32(),
            node_id: self.text(NAME_MAX),
            host: self.host(),
            process: self.process(),
            addresses: self.addresses(),
            device: self.device(),
        }
    }

    fn device(&mut self) -> Device {
        Device { id: self.option(Random::u32), ip: self.option(|random| random.address().ip()) }
    }

    fn launch(&mut self) -> Option<LaunchId> {
        self.option(|random| LaunchId(random.array()))
    }

    fn register(&mut self) -> Register {
        Register {
            protocol_lowest: self.number() as u16,
            protocol_highest: self.number() as u16,
            features: self.u64(),
            version: self.text(NAME_MAX),
            job_id: self.option(|random| random.text(NAME_MAX)),
            role: self.role(),
            node_id: self.text(NAME_MAX),
            node_id_given: self.flag(),
            rank: self.option(Random::u32),
            incarnation: Incarnation(self.array()),
            host: self.host(),
            process: self.process(),
            addresses: self.addresses(),
            worker_num: self.u32(),
            server_num: self.u32(),
            recovery: self.flag(),
            instance: self.option(|random| JobInstance(random.array())),
            told: Told { epoch: Epoch(self.u64()), change: self.u64(), group: self.u32() },
            device: self.device(),
            reentry: self.option(|random| {
                let tokens = random.list(TOKENS_MAX as u64, |random| Token(random.array()));
                Box::new(Reentry { tokens, next: TokenHash(random.array()) })
            }),
            launch: self.launch(),
            derived_job: self.option(|random| random.text(NAME_MAX)),
        }
    }

    fn formed(&mut self) -> Formed {
        Formed {
            instance: JobInstance(self.array()),
            generation: self.u64(),
            epoch: Epoch(self.u64()),
            index: self.u32(),
            rank: self.u32(),
            local_rank: self.u32(),
            local_size: self.u32(),
            worker_num: self.u32(),
            server_num: self.u32(),
            secret: Secret(self.array()),
            agreed: Agreed {
                heartbeat_timeout_ms: self.u64(),
                checksums: [ChecksumScope::Nothing, ChecksumScope::Network, ChecksumScope::All][self.below(3) as usize],
                thresholds: self.list(20, Random::u64),
                store_key_max: self.u64(),
                store_value_max: self.u64(),
                shared_memory: self.choose(&SharedMemory::NAMES.map(|(mode, _)| mode)),
            },
            restarts: self.u32(),
            creations: self.list(9, |random| Creations { parent: GroupId(random.u32()), count: random.u64() }),
            members: Members::new(self.list(20, |random| Arc::new(random.member()))),
            features: Later(self.u64()),
        }
    }

    fn carried(&mut self) -> GroupCarrier {
        let carrier = self.choose(&[Carrier::Links, Carrier::Memory]);
        GroupCarrier { group: GroupId(self.u32()), carrier, words: self.text(SENTENCE_MAX) }
    }

    fn wait(&mut self) -> MessageWait {
        let (peer, tag) = (self.option(Random::u32), self.option(|random| random.u32() as i32));
        MessageWait { group: GroupId(self.u32()), sends: self.choose(&[false, true]), peer, tag, age_ms: self.u64() }
    }

    fn progress(&mut self) -> GroupProgress {
        GroupProgress {
            group: GroupId(self.u32()),
            entered: self.u64(),
            finished: self.u64(),
            call: self.option(Random::call),
            age_ms: self.u64(),
        }
    }

    fn straggler(&mut self) -> Straggler {
        use StragglerState::*;
        Straggler {
            culprit: self.culprit(),
            state: self.choose(&[Inside, Outside, Never, Silent, Left]),
            sequence: self.u64(),
            call: self.option(Random::call),
            age_ms: self.u64(),
            wait: self.option(Random::wait),
        }
    }

    fn blob(&mut self, max: usize) -> Blob {
        Blob::new(self.list(max as u64, |random| random.number() as u8))
    }

    fn store_begin(&mut self) -> StoreBegin {
        use StoreOperation::*;
        StoreBegin {
            request: self.u64(),
            answered_below: self.u64(),
            operation: self.choose(&[
                Set,
                Get,
                TryGet,
                Add,
                CompareSet,
                Delete,
                Wait,
                Check,
                Count,
                List,
                Append,
                MultiSet,
                MultiGet,
                TryMultiGet,
            ]),
            keys: self.list(5, |random| random.blob(500)),
            delta: self.number() as i64,
            expected_bytes: self.u64(),
            value_bytes: self.u64(),
        }
    }

    fn store_reply(&mut self) -> StoreReply {
        StoreReply {
            request: self.u64(),
            status: self.number() as i32,
            reason: self.text(SENTENCE_MAX),
            number: self.number() as i64,
            change: self.u64(),
            value_bytes: self.u64(),
        }
    }

    fn status_job(&mut self) -> StatusJob {
        StatusJob {
            instance: JobInstance(self.array()),
            job_id: self.option(|random| random.text(NAME_MAX)),
            version: self.text(NAME_MAX),
            recovery: self.flag(),
            worker_num: self.u32(),
            server_num: self.u32(),
            generation: self.u64(),
            age_ms: self.u64(),
            epoch: Epoch(self.u64()),
            phase: self.choose(&[JobPhase::Forming, JobPhase::Running, JobPhase::Recovering]),
            words: self.text(SENTENCE_MAX),
            failure: self.option(Random::failure),
        }
    }

    fn status_node(&mut self) -> StatusNode {
        StatusNode {
            who: self.culprit(),
            state: self.choose(&[NodeStanding::Member, NodeStanding::Away, NodeStanding::Back, NodeStanding::Left]),
            heard_ms: self.option(Random::u64),
            restarts: self.u32(),
            calls: self.list(9, Random::progress),
            more: self.u32(),
            waits: self.list(9, Random::wait),
            place: self.option(Random::status_place),
        }
    }

    fn status_place(&mut self) -> StatusPlace {
        StatusPlace {
            host_key: self.text(NAME_MAX),
            local_rank: self.u32(),
            address: self.option(Random::address),
            device: self.device(),
        }
    }

    fn status_group(&mut self) -> StatusGroup {
        StatusGroup {
            group: GroupId(self.u32()),
            failure: self.option(Random::failure),
            sequence: self.u64(),
            call: self.option(Random::call),
            inside: self.u32(),
            age_ms: self.u64(),
            absent: self.u32(),
            members: self.list(9, Random::straggler),
        }
    }

    fn status_part(&mut self) -> StatusPart {
        StatusPart {
            job: self.option(Random::status_job),
            nodes: self.list(9, Random::status_node),
            groups: self.list(9, Random::status_group),
            last: self.flag(),
            carriers: Later(self.list(9, Random::carried)),
        }
    }

    fn watch(&mut self) -> Watch {
        Watch { protocol_lowest: self.number() as u16, protocol_highest: self.number() as u16 }
    }

    fn job_news(&mut self) -> JobNews {
        let phase = [JobPhase::Forming, JobPhase::Running, JobPhase::Broken][self.below(3) as usize];
        let (recovery, ended) = (self.flag(), self.flag());
        let instance = JobInstance(self.array());
        JobNews { instance, phase, recovery, why: self.flag().then(|| self.text(40)), ended }
    }

    fn status_query(&mut self) -> StatusQuery {
        StatusQuery { protocol_lowest: self.number() as u16, protocol_highest: self.number() as u16 }
    }

    fn child_ended(&mut self) -> ChildEnded {
        let how = self.choose(&[HowEnded::Exited, HowEnded::Killed]);
        ChildEnded {
            host: self.host(),
            process: self.process(),
            how,
            number: self.number() as i32,
            launch: self.launch(),
        }
    }

    fn abandoned(&mut self) -> Abandoned {
        let processes = self.list(ABANDONED_MAX as u64, Random::process);
        let launches = self.list(ABANDONED_MAX as u64, |random| LaunchId(random.array()));
        Abandoned { host: self.host(), processes, launches }
    }

    fn reason(&mut self) -> String {
        self.text(SENTENCE_MAX)
    }

    fn make_group(&mut self) -> MakeGroup {
        let wish = match self.number() % 2 {
            0 => GroupWish::Ranks(self.list(40, Random::u32)),
            _ => GroupWish::Colour { colour: self.option(Random::u32), key: self.number() as i32 },
        };
        let (parent, digest) = (GroupId(self.u32()), self.u32());
        MakeGroup { parent, nth: self.u64(), sequence: self.u64(), digest, wish }
    }

    fn group_made(&mut self) -> GroupMade {
        let (parent, group) = (GroupId(self.u32()), self.option(|random| GroupId(random.u32())));
        GroupMade { parent, nth: self.u64(), group, members: self.list(40, Random::u32) }
    }

    fn by_members(&mut self, like: &Message) -> Message {
        let ask = self.u64();
        if let Message::MadeByMembers(_) = like {
            let (group, failure) = (self.option(Random::u32).map(GroupId), self.option(Random::failure));
            return Message::MadeByMembers(MadeByMembers { ask, group, failure });
        }
        let (nth, wants) = (self.u64(), self.number().is_multiple_of(2));
        let (tag, members) = (self.text(NAME_MAX), self.list(20, Random::u32));
        Message::MakeByMembers(MakeByMembers { ask, wants, tag, nth, members })
    }

    /// Another message of the same kind.
    fn message_like(&mut self, like: &Message) -> Message {
        match like {
            Message::Register(_) => Message::Register(self.register()),
            Message::Rejected(_) => Message::Rejected(Rejected { status: self.status(), reason: self.reason() }),
            Message::Formed(_) => Message::Formed(self.formed()),
            Message::Heartbeat(_) => {
                let progress = self.list(PROGRESS_MAX as u64, Random::progress);
                Message::Heartbeat(Heartbeat {
                    sequence: self.u64(),
                    echoed: self.u64(),
                    progress,
                    gone_on: self.list(GONE_ON_MAX as u64, |random| GroupId(random.u32())),
                    waits: self.list(WAITS_MAX as u64, Random::wait),
                    carriers: Later(self.list(9, Random::carried)),
                })
            }
            Message::HeartbeatEcho(_) => Message::HeartbeatEcho(HeartbeatEcho { sequence: self.u64() }),
            Message::Report | Message::TimeUp | Message::Leave | Message::Bye | Message::Gone => like.clone(),
            Message::Suspect(_) => Message::Suspect(Suspect { peer: self.u32(), evidence: self.text(SENTENCE_MAX) }),
            Message::PeerReport(_) => {
                let state = self.choose(&[PeerState::Alive, PeerState::Left]);
                Message::PeerReport(PeerReport { peer: self.u32(), state, culprit: self.culprit() })
            }
            Message::Verdict(_) => Message::Verdict(Verdict { failure: self.failure() }),
            Message::NotYet(_) => {
                Message::NotYet(NotYet { wait_ms: self.u64(), reason: self.text(SENTENCE_MAX), long: self.flag() })
            }
            Message::LostNodes(_) => {
                Message::LostNodes(LostNodes { epoch: Epoch(self.u64()), nodes: self.list(20, Random::u32) })
            }
            Message::Known(_) => Message::Known(Known {
                epoch: Epoch(self.u64()),
                failure: self.option(Random::failure),
                lost: self.list(20, Random::u32),
                revoked: self.list(9, Random::failure),
            }),
            Message::Revoke(_) => Message::Revoke(Revoke { failure: self.failure() }),
            Message::Revoked(_) => Message::Revoked(Revoked { failure: self.failure() }),
            Message::WhereAre(_) => {
                let group = GroupId(self.u32());
                let about = self.option(Random::u32);
                Message::WhereAre(WhereAre { query: self.u64(), group, sequence: self.u64(), about })
            }
            Message::Absent(_) => {
                let members = self.list(20, Random::straggler);
                Message::Absent(Absent { query: self.u64(), total: self.u32(), members })
            }
            Message::MakeGroup(_) => Message::MakeGroup(self.make_group()),
            Message::GroupMade(_) => Message::GroupMade(self.group_made()),
            Message::Recover(_) => {
                Message::Recover(Recover { epoch: Epoch(self.u64()), inside: self.number().is_multiple_of(2) })
            }
            Message::NotRecovered(_) => Message::NotRecovered(NotRecovered { failure: self.failure() }),
            Message::InEpoch(_) => Message::InEpoch(InEpoch { epoch: Epoch(self.u64()) }),
            Message::FreeGroup(_) => Message::FreeGroup(FreeGroup { group: GroupId(self.u32()) }),
            Message::PassBy(_) => Message::PassBy(PassBy { reason: self.reason() }),
            Message::GroupFreed(_) => Message::GroupFreed(GroupFreed { group: GroupId(self.u32()) }),
            Message::MakeByMembers(_) | Message::MadeByMembers(_) => self.by_members(like),
            Message::AskCall(_) => Message::AskCall(AskCall { group: GroupId(self.u32()), sequence: self.u64() }),
            Message::Called(_) => {
                let (group, sequence) = (GroupId(self.u32()), self.u64());
                Message::Called(Called { group, sequence, call: self.option(Random::call) })
            }
            Message::Locate(_) => Message::Locate(Locate { index: self.u32() }),
            Message::Located(_) => Message::Located(Located { member: self.member() }),
            Message::Abort(_) => Message::Abort(Abort { code: self.number() as i32, reason: self.text(SENTENCE_MAX) }),
            Message::StatusQuery(_) => Message::StatusQuery(self.status_query()),
            Message::StatusPart(_) => Message::StatusPart(self.status_part()),
            Message::Watch(_) => Message::Watch(self.watch()),
            Message::JobNews(_) => Message::JobNews(self.job_news()),
            Message::StoreBegin(_) => Message::StoreBegin(self.store_begin()),
            Message::StorePiece(_) => {
                Message::StorePiece(StorePiece { request: self.u64(), bytes: self.blob(STORE_PIECE_BYTES) })
            }
            Message::StoreCancel(_) => Message::StoreCancel(StoreCancel { request: self.u64() }),
            Message::StoreReply(_) => Message::StoreReply(self.store_reply()),
            Message::ChildEnded(_) => Message::ChildEnded(self.child_ended()),
            Message::Abandoned(_) => Message::Abandoned(self.abandoned()),
        }
    }
}

#[test]
fn random_messages_survive_the_wire() {
    for (name, like, _) in messages() {
        for seed in 0..40 {
            let message = Random::new(seed).message_like(&like);
            let frame = message.to_frame(seed as u32);
            let (read, taken) = peek_frame(&frame, CONTROL_PAYLOAD_MAX).expect("a good frame").expect("a whole frame");
            assert_eq!(taken, frame.len(), "{name}, seed {seed}");
            assert_eq!(Message::decode(read.header.kind, &read.payload), Ok(message), "{name}, seed {seed}");
        }
    }
}

#[test]
fn random_data_headers_survive_the_wire() {
    for seed in 0..500 {
        let mut random = Random::new(seed);
        let call = random.call();
        let (epoch, group) = (Epoch(random.u64()), GroupId(random.u32()));
        let (sequence, signature, digest) = (random.u64(), call.signature(), random.u32());
        let header = DataHeader { epoch, group, sequence, signature, call, digest };
        assert_eq!(DataHeader::decode(&header.encode()), Ok(header), "seed {seed}");
    }
}

#[test]
fn random_cuts_and_damage_of_random_messages_never_panic() {
    for (name, like, _) in messages() {
        for seed in 0..100 {
            let mut random = Random::new(seed);
            let mut payload = random.message_like(&like).encode();
            if payload.is_empty() {
                continue;
            }
            let cut = random.below(payload.len() as u64) as usize;
            assert!(is_refused_or_says_less(name, like.kind(), &payload[..cut]), "{name}, seed {seed}, cut at {cut}");
            for _ in 0..1 + random.number() % 4 {
                let at = random.below(payload.len() as u64) as usize;
                payload[at] = random.number() as u8;
            }
            if let Ok(read) = Message::decode(like.kind(), &payload) {
                assert_eq!(hex(&read.encode()), hex(&payload), "{name}, seed {seed}");
            }
        }
    }
}

#[test]
fn random_bytes_never_panic() {
    for seed in 0..20_000 {
        let mut random = Random::new(seed);
        let mut bytes = random.list(200, |random| random.number() as u8);
        // Small numbers pass more of the checks than large ones.
        if random.flag() {
            bytes.iter_mut().for_each(|byte| *byte %= 8);
        }
        let _ = peek_frame(&bytes, CONTROL_PAYLOAD_MAX);
        let _ = Register::protocol_range(&bytes);
        for (_, like, _) in messages().iter().skip(seed as usize % 23).step_by(23) {
            if let Ok(read) = Message::decode(like.kind(), &bytes) {
                assert_eq!(read.encode(), bytes, "seed {seed}");
            }
        }
        for (_, kind, _, _) in link_frames() {
            let _ = decode_link(kind, &bytes);
        }
        if let Some(head) = bytes.first_chunk() {
            let _ = DataHeader::decode(head);
            let _ = MessageHeader::decode(head);
        }
        if let Some(head) = bytes.first_chunk() {
            let _ = FrameHeader::decode(head);
        }
    }
}

#[test]
fn random_bodies_behind_a_good_header_never_panic() {
    for seed in 0..5_000 {
        let mut random = Random::new(seed);
        let (kind, flags) = (random.number() as u8, random.below(4) as u16);
        let header = FrameHeader { kind, flags, node: random.u32(), length: random.below(300) };
        let mut bytes = header.encode().to_vec();
        bytes.extend(random.list(300, |random| random.number() as u8));
        match peek_frame(&bytes, 250) {
            Ok(None) => assert!(body_bytes(header.length, flags) > (bytes.len() - HEADER_BYTES) as u64),
            Ok(Some((frame, _))) => assert!(flags == FLAG_UNCHECKED || frame.payload.is_empty(), "seed {seed}"),
            Err(_) => {}
        }
    }
}
