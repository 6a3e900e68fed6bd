//! A program that calls `muster_abort`, what the others make of it, and the rules of it: every node that is there is
//! told; a restarted scheduler learns of the abort from the nodes that come back; and the job ends as aborted.

use super::causes::Broken;
use super::network::Side;
use super::node::Line;
use super::program::{Stage, Tick};
use super::table::Event as Met;
use super::world::World;
use crate::agent::Command;
use crate::error::{Error, Failure, Status};
use crate::wire::Message;
use std::collections::BTreeSet;
use std::time::Duration;

/// How far a job is with its abort.
#[derive(Debug, Default)]
pub(super) struct Aborting {
    /// The processes whose programs called it.
    pub(super) callers: BTreeSet<usize>,
    /// The life of the scheduler that has told somebody.
    told_by: Option<u64>,
    /// The nodes that this life of the scheduler could tell.
    there: BTreeSet<usize>,
}

impl Aborting {
    /// The scheduler dies: only the nodes that it told know what it knew.
    pub(super) fn scheduler_dies(&mut self) {
        self.told_by = None;
        self.there.clear();
    }
}

fn is_abort(failure: &Failure) -> bool {
    failure.status == Status::Aborted
}

impl World {
    /// The program of this slot aborts the job, or the next that can.
    pub(super) fn abort_from(&mut self, slot: usize) {
        let can = |slot: usize| {
            let node = self.current(slot)?;
            let process = &self.processes[node];
            let leaves = match self.plan.recovers() {
                true => process.program.stage == Stage::Leaving,
                false => process.asked_to_leave.is_some(), // until then it only waits for the others
            };
            (process.formed.is_some() && !leaves).then_some(node)
        };
        let count = self.slots.len();
        let Some(node) = (0..count).find_map(|more| can((slot + more) % count)) else { return };
        self.met(Met::Aborted);
        self.fault(Duration::ZERO);
        self.may_fail = true;
        self.aborting.callers.insert(node);
        self.command(node, Command::Abort { code: 3, reason: "the loss is not a number".to_owned() });
    }

    /// A program is told that the job is aborted: it leaves, sooner or later.
    pub(super) fn hears_of_abort(&mut self, node: usize) {
        self.processes[node].program.enter(Stage::Leaving);
        let late = self.random.once_in(2);
        self.soon(node, if late { 500..4000 } else { 0..100 }, Tick::Leave);
    }

    /// The scheduler tells somebody something. It tells an abort to every node that is there.
    pub(super) fn abort_is_told(&mut self, message: &Message) {
        if !matches!(message, Message::Verdict(verdict) if is_abort(&verdict.failure)) {
            return;
        }
        if self.aborting.told_by.replace(self.host.life) == Some(self.host.life) {
            return;
        }
        let is_there = |node: &usize| {
            let process = &self.processes[*node];
            let Line::Up(conn) = process.line else { return false };
            process.alive && process.formed.is_some() && self.network.is_open(conn, Side::Scheduler)
        };
        let there = (0..self.processes.len()).filter(is_there).collect();
        self.aborting.there = there;
    }

    /// The scheduler ends by itself: as aborted, if it knew of an abort.
    pub(super) fn ends_as_aborted(&mut self, result: &Result<(), Error>) {
        let as_aborted = result.as_ref().is_err_and(|error| error.status() == Status::Aborted);
        let life = Some(self.host.life);
        let wrong = match as_aborted {
            true if self.aborting.callers.is_empty() => "the job ended as aborted, and nobody had aborted it",
            false if self.aborting.told_by == life => "the job was aborted, and ended otherwise",
            false if self.told.causes.was_told(self.host.life, self.newest, Broken::Job) => {
                "a node knew that the job was aborted, and the scheduler that it came back to did not"
            }
            _ => {
                if let Some(node) = self.missed_by_abort() {
                    let wrong = "was there when the job was aborted, and was not told";
                    self.wrong.get_or_insert(format!("node {node} {wrong}"));
                }
                return;
            }
        };
        self.wrong.get_or_insert(format!("{wrong}: {result:?}"));
    }

    /// The nodes that were there when the job was aborted, and have not been told although nothing has happened to it.
    fn missed_by_abort(&self) -> Option<usize> {
        let there = self.aborting.there.iter().filter(|_| self.aborting.told_by == Some(self.host.life));
        there.copied().find(|node| {
            let process = &self.processes[*node];
            let is_well = process.alive && process.to_blame.is_none() && process.disturbed == [false; 2];
            // One that aborts is told when that is durable, which may be so late that it has told the others itself.
            is_well && !process.knows_of_abort() && !self.aborting.callers.contains(node)
        })
    }
}

/// A node that aborted the job is one whose program did.
pub(super) fn judged(world: &World, failure: &Failure) -> Result<(), String> {
    if !is_abort(failure) {
        return Ok(());
    }
    let named = failure.culprit.as_ref().map(|culprit| (culprit.pid as usize).wrapping_sub(1000));
    match named.filter(|node| world.aborting.callers.contains(node)) {
        Some(_) => Ok(()),
        None => Err(format!("the named node is blamed for the abort, and did not abort the job: {failure}")),
    }
}
