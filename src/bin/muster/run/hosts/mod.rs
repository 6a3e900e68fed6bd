//! Many hosts from one command (`-H`, `--hostfile`): a launcher on each host, started over ssh and led from here.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`list`] | hosts and their slots, from words and files |
//! | [`plan`] | what is asked for: which workers on which host, in which order of ranks |
//! | [`frames`] | what goes to and fro between here and a host |
//! | [`report`] | what a launcher tells of its run, to be passed on |
//! | [`part`] | what ssh starts on a host: it starts the launcher there, and ends it when nobody leads it any more |
//! | [`line`] | the way to one host: the ssh process, and threads that read and write |
//! | [`conduct`] | which host is told what, and when: pure |
//! | [`blame`] | which failure was first: pure |
//! | [`show`] | output that nobody may hold up |
//! | [`lead`] | the loop around them |
//!
//! Invariants: nothing starts anywhere before every host has answered. All that a host is told, secrets too, goes over the standard
//! input of its ssh process, and nothing but a fixed command stands in a command line. The end of that input ends the
//! launcher there. Tested beside each module, and with real hosts by `tests/python/test_many_hosts.py`.

mod blame;
mod conduct;
mod frames;
mod lead;
mod line;
mod list;
pub mod part;
mod plan;
pub mod report;
mod show;

pub use lead::lead;
pub use plan::plan;
