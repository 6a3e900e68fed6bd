//! What the scheduler writes into its journal before it promises it. `docs/protocol.md` describes the bytes of messages. These
//! records are read by schedulers of this library only, and their version is the journal's.

use super::codec::{record, Decoder, Encoder, Wire, WireError};
use super::control::{Agreed, Register};
use super::store::Blob;
use crate::types::{Call, Epoch, GroupId, Incarnation, JobInstance, Secret, TokenHash};

/// The longest value that is read back, in bytes: what a journal's record can hold.
const VALUE_MAX: usize = 64 << 20;
/// The fewest bytes that an entry of the store takes: whether there is a key, its length, and whether there is a value.
const ENTRY_BYTES_MIN: usize = 6;

record! {
    /// Which job this is: what its settings said when it began.
    pub struct JobRecord {
        /// Its random name.
        pub instance: JobInstance,
        /// Its id, if it has one.
        pub job_id: Option<String>,
        /// How many workers it has.
        pub worker_num: u32,
        /// How many servers.
        pub server_num: u32,
    }
}

record! {
    /// One node of an epoch.
    pub struct MemberRecord {
        /// Its registration in this life.
        pub register: Register,
        /// Its rank.
        pub rank: u32,
        /// The hash of the token that lets its next life in.
        pub token: Option<TokenHash>,
        /// How often it has come back.
        pub restarts: u32,
    }
}

record! {
    /// An epoch is complete.
    pub struct EpochRecord {
        /// Which.
        pub epoch: Epoch,
        /// Its data plane's secret.
        pub secret: Secret,
        /// What all nodes do alike.
        pub agreed: Agreed,
        /// All nodes, by index.
        pub members: Vec<MemberRecord>,
        /// Lives that others have replaced.
        pub fenced: Vec<Incarnation>,
    }
}

record! {
    /// Groups were made of one group.
    pub struct CreationRecord {
        /// The group that they were made of.
        pub parent: GroupId,
        /// The number of that creation.
        pub nth: u64,
        /// A member that wanted it.
        pub by: u32,
        /// What that member called.
        pub call: Call,
        /// The groups, and their members' indices in order of rank.
        pub groups: Vec<GroupRecord>,
    }
}

record! {
    /// A group was made by its members alone.
    pub struct ByMembersRecord {
        /// The tag by which they tell their groups apart.
        pub tag: String,
        /// Its number among those of the same members and tag.
        pub nth: u64,
        /// The group.
        pub group: GroupRecord,
    }
}

record! {
    /// One group that was made.
    pub struct GroupRecord {
        /// Its number.
        pub group: GroupId,
        /// Its members' indices, in order of rank.
        pub members: Vec<u32>,
        /// Whether it is in use.
        pub used: bool,
    }
}

record! {
    /// A node no longer uses a group that was made.
    pub struct FreedRecord {
        /// Which group.
        pub group: GroupId,
        /// Which node.
        pub by: u32,
        /// Whether it was the last node that used it, so that nothing of the group is kept.
        pub last: bool,
    }
}

/// A request that changed the store, or (without a node) what the store holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreRecord {
    /// The keys that it changed, all at once, and what each holds from now on (none: the key is deleted). There is no key if only
    /// the request's result is to be remembered.
    pub entries: Vec<(Vec<u8>, Option<Blob>)>,
    /// The asker: its index, its life and the request's number. Then the number in the answer, and the number of this
    /// change among those by that life.
    pub by: Option<(u32, Incarnation, u64, i64, u64)>,
}

impl Wire for StoreRecord {
    fn put(&self, to: &mut Encoder) {
        u32::try_from(self.entries.len()).expect("a message's keys are far fewer").put(to);
        for (key, value) in &self.entries {
            put_bytes(Some(key), to);
            put_bytes(value.as_ref().map(Blob::as_slice), to);
        }
        self.by.is_some().put(to);
        if let Some((node, life, request, number, change)) = &self.by {
            node.put(to);
            life.put(to);
            request.put(to);
            number.put(to);
            change.put(to);
        }
    }

    fn take(from: &mut Decoder<'_>) -> Result<Self, WireError> {
        let count = from.count(usize::MAX, ENTRY_BYTES_MIN, "keys")?;
        let mut entries = Vec::new();
        for _ in 0..count {
            let key = take_bytes(from)?.ok_or_else(|| WireError("a change of no key".to_owned()))?;
            entries.push((key, take_bytes(from)?.map(Blob::new)));
        }
        let by = match bool::take(from)? {
            true => {
                let (node, life, request) = (Wire::take(from)?, Wire::take(from)?, Wire::take(from)?);
                Some((node, life, request, Wire::take(from)?, Wire::take(from)?))
            }
            false => None,
        };
        Ok(StoreRecord { entries, by })
    }
}

/// Bytes of any length that a record can hold.
fn put_bytes(bytes: Option<&[u8]>, to: &mut Encoder) {
    bytes.is_some().put(to);
    if let Some(bytes) = bytes {
        u32::try_from(bytes.len()).expect("keys and values are far below 4 GiB").put(to);
        to.bytes.extend_from_slice(bytes);
    }
}

fn take_bytes(from: &mut Decoder<'_>) -> Result<Option<Vec<u8>>, WireError> {
    if !bool::take(from)? {
        return Ok(None);
    }
    let length = u32::take(from)? as usize;
    if length > VALUE_MAX {
        return Err(WireError(format!("{length} bytes of key or value: the limit is {VALUE_MAX}")));
    }
    from.bytes(length).map(|bytes| Some(bytes.to_vec()))
}

