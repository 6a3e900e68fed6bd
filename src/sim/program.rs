//! What runs on top of each node's brain, and the book that is kept of what all of them did to the store.

use super::groups::Making;
use super::plan::Action;
use crate::agent::{Ask, Command};
use crate::error::Error;
use crate::wire::{Blob, StoreOperation};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// What a question was about, so that its answer can be judged.
#[derive(Clone, Debug)]
pub(super) enum Asked {
    Add,
    Set {
        version: u64,
    },
    /// From whom, and the newest version that had been acknowledged when it was asked.
    Read {
        of: usize,
        at_least: u64,
        waits: bool,
    },
    Claim,
    Never,
    WhereAre,
    Locate(u32),
}

/// One node's program.
#[derive(Debug, Default)]
pub(super) struct Program {
    pub(super) to_do: VecDeque<(Duration, Action)>,
    pub(super) open: BTreeMap<Ask, Asked>,
    pub(super) next_ask: Ask,
    pub(super) leaving: bool,
    pub(super) groups: Making,
}

impl Program {
    /// Notes a question down, and gives it a number.
    pub(super) fn ask(&mut self, asked: Asked) -> Ask {
        self.next_ask += 1;
        self.open.insert(self.next_ask, asked);
        self.next_ask
    }

    /// Whether it has done everything and heard every answer.
    pub(super) fn is_done(&self) -> bool {
        self.to_do.is_empty() && self.open.is_empty() && self.groups.is_done()
    }
}

/// What is true of the store, as far as acknowledgements tell.
#[derive(Debug, Default)]
pub(super) struct Book {
    adds_issued: i64,
    sums: BTreeSet<i64>,
    /// By writer: the newest version that it wrote, and the newest that was acknowledged.
    versions: BTreeMap<usize, (u64, u64)>,
    claimed: Option<Vec<u8>>,
}

const COUNTER: &[u8] = b"counter";
const CLAIM: &[u8] = b"claim";

impl Book {
    /// The command for one of the store's actions, noted down on both sides.
    pub(super) fn command(&mut self, program: &mut Program, node: usize, action: &Action) -> Option<Command> {
        let key = |of: usize| format!("key/{of}").into_bytes();
        let none = Vec::new();
        Some(match action {
            Action::Add => {
                self.adds_issued += 1;
                request(program.ask(Asked::Add), StoreOperation::Add, COUNTER.to_vec(), 1, none)
            }
            Action::Set(bytes) => {
                let newest = self.versions.entry(node).or_default();
                newest.0 += 1;
                let ask = program.ask(Asked::Set { version: newest.0 });
                request(ask, StoreOperation::Set, key(node), 0, value(newest.0, *bytes))
            }
            Action::Get(of) | Action::TryGet(of) => {
                let waits = matches!(action, Action::Get(_));
                let at_least = self.versions.get(of).map_or(0, |versions| versions.1);
                let operation = if waits { StoreOperation::Get } else { StoreOperation::TryGet };
                request(program.ask(Asked::Read { of: *of, at_least, waits }), operation, key(*of), 0, none)
            }
            Action::Claim => {
                let mine = format!("node {node}").into_bytes();
                request(program.ask(Asked::Claim), StoreOperation::CompareSet, CLAIM.to_vec(), 0, mine)
            }
            Action::GiveUp => request(program.ask(Asked::Never), StoreOperation::Get, b"never".to_vec(), 0, none),
            _ => return None,
        })
    }

    /// Judges an answer.
    pub(super) fn answered(
        &mut self,
        node: usize,
        asked: &Asked,
        answer: &Result<(i64, Vec<u8>), Error>,
    ) -> Result<(), String> {
        let (number, bytes) = match (asked, answer) {
            (Asked::Read { at_least: 0, waits: false, .. }, Err(error))
                if error.status() == crate::error::Status::NotFound =>
            {
                return Ok(())
            }
            (_, Err(error)) => return Err(format!("{asked:?} of node {node} failed: {error}")),
            (_, Ok((number, bytes))) => (*number, bytes),
        };
        match asked {
            Asked::Add if number < 1 || number > self.adds_issued => {
                Err(format!("a sum of {number} after {} additions", self.adds_issued))
            }
            Asked::Add if !self.sums.insert(number) => Err(format!("two additions were answered {number}")),
            Asked::Set { version } => {
                let acknowledged = &mut self.versions.entry(node).or_default().1;
                *acknowledged = (*acknowledged).max(*version);
                Ok(())
            }
            Asked::Read { of, at_least, .. } => self.judge_read(*of, *at_least, bytes),
            Asked::Claim if self.claimed.get_or_insert_with(|| bytes.clone()) != bytes => {
                Err(format!("the claim is {bytes:?}, and was {:?}", self.claimed))
            }
            Asked::Never => Err("a key that nobody writes has a value".to_owned()),
            _ => Ok(()),
        }
    }

    fn judge_read(&self, of: usize, at_least: u64, bytes: &[u8]) -> Result<(), String> {
        let version = bytes.get(..8).map(|head| u64::from_le_bytes(head.try_into().expect("eight bytes")));
        let Some(version) = version else { return Err(format!("a value of {} bytes", bytes.len())) };
        let newest = self.versions.get(&of).map_or(0, |versions| versions.0);
        if version < at_least || version > newest {
            return Err(format!("read version {version} of node {of}'s key: {at_least} to {newest} is possible"));
        }
        match *bytes == value(version, bytes.len()) {
            true => Ok(()),
            false => Err(format!("version {version} of node {of}'s key is garbled")),
        }
    }

    /// Where everybody was served: each addition was made exactly once.
    pub(super) fn judge_sum(&self) -> Result<(), String> {
        let newest = self.sums.last().copied().unwrap_or(0);
        if newest == self.adds_issued && self.sums.len() as i64 == newest {
            return Ok(());
        }
        Err(format!("{} additions gave {} sums up to {newest}", self.adds_issued, self.sums.len()))
    }
}

/// The version, then bytes that follow from it.
fn value(version: u64, bytes: usize) -> Vec<u8> {
    let mut value = version.to_le_bytes().to_vec();
    value.extend((8..bytes).map(|at| (at as u64 * 31 + version) as u8));
    value
}

fn request(ask: Ask, operation: StoreOperation, key: Vec<u8>, delta: i64, value: Vec<u8>) -> Command {
    Command::Store { ask, operation, keys: vec![Blob::new(key)], delta, expected_bytes: 0, value: Blob::new(value) }
}
