//! How a job ends: nodes leave, one is lost or aborts, or the program that hosts the scheduler stops it. Tested in
//! `ending_test.rs`.

use super::contract::{ConnId, Output};
use super::node::Node;
use super::timers::Due;
use super::{Queued, Scheduler};
use crate::error::{Culprit, Error, Failure, Status};
use crate::types::Time;
use crate::wire::{Abort, LostNodes, Message, Record, Verdict};

impl Scheduler {
    /// A node whose loss is confirmed is the culprit.
    pub(super) fn verdict_on(&mut self, now: Time, key: u32) {
        self.settle_disputes(now);
        let Some(node) = self.nodes.get(&key) else { return };
        let cause = node.confirmed_lost.clone().unwrap_or_else(|| "is lost".to_string());
        let mut lost = self.failure(Status::PeerLost, node, cause);
        lost.culprit = Some(Culprit { last_call: node.last_call(), ..node.culprit() });
        let before = self.cause_before(key, self.gone_since(key));
        let waits = self.recovery.as_ref().is_some_and(|recovery| recovery.holds(key));
        self.lose(now, key);
        if !self.rules.recovery {
            self.store.gone(key);
        }
        if before.is_some() {
            // It went because its group was revoked: that remains the first cause.
            self.note(format!("in consequence: {lost}"));
        }
        self.break_job(now, before.unwrap_or(lost));
        if waits {
            self.refuse_recovery_of_lost(key); // should it still live, it waits in vain
        }
    }

    /// A member is lost. What it has written is remembered: it may come back to hear the verdict, and ask again.
    pub(super) fn lose(&mut self, now: Time, key: u32) {
        let Some(node) = self.nodes.get_mut(&key) else { return };
        node.presence.lose(now);
        self.present -= 1;
        self.lost.insert(key);
        self.store.detached(key);
        self.settle_queries(now, key);
        self.answers_no_more(now, key);
        if self.job.is_recoverable() {
            self.waits_no_more(key);
        }
    }

    fn failure(&self, status: Status, node: &Node, cause: String) -> Failure {
        Failure { status, culprit: Some(node.culprit()), cause, epoch: self.epoch, group: None, sequence: 0 }
    }

    /// The first cause, told to everybody once; the survivors have a while to go.
    pub(super) fn break_job(&mut self, now: Time, failure: Failure) {
        self.warn(format!("the job is broken: {failure}"));
        self.job.break_with(failure.clone());
        let is_over = self.job.is_refused();
        self.tell_lost(); // before the verdict, so that whoever hears that knows who is meant
        for conn in self.nodes.values().filter_map(|node| node.conn).collect::<Vec<_>>() {
            self.send(conn, Message::Verdict(Verdict { failure: failure.clone() }));
        }
        let confirmed: Vec<u32> = self
            .nodes
            .iter()
            .filter(|(_, node)| node.is_member() && node.confirmed_lost.is_some())
            .map(|(key, _)| *key)
            .collect();
        for key in confirmed {
            self.gone_after_verdict(now, key);
        }
        if is_over {
            self.refuse_next_epoch();
        }
        if self.job.is_broken_for_good() {
            self.timers.at(now + self.silence(), Due::Linger);
        }
        self.lost.clone().into_iter().for_each(|key| self.end_if_abandoned(now, key));
        self.end_if_empty(now);
    }

    pub(super) fn is_culprit(&self, key: u32) -> bool {
        let Some(first) = self.job.verdict().filter(|first| first.status == Status::PeerLost) else { return false };
        self.nodes.get(&key).is_some_and(|node| first.culprit.as_ref().is_some_and(|named| named.is(&node.culprit())))
    }

    /// A consequence of the first cause: never reported.
    pub(super) fn gone_after_verdict(&mut self, now: Time, key: u32) {
        let Some(node) = self.nodes.get(&key).filter(|node| node.is_member()) else { return };
        let line = format!("also gone: {} {}", node.culprit(), node.confirmed_lost.as_deref().unwrap_or("has ended"));
        self.lose(now, key);
        if self.job.is_recoverable() {
            self.warn(line);
            self.tell_lost();
        }
        self.end_if_abandoned(now, key);
        self.end_if_empty(now);
    }

    /// Everybody learns who is lost by now.
    pub(super) fn tell_lost(&mut self) {
        let nodes: Vec<u32> = self.lost.iter().copied().collect();
        for conn in self.nodes.values().filter_map(|node| node.conn).collect::<Vec<_>>() {
            self.send(conn, Message::LostNodes(LostNodes { epoch: self.epoch, nodes: nodes.clone() }));
        }
    }

