//! What the scheduler knows of one node.

use super::contact::Contact;
use super::contract::{Closed, ConnId};
use super::course::Course;
use super::standing::{AbandonedPlace, Attachment, Certainty, Presence, Seat};
use super::timers::HELD;
use crate::error::Culprit;
use crate::types::{Epoch, Role, Time, TokenHash};
use crate::wire::Register;
use std::time::Duration;

/// How many open suspicions of one node are kept; beyond that the oldest is forgotten.
pub(super) const SUSPICIONS_MAX: usize = 64;

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
    /// The peer that is the witness; none: its launcher is.
    pub(super) by: Option<u32>,
    pub(super) at: Time,
    pub(super) evidence: String,
}

impl Witness {
    /// Whether this witness is enough against a node whose connection ended in this way, and that was last heard at
    /// that time.
    pub(super) fn suffices(&self, how: Closed, heard: Time) -> bool {
        !self.is_disproved(heard) && (self.by.is_none() || how == Closed::Ended)
    }

    /// Whether the node was heard so long after this was said that it cannot have ended then. A message that was on its way
    /// at that moment proves nothing.
    pub(super) fn is_disproved(&self, heard: Time) -> bool {
        heard >= self.at + HELD
    }
}

/// Its place, once the cluster has formed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) rank: u32,
    pub(super) local_rank: u32,
    pub(super) local_size: u32,
}

/// What speaks for the loss of a node. A witness may be known however certain the loss is, so it is a field of its own.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    pub(super) witness: Option<Witness>,
    pub(super) certainty: Certainty,
}

/// The lives of a node.
#[derive(Debug, Default)]
pub(super) struct Lives {
    /// With recovery: the hash of the token that lets its next life in.
    pub(super) token: Option<TokenHash>,
    pub(super) seat: Seat,
    /// How often it has come back and taken part again.
    pub(super) restarts: u32,
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
    pub(super) attachment: Attachment,
    pub(super) contact: Contact,
    pub(super) evidence: Evidence,
    pub(super) suspicions: Vec<Suspicion>,
    /// What its launcher has said of its place.
    pub(super) abandoned: AbandonedPlace,
    /// The epoch that it has taken up, if it has. It is the node's own word, and does not follow from the [`Seat`].
    pub(super) epoch: Option<Epoch>,
    pub(super) lives: Lives,
    /// When it was last asked for a sign because another process wants its place.
    pub(super) challenged: Option<Time>,
    pub(super) course: Course,
}

impl Node {
    pub(super) fn new(register: Register, explicit_rank: Option<u32>, conn: ConnId, now: Time) -> Node {
        Node {
            register: Box::new(register),
            explicit_rank,
            place: None,
            since: now,
            presence: Presence::Member,
            attachment: Attachment::Attached(conn),
            contact: Contact::new(now),
            evidence: Evidence::default(),
            suspicions: Vec::new(),
            abandoned: AbandonedPlace::default(),
            epoch: Some(Epoch::FIRST),
            lives: Lives::default(),
            challenged: None,
            course: Course::default(),
        }
    }

    /// Whether the process that registers so is this life of the node.
    pub(super) fn is_the_same(&self, register: &Register) -> bool {
        let held = &self.register;
        (held.incarnation, held.role, &held.node_id) == (register.incarnation, register.role, &register.node_id)
    }

    /// Whether it was asked for a sign because another process wants its place, and has given none since.
    pub(super) fn is_to_answer(&self) -> bool {
        self.challenged.is_some_and(|asked| self.contact.heard <= asked)
    }

    /// Whether its launcher starts nobody in its place, and no sign of life of its own has disproved that.
    pub(super) fn is_abandoned(&self) -> bool {
        self.abandoned.stands(self.contact.heard)
    }

    /// A new connection stands for it. It has heard what was sent at `hearing`: see [`Contact::attach`].
    pub(super) fn attach(&mut self, conn: ConnId, now: Time, hearing: Time) {
        self.attachment.attach(conn);
        self.evidence = Evidence::default();
        self.contact.attach(now, hearing);
        self.abandoned.clear();
    }

    /// It takes part in this epoch, which begins now. What was said in the epoch before does not concern it.
    pub(super) fn begin_epoch(&mut self, epoch: Epoch) {
        self.course = Course::default();
        self.suspicions.clear();
        self.evidence.witness = None;
        self.abandoned.clear();
        self.lives.token = self.next_token();
        if self.lives.seat.begin_epoch() {
            self.lives.restarts += 1;
            self.epoch = Some(epoch); // a life that came back has heard of no epoch before
        }
    }

