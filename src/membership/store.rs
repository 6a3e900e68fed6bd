//! The store: a small map from keys to values, asked over the control plane.
//!
//! Owns: transfers under way, waiters, and the results that a node may ask for again. `entries.rs` owns what the store
//! holds.
//!
//! Invariants:
//! - The keys and values stay within the total. The bytes that open requests have announced stay within the same total,
//!   counted apart. (Requests that are repeated after they were carried out do not count.) A request that brings no value,
//!   and waits for nothing, is never refused for a full total: a full store can be read and emptied.
//! - A request is carried out at most once, however often it comes.
//! - No size that a node announces makes it allocate.
//!
//! Waiting is by push: a waiter costs nothing until its key appears. Deliberately absent: connections and time (a node
//! that no longer waits says so). Tested in `store_test.rs`.
//!
//! **Exactly once.** Only what changed something is remembered (a set, an addition, a successful compare-and-set, a
//! deletion of something, and so on): anything else may be carried out again. Answers travel in order, so that a node with fewer
//! than [`KEPT_MAX`] requests in flight never repeats one whose result was forgotten.

use super::contract::StoreLimits;
use super::entries::{check_total, fits, memory_for, refused, Entries, Outcome, Refusal, Room};
use crate::error::{memory, Status};
use crate::types::Incarnation;
use crate::wire::{Blob, Parts, Record, StoreBegin, StoreOperation, StorePiece, StoreRecord, StoreReply};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// How much memory a key of an open request takes beside its bytes. That many of a request are free: programs wait for a key of
/// each node.
const KEY_BYTES: usize = 64;
const FREE_KEYS: usize = 4096;

/// How many requests of one node may be unanswered, including those whose answers wait for the disk.
pub(super) const OPEN_MAX: usize = 1024;
/// How many results of one node are kept.
pub(super) const KEPT_MAX: usize = 4096;

/// An answer, and the value that goes with it.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) to: u32,
    pub(super) reply: StoreReply,
    pub(super) value: Option<Blob>,
    /// The request was refused unseen, because there were too many. Such an answer waits for nothing.
    pub(super) is_too_much: bool,
}

/// A request that has not been answered.
#[derive(Debug)]
struct Open {
    begin: StoreBegin,
    /// What has come in of its value so far.
    bytes: Vec<u8>,
    /// How many bytes it has announced: keys and values.
    reserved: usize,
    /// The one of its keys that it waits for; none: its value is still coming.
    waits_for: Option<usize>,
}

#[derive(Debug, Default)]
struct Client {
    open: BTreeMap<u64, Open>,
    /// Each request that changed something, until the node has its answer.
    kept: BTreeMap<u64, Kept>,
    /// The last request that changed something. It is kept for good.
    newest: Option<(u64, Kept)>,
}

/// What is remembered of a request that changed something.
#[derive(Clone, Copy, Debug)]
struct Kept {
    /// The number in the reply.
    number: i64,
    /// Its number among the changes by this life of the node.
    change: u64,
}

#[derive(Debug)]
pub(super) struct Store {
    limits: StoreLimits,
    entries: Entries,
    /// The bytes that open requests have announced.
    reserved: usize,
    clients: HashMap<u32, Client>,
    waiters: HashMap<Vec<u8>, BTreeSet<(u32, u64)>>,
    answers: VecDeque<Answer>,
    /// Whether changes are to be written down.
    durable: bool,
    changes: VecDeque<Change>,
}

/// What is to be written down of a request that changed something.
#[derive(Debug)]
pub(super) struct Change {
    /// Each key, and what it holds from now on; none: the key is deleted.
    pub(super) entries: Vec<(Vec<u8>, Option<Blob>)>,
    /// The node, its request, the number in the answer, and the number of this change among those by this life of the node.
    pub(super) by: Option<(u32, u64, i64, u64)>,
}

impl Store {
    pub(super) fn new(limits: StoreLimits, durable: bool) -> Store {
        Store {
            limits,
            entries: Entries::default(),
            reserved: 0,
            clients: HashMap::new(),
            waiters: HashMap::new(),
            answers: VecDeque::new(),
            durable,
            changes: VecDeque::new(),
        }
    }

    pub(super) fn next_answer(&mut self) -> Option<Answer> {
        self.answers.pop_front()
    }

    /// The next change that is to be written down.
    pub(super) fn next_change(&mut self) -> Option<Change> {
        self.changes.pop_front()
    }

