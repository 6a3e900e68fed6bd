//! Admission. Every refusal is one sentence that names both sides of the disagreement.
//!
//! Decisions: where only one side was given a job id, there is no disagreement; a node id is unique among workers and
//! servers together. Tested in `admission_test.rs`.

use super::contract::ConnId;
use super::node::{counted, name, span, Node};
use super::ranks::{canonical, rank_of_id};
use super::revocation::Revocation;
use super::standing::Presence;
use super::timers::Due;
use super::Scheduler;
use crate::error::Status;
use crate::types::{Role, Time};
use crate::wire::{
    LostNodes, Message, PassBy, Register, Rejected, Revoked, Verdict, PROTOCOL_HIGHEST, PROTOCOL_LOWEST,
};

/// Why not, and as which status.
pub(super) type Refusal = (Status, String);

/// How many lives that were refused are remembered.
pub(super) const REFUSED_MAX: usize = 4096;

pub(super) fn refused(reason: String) -> Result<(), Refusal> {
    Err((Status::Rejected, reason))
}

impl Scheduler {
    pub(super) fn register(&mut self, now: Time, conn: ConnId, register: Register) {
        let life = register.incarnation;
        let is_elsewheres = self.has_another_job(&register);
        let answer = match self.by_incarnation.get(&register.incarnation).copied() {
            Some(key) => {
                let has_joined = register.instance.is_some();
                let checked = self.check_instance(&register).and_then(|()| self.check_same_life(key, &register));
                checked.map(|()| match self.is_behind(key, &register) {
                    Some(words) => self.end_as_older_copy(&words),
                    None => self.register_again(now, conn, key, has_joined),
                })
            }
            None if self.rules.recovery && self.job.is_complete() => {
                self.check_fenced(&register).and_then(|()| self.come_back(now, conn, register))
            }
            None => self.come(now, conn, register),
        };
        if let Err((status, reason)) = answer {
            let line = format!("refused: {reason}");
            if self.refused.len() == REFUSED_MAX {
                self.refused.clear();
            }
            match self.refused.insert(life) && !is_elsewheres {
                true => self.warn(line),
                false => self.note(line), // it asks again and again
            }
            self.send(
                conn,
                match is_elsewheres {
                    true => Message::PassBy(PassBy { reason }),
                    false => Message::Rejected(Rejected { status, reason }),
                },
            );
            self.drop_connection(conn);
        }
    }

    /// A life that is not known registers while the cluster forms, or in vain. With recovery it may be a node's next one, whose
    /// last one still waits here: that is asked whether it lives, as when the cluster is complete.
    fn come(&mut self, now: Time, conn: ConnId, register: Register) -> Result<(), Refusal> {
        let Some(key) = self.last_life_of(&register) else {
            let rank = self.check(now, &register)?;
            self.admit(now, conn, register, rank);
            return Ok(());
        };
        self.check_newcomer(&register)?;
        let entry = self.challenge(now, key, &register)?;
        self.let_wait(conn, entry);
        Ok(())
    }

    fn admit(&mut self, now: Time, conn: ConnId, mut register: Register, explicit_rank: Option<u32>) {
        register.forget_what_was_checked();
        let key = self.next_key;
        self.next_key += 1;
        let rank = explicit_rank.map_or_else(String::new, |rank| format!(" as rank {rank}"));
        self.note(format!("admitted {} {}{rank}", register.role, name(&register)));
        self.by_incarnation.insert(register.incarnation, key);
        self.by_id.insert(canonical(&register.node_id).to_string(), key);
        if let Some(rank) = explicit_rank {
            self.ranks_held.insert((register.role, rank), key);
        }
        self.here[usize::from(register.role == Role::Server)] += 1;
        self.connections.belongs_to(conn, key);
        self.nodes.insert(key, Box::new(Node::new(register, explicit_rank, conn, now)));
        self.present += 1;
        self.form_if_complete(now);
    }

