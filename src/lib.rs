//! muster turns a set of processes into a cluster. A scheduler gathers them over TCP and gives each a rank. From then
//! on they run host collectives and keep a small shared store. The product is the C ABI in `include/muster.h`.
//!
//! The modules, from the ground up; imports point down only (`tests/house.rs` holds them to it):
//!
//! | module | what it is |
//! | --- | --- |
//! | [`types`] | the nouns: roles, identities, element types, calls, time |
//! | [`error`] | `Error`, and the one table from it to status code and text |
//! | [`wiping`] | keeps passwords and keys out of memory |
//! | [`config`] | every setting once; environment and other launchers become validated settings |
//! | [`strangers`] | connections that have proved nothing: how many a port holds, what the log says of them |
//! | [`wire`] | frames and messages: encode, decode, limits |
//! | [`membership`] | the scheduler's brain |
//! | [`agent`] | the node's brain |
//! | [`schedules`] | schedules as step machines, choice of algorithm, kernels |
//! | [`journal`] | the scheduler's append-only log and the node's identity file, on a disk |
//! | [`net`] | sockets, pollers, wakers, names; knows nothing of ranks |
//! | [`tls`] | certificates, and the encrypted link |
//! | [`secret`] | the job's secret: its proof before the first message |
//! | [`runtime`] | where brains meet sockets |
//! | [`ffi`] | the C ABI: convert, call, convert |

#![warn(missing_docs)]
#![warn(unsafe_op_in_unsafe_fn)]

pub mod agent;
pub mod config;
pub mod error;
pub mod ffi;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod journal;
pub mod membership;
pub mod net;
pub mod runtime;
pub mod schedules;
pub mod secret;
#[cfg(test)]
mod sim;
pub mod strangers;
pub mod tls;
pub mod types;
pub mod wiping;
pub mod wire;
