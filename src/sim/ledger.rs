//! The account of the store: what was asked, what was acknowledged, and what must be there for that reason.

use super::program::Tick;
use super::world::World;
use crate::agent::{Ask, Command};
use crate::error::{Error, Status};
use crate::wire::{Blob, Record, StoreOperation};
use std::collections::{BTreeMap, BTreeSet};

/// What is asked of the store.
#[derive(Clone, Copy, Debug)]
pub(super) enum StoreRequest {
    /// Add one to the number that all count.
    Add,
    /// Write so many bytes under its own key.
    Set(usize),
    /// Read the key of this node; with `waits`, wait until it is written.
    Read { of: usize, waits: bool },
    /// To be the first to claim what all claim.
    Claim,
    /// Wait for a key that nobody writes.
    Never,
}

/// What a question was about.
#[derive(Clone, Debug)]
pub(super) enum Asked {
    Add,
    Set {
        by: usize,
        version: u64,
    },
    /// The node that has the key, and the newest version that had been acknowledged then.
    Read {
        of: usize,
        at_least: u64,
        waits: bool,
    },
    Claim,
    Never,
}

/// What one node has written under its key.
#[derive(Debug, Default)]
struct Versions {
    /// How many bytes each version has.
    sizes: Vec<usize>,
    /// The newest version that was acknowledged.
    acknowledged: u64,
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    adds_asked: i64,
    sums: BTreeSet<i64>,
    /// What was written, by its writer: a slot, or without recovery a node's index.
    keys: BTreeMap<usize, Versions>,
    claimed: Option<Vec<u8>>,
}

const COUNTER: &[u8] = b"counter";
const CLAIM: &[u8] = b"claim";

fn key(by: usize) -> Vec<u8> {
    format!("key/{by}").into_bytes()
}

impl Ledger {
    pub(super) fn is_claimed(&self) -> bool {
        self.claimed.is_some()
    }

    /// How many versions of this writer's key there will be, with the next one.
    pub(super) fn versions(&self, by: usize) -> usize {
        self.keys.get(&by).map_or(0, |versions| versions.sizes.len()) + 1
    }

    /// The command for a request, noted down.
    pub(super) fn ask(&mut self, ask: Ask, request: StoreRequest, by: usize) -> (Asked, Command) {
        let none = Vec::new();
        let (asked, operation, key, delta, value) = match request {
            StoreRequest::Add => {
                self.adds_asked += 1;
                (Asked::Add, StoreOperation::Add, COUNTER.to_vec(), 1, none)
            }
            StoreRequest::Set(bytes) => {
                let sizes = &mut self.keys.entry(by).or_default().sizes;
                sizes.push(bytes);
                let version = sizes.len() as u64;
                (Asked::Set { by, version }, StoreOperation::Set, key(by), 0, value(version, bytes))
            }
            StoreRequest::Read { of, waits } => {
                let at_least = self.keys.get(&of).map_or(0, |versions| versions.acknowledged);
                let operation = if waits { StoreOperation::Get } else { StoreOperation::TryGet };
                (Asked::Read { of, at_least, waits }, operation, key(of), 0, none)
            }
            StoreRequest::Claim => {
                let mine = format!("node {by}").into_bytes();
                (Asked::Claim, StoreOperation::CompareSet, CLAIM.to_vec(), 0, mine)
            }
            StoreRequest::Never => (Asked::Never, StoreOperation::Get, b"never".to_vec(), 0, none),
        };
        let (keys, value) = (vec![Blob::new(key)], Blob::new(value));
        (asked, Command::Store { ask, operation, keys, delta, expected_bytes: 0, value })
    }

    /// Judges an answer.
    pub(super) fn answered(
        &mut self,
        node: usize,
        asked: &Asked,
        answer: &Result<(i64, Vec<u8>), Error>,
    ) -> Result<(), String> {
        let (number, bytes) = match (asked, answer) {
            (Asked::Read { at_least: 0, waits: false, .. }, Err(error)) if error.status() == Status::NotFound => {
                return Ok(())
            }
            (_, Err(error)) => return Err(format!("the store: {asked:?} of node {node} failed: {error}")),
            (_, Ok((number, bytes))) => (*number, bytes),
        };
        match asked {
            Asked::Add if number < 1 || number > self.adds_asked => {
                Err(format!("the store: a sum of {number} after {} additions", self.adds_asked))
            }
            Asked::Add if !self.sums.insert(number) => Err(format!("the store: two additions were answered {number}")),
            Asked::Add => Ok(()),
            Asked::Set { by, version } => {
                let acknowledged = &mut self.keys.entry(*by).or_default().acknowledged;
                *acknowledged = (*acknowledged).max(*version);
                Ok(())
            }
            Asked::Read { of, at_least, .. } => self.judge_value(*of, *at_least, bytes),
            Asked::Claim if self.claimed.get_or_insert_with(|| bytes.clone()) != bytes => {
                Err(format!("the store: the claim is {bytes:?}, and was {:?}", self.claimed))
            }
            Asked::Claim => Ok(()),
            Asked::Never => Err("the store: a key that nobody writes has a value".to_owned()),
        }
    }

