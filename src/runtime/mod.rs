//! Where brains meet sockets.
//!
//! Owns every thread and every wait of the library: the scheduler's loop, the agent thread of each node, and the calls
//! that user threads make; ARCHITECTURE.md describes threads, links and progress. Deliberately absent: any rule of
//! membership or algorithm; those are the brains' and the schedules'. Tested in `cluster_test.rs`, `mischief_test.rs`
//! and `damage_test.rs` with whole clusters on threads, connection by connection in `mesh_test.rs`, `link_test.rs` and
//! `control_test.rs`, in every order of threads in `loom_test.rs`, and with processes by `ctests` and `tests/python`.

mod absence;
mod aftermath;
mod backlog;
pub(crate) mod book;
mod buffer;
#[cfg(test)]
mod by_hand_test;
pub(crate) mod causes;
mod checksums;
mod clock;
mod cluster;
#[cfg(test)]
mod cluster_test;
mod control;
#[cfg(test)]
mod damage_test;
mod dial;
mod disk;
mod drive;
mod giveup;
mod group;
mod handshake;
#[cfg(test)]
mod history_test;
mod hosted;
mod identity;
mod keepalive;
pub(crate) mod keeper;
mod link;
mod link_end;
mod locating;
pub mod log;
#[cfg(all(test, loom))]
mod loom_stand_in_test;
#[cfg(all(test, loom))]
mod loom_test;
mod mailbox;
mod making;
mod mesh;
mod messages;
#[cfg(test)]
mod mischief_test;
mod node;
mod operations;
mod outgoing;
pub mod outlet;
mod over;
mod overhear;
mod parting;
mod polling;
mod port;
mod progress;
mod queue;
mod rank_table;
mod recover;
mod request;
mod roster;
mod rules;
mod scheduler;
mod seat;
mod shared;
mod shortage;
mod silence;
mod sink;
mod store;
mod sync;
mod telling;
mod turns;
mod unanswered;
mod watching;
mod work;
mod writer;

pub use absence::{absent_in_words, place_in_words, wait_in_words};
pub use buffer::CallBuffers;
pub use cluster::{join, limit_ms, serving, start_scheduler, Cluster, Joined};
pub use group::{Group, Standing};
pub use hosted::Scheduler;
pub use identity::host_of;
pub use messages::{Post, Way};
pub use polling::Tester;
pub use progress::WAITS_AFTER;
pub use request::{Outcome, Received, Request};
pub use rules::check_thresholds;
pub use scheduler::Serving;
pub use seat::Seat;
pub use work::Work;

pub use crate::collective::kernels::{Function, UserFunction};
