//! The scheduler's brain: admission, rank rules, liveness, verdicts, revocation, the store.
//!
//! The drive contract, nowhere broken: **feed one input ([`Scheduler::handle`]), then drain its outputs
//! ([`Scheduler::next_output`]) until there are none.** Nothing else changes its state. It names no socket, thread, file
//! or clock: time, identities and secrets come in as arguments.
//!
//! The brain is several types, which call each other downwards only:
//!
//! | type | what it owns |
//! | --- | --- |
//! | [`Scheduler`] | what comes in, and to which part it goes; which life may join |
//! | [`Conductor`] | the parts, and what follows in several of them from one thing: breaking, leaving, rejoining, ending |
//! | [`Forming`], [`FailureDetector`], [`Groups`], [`Stragglers`], [`Recovery`], [`Store`] | one matter each; none knows another, but that `Stragglers` reads `Groups` |
//! | [`ClusterState`] | the job's state ([`Job`]), its [`Nodes`], their [`ConnectionTable`], and what goes out ([`Outbox`]) |
//!
//! Owns: who is a member, which rank each has, who is lost and why, what is revoked, and the store. Invariants:
//! - Ranks are unique and dense.
//! - The first cause of a broken job or group is kept, and nothing later replaces it.
//! - A connection that was closed by an [`Output::Close`] is forgotten, whatever inputs still come from it.
//! - The work for a heartbeat or a request to the store does not grow with the number of nodes.
//!
//! Deliberately absent: files. What is to be durable is an output like others. Tested in the `*_test.rs` beside the
//! files, through `testing.rs`, and in `src/sim`.

mod abandoned;
mod admission;
mod breaking;
mod by_members;
mod cluster_state;
mod comparing;
mod conductor;
mod connection_table;
mod contact;
mod contract;
mod course;
mod creation;
mod dispute;
mod ending;
mod entries;
mod formed;
mod forming;
mod group_table;
mod groups;
mod job;
mod joining;
mod journal_rollback;
mod launcher;
mod leaving;
mod liveness;
mod member_table;
mod next_epoch;
mod node;
mod nodes;
mod outbox;
mod pacts;
mod promises;
mod ranks;
mod record_check;
mod recovery;
mod rejoining;
mod restart;
mod returning;
mod revocation;
mod revoking;
mod standing;
mod status;
mod store;
mod stragglers;
mod suspicion;
mod timers;

#[cfg(test)]
mod random_test;
#[cfg(test)]
pub(crate) mod testing;

pub use contract::{Closed, ConnId, Identity, Input, Liveness, Output, Rules, StoreLimits};
pub use record_check::{check_records, Absurd};

use crate::types::{Incarnation, Time};
use crate::wire::{Heartbeat, Message, Record, StorePiece, StoreRecord, STORE_PIECE_BYTES};
use conductor::Conductor;
use connection_table::Purpose;
use promises::{Behind, Queued};
use std::collections::HashSet;
use store::Store;
use timers::Due;

#[cfg(doc)]
use {
    cluster_state::ClusterState, connection_table::ConnectionTable, forming::Forming, groups::Groups, job::Job,
    liveness::FailureDetector, nodes::Nodes, outbox::Outbox, recovery::Recovery, stragglers::Stragglers,
};

/// The scheduler's brain. See the module's head for its drive contract.
#[derive(Debug)]
pub struct Scheduler {
    conductor: Conductor,
    /// Lives that were refused, and that the log has told of.
    refused: HashSet<Incarnation>,
}

impl Scheduler {
    /// A scheduler that begins to form its cluster now.
    pub fn new(identity: Identity, rules: Rules, now: Time) -> Scheduler {
        let mut scheduler = Scheduler { conductor: Conductor::new(identity, rules, now), refused: HashSet::new() };
        let cluster = &mut scheduler.conductor.cluster;
        cluster.out.at(now + forming::FIRST_LINE, Due::FormingLine);
        cluster.out.at(now + cluster.interval(), Due::Tick);
        scheduler.arm();
        scheduler
    }

