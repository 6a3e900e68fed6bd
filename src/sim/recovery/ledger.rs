//! The book that is kept of the store: what was asked, what was acknowledged, and what must be there therefore.

use crate::agent::{Ask, Command};
use crate::error::{Error, Status};
use crate::wire::{Blob, Record, StoreOperation};
use std::collections::{BTreeMap, BTreeSet};

/// What a question was about.
#[derive(Clone, Debug)]
pub(super) enum Asked {
    Add,
    Set {
        slot: usize,
        version: u64,
    },
    /// Whose key, and the newest version that had been acknowledged then.
    Read {
        of: usize,
        at_least: u64,
    },
    Claim,
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    adds_asked: i64,
    sums: BTreeSet<i64>,
    /// By slot: the newest version that was asked for, and the newest that was acknowledged.
    versions: BTreeMap<usize, (u64, u64)>,
    claimed: Option<Vec<u8>>,
}

const COUNTER: &[u8] = b"counter";
const CLAIM: &[u8] = b"claim";

fn key(slot: usize) -> Vec<u8> {
    format!("key/{slot}").into_bytes()
}

impl Ledger {
    /// The command for one request of a slot, noted down; `other` is whose key is read.
    pub(super) fn ask(&mut self, ask: Ask, pick: u64, slot: usize, other: usize) -> (Asked, Command) {
        let request = |operation, key: Vec<u8>, delta, value: Vec<u8>| Command::Store {
            ask,
            operation,
            keys: vec![Blob::new(key)],
            delta,
            expected_bytes: 0,
            value: Blob::new(value),
        };
        match pick {
            0 => {
                let newest = self.versions.entry(slot).or_default();
                newest.0 += 1;
                let version = newest.0;
                (Asked::Set { slot, version }, request(StoreOperation::Set, key(slot), 0, value(version)))
            }
            1 => {
                let at_least = self.versions.get(&other).map_or(0, |versions| versions.1);
                (Asked::Read { of: other, at_least }, request(StoreOperation::TryGet, key(other), 0, Vec::new()))
            }
            2 if self.claimed.is_none() => {
                let mine = format!("slot {slot}").into_bytes();
                (Asked::Claim, request(StoreOperation::CompareSet, CLAIM.to_vec(), 0, mine))
            }
            _ => {
                self.adds_asked += 1;
                (Asked::Add, request(StoreOperation::Add, COUNTER.to_vec(), 1, Vec::new()))
            }
        }
    }

    /// Judges an answer.
    pub(super) fn answered(
        &mut self,
        node: usize,
        asked: &Asked,
        answer: &Result<(i64, Vec<u8>), Error>,
    ) -> Result<(), String> {
        let (number, bytes) = match (asked, answer) {
            (Asked::Read { at_least: 0, .. }, Err(error)) if error.status() == Status::NotFound => return Ok(()),
            (_, Err(error)) => return Err(format!("the store: {asked:?} of node {node} failed: {error}")),
            (_, Ok((number, bytes))) => (*number, bytes),
        };
        match asked {
            Asked::Add if number < 1 || number > self.adds_asked => {
                Err(format!("the store: a sum of {number} after {} additions", self.adds_asked))
            }
            Asked::Add if !self.sums.insert(number) => Err(format!("the store: two additions were answered {number}")),
            Asked::Add => Ok(()),
            Asked::Set { slot, version } => {
                let acknowledged = &mut self.versions.entry(*slot).or_default().1;
                *acknowledged = (*acknowledged).max(*version);
                Ok(())
            }
            Asked::Read { of, at_least } => self.judge_value(*of, *at_least, bytes),
            Asked::Claim if self.claimed.get_or_insert_with(|| bytes.clone()) != bytes => {
                Err(format!("the store: the claim is {bytes:?}, and was {:?}", self.claimed))
            }
            Asked::Claim => Ok(()),
        }
    }

    fn judge_value(&self, of: usize, at_least: u64, bytes: &[u8]) -> Result<(), String> {
        let version = bytes.get(..8).map_or(0, |head| u64::from_le_bytes(head.try_into().expect("eight bytes")));
        let newest = self.versions.get(&of).map_or(0, |versions| versions.0);
        match version < at_least || version > newest || *bytes != value(version) {
            true => Err(format!("the store: version {version} of key {of}: {at_least} to {newest} is possible")),
            false => Ok(()),
        }
    }

    /// What a scheduler reads when it is started again must hold everything that was acknowledged.
    pub(super) fn judge_records(&self, records: &[Record]) -> Result<(), String> {
        let mut entries: BTreeMap<&[u8], &Blob> = BTreeMap::new();
        for record in records {
            let Record::Store(change) = record else { continue };
            match (&change.key, &change.value) {
                (Some(key), Some(value)) => drop(entries.insert(key, value)),
                (Some(key), None) => drop(entries.remove(&key[..])),
                (None, _) => {}
            }
        }
        for (slot, (_, acknowledged)) in self.versions.iter().filter(|(_, versions)| versions.1 > 0) {
            let held = entries.get(&key(*slot)[..]).map_or(&[][..], |value| value.as_slice());
            self.judge_value(*slot, *acknowledged, held)
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

fn value(version: u64) -> Vec<u8> {
    let mut value = version.to_le_bytes().to_vec();
    value.extend((0..version % 90).map(|at| (at * 31 + version) as u8));
    value
}
