//! What the caller has told or asked the scheduler and that is not answered yet. All of it is sent again after a
//! re-attachment; the scheduler takes each of these twice without harm.

use super::contract::{Ask, Event};
use crate::error::{Error, Failure, Status};
use crate::types::{Epoch, GroupId};
use crate::wire::{
    Abort, Absent, FreeGroup, GroupMade, Locate, MadeByMembers, MakeByMembers, MakeGroup, Member, Message, Recover,
    Revoke, Suspect, WhereAre,
};
use std::collections::{BTreeMap, BTreeSet};

/// How many questions of one kind are remembered; beyond, the oldest is forgotten. A call asks one at a time, so this is
/// far more than the calls that can be waiting.
pub(super) const QUESTIONS_MAX: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Asks {
    suspects: BTreeMap<u32, String>,
    revokes: BTreeMap<Option<GroupId>, Failure>,
    revoked: BTreeMap<Option<GroupId>, Failure>,
    where_are: BTreeMap<Ask, (GroupId, u64, Option<u32>)>,
    locates: BTreeMap<Ask, u32>,
    creations: BTreeMap<(GroupId, u64), MakeGroup>,
    by_members: BTreeMap<Ask, MakeByMembers>,
    /// Groups that are freed, where the scheduler has not yet confirmed that the free is durable. There are never more than the
    /// groups that this node had at one time: answers come in the order in which they are durable, so no other group is made
    /// before the confirmation.
    freed: BTreeSet<GroupId>,
    abort: Option<Abort>,
    recover: Option<Recover>,
    /// Why there will be no next epoch, as the present scheduler says.
    no_next_epoch: Option<Failure>,
}

impl Asks {
    pub(super) fn suspect(&mut self, peer: u32, evidence: String) -> Message {
        self.suspects.insert(peer, evidence.clone());
        Message::Suspect(Suspect { peer, evidence })
    }

    /// The suspected nodes whose fate nobody has told yet.
    pub(super) fn suspects(&self) -> Vec<(u32, String)> {
        self.suspects.iter().map(|(peer, evidence)| (*peer, evidence.clone())).collect()
    }

    /// Whether a caller waits for the next epoch, and so for every node.
    pub(super) fn needs_all(&self) -> bool {
        self.recover.as_ref().is_some_and(|wish| wish.inside)
    }

    /// A report on a suspect came. Returns whether it was asked for.
    pub(super) fn reported(&mut self, peer: u32) -> bool {
        self.suspects.remove(&peer).is_some()
    }

    /// The event that tells that this group is revoked, if that is known already.
    pub(super) fn known(&self, group: Option<GroupId>) -> Option<Event> {
        self.revoked.get(&group).map(|first| Event::Revoked(first.clone()))
    }

    /// The first causes of all groups that are known to be revoked.
    pub(super) fn all_revoked(&self) -> Vec<Failure> {
        self.revoked.values().cloned().collect()
    }

    pub(super) fn revoke(&mut self, failure: Failure) -> Message {
        self.revokes.entry(failure.group).or_insert_with(|| failure.clone());
        Message::Revoke(Revoke { failure })
    }

    /// A group is revoked. Returns what to tell, unless it is known, or this program has freed the group.
    pub(super) fn revoked(&mut self, failure: Failure) -> Option<Event> {
        self.revokes.remove(&failure.group);
        // What was still to be made of that group will not be made.
        self.creations.retain(|(parent, _), _| Some(*parent) != failure.group);
        // A group that this program has freed is none of its groups any more. The word of its end was on its way.
        let is_freed = failure.group.is_some_and(|group| self.freed.contains(&group));
        if is_freed || self.revoked.contains_key(&failure.group) {
            return None;
        }
        self.revoked.insert(failure.group, failure.clone());
        Some(Event::Revoked(failure))
    }

    pub(super) fn where_are(&mut self, ask: Ask, group: GroupId, sequence: u64, about: Option<u32>) -> Message {
        self.where_are.insert(ask, (group, sequence, about));
        forget_oldest(&mut self.where_are);
        Message::WhereAre(WhereAre { query: ask, group, sequence, about })
    }

    pub(super) fn absent(&mut self, absent: Absent) -> Option<Event> {
        self.where_are.remove(&absent.query).map(|_| Event::Absent(absent.query, absent))
    }

    pub(super) fn locate(&mut self, ask: Ask, index: u32) -> Message {
        self.locates.insert(ask, index);
        forget_oldest(&mut self.locates);
        Message::Locate(Locate { index })
    }

    /// One answer serves all who asked for that index.
    pub(super) fn located(&mut self, member: &Member) -> Vec<Event> {
        let asks: Vec<Ask> =
            self.locates.iter().filter(|(_, index)| **index == member.index).map(|(ask, _)| *ask).collect();
        asks.iter().for_each(|ask| {
            self.locates.remove(ask);
        });
        asks.into_iter().map(|ask| Event::Located(ask, member.clone())).collect()
    }

    pub(super) fn make_group(&mut self, wanted: MakeGroup) -> Message {
        self.creations.insert((wanted.parent, wanted.nth), wanted.clone());
        Message::MakeGroup(wanted)
    }

    /// A group is made. Returns what to tell, once for each that was asked for.
    pub(super) fn made(&mut self, made: GroupMade) -> Option<Event> {
        self.creations.remove(&(made.parent, made.nth)).map(|_| Event::GroupMade(made))
    }

    /// A group that members make alone is wanted, or not any more. Returns the message; none if the question was
    /// answered already and nobody waits.
    pub(super) fn make_by_members(&mut self, wanted: MakeByMembers) -> Option<Message> {
        if !wanted.wants && !self.by_members.contains_key(&wanted.ask) {
            return None;
        }
        self.by_members.insert(wanted.ask, wanted.clone());
        Some(Message::MakeByMembers(wanted))
    }