    pub(super) fn leave(&mut self, now: Time, key: u32) {
        let Some(conn) = self.nodes.get(&key).and_then(|node| node.conn) else { return };
        let is_member = !self.job.is_forming() && self.nodes[&key].is_member();
        // Of a job that ends unfinished it leaves this run: in the next one its place is there as those of the others are.
        let for_good = !self.job.is_abandoned();
        if is_member && for_good {
            self.promise(Record::Left(key));
        }
        self.send(conn, Message::Bye);
        self.drop_connection(conn);
        if self.job.is_forming() {
            return self.free_place(key, "it left");
        }
        let Some(node) = self.nodes.get_mut(&key) else { return };
        node.conn = None;
        if node.is_member() {
            node.presence.leave();
            let line = format!("{} has left", node.culprit());
            self.present -= 1;
            self.note(line);
            if for_good && self.job.left_by(key) {
                self.refuse_next_epoch();
            }
        }
        self.store.gone(key);
        self.settle_queries(now, key);
        self.answers_no_more(now, key);
        self.settle_makings(now);
        if for_good {
            self.free_groups_of(key);
        }
        self.end_recovery_without();
        if self.job.is_broken_for_good() {
            self.timers.at(now + self.silence(), Due::Linger);
        }
        self.end_if_empty(now);
    }

    /// A node says that it ends without leaving: a loss that needs no further evidence.
    pub(super) fn gone(&mut self, now: Time, key: u32, conn: ConnId) {
        self.drop_connection(conn);
        if self.job.is_forming() {
            return self.free_place(key, "it gave up");
        }
        if let Some(node) = self.nodes.get_mut(&key) {
            node.conn = None;
        }
        self.store.detached(key);
        self.settle_queries(now, key);
        self.answers_no_more(now, key);
        self.confirm_lost(
            now,
            key,
            "is lost: it freed its cluster without leaving it first (muster_finalize)".to_owned(),
        );
    }

    pub(super) fn abort(&mut self, now: Time, key: u32, abort: Abort) {
        if self.job.is_broken() && !self.job.is_unfinished() {
            return;
        }
        self.settle_disputes(now);
        let failure = self.failure(Status::Aborted, &self.nodes[&key], abort.to_string());
        if self.job.is_forming() {
            return self.end_forming(Status::Aborted, failure.to_string());
        }
        self.break_job(now, failure);
        self.end_recovery_without();
    }

    pub(super) fn stop(&mut self) {
        let cause = "the scheduler was stopped by its program".to_string();
        if self.job.is_forming() {
            return self.end_forming(Status::Aborted, cause);
        }
        if !self.job.is_broken() || self.job.is_unfinished() {
            let failure =
                Failure { status: Status::Aborted, culprit: None, cause, epoch: self.epoch, group: None, sequence: 0 };
            self.warn(format!("the job is broken: {failure}"));
            for conn in self.nodes.values().filter_map(|node| node.conn).collect::<Vec<_>>() {
                self.send(conn, Message::Verdict(Verdict { failure: failure.clone() }));
            }
            self.job.break_with(failure);
            self.end_recovery_without();
        }
        self.end_broken();
    }

    pub(super) fn end_if_empty(&mut self, now: Time) {
        if self.present == 0 && self.job.is_complete() {
            match self.job.is_broken() {
                true if self.job.is_recoverable() => {
                    if let Some(span) = self.rules.forming_timeout {
                        self.timers.at(now + span, Due::Vacant);
                    }
                }
                true => self.end_broken(),
                false => {
                    self.note("all nodes have left: the job is done".to_string());
                    self.promise_done();
                    self.end(Ok(()));
                }
            }
        }
    }

    /// Nobody is left, and nobody has come back in the time in which a cluster must form.
    pub(super) fn vacant(&mut self, now: Time) {
        if !self.job.is_broken() {
            return self.end_if_empty(now); // all had left before this scheduler was started again
        }
        let Some(span) = self.rules.forming_timeout.filter(|_| self.present == 0) else { return };
        let newest = self.nodes.values().filter_map(|node| node.presence.lost_since()).max().unwrap_or(self.started);
        match now.since(newest) < span {
            true => self.timers.at(newest + span, Due::Vacant),
            false => self.end_broken(),
        }
    }

    /// The survivors of a broken job have gone, or have had their time.
    pub(super) fn end_broken(&mut self) {
        if let Some(failure) = self.job.verdict().cloned() {
            if !self.job.is_unfinished() {
                self.promise_done(); // nobody can come back to it
            }
            self.end(Err(failure.into()));
        }
    }

    /// Closes everything. Nothing follows.
    pub(super) fn end(&mut self, result: Result<(), Error>) {
        for conn in self.connections.all() {
            self.drop_connection(conn);
        }
        self.job.end();
        self.put_out_durably(Queued::Ready(Output::Ended(result)));
    }
}

#[cfg(test)]
#[path = "ending_test.rs"]
mod tests;
