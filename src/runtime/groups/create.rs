//! Makes groups of a group, and frees them. The scheduler makes them, and this file waits for its answer. The wait
//! takes a turn among the parent's collectives, so that a member that is absent, or calls something else, is found as
//! in any collective.

use super::group::Group;
use super::handle::GroupHandle;
use super::parting::{await_farewell, tell_last_calls};
use super::registry::Registry;
use crate::agent::Command;
use crate::error::{Error, Failure, Result, Status};
use crate::runtime::base::interrupts::{in_call, Attention};
use crate::runtime::base::patience::WARN_AFTER;
use crate::runtime::collectives::stop::{Running, Stop};
use crate::runtime::links::handshake::leave;
use crate::runtime::state::node_state::{AgentCommand, NodeView};
use crate::runtime::state::participation::left_error;
use crate::types::{hash, Call, CallKind, Time};
use crate::wire::{GroupWish, MakeGroup, WAITS_AFTER};
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

/// How long a group that is freed waits for what was sent last to reach its peers.
const DRAIN: Duration = Duration::from_secs(1);

impl Registry {
    /// Makes a group of these ranks, in this order; none for a caller that is not among them. All members make the same
    /// call.
    pub fn create(&self, group: &Group, ranks: &[i32]) -> Result<Option<Arc<GroupHandle>>> {
        let mut places = HashMap::new();
        let mut checked = Vec::with_capacity(ranks.len().min(group.size() as usize)); // a longer list names a rank twice
        for (at, rank) in ranks.iter().enumerate() {
            let fits = u32::try_from(*rank).ok().filter(|rank| *rank < group.size());
            let rank = fits.ok_or_else(|| {
                let last = i64::from(group.size()) - 1;
                Error::invalid(format!("ranks[{at}] is {rank}: expected 0 to {last} on {}", group.id()))
            })?;
            if let Some(first) = places.insert(rank, at) {
                return Err(Error::invalid(format!(
                    "ranks[{at}] is {rank}, as is ranks[{first}]: expected each rank once"
                )));
            }
            checked.push(rank);
        }
        let (count, layout) = (checked.len() as u64, hash(checked.iter().map(|rank| u64::from(*rank))));
        let call = Call { kind: CallKind::GroupCreate, dtype: None, op: None, root: None, count, layout };
        self.make(group, call, GroupWish::Ranks(checked))
    }

    /// Splits the group: members of one colour get one group, ordered by key and then by rank. A member without a
    /// colour gets none.
    pub fn split(&self, group: &Group, colour: Option<u32>, key: i32) -> Result<Option<Arc<GroupHandle>>> {
        let call = Call { kind: CallKind::GroupSplit, dtype: None, op: None, root: None, count: 0, layout: 0 };
        self.make(group, call, GroupWish::Colour { colour, key })
    }

    fn make(&self, group: &Group, call: Call, wish: GroupWish) -> Result<Option<Arc<GroupHandle>>> {
        let state = &group.context.state;
        if group.rank().is_none() {
            return Err(Error::invalid(format!("{}: this process is no member of {}", call.kind, group.id())));
        }
        group.context.begin()?;
        let (time, attention) = (group.context.time_limit(), state.program.interrupts.attention());
        if was_made_before(group) {
            let running = group.collectives.running(call, 0, time, &attention);
            let outcome = match group.remaking.begin(|| state.clock.until(running.deadline), &attention) {
                Ok(Some(_remaker)) if was_made_before(group) => {
                    Some(self.await_creation(group, &running, wish.clone(), state.clock.now()))
                }
                Ok(Some(_)) => None, // the threads before this one have made all again
                Ok(None) => Some(Err(Stop::Timeout(None))),
                Err(why) => Some(Err(Stop::Interrupted(why))),
            };
            if let Some(outcome) = outcome {
                return outcome.map_err(|stop| not_made_again(group, call, stop));
            }
        }
        let turn = group.collectives.turns.take(Some((call, time.since)));
        let made = group.collectives.in_turn(&turn, (call, 0), (time, &attention), |exclusive, running| {
            self.await_creation(group, running, wish, exclusive.driver.begun)
        });
        group.context.told_by(made)
    }

