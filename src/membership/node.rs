//! What the scheduler knows of one node.

use super::contract::{Closed, ConnId};
use super::standing::{Abandonment, Presence};
use crate::error::{Culprit, LastCall};
use crate::types::{Epoch, GroupId, Role, Time, TokenHash};
use crate::wire::{GroupProgress, MessageWait, Register};
use std::time::Duration;

/// How many open suspicions of one node are kept; beyond that the oldest is forgotten.
pub(super) const SUSPICIONS_MAX: usize = 64;

/// How a member's connection came to be gone.
#[derive(Clone, Debug)]
pub(super) struct Detached {
    pub(super) since: Time,
    pub(super) how: Closed,
    pub(super) words: String,
    /// How long until its process is looked at again (own host).
    pub(super) probe_wait: Duration,
}

/// A peer that this node found something wrong with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Suspicion {
    pub(super) peer: u32,
    pub(super) at: Time,
    pub(super) answered: bool,
}

/// The latest witness against a node.
#[derive(Clone, Debug)]
pub(super) struct Witness {
    /// Which peer; none: its launcher.
    pub(super) by: Option<u32>,
    pub(super) at: Time,
    pub(super) evidence: String,
}

/// Its place, once the cluster has formed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) rank: u32,
    pub(super) local_rank: u32,
    pub(super) local_size: u32,
}

/// One worker or server.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) register: Box<Register>,
    /// The rank that its id or its launcher gives it.
    pub(super) explicit_rank: Option<u32>,
    pub(super) place: Option<Place>,
    pub(super) since: Time,
    pub(super) presence: Presence,
    pub(super) conn: Option<ConnId>,
    pub(super) detached: Option<Detached>,
    /// Why it would be called lost, if nobody else were the cause.
    pub(super) confirmed_lost: Option<String>,
    /// Its process was seen to be gone while its connection was open: what it last said may still have to be read.
    pub(super) process_gone: bool,
    /// Its last sign of life.
    pub(super) heard: Time,
    /// When that was sent which it has last shown to have heard, or later: an interval before it showed so, at the earliest.
    pub(super) hearing: Time,
    /// Its newest heartbeat says that it has not heard what was sent before it.
    pub(super) is_deaf: bool,
    /// When its present connection began.
    pub(super) attached: Time,
    pub(super) echoed: u64,
    /// When its last heartbeat came; none yet in this connection.
    pub(super) heartbeat: Option<Time>,
    /// When it was last asked for a heartbeat.
    pub(super) asked: Option<Time>,
    pub(super) suspicions: Vec<Suspicion>,
    pub(super) witness: Option<Witness>,
    /// What its launcher has said of its place.
    pub(super) abandoned: Abandonment,
    /// Which place was given up first in this epoch, also before somebody was started in it after all. Gone with its next sign of
    /// life.
    pub(super) abandoned_as: Option<usize>,
    /// The epoch that it has taken up.
    pub(super) epoch: Epoch,
    /// With recovery: what the token hashes to that lets its next life in.
    pub(super) token: Option<TokenHash>,
    /// It has come back, and waits for the next epoch: the life that had its place in this one.
    pub(super) before: Option<Box<Register>>,
    /// How often it has come back and taken part again.
    pub(super) restarts: u32,
    /// When it was last asked for a sign because another process wants its place.
    pub(super) challenged: Option<Time>,
    /// How far it is in each group, and when it said so. Few groups: searched in order.
    pub(super) progress: Vec<(GroupProgress, Time)>,
    /// For which messages it waits, and when it said so.
    pub(super) waits: Option<Box<(Vec<MessageWait>, Time)>>,
}

