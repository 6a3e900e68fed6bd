//! How a lost node comes back (with recovery): who may take its place, and when. Tested in `returning_test.rs`.
//!
//! A place is known by the node's id, or by the rank that a launcher gives. Its token lets a node in at once if its last
//! life is over; without one it waits until [`WITHOUT_TOKEN`] after the loss, the rule that users of MindSpore know. Where
//! the last life may still live it is asked for a sign: it answers, and the newcomer is refused by name; it does not, and
//! its silence makes it lost. Whoever has to wait is told so, goes, and registers again.
//!
//! Invariant: of a place one life at most is a member; one that was replaced is fenced for good.

use super::admission::{refused, Refusal};
use super::contract::{Closed, ConnId, Output};
use super::node::{name, span};
use super::ranks::canonical;
use super::standing::Presence;
use super::Scheduler;
use crate::error::Status;
use crate::types::{Epoch, Role, Time, TokenHash};
use crate::wire::{Message, NotYet, Register, Rejected};
use std::time::Duration;

/// How long after its loss a node without its token has to wait.
pub(super) const WITHOUT_TOKEN: Duration = Duration::from_secs(30);
/// How soon one registers again who waits for its last life to be judged.
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// How long a sign of life counts that its last life was asked for.
const CHALLENGE: Duration = Duration::from_secs(1);

/// For how long a newcomer has to wait, why, and whether that is so long that somebody should know.
pub(super) struct Wait {
    time: Duration,
    reason: String,
    long: bool,
}

impl Scheduler {
    /// A life that is not known registers with a cluster that is complete: perhaps it has a place there.
    pub(super) fn come_back(&mut self, now: Time, conn: ConnId, register: Register) -> Result<(), Refusal> {
        let rank = self.check_newcomer(&register)?;
        let Some(key) = self.place_of(&register, rank)? else {
            self.check_id(now, &register)?;
            return self.check_complete(now, &register);
        };
        if let Some(node) = self.nodes.get_mut(&key) {
            node.abandoned.forget_earlier(); // somebody was started in this place
        }
        match self.entry(now, key, &register)? {
            None => self.take_back(now, conn, key, register),
            Some(wait) => self.let_wait(conn, wait),
        }
        Ok(())
    }

    /// A newcomer is told when to register again, and let go.
    pub(super) fn let_wait(&mut self, conn: ConnId, Wait { time, reason, long }: Wait) {
        match long {
            true => self.warn(format!("not yet: {reason}")),
            false => self.note(format!("not yet: {reason}")),
        }
        let wait_ms = time.as_millis() as u64;
        self.send(conn, Message::NotYet(NotYet { wait_ms, reason, long }));
        self.drop_connection(conn);
    }

    /// With recovery, while the cluster forms: who has this newcomer's name and role.
    pub(super) fn last_life_of(&self, register: &Register) -> Option<u32> {
        let key =
            *self.by_id.get(canonical(&register.node_id)).filter(|_| self.rules.recovery && !self.job.is_complete())?;
        let is_it = |held: &Register| (held.role, &held.node_id) == (register.role, &register.node_id);
        self.nodes.get(&key).filter(|node| is_it(&node.register)).map(|_| key)
    }

    /// Whose place a newcomer has a claim to.
    fn place_of(&self, register: &Register, rank: Option<u32>) -> Result<Option<u32>, Refusal> {
        let by_id = register.node_id_given.then(|| self.by_id.get(canonical(&register.node_id)).copied()).flatten();
        let by_rank = rank.map(|rank| if register.role == Role::Server { self.rules.worker_num + rank } else { rank });
        let Some(key) = by_id.or(by_rank) else { return Ok(None) };
        let Some(holder) = self.nodes.get(&key) else { return Ok(None) };
        if holder.role() != register.role || by_rank.is_some_and(|by_rank| by_rank != key) {
            let (newcomer, held) = (name(register), holder.culprit());
            let (role, wanted) = (register.role, rank.map_or(String::new(), |rank| format!(" of rank {rank}")));
            refused(format!("{newcomer} registers as a {role}{wanted}, but its node id is that of {held}"))?;
        }
        Ok(Some(key))
    }

    /// Whether this newcomer may have this place now, or has to wait.
    fn entry(&mut self, now: Time, key: u32, register: &Register) -> Result<Option<Wait>, Refusal> {
        let node = &self.nodes[&key];
        match node.presence {
            Presence::Left if !self.job.is_abandoned() => {
                self.check_id(now, register)?;
                self.check_complete(now, register).map(|()| None)
            }
            Presence::Member => self.challenge(now, key, register).map(Some),
            Presence::Left | Presence::Lost { .. } => {
                if let Some(failure) = self.cannot_recover() {
                    return Err((failure.status, format!("{} comes back in vain: {failure}", name(register))));
                }
                let tokens = register.reentry.iter().flat_map(|reentry| &reentry.tokens);
                let known = node.token.is_some_and(|hash| tokens.into_iter().any(|token| TokenHash::of(token) == hash));
                let lost = node.presence.lost_since().map_or(Duration::ZERO, |since| now.since(since));
                if known || lost >= WITHOUT_TOKEN {
                    return Ok(None);
                }
                let time = WITHOUT_TOKEN - lost;
                let (newcomer, place, rule) = (name(register), node.culprit(), span(WITHOUT_TOKEN));
                let reason = format!(
                    "{newcomer} does not have the token of {place}, so it is let in {rule} after the loss of that: in {}",
                    span(time)
                );
                Ok(Some(Wait { time, reason, long: true }))
            }
        }
    }

