//! A process registers: a node that comes for the first time, one that comes once more, or the next life of one that was lost.
//! Tested in `admission_test.rs`, `returning_test.rs` and `held_test.rs`.

use super::admission::{Newcomer, Refusal};
use super::contract::ConnId;
use super::journal_rollback::rolled_back;
use super::returning::Wait;
use super::revocation::Revocation;
use super::standing::Presence;
use super::timers::Due;
use super::Scheduler;
use crate::error::Status;
use crate::strangers::Kind;
use crate::types::Time;
use crate::wire::{LostNodes, Message, PassBy, Register, Rejected, Revoked, Verdict};

/// How many lives that were refused are remembered.
pub(super) const REFUSED_MAX: usize = 4096;
/// Registrations that are refused appear in the log one by one, up to this number.
const REFUSED: Kind = Kind { name: "registrations that were refused", lines: 8 };

impl Scheduler {
    pub(super) fn register(&mut self, now: Time, conn: ConnId, register: Register) {
        let (life, has_joined) = (register.incarnation, register.instance.is_some());
        let newcomer = Newcomer::of(&self.conductor, now, &register);
        let is_elsewheres = newcomer.has_another_job();
        let answer = match self.conductor.cluster.nodes.of_life(life) {
            Some(key) => {
                let checked = newcomer.check_instance().and_then(|()| newcomer.check_same_life(key));
                let behind = newcomer.is_behind(key, &self.conductor.store, &self.conductor.groups.table);
                checked.map(|()| match behind {
                    Some(words) => {
                        let error = rolled_back(&words);
                        self.conductor.cluster.out.warn(error.message().to_owned());
                        self.conductor.cluster.end(Err(error));
                    }
                    None => self.register_again(now, conn, key, has_joined),
                })
            }
            None if self.conductor.cluster.rules.recovery && self.conductor.cluster.job.is_complete() => {
                newcomer.check_fenced().and_then(|()| self.come_back(now, conn, register))
            }
            None => self.come(now, conn, register),
        };
        let Err((status, reason)) = answer else { return };
        let from = self.conductor.cluster.connections.address(conn);
        let line = format!("refused: {reason} (it asks from {from})");
        if self.refused.len() == REFUSED_MAX {
            self.refused.clear();
        }
        // No second line for a life that asks again, none for one of another job.
        match (self.refused.insert(life), is_elsewheres) {
            (true, false) => {
                self.conductor.cluster.out.nuisance(REFUSED, &from, &line);
                self.conductor.forming.refuses(&reason);
            }
            (true, true) => self.conductor.forming.sends_on(&reason),
            (false, _) => {}
        }
        if !is_elsewheres {
            return self.conductor.cluster.reject(conn, status, reason);
        }
        self.conductor.cluster.out.send(conn, Message::PassBy(PassBy { reason }));
        self.conductor.cluster.drop_connection(conn);
    }

    /// A life that is not known registers while the cluster forms, or in vain. With recovery it may be the next life of
    /// a node whose last life still waits here. The last life is then asked whether it lives, as when the cluster is
    /// complete.
    fn come(&mut self, now: Time, conn: ConnId, register: Register) -> Result<(), Refusal> {
        let newcomer = Newcomer::of(&self.conductor, now, &register);
        let Some(key) = newcomer.last_life() else {
            let rank = newcomer.check()?;
            self.conductor.forming.admit(&mut self.conductor.cluster, now, conn, register, rank);
            return Ok(());
        };
        newcomer.check_life()?;
        let wait = self.challenge(now, key, &register)?;
        self.let_wait(conn, wait);
        Ok(())
    }

