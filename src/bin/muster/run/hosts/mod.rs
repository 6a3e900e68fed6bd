//! Many hosts from one command (`-H`, `--hostfile`): a launcher on each host, started over ssh and led from here.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`plan`] | which workers run on which host, in which order of ranks |
//! | [`frames`] | what this launcher and a host send each other |
//! | [`report`] | what a launcher tells of its run, to be passed on |
//! | [`part`] | what ssh starts on a host: it starts the launcher there, and ends it when nobody leads it any more |
//! | [`line`] | the way to one host: the ssh process, and threads that read and write |
//! | [`conduct`] | which host is told what, and when: pure |
//! | [`blame`] | which failure was first: pure |
//! | [`show`] | output that nobody may hold up |
//! | [`lead`] | the loop around them |
//!
//! Invariants: nothing starts anywhere before every host has answered. All that a host is told, secrets too, goes over
//! the standard input of its ssh process. A command line has only a fixed command. The end of that input ends the
//! launcher there. Tested beside each module, and with real hosts by `tests/python/test_many_hosts.py`.

mod blame;
mod conduct;
mod frames;
mod lead;
mod line;
pub mod part;
mod plan;
pub mod report;
mod show;

pub use lead::lead;
pub use plan::plan;
