//! A call of `muster_recover`: it waits for the next epoch, and clears away what is left of those before. Tested in
//! `recover_test.rs`, and with processes in `ctests/recover.c`.

use super::cluster::Cluster;
use crate::agent::Command;
use crate::error::{Error, Failure, Result, Status};
use crate::runtime::base::interrupts::{in_call, Attention};
use crate::runtime::base::patience::VERDICT_WAIT;
use crate::runtime::groups::group::Group;
use crate::runtime::state::node_state::{AgentCommand, EpochView, NodeView};
use crate::runtime::state::participation::left_error;
use crate::types::{Epoch, Time};
use std::sync::TryLockError;
use std::time::Duration;

/// How long a scheduler that is away may take to come back, if without it a node is lost for good.
const AWAY_WAIT: Duration = Duration::from_secs(1);

impl Cluster {
    /// Waits until every node of the cluster has called this too; then the next epoch has begun. Waits at most so many
    /// milliseconds: `i64::MAX` without limit, -1 the forming time-out. If others do not come, nothing has changed but
    /// that the groups are revoked.
    pub fn recover(&self, timeout_ms: i64) -> Result<()> {
        let begun = self.state.clock.now();
        let deadline = match (timeout_ms, self.settings().forming_timeout) {
            (i64::MAX, _) | (-1, None) => Time::NEVER,
            (-1, Some(limit)) => begun + limit,
            (0.., _) => begun + Duration::from_millis(timeout_ms.unsigned_abs()),
            _ => {
                let expected = "expected -1 (the forming time-out), 0 or more";
                return Err(Error::invalid(format!("timeout_ms is {timeout_ms}: {expected}")));
            }
        };
        let mut newest = match self.recovering.try_lock() {
            Ok(newest) => newest,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return Err(Error::new(Status::State, "recover: another thread of this process is in it already"));
            }
        };
        // An earlier call that gave up may have led to a new epoch: then this call returns that epoch, and asks for no
        // other.
        let attention = self.state.program.interrupts.attention();
        let outcome = self.await_epoch_after(*newest, deadline, &attention);
        if outcome.is_ok() {
            let view = self.state.view(); // so that no epoch begins meanwhile
            self.registry.show();
            *newest = view.epoch.formed.as_ref().map_or(*newest, |formed| formed.epoch);
        }
        self.end_retired(deadline.min(self.state.clock.now() + VERDICT_WAIT), &attention);
        outcome
    }

    fn await_epoch_after(&self, old: Epoch, deadline: Time, attention: &Attention<'_>) -> Result<()> {
        let state = &self.state;
        state.view().not_recovered = None;
        state.ask(AgentCommand::Of(old, Command::Recover(true)));
        let interrupted = match self.outcome_until(old, deadline, attention) {
            Ok(Some(outcome)) => return outcome,
            Ok(None) => None,
            Err(why) => Some(in_call("recover", &why)),
        };
        state.ask(AgentCommand::Of(old, Command::Recover(false)));
        let confirmed = state.wait(state.clock.now() + VERDICT_WAIT, |view| outcome(view, old, state.recovery));
        if let Some(error) = interrupted.filter(|_| !matches!(confirmed, Some(Ok(())))) {
            return Err(error);
        }
        confirmed.unwrap_or_else(|| {
            if let Some(first) = self.lost_for_good() {
                return Err(first.into());
            }
            let away = state.view().away.as_ref().map(|reason| format!(": it is away ({reason})"));
            let waited = "the next epoch was not complete in time, and the scheduler does not say who is awaited";
            Err(Error::new(Status::Timeout, format!("recover: {waited}{}", away.unwrap_or_default())))
        })
    }

    /// The outcome of the wish for an epoch after this one, as soon as it is known.
    fn outcome_until(&self, old: Epoch, deadline: Time, attention: &Attention<'_>) -> Result<Option<Result<()>>> {
        let state = &self.state;
        loop {
            let was_away = state.view().away.is_some();
            let until = if state.recovery { deadline } else { deadline.min(state.clock.now() + AWAY_WAIT) };
            let known = state.wait_attentively(until, attention, |view| {
                // An earlier call that gave up has caused this time-out, so it is no answer to this call.
                view.not_recovered.take_if(|failure| failure.status == Status::Timeout);
                outcome(view, old, state.recovery)
            })?;
            if known.is_some() || until == deadline {
                return Ok(known);
            }
            if let Some(first) = self.lost_for_good().filter(|_| was_away) {
                state.ask(AgentCommand::Of(old, Command::Recover(false)));
                return Ok(Some(Err(first.into())));
            }
        }
    }

    /// The first cause, if a node is lost, there is no recovery, and the scheduler is away: then nobody else says that
    /// the job is over.
    fn lost_for_good(&self) -> Option<Failure> {
        let is_away = self.state.view().away.is_some() && !self.state.recovery;
        let groups = if is_away { self.registry.groups() } else { Vec::new() };
        let mut causes = groups.iter().filter_map(|group| group.context.told());
        causes.find(|first| matches!(first.status, Status::PeerLost | Status::Fenced))
    }

    /// Ends the threads and the links of groups whose epoch is over. A user's function may hold some of them for longer.
    fn end_retired(&self, until: Time, attention: &Attention<'_>) {
        let over = |group: &Group| {
            let (status, cause, group_id) = (Status::Revoked, "its epoch has ended".to_owned(), Some(group.id()));
            Failure { status, culprit: None, cause, epoch: group.epoch(), group: group_id, sequence: 0 }
        };
        // An interruption ends the wait. The epoch has begun all the same, or the call has failed already.
        let _ = self.end_groups(self.registry.take_retired(), over, until, attention);
    }
}

/// The outcome of the wish for an epoch after this one, as soon as it is known.
fn outcome(view: &mut NodeView, old: Epoch, recovery: bool) -> Option<Result<()>> {
    if view.epoch.formed.as_ref().is_some_and(|formed| formed.epoch > old) {
        return Some(Ok(()));
    }
    let lost = if recovery { None } else { loss(&view.epoch) };
    let broken = lost.or_else(|| view.epoch.causes.of_job().cloned());
    if let Some(failure) = broken.or_else(|| view.not_recovered.take()) {
        return Some(Err(failure.into()));
    }
    let left = || Error::new(Status::State, format!("recover: {}", left_error().message()));
    view.participation.is_over().then(|| Err(left()))
}

/// Why a cluster without recovery cannot be made whole again. The first cause may be the end of a group, which the
/// group's own calls tell. It does not say that a node is lost. So this call tells the loss.
fn loss(epoch: &EpochView) -> Option<Failure> {
    let first = epoch.broken.clone()?;
    let lost = epoch.formed.as_ref().zip(epoch.lost.first()).filter(|_| !is_for_good(first.status));
    let Some((formed, index)) = lost else { return Some(first) };
    let culprit = formed.members.find(*index).map(|member| member.culprit());
    let name = if culprit.is_some() { String::new() } else { format!("node {index} ") };
    let cause = format!("{name}is lost, and without recovery it does not come back; the first cause was: {first}");
    let failure = Failure { status: Status::PeerLost, culprit, cause, epoch: first.epoch, group: None, sequence: 0 };
    Some(if *index == formed.index { failure.to_the_lost() } else { failure })
}

/// Whether a failure of this status says by itself that there is no next epoch.
fn is_for_good(status: Status) -> bool {
    matches!(status, Status::PeerLost | Status::PeerLeft | Status::Fenced | Status::Aborted)
}

#[cfg(all(test, not(loom)))]
#[path = "recover_test.rs"]
mod tests;
