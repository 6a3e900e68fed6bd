//! What happened, step by step, small enough to keep and to compare: the same seed must give the same trace.

use crate::types::Time;
use crate::wire::Message;

/// One thing that happened to one party.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) at: Time,
    /// Which node; none for the scheduler.
    pub(super) party: Option<usize>,
    pub(super) what: &'static str,
    /// The content, hashed.
    pub(super) digest: u64,
}

#[derive(Debug, Default)]
pub(super) struct Trace {
    pub(super) steps: Vec<Step>,
}

impl Trace {
    pub(super) fn add(&mut self, at: Time, party: Option<usize>, what: &'static str, digest: u64) {
        self.steps.push(Step { at, party, what, digest });
    }

    /// One number for all of it.
    pub(super) fn hash(&self) -> u64 {
        self.steps.iter().fold(START, |hash, step| {
            let party = step.party.map_or(u64::MAX, |party| party as u64);
            let hash = [step.at.0, party, step.digest].iter().fold(hash, |hash, word| fold(hash, &word.to_le_bytes()));
            fold(hash, step.what.as_bytes())
        })
    }
}

const START: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a, eight bytes at a time: values of the store pass through here.
fn fold(hash: u64, bytes: &[u8]) -> u64 {
    let mut words = bytes.chunks_exact(8);
    let mut hash = hash;
    for word in &mut words {
        let word = u64::from_le_bytes(word.try_into().expect("chunks of eight"));
        hash = (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29);
    }
    words.remainder().iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

pub(super) fn digest_of_bytes(bytes: &[u8]) -> u64 {
    fold(START, bytes)
}

/// Everything that a message says.
pub(super) fn digest_of_message(message: &Message) -> u64 {
    match message {
        // The table of nodes is the same for all and long: checked by content elsewhere.
        Message::Formed(formed) => {
            fold(fold(START, &formed.index.to_le_bytes()), &(formed.members.len() as u64).to_le_bytes())
        }
        Message::StorePiece(piece) => fold(fold(START, &piece.request.to_le_bytes()), piece.bytes.as_slice()),
        other => fold(fold(START, &[other.kind()]), &other.encode()),
    }
}