/// One thing that is durable before anything that follows from it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // they live briefly
pub enum Record {
    /// The job begins; the first record.
    Job(JobRecord),
    /// How often the scheduler was started, this time included.
    Generation(u64),
    /// An epoch is complete.
    Epoch(EpochRecord),
    /// Groups were made.
    Creation(CreationRecord),
    /// The store was changed.
    Store(StoreRecord),
    /// This node has left.
    Left(u32),
    /// The job has ended; nothing follows.
    Done,
    /// A node no longer uses a group.
    Freed(FreedRecord),
    /// The launcher says that it starts no process in this node's place any more.
    Abandoned(u32),
    /// A group was made by its members alone.
    ByMembers(ByMembersRecord),
}

impl Record {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Encoder::default();
        match self {
            Record::Job(record) => (1u8.put(&mut to), record.put(&mut to)).1,
            Record::Generation(number) => (2u8.put(&mut to), number.put(&mut to)).1,
            Record::Epoch(record) => (3u8.put(&mut to), record.put(&mut to)).1,
            Record::Creation(record) => (4u8.put(&mut to), record.put(&mut to)).1,
            Record::Store(record) => (5u8.put(&mut to), record.put(&mut to)).1,
            Record::Left(index) => (6u8.put(&mut to), index.put(&mut to)).1,
            Record::Done => 7u8.put(&mut to),
            Record::Freed(record) => (8u8.put(&mut to), record.put(&mut to)).1,
            Record::Abandoned(index) => (9u8.put(&mut to), index.put(&mut to)).1,
            Record::ByMembers(record) => (10u8.put(&mut to), record.put(&mut to)).1,
        }
        to.bytes
    }

    /// What these bytes say.
    pub fn decode(bytes: &[u8]) -> Result<Record, WireError> {
        let mut from = Decoder::new(bytes);
        let record = match u8::take(&mut from)? {
            1 => Record::Job(Wire::take(&mut from)?),
            2 => Record::Generation(Wire::take(&mut from)?),
            3 => Record::Epoch(Wire::take(&mut from)?),
            4 => Record::Creation(Wire::take(&mut from)?),
            5 => Record::Store(Wire::take(&mut from)?),
            6 => Record::Left(Wire::take(&mut from)?),
            7 => Record::Done,
            8 => Record::Freed(Wire::take(&mut from)?),
            9 => Record::Abandoned(Wire::take(&mut from)?),
            10 => Record::ByMembers(Wire::take(&mut from)?),
            other => return Err(WireError(format!("unknown record {other}"))),
        };
        from.finish()?;
        Ok(record)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::golden_test::messages;
    use super::super::Message;
    use super::*;
    use crate::types::{CallKind, ChecksumScope, SharedMemory};

    fn member() -> MemberRecord {
        let Message::Register(register) = messages().swap_remove(0).1 else { panic!("the first is the registration") };
        MemberRecord { register, rank: 3, token: Some(TokenHash([7; 32])), restarts: 2 }
    }

    pub(crate) fn samples() -> Vec<Record> {
        let agreed = Agreed {
            heartbeat_timeout_ms: 5000,
            checksums: ChecksumScope::Network,
            thresholds: vec![1, 2],
            store_key_max: 10,
            store_value_max: 20,
            shared_memory: SharedMemory::Off,
        };
        let call = Call { kind: CallKind::GroupSplit, dtype: None, op: None, root: None, count: 0, layout: 0 };
        let group = GroupRecord { group: GroupId(3), members: vec![2, 0], used: true };
        let by = Some((1, Incarnation([4; 16]), 9, -1, 5));
        let job = JobRecord { instance: JobInstance([1; 16]), job_id: Some("a".into()), worker_num: 4, server_num: 1 };
        vec![
            Record::Job(job),
            Record::Generation(3),
            Record::Epoch(EpochRecord {
                epoch: Epoch(2),
                secret: Secret([5; 32]),
                agreed,
                members: vec![member(), MemberRecord { token: None, ..member() }],
                fenced: vec![Incarnation([8; 16])],
            }),
            Record::Creation(CreationRecord { parent: GroupId::WORLD, nth: 2, by: 1, call, groups: vec![group] }),
            Record::Store(StoreRecord { entries: vec![(b"k".to_vec(), Some(Blob::new(vec![1; 100_000])))], by }),
            Record::Store(StoreRecord {
                entries: vec![(b"k".to_vec(), None), (b"l\0".to_vec(), Some(Blob::new([])))],
                by,
            }),
            Record::Store(StoreRecord { entries: vec![(Vec::new(), None)], by: None }),
            Record::Store(StoreRecord { entries: Vec::new(), by }),
            Record::Left(7),
            Record::Done,
            Record::Freed(FreedRecord { group: GroupId(3), by: 1, last: true }),
            Record::Abandoned(2),
            Record::ByMembers(ByMembersRecord {
                tag: "ring".into(),
                nth: 2,
                group: GroupRecord { group: GroupId(4), members: vec![3, 1], used: false },
            }),
        ]
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        for record in samples() {
            assert_eq!(Record::decode(&record.encode()), Ok(record));
        }
    }

    #[test]
    fn a_record_that_is_cut_short_or_too_long_is_none() {
        for record in samples() {
            let bytes = record.encode();
            for length in (0..bytes.len()).rev().take(300) {
                assert!(Record::decode(&bytes[..length]).is_err(), "{length} bytes of {record:?}");
            }
            assert!(Record::decode(&[&bytes[..], &[0]].concat()).is_err());
        }
        assert!(Record::decode(&[99]).is_err());
    }
}
