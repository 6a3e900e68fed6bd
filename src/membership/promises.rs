//! What is durable before it is promised, and how a scheduler that is started again takes up what it had promised. Tested
//! in `promises_test.rs` and `held_test.rs`.
//!
//! | durable first | then sent |
//! | --- | --- |
//! | an epoch: nodes, ranks, lives, token hashes, secret, settings | any Formed of it |
//! | a group, or that a node uses it no more | its answer |
//! | a change of the store, with who asked for it and the result | its acknowledgement |
//! | a node has left | Bye, and that there is no next epoch |
//! | nobody is started in a place any more | that there is no next epoch |
//! | the job is done | the scheduler's end |
//!
//! [`Output::Persist`] carries a growing number; what depends on it is held back until [`Input::Persisted`] has told that
//! number or a greater one. Signs of life are never held back, and verdicts only behind an epoch that is not durable
//! yet, for they would be taken for verdicts on the one before.
//!
//! Losses are not written: a node that attaches again brings what it was told ([`Known`]).
//!
//! [`Input::Persisted`]: super::Input::Persisted

use super::contract::{Closed, ConnId, Identity, Output, Rules};
use super::node::{Detached, Node};
use super::ranks::{canonical, places};
use super::standing::Presence;
use super::timers::Due;
use super::{Queued, Scheduler};
use crate::error::Status;
use crate::types::{Epoch, Incarnation, Role, Time};
use crate::wire::{EpochRecord, Known, Message, Record, Register, SeatRecord, Verdict};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

/// What waits to be durable.
#[derive(Debug, Default)]
pub(super) struct Promises {
    /// The number of the newest record.
    newest: u64,
    /// Up to which they are durable.
    durable: u64,
    /// The newest epoch's number.
    epoch: u64,
    /// Whether the job's end is among them.
    done: bool,
    /// In order of the records that they wait for.
    held: VecDeque<(u64, Queued)>,
    /// How many answers of the store are among them, for each connection.
    replies: HashMap<ConnId, usize>,
}

impl Promises {
    pub(super) fn holds_for(&self, conn: ConnId) -> bool {
        self.held.iter().any(|(_, queued)| queued.is_for(conn))
    }

    /// How many answers of the store are held back from this connection.
    pub(super) fn replies_to(&self, conn: ConnId) -> usize {
        self.replies.get(&conn).copied().unwrap_or(0)
    }

    fn hold(&mut self, number: u64, queued: Queued) {
        if let Some(conn) = queued.is_reply_to() {
            *self.replies.entry(conn).or_default() += 1;
        }
        let at = self.held.partition_point(|(held, _)| *held <= number);
        self.held.insert(at, (number, queued));
    }

    /// The next of those that nothing holds back any more.
    fn release(&mut self) -> Option<Queued> {
        self.held.front().filter(|(number, _)| *number <= self.durable)?;
        let (_, queued) = self.held.pop_front()?;
        if let Some(conn) = queued.is_reply_to() {
            let left = self.replies_to(conn).saturating_sub(1);
            match left {
                0 => drop(self.replies.remove(&conn)),
                left => drop(self.replies.insert(conn, left)),
            }
        }
        Some(queued)
    }

    /// A connection has ended: nothing reaches it any more.
    pub(super) fn forget(&mut self, conn: ConnId) {
        self.replies.remove(&conn);
        self.held.retain(|(_, queued)| !queued.is_only_for(conn));
    }
}

impl Queued {
    fn is_for(&self, wanted: ConnId) -> bool {
        match self {
            Queued::Ready(Output::Send(conn, _) | Output::Close(conn)) | Queued::Value(conn, ..) => *conn == wanted,
            Queued::Formed(_, to) => to.iter().any(|(conn, _)| *conn == wanted),
            Queued::Ready(_) => false,
        }
    }

    fn is_only_for(&self, conn: ConnId) -> bool {
        !matches!(self, Queued::Formed(..)) && self.is_for(conn)
    }

    /// To whom this is an answer of the store.
    fn is_reply_to(&self) -> Option<ConnId> {
        match self {
            Queued::Ready(Output::Send(conn, Message::StoreReply(_))) => Some(*conn),
            _ => None,
        }
    }
}