    /// A scheduler that goes on with a recorded job. [`check_records`] must have found the records possible. If there
    /// is no epoch in them, the job forms anew.
    pub fn resume(identity: Identity, rules: Rules, now: Time, records: Vec<Record>) -> Scheduler {
        let mut scheduler = Scheduler::new(identity, rules, now);
        records.into_iter().for_each(|record| scheduler.conductor.take_up(now, record));
        scheduler.conductor.goes_on_again(now);
        scheduler.conductor.cluster.tell_watchers();
        scheduler.arm();
        scheduler
    }

    /// Everything that a restarted scheduler must know. It replaces the journal's content when the journal is
    /// rewritten.
    pub fn snapshot(&self) -> Vec<Record> {
        self.conductor.snapshot()
    }

    /// Takes one thing that has happened. Drain the outputs afterwards.
    pub fn handle(&mut self, now: Time, input: Input) {
        if let (true, Input::Persisted(number)) = (self.has_ended(), &input) {
            return self.conductor.cluster.out.persisted(*number);
        }
        if let Input::Received(conn, Message::Heartbeat(heartbeat)) = &input {
            if self.conductor.cluster.connections.get(*conn).is_none() {
                return self.conductor.cluster.answer_behind_goodbye(*conn, heartbeat.sequence);
            }
        }
        if self.has_ended() {
            return;
        }
        self.forgive_own_lateness(now);
        match input {
            Input::Opened(conn, address) => {
                self.conductor.cluster.connections.opened(now, conn, address, &mut self.conductor.cluster.out);
            }
            Input::ShortOfDescriptors(none_left) => {
                self.conductor.cluster.connections.are_short(none_left, &mut self.conductor.cluster.out);
            }
            Input::Received(conn, message) => {
                self.received(now, conn, message);
                self.conductor.forming.heard(&mut self.conductor.cluster, now, conn);
            }
            Input::Heard(conn) => {
                let key = self.conductor.cluster.connections.node(conn);
                if let Some(node) = key.and_then(|key| self.conductor.cluster.nodes.get_mut(key)) {
                    node.contact.heard = now;
                }
            }
            Input::Closed(conn, how, words) => self.closed(now, conn, how, words),
            Input::Probed(process, liveness) => {
                let losses = self.conductor.detector.probed(&mut self.conductor.cluster, now, process, liveness);
                self.conductor.confirm_losses(now, losses);
            }
            Input::Secret(secret) => self.conductor.secret(now, secret),
            Input::Persisted(number) => self.conductor.cluster.out.persisted(number),
            Input::Timer => {
                self.conductor.cluster.out.is_woken();
                self.timer(now);
            }
            Input::Stop => self.conductor.stop(),
        }
        self.conductor.cluster.tell_watchers();
        self.arm();
    }

    /// Whether the scheduler knows its job from its launcher.
    pub fn has_derived_job(&self) -> bool {
        self.conductor.cluster.rules.derived_job.is_some()
    }

    /// Whether nothing follows any more, except what waits to be durable.
    pub fn has_ended(&self) -> bool {
        self.conductor.cluster.job.has_ended()
    }

    /// The next thing to do; `None`: nothing until the next input.
    pub fn next_output(&mut self) -> Option<Output> {
        loop {
            match self.conductor.cluster.out.pop()? {
                Queued::Ready(output) => return Some(output),
                Queued::Formed(epoch, mut to) => {
                    let Some((conn, index)) = to.pop_front() else { continue };
                    if !to.is_empty() {
                        self.conductor.cluster.out.put_back(Queued::Formed(epoch, to));
                    }
                    if epoch != self.conductor.cluster.epoch || self.conductor.cluster.nodes.conn(index) != Some(conn) {
                        continue; // this node will be told of the present epoch
                    }
                    let formed = self.conductor.cluster.formed(index, self.conductor.groups.table.creations_of(index));
                    return Some(Output::Send(conn, Message::Formed(formed)));
                }
                Queued::Value(conn, request, value, at) => {
                    let end = (at + STORE_PIECE_BYTES).min(value.len());
                    let bytes = value.slice(at, end);
                    if end < value.len() {
                        self.conductor.cluster.out.put_back(Queued::Value(conn, request, value, end));
                    }
                    return Some(Output::Send(conn, Message::StorePiece(StorePiece { request, bytes })));
                }
            }
        }
    }