    /// A new life begins: what was known of the last life does not concern it.
    pub(super) fn begin_anew(&mut self, now: Time) {
        self.contact = Contact::new(now);
        self.evidence.witness = None;
        self.suspicions.clear();
        self.course = Course::default();
    }

    /// Whether it can take part in the next epoch; `inside` says whether it waits for it inside `muster_recover`. If
    /// its launcher has abandoned its place, that is not known before it is heard later, or lost: the end of its
    /// connection may be on its way.
    pub(super) fn is_ready(&self, inside: bool) -> bool {
        self.is_well() && !self.is_abandoned() && (inside || self.is_back())
    }

    /// Whether it has come back, and waits for the next epoch. It may be lost once more meanwhile.
    pub(super) fn is_back(&self) -> bool {
        self.lives.seat.earlier().is_some()
    }

    /// The life that has its place in this epoch.
    pub(super) fn seated(&self) -> &Register {
        self.lives.seat.earlier().unwrap_or(&self.register)
    }

    /// Whether it was a node before this scheduler was started again, has no connection, and has taken up no epoch since.
    /// This is no state of its own: a node that attaches is so once more if its connection ends before it takes one up.
    pub(super) fn is_unheard(&self) -> bool {
        self.conn().is_none() && self.epoch.is_none() && !self.is_back()
    }

    /// When it last gave a sign of life, as the end of a sentence. It is empty where [`Course::heard_in`] says more.
    pub(super) fn last_heard(&self, now: Time) -> String {
        match self.is_unheard() {
            true => "; not heard since the scheduler was started again".to_owned(),
            false if self.course.newest_call().is_some() => String::new(),
            false => format!("; last heard {} ago", span(now.since(self.contact.heard))),
        }
    }

    /// With recovery: the hash of the token that lets in the life after the present one.
    pub(super) fn next_token(&self) -> Option<TokenHash> {
        self.register.reentry.as_ref().map(|reentry| reentry.next)
    }

    pub(super) fn role(&self) -> Role {
        self.register.role
    }

    pub(super) fn is_member(&self) -> bool {
        self.presence == Presence::Member
    }

    /// Whether it takes part in this epoch: no other life waits in its place.
    pub(super) fn takes_part(&self) -> bool {
        self.is_member() && !self.is_back()
    }

    /// The connection that stands for it, if one does.
    pub(super) fn conn(&self) -> Option<ConnId> {
        self.attachment.conn()
    }

    /// Whether its loss is certain.
    pub(super) fn is_confirmed_lost(&self) -> bool {
        self.evidence.certainty.why_lost().is_some()
    }

    /// Whether it is a member that is connected, and is not known to be gone.
    pub(super) fn is_well(&self) -> bool {
        self.is_member() && self.conn().is_some() && !self.is_confirmed_lost()
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

    /// The scheduler itself stood still for this long: the node is not to be blamed for it. All times that are compared
    /// with its signs of life move, too. Otherwise it would seem that a node was heard after it was asked, suspected or
    /// reported dead.
    pub(super) fn forgive(&mut self, late: Duration, now: Time) {
        let heard = self.contact.heard;
        self.evidence.witness.take_if(|witness| witness.is_disproved(heard));
        let asked = self.challenged.iter_mut().chain(self.abandoned.time());
        let detached = self.attachment.detached_mut().map(|detached| &mut detached.since);
        let witness = self.evidence.witness.iter_mut().map(|witness| &mut witness.at);
        let suspicions = self.suspicions.iter_mut().map(|suspicion| &mut suspicion.at);
        let times = self.contact.times().into_iter().chain(asked).chain(detached).chain(witness).chain(suspicions);
        times.for_each(|at| at.forgive(late, now));
    }

    /// Keeps a suspicion that this node has, one for each peer.
    pub(super) fn suspect(&mut self, peer: u32, now: Time) {
        self.suspicions.retain(|suspicion| suspicion.peer != peer);
        if self.suspicions.len() == SUSPICIONS_MAX {
            self.suspicions.remove(0);
        }
        self.suspicions.push(Suspicion { peer, at: now, answered: false });
    }
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
