//! Exit codes that the command gives for itself; all others are those of the programs it ran.

/// The command itself could not do something: bind, write a log, start a process.
pub const FAILED: i32 = 1;
/// The command line is wrong.
pub const USAGE: i32 = 2;
/// A node aborted the scheduler's job.
pub const ABORTED: i32 = 3;
/// The scheduler could not begin to serve, or not go on: its settings, its port, its recovery directory. Or no
/// scheduler answered.
pub const UNABLE: i32 = 4;
/// The scheduler served, and its journal could not be written any more.
pub const JOURNAL: i32 = 5;
/// Forming the cluster took longer than it may.
pub const FORMING: i32 = 124;
/// A bug in the command: a Rust program that panics ends with this.
pub const PANICKED: i32 = 101;
/// The program to run was not found, or can't be executed.
pub const NOT_FOUND: i32 = 127;
/// Added to the number of the signal that ended something.
pub const SIGNAL: i32 = 128;