    /// The same life of a node once more, over a new connection or the same: it gets the same answer.
    fn register_again(&mut self, now: Time, conn: ConnId, key: u32, has_joined: bool) {
        let Some(presence) = self.nodes.get(&key).map(|node| node.presence) else { return };
        match presence {
            Presence::Left => {
                self.send(conn, Message::Bye);
                return self.drop_connection(conn);
            }
            Presence::Lost { .. } if !self.nodes[&key].is_back() && self.is_culprit(key) => {
                let first = self.job.verdict().map_or_else(String::new, ToString::to_string);
                let reason = format!("this node was given up: {first}");
                self.send(conn, Message::Rejected(Rejected { status: Status::Fenced, reason }));
                if let Some(node) = self.nodes.get_mut(&key).filter(|node| node.conn == Some(conn)) {
                    node.conn = None; // it was given up although its connection stood
                }
                return self.drop_connection(conn);
            }
            Presence::Lost { .. } | Presence::Member
                if self.nodes[&key].is_back() && self.cannot_recover().is_some() =>
            {
                let failure = self.cannot_recover().expect("just found");
                let reason = format!("it comes back in vain: {failure}");
                self.send(conn, Message::Rejected(Rejected { status: failure.status, reason }));
                return self.drop_connection(conn);
            }
            // It closed after the job broke, perhaps before it could hear so.
            Presence::Lost { .. } => {
                self.present += 1;
                if self.nodes[&key].is_back() {
                    self.begin_recovery(now);
                } else {
                    self.lost.remove(&key);
                }
            }
            Presence::Member => {}
        }
        // One whose connection ended has an interval to show that it hears. A member is told of its epoch now, and answers; one
        // that waits for an epoch hears of its first heartbeat, says so with its second, and that has to get here.
        let (silence, interval) = (self.silence(), self.interval());
        let Some(node) = self.nodes.get_mut(&key) else { return };
        let hearing = now - (silence - if node.is_back() { interval * 3 } else { interval });
        node.presence.return_as_member();
        let replaced = node.conn.filter(|old| *old != conn);
        node.attach(conn, now, hearing);
        if let Some(old) = replaced {
            self.close_at_once(old);
        }
        self.connections.belongs_to(conn, key);
        self.store.detached(key);
        self.timers.at(now, Due::Answer(key));
        match self.job.is_forming() {
            true => self.form_if_complete(now),
            false => {
                let epoch = self.epoch;
                if self.nodes[&key].is_back() {
                    self.begin_recovery(now); // it may have been lost meanwhile
                } else if let Some(node) = self.nodes.get_mut(&key).filter(|_| !has_joined) {
                    node.epoch = epoch; // the first that it hears of
                }
                self.recover_if_complete(now); // then all are told
                if self.epoch == epoch && !self.nodes[&key].is_back() {
                    self.repeat_answers(conn, key);
                    if presence.is_lost() && self.job.is_recoverable() {
                        self.tell_lost();
                    }
                    self.take_up_words_of_abandoning(now);
                }
            }
        }
    }

    /// Everything that a node which was away must know.
    fn repeat_answers(&mut self, conn: ConnId, key: u32) {
        self.queue_formed(conn, key);
        if let Some(failure) = self.job.verdict().cloned() {
            let nodes = self.lost.iter().copied().collect();
            self.send(conn, Message::LostNodes(LostNodes { epoch: self.epoch, nodes }));
            self.send(conn, Message::Verdict(Verdict { failure }));
            if self.job.is_refused() {
                self.tell_no_next_epoch(conn);
            }
        }
        for (group, Revocation { failure, .. }) in self.revoked.clone() {
            if self.is_in(group, key) {
                self.send(conn, Message::Revoked(Revoked { failure }));
            }
        }
    }

    /// The explicit rank of a node that may come in, or why it may not.
    fn check(&self, now: Time, register: &Register) -> Result<Option<u32>, Refusal> {
        let rank = self.check_newcomer(register)?;
        self.check_id(now, register)?;
        self.check_complete(now, register)?;
        if let Some(rank) = rank {
            self.check_rank(now, register, rank)?;
        }
        self.check_full(register)?;
        Ok(rank)
    }

    /// What must be right of every life that begins: the rank that its id or its launcher gives it.
    pub(super) fn check_newcomer(&self, register: &Register) -> Result<Option<u32>, Refusal> {
        check_protocol(register)?;
        self.check_settings(register)?;
        self.check_instance(register)?;
        if register.instance.is_some() {
            self.check_epoch_told(register)?;
            let reason = format!("{} registers again, but has no place in this scheduler's job", name(register));
            return Err((Status::Fenced, reason));
        }
        self.explicit_rank(register)
    }