impl Node {
    pub(super) fn new(register: Register, explicit_rank: Option<u32>, conn: ConnId, now: Time) -> Node {
        Node {
            register: Box::new(register),
            explicit_rank,
            place: None,
            since: now,
            presence: Presence::Member,
            conn: Some(conn),
            detached: None,
            confirmed_lost: None,
            process_gone: false,
            heard: now,
            hearing: now,
            is_deaf: false,
            attached: now,
            echoed: 0,
            heartbeat: None,
            asked: None,
            suspicions: Vec::new(),
            witness: None,
            abandoned: Abandonment::None,
            abandoned_as: None,
            epoch: super::FIRST_EPOCH,
            token: None,
            before: None,
            restarts: 0,
            challenged: None,
            progress: Vec::new(),
            waits: None,
        }
    }

    /// A new connection stands for it.
    /// It counts as having heard what was sent at `hearing`, but not `now`: else one that hears nothing could put its end off
    /// for ever by coming back.
    pub(super) fn attach(&mut self, conn: ConnId, now: Time, hearing: Time) {
        self.conn = Some(conn);
        self.detached = None;
        self.confirmed_lost = None;
        self.process_gone = false;
        self.heard = now;
        self.hearing = self.hearing.max(hearing);
        self.attached = now;
        self.heartbeat = None;
        self.asked = None;
        self.witness = None;
        self.is_not_abandoned(); // it lives
    }

    /// What was said of its place does not count any more.
    pub(super) fn is_not_abandoned(&mut self) {
        (self.abandoned, self.abandoned_as) = (Abandonment::None, None);
    }

    /// It takes part in this epoch, which begins now: what was said in the one before does not concern it.
    pub(super) fn begin_epoch(&mut self, epoch: Epoch) {
        self.progress.clear();
        self.waits = None;
        self.suspicions.clear();
        self.witness = None;
        self.is_not_abandoned();
        self.token = self.next_token();
        if self.before.take().is_some() {
            self.restarts += 1;
            self.epoch = epoch; // the only one that it ever hears of
        }
    }

    /// What was known of its last life does not concern this one.
    pub(super) fn begin_anew(&mut self, now: Time) {
        (self.hearing, self.attached, self.echoed, self.is_deaf) = (now, now, 0, false);
        (self.heartbeat, self.asked, self.witness) = (None, None, None);
        self.suspicions.clear();
        self.progress.clear();
        self.waits = None;
    }

    /// Whether it can take part in the next epoch, where it waits for it if `inside`. Of one whose launcher has given its
    /// place up that is not known before it is heard later, or lost: the end of its connection may be on its way.
    pub(super) fn is_ready(&self, inside: bool) -> bool {
        let is_there = self.is_member() && self.conn.is_some() && self.confirmed_lost.is_none() && !self.is_abandoned();
        is_there && (inside || self.is_back())
    }

    /// Whether it has come back, and waits for the next epoch; it may be lost once more meanwhile.
    pub(super) fn is_back(&self) -> bool {
        self.before.is_some()
    }

    /// It was a node's before this scheduler was started again, and has not attached since.
    pub(super) fn is_unheard(&self) -> bool {
        self.conn.is_none() && self.epoch == Epoch(0) && !self.is_back()
    }

    /// When it last gave a sign of life, as the end of a sentence; nothing where [`Node::heard_in`] says more.
    pub(super) fn last_heard(&self, now: Time) -> String {
        match self.is_unheard() {
            true => "; not heard since the scheduler was started again".to_owned(),
            false if self.newest_call().is_some() => String::new(),
            false => format!("; last heard {} ago", span(now.since(self.heard))),
        }
    }

    /// The collective in which it was heard last, as the end of a sentence; or after which, where it was in none.
    pub(super) fn heard_in(&self, now: Time) -> String {
        let Some((progress, told)) = self.newest_call() else { return String::new() };
        let place = if is_inside(progress) { "in" } else { "after" };
        let kind = progress.call.map_or_else(|| "collective".to_owned(), |call| call.kind.to_string());
        let (number, group, ago) = (progress.entered, progress.group, now.since(*told).as_secs_f64());
        format!("; last heard {place} {kind} #{number} on {group}, {ago:.1} s before")
    }