    fn write_down(&mut self, keys: &[Blob], node: u32, request: u64, kept: Kept) {
        if self.durable {
            let by = Some((node, request, kept.number, kept.change));
            // Each key stands here once. Otherwise one long value could make a record longer than any may be.
            let keys: BTreeSet<&[u8]> = keys.iter().map(Blob::as_slice).collect();
            let entries = keys.into_iter().map(|key| (key.to_vec(), self.entries.get(key).cloned())).collect();
            self.changes.push_back(Change { entries, by });
        }
    }

    /// How much there may be in all, and in one value.
    fn room(&self) -> Room {
        Room { total: self.limits.total_max, value: self.limits.value_max }
    }

    /// Takes up a change that was written down.
    pub(super) fn restore(&mut self, record: StoreRecord) {
        for (key, value) in record.entries {
            self.entries.put(&key, value);
        }
        if let Some((node, _, request, number, change)) = record.by {
            self.keep(node, request, Kept { number, change });
        }
    }

    /// How many changes the present life of a node has made.
    pub(super) fn changes_of(&self, key: u32) -> u64 {
        self.clients.get(&key).and_then(|client| client.newest).map_or(0, |(_, newest)| newest.change)
    }

    /// The records of all that the store holds and remembers. `life` tells the life of a node.
    pub(super) fn records(&self, life: impl Fn(u32) -> Option<Incarnation>) -> Vec<Record> {
        let entries = self.entries.iter().map(|(key, value)| (vec![(key.clone(), Some(value.clone()))], None));
        let kept = self.clients.iter().flat_map(|(node, client)| {
            let life = life(*node);
            let newest = client.newest.as_ref().filter(|(request, _)| !client.kept.contains_key(request));
            let kept = client.kept.iter().chain(newest.map(|(request, kept)| (request, kept)));
            kept.filter_map(move |(request, kept)| Some((*node, life?, *request, kept.number, kept.change)))
        });
        let all = entries.chain(kept.map(|by| (Vec::new(), Some(by))));
        all.map(|(entries, by)| Record::Store(StoreRecord { entries, by })).collect()
    }

    /// A request begins; `held` answers to the node wait to be durable.
    pub(super) fn begin(&mut self, key: u32, begin: StoreBegin, held: usize) {
        let request = begin.request;
        let client = self.clients.entry(key).or_default();
        client.kept = client.kept.split_off(&begin.answered_below);
        let repeated = client.kept.contains_key(&request);
        if client.open.get(&request).is_some_and(|open| open.waits_for.is_some()) {
            return; // it waits already
        }
        self.close(key, request);
        if self.clients.get(&key).map_or(0, |client| client.open.len()) + held >= OPEN_MAX {
            let words = format!("this node has {OPEN_MAX} unanswered store requests: that is the limit");
            self.refuse(key, request, (Status::Limit, words));
            return self.answers.back_mut().into_iter().for_each(|answer| answer.is_too_much = true);
        }
        let reserved = match self.check(&begin, repeated) {
            Ok(reserved) => reserved,
            Err(refusal) => return self.refuse(key, request, refusal),
        };
        if let Err(refusal) = memory_for(2 * begin.value_bytes as usize) {
            return self.refuse(key, request, refusal);
        }
        self.reserved += reserved;
        let complete = begin.value_bytes == 0;
        let open = Open { begin, bytes: Vec::new(), reserved, waits_for: None };
        self.clients.entry(key).or_default().open.insert(request, open);
        if complete {
            self.carry_out(key, request);
        }
    }

    /// Pieces of requests that are not open belong to refused ones: they are dropped.
    pub(super) fn piece(&mut self, key: u32, piece: StorePiece) {
        let Some(open) = self.clients.get_mut(&key).and_then(|client| client.open.get_mut(&piece.request)) else {
            return;
        };
        let (have, more, announced) = (open.bytes.len() as u64, piece.bytes.len() as u64, open.begin.value_bytes);
        if open.waits_for.is_some() || have + more > announced {
            let words = format!("{} bytes of value came for a request that announced {announced}", have + more);
            self.close(key, piece.request);
            return self.refuse(key, piece.request, (Status::Invalid, words));
        }
        let is_whole = have + more == announced;
        let grown = memory::more(&mut open.bytes, piece.bytes.len(), "a value in the store");
        // A value that is whole is copied to where it stays: there must be memory for the copy.
        let grown =
            grown.map_err(refused).and_then(|()| if is_whole { memory_for(announced as usize) } else { Ok(()) });
        if let Err(refusal) = grown {
            self.close(key, piece.request);
            return self.refuse(key, piece.request, refusal);
        }
        open.bytes.extend_from_slice(piece.bytes.as_slice());
        if is_whole {
            self.carry_out(key, piece.request);
        }
    }