    fn await_creation(
        &self,
        group: &Group,
        running: &Running<'_>,
        wish: GroupWish,
        begun: Time,
    ) -> std::result::Result<Option<Arc<GroupHandle>>, Stop> {
        let nth = group.creations.load(Ordering::Relaxed) + 1;
        let (state, key) = (&running.context.state, (group.epoch(), group.id(), nth));
        state.view().creating.insert(key);
        let (parent, nth, digest) = (key.1, key.2, running.data.digest);
        let wanted = MakeGroup { parent, nth, sequence: running.sequence, digest, wish };
        group.context.ask(Command::MakeGroup(wanted));
        let (mut report_at, mut warn_at) = (begun + WAITS_AFTER, begun + WARN_AFTER);
        let outcome = loop {
            let until = running.deadline.min(report_at).min(warn_at);
            let told = |view: &mut NodeView| {
                // Once the scheduler has made a group, this returns it, whatever happened since: the other members have
                // it.
                if let Some(made) = view.made.remove(&key) {
                    return Some(made.map_err(Stop::Failed));
                }
                // Another thread may have cancelled a call on the group, freed it, or left.
                if let Some(failure) = group.context.first_cause(view) {
                    return Some(Err(Stop::Told(Box::new(failure))));
                }
                view.participation.is_over().then(|| Err(Stop::Failed(left_error())))
            };
            match state.wait_attentively(until, running.attention, told) {
                Ok(Some(outcome)) => break outcome,
                Ok(None) => {}
                Err(why) => break Err(Stop::Interrupted(why)),
            }
            let now = state.clock.now();
            if now >= running.deadline {
                break Err(Stop::Timeout(None));
            }
            if now >= report_at {
                report_at = Time::NEVER;
                state.ask(AgentCommand::Brain(Command::Report));
            }
            if now >= warn_at {
                warn_at = Time::NEVER;
                running.warn_of_absent();
            }
        };
        let late = {
            let mut view = state.view();
            view.creating.remove(&key);
            view.made.remove(&key)
        };
        if let Some(handle) = late.and_then(Result::ok).flatten().and_then(|id| self.handle(id)) {
            self.free(&handle.newest()); // it was made after this wait had ended
        }
        let gone = || Stop::Failed(left_error());
        outcome?.map(|id| self.handle(id).ok_or_else(gone)).transpose()
    }

    /// Frees a group that was made: its peers are told, and nothing of it is left here.
    pub fn free(&self, group: &Arc<Group>) {
        let cause = format!("this process has freed {}", group.id());
        let (epoch, id) = (group.epoch(), Some(group.id()));
        let over = Failure { status: Status::State, culprit: None, cause, epoch, group: id, sequence: 0 };
        let state = &group.context.state;
        tell_last_calls(std::slice::from_ref(group), state);
        group.close(over.clone(), &leave());
        group.end_progress(over);
        let until = state.clock.now() + DRAIN;
        let _ = await_farewell(std::slice::from_ref(group), state, until, &Attention::none());
        group.shut();
        self.forget(group);
    }

    /// Forgets a group that has been freed: nothing of it is kept, here or at the scheduler.
    fn forget(&self, group: &Group) {
        let handle = {
            self.state.learn(|view| view.epoch.causes.forget(group.id()));
            let handles = &mut self.kept().handles;
            let place = handles.iter().position(|kept| kept.id() == group.id());
            place.map(|place| handles.remove(place))
        };
        // A new epoch may have put another group into its place meanwhile.
        if let Some(newest) = handle.map(|handle| handle.newest()).filter(|newest| newest.epoch() != group.epoch()) {
            let cause = format!("this process has freed {}", group.id());
            let (epoch, id) = (newest.epoch(), Some(group.id()));
            newest.end_progress(Failure { status: Status::State, culprit: None, cause, epoch, group: id, sequence: 0 });
            newest.shut();
        }
        self.state.ask(AgentCommand::Free(group.id()));
    }
}

/// The error of a call that makes a group which the other members have made already. The others take no part in the call. So it
/// takes no turn among the collectives, and its failure revokes nothing.
fn not_made_again(group: &Group, call: Call, stop: Stop) -> Error {
    match stop {
        Stop::Told(failure) => (*failure).into(),
        Stop::Failed(error) => error,
        Stop::Interrupted(why) => in_call(&format!("{} on {}", call.kind, group.id()), &why),
        _ => {
            let id = group.id();
            let cause = format!("the scheduler does not say what {call} on {id} made before this process came back");
            Error::new(Status::Timeout, cause)
        }
    }
}

/// Whether the others had made the next group already before this process came back.
fn was_made_before(group: &Group) -> bool {
    let made =
        group.context.formed().creations.iter().find(|made| made.parent == group.id()).map_or(0, |made| made.count);
    group.creations.load(Ordering::Relaxed) < made
}
