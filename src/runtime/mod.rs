//! Where brains meet sockets.
//!
//! Owns every thread and every wait of the library: the scheduler's loop, the agent thread of each node, and the calls
//! that user threads make; docs/architecture describes threads, links and progress. Deliberately absent: any rule of
//! membership or algorithm; those are the brains' and the schedules'. Tested in `cluster_test.rs`, `mischief_test.rs`
//! and `damage_test.rs` with whole clusters on threads, connection by connection in `mesh_test.rs`, `link_test.rs` and
//! `control_test.rs`, in every order of threads in `loom_test.rs`, and with processes by `ctests` and `tests/python`.

pub mod base;
pub(crate) mod collectives;
pub(crate) mod groups;
pub(crate) mod links;
pub(crate) mod memory;
pub(crate) mod messages;
pub(crate) mod node;
pub(crate) mod scheduler;
pub(crate) mod state;

#[cfg(test)]
mod by_hand_test;
#[cfg(test)]
mod cluster_test;
#[cfg(test)]
mod damage_test;
#[cfg(all(test, loom))]
mod loom_test;
#[cfg(all(test, not(loom)))]
mod memory_link_test;
#[cfg(test)]
mod mischief_test;
#[cfg(all(test, not(loom)))]
mod shared_memory_test;

pub use crate::schedules::kernels::{Function, UserFunction};
pub use base::disk::prepare_recovery;
pub use base::identity::host_of;
pub use base::polling::Tester;
pub use base::request::{Outcome, Received, Request};
pub use collectives::queued_call::Work;
pub use groups::group::Group;
pub use groups::handle::GroupHandle;
pub use memory::buffer::CallBuffers;
pub use messages::{Direction, Post};
pub use node::cluster::{join, limit_ms, serving, start_scheduler, Cluster, Joined};
pub use node::own_addresses::first_of_interfaces;
pub use node::rank_table::take_rank;
pub use scheduler::rules::check_thresholds;
pub use scheduler::serving::Serving;
pub use scheduler::thread::SchedulerThread;
pub use state::stragglers::{absent_in_words, place_in_words, wait_in_words};
