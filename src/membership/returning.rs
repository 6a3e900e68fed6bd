//! How a lost node comes back (with recovery): which life may take its place, and when. Tested in `returning_test.rs`, and
//! in `returning_forming_test.rs` while the cluster forms.
//!
//! A place is known by the node's id, or by the rank that a launcher gives. A newcomer with the place's token is let in
//! at once if the last life is over. Without the token it waits until [`WITHOUT_TOKEN`] after the loss: users of
//! MindSpore know this rule. Where the last life may still live, it is asked for a sign. If it answers, the newcomer is
//! refused by name. If it does not, its silence makes it lost. A newcomer that has to wait is told so, goes, and
//! registers again.
//!
//! Invariant: at most one life of a place is a member; a life that was replaced is fenced for good.

use super::admission::{refused, Newcomer, Refusal};
use super::cluster_state::ClusterState;
use super::contract::ConnId;
use super::node::{name, span};
use super::promises::Behind;
use super::standing::Presence;
use super::Scheduler;
use crate::strangers::Kind;
use crate::types::{Time, TokenHash};
use crate::wire::{Message, NotYet, Register};
use std::time::Duration;

/// How long after the node's loss a newcomer without its token has to wait.
pub(super) const WITHOUT_TOKEN: Duration = Duration::from_secs(30);
/// How soon a newcomer registers again while its last life is still to be judged.
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// ... and while the reason to refuse it is not durable.
const WRITTEN_SOON: Duration = Duration::from_secs(1);
/// How long a sign of life counts that the last life was asked for.
const CHALLENGE: Duration = Duration::from_secs(1);

/// How long a newcomer has to wait, why, and whether that is so long that somebody should know.
pub(super) struct Wait {
    time: Duration,
    reason: String,
    long: bool,
}

impl Wait {
    /// The wait of a node that cannot come back, while the reason is not durable.
    pub(super) fn for_the_end(cluster: &ClusterState, newcomer: &str) -> Option<Wait> {
        let reason = format!("whether {newcomer} can come back is still being written down");
        let is_held = cluster.out.promises.holds_back(cluster.job.behind_its_end(Behind::Nothing));
        is_held.then_some(Wait { time: WRITTEN_SOON, reason, long: false })
    }
}

const NOT_YET: Kind = Kind { name: "registrations that have to wait", lines: 16 };
const NOT_YET_SOON: Kind = Kind { name: "registrations that have to wait a moment", lines: 16 };

impl Scheduler {
    /// A life that is not known registers with a cluster that is complete: perhaps it has a place there.
    pub(super) fn come_back(&mut self, now: Time, conn: ConnId, register: Register) -> Result<(), Refusal> {
        let newcomer = Newcomer::of(&self.conductor, now, &register);
        let rank = newcomer.check_life()?;
        let Some(key) = newcomer.place_of(rank)? else {
            newcomer.check_id()?;
            return newcomer.check_complete();
        };
        if let Some(node) = self.conductor.cluster.nodes.get_mut(key) {
            node.abandoned.forget_earlier(); // somebody was started in this place
        }
        match self.entry(now, key, &register)? {
            None => self.take_back(now, conn, key, register),
            Some(wait) => self.let_wait(conn, wait),
        }
        Ok(())
    }

    /// Tells a newcomer when to register again, and closes its connection.
    pub(super) fn let_wait(&mut self, conn: ConnId, Wait { time, reason, long }: Wait) {
        let (out, connections) = (&mut self.conductor.cluster.out, &self.conductor.cluster.connections);
        let from = connections.get(conn).map_or("", |known| &known.address);
        let line = format!("not yet: {reason} (it asks from {from})");
        match long {
            true => out.nuisance(NOT_YET, from, &line),
            false => out.quiet_nuisance(NOT_YET_SOON, from, &line),
        }
        let wait_ms = time.as_millis() as u64;
        out.send(conn, Message::NotYet(NotYet { wait_ms, reason, long }));
        self.conductor.cluster.drop_connection(conn);
    }

