//! What all parts of the scheduler's brain stand on: the job, its nodes and their connections, and what goes out.
//!
//! Parts above change it and say things through it; it knows none of them. Tested through the whole brain.

use super::connection_table::ConnectionTable;
use super::contract::{ConnId, Identity, Output, Rules};
use super::job::Job;
use super::member_table::MemberTable;
use super::node::counted;
use super::nodes::Nodes;
use super::outbox::Outbox;
use super::promises::{Behind, Queued};
use crate::error::{Culprit, Error, Failure, Status};
use crate::types::{Epoch, Role, Time};
use crate::wire::{JobNews, Located, LostNodes, Member, Message, Rejected};
use std::time::Duration;

/// The generation of a scheduler that was not started again.
pub(super) const FIRST_GENERATION: u64 = 1;

/// The job and its nodes, as the scheduler knows them.
#[derive(Debug)]
pub(super) struct ClusterState {
    pub(super) identity: Identity,
    pub(super) rules: Rules,
    pub(super) started: Time,
    /// How often this job's scheduler was started.
    pub(super) generation: u64,
    /// The number of the newest complete epoch.
    pub(super) epoch: Epoch,
    pub(super) job: Job,
    pub(super) nodes: Nodes,
    /// Once the cluster has formed: every node, as the others are told of it.
    pub(super) table: MemberTable,
    pub(super) connections: ConnectionTable,
    /// What launchers that watch the job were told last: whether it forms, and what has broken it.
    watched: (bool, Option<Status>),
    pub(super) out: Outbox,
}

impl ClusterState {
    pub(super) fn new(identity: Identity, rules: Rules, now: Time) -> ClusterState {
        ClusterState {
            started: now,
            generation: FIRST_GENERATION,
            epoch: Epoch::FIRST,
            job: Job::new(rules.recovery),
            nodes: Nodes::default(),
            table: MemberTable::default(),
            connections: ConnectionTable::new(rules.worker_num, rules.server_num),
            watched: (true, None),
            out: Outbox::new(rules.durable),
            identity,
            rules,
        }
    }

    /// How long silence lasts before it means death.
    pub(super) fn silence(&self) -> Duration {
        Duration::from_millis(self.rules.agreed.heartbeat_timeout_ms.max(1))
    }

    /// How often heartbeats come.
    pub(super) fn interval(&self) -> Duration {
        self.silence() / 5
    }

    pub(super) fn number_of(&self, role: Role) -> u32 {
        match role {
            Role::Server => self.rules.server_num,
            Role::Worker | Role::Scheduler => self.rules.worker_num,
        }
    }

    /// `4 workers`, `4 workers and 1 server`
    pub(super) fn size_in_words(&self) -> String {
        let workers = counted(self.rules.worker_num, Role::Worker);
        match self.rules.server_num {
            0 => workers,
            servers => format!("{workers} and {}", counted(servers, Role::Server)),
        }
    }

    /// Whether what a node says is of the present epoch.
    pub(super) fn is_present(&self, key: u32) -> bool {
        self.nodes.get(&key).is_some_and(|node| node.epoch == Some(self.epoch))
    }

    /// Whether this node's loss is the job's first cause.
    pub(super) fn is_culprit(&self, key: u32) -> bool {
        let Some(first) = self.job.verdict().filter(|first| first.status == Status::PeerLost) else { return false };
        self.nodes.get(&key).is_some_and(|node| first.culprit.as_ref().is_some_and(|named| named.is(&node.culprit())))
    }

    /// A cause that lies in this epoch, and in no group.
    pub(super) fn failure(&self, status: Status, culprit: Option<Culprit>, cause: String) -> Failure {
        Failure { status, culprit, cause, epoch: self.epoch, group: None, sequence: 0 }
    }

    pub(super) fn send_to(&mut self, key: u32, message: Message) {
        if let Some(conn) = self.nodes.conn(key) {
            self.out.send(conn, message);
        }
    }

    /// Every node that is connected is told.
    pub(super) fn send_to_all(&mut self, message: &Message) {
        for conn in self.nodes.conns() {
            self.out.send(conn, message.clone());
        }
    }

    /// Everybody learns who is lost by now.
    pub(super) fn tell_lost(&mut self) {
        self.send_to_all(&Message::LostNodes(LostNodes { epoch: self.epoch, nodes: self.nodes.lost() }));
    }

    /// Where a node can be reached.
    pub(super) fn locate(&mut self, key: u32, index: u32) {
        match self.table.members.get(index as usize) {
            Some(member) => {
                let member = Member::clone(member);
                self.send_to(key, Message::Located(Located { member }));
            }
            None => {
                self.out.note(format!("a node asked for index {index}: there are {} nodes", self.table.members.len()))
            }
        }
    }

    /// Closes a connection once all that is still to be sent on it has been sent, and forgets it.
    pub(super) fn drop_connection(&mut self, conn: ConnId) {
        if self.connections.forget(conn).is_some() {
            self.out.close(conn);
        }
    }

    /// Refuses what a connection wants, for this reason, and closes it.
    pub(super) fn reject(&mut self, conn: ConnId, status: Status, reason: String) {
        self.out.send(conn, Message::Rejected(Rejected { status, reason }));
        self.drop_connection(conn);
    }

    /// Closes a connection that its node has replaced. The node asks again for what was still to be said on it, and it
    /// may have to hear at once that the connection is closed.
    pub(super) fn close_at_once(&mut self, conn: ConnId) {
        self.out.promises.forget(conn);
        if self.connections.forget(conn).is_some() {
            self.out.output(Output::Close(conn));
        }
    }

    /// The cluster will not become complete: everybody fails with the same sentence.
    pub(super) fn fail_forming(&mut self, status: Status, reason: String) {
        for conn in self.connections.all().into_iter().filter(|conn| !self.connections.is_watcher(*conn)) {
            self.out.send(conn, Message::Rejected(Rejected { status, reason: reason.clone() }));
        }
        self.out.warn(reason.clone());
        self.end(Err(Error::new(status, reason)));
    }

    /// Tells those that watch the job how it is, if it has changed since they were told.
    pub(super) fn tell_watchers(&mut self) {
        let stage = (self.job.is_forming(), self.job.verdict().map(|failure| failure.status));
        if !self.job.has_ended() && std::mem::replace(&mut self.watched, stage) != stage {
            self.connections.tell_watchers(&self.job.news(self.identity.instance), Behind::Nothing, &mut self.out);
        }
    }

    /// Closes everything. Nothing follows.
    pub(super) fn end(&mut self, result: Result<(), Error>) {
        let why = result.as_ref().err().map(|error| error.message().to_owned());
        let news = JobNews { why, ended: true, ..self.job.news(self.identity.instance) };
        self.connections.tell_watchers(&news, Behind::Everything, &mut self.out);
        for conn in self.connections.all() {
            self.drop_connection(conn);
        }
        self.job.end();
        self.out.tell_last_counted();
        self.out.put_out(Behind::Everything, Queued::Ready(Output::Ended(result)));
    }
}
