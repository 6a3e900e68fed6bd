//! The scheduler's brain: admission, rank rules, liveness, verdicts, revocation, the store.
//!
//! The drive contract, nowhere broken: **feed one input ([`Scheduler::handle`]), then drain its outputs
//! ([`Scheduler::next_output`]) until there are none.** Nothing else changes its state. It names no socket, thread, file
//! or clock: time, identities and secrets come in as arguments.
//!
//! Owns: who is a member, which rank each has, who is lost and why, what is revoked, and the store. Invariants: ranks are
//! unique and dense; the first cause of a broken job or group is kept, and nothing later replaces it; a connection that
//! was closed by an [`Output::Close`] is forgotten, whatever else is fed of it; the work for a heartbeat or a request to the
//! store does not grow with the number of nodes. Deliberately absent: files: what is to be
//! durable is an output like others.
//! Tested in the `*_test.rs` beside the files, through `testing.rs`, and in `src/sim`.

mod admission;
mod connections;
mod contract;
mod dispute;
mod ending;
mod forming;
mod groups;
mod job;
mod journal_rollback;
mod launcher;
mod liveness;
mod node;
mod promises;
mod ranks;
mod record_check;
mod recovery;
mod returning;
mod revocation;
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
pub use record_check::{check_history, Absurd};

use crate::types::{Epoch, GroupId, Incarnation, Process, Role, Secret, Time};
use crate::wire::{Blob, Member, Members, Message, Record, StorePiece, StoreRecord, STORE_PIECE_BYTES};
use connections::Connections;
use dispute::Dispute;
use groups::Groups;
use job::Job;
use node::Node;
use promises::Promises;
use recovery::Recovery;
use revocation::{Calls, Revocation};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::time::Duration;
use store::Store;
use stragglers::Query;
use timers::{Due, Timers};

/// The first epoch.
const FIRST_EPOCH: Epoch = Epoch(1);

/// An output, or one that is made only when it is taken: the members that a node of a large cluster is told of, the
/// pieces of a long value.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // most of them are the large one
enum Queued {
    Ready(Output),
    /// Of this epoch, to these connections, of the nodes with these indices.
    Formed(Epoch, VecDeque<(ConnId, u32)>),
    /// What is left of a value, from this byte on.
    Value(ConnId, u64, Blob, usize),
}

/// The scheduler's brain. See the module's head for its drive contract.
#[derive(Debug)]
pub struct Scheduler {
    identity: Identity,
    rules: Rules,
    started: Time,
    job: Job,
    outputs: VecDeque<Queued>,
    timers: Timers,
    forming_deadline: Option<Time>,
    armed: Option<Time>,
    connections: Connections,
    /// While forming by order of registration, then by index. Each by itself, for a tree leaves much of its room unused.
    nodes: BTreeMap<u32, Box<Node>>,
    next_key: u32,
    by_incarnation: HashMap<Incarnation, u32>,
    /// By canonical id.
    by_id: HashMap<String, u32>,
    /// While forming: who has which explicit rank.
    ranks_held: HashMap<(Role, u32), u32>,
    /// While forming: how many workers and servers are here.
    here: [u32; 2],
    /// Once formed: every node.
    members: Members,
    /// Whether they are all on one host.
    is_one_host: bool,
    /// How many nodes are members still.
    present: usize,
    revoked: BTreeMap<GroupId, Revocation>,
    calls: HashMap<GroupId, Calls>,
    disputes: BTreeMap<GroupId, Dispute>,
    queries: Vec<Query>,
    next_query: u64,
    /// Which nodes each open probe is for.
    probes: HashMap<Process, Vec<u32>>,
    /// While this scheduler stood still, nodes whose connections ended could not come back: until then a witness does
    /// not count.
    witnesses_count_from: Time,
    store: Store,
    groups: Groups,
    /// The newest complete one.
    epoch: Epoch,
    /// While at least one node waits for the next.
    recovery: Option<Recovery>,
    /// The next epoch's.
    spare_secret: Option<Secret>,
    /// The nodes lost in this epoch, those included that have come back since.
    lost: BTreeSet<u32>,
    /// Lives that others have replaced.
    fenced: HashSet<Incarnation>,
    /// Lives that were refused, of which the log knows.
    refused: HashSet<Incarnation>,
    /// How often this job's scheduler was started.
    generation: u64,
    promises: Promises,
}

