//! Why a group is over, as its calls tell it. What this process as a whole knows of first causes is in `causes`; a group keeps
//! what one of its calls has told (`group_end`), also when its epoch is over.

use super::causes::is_real;
use super::context::Context;
use super::group_end::Over;
use super::node_state::{AgentCommand, NodeView};
use crate::agent::Command;
use crate::error::{Error, Failure, Result, Status};

impl Context {
    /// The cause that a call has told of why the group cannot be used any more.
    pub(crate) fn broken(&self) -> Option<Failure> {
        self.end.get().failure().cloned()
    }

    /// The cause that a call has told of why the group is over for good.
    fn ended_by(&self) -> Option<&Failure> {
        match self.end.get() {
            Over::Broken(error) => error.failure(),
            Over::No | Over::Revoked(_) => None,
        }
    }

    /// Why the group is over, unless that is only that this process has left its cluster, or freed the group.
    pub(crate) fn why_over(&self) -> Option<Failure> {
        let failure = self.told().filter(|failure| failure.status != Status::State)?;
        Some(self.break_with(failure))
    }

    /// Why the group is over, as far as this node has heard.
    pub(crate) fn told(&self) -> Option<Failure> {
        if let Some(failure) = self.ended_by() {
            return Some(failure.clone());
        }
        self.rather(self.state.first_cause(self.id(), self.epoch()))
    }

    /// Why the group is over, for a thread that waits for the scheduler's word: another thread of this process may have
    /// ended it.
    pub(crate) fn first_cause(&self, view: &NodeView) -> Option<Failure> {
        let known = || self.rather(view.epoch.first_cause(self.id(), self.epoch()));
        self.ended_by().cloned().or_else(known)
    }

    /// Picks the known cause. If it is only a wish for the next epoch, what a call has told already counts instead.
    fn rather(&self, known: Option<Failure>) -> Option<Failure> {
        known.as_ref().filter(|known| is_real(known)).cloned().or_else(|| self.broken()).or(known)
    }

    /// Breaks the group. Keeps the first cause, and returns it.
    pub(crate) fn break_with(&self, failure: Failure) -> Failure {
        let error = self.break_for_all(failure);
        error.failure().expect("what ends a group has its failure").clone()
    }

    /// Breaks the group. Returns the first cause as the error that calls tell. Wakes the threads that wait for the
    /// scheduler's word about the group, and the messages' thread. It wakes them only if the group was not broken
    /// before.
    fn break_for_all(&self, failure: Failure) -> &Error {
        if let Over::Broken(first) = self.end.get() {
            return first;
        }
        let first = self.state.settle(self.id(), self.epoch(), failure);
        let (first, is_news) = self.end.tell(&first);
        if is_news {
            self.interrupt_messages();
            self.state.nudge();
        }
        first
    }

    /// The program calls. That is refused on a group that is over. Otherwise the program goes on, if another group was
    /// over.
    pub(crate) fn begin(&self) -> Result<()> {
        self.told_by(self.refuse_if_broken())?;
        if self.state.aftermath.goes_on() {
            self.state.ask(AgentCommand::Brain(Command::Report));
        }
        Ok(())
    }

    /// The calling thread hears how a call ended. By an error it may learn that a group which the program made is over.
    pub(crate) fn told_by<T>(&self, outcome: Result<T>) -> Result<T> {
        if outcome.is_err() && self.is_made() && self.broken().is_some() {
            self.state.aftermath.told(self.id());
        }
        outcome
    }

    /// Refuses a call on a broken group. It takes no memory if the group broke before, because each pending request
    /// gets this error.
    pub(crate) fn refuse_if_broken(&self) -> Result<()> {
        match self.end.get() {
            Over::No if self.state.is_calm(self.epoch()) => return Ok(()), // this is nearly always so
            Over::No | Over::Revoked(_) => {}
            Over::Broken(error) => {
                self.refuse_if_freed()?;
                return Err(error.clone());
            }
        }
        let Some(failure) = self.told() else { return Ok(()) };
        self.refuse_if_freed()?;
        Err(self.break_for_all(failure).clone())
    }

    /// Refuses a call on a group that has outlived its cluster's handle: it is of no use then.
    pub(crate) fn refuse_if_freed(&self) -> Result<()> {
        match self.state.is_freed() {
            true => Err(Error::new(Status::State, format!("{}: its cluster has been freed", self.id()))),
            false => Ok(()),
        }
    }
}
