//! How a scheduler that is started again takes up what it had promised (`promises.rs`). Tested in `promises_test.rs`.
//!
//! Losses are not written: a node that attaches again tells what it was told ([`Known`], `breaking.rs`).
//!
//! [`Known`]: crate::wire::Known

use super::cluster_state::ClusterState;
use super::conductor::Conductor;
use super::contract::{Closed, ConnId};
use super::member_table::MemberTable;
use super::node::Node;
use super::ranks::places;
use super::standing::Presence;
use crate::types::{Incarnation, Role, Time};
use crate::wire::{EpochRecord, Record};
use std::time::Duration;

impl Conductor {
    /// All records have been taken up: the job goes on.
    pub(super) fn goes_on_again(&mut self, now: Time) {
        let cluster = &mut self.cluster;
        if !cluster.job.is_complete() {
            return;
        }
        let (epoch, size) = (cluster.epoch.0, cluster.size_in_words());
        let again = match cluster.generation.saturating_sub(1) {
            0 | 1 => "again".to_owned(),
            several => format!("again, {several} times now"),
        };
        cluster.out.warn(format!("this scheduler was started {again}: epoch {epoch} of {size} goes on"));
        self.detector.started_again(now);
        for key in cluster.nodes.keys().copied().collect::<Vec<_>>() {
            self.detector.judge_soon(cluster, now, key);
        }
    }

    /// Takes up the next of the records, in order.
    pub(super) fn take_up(&mut self, now: Time, record: Record) {
        let cluster = &mut self.cluster;
        match record {
            Record::Job(_) | Record::Done => {}
            Record::Generation(number) => cluster.generation = number,
            Record::Epoch(epoch) => {
                self.groups.table.take_up_epoch();
                for index in cluster.take_up(now, epoch) {
                    self.store.gone(index);
                    self.groups.table.uses_again(index);
                }
            }
            Record::Creation(creation) => self.groups.table.restore(creation),
            Record::ByMembers(made) => self.groups.table.restore_by_members(made),
            Record::Store(mut change) => {
                // Requests of an earlier life of a node are not asked again.
                let is_life = |(node, life, ..): &(u32, Incarnation, u64, i64, u64)| {
                    cluster.nodes.get(node).is_some_and(|node| node.register.incarnation == *life)
                };
                change.by = change.by.filter(is_life);
                self.store.restore(change);
            }
            Record::Freed(freed) => self.groups.table.restore_freed(&freed),
            Record::Left(key) => {
                if cluster.nodes.get(&key).is_some_and(|node| node.is_member()) {
                    cluster.nodes.leave(key);
                    cluster.job.left_by(key);
                    self.groups.free_groups_of(cluster, key);
                }
            }
            Record::Abandoned(key) => cluster.nodes.take_up_abandoned(key),
        }
    }

    /// Everything that a restarted scheduler must know. It replaces the journal's content when the journal is
    /// rewritten.
    pub(super) fn snapshot(&self) -> Vec<Record> {
        let cluster = &self.cluster;
        let mut records = vec![Record::Generation(cluster.generation)];
        if !cluster.table.members.is_empty() {
            records.push(Record::Epoch(cluster.epoch_record()));
        }
        records.extend(self.groups.table.records());
        let life = |key| Some(cluster.nodes.get(&key)?.seated().incarnation);
        records.extend(self.store.records(life));
        let is_kept = |node: &Node| node.presence == Presence::Left && !cluster.job.is_abandoned();
        let left = cluster.nodes.iter().filter(|(_, node)| is_kept(node));
        records.extend(left.map(|(key, _)| Record::Left(*key)));
        records.extend(cluster.nodes.all_abandoned().into_iter().map(Record::Abandoned));
        records.extend(cluster.out.promises.is_done().then_some(Record::Done));
        records
    }
}

impl ClusterState {
    /// Restores the cluster as it was in this epoch; none of its nodes is connected. Returns the places that other
    /// lives have than before.
    fn take_up(&mut self, now: Time, record: EpochRecord) -> Vec<u32> {
        self.job.is_complete_since(now);
        self.epoch = record.epoch;
        self.identity.secret = record.secret;
        let earlier = std::mem::take(&mut self.nodes);
        self.nodes.take_up_fenced(record.fenced);
        let ranked =
            record.members.iter().map(|member| (member.register.role, &member.register.host.key[..], member.rank));
        let places = places(&ranked.collect::<Vec<_>>());
        let mut replaced = Vec::new();
        for (member, place) in record.members.into_iter().zip(places) {
            let first = if member.register.role == Role::Server { self.rules.worker_num } else { 0 };
            let index = first + member.rank;
            if earlier.get(&index).is_some_and(|earlier| earlier.register.incarnation != member.register.incarnation) {
                replaced.push(index);
            }
            let mut node = Node::new(member.register, None, ConnId(0), now);
            let words = "the scheduler was started again".to_owned();
            node.attachment.detach(now, Closed::Broken, words, Duration::from_millis(1));
            node.place = Some(place);
            node.lives.token = member.token;
            node.lives.restarts = member.restarts;
            node.epoch = None; // it tells its epoch itself
            self.nodes.insert(index, Box::new(node));
        }
        self.table = MemberTable::of(&self.nodes);
        self.take_up_agreed(record.agreed);
        replaced
    }
}
