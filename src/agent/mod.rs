//! The node's brain: register and register again, heartbeat, hear verdicts, ask, and leave.
//!
//! The drive contract, nowhere broken: **feed one input ([`Agent::handle`]), then drain its outputs
//! ([`Agent::next_output`]) until there are none.** Nothing else changes its state. It names no socket, thread, file or
//! clock: time, identity and randomness come in as arguments.

mod contract;

pub use contract::{Ask, Command, Event, Input, Output, Profile};
