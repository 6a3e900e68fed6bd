//! Making groups of a group, and freeing them. The scheduler makes them; here is the wait for its answer, which takes its
//! turn among the parent's collectives, so that who is absent or calls something else is found as it is there.

use super::group::Group;
use super::handle::Seat;
use super::parting::{await_farewell, tell_last_calls};
use super::registry::Registry;
use crate::agent::Command;
use crate::error::{Error, Failure, Result, Status};
use crate::runtime::base::patience::{WAITS_AFTER, WARN_AFTER};
use crate::runtime::collectives::stop::{Running, Stop};
use crate::runtime::links::handshake::leave;
use crate::runtime::state::node_state::{Learnt, ToNode};
use crate::types::{hash, Call, CallKind, GroupId, Time};
use crate::wire::{GroupWish, MakeGroup};
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

/// How long a group that is freed waits for what was sent last to reach its peers.
const DRAIN: Duration = Duration::from_secs(1);

impl Group {
    /// Makes a group of these ranks, in this order; none for a caller who is not among them. All members call it alike.
    pub fn create(&self, ranks: &[i32]) -> Result<Option<Arc<Seat>>> {
        let mut places = HashMap::new();
        let mut checked = Vec::with_capacity(ranks.len().min(self.size() as usize)); // more are none twice
        for (at, rank) in ranks.iter().enumerate() {
            let fits = u32::try_from(*rank).ok().filter(|rank| *rank < self.size());
            let rank = fits.ok_or_else(|| {
                let last = i64::from(self.size()) - 1;
                Error::invalid(format!("ranks[{at}] is {rank}: expected 0 to {last} on {}", self.id()))
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
        self.make(call, GroupWish::Ranks(checked))
    }

    /// Splits the group: those of one colour are in one, ordered by key and then by rank. No colour: in none.
    pub fn split(&self, colour: Option<u32>, key: i32) -> Result<Option<Arc<Seat>>> {
        let call = Call { kind: CallKind::GroupSplit, dtype: None, op: None, root: None, count: 0, layout: 0 };
        self.make(call, GroupWish::Colour { colour, key })
    }

    fn make(&self, call: Call, wish: GroupWish) -> Result<Option<Arc<Seat>>> {
        let shared = &self.context.shared;
        if self.rank().is_none() {
            return Err(Error::invalid(format!("{}: this process is no member of {}", call.kind, self.id())));
        }
        self.context.begin()?;
        let since = shared.clock.now();
        if self.was_made_before() {
            return self.make_again(&self.collectives.running(call, 0, since), wish);
        }
        let turn = self.collectives.turns.take();
        let made = self.collectives.in_turn(&turn, call, since, |_, running| self.await_making(running, wish));
        self.context.told_by(made)
    }

    /// Whether the others have made the next group already: before this process came back.
    fn was_made_before(&self) -> bool {
        let made =
            self.context.formed().makings.iter().find(|made| made.parent == self.id()).map_or(0, |made| made.count);
        self.makings.load(Ordering::Relaxed) < made
    }

    /// The others take no part in this, so it takes no turn, and its failure revokes nothing.
    fn make_again(&self, running: &Running<'_>, wish: GroupWish) -> Result<Option<Arc<Seat>>> {
        self.await_making(running, wish).map_err(|stop| match stop {
            Stop::Told(failure) => (*failure).into(),
            Stop::Failed(error) => error,
            _ => {
                let (call, id) = (running.call, self.id());
                let cause =
                    format!("the scheduler does not say what {call} on {id} made before this process came back");
                Error::new(Status::Timeout, cause)
            }
        })
    }

    fn await_making(&self, running: &Running<'_>, wish: GroupWish) -> std::result::Result<Option<Arc<Seat>>, Stop> {
        let nth = self.makings.load(Ordering::Relaxed) + 1;
        let (shared, key) = (running.shared, (self.epoch(), self.id(), nth));
        shared.learnt().making.insert(key);
        let (parent, nth, history) = (key.1, key.2, running.data.history);
        let wanted = MakeGroup { parent, nth, sequence: running.sequence, history, wish };
        self.context.ask(Command::MakeGroup(wanted));
        let (mut report_at, mut warn_at) = (running.since + WAITS_AFTER, running.since + WARN_AFTER);
        let outcome = loop {
            let until = running.deadline.min(report_at).min(warn_at);
            let told = |learnt: &mut Learnt| {
                // What is made is made, whatever came after: to the others it is.
                if let Some(made) = learnt.made.remove(&key) {
                    return Some(made.map_err(Stop::Failed));
                }
                // Another thread may have cancelled a call on the group, freed it, or left.
                if let Some(failure) = self.context.first_cause(learnt) {
                    return Some(Err(Stop::Told(Box::new(failure))));
                }
                learnt.over.then(|| {
                    let over = Error::new(Status::State, "this process has left its cluster");
                    Err(Stop::Failed(over))
                })
            };
            if let Some(outcome) = shared.wait(until, told) {
                break outcome;
            }
            let now = shared.clock.now();
            if now >= running.deadline {
                break Err(Stop::Timeout(None));
            }
            if now >= report_at {
                report_at = Time::NEVER;
                shared.ask(ToNode::Brain(Command::Report));
            }
            if now >= warn_at {
                warn_at = Time::NEVER;
                self.collectives.warn_of_absent(running);
            }
        };
        let late = {
            let mut learnt = shared.learnt();
            learnt.making.remove(&key);
            learnt.made.remove(&key)
        };
        let seat = |id: GroupId| self.registry.upgrade().and_then(|registry| registry.seat(id));
        if let Some(seat) = late.and_then(Result::ok).flatten().and_then(seat) {
            seat.present().free(); // it came when the wait was over
        }
        outcome.map(|made| made.and_then(seat))
    }

    /// So many groups have been made of this one.
    pub(crate) fn has_made(&self, nth: u64) {
        self.makings.store(nth, Ordering::Relaxed);
    }

    /// Frees a group that was made: its peers are told, and nothing of it is left here.
    pub fn free(self: &Arc<Self>) {
        let cause = format!("this process has freed {}", self.id());
        let (epoch, group) = (self.epoch(), Some(self.id()));
        let over = Failure { status: Status::State, culprit: None, cause, epoch, group, sequence: 0 };
        let shared = &self.context.shared;
        tell_last_calls(std::slice::from_ref(self), shared);
        self.close(over.clone(), &leave());
        self.end_progress(over);
        let Some(registry) = self.registry.upgrade() else { return self.shut() };
        await_farewell(std::slice::from_ref(self), shared, shared.clock.now() + DRAIN);
        self.shut();
        forget(&registry, self);
    }
}

/// Nothing is kept of a group that has been freed, here or at the scheduler.
fn forget(registry: &Registry, group: &Group) {
    let seat = {
        let mut learnt = registry.shared.learnt();
        learnt.causes.forget(group.id());
        let seats = &mut registry.kept().seats;
        let place = seats.iter().position(|kept| kept.id() == group.id());
        place.map(|place| seats.remove(place))
    };
    // A new epoch may have put another into its place meanwhile.
    if let Some(newest) = seat.map(|seat| seat.present()).filter(|newest| newest.epoch() != group.epoch()) {
        let cause = format!("this process has freed {}", group.id());
        let (epoch, id) = (newest.epoch(), Some(group.id()));
        newest.end_progress(Failure { status: Status::State, culprit: None, cause, epoch, group: id, sequence: 0 });
        newest.shut();
    }
    registry.shared.ask(ToNode::Free(group.id()));
}