    /// The scheduler's answer about a group that its members make. Returns what to tell, once for each that was asked
    /// for.
    pub(super) fn made_by_members(&mut self, made: MadeByMembers) -> Option<Event> {
        let wanted = self.by_members.remove(&made.ask)?;
        let why_not =
            || made.failure.map_or_else(|| Error::new(Status::Internal, "no group, and no reason"), Error::from);
        Some(Event::MadeByMembers(wanted, made.group.ok_or_else(why_not)))
    }

    /// Whether a group is to be made.
    pub(super) fn makes_groups(&self) -> bool {
        !self.creations.is_empty() || !self.by_members.is_empty()
    }

    /// Nobody makes groups any more: each that was asked for fails with this error.
    pub(super) fn make_no_groups(&mut self, error: &Error) -> Vec<Event> {
        let (creations, by_members) = (std::mem::take(&mut self.creations), std::mem::take(&mut self.by_members));
        let not_made = creations.into_keys().map(|(parent, nth)| Event::NotMade(parent, nth, error.clone()));
        let alone = by_members.into_values().map(|wanted| Event::MadeByMembers(wanted, Err(error.clone())));
        not_made.chain(alone).collect()
    }

    pub(super) fn free_group(&mut self, group: GroupId) -> Message {
        self.revoked.remove(&Some(group));
        self.revokes.remove(&Some(group));
        self.freed.insert(group);
        Message::FreeGroup(FreeGroup { group })
    }

    #[cfg(test)]
    pub(super) fn is_done_with(&self, group: GroupId) -> bool {
        !self.freed.contains(&group)
    }

    /// The scheduler confirms that the free of this group is durable.
    pub(super) fn freed(&mut self, group: GroupId) {
        self.freed.remove(&group);
    }

    pub(super) fn recover(&mut self, epoch: Epoch, inside: bool) -> Message {
        let wish = Recover { epoch, inside };
        self.recover = Some(wish.clone());
        Message::Recover(wish)
    }

    /// There will be no next epoch. Returns what to tell the caller, unless this is the late answer to a caller that
    /// had stopped waiting. It is kept for a caller that asks later, when the scheduler may be gone.
    pub(super) fn not_recovered(&mut self, failure: Failure) -> Option<Event> {
        let late = failure.status == Status::Timeout;
        self.no_next_epoch = (!late).then(|| failure.clone()).or(self.no_next_epoch.take());
        self.recover.take_if(|wish| !(wish.inside && late))?;
        Some(Event::NotRecovered(failure))
    }

    /// Why there will be no next epoch, if that is known.
    pub(super) fn no_next_epoch(&self) -> Option<Failure> {
        self.no_next_epoch.clone()
    }

    /// Forgets the reason: a scheduler that was started again may know better.
    pub(super) fn forget_that_there_is_no_next_epoch(&mut self) {
        self.no_next_epoch = None;
    }

    /// There will be no epoch for this node any more. Returns what to tell, if it waits for one.
    pub(super) fn recovers_in_vain(&mut self, failure: &Failure) -> Option<Event> {
        self.recover.take().filter(|wish| wish.inside).map(|_| Event::NotRecovered(failure.clone()))
    }

    /// A new epoch: what was asked in the one before is not asked any more.
    pub(super) fn renew(&mut self) {
        let freed = std::mem::take(&mut self.freed);
        *self = Asks { freed, abort: self.abort.take(), locates: std::mem::take(&mut self.locates), ..Asks::default() };
    }

    pub(super) fn abort(&mut self, code: i32, reason: String) -> Message {
        let abort = self.abort.get_or_insert(Abort { code, reason });
        Message::Abort(abort.clone())
    }

    /// The cluster is broken. That answers suspicions, revocations and an abort alike. If the cluster can recover, it
    /// answers neither the wish for the next epoch nor an abort.
    pub(super) fn broken(&mut self, recovery: bool) {
        self.suspects.clear();
        self.revokes.clear();
        self.creations.clear();
        self.by_members.clear();
        self.recover.take_if(|_| !recovery);
        self.abort.take_if(|_| !recovery);
    }

    /// Everything not yet answered, to send on a new connection.
    pub(super) fn again(&self) -> Vec<Message> {
        let freed = self.freed.iter().map(|group| Message::FreeGroup(FreeGroup { group: *group }));
        let suspects = self
            .suspects
            .iter()
            .map(|(peer, evidence)| Message::Suspect(Suspect { peer: *peer, evidence: evidence.clone() }));
        let revokes = self.revokes.values().map(|failure| Message::Revoke(Revoke { failure: failure.clone() }));
        let abort = self.abort.iter().map(|abort| Message::Abort(abort.clone()));
        let where_are = self.where_are.iter().map(|(ask, (group, sequence, about))| {
            Message::WhereAre(WhereAre { query: *ask, group: *group, sequence: *sequence, about: *about })
        });
        let locates = self.locates.values().map(|index| Message::Locate(Locate { index: *index }));
        let creations = self.creations.values().map(|wanted| Message::MakeGroup(wanted.clone()));
        let by_members = self.by_members.values().map(|wanted| Message::MakeByMembers(wanted.clone()));
        let recover = self.recover.iter().map(|wish| Message::Recover(wish.clone()));
        abort
            .chain(suspects)
            .chain(revokes)
            .chain(where_are)
            .chain(locates)
            .chain(creations)
            .chain(by_members)
            .chain(freed)
            .chain(recover)
            .collect()
    }
}

fn forget_oldest<T>(questions: &mut BTreeMap<Ask, T>) {
    if questions.len() > QUESTIONS_MAX {
        questions.pop_first();
    }
}
