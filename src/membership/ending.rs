//! How a job ends: nobody is left, nobody will come back, or the survivors of a broken job have had their time. Tested in
//! `ending_test.rs` and `abandoned_test.rs`.

use super::conductor::Conductor;
use super::timers::Due;
use crate::types::Time;
use crate::wire::Record;

impl Conductor {
    pub(super) fn end_if_empty(&mut self, now: Time) {
        let cluster = &mut self.cluster;
        if cluster.nodes.present() > 0 || !cluster.job.is_complete() {
            return;
        }
        match cluster.job.is_broken() {
            true if cluster.job.is_recoverable() => {
                if let Some(span) = cluster.rules.forming_timeout {
                    cluster.out.at(now + span, Due::Vacant);
                }
            }
            true => self.end_broken(),
            false => {
                cluster.out.note("all nodes have left: the job is done".to_string());
                cluster.out.promise(Record::Done);
                cluster.end(Ok(()));
            }
        }
    }

    /// Nobody is left, and nobody has come back in the time in which a cluster must form.
    pub(super) fn vacant(&mut self, now: Time) {
        let cluster = &mut self.cluster;
        let Some(span) = cluster.rules.forming_timeout.filter(|_| cluster.nodes.present() == 0) else { return };
        let lost = cluster.nodes.values().filter_map(|node| node.presence.lost_since());
        let newest = lost.max().unwrap_or(cluster.started);
        match now.since(newest) < span {
            true => cluster.out.at(newest + span, Due::Vacant),
            false => self.end_broken(),
        }
    }

    /// The survivors of a broken job have gone, or have had their time.
    pub(super) fn end_broken(&mut self) {
        let cluster = &mut self.cluster;
        if let Some(failure) = cluster.job.verdict().cloned() {
            if !cluster.job.is_unfinished() {
                cluster.out.promise(Record::Done); // nobody can come back to it
            }
            cluster.end(Err(failure.into()));
        }
    }

    /// If this node is lost, and nobody will have its place, the survivors wait for nothing: the job ends.
    pub(super) fn end_if_abandoned(&mut self, now: Time, key: u32) {
        let cluster = &mut self.cluster;
        let Some(node) = cluster.nodes.get(&key).filter(|node| node.presence.is_lost()) else { return };
        if !node.is_abandoned() {
            return;
        }
        let line = format!("{} is not started again, its launcher says: the job ends unfinished", node.culprit());
        if !cluster.job.abandon() {
            return;
        }
        cluster.out.warn(line);
        cluster.refuse_next_epoch();
        self.recovery.end_without(cluster);
        cluster.out.at(now + cluster.silence(), Due::Linger);
    }
}

#[cfg(test)]
#[path = "ending_test.rs"]
mod tests;
