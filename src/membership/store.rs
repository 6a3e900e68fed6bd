//! The store: a small map from keys to values, asked over the control plane.
//!
//! Owns: entries, transfers under way, waiters, and the results that a node may ask for again.
//!
//! Invariants:
//! - What is held (keys, values, and all that open requests announced) stays within the total, except for requests
//!   that are repeated after they were carried out.
//! - A request is carried out at most once, however often it comes.
//! - No size that a node announces makes it allocate.
//!
//! Waiting is by push: a waiter costs nothing until its key appears. Deliberately absent: connections and time (a node
//! that no longer waits says so). Tested in `store_test.rs`.
//!
//! **Exactly once.** Only what changed something is remembered (a set, an addition, a successful compare-and-set, a
//! deletion of something): anything else may be carried out again. Answers travel in order, so that a node with fewer
//! than [`KEPT_MAX`] requests in flight never repeats one whose result was forgotten.

use super::contract::StoreLimits;
use crate::error::{memory, Error, Status};
use crate::types::Incarnation;
use crate::wire::{Blob, Record, StoreBegin, StoreOperation, StorePiece, StoreRecord, StoreReply};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// How many requests of one node may be unanswered, those included whose answers wait for the disk.
pub(super) const OPEN_MAX: usize = 1024;
/// How many results of one node are kept.
pub(super) const KEPT_MAX: usize = 4096;

/// An answer, and the value that goes with it.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) to: u32,
    pub(super) reply: StoreReply,
    pub(super) value: Option<Blob>,
    /// The request was refused unseen, for there were too many: that waits for nothing.
    pub(super) is_too_much: bool,
}

/// A request that has not been answered.
#[derive(Debug)]
struct Open {
    begin: StoreBegin,
    /// What has come of its value.
    bytes: Vec<u8>,
    /// What it holds of the total.
    reserved: usize,
    /// Which of its keys it waits for; none: its value is still coming.
    waits_for: Option<usize>,
}

#[derive(Debug, Default)]
struct Client {
    open: BTreeMap<u64, Open>,
    /// Each request that changed something, until the node has its answer.
    kept: BTreeMap<u64, Kept>,
    /// The last of them, for good.
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
    entries: HashMap<Vec<u8>, Blob>,
    /// Entries and reservations.
    used: usize,
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
    pub(super) key: Vec<u8>,
    pub(super) value: Option<Blob>,
    /// The node, its request, the number in the answer, and the number of this change among those by this life of the node.
    pub(super) by: Option<(u32, u64, i64, u64)>,
}

/// A refusal: status and sentence.
type Refusal = (Status, String);
/// A number, a value, and whether something was changed.
type Outcome = (i64, Option<Blob>, bool);