    /// Tells the driver when to wake the brain, if that has changed.
    fn arm(&mut self) {
        if !self.has_ended() {
            let forming = self.conductor.forming.deadline.filter(|_| self.conductor.cluster.job.is_forming());
            self.conductor.cluster.out.arm(forming);
        }
    }

    /// If this scheduler was itself kept from running, all deadlines of others move by as much. The deadline of forming
    /// does not: it is a budget, and the nodes count it too.
    fn forgive_own_lateness(&mut self, now: Time) {
        let cluster = &mut self.conductor.cluster;
        let Some(first) = cluster.out.first_due() else { return };
        let late = now.since(first);
        if late <= cluster.interval() {
            return;
        }
        cluster.out.shift_timers(late);
        self.conductor.detector.stood_still(now);
        cluster.connections.forgive(late);
        cluster.nodes.all_mut().for_each(|(_, node)| node.forgive(late, now));
        self.conductor.groups.forgive(late, now);
        cluster.out.note(format!("this scheduler stood still for {}: all deadlines move by as much", node::span(late)));
    }

    fn timer(&mut self, now: Time) {
        if self.conductor.cluster.job.is_forming()
            && self.conductor.forming.deadline.is_some_and(|deadline| deadline <= now)
        {
            return self.conductor.forming.time_is_up(&mut self.conductor.cluster, now, None);
        }
        while !self.has_ended() {
            let cluster = &mut self.conductor.cluster;
            let Some(due) = cluster.out.take_due(now) else { break };
            match due {
                Due::Greeting => cluster.connections.greeting_due(now, &mut cluster.out),
                Due::FormingLine => self.conductor.forming.line(cluster, now),
                Due::Tick => self.tick(now),
                Due::Judge(key) => self.conductor.judge(now, key),
                Due::Answer(key) => cluster.answer_suspicions(now, key),
                Due::Query(id) => self.conductor.stragglers.query_due(cluster, &self.conductor.groups, now, id),
                Due::Dispute(group, id) => self.conductor.groups.dispute_due(cluster, now, group, id),
                Due::Linger => self.conductor.end_broken(),
                Due::RecoveryLine => self.conductor.recovery.line(cluster, now),
                Due::Vacant => self.conductor.vacant(now),
                Due::Creations => self.conductor.groups.settle_creations(cluster, now),
            }
        }
    }

    /// An interval is over.
    fn tick(&mut self, now: Time) {
        let cluster = &mut self.conductor.cluster;
        cluster.out.at(now + cluster.interval(), Due::Tick);
        cluster.out.tell_counted(now);
        if cluster.job.is_forming() {
            return self.conductor.forming.free_silent_places(cluster, now);
        }
        let losses = self.conductor.detector.tick(cluster, now);
        self.conductor.confirm_losses(now, losses);
    }