    /// Whether nothing says that this node, which knows its job from its launcher, is of this scheduler's: if it cannot stay it
    /// is to look for its own. A member is one whatever its launcher says.
    fn has_another_job(&self, register: &Register) -> bool {
        let is_new = register.instance.is_none() && !self.by_incarnation.contains_key(&register.incarnation);
        is_new && register.derived_job.is_some() && register.derived_job != self.rules.derived_job
    }

    fn check_settings(&self, register: &Register) -> Result<(), Refusal> {
        let node = name(register);
        if register.role == Role::Scheduler {
            return refused(format!("{node} registers as a scheduler: only workers and servers can"));
        }
        if let (Some(theirs), Some(ours)) = (&register.derived_job, &self.rules.derived_job) {
            if theirs != ours && register.instance.is_none() {
                return refused(format!(
                    "{node} belongs to another job than this scheduler, as their launchers tell: to {theirs:?}, not to {ours:?}"
                ));
            }
        }
        if let (Some(theirs), Some(ours)) = (&register.job_id, &self.rules.job_id) {
            if theirs != ours {
                return refused(format!(
                    "{node} belongs to job {theirs:?}, this scheduler to job {ours:?}: MUSTER_JOB_ID must be the same everywhere"
                ));
            }
        }
        for (theirs, ours, what, setting) in [
            (register.worker_num, self.rules.worker_num, "worker", "MS_WORKER_NUM"),
            (register.server_num, self.rules.server_num, "server", "MS_SERVER_NUM"),
        ] {
            if theirs != ours {
                return refused(format!(
                    "{node} expects {}, this scheduler's job has {ours}: {setting} must be the same everywhere",
                    counted(theirs, what)
                ));
            }
        }
        let on = |recovery: bool| if recovery { "on" } else { "off" };
        if register.recovery != self.rules.recovery {
            return refused(format!(
                "{node} has recovery {}, this scheduler's job has it {}: MS_ENABLE_RECOVERY must be the same everywhere",
                on(register.recovery),
                on(self.rules.recovery)
            ));
        }
        Ok(())
    }

    fn check_instance(&self, register: &Register) -> Result<(), Refusal> {
        match register.instance {
            Some(theirs) if theirs != self.identity.instance => Err((
                Status::Rejected,
                format!(
                    "{} belongs to another run of the job ({}) than this scheduler's ({}): its own scheduler has gone",
                    name(register),
                    hex(&theirs.0),
                    hex(&self.identity.instance.0)
                ),
            )),
            _ => Ok(()),
        }
    }

    /// With recovery: who comes in the name of a life that is known has its token. What that hashes to was told to nobody but
    /// this scheduler; the incarnation is told to every peer.
    fn check_same_life(&self, key: u32, register: &Register) -> Result<(), Refusal> {
        let token = |register: &Register| register.reentry.as_ref().map(|reentry| reentry.next);
        match self.nodes.get(&key).filter(|_| self.rules.recovery) {
            Some(node) if token(&node.register) != token(register) => refused(format!(
                "{} registers as {} once more, but without the token that this life has registered with",
                name(register),
                node.culprit()
            )),
            _ => Ok(()),
        }
    }

    fn number_of(&self, role: Role) -> u32 {
        if role == Role::Server {
            self.rules.server_num
        } else {
            self.rules.worker_num
        }
    }

    /// The rank that its id or its launcher gives it.
    fn explicit_rank(&self, register: &Register) -> Result<Option<u32>, Refusal> {
        let number = self.number_of(register.role);
        let by_id = register.node_id_given.then(|| rank_of_id(&register.node_id, number)).flatten();
        let Some(by_launcher) = register.rank else { return Ok(by_id) };
        let reason = match by_id {
            Some(by_id) if by_id != by_launcher => format!(
                "{} has rank {by_id} by its node id and rank {by_launcher} by its launcher: the two must agree",
                name(register)
            ),
            _ if number == 0 => return Ok(None), // said better by `check_full`
            _ if by_launcher >= number => format!(
                "{} was given rank {by_launcher} by its launcher, this scheduler's job has {} (ranks 0 to {})",
                name(register),
                counted(number, register.role),
                number - 1
            ),
            _ => return Ok(Some(by_launcher)),
        };
        Err((Status::Rejected, reason))
    }