    fn judge_value(&self, of: usize, at_least: u64, bytes: &[u8]) -> Result<(), String> {
        let version = bytes.get(..8).map_or(0, |head| u64::from_le_bytes(head.try_into().expect("eight bytes")));
        let sizes = self.keys.get(&of).map_or(&[][..], |versions| &versions.sizes);
        let newest = sizes.len() as u64;
        let size = (version as usize).checked_sub(1).and_then(|at| sizes.get(at));
        let is_right = size.is_some_and(|size| *bytes == value(version, *size));
        match version < at_least || !is_right {
            true => Err(format!("the store: version {version} of key {of}: {at_least} to {newest} is possible")),
            false => Ok(()),
        }
    }

    /// The records that a restarted scheduler reads must hold everything that was acknowledged.
    pub(super) fn judge_records(&self, records: &[Record]) -> Result<(), String> {
        let mut entries: BTreeMap<&[u8], &Blob> = BTreeMap::new();
        for record in records {
            let Record::Store(change) = record else { continue };
            for (key, value) in &change.entries {
                match value {
                    Some(value) => drop(entries.insert(key, value)),
                    None => drop(entries.remove(&key[..])),
                }
            }
        }
        for (by, versions) in self.keys.iter().filter(|(_, versions)| versions.acknowledged > 0) {
            let held = entries.get(&key(*by)[..]).map_or(&[][..], |value| value.as_slice());
            self.judge_value(*by, versions.acknowledged, held)
                .map_err(|wrong| format!("an acknowledged write is lost: {wrong}"))?;
        }
        let text = entries.get(COUNTER).map_or(&b"0"[..], |value| value.as_slice());
        let counter: i64 = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).unwrap_or(-1);
        let least = self.sums.last().copied().unwrap_or(0);
        if counter < least || counter > self.adds_asked {
            let asked = self.adds_asked;
            return Err(format!(
                "an acknowledged write is lost: the counter is {counter}, {least} to {asked} is possible"
            ));
        }
        let claim = entries.get(CLAIM).map(|value| value.as_slice());
        match self.claimed.as_deref() {
            Some(claimed) if claim != Some(claimed) => {
                Err(format!("an acknowledged write is lost: the claim is {claim:?}, and was {claimed:?}"))
            }
            _ => Ok(()),
        }
    }
}

impl World {
    /// The store has answered.
    pub(super) fn stored(
        &mut self,
        node: usize,
        ask: Ask,
        answer: &Result<(i64, Vec<u8>), Error>,
    ) -> Result<(), String> {
        let process = &mut self.processes[node];
        let asked = process.program.asks.remove(&ask);
        if !self.plan.recovers() && answer.is_err() {
            // A node that is cut off for a heartbeat time-out stops waiting for the store; so does one that is about to
            // end for a loss.
            let is_cut_off = answer.as_ref().is_err_and(|error| error.status() == Status::Unreachable);
            if (is_cut_off && process.to_blame.is_some()) || (asked.is_none() && process.broken.is_some()) {
                return Ok(());
            }
        }
        let Some(asked) = asked else {
            return Err(format!("node {node} was answered {ask}, which it had not asked"));
        };
        let of_this_job = process.formed.as_ref().map(|formed| formed.instance) == self.host.instance;
        if of_this_job && (process.broken.is_none() || answer.is_ok()) {
            self.ledger.answered(node, &asked, answer)?;
        }
        if self.processes[node].program.waits == Some(ask) {
            self.processes[node].program.waits = None;
            self.soon(node, 0..60, Tick::Go);
        }
        Ok(())
    }
}

/// The version, then bytes that follow from it.
fn value(version: u64, bytes: usize) -> Vec<u8> {
    let mut value = version.to_le_bytes().to_vec();
    value.extend((8..bytes).map(|at| (at as u64 * 31 + version) as u8));
    value
}
