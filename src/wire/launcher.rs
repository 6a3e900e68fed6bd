//! What a launcher tells the scheduler: how a process that it had started ended, and which places it fills no more.

use super::codec::{code, record};
use crate::types::{HostName, LaunchId, Process};
use std::fmt;

code! {
    /// In which way a process ended.
    pub enum HowEnded {
        /// It ended by itself, with an exit code.
        Exited = 1,
        /// It ended by a signal.
        Killed = 2,
    }
}

record! {
    /// A process that a launcher had started has ended; the only message of its connection. Evidence, not a verdict.
    pub struct ChildEnded {
        /// Where it ran.
        pub host: HostName,
        /// The process, told in the same way as in its registration, if it is a node.
        pub process: Process,
        /// How it ended.
        pub how: HowEnded,
        /// The exit code, or the number of the signal.
        pub number: i32,
        /// The id that was in its environment, and in that of every process that it started.
        pub launch: Option<LaunchId>,
    }
}

record! {
    /// A launcher starts no process in the places of these processes any more; the only message of its connection. It counts
    /// for nodes that are lost.
    pub struct Abandoned {
        /// Where they ran.
        pub host: HostName,
        /// The processes, told in the same way as in their registrations, if they are nodes: every life that had such a place.
        pub processes: Vec<Process>,
        /// The ids that were in their environments.
        pub launches: Vec<LaunchId>,
    }
}

impl ChildEnded {
    /// The end in words, for a node that was not that process but was run by it, such as a script's child.
    pub fn of_its_runner(&self) -> String {
        format!("was run by a process that {self}")
    }
}

/// Shown as the end of a sentence about the process: `was killed by signal 9 (its launcher)`.
impl fmt::Display for ChildEnded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.how {
            HowEnded::Exited => write!(f, "exited with code {} (its launcher)", self.number),
            HowEnded::Killed => write!(f, "was killed by signal {} (its launcher)", self.number),
        }
    }
}