impl Scheduler {
    /// A scheduler that goes on with a job of which this is recorded, as [`check_history`] has found it possible; without an epoch
    /// in it the job forms anew.
    ///
    /// [`check_history`]: super::check_history
    pub fn resume(identity: Identity, rules: Rules, now: Time, records: Vec<Record>) -> Scheduler {
        let mut scheduler = Scheduler::new(identity, rules, now);
        for record in records {
            match record {
                Record::Job(_) | Record::Done => {}
                Record::Generation(number) => scheduler.generation = number,
                Record::Epoch(epoch) => scheduler.take_up(now, epoch),
                Record::Making(making) => scheduler.groups.restore(making),
                Record::Store(mut change) => {
                    // What an earlier life has asked is not asked again.
                    let is_life = |(node, life, ..): &(u32, Incarnation, u64, i64, u64)| {
                        scheduler.nodes.get(node).is_some_and(|node| node.register.incarnation == *life)
                    };
                    change.by = change.by.filter(is_life);
                    scheduler.store.restore(change);
                }
                Record::Freed(freed) => scheduler.groups.restore_freed(&freed),
                Record::Left(key) => scheduler.take_up_left(key),
                Record::Abandoned(key) => scheduler.take_up_abandoned(key),
            }
        }
        if scheduler.job.is_complete() {
            let line = format!(
                "this scheduler was started again ({} times now): epoch {} of {} goes on",
                scheduler.generation,
                scheduler.epoch.0,
                scheduler.size_in_words()
            );
            scheduler.warn(line);
            for key in scheduler.nodes.keys().copied().collect::<Vec<_>>() {
                scheduler.judge_soon(now, key);
            }
            if scheduler.present == 0 {
                // All have left, and may not have heard so.
                scheduler.timers.at(now + scheduler.silence(), Due::Vacant);
            }
        }
        scheduler.arm();
        scheduler
    }

    /// Everything that a scheduler must know that is started again: what stands in the journal's place when that is rewritten.
    pub fn snapshot(&self) -> Vec<Record> {
        let mut records = vec![Record::Generation(self.generation)];
        if !self.members.is_empty() {
            records.push(Record::Epoch(self.epoch_record()));
        }
        records.extend(self.groups.records());
        records.extend(self.store.records(|key| self.nodes.get(&key).map(|node| node.register.incarnation)));
        let is_kept = |node: &Node| node.presence == Presence::Left && !self.job.is_abandoned();
        let left = self.nodes.iter().filter(|(_, node)| is_kept(node));
        records.extend(left.map(|(key, _)| Record::Left(*key)));
        // Also where a sign of life disproved it: that may be said once more, rightly, and is not written a second time.
        let abandoned = self.nodes.iter().filter(|(_, node)| node.abandoned.is_said());
        let mut abandoned: Vec<_> = abandoned.map(|(key, node)| (node.abandoned_as, *key)).collect();
        abandoned.sort_unstable();
        records.extend(abandoned.into_iter().map(|(_, key)| Record::Abandoned(key)));
        records.extend(self.promises.done.then_some(Record::Done));
        records
    }

    /// The job ends for good.
    pub(super) fn promise_done(&mut self) {
        self.promises.done = true;
        self.promise(Record::Done);
    }

    pub(super) fn promise(&mut self, record: Record) {
        if !self.rules.durable {
            return;
        }
        self.promises.newest += 1;
        if matches!(record, Record::Epoch(_)) {
            self.promises.epoch = self.promises.newest;
        }
        self.output(Output::Persist(self.promises.newest, record));
    }

    pub(super) fn persisted(&mut self, number: u64) {
        self.promises.durable = self.promises.durable.max(number);
        while let Some(queued) = self.promises.release() {
            self.outputs.push_back(queued);
        }
    }

    /// Puts out what follows from everything that was promised so far.
    pub(super) fn put_out_durably(&mut self, queued: Queued) {
        self.put_out_behind(self.promises.newest, queued);
    }

    /// Puts out what is of the newest epoch. Records after that don't count: whatever is sent at once would overtake it.
    pub(super) fn put_out_with_epoch(&mut self, queued: Queued) {
        self.put_out_behind(self.promises.epoch, queued);
    }

    fn put_out_behind(&mut self, number: u64, queued: Queued) {
        if number <= self.promises.durable {
            return self.outputs.push_back(queued);
        }
        self.promises.hold(number, queued);
    }

    /// Puts out what promises nothing.
    pub(super) fn put_out_at_once(&mut self, queued: Queued) {
        self.put_out_behind(0, queued);
    }

    pub(super) fn send(&mut self, conn: ConnId, message: Message) {
        let behind = match message {
            // Nothing is promised by these.
            Message::HeartbeatEcho(_) | Message::Report | Message::NotYet(_) | Message::Rejected(_) => 0,
            Message::StoreReply(_) | Message::GroupMade(_) | Message::GroupFreed(_) | Message::Bye => {
                self.promises.newest
            }
            Message::NotRecovered(_) if self.job.is_abandoned() || self.job.first_left().is_some() => {
                self.promises.newest
            }
            _ => self.promises.epoch,
        };
        self.put_out_behind(behind, Queued::Ready(Output::Send(conn, message)));
    }

    /// A connection is closed behind what it is still to be sent.
    pub(super) fn put_out_close(&mut self, conn: ConnId) {
        let queued = Queued::Ready(Output::Close(conn));
        match self.promises.holds_for(conn) {
            true => self.put_out_durably(queued),
            false => self.outputs.push_back(queued),
        }
    }

    pub(super) fn promise_epoch(&mut self) {
        if self.rules.durable {
            let record = self.epoch_record();
            self.promise(Record::Epoch(record));
        }
    }