    pub(super) fn cancel(&mut self, key: u32, request: u64) {
        self.close(key, request);
    }

    /// A node's connection ended: requests that were under way come again, from the start.
    pub(super) fn detached(&mut self, key: u32) {
        let Some(client) = self.clients.get(&key) else { return };
        let cut: Vec<u64> =
            client.open.iter().filter(|(_, open)| open.waits_for.is_none()).map(|(request, _)| *request).collect();
        for request in cut {
            self.close(key, request);
        }
    }

    /// A node is no member any more.
    pub(super) fn gone(&mut self, key: u32) {
        self.ended(key);
        self.clients.remove(&key);
    }

    /// A life of a node has ended, and nobody waits for its answers. What it was promised is still known.
    pub(super) fn ended(&mut self, key: u32) {
        let Some(client) = self.clients.get(&key) else { return };
        for request in client.open.keys().copied().collect::<Vec<_>>() {
            self.close(key, request);
        }
    }

    /// How many bytes a request announces, or why it cannot be taken.
    fn check(&self, begin: &StoreBegin, repeated: bool) -> Result<usize, Refusal> {
        self.check_keys(begin)?;
        let values = match begin.operation {
            StoreOperation::Set | StoreOperation::Append => [0, begin.value_bytes],
            // Several values are each looked at when they are here.
            StoreOperation::MultiSet => {
                [0, begin.value_bytes.saturating_sub(Parts::length(begin.keys.len(), 0) as u64)]
            }
            StoreOperation::CompareSet if begin.expected_bytes <= begin.value_bytes => {
                [begin.expected_bytes, begin.value_bytes - begin.expected_bytes]
            }
            StoreOperation::CompareSet => {
                let (expected, all) = (begin.expected_bytes, begin.value_bytes);
                let words = format!("{expected} bytes expected of a value of {all} in a store request");
                return Err((Status::Invalid, words));
            }
            _ if begin.value_bytes == 0 => [0, 0],
            _ => {
                let words = format!("a value of {} bytes in a store request that takes none", begin.value_bytes);
                return Err((Status::Invalid, words));
            }
        };
        let bytes = |value: &u64| usize::try_from(*value).unwrap_or(usize::MAX);
        values.iter().try_for_each(|value| fits(bytes(value), self.room()))?;
        let keys: usize = begin.keys.iter().map(Blob::len).sum();
        let many = begin.keys.len().saturating_sub(FREE_KEYS) * KEY_BYTES;
        let reserved = keys + many + begin.value_bytes as usize;
        if begin.value_bytes > 0 && !repeated {
            if self.reserved > 0 {
                self.check_announced(reserved)?; // a value alone on its way always may
            }
            self.check_early(begin)?;
        }
        Ok(reserved)
    }

    fn check_announced(&self, more: usize) -> Result<(), Refusal> {
        let checked = check_total("the store's open requests", more, self.reserved, self.room());
        checked.map_err(|(status, words)| (status, format!("{words}; when other calls have ended it may succeed")))
    }

    /// A value that has no place is refused before it is sent, where that can be known.
    fn check_early(&self, begin: &StoreBegin) -> Result<(), Refusal> {
        let key = begin.keys[0].as_slice();
        let (more, less) = match begin.operation {
            StoreOperation::Set => (key.len() as u64 + begin.value_bytes, self.entries.held_by(key)),
            StoreOperation::Append => (begin.value_bytes, 0),
            _ => return Ok(()), // whether a value is set depends on what is there, or a key may be there twice
        };
        check_total("the store", more as usize, self.entries.bytes() - less, self.room())
    }

    fn check_keys(&self, begin: &StoreBegin) -> Result<(), Refusal> {
        use StoreOperation::*;
        let (given, max) = (begin.keys.len(), self.limits.key_max);
        let takes = match begin.operation {
            Set | Get | TryGet | Add | CompareSet | Delete | Append => (given != 1).then_some("one key"),
            Wait | Check | MultiSet | MultiGet | TryMultiGet => (given == 0).then_some("one key or more"),
            Count => (given != 0).then_some("no key"),
            List => (given != 2).then_some("two keys: the prefix, and the last key of the previous list"),
        };
        if let Some(takes) = takes {
            return Err((Status::Invalid, format!("a store request with {given} keys: expected {takes}")));
        }
        if let Some(long) = begin.keys.iter().find(|key| key.len() > max) {
            return Err((Status::Limit, format!("a store key of {} bytes: the limit is {max}", long.len())));
        }
        if begin.operation != List && begin.keys.iter().any(Blob::is_empty) {
            return Err((Status::Invalid, format!("an empty store key: a key has 1 to {max} bytes")));
        }
        Ok(())
    }