    /// A message of a registered node, or the first of a connection.
    fn received(&mut self, now: Time, conn: ConnId, message: Message) {
        let Some(known) = self.conductor.cluster.connections.get(conn) else { return };
        let key = match known.purpose {
            Purpose::Node(key) => key,
            purpose => return self.of_no_node(now, conn, purpose, message),
        };
        let Some(node) = self.conductor.cluster.nodes.get_mut(key) else { return };
        node.contact.heard = now;
        let is_lost = node.presence.is_lost();
        match message {
            Message::Register(register) if node.is_the_same(&register) => self.register(now, conn, register),
            Message::Leave => {
                if is_lost && self.may_go_on(key) {
                    self.conductor.cluster.nodes.counts_again(key); // it is there: the others hear that a member has left
                    self.conductor.cluster.tell_lost();
                }
                self.conductor.leave(now, key);
            }
            // The sender has been told that it is lost: nothing that it still wants counts.
            message if is_lost && !matches!(message, Message::Register(_)) => {
                self.heard_of_lost(now, conn, key, &message);
            }
            Message::Heartbeat(heartbeat) => self.heartbeat(now, key, heartbeat),
            Message::TimeUp if self.conductor.cluster.job.is_forming() => {
                self.conductor.forming.time_is_up(&mut self.conductor.cluster, now, Some(key));
            }
            Message::TimeUp => self.conductor.gives_up_returning(now, key),
            Message::Gone => self.conductor.gone(now, key, conn),
            Message::Abort(abort) => self.conductor.abort(now, key, &abort),
            message if self.conductor.cluster.job.is_forming() => self.misbehaved(now, conn, &message),
            Message::InEpoch(word) => self.conductor.in_epoch(key, &word),
            Message::Known(known) => self.conductor.known(now, key, known),
            Message::Recover(wish) => self.conductor.recover(now, key, &wish),
            Message::Locate(locate) => self.conductor.cluster.locate(key, locate.index),
            Message::FreeGroup(free) => self.conductor.groups.free_group(&mut self.conductor.cluster, key, free.group),
            Message::StoreBegin(begin) => {
                let held = self.conductor.cluster.out.promises.replies_to(conn);
                self.store(|store| store.begin(key, begin, held));
            }
            Message::StorePiece(piece) => self.store(|store| store.piece(key, piece)),
            Message::StoreCancel(cancel) => self.store(|store| store.cancel(key, cancel.request)),
            message => self.of_epoch(now, conn, key, message),
        }
    }

    /// The first message of a connection, or a later message of a connection that asks how the job is or watches it.
    fn of_no_node(&mut self, now: Time, conn: ConnId, purpose: Purpose, message: Message) {
        let kind = message.kind();
        match message {
            _ if matches!(purpose, Purpose::Watches) => {
                self.stranger(conn, &format!("it watches the job, and sent kind {kind}"));
            }
            Message::StatusQuery(query) => self.tell_status(now, conn, &query),
            _ if matches!(purpose, Purpose::Reads(_)) => {
                self.stranger(conn, &format!("it asked how the job is, and then sent kind {kind}"));
            }
            Message::Watch(watch) => self.watch(conn, &watch),
            Message::Register(register) => self.register(now, conn, register),
            Message::ChildEnded(word) => self.child_ended(now, conn, &word),
            Message::Abandoned(word) => self.abandoned(now, conn, &word),
            _ => self.stranger(conn, &format!("its first message was of kind {kind}")),
        }
    }

    fn stranger(&mut self, conn: ConnId, why: &str) {
        self.conductor.cluster.connections.stranger(conn, why, &mut self.conductor.cluster.out);
    }

    /// A node that is lost is heard over the connection that it had when it fell silent. If it may go on, it is to
    /// register again: then it learns what it has missed, and asks anew what was not answered.
    fn heard_of_lost(&mut self, now: Time, conn: ConnId, key: u32, message: &Message) {
        if self.may_go_on(key) {
            self.conductor.cluster.out.output(Output::Close(conn));
            self.closed(now, conn, Closed::Ended, "it was lost, and is heard again".to_owned());
        } else if matches!(message, Message::Recover(_)) {
            self.conductor.cluster.refuse_recovery_of_lost(key);
        }
    }

    /// A message about groups, or about a peer: it counts where its sender has taken up the present epoch.
    fn of_epoch(&mut self, now: Time, conn: ConnId, key: u32, message: Message) {
        let cluster = &mut self.conductor.cluster;
        let counts = cluster.is_present(key);
        match message {
            Message::Suspect(_)
            | Message::Revoke(_)
            | Message::WhereAre(_)
            | Message::MakeGroup(_)
            | Message::MakeByMembers(_)
            | Message::Called(_)
                if !counts => {} // it is of an epoch that is over
            Message::Suspect(suspect) => {
                let peer = suspect.peer;
                if cluster.suspect(now, key, suspect) {
                    self.conductor.detector.look_into(cluster, now, peer);
                }
            }
            Message::Revoke(revoke) => self.conductor.groups.revoke(cluster, now, key, revoke.failure),
            Message::WhereAre(question) => {
                self.conductor.stragglers.where_are(cluster, &self.conductor.groups, now, key, question)
            }
            Message::Called(called) => self.conductor.groups.called(cluster, now, key, &called),
            Message::MakeGroup(wanted) => self.conductor.groups.make_group(cluster, now, key, wanted),
            Message::MakeByMembers(wanted) => self.conductor.make_by_members(key, wanted),
            message => self.misbehaved(now, conn, &message),
        }
    }