    fn epoch_record(&self) -> EpochRecord {
        let seat = |node: &Node| SeatRecord {
            register: Register::clone(node.before.as_ref().unwrap_or(&node.register)),
            rank: node.place.map_or(0, |place| place.rank),
            token: node.token,
            restarts: node.restarts,
        };
        // A life whose place another will have from the next epoch on is not fenced in this one.
        let before = self.nodes.values().filter_map(|node| node.before.as_ref());
        let seated: BTreeSet<Incarnation> = before.map(|before| before.incarnation).collect();
        EpochRecord {
            epoch: self.epoch,
            secret: self.identity.secret,
            agreed: self.agreed(),
            seats: self.nodes.values().map(|node| seat(node)).collect(),
            fenced: self.fenced.iter().filter(|life| !seated.contains(life)).copied().collect(),
        }
    }

    /// The cluster as it was in this epoch; none of its nodes is connected.
    fn take_up(&mut self, now: Time, record: EpochRecord) {
        self.job.is_complete_since(now);
        self.epoch = record.epoch;
        self.identity.secret = record.secret;
        self.fenced = record.fenced.into_iter().collect();
        let earlier = std::mem::take(&mut self.nodes);
        self.by_id.clear();
        self.by_incarnation.clear();
        self.groups.begin_epoch(true);
        let ranked = record.seats.iter().map(|seat| (seat.register.role, &seat.register.host.key[..], seat.rank));
        let places = places(&ranked.collect::<Vec<_>>());
        for (seat, place) in record.seats.into_iter().zip(places) {
            let first = if seat.register.role == Role::Server { self.rules.worker_num } else { 0 };
            let index = first + seat.rank;
            if earlier.get(&index).is_some_and(|earlier| earlier.register.incarnation != seat.register.incarnation) {
                self.store.gone(index);
                self.groups.uses_again(index);
            }
            self.by_id.insert(canonical(&seat.register.node_id).to_string(), index);
            self.by_incarnation.insert(seat.register.incarnation, index);
            let mut node = Node::new(seat.register, None, ConnId(0), now);
            let words = "the scheduler was started again".to_owned();
            node.conn = None;
            node.detached =
                Some(Detached { since: now, how: Closed::Broken, words, probe_wait: Duration::from_millis(1) });
            node.place = Some(place);
            node.token = seat.token;
            node.restarts = seat.restarts;
            node.epoch = Epoch(0); // it says so
            self.nodes.insert(index, Box::new(node));
        }
        self.present = self.nodes.len();
        self.list_members();
        // Some have been told of the epoch already: the others are told the same, wherever this scheduler was started.
        if self.is_one_host {
            self.rules.one_host.clone_from(&record.agreed.thresholds);
        }
        let thresholds = std::mem::take(&mut self.rules.agreed.thresholds);
        self.rules.agreed = record.agreed;
        if self.is_one_host {
            self.rules.agreed.thresholds = thresholds;
        }
    }

    fn take_up_left(&mut self, key: u32) {
        if let Some(node) = self.nodes.get_mut(&key).filter(|node| node.is_member()) {
            node.presence.leave();
            self.present -= 1;
            self.job.left_by(key);
            self.free_groups_of(key);
        }
    }

    /// What a node was told by this scheduler before it was started again: everybody is to know.
    pub(super) fn known(&mut self, now: Time, known: Known) {
        if known.epoch != self.epoch || !self.job.is_complete() {
            return;
        }
        if let Some(failure) = known.failure.filter(|failure| failure.status != Status::Fenced) {
            for key in known.lost {
                self.is_lost_already(now, key);
            }
            // An abort is for good, whoever was found lost, or has left, before it was known again.
            if !self.job.is_broken() || (failure.status == Status::Aborted && !self.job.is_aborted()) {
                self.break_job(now, failure);
                self.end_recovery_without();
            }
        }
        for failure in known.revoked {
            let Some(group) = failure.group.filter(|group| !self.revoked.contains_key(group)) else { continue };
            if !self.job.is_broken() && self.members_of(group).is_some() {
                self.revoke_group(now, group, failure);
            }
        }
    }

    /// A node had been given up before this scheduler was started again.
    fn is_lost_already(&mut self, now: Time, key: u32) {
        let stands = self.nodes.get(&key).is_some_and(|node| node.is_member() && !node.is_back());
        if !stands || self.lost.contains(&key) {
            return;
        }
        self.lose(now, key);
        if let (Some(conn), Some(failure)) = (self.nodes[&key].conn, self.job.verdict().cloned()) {
            self.send(conn, Message::Verdict(Verdict { failure }));
        }
        self.tell_lost();
        self.end_if_abandoned(now, key);
    }
}

#[cfg(test)]
#[path = "held_test.rs"]
mod held_tests;
#[cfg(test)]
#[path = "promises_test.rs"]
mod tests;