impl Store {
    pub(super) fn new(limits: StoreLimits, durable: bool) -> Store {
        Store {
            limits,
            entries: HashMap::new(),
            used: 0,
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

    fn write_down(&mut self, key: &Blob, node: u32, request: u64, kept: Kept) {
        if self.durable {
            let (key, by) = (key.as_slice().to_vec(), Some((node, request, kept.number, kept.change)));
            let value = self.entries.get(&key).cloned();
            self.changes.push_back(Change { key, value, by });
        }
    }

    /// Takes up a change that was written down.
    pub(super) fn restore(&mut self, record: StoreRecord) {
        if let Some(key) = record.key {
            let old = match record.value {
                Some(value) => {
                    self.used += key.len() + value.len();
                    self.entries.insert(key.clone(), value)
                }
                None => self.entries.remove(&key),
            };
            self.used -= old.map_or(0, |old| key.len() + old.len());
        }
        if let Some((node, _, request, number, change)) = record.by {
            self.keep(node, request, Kept { number, change });
        }
    }

    /// How many changes the present life of a node has made.
    pub(super) fn changes_of(&self, key: u32) -> u64 {
        self.clients.get(&key).and_then(|client| client.newest).map_or(0, |(_, newest)| newest.change)
    }

    /// What it holds and remembers, as it is written down. `life` tells the life of a node.
    pub(super) fn records(&self, life: impl Fn(u32) -> Option<Incarnation>) -> Vec<Record> {
        let entries = self.entries.iter().map(|(key, value)| (Some(key.clone()), Some(value.clone()), None));
        let kept = self.clients.iter().flat_map(|(node, client)| {
            let life = life(*node);
            let newest = client.newest.as_ref().filter(|(request, _)| !client.kept.contains_key(request));
            let kept = client.kept.iter().chain(newest.map(|(request, kept)| (request, kept)));
            kept.filter_map(move |(request, kept)| Some((*node, life?, *request, kept.number, kept.change)))
        });
        let all = entries.chain(kept.map(|by| (None, None, Some(by))));
        all.map(|(key, value, by)| Record::Store(StoreRecord { key, value, by })).collect()
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
        if let Err(refusal) = room(2 * begin.value_bytes as usize) {
            return self.refuse(key, request, refusal);
        }
        self.used += reserved;
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
        // What is whole is copied to where it stays.
        let grown = grown.map_err(refused).and_then(|()| if is_whole { room(announced as usize) } else { Ok(()) });
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

    /// A node's connection ended: what was under way comes again, from the start.
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
        let Some(client) = self.clients.get(&key) else { return };
        for request in client.open.keys().copied().collect::<Vec<_>>() {
            self.close(key, request);
        }
        self.clients.remove(&key);
    }

    /// What a request will hold of the total, or why it can't be taken.
    fn check(&self, begin: &StoreBegin, repeated: bool) -> Result<usize, Refusal> {
        let invalid = |words: String| Err((Status::Invalid, words));
        let limit = |words: String| Err((Status::Limit, words));
        if begin.keys.is_empty() || (begin.keys.len() > 1 && begin.operation != StoreOperation::Wait) {
            return invalid(format!("a store request with {} keys: it takes one", begin.keys.len()));
        }
        if let Some(long) = begin.keys.iter().find(|key| key.len() > self.limits.key_max) {
            return limit(format!("a store key of {} bytes: the limit is {}", long.len(), self.limits.key_max));
        }
        let values = match begin.operation {
            StoreOperation::Set => [0, begin.value_bytes],
            StoreOperation::CompareSet if begin.expected_bytes <= begin.value_bytes => {
                [begin.expected_bytes, begin.value_bytes - begin.expected_bytes]
            }
            StoreOperation::CompareSet => {
                let (expected, all) = (begin.expected_bytes, begin.value_bytes);
                return invalid(format!("{expected} bytes expected of a value of {all} in a store request"));
            }
            _ if begin.value_bytes == 0 => [0, 0],
            _ => return invalid(format!("a value of {} bytes in a store request that takes none", begin.value_bytes)),
        };
        if let Some(long) = values.iter().find(|value| **value > self.limits.value_max as u64) {
            return limit(format!("a store value of {long} bytes: the limit is {}", self.limits.value_max));
        }
        let keys: usize = begin.keys.iter().map(Blob::len).sum();
        let reserved = keys + begin.value_bytes as usize;
        if repeated {
            return Ok(reserved);
        }
        self.check_total(reserved).map(|()| reserved)
    }

    fn check_total(&self, more: usize) -> Result<(), Refusal> {
        if self.used + more <= self.limits.total_max {
            return Ok(());
        }
        let (used, total) = (self.used, self.limits.total_max);
        Err((
            Status::Limit,
            format!("{more} bytes more in the store, which holds {used}: the limit is {total} in total (setting store_total_limit)"),
        ))
    }

    /// Everything of the request is here.
    fn carry_out(&mut self, key: u32, request: u64) {
        let Some(client) = self.clients.get_mut(&key) else { return };
        let Some(open) = client.open.remove(&request) else { return };
        self.used -= open.reserved;
        if let Some(kept) = client.kept.get(&request).copied() {
            let desired = (open.begin.operation == StoreOperation::CompareSet)
                .then(|| Blob::new(open.bytes[open.begin.expected_bytes as usize..].to_vec()));
            return self.answer(key, request, kept, desired);
        }
        match self.outcome(&open.begin, open.bytes) {
            Ok(Some((number, value, changed))) => {
                let change = if changed { self.changes_of(key).saturating_add(1) } else { 0 };
                let kept = Kept { number, change };
                if changed {
                    self.keep(key, request, kept);
                    self.write_down(&open.begin.keys[0], key, request, kept);
                }
                self.answer(key, request, kept, value);
                if changed {
                    self.wake(open.begin.keys[0].as_slice());
                }
            }
            Ok(None) => self.wait(key, open.begin, open.reserved),
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

    /// What comes of a request now; `None`: it must wait.
    fn outcome(&mut self, begin: &StoreBegin, bytes: Vec<u8>) -> Result<Option<Outcome>, Refusal> {
        let key = begin.keys[0].as_slice();
        let found = self.entries.get(key).cloned();
        Ok(Some(match begin.operation {
            StoreOperation::Set => {
                self.insert(key, Blob::new(bytes))?;
                (0, None, true)
            }
            StoreOperation::Get => match found {
                Some(value) => (0, Some(value), false),
                None => return Ok(None),
            },
            StoreOperation::TryGet => match found {
                Some(value) => (0, Some(value), false),
                None => return Err((Status::NotFound, format!("no key {:?} in the store", readable(key)))),
            },
            StoreOperation::Add => {
                let sum = add(key, found.as_ref().map(Blob::as_slice), begin.delta)?;
                self.insert(key, Blob::new(sum.to_string().into_bytes()))?;
                (sum, None, true)
            }
            StoreOperation::CompareSet => {
                let (expected, desired) = bytes.split_at(begin.expected_bytes as usize);
                if found.as_ref().map_or(&[][..], Blob::as_slice) == expected {
                    let desired = Blob::new(desired.to_vec());
                    self.insert(key, desired.clone())?;
                    (1, Some(desired), true)
                } else {
                    (0, found, false)
                }
            }
            StoreOperation::Delete => match self.entries.remove(key) {
                Some(value) => {
                    self.used -= key.len() + value.len();
                    (1, None, true)
                }
                None => (0, None, false),
            },
            StoreOperation::Wait => match begin.keys.iter().all(|key| self.entries.contains_key(key.as_slice())) {
                true => (0, None, false),
                false => return Ok(None),
            },
        }))
    }

    fn insert(&mut self, key: &[u8], value: Blob) -> Result<(), Refusal> {
        let old = self.entries.get(key).map_or(0, |old| key.len() + old.len());
        self.used -= old;
        if let Err(refusal) = self.check_total(key.len() + value.len()) {
            self.used += old;
            return Err(refusal);
        }
        self.used += key.len() + value.len();
        self.entries.insert(key.to_vec(), value);
        Ok(())
    }

    /// Puts a request behind the first of its keys that is missing.
    fn wait(&mut self, key: u32, begin: StoreBegin, reserved: usize) {
        let missing = begin.keys.iter().position(|key| !self.entries.contains_key(key.as_slice())).unwrap_or(0);
        let request = begin.request;
        self.waiters.entry(begin.keys[missing].as_slice().to_vec()).or_default().insert((key, request));
        self.used += reserved;
        let open = Open { begin, bytes: Vec::new(), reserved, waits_for: Some(missing) };
        self.clients.entry(key).or_default().open.insert(request, open);
    }

    /// A key has changed: those who wait for it look again.
    fn wake(&mut self, key: &[u8]) {
        if !self.entries.contains_key(key) {
            return;
        }
        for (node, request) in self.waiters.remove(key).unwrap_or_default() {
            self.carry_out(node, request);
        }
    }

    /// Forgets an open request, wherever it stands.
    fn close(&mut self, key: u32, request: u64) {
        let Some(open) = self.clients.get_mut(&key).and_then(|client| client.open.remove(&request)) else { return };
        self.used -= open.reserved;
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

fn room(bytes: usize) -> Result<(), Refusal> {
    match bytes {
        0 => Ok(()),
        _ => memory::room(bytes, "a value in the store").map_err(refused),
    }
}

fn refused(error: Error) -> Refusal {
    (error.status(), format!("the scheduler has {}", error.message()))
}

/// The sum of a number in decimal text and `delta`.
fn add(key: &[u8], value: Option<&[u8]>, delta: i64) -> Result<i64, Refusal> {
    let text = value.map_or(Some("0"), |value| std::str::from_utf8(value).ok());
    let number: i64 = text.and_then(|text| text.parse().ok()).ok_or_else(|| {
        let (key, value) = (readable(key), readable(value.unwrap_or_default()));
        (Status::Invalid, format!("store key {key:?} holds {value:?}: add needs a decimal number of 64 bits there"))
    })?;
    number.checked_add(delta).ok_or_else(|| {
        let key = readable(key);
        (Status::Invalid, format!("store key {key:?} holds {number}: adding {delta} does not fit into 64 bits"))
    })
}

/// The beginning of some bytes, for a sentence.
fn readable(bytes: &[u8]) -> String {
    const SHOWN: usize = 64;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN)]).into_owned();
    if bytes.len() > SHOWN {
        text + "..."
    } else {
        text
    }
}

#[cfg(test)]
#[path = "store_test.rs"]
mod tests;