    /// Whether this newcomer may have this place now, or has to wait.
    fn entry(&mut self, now: Time, key: u32, register: &Register) -> Result<Option<Wait>, Refusal> {
        let (newcomer, node) = (Newcomer::of(&self.conductor, now, register), &self.conductor.cluster.nodes[&key]);
        match node.presence {
            Presence::Left if !self.conductor.cluster.job.is_abandoned() => {
                newcomer.check_id()?;
                newcomer.check_complete().map(|()| None)
            }
            Presence::Member => self.challenge(now, key, register).map(Some),
            Presence::Left | Presence::Lost { .. } => {
                if let Some(failure) = self.conductor.cluster.cannot_recover() {
                    let reason = format!("{} cannot come back: {failure}", name(register));
                    return match Wait::for_the_end(&self.conductor.cluster, &name(register)) {
                        None => Err((failure.status, reason)),
                        wait => Ok(wait),
                    };
                }
                let tokens = register.reentry.iter().flat_map(|reentry| &reentry.tokens);
                let known =
                    node.lives.token.is_some_and(|hash| tokens.into_iter().any(|token| TokenHash::of(token) == hash));
                let lost = node.presence.lost_since().map_or(Duration::ZERO, |since| now.since(since));
                if known || lost >= WITHOUT_TOKEN {
                    return Ok(None);
                }
                let time = WITHOUT_TOKEN - lost;
                let (newcomer, place, rule) = (name(register), node.culprit(), span(WITHOUT_TOKEN));
                let reason = format!(
                    "{newcomer} does not have the token of {place}, so it may join {rule} after that node's loss, which is in {}",
                    span(time)
                );
                Ok(Some(Wait { time, reason, long: true }))
            }
        }
    }

    /// Asks the present life of a node for a sign, and judges by it.
    pub(super) fn challenge(&mut self, now: Time, key: u32, register: &Register) -> Result<Wait, Refusal> {
        let node = self.conductor.cluster.nodes.get_mut(key).expect("the caller has found it");
        let asked = node.challenged.filter(|asked| now.since(*asked) < CHALLENGE);
        if asked.is_some_and(|asked| node.conn().is_some() && node.contact.heard > asked) {
            node.challenged = None;
            let (newcomer, held, since) = (name(register), node.culprit(), span(now.since(node.since)));
            return refused(format!(
                "{newcomer} wants the place of {held}, which lives: it registered {since} ago and has just answered; \
                 MS_NODE_ID must be unique"
            ));
        }
        let reason = format!("{} comes back, but {} may still live: it is asked", name(register), node.culprit());
        if asked.is_none() {
            node.challenged = Some(now);
            self.conductor.detector.look_into(&mut self.conductor.cluster, now, key);
        }
        Ok(Wait { time: ASK_AGAIN, reason, long: false })
    }

    /// A new life takes a lost node's place; it takes part from the next epoch on.
    fn take_back(&mut self, now: Time, conn: ConnId, key: u32, mut register: Register) {
        register.forget_what_was_checked();
        let cluster = &mut self.conductor.cluster;
        let lost_since = cluster.nodes.get(&key).and_then(|node| node.presence.lost_since());
        let away = lost_since.map_or(Duration::ZERO, |since| now.since(since));
        let old_conn = cluster.nodes.replace_life(key, register);
        let Some(node) = cluster.nodes.get_mut(key) else { return };
        node.challenged = None;
        node.since = now;
        node.epoch = None; // it knows of none yet
        node.begin_anew(now);
        node.attach(conn, now, now);
        let line = format!("{} is back, {} after its loss", node.culprit(), span(away));
        if let Some(old) = old_conn {
            cluster.drop_connection(old);
        }
        cluster.connections.belongs_to(conn, key);
        // The life before has its place until the next epoch. A scheduler that is started again must know what it was promised.
        self.conductor.store.ended(key);
        self.conductor.groups.table.uses_again(key);
        cluster.out.warn(line);
        self.conductor.recovery.begin(cluster, now);
        self.conductor.recover_if_complete(now);
    }

    /// Whether this lost node goes on if it lives: another node was the first to be lost, and nobody has this node's
    /// place.
    pub(super) fn may_go_on(&self, key: u32) -> bool {
        let cluster = &self.conductor.cluster;
        let is_hoped = cluster.job.is_hoped_for();
        is_hoped && !cluster.is_culprit(key) && !cluster.nodes[&key].is_back()
    }
}

#[cfg(test)]
#[path = "returning_forming_test.rs"]
mod forming_tests;
#[cfg(test)]
#[path = "returning_test.rs"]
mod tests;