    /// A life that is known registers once more, over a new connection or the same: it gets the same answer.
    fn register_again(&mut self, now: Time, conn: ConnId, key: u32, has_joined: bool) {
        let Some(node) = self.conductor.cluster.nodes.get(&key) else { return };
        let (presence, is_back) = (node.presence, node.is_back());
        if presence == Presence::Left {
            self.conductor.cluster.out.send(conn, Message::Bye);
            return self.conductor.cluster.drop_connection(conn);
        }
        if presence.is_lost() && !is_back && self.conductor.cluster.is_culprit(key) {
            let first = self.conductor.cluster.job.verdict().map_or_else(String::new, ToString::to_string);
            self.conductor.cluster.out.send(
                conn,
                Message::Rejected(Rejected {
                    status: Status::Fenced,
                    reason: format!("this node was taken for lost: {first}"),
                }),
            );
            if let Some(node) = self.conductor.cluster.nodes.get_mut(key).filter(|node| node.conn() == Some(conn)) {
                node.attachment.release(); // it was taken for lost although its connection stood
            }
            return self.conductor.cluster.drop_connection(conn);
        }
        if let Some(failure) = self.conductor.cluster.cannot_recover().filter(|_| is_back) {
            return match Wait::for_the_end(&self.conductor.cluster, "it") {
                None => self.conductor.cluster.reject(conn, failure.status, format!("it cannot come back: {failure}")),
                Some(wait) => self.let_wait(conn, wait),
            };
        }
        if presence.is_lost() {
            // Its connection closed after the job broke, perhaps before the node could hear of that.
            self.conductor.cluster.nodes.counts_again(key);
        }
        self.attach(now, conn, key);
        match self.conductor.cluster.job.is_forming() {
            true => self.conductor.forming.complete(&mut self.conductor.cluster, now),
            false => self.goes_on(now, conn, key, has_joined, presence.is_lost()),
        }
    }

    /// A node's connection is this one from now on.
    fn attach(&mut self, now: Time, conn: ConnId, key: u32) {
        let cluster = &mut self.conductor.cluster;
        let (silence, interval) = (cluster.silence(), cluster.interval());
        let Some(node) = cluster.nodes.get_mut(key) else { return };
        // A node whose connection ended has an interval to show that it hears. A member is told of its epoch now, and
        // answers. A node that waits for an epoch hears the echo of its first heartbeat, says so with its second, and
        // that has to arrive here.
        let hearing = now - (silence - if node.is_back() { interval * 3 } else { interval });
        let replaced = node.conn().filter(|old| *old != conn);
        node.attach(conn, now, hearing);
        if let Some(old) = replaced {
            cluster.close_at_once(old);
        }
        cluster.connections.belongs_to(conn, key);
        self.conductor.store.detached(key);
        cluster.out.at(now, Due::Answer(key));
    }

    /// A node of the complete cluster is attached again: it is told what it may have missed.
    fn goes_on(&mut self, now: Time, conn: ConnId, key: u32, has_joined: bool, was_lost: bool) {
        let epoch = self.conductor.cluster.epoch;
        let Some(node) = self.conductor.cluster.nodes.get_mut(key) else { return };
        let is_back = node.is_back();
        if is_back {
            self.conductor.recovery.begin(&mut self.conductor.cluster, now); // it may have been lost meanwhile
        } else if !has_joined {
            node.epoch = Some(epoch); // the first that it hears of
        }
        self.conductor.recover_if_complete(now); // then all are told
        if self.conductor.cluster.epoch != epoch || is_back {
            return;
        }
        self.repeat_answers(conn, key);
        if was_lost && self.conductor.cluster.job.is_recoverable() {
            self.conductor.cluster.tell_lost();
        }
        // The node is to know which nodes it waits for in vain.
        for key in self.conductor.cluster.nodes.count_earlier_words(now) {
            self.conductor.end_if_abandoned(now, key);
        }
    }

    /// Repeats everything that a node which was away must know.
    fn repeat_answers(&mut self, conn: ConnId, key: u32) {
        let cluster = &mut self.conductor.cluster;
        cluster.queue_formed(conn, key);
        if let Some(failure) = cluster.job.verdict().cloned() {
            let lost = LostNodes { epoch: cluster.epoch, nodes: cluster.nodes.lost() };
            cluster.out.send(conn, Message::LostNodes(lost));
            cluster.out.send(conn, Message::Verdict(Verdict { failure }));
            if cluster.job.is_refused() {
                cluster.tell_no_next_epoch(conn);
            }
        }
        for (group, Revocation { failure, .. }) in &self.conductor.groups.revoked {
            if self.conductor.groups.table.is_used_by(key, *group) {
                cluster.out.send(conn, Message::Revoked(Revoked { failure: failure.clone() }));
            }
        }
    }
}
