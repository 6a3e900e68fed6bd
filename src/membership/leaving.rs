//! Nodes that leave, go, or abort the job, and the program that hosts the scheduler and stops it. Tested in `ending_test.rs`.

use super::conductor::Conductor;
use super::contract::ConnId;
use super::timers::Due;
use crate::error::Status;
use crate::types::Time;
use crate::wire::{Abort, Message, Record, Verdict};

impl Conductor {
    pub(super) fn leave(&mut self, now: Time, key: u32) {
        let cluster = &mut self.cluster;
        let Some((node, conn)) = cluster.nodes.get(&key).and_then(|node| Some((node, node.conn()?))) else { return };
        let is_member = !cluster.job.is_forming() && node.is_member();
        let line = format!("{} has left", node.culprit());
        // A node that leaves an abandoned job leaves only this run. In the next run its place is there, as those of the
        // others are.
        let for_good = !cluster.job.is_abandoned();
        if is_member && for_good {
            cluster.out.promise(Record::Left(key));
        }
        cluster.out.send(conn, Message::Bye);
        cluster.drop_connection(conn);
        if cluster.job.is_forming() {
            return self.forming.free_place(cluster, key, "it left");
        }
        if let Some(node) = cluster.nodes.get_mut(key) {
            node.attachment.release();
        }
        if is_member {
            cluster.nodes.leave(key);
            cluster.out.note(line);
            if for_good && cluster.job.left_by(key) {
                cluster.refuse_next_epoch();
            }
        }
        self.store.gone(key);
        self.answers_no_more(now, key);
        self.end_pacts_with(key);
        let cluster = &mut self.cluster;
        self.groups.settle_creations(cluster, now);
        if for_good {
            self.groups.free_groups_of(cluster, key);
        }
        self.recovery.end_without(cluster);
        if cluster.job.is_broken_for_good() {
            cluster.out.at(now + cluster.silence(), Due::Linger);
        }
        self.end_if_empty(now);
    }

    /// A node says that it ends without leaving: a loss that needs no further evidence.
    pub(super) fn gone(&mut self, now: Time, key: u32, conn: ConnId) {
        self.cluster.drop_connection(conn);
        if self.cluster.job.is_forming() {
            return self.forming.free_place(&mut self.cluster, key, "it gave up");
        }
        if let Some(node) = self.cluster.nodes.get_mut(key) {
            node.attachment.release();
        }
        self.answers_no_more(now, key);
        let cause = "is lost: it freed its cluster without leaving it first (muster_finalize)".to_owned();
        self.confirm_lost(now, key, cause);
    }

    pub(super) fn abort(&mut self, now: Time, key: u32, abort: &Abort) {
        if self.cluster.job.is_broken() && !self.cluster.job.is_unfinished() {
            return;
        }
        self.groups.settle_disputes(&mut self.cluster, now);
        let culprit = self.cluster.nodes[&key].culprit();
        let failure = self.cluster.failure(Status::Aborted, Some(culprit), abort.to_string());
        if self.cluster.job.is_forming() {
            return self.cluster.fail_forming(Status::Aborted, failure.to_string());
        }
        self.break_job(now, failure);
        self.recovery.end_without(&mut self.cluster);
    }

    /// The program that hosts the scheduler wants it to end now.
    pub(super) fn stop(&mut self) {
        let cause = "the scheduler was stopped by its program".to_string();
        let cluster = &mut self.cluster;
        if cluster.job.is_forming() {
            return cluster.fail_forming(Status::Aborted, cause);
        }
        if !cluster.job.is_broken() || cluster.job.is_unfinished() {
            let failure = cluster.failure(Status::Aborted, None, cause);
            cluster.out.warn(format!("the job is broken: {failure}"));
            cluster.send_to_all(&Message::Verdict(Verdict { failure: failure.clone() }));
            cluster.job.break_with(failure);
            self.recovery.end_without(cluster);
        }
        self.end_broken();
    }

    /// A node that has come back has waited in vain for the cluster to be whole again: its time is up.
    pub(super) fn gives_up_returning(&mut self, now: Time, key: u32) {
        let Some(node) = self.cluster.nodes.get_mut(key).filter(|node| node.is_back()) else { return };
        let Some(conn) = node.attachment.release() else { return };
        let (next, awaited) = (self.cluster.epoch.0 + 1, self.recovery.awaited_in_words(&self.cluster));
        self.cluster.reject(conn, Status::Timeout, format!("epoch {next} did not begin in time; {awaited}"));
        self.confirm_lost(now, key, "is lost: it did not wait any longer for the cluster to be whole again".to_owned());
    }
}
