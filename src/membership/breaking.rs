//! What follows from a loss: the search for the culprit, the verdict, and the first cause that breaks the job. Tested in
//! `liveness_test.rs`, `suspicion_test.rs`, `ending_test.rs` and `held_test.rs`.

use super::cluster_state::{ClusterState, FIRST_GENERATION};
use super::conductor::Conductor;
use super::contract::ConnId;
use super::liveness::{Loss, REATTACH};
use super::promises::Behind;
use super::suspicion::Search;
use super::timers::Due;
use crate::error::{Culprit, Failure, Status};
use crate::types::Time;
use crate::wire::{Known, Message, Record, Verdict};

impl Conductor {
    /// Looks at a member without a connection, or at one whose loss waits for another's.
    pub(super) fn judge(&mut self, now: Time, key: u32) {
        let cluster = &mut self.cluster;
        if cluster.job.is_forming() {
            return self.forming.judge(cluster, now, key);
        }
        let Some(node) = cluster.nodes.get(&key).filter(|node| node.is_member()) else { return };
        if cluster.job.is_broken_for_good() {
            if node.attachment.detached().is_some_and(|detached| now >= detached.since + REATTACH) {
                self.gone_after_verdict(now, key);
            }
            return;
        }
        if node.is_confirmed_lost() {
            return self.find_culprit(now, key);
        }
        let loss = self.detector.judge(cluster, now, key);
        self.confirm_losses(now, loss);
    }

    /// These nodes are lost for certain.
    pub(super) fn confirm_losses(&mut self, now: Time, losses: impl IntoIterator<Item = Loss>) {
        losses.into_iter().for_each(|(key, cause)| self.confirm_lost(now, key, cause));
    }

    /// This node is lost for certain, for this cause.
    pub(super) fn confirm_lost(&mut self, now: Time, key: u32, cause: String) {
        let Some(node) = self.cluster.nodes.get_mut(key).filter(|node| node.is_member()) else { return };
        node.evidence.certainty.confirm(format!("{cause}{}", node.course.heard_in(now)));
        match self.cluster.job.is_broken() {
            true => self.gone_after_verdict(now, key),
            false => self.find_culprit(now, key),
        }
    }

    fn find_culprit(&mut self, now: Time, key: u32) {
        if self.cluster.job.is_broken() || !self.cluster.job.is_complete() {
            return;
        }
        match self.cluster.find_culprit(now, key) {
            Search::Culprit(culprit) => self.verdict_on(now, culprit),
            Search::Again(at) => self.cluster.out.at(at, Due::Judge(key)),
        }
    }

    /// A node whose loss is confirmed is the culprit.
    fn verdict_on(&mut self, now: Time, key: u32) {
        self.groups.settle_disputes(&mut self.cluster, now);
        let cluster = &mut self.cluster;
        let Some(node) = cluster.nodes.get(&key) else { return };
        let cause = node.evidence.certainty.why_lost().unwrap_or("is lost").to_owned();
        let culprit = Culprit { last_call: node.course.last_call(), ..node.culprit() };
        let lost = cluster.failure(Status::PeerLost, Some(culprit), cause);
        let waits = self.recovery.holds(key); // a node that waits for the next epoch was about to go on
        let before = self.groups.cause_before(cluster, key, cluster.nodes.gone_since(key)).filter(|_| !waits);
        self.lose(now, key);
        if !self.cluster.rules.recovery {
            self.store.gone(key);
        }
        if before.is_some() {
            // The node went because its group was revoked: that remains the first cause. Nothing else names the node.
            self.cluster.out.warn(format!("in consequence: {lost}"));
        }
        self.break_job(now, before.unwrap_or(lost));
        if waits {
            self.cluster.refuse_recovery_of_lost(key); // if it still lives, it waits in vain
        }
    }

    /// A member is lost. The results of its store requests stay known: it may come back to hear the verdict, and ask
    /// again.
    fn lose(&mut self, now: Time, key: u32) {
        self.cluster.nodes.lose(key, now);
        self.answers_no_more(now, key);
        if self.cluster.job.is_recoverable() {
            self.recovery.waits_no_more(&self.cluster, key);
        }
    }

