//! Admission. Every refusal is one sentence that names both sides of the disagreement.
//!
//! Decisions: where only one side was given a job id, the two disagree. A node id is unique among workers and servers
//! together. Tested in `admission_test.rs`.

use super::cluster_state::ClusterState;
use super::conductor::Conductor;
use super::forming::Forming;
use super::node::{counted, name, span};
use super::ranks::rank_of_id;
use super::standing::Presence;
use crate::error::Status;
use crate::types::{is_hidden, shown, Role, Time};
use crate::wire::{Register, NAME_MAX, PROTOCOL_HIGHEST, PROTOCOL_LOWEST};

/// A refusal: its status and its reason.
pub(super) type Refusal = (Status, String);

pub(super) fn refused<T>(reason: String) -> Result<T, Refusal> {
    Err((Status::Rejected, reason))
}

/// A process that registers, held against the job as it is now.
#[derive(Clone, Copy)]
pub(super) struct Newcomer<'a> {
    pub(super) cluster: &'a ClusterState,
    pub(super) forming: &'a Forming,
    pub(super) now: Time,
    pub(super) register: &'a Register,
}

impl<'a> Newcomer<'a> {
    pub(super) fn of(conductor: &'a Conductor, now: Time, register: &'a Register) -> Newcomer<'a> {
        Newcomer { cluster: &conductor.cluster, forming: &conductor.forming, now, register }
    }

    /// The explicit rank of a node that may come in, or why it may not.
    pub(super) fn check(&self) -> Result<Option<u32>, Refusal> {
        let rank = self.check_life()?;
        self.check_id()?;
        self.check_complete()?;
        if let Some(rank) = rank {
            self.check_rank(rank)?;
        }
        self.check_full()?;
        Ok(rank)
    }

    /// Checks what must be right of every life that begins. Returns the rank that its id or its launcher gives it.
    pub(super) fn check_life(&self) -> Result<Option<u32>, Refusal> {
        check_protocol(self.register)?;
        check_id_shows(self.register)?;
        self.check_settings()?;
        self.check_instance()?;
        if self.register.instance.is_some() {
            self.check_epoch_told()?;
            let node = name(self.register);
            let reason = format!("{node} registers again, but has no place in this scheduler's job");
            return Err((Status::Fenced, reason));
        }
        self.explicit_rank()
    }

    /// Whether this node's launcher names a job that is not known to be this scheduler's. If the node is then refused, it
    /// is to look for its own scheduler. A member belongs here, whatever its launcher says.
    pub(super) fn has_another_job(&self) -> bool {
        let (register, ours) = (self.register, &self.cluster.rules.derived_job);
        let is_new = register.instance.is_none() && self.cluster.nodes.of_life(register.incarnation).is_none();
        is_new && register.derived_job.is_some() && register.derived_job != *ours
    }

    fn check_settings(&self) -> Result<(), Refusal> {
        let (register, node) = (self.register, name(self.register));
        if register.role == Role::Scheduler {
            return refused(format!("{node} registers as a scheduler: only workers and servers can"));
        }
        if let (Some(theirs), Some(ours)) = (&register.derived_job, &self.cluster.rules.derived_job) {
            if theirs != ours && register.instance.is_none() {
                return refused(format!(
                    "{node} belongs to another job than this scheduler, as their launchers tell: to {theirs:?}, not to {ours:?}"
                ));
            }
        }
        let rule = "MUSTER_JOB_ID must be the same everywhere";
        match (&register.job_id, &self.cluster.rules.job_id) {
            (Some(theirs), Some(ours)) if theirs != ours => {
                return refused(format!("{node} belongs to job {theirs:?}, this scheduler to job {ours:?}: {rule}"));
            }
            (None, Some(ours)) => {
                return refused(format!("{node} names no job, this scheduler is of job {ours:?}: {rule}"))
            }
            (Some(theirs), None) => {
                return refused(format!("{node} belongs to job {theirs:?}, this scheduler names none: {rule}"))
            }
            _ => {}
        }
        for (theirs, ours, what, setting) in [
            (register.worker_num, self.cluster.rules.worker_num, "worker", "MS_WORKER_NUM"),
            (register.server_num, self.cluster.rules.server_num, "server", "MS_SERVER_NUM"),
        ] {
            if theirs != ours {
                return refused(format!(
                    "{node} expects {}, this scheduler's job has {ours}: {setting} must be the same everywhere",
                    counted(theirs, what)
                ));
            }
        }
        let on = |recovery: bool| if recovery { "on" } else { "off" };
        if register.recovery != self.cluster.rules.recovery {
            return refused(format!(
                "{node} has recovery {}, this scheduler's job has it {}: MS_ENABLE_RECOVERY must be the same everywhere",
                on(register.recovery),
                on(self.cluster.rules.recovery)
            ));
        }
        Ok(())
    }

    pub(super) fn check_instance(&self) -> Result<(), Refusal> {
        match self.register.instance {
            Some(theirs) if theirs != self.cluster.identity.instance => {
                let (status, why) = match self.cluster.identity.before == Some(theirs) {
                    true => (Status::Fenced, "that run is over: it was aborted, or all nodes have left"),
                    false => (Status::Rejected, "its own scheduler has gone"),
                };
                let (node, own) = (name(self.register), hex(&self.cluster.identity.instance.0));
                let theirs = hex(&theirs.0);
                let words = format!("belongs to another run of the job ({theirs}) than this scheduler's ({own})");
                Err((status, format!("{node} {words}: {why}")))
            }
            _ => Ok(()),
        }
    }

    /// A process that claims a known life must be that life's node. (Its certificate was checked against the node id that it
    /// registers with.) With recovery it must also have that life's token. The incarnation alone proves nothing: every peer
    /// is told it, but only this scheduler was told the token's hash.
    pub(super) fn check_same_life(&self, key: u32) -> Result<(), Refusal> {
        let Some(node) = self.cluster.nodes.get(&key) else { return Ok(()) };
        let token = |register: &Register| register.reentry.as_ref().map(|reentry| reentry.next);
        let lacks = match &node.register {
            _ if !node.is_the_same(self.register) => "under another node id or in another role",
            held if self.cluster.rules.recovery && token(held) != token(self.register) => {
                "without the token that this life has registered with"
            }
            _ => return Ok(()),
        };
        refused(format!("{} registers as {} once more, but {lacks}", name(self.register), node.culprit()))
    }

    /// The rank that its id or its launcher gives it.
    fn explicit_rank(&self) -> Result<Option<u32>, Refusal> {
        let register = self.register;
        let number = self.cluster.number_of(register.role);
        let by_id = register.node_id_given.then(|| rank_of_id(&register.node_id, number)).flatten();
        let Some(by_launcher) = register.rank else { return Ok(by_id) };
        let reason = match by_id {
            Some(by_id) if by_id != by_launcher => format!(
                "{} has rank {by_id} by its node id and rank {by_launcher} by its launcher: the two must agree",
                name(register)
            ),
            _ if number == 0 => return Ok(None), // `check_full` has a better sentence for it
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

    /// Whether its id is free.
    pub(super) fn check_id(&self) -> Result<(), Refusal> {
        let register = self.register;
        let holder = self.cluster.nodes.named(&register.node_id).and_then(|key| self.cluster.nodes.get(&key));
        let Some(holder) = holder else { return Ok(()) };
        let held = &holder.register;
        let wanted = |register: &Register| (register.role, register.rank.filter(|_| !register.node_id_given));
        if wanted(register).1.is_some() && wanted(register) == wanted(held) {
            return Ok(()); // both ids are the ranks that their launchers gave: `check_rank` has a better sentence
        }
        let state = match holder.presence {
            Presence::Member => "is already held by",
            Presence::Left => "was held, until it left, by",
            Presence::Lost { .. } => "was held, until it was lost, by",
        };
        let rule = match holder.presence {
            Presence::Left => "a node that has left does not come back, and MS_NODE_ID must be unique",
            Presence::Member | Presence::Lost { .. } => "MS_NODE_ID must be unique",
        };
        if held.node_id == register.node_id {
            return refused(format!(
                "node id {:?} of the {} on host {} (pid {}) {state} the {} on host {} (pid {}), registered {} ago: {rule}",
                register.node_id,
                register.role,
                register.host.name,
                register.process.pid,
                held.role,
                held.host.name,
                held.process.pid,
                span(self.now.since(holder.since))
            ));
        }
        refused(format!(
            "{} and {}, registered {} ago, differ only in the leading zeros of their node ids: MS_NODE_ID must differ in more",
            name(register),
            name(held),
            span(self.now.since(holder.since))
        ))
    }

    /// Whether there is room: the cluster is not complete yet.
    pub(super) fn check_complete(&self) -> Result<(), Refusal> {
        let Some(since) = self.cluster.job.complete_since() else { return Ok(()) };
        let broken =
            self.cluster.job.verdict().map_or_else(String::new, |first| format!("; and the job is broken: {first}"));
        refused(format!(
            "the cluster has been complete for {} ({}): {} {} is one too many{broken}",
            span(self.now.since(since)),
            self.cluster.size_in_words(),
            self.register.role,
            name(self.register)
        ))
    }

    fn check_rank(&self, rank: u32) -> Result<(), Refusal> {
        let register = self.register;
        let holder = self.forming.holder(register.role, rank).and_then(|key| self.cluster.nodes.get(&key));
        let Some(holder) = holder else { return Ok(()) };
        refused(format!(
            "rank {rank} of {} {} is already held by {}, registered {} ago",
            register.role,
            name(register),
            name(&holder.register),
            span(self.now.since(holder.since))
        ))
    }

    fn check_full(&self) -> Result<(), Refusal> {
        let register = self.register;
        let number = self.cluster.number_of(register.role);
        if self.forming.here(register.role) < number {
            return Ok(());
        }
        let has = match number {
            0 => format!("this scheduler's job has no {}s", register.role),
            1 => format!("this scheduler's job already has its {}", register.role),
            _ => format!("this scheduler's job already has all its {number} {}s", register.role),
        };
        refused(format!("{has}: {} {} is one too many", register.role, name(register)))
    }

    /// A life that is over for the cluster, and does not know it.
    pub(super) fn check_fenced(&self) -> Result<(), Refusal> {
        if !self.cluster.nodes.is_fenced(self.register.incarnation) {
            return Ok(());
        }
        let node = name(self.register);
        Err((Status::Fenced, format!("{node} was taken for lost, and another process has its place")))
    }

    /// With recovery, while the cluster forms: the node that has this newcomer's name and role.
    pub(super) fn last_life(&self) -> Option<u32> {
        let register = self.register;
        let is_asked = self.cluster.rules.recovery && !self.cluster.job.is_complete();
        let key = self.cluster.nodes.named(&register.node_id).filter(|_| is_asked)?;
        let is_it = |held: &Register| (held.role, &held.node_id) == (register.role, &register.node_id);
        self.cluster.nodes.get(&key).filter(|node| is_it(&node.register)).map(|_| key)
    }

    /// The node whose place this newcomer has a claim to.
    pub(super) fn place_of(&self, rank: Option<u32>) -> Result<Option<u32>, Refusal> {
        let register = self.register;
        let by_id = register.node_id_given.then(|| self.cluster.nodes.named(&register.node_id)).flatten();
        let by_rank =
            rank.map(|rank| if register.role == Role::Server { self.cluster.rules.worker_num + rank } else { rank });
        let Some(key) = by_id.or(by_rank) else { return Ok(None) };
        let Some(holder) = self.cluster.nodes.get(&key) else { return Ok(None) };
        if holder.role() != register.role || by_rank.is_some_and(|by_rank| by_rank != key) {
            let (newcomer, held) = (name(register), holder.culprit());
            let (role, wanted) = (register.role, rank.map_or(String::new(), |rank| format!(" of rank {rank}")));
            refused(format!("{newcomer} registers as a {role}{wanted}, but its node id is that of {held}"))?;
        }
        Ok(Some(key))
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

/// Whether people can tell the id from other ids when they see it.
fn check_id_shows(register: &Register) -> Result<(), Refusal> {
    let (host, pid) = (&register.host.name, register.process.pid);
    let who = format!("the {} on host {host:?} (pid {pid}) registers with", register.role);
    if register.node_id.is_empty() {
        return refused(format!("{who} an empty node id: expected one of 1 to {NAME_MAX} bytes (MS_NODE_ID)"));
    }
    match register.node_id.chars().find(|c| is_hidden(*c)) {
        Some(hidden) => {
            let (id, code) = (shown(&register.node_id), u32::from(hidden));
            refused(format!(
                "{who} node id \"{id}\", which has the invisible character U+{code:04X} in it (MS_NODE_ID)"
            ))
        }
        None => Ok(()),
    }
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