    fn heartbeat(&mut self, now: Time, key: u32, heartbeat: Heartbeat) {
        let cluster = &mut self.conductor.cluster;
        self.conductor.detector.heartbeat(cluster, now, key, &heartbeat);
        if cluster.job.is_complete() && cluster.is_present(key) {
            let groups = &mut self.conductor.groups;
            groups.compare_calls(cluster, now, key, &heartbeat.progress);
            // This comes first: what follows answers the nodes that asked where this one is.
            self.conductor.stragglers.keep_waits(cluster, groups, now, key, heartbeat.waits);
            self.conductor.stragglers.keep_carriers(cluster, groups, key, heartbeat.carriers.0);
            self.conductor.stragglers.keep_progress(cluster, groups, now, key, heartbeat.progress);
            groups.keep_gone_on(key, &heartbeat.gone_on);
        }
        let is_said = |key| cluster.nodes.get(key).is_some_and(|node| node.abandoned.is_said_here());
        if self.conductor.recovery.is_open() && is_said(&key) {
            self.conductor.recover_if_complete(now); // this node lives, and may be the last that was awaited
        }
    }

    /// A registered node sent what a node never sends at this moment: that ends its connection.
    fn misbehaved(&mut self, now: Time, conn: ConnId, message: &Message) {
        self.conductor.cluster.out.output(Output::Close(conn));
        let words = format!("it sent a message of kind {} out of turn", message.kind());
        self.closed(now, conn, Closed::Garbage, words);
    }

    fn closed(&mut self, now: Time, conn: ConnId, how: Closed, words: String) {
        let cluster = &mut self.conductor.cluster;
        if let Some(host) = cluster.connections.strange_host(conn) {
            self.conductor.forming.turned_away.note(how, host, &words);
        }
        let Some(key) = cluster.connections.closed(conn, how, &words, &mut cluster.out) else { return };
        if cluster.nodes.conn(key) != Some(conn) {
            return;
        }
        if cluster.job.is_forming() {
            self.conductor.forming.detached(cluster, now, key, how, words);
        } else if cluster.job.is_complete() {
            self.conductor.store.detached(key);
            if cluster.detached(now, key, how, words) {
                self.conductor.answers_no_more(now, key);
                self.conductor.detector.judge_soon(&mut self.conductor.cluster, now, key);
            }
        }
    }

    /// Lets the store act, and passes on what it answers.
    fn store(&mut self, act: impl FnOnce(&mut Store)) {
        act(&mut self.conductor.store);
        let cluster = &mut self.conductor.cluster;
        while let Some(change) = self.conductor.store.next_change() {
            let by = change.by.and_then(|(node, request, number, nth)| {
                Some((node, cluster.nodes.get(&node)?.register.incarnation, request, number, nth))
            });
            cluster.out.promise(Record::Store(StoreRecord { entries: change.entries, by }));
        }
        while let Some(answer) = self.conductor.store.next_answer() {
            let Some(conn) = cluster.nodes.conn(answer.to) else { continue };
            let request = answer.reply.request;
            if answer.is_too_much {
                cluster.out.send_behind(Behind::Nothing, conn, Message::StoreReply(answer.reply));
                continue;
            }
            cluster.out.send(conn, Message::StoreReply(answer.reply));
            if let Some(value) = answer.value.filter(|value| !value.is_empty()) {
                cluster.out.put_out(Behind::Everything, Queued::Value(conn, request, value, 0));
            }
        }
    }
}