    /// The same collective.
    pub(super) fn last_call(&self) -> Option<LastCall> {
        self.newest_call().map(|(progress, _)| LastCall { group: progress.group, sequence: progress.entered })
    }

    /// The newest that it has entered, rather one that it was in.
    fn newest_call(&self) -> Option<&(GroupProgress, Time)> {
        let entered = |(progress, told): &(GroupProgress, Time)| *told - Duration::from_millis(progress.age_ms);
        let known = self.progress.iter().filter(|(progress, _)| progress.entered > 0);
        known.max_by_key(|known| (is_inside(&known.0), entered(known)))
    }

    /// For how long it has not heard the scheduler, by what its heartbeats say.
    pub(super) fn unhearing(&self, now: Time) -> Duration {
        if self.is_deaf {
            now.since(self.hearing)
        } else {
            Duration::ZERO
        }
    }

    /// It has answered what its present connection began with.
    pub(super) fn has_answered(&mut self) {
        self.hearing = self.hearing.max(self.attached);
        self.is_deaf = false;
    }

    /// With recovery: what the token hashes to that lets the life after the present one in.
    pub(super) fn next_token(&self) -> Option<TokenHash> {
        self.register.reentry.as_ref().map(|reentry| reentry.next)
    }

    pub(super) fn role(&self) -> Role {
        self.register.role
    }

    pub(super) fn is_member(&self) -> bool {
        self.presence == Presence::Member
    }

    pub(super) fn culprit(&self) -> Culprit {
        Culprit {
            role: self.register.role,
            rank: self.place.map(|place| place.rank).or(self.explicit_rank),
            node_id: self.register.node_id.clone(),
            host: self.register.host.name.clone(),
            pid: self.register.process.pid,
            last_call: None,
        }
    }

    pub(super) fn progress_in(&self, group: GroupId) -> Option<&(GroupProgress, Time)> {
        self.progress.iter().find(|(progress, _)| progress.group == group)
    }

    /// The scheduler itself stood still for this long: the node is not to be blamed for it. All that its signs of life are
    /// compared with moves as well: nobody has been heard since it was asked, suspected or reported dead, because time was lent.
    pub(super) fn forgive(&mut self, late: Duration, now: Time) {
        let heard = self.heard;
        self.witness.take_if(|witness| witness.is_disproved(heard));
        let signs = [&mut self.heard, &mut self.hearing, &mut self.attached].into_iter();
        let asked = self.challenged.iter_mut().chain(self.abandoned.time());
        let detached = self.detached.iter_mut().map(|detached| &mut detached.since);
        let witness = self.witness.iter_mut().map(|witness| &mut witness.at);
        let suspicions = self.suspicions.iter_mut().map(|suspicion| &mut suspicion.at);
        signs.chain(asked).chain(detached).chain(witness).chain(suspicions).for_each(|at| at.forgive(late, now));
    }

    /// Keeps a suspicion of its own, once per peer.
    pub(super) fn suspect(&mut self, peer: u32, now: Time) {
        self.suspicions.retain(|suspicion| suspicion.peer != peer);
        if self.suspicions.len() == SUSPICIONS_MAX {
            self.suspicions.remove(0);
        }
        self.suspicions.push(Suspicion { peer, at: now, answered: false });
    }
}

fn is_inside(progress: &GroupProgress) -> bool {
    progress.entered > progress.finished
}

/// `node "3" on host b (pid 812)`
pub(super) fn name(register: &Register) -> String {
    format!("node {:?} on host {} (pid {})", register.node_id, register.host.name, register.process.pid)
}

/// `12 ms`, `1.5 s`, `600 s`
pub(super) fn span(span: Duration) -> String {
    match span.as_millis() {
        ms @ 0..=999 => format!("{ms} ms"),
        ms @ 1_000..=9_999 if ms % 1000 >= 100 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        ms => format!("{} s", ms / 1000),
    }
}

/// `1 worker`, `4 workers`
pub(super) fn counted(count: u32, what: impl std::fmt::Display) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
#[path = "last_call_test.rs"]
mod tests;
