//! Leaving a cluster: the groups end, the scheduler hears of it, and a process that hosts the scheduler goes last.
//!
//! The program may interrupt each of its waits, and call it again: then it goes on where it stopped.
//!
//! If others still need a scheduler whose process has left, it ends when the cluster is freed, as if its process had
//! died: it ends nobody's job. Tested in `finalize_test.rs`.

use super::cluster::{Cluster, Leaving};
use crate::agent::Command;
use crate::error::{Error, Failure, Result, Status};
use crate::runtime::base::interrupts::{in_call, Attention};
use crate::runtime::groups::group::Group;
use crate::runtime::groups::parting::{await_farewell, join as await_threads, tell_last_calls};
use crate::runtime::links::handshake;
use crate::runtime::state::node_state::{AgentCommand, NodeView};
use crate::runtime::state::participation::Participation;
use crate::types::Time;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// How long leaving waits for what was sent last to reach the peers.
const FAREWELL_WAIT: Duration = Duration::from_secs(1);

/// The warning of a process that hosts the scheduler, and whose time for leaving is up.
const STILL_SERVING: &str =
    "other nodes have not left yet: the scheduler in this process serves them until the cluster \
                             is freed, and then their job goes on without it";

impl Cluster {
    /// Leaves the cluster, within the finalize time-out. Leaving twice is leaving once.
    pub fn finalize(&self) -> Result<()> {
        let attention = self.state.program.interrupts.attention();
        // Another thread that is in this call ends within its own time.
        let _only = self.finalizing.begin(|| None, &attention).map_err(|why| in_call("finalize", &why))?;
        let mut leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
        let deadline = self.state.clock.now() + self.settings().finalize_timeout;
        let interrupted = |why: Error| in_call("finalize", &why);
        if *leaving == Leaving::NotYet {
            leave(self, deadline, &attention).map_err(interrupted)?;
            *leaving = Leaving::HasLeft;
        }
        if *leaving == Leaving::HasLeft {
            await_own_scheduler(self, deadline, &attention).map_err(interrupted)?;
            *leaving = Leaving::Done;
        }
        Ok(())
    }

    /// Ends the threads and links of all groups, in the manner of [`Cluster::end_groups`].
    fn end_all(&self, why: &str, until: Time, attention: &Attention<'_>) -> Result<()> {
        let groups = self.registry.take_retired().into_iter().chain(self.registry.groups()).collect();
        self.end_groups(groups, |group| over(group, why), until, attention)
    }

    /// Ends the threads and links of these groups; waits until this time (`Time::NEVER`: until all have ended). A thread
    /// that is still stuck in a user's function then is waited for when the cluster is freed.
    pub(super) fn end_groups(
        &self,
        groups: Vec<Arc<Group>>,
        over: impl Fn(&Group) -> Failure,
        until: Time,
        attention: &Attention<'_>,
    ) -> Result<()> {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.extend(groups.iter().flat_map(|group| group.end_threads(over(group))));
        let ended = await_threads(&mut threads, &self.state, until, attention);
        groups.iter().for_each(|group| match until {
            Time::NEVER => group.shut(),
            _ => group.shut_if_idle(),
        });
        ended
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.state.ask(AgentCommand::Quit);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // the thread has no result; a panic was printed
        }
        let _ = self.end_all("its cluster has been freed", Time::NEVER, &Attention::none());
        self.state.program.notices.end();
        self.state.end_trace(Duration::MAX);
        self.registry.kept().handles.clear();
        self.state.free();
        let goes_on = match *self.leaving.get_mut().unwrap_or_else(PoisonError::into_inner) {
            // The others take this node for lost. With recovery it may come back, so the job must go on.
            Leaving::NotYet => self.state.recovery,
            // Nodes that have not left can do without the scheduler.
            Leaving::HasLeft | Leaving::Done => true,
        };
        if let Some(scheduler) = &self.scheduler {
            // After an abort the scheduler stays for as long as it takes to record the abort.
            match goes_on && !self.state.view().epoch.is_aborted() {
                true => scheduler.vanish(),
                false => drop(scheduler.stop()), // it only says how the job has ended
            }
        }
    }
}

fn leave(cluster: &Cluster, deadline: Time, attention: &Attention<'_>) -> Result<()> {
    let (state, registry) = (&cluster.state, &cluster.registry);
    let (begun, limit) = (state.clock.now(), cluster.settings().finalize_timeout);
    let (why, leave) = ("this process has finalized its cluster", handshake::leave());
    let groups = registry.groups();
    tell_last_calls(&groups, state);
    groups.iter().for_each(|group| group.close(over(group, why), &leave));
    // Half of the time is left for the good-bye.
    await_farewell(&groups, state, begun + FAREWELL_WAIT.min(limit / 2), attention)?;
    state.ask(AgentCommand::Brain(Command::Leave));
    let has_left = |view: &mut NodeView| match &view.participation {
        Participation::Ongoing => None,
        Participation::Left(warning) => Some(warning.clone()),
        Participation::Failed(_) | Participation::Ended => Some(None),
    };
    match state.wait_attentively(deadline, attention, has_left)? {
        Some(None) => {}
        Some(Some(warning)) => state.logger.warn(&warning),
        None => state.logger.warn("the scheduler has not said good-bye in time; leaving without"),
    }
    cluster.end_all(why, deadline, attention)?;
    state.end_trace(deadline.since(state.clock.now()));
    state.ask(AgentCommand::Quit);
    Ok(())
}

/// Why a group cannot be used any more, though nothing is wrong with it.
fn over(group: &Group, why: &str) -> Failure {
    let (cause, epoch, group) = (why.to_owned(), group.epoch(), Some(group.id()));
    Failure { status: Status::State, culprit: None, cause, epoch, group, sequence: 0 }
}

/// A process that hosts the scheduler leaves last.
fn await_own_scheduler(cluster: &Cluster, deadline: Time, attention: &Attention<'_>) -> Result<()> {
    let (Some(scheduler), logger) = (&cluster.scheduler, &cluster.state.logger) else { return Ok(()) };
    let left = deadline.since(cluster.state.clock.now());
    match scheduler.wait_for(Some(left), attention)? {
        Some(Ok(())) => {}
        Some(Err(error)) => logger.warn(&format!("the scheduler in this process ended: {error}")),
        None => logger.warn(STILL_SERVING),
    }
    Ok(())
}

#[cfg(all(test, not(loom)))]
#[path = "finalize_test.rs"]
mod tests;
