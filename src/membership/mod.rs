//! The scheduler's brain: admission, rank rules, liveness, verdicts, revocation, the store.
//!
//! The drive contract, nowhere broken: **feed one input ([`Scheduler::handle`]), then drain its outputs
//! ([`Scheduler::next_output`]) until there are none.** Nothing else changes its state. It names no socket, thread, file
//! or clock: time, identities and secrets come in as arguments.

mod contract;

pub use contract::{Closed, ConnId, Identity, Input, Liveness, Output, Rules, StoreLimits};