impl Scheduler {
    /// A scheduler that begins to form its cluster now.
    pub fn new(identity: Identity, rules: Rules, now: Time) -> Scheduler {
        let forming_deadline = rules.forming_timeout.map(|span| now + span);
        let mut scheduler = Scheduler {
            started: now,
            job: Job::new(rules.recovery),
            outputs: VecDeque::new(),
            timers: Timers::default(),
            forming_deadline,
            armed: None,
            connections: Connections::new(rules.worker_num, rules.server_num),
            nodes: BTreeMap::new(),
            next_key: 0,
            by_incarnation: HashMap::new(),
            by_id: HashMap::new(),
            ranks_held: HashMap::new(),
            here: [0; 2],
            members: Members::new(Vec::new()),
            is_one_host: false,
            present: 0,
            revoked: BTreeMap::new(),
            calls: HashMap::new(),
            disputes: BTreeMap::new(),
            queries: Vec::new(),
            next_query: 0,
            probes: HashMap::new(),
            witnesses_count_from: now,
            store: Store::new(rules.store, rules.durable),
            groups: Groups::default(),
            epoch: FIRST_EPOCH,
            recovery: None,
            spare_secret: None,
            lost: BTreeSet::new(),
            fenced: HashSet::new(),
            refused: HashSet::new(),
            generation: 1,
            promises: Promises::default(),
            identity,
            rules,
        };
        scheduler.timers.at(now + forming::FIRST_LINE, Due::FormingLine);
        scheduler.timers.at(now + scheduler.interval(), Due::Tick);
        scheduler.arm();
        scheduler
    }

    /// Takes one thing that has happened. Drain the outputs afterwards.
    pub fn handle(&mut self, now: Time, input: Input) {
        if let (true, Input::Persisted(number)) = (self.job.has_ended(), &input) {
            return self.persisted(*number);
        }
        if let Input::Received(conn, Message::Heartbeat(heartbeat)) = &input {
            if self.connections.get(*conn).is_none() {
                return self.answer_behind_goodbye(*conn, heartbeat.sequence);
            }
        }
        if self.job.has_ended() {
            return;
        }
        self.forgive_own_lateness(now);
        match input {
            Input::Opened(conn, address) => self.opened(now, conn, address),
            Input::Received(conn, message) => self.received(now, conn, message),
            Input::Heard(conn) => {
                if let Some(node) = self.connections.node(conn).and_then(|key| self.nodes.get_mut(&key)) {
                    node.heard = now;
                }
            }
            Input::Closed(conn, how, words) => self.closed(now, conn, how, words),
            Input::Probed(process, liveness) => self.probed(now, process, liveness),
            Input::Secret(secret) => self.secret(now, secret),
            Input::Persisted(number) => self.persisted(number),
            Input::Timer => {
                self.armed = None; // used up: whatever comes next is told
                self.timer(now);
            }
            Input::Stop => self.stop(),
        }
        self.arm();
    }

    /// Whether nothing follows any more but what waits to be durable.
    pub fn has_ended(&self) -> bool {
        self.job.has_ended()
    }

    /// The next thing to do; `None`: nothing until the next input.
    pub fn next_output(&mut self) -> Option<Output> {
        loop {
            match self.outputs.pop_front()? {
                Queued::Ready(output) => return Some(output),
                Queued::Formed(epoch, mut to) => {
                    let Some((conn, index)) = to.pop_front() else { continue };
                    if !to.is_empty() {
                        self.outputs.push_front(Queued::Formed(epoch, to));
                    }
                    if epoch != self.epoch || self.nodes.get(&index).is_none_or(|node| node.conn != Some(conn)) {
                        continue; // it will be told of what is now
                    }
                    return Some(Output::Send(conn, Message::Formed(self.formed(index))));
                }
                Queued::Value(conn, request, value, at) => {
                    let end = (at + STORE_PIECE_BYTES).min(value.len());
                    let bytes = value.slice(at, end);
                    if end < value.len() {
                        self.outputs.push_front(Queued::Value(conn, request, value, end));
                    }
                    return Some(Output::Send(conn, Message::StorePiece(StorePiece { request, bytes })));
                }
            }
        }
    }