    /// Everything of the request is here.
    fn carry_out(&mut self, key: u32, request: u64) {
        let Some(client) = self.clients.get_mut(&key) else { return };
        let Some(open) = client.open.remove(&request) else { return };
        self.reserved -= open.reserved;
        if let Some(kept) = client.kept.get(&request).copied() {
            let desired = (open.begin.operation == StoreOperation::CompareSet)
                .then(|| Blob::new(open.bytes[open.begin.expected_bytes as usize..].to_vec()));
            return self.answer(key, request, kept, desired);
        }
        let room = self.room();
        match self.entries.carry_out(&open.begin, open.bytes, room) {
            Ok(Outcome::Done(number, value, changed)) => {
                let change = if changed { self.changes_of(key).saturating_add(1) } else { 0 };
                let kept = Kept { number, change };
                if changed {
                    self.keep(key, request, kept);
                    self.write_down(&open.begin.keys, key, request, kept);
                }
                self.answer(key, request, kept, value);
                if changed {
                    open.begin.keys.iter().for_each(|changed| self.wake(changed.as_slice()));
                }
            }
            Ok(Outcome::Missing(at)) => self.wait(key, open.begin, open.reserved, at),
            Err(refusal) => self.refuse(key, request, refusal),
        }
    }

    fn keep(&mut self, key: u32, request: u64, kept: Kept) {
        let client = self.clients.entry(key).or_default();
        client.kept.insert(request, kept);
        if client.kept.len() > KEPT_MAX {
            client.kept.pop_first();
        }
        if client.newest.is_none_or(|(_, newest)| newest.change < kept.change) {
            client.newest = Some((request, kept));
        }
    }

    /// Puts a request behind the first of its keys that is missing.
    fn wait(&mut self, key: u32, begin: StoreBegin, reserved: usize, missing: usize) {
        let request = begin.request;
        if let Err(refusal) = self.check_announced(reserved) {
            return self.refuse(key, request, refusal);
        }
        self.waiters.entry(begin.keys[missing].as_slice().to_vec()).or_default().insert((key, request));
        self.reserved += reserved;
        let open = Open { begin, bytes: Vec::new(), reserved, waits_for: Some(missing) };
        self.clients.entry(key).or_default().open.insert(request, open);
    }

    /// A key has changed: the requests that wait for it look again.
    fn wake(&mut self, key: &[u8]) {
        if self.entries.get(key).is_none() {
            return;
        }
        for (node, request) in self.waiters.remove(key).unwrap_or_default() {
            self.carry_out(node, request);
        }
    }

    /// Forgets an open request, wherever it stands.
    fn close(&mut self, key: u32, request: u64) {
        let Some(open) = self.clients.get_mut(&key).and_then(|client| client.open.remove(&request)) else { return };
        self.reserved -= open.reserved;
        let Some(missing) = open.waits_for else { return };
        let awaited = open.begin.keys[missing].as_slice();
        if let Some(waiters) = self.waiters.get_mut(awaited) {
            waiters.remove(&(key, request));
            if waiters.is_empty() {
                self.waiters.remove(awaited);
            }
        }
    }

    fn refuse(&mut self, to: u32, request: u64, (status, reason): Refusal) {
        let reply = StoreReply { request, status: status.code(), reason, number: 0, change: 0, value_bytes: 0 };
        self.answers.push_back(Answer { to, reply, value: None, is_too_much: false });
    }

    fn answer(&mut self, to: u32, request: u64, Kept { number, change }: Kept, value: Option<Blob>) {
        let value_bytes = value.as_ref().map_or(0, Blob::len) as u64;
        let (status, reason) = (Status::Ok.code(), String::new());
        let reply = StoreReply { request, status, reason, number, change, value_bytes };
        self.answers.push_back(Answer { to, reply, value, is_too_much: false });
    }
}

#[cfg(test)]
#[path = "store_test.rs"]
mod tests;