    /// Asks the present life of a node for a sign, and judges by it.
    pub(super) fn challenge(&mut self, now: Time, key: u32, register: &Register) -> Result<Wait, Refusal> {
        let node = self.nodes.get_mut(&key).expect("the caller has found it");
        let asked = node.challenged.filter(|asked| now.since(*asked) < CHALLENGE);
        if asked.is_some_and(|asked| node.conn.is_some() && node.heard > asked) {
            node.challenged = None;
            let (newcomer, held, since) = (name(register), node.culprit(), span(now.since(node.since)));
            refused(format!(
                "{newcomer} wants the place of {held}, which lives: it registered {since} ago and has just answered; \
                 MS_NODE_ID must be unique"
            ))?;
        }
        let node = self.nodes.get_mut(&key).expect("it is still there");
        let reason = format!("{} comes back, but {} may still live: it is asked", name(register), node.culprit());
        if asked.is_none() {
            node.challenged = Some(now);
            self.look_into(now, key);
        }
        Ok(Wait { time: ASK_AGAIN, reason, long: false })
    }

    /// A new life takes a lost node's place; it takes part from the next epoch on.
    fn take_back(&mut self, now: Time, conn: ConnId, key: u32, mut register: Register) {
        register.forget_what_was_checked();
        let Some(node) = self.nodes.get_mut(&key) else { return };
        let away = node.presence.lost_since().map_or(Duration::ZERO, |since| now.since(since));
        let (old_conn, old_life) = (node.conn.take(), node.register.incarnation);
        self.by_id.remove(canonical(&node.register.node_id));
        self.by_id.insert(canonical(&register.node_id).to_string(), key);
        self.by_incarnation.remove(&old_life);
        self.by_incarnation.insert(register.incarnation, key);
        self.fenced.insert(old_life);
        let last = std::mem::replace(&mut *node.register, register);
        node.before.get_or_insert_with(|| Box::new(last));
        node.presence.return_as_member();
        node.challenged = None;
        node.since = now;
        node.epoch = Epoch(0); // it knows of none yet
        node.begin_anew(now);
        node.attach(conn, now, now);
        self.present += 1;
        if let Some(old) = old_conn {
            self.drop_connection(old);
        }
        self.connections.belongs_to(conn, key);
        self.store.gone(key);
        self.groups.uses_again(key);
        let line = format!("{} is back, {} after its loss", self.nodes[&key].culprit(), span(away));
        self.warn(line);
        self.begin_recovery(now);
        self.recover_if_complete(now);
    }

    /// Whether this lost node goes on if it lives: another one was the first to be lost, and nobody has its place.
    pub(super) fn may_go_on(&self, key: u32) -> bool {
        self.job.is_broken() && self.job.is_recoverable() && !self.is_culprit(key) && !self.nodes[&key].is_back()
    }

    /// One that may go on is heard over the connection that it had when it fell silent: it is to register again, so that it learns
    /// what it has missed, and asks anew what was not answered.
    pub(super) fn attaches_anew(&mut self, now: Time, conn: ConnId) {
        self.output(Output::Close(conn));
        self.closed(now, conn, Closed::Ended, "it was lost, and is heard again".to_owned());
    }

    /// A life that is over for the cluster, and does not know it.
    pub(super) fn check_fenced(&self, register: &Register) -> Result<(), Refusal> {
        if !self.fenced.contains(&register.incarnation) {
            return Ok(());
        }
        Err((Status::Fenced, format!("{} was given up, and another process has its place", name(register))))
    }

    /// The time of one is up that waits for the cluster to be whole again.
    pub(super) fn gives_up_returning(&mut self, now: Time, key: u32) {
        let Some(node) = self.nodes.get_mut(&key).filter(|node| node.is_back()) else { return };
        let Some(conn) = node.conn.take() else { return };
        let reason = format!("epoch {} did not begin in time; {}", self.epoch.0 + 1, self.awaited().1);
        self.send(conn, Message::Rejected(Rejected { status: Status::Timeout, reason }));
        self.drop_connection(conn);
        self.confirm_lost(now, key, "is lost: it did not wait any longer for the cluster to be whole again".to_owned());
    }
}

#[cfg(test)]
#[path = "returning_test.rs"]
mod tests;