    pub(super) fn check_id(&self, now: Time, register: &Register) -> Result<(), Refusal> {
        let Some(holder) = self.by_id.get(canonical(&register.node_id)).and_then(|key| self.nodes.get(key)) else {
            return Ok(());
        };
        let held = &holder.register;
        let seat = |register: &Register| (register.role, register.rank.filter(|_| !register.node_id_given));
        if seat(register).1.is_some() && seat(register) == seat(held) {
            return Ok(()); // both are called by the rank that their launchers gave: said better by `check_rank`
        }
        let state = match holder.presence {
            Presence::Member => "is already held by",
            Presence::Left => "was held, until it left, by",
            Presence::Lost { .. } => "was held, until it was lost, by",
        };
        if held.node_id == register.node_id {
            return refused(format!(
                "node id {:?} of the {} on host {} (pid {}) {state} the {} on host {} (pid {}), registered {} ago: \
                 MS_NODE_ID must be unique",
                register.node_id,
                register.role,
                register.host.name,
                register.process.pid,
                held.role,
                held.host.name,
                held.process.pid,
                span(now.since(holder.since))
            ));
        }
        refused(format!(
            "{} and {}, registered {} ago, differ only in the leading zeros of their node ids: MS_NODE_ID must differ in more",
            name(register),
            name(held),
            span(now.since(holder.since))
        ))
    }

    pub(super) fn check_complete(&self, now: Time, register: &Register) -> Result<(), Refusal> {
        let Some(since) = self.job.complete_since() else { return Ok(()) };
        let broken = self.job.verdict().map_or_else(String::new, |first| format!("; and the job is broken: {first}"));
        refused(format!(
            "the cluster has been complete for {} ({}): {} {} is one too many{broken}",
            span(now.since(since)),
            self.size_in_words(),
            register.role,
            name(register)
        ))
    }

    fn check_rank(&self, now: Time, register: &Register, rank: u32) -> Result<(), Refusal> {
        let Some(holder) = self.ranks_held.get(&(register.role, rank)).and_then(|key| self.nodes.get(key)) else {
            return Ok(());
        };
        refused(format!(
            "rank {rank} of {} {} is already held by {}, registered {} ago",
            register.role,
            name(register),
            name(&holder.register),
            span(now.since(holder.since))
        ))
    }

    fn check_full(&self, register: &Register) -> Result<(), Refusal> {
        let number = self.number_of(register.role);
        let here = self.here[usize::from(register.role == Role::Server)];
        if here < number {
            return Ok(());
        }
        let has = match number {
            0 => format!("this scheduler's job has no {}s", register.role),
            1 => format!("this scheduler's job already has its {}", register.role),
            _ => format!("this scheduler's job already has all its {number} {}s", register.role),
        };
        refused(format!("{has}: {} {} is one too many", register.role, name(register)))
    }

    /// `4 workers`, `4 workers and 1 server`
    pub(super) fn size_in_words(&self) -> String {
        let workers = counted(self.rules.worker_num, Role::Worker);
        match self.rules.server_num {
            0 => workers,
            servers => format!("{workers} and {}", counted(servers, Role::Server)),
        }
    }
}

fn check_protocol(register: &Register) -> Result<(), Refusal> {
    if register.protocol_lowest <= PROTOCOL_HIGHEST && register.protocol_highest >= PROTOCOL_LOWEST {
        return Ok(());
    }
    refused(format!(
        "{} (library {}) speaks protocol {}, this scheduler (library {}) {}: they have none in common",
        name(register),
        register.version,
        versions(register.protocol_lowest, register.protocol_highest),
        env!("CARGO_PKG_VERSION"),
        versions(PROTOCOL_LOWEST, PROTOCOL_HIGHEST)
    ))
}

/// `version 1`, `versions 2 to 4`
pub(super) fn versions(lowest: u16, highest: u16) -> String {
    match lowest == highest {
        true => format!("version {lowest}"),
        false => format!("versions {lowest} to {highest}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
#[path = "admission_test.rs"]
mod tests;
