//! What the supervisor of a run with `--join` has the launcher do: part of `supervise.rs`, and tested with it.

/// The processes that an action is for. A child always stands for its whole process group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    /// All workers, also those that have ended: their children may live.
    Workers,
    /// The scheduler.
    Scheduler,
    /// A process that a child has left behind outside its group.
    Stray(i32),
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Ask these processes to end.
    Terminate(Whom),
    /// Kill these processes.
    Kill(Whom),
    /// Kill what is left of this child's last life: another life will begin in its place.
    Clear(usize),
    /// Start this child again.
    Start(usize),
}