    /// How long silence lasts before it means death.
    fn silence(&self) -> Duration {
        Duration::from_millis(self.rules.agreed.heartbeat_timeout_ms.max(1))
    }

    /// How often heartbeats come.
    fn interval(&self) -> Duration {
        self.silence() / 5
    }

    fn output(&mut self, output: Output) {
        self.outputs.push_back(Queued::Ready(output));
    }

    fn send_to(&mut self, key: u32, message: Message) {
        if let Some(conn) = self.nodes.get(&key).and_then(|node| node.conn) {
            self.send(conn, message);
        }
    }

    /// A line that people should see.
    fn warn(&mut self, line: String) {
        self.output(Output::Log { quiet: false, line });
    }

    /// A line for those who look for it.
    fn note(&mut self, line: String) {
        self.output(Output::Log { quiet: true, line });
    }

    /// Tells the driver when it wants to be woken, where that has changed.
    fn arm(&mut self) {
        if self.job.has_ended() {
            return;
        }
        let forming = self.forming_deadline.filter(|_| self.job.is_forming());
        let first = self.timers.first().into_iter().chain(forming).min();
        if first != self.armed {
            self.armed = first;
            self.output(Output::Arm(first.unwrap_or(Time::NEVER)));
        }
    }

    /// If this scheduler was itself kept from running, everybody's deadlines move by as much. Not that of forming: it is
    /// a budget, and the nodes count it too.
    fn forgive_own_lateness(&mut self, now: Time) {
        let Some(first) = self.timers.first() else { return };
        let late = now.since(first);
        if late <= self.interval() {
            return;
        }
        self.timers.shift(late);
        self.witnesses_count_from = now + liveness::REATTACH;
        self.connections.forgive(late);
        self.nodes.values_mut().for_each(|node| node.forgive(late, now));
        self.revoked.values_mut().for_each(|revoked| revoked.at.forgive(late, now));
        self.note(format!("this scheduler stood still for {}: all deadlines move by as much", node::span(late)));
    }

    fn timer(&mut self, now: Time) {
        if self.job.is_forming() && self.forming_deadline.is_some_and(|deadline| deadline <= now) {
            return self.forming_time_is_up(now, None);
        }
        while !self.job.has_ended() {
            let Some(due) = self.timers.take(now) else { break };
            match due {
                Due::Greeting => self.greeting_due(now),
                Due::FormingLine => self.forming_line(now),
                Due::Tick => self.tick(now),
                Due::Judge(key) => self.judge(now, key),
                Due::Answer(key) => self.answer_suspicions(now, key),
                Due::Query(id) => self.query_due(now, id),
                Due::Dispute(group, id) => self.dispute_due(now, group, id),
                Due::Linger => self.end_broken(),
                Due::RecoveryLine => self.recovery_line(now),
                Due::Vacant => self.vacant(now),
                Due::Makings => self.settle_makings(now),
            }
        }
    }

    /// The indices of a group's members, in order of rank; none for a group that is not known here.
    fn members_of(&self, group: GroupId) -> Option<Vec<u32>> {
        match self.built_in(group) {
            Some(range) => Some(range.collect()),
            None => self.groups.members(group).map(<[u32]>::to_vec),
        }
    }

    /// Whether a node is a member of a group.
    fn is_in(&self, group: GroupId, key: u32) -> bool {
        match self.built_in(group) {
            Some(range) => range.contains(&key),
            None => self.groups.members(group).is_some_and(|members| members.contains(&key)),
        }
    }

    fn built_in(&self, group: GroupId) -> Option<Range<u32>> {
        let (workers, all) = (self.rules.worker_num, self.rules.worker_num + self.rules.server_num);
        match group {
            GroupId::WORLD => Some(0..workers),
            GroupId::SERVERS => Some(workers..all),
            GroupId::UNIVERSE => Some(0..all),
            _ => None,
        }
    }

