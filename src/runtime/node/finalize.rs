//! Leaving a cluster: the groups end, the scheduler hears of it, and a process that hosts the scheduler goes last.
//!
//! The program may interrupt each of its waits, and call it again: then it goes on where it was.

use super::cluster::Cluster;
use crate::agent::Command;
use crate::error::{Failure, Result, Status};
use crate::runtime::base::interrupts::{in_call, Attention};
use crate::runtime::groups::group::Group;
use crate::runtime::groups::parting::{await_farewell, join as await_threads, tell_last_calls};
use crate::runtime::links::handshake::leave;
use crate::runtime::state::node_state::AgentCommand;
use crate::types::Time;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// How long leaving waits for what was sent last to reach the peers.
const FAREWELL_WAIT: Duration = Duration::from_secs(1);

/// How far this process has left its cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// It is in it.
    #[default]
    NotYet,
    /// The others know that it has left; the scheduler in this process may still serve them.
    HasLeft,
    /// Nothing is left to be done.
    Done,
}

impl Cluster {
    /// Leaves the cluster, within the finalize time-out. Leaving twice is leaving once.
    pub fn finalize(&self) -> Result<()> {
        let attention = self.state.interrupts.attention();
        let mut leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        let deadline = self.state.clock.now() + self.settings().finalize_timeout;
        self.leave_until(&mut leaving, deadline, &attention).map_err(|why| in_call("finalize", &why))
    }

    fn leave_until(&self, leaving: &mut Leaving, deadline: Time, attention: &Attention<'_>) -> Result<()> {
        if *leaving == Leaving::NotYet {
            self.leave(deadline, attention)?;
            *leaving = Leaving::HasLeft;
        }
        if *leaving == Leaving::HasLeft {
            self.await_own_scheduler(deadline, attention)?;
            *leaving = Leaving::Done;
        }
        Ok(())
    }

    fn leave(&self, deadline: Time, attention: &Attention<'_>) -> Result<()> {
        let (begun, limit) = (self.state.clock.now(), self.settings().finalize_timeout);
        let (why, leave) = ("this process has finalized its cluster", leave());
        let groups = self.registry.groups();
        tell_last_calls(&groups, &self.state);
        groups.iter().for_each(|group| group.close(self.over(group, why), &leave));
        // Half of the time is left for the good-bye.
        await_farewell(&groups, &self.state, begun + FAREWELL_WAIT.min(limit / 2), attention)?;
        self.state.ask(AgentCommand::Brain(Command::Leave));
        let left = self
            .state
            .wait_attentively(deadline, attention, |view| view.left.clone().or_else(|| view.over.then_some(None)))?;
        match left {
            Some(None) => {}
            Some(Some(warning)) => self.state.logger.warn(&warning),
            None => self.state.logger.warn("the scheduler has not said good-bye in time; leaving without"),
        }
        self.end_groups(why, deadline, attention)?;
        self.state.end_trace(deadline.since(self.state.clock.now()));
        self.state.ask(AgentCommand::Quit);
        Ok(())
    }

    /// Why a group cannot be used any more, though nothing is wrong with it.
    fn over(&self, group: &Group, why: &str) -> Failure {
        let (cause, epoch, group) = (why.to_owned(), self.epoch(), Some(group.id()));
        Failure { status: Status::State, culprit: None, cause, epoch, group, sequence: 0 }
    }

    /// Ends the threads and links of all groups: until then, and for ever after. What is stuck in a user's function by then is
    /// waited for when the cluster is freed.
    pub(super) fn end_groups(&self, why: &str, until: Time, attention: &Attention<'_>) -> Result<()> {
        let retired = self.registry.take_retired();
        let groups: Vec<Arc<Group>> = retired.into_iter().chain(self.registry.groups()).collect();
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.extend(groups.iter().flat_map(|group| group.end_threads(self.over(group, why))));
        let ended = await_threads(&mut threads, &self.state, until, attention);
        groups.iter().for_each(|group| match until {
            Time::NEVER => group.shut(),
            _ => group.shut_if_idle(),
        });
        ended
    }

    /// A process that hosts the scheduler leaves last.
    fn await_own_scheduler(&self, deadline: Time, attention: &Attention<'_>) -> Result<()> {
        let Some(scheduler) = &self.scheduler else { return Ok(()) };
        let left = deadline.since(self.state.clock.now());
        match scheduler.wait_for(Some(left), attention)? {
            Some(Ok(())) => {}
            Some(Err(error)) => self.state.logger.warn(&format!("the scheduler in this process ended: {error}")),
            None => {
                self.state.logger.warn("other nodes have not left yet; the scheduler in this process ends without them")
            }
        }
        Ok(())
    }
}