    /// Tells everybody the first cause, once. The survivors have a while to go.
    pub(super) fn break_job(&mut self, now: Time, failure: Failure) {
        let cluster = &mut self.cluster;
        cluster.out.warn(format!("the job is broken: {failure}"));
        cluster.job.break_with(failure.clone());
        if cluster.job.is_aborted() {
            cluster.out.promise(Record::Done); // nobody can come back to it, whether or not this scheduler sees its end
        }
        let is_over = cluster.job.is_refused();
        cluster.tell_lost(); // before the verdict: a node that hears the verdict then knows who is lost
        tell_verdict(cluster, &failure);
        let confirmed = cluster.nodes.iter().filter(|(_, node)| node.is_member() && node.is_confirmed_lost());
        let confirmed: Vec<u32> = confirmed.map(|(key, _)| *key).collect();
        for key in confirmed {
            self.gone_after_verdict(now, key);
        }
        let cluster = &mut self.cluster;
        if is_over {
            cluster.refuse_next_epoch();
        }
        if cluster.job.is_broken_for_good() {
            cluster.out.at(now + cluster.silence(), Due::Linger);
        }
        cluster.nodes.lost().into_iter().for_each(|key| self.end_if_abandoned(now, key));
        self.end_if_empty(now);
    }

    /// A node has gone after the verdict: a consequence of the first cause, and never reported.
    fn gone_after_verdict(&mut self, now: Time, key: u32) {
        let Some(node) = self.cluster.nodes.get(&key).filter(|node| node.is_member()) else { return };
        let why = node.evidence.certainty.why_lost().unwrap_or("has ended");
        let line = format!("also gone: {} {why}", node.culprit());
        self.lose(now, key);
        if self.cluster.job.is_recoverable() {
            self.cluster.out.warn(line);
            self.cluster.tell_lost();
        }
        self.end_if_abandoned(now, key);
        self.end_if_empty(now);
    }

    /// Takes up what an earlier start of this scheduler had told a node, and tells all nodes. A scheduler that was not
    /// started again takes up only an abort, because nodes tell each other of aborts. It told all else itself. It
    /// believes that a group is over only if a member says so.
    pub(super) fn known(&mut self, now: Time, key: u32, known: Known) {
        if known.epoch != self.cluster.epoch || !self.cluster.job.is_complete() {
            return;
        }
        let was_restarted = self.cluster.generation > FIRST_GENERATION;
        let is_news = |failure: &Failure| match failure.status {
            Status::Fenced => false,
            Status::Aborted => true,
            _ => was_restarted,
        };
        if let Some(failure) = known.failure.filter(is_news) {
            for key in known.lost.into_iter().filter(|_| was_restarted) {
                self.is_lost_already(now, key);
            }
            // An abort is final, even if a node was found lost, or has left, before the abort was known again.
            let job = &self.cluster.job;
            if !job.is_broken() || (failure.status == Status::Aborted && !job.is_aborted()) {
                self.break_job(now, failure);
                self.recovery.end_without(&mut self.cluster);
            }
        }
        for failure in known.revoked {
            let Some(group) = failure.group.filter(|group| !self.groups.is_revoked(*group)) else { continue };
            if !self.cluster.job.is_broken() && self.groups.table.is_in(group, key) {
                self.groups.revoke_group(&mut self.cluster, now, group, failure);
            }
        }
    }

    /// A node had been taken for lost before this scheduler was started again.
    fn is_lost_already(&mut self, now: Time, key: u32) {
        let stands = self.cluster.nodes.get(&key).is_some_and(|node| node.takes_part());
        if !stands || self.cluster.nodes.was_lost(key) {
            return;
        }
        self.lose(now, key);
        if let Some(failure) = self.cluster.job.verdict().cloned() {
            self.cluster.send_to(key, Message::Verdict(Verdict { failure }));
        }
        self.cluster.tell_lost();
        self.end_if_abandoned(now, key);
    }

    /// A node will not answer any more over the connection that it had.
    pub(super) fn answers_no_more(&mut self, now: Time, key: u32) {
        self.store.detached(key);
        self.stragglers.settle(&mut self.cluster, &self.groups, now, key);
        self.groups.answers_no_more(&mut self.cluster, now, key);
    }
}

/// Tells everybody why the job is broken. Two nodes are told of an abort only when the next start of the scheduler will
/// know of it, too: their programs may end the process at once, and the scheduler with it, or start everything again.
fn tell_verdict(cluster: &mut ClusterState, failure: &Failure) {
    let conns: Vec<(u32, ConnId)> = cluster.nodes.iter().filter_map(|(key, node)| Some((*key, node.conn()?))).collect();
    for (key, conn) in conns {
        let node = &cluster.nodes[&key];
        let (register, own) = (&node.register, &cluster.identity);
        let hosts = register.process == own.process && register.host.key == own.host.key;
        let aborts = failure.culprit.as_ref().is_some_and(|named| named.is(&node.culprit()));
        let behind = match cluster.job.is_aborted() && (hosts || aborts) {
            true => Behind::Everything,
            false => Behind::Epoch,
        };
        cluster.out.send_behind(behind, conn, Message::Verdict(Verdict { failure: failure.clone() }));
    }
}