    /// A message of a registered node, or the first of a connection.
    fn received(&mut self, now: Time, conn: ConnId, message: Message) {
        let Some(known) = self.connections.get(conn) else { return };
        let Some(key) = known.node else {
            return match message {
                Message::StatusQuery(query) => self.tell_status(now, conn, &query),
                other if known.reading.is_some() => {
                    self.stranger(conn, &format!("it asked how the job is, and then sent kind {}", other.kind()));
                }
                Message::Register(register) => self.register(now, conn, register),
                Message::ChildEnded(word) => self.child_ended(now, conn, &word),
                Message::Abandoned(word) => self.abandoned(now, conn, &word),
                other => self.stranger(conn, &format!("its first message was of kind {}", other.kind())),
            };
        };
        let Some(node) = self.nodes.get_mut(&key) else { return };
        node.heard = now;
        if node.presence.is_lost() && !matches!(message, Message::Register(_) | Message::Leave) {
            // It has been told; nothing that it still wants counts.
            if self.may_go_on(key) {
                self.attaches_anew(now, conn);
            } else if matches!(message, Message::Recover(_)) {
                self.refuse_recovery_of_lost(key);
            }
            return;
        }
        match message {
            Message::Register(register) if register.incarnation == node.register.incarnation => {
                self.register(now, conn, register);
            }
            Message::Heartbeat(heartbeat) => self.heartbeat(now, key, heartbeat),
            Message::TimeUp => self.time_up(now, key),
            Message::Leave => self.leave(now, key),
            Message::Gone => self.gone(now, key, conn),
            Message::Abort(abort) => self.abort(now, key, abort),
            message if self.job.is_forming() => self.misbehaved(now, conn, &message),
            Message::InEpoch(word) => self.in_epoch(key, &word),
            Message::Known(known) => self.known(now, known),
            Message::Recover(wish) => self.recover(now, key, &wish),
            Message::Suspect(_)
            | Message::Revoke(_)
            | Message::WhereAre(_)
            | Message::MakeGroup(_)
            | Message::Called(_)
                if !self.is_present(key) => {} // of an epoch that is over
            Message::Suspect(suspect) => self.suspect(now, key, suspect),
            Message::Revoke(revoke) => self.revoke(now, key, revoke.failure),
            Message::WhereAre(question) => self.where_are(now, key, question),
            Message::Called(called) => self.called(now, key, &called),
            Message::Locate(locate) => self.locate(key, locate.index),
            Message::MakeGroup(wanted) => self.make_group(now, key, wanted),
            Message::FreeGroup(free) => self.free_group(key, free.group),
            Message::StoreBegin(begin) => {
                let held = self.promises.replies_to(conn);
                self.store(key, |store, key| store.begin(key, begin, held));
            }
            Message::StorePiece(piece) => self.store(key, |store, key| store.piece(key, piece)),
            Message::StoreCancel(cancel) => self.store(key, |store, key| store.cancel(key, cancel.request)),
            message => self.misbehaved(now, conn, &message),
        }
    }

    /// A registered node sent what a node never sends at this moment: that ends its connection.
    fn misbehaved(&mut self, now: Time, conn: ConnId, message: &Message) {
        self.output(Output::Close(conn));
        let words = format!("it sent a message of kind {} out of turn", message.kind());
        self.closed(now, conn, Closed::Garbage, words);
    }

    fn locate(&mut self, key: u32, index: u32) {
        match self.members.get(index as usize) {
            Some(member) => {
                let member = Member::clone(member);
                self.send_to(key, Message::Located(crate::wire::Located { member }));
            }
            None => self.note(format!("a node asked for index {index}: there are {} nodes", self.members.len())),
        }
    }

    /// Lets the store act, and passes on what it answers.
    fn store(&mut self, key: u32, act: impl FnOnce(&mut Store, u32)) {
        act(&mut self.store, key);
        while let Some(change) = self.store.next_change() {
            let by = change.by.and_then(|(node, request, number, nth)| {
                Some((node, self.nodes.get(&node)?.register.incarnation, request, number, nth))
            });
            self.promise(Record::Store(StoreRecord { key: Some(change.key), value: change.value, by }));
        }
        while let Some(answer) = self.store.next_answer() {
            let Some(conn) = self.nodes.get(&answer.to).and_then(|node| node.conn) else { continue };
            let request = answer.reply.request;
            if answer.is_too_much {
                self.put_out_at_once(Queued::Ready(Output::Send(conn, Message::StoreReply(answer.reply))));
                continue;
            }
            self.send(conn, Message::StoreReply(answer.reply));
            if let Some(value) = answer.value.filter(|value| !value.is_empty()) {
                self.put_out_durably(Queued::Value(conn, request, value, 0));
            }
        }
    }
}
