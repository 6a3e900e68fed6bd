//! Collectives as schedules: for each rank, which bytes go to which rank, which come from which, and what is combined
//! with what.
//!
//! A schedule is a pure function `(shape, step) -> Action`: it has no state, allocates nothing and knows neither
//! sockets nor time. The driver in `runtime` asks for step 0, 1, 2 ... until [`Action::Done`] and carries each action
//! out; a simulation in the tests does the same in memory.
//!
//! Invariants, all of them checked by the simulation in `simulation.rs`:
//! - *Frame order.* What the schedule of rank A sends to B, and what the schedule of B receives from A, are the same list
//!   of lengths in the same order. A link is first in, first out, so a frame needs no address.
//! - *No reliance on buffering.* A schedule finishes even if a send ends only once its receiver has asked for it.
//! - *Same bits.* Every rank ends with the same bits, the same from run to run. Each block is reduced in an order that
//!   depends on rank, size and count alone, always as op(lower, higher). An exact sum does not depend even on these.
//! - *Which algorithm* depends on the call, the group's size and the thresholds, never on what differs between ranks
//!   (such as whether the call is in place).
//! - `Input` is never written, except where it is `Output`; and it is not read where it may have been overwritten that way.
//! - Nothing is read that neither the caller gave nor the schedule wrote.
//! - Within one exchange no byte that is sent is also written.
//! - No element is split: where elements are combined, each stretch of them is whole.
//! - The output of an allgatherv, and the input of a reduce_scatterv, are read and written a part at a time, for they may be
//!   lists of buffers. Only a copy, or a conversion, reads several parts at once.
//!
//! # To add a collective
//! 1. Give it a [`CallKind`](crate::types::CallKind), and say in [`Shape`] what its buffers and `count` mean.
//! 2. Write one file here, like `barrier.rs`: a step function per algorithm (`Phases` numbers the steps), and
//!    the scratch that it needs.
//! 3. Enter each algorithm as one line of [`ALGORITHMS`] (or [`EXACT`]), fastest for its purpose first; the last of a kind
//!    must fit every shape. A line that says when it `suits` may need a field in [`Thresholds`].
//! 4. Say in `parts_test.rs` what each rank gives and gets. The tests by seed (`soak_test.rs`) then try every line of
//!    the table by themselves: all types and operations, at unaligned addresses, in place on some ranks, with links
//!    that hold nothing.
//!
//! Deliberately absent here: reaching memory (except in [`kernels`], which are handed pointers), framing, checking,
//! retrying.

mod action;
mod algorithm;
mod allgather;
mod allgatherv;
mod allreduce;
mod alltoall;
mod barrier;
#[cfg(test)]
mod bits_test;
mod broadcast;
mod check;
mod conversion;
mod exact;
#[cfg(test)]
mod exact_test;
mod gather;
pub mod kernels;
mod order;
#[cfg(test)]
mod order_test;
#[cfg(test)]
mod own_elements_test;
#[cfg(test)]
mod parts_test;
mod phases;
mod pipeline;
mod reduce;
mod reduce_scatter;
mod scatter;
mod shape;
mod sharing;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod simulation_test;
#[cfg(test)]
pub(crate) mod soak_test;
mod tree;
mod widen;
#[cfg(test)]
mod widen_test;

pub use action::{Action, Buffer, Landing, Rows, Side, Span};
pub use algorithm::{choose, Algorithm, Thresholds, ALGORITHMS, EXACT};
pub use conversion::Conversion;
pub use order::Fold;
pub use shape::{Layout, Parts, Shape};
pub use sharing::{Mistold, Sharing, Taking};
pub use widen::{sum_type, Wide};
