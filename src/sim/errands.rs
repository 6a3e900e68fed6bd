//! The program in each process of a story without recovery. It joins, does at its times what its plan says, hears
//! answers, and makes groups. It leaves when it has heard all answers, or when the cluster is broken.

use super::ledger::StoreRequest;
use super::once::{Errand, Shape};
use super::program::{Program, Stage, Tick};
use super::table::Event as Met;
use super::world::{Event, World};
use crate::agent::{Ask, Command, Input};
use crate::error::{Error, Failure, Status};
use crate::types::{Call, CallKind, GroupId, Role};
use crate::wire::GroupProgress;
use std::time::Duration;

/// When a program leaves at the latest, answers or none, counted from the complete cluster: far beyond its last errand.
const ENOUGH: Duration = Duration::from_secs(14);
/// If something is still to happen, most programs are there at this time to see it.
const SOONEST: Duration = Duration::from_millis(1800);

impl Program {
    /// Whether it has done everything and heard every answer.
    fn is_done(&self) -> bool {
        let is_told = self.asks.is_empty() && self.questions.are_answered() && self.asked_for.is_empty();
        self.errands.is_empty() && self.steps == 0 && is_told
    }
}

impl World {
    pub(super) fn begin_errands(&mut self, node: usize) {
        if self.processes.iter().filter(|process| process.joined.is_some()).count() == 1 {
            self.troubles_begin();
        }
        if let Some((after, _)) = self.processes[node].program.errands.front() {
            self.after(node, *after, Tick::Errand);
        }
        self.begin_groups(node);
        self.after(node, ENOUGH, Tick::Enough);
    }

    /// The program's next errand.
    pub(super) fn errand(&mut self, node: usize) {
        let process = &mut self.processes[node];
        let joined = process.joined.unwrap_or_default();
        let Some((_, errand)) = process.program.errands.pop_front() else { return };
        if let Some((after, _)) = process.program.errands.front() {
            let span = (joined + *after).since(self.now);
            self.after(node, span, Tick::Errand);
        }
        self.carry_out(node, &errand);
        self.leave_if_done(node);
    }

    fn carry_out(&mut self, node: usize, errand: &Errand) {
        match errand {
            Errand::Add => drop(self.ask_store(node, StoreRequest::Add)),
            Errand::Set(bytes) => drop(self.ask_store(node, StoreRequest::Set(*bytes))),
            Errand::Get(of) => drop(self.ask_store(node, StoreRequest::Read { of: *of, waits: true })),
            Errand::TryGet(of) => drop(self.ask_store(node, StoreRequest::Read { of: *of, waits: false })),
            Errand::Claim => drop(self.ask_store(node, StoreRequest::Claim)),
            Errand::GiveUp => {
                let ask = self.ask_store(node, StoreRequest::Never);
                let patience = self.random.span_ms(10..300);
                let cancel = Event::NodeInput(node, None, Input::Command(Command::StoreCancel(ask)));
                self.queue.put(self.now + patience, cancel);
            }
            Errand::WhereAre => {
                let is_worker = self.plan.nodes[self.processes[node].slot].role == Role::Worker;
                let (group, size) = match is_worker {
                    true => (GroupId::WORLD, self.plan.workers),
                    false => (GroupId::UNIVERSE, self.plan.size()),
                };
                self.ask_stragglers(node, group, 2, (0..size).collect(), false);
            }
            Errand::Locate => self.ask_address(node),
            Errand::SuspectSomebody => self.suspect_somebody(node),
            Errand::Revoke => {
                self.met(Met::Revocation);
                let failure = Failure {
                    status: Status::Timeout,
                    culprit: None,
                    cause: format!("node {node} gives up"),
                    epoch: self.processes[node].epoch,
                    group: Some(GroupId::UNIVERSE),
                    sequence: 1,
                };
                self.command(node, Command::Revoke(failure));
            }
        }
    }

    fn ask_store(&mut self, node: usize, request: StoreRequest) -> Ask {
        let process = &mut self.processes[node];
        let index = process.formed.as_ref().map_or(usize::MAX, |formed| formed.index as usize);
        process.program.next_ask += 1;
        let ask = process.program.next_ask;
        let (asked, command) = self.ledger.ask(ask, request, index);
        process.program.asks.insert(ask, asked);
        self.command(node, command);
        ask
    }

    /// How far a node is on world: all nodes are in the same call, except those that disagree.
    pub(super) fn standing(&self, node: usize) -> Vec<GroupProgress> {
        let process = &self.processes[node];
        let (Some(formed), Some(since)) = (&process.formed, process.joined) else { return Vec::new() };
        if process.register.role != Role::Worker {
            return Vec::new();
        }
        let differs = self.plan.is_about(Shape::Mismatch) && formed.rank == 0;
        let kind = if differs { CallKind::Allgather } else { CallKind::Barrier };
        let call = Call { kind, dtype: None, op: None, root: None, count: 0, layout: 0 };
        let age_ms = self.now.since(since).as_millis() as u64;
        vec![GroupProgress { group: GroupId::WORLD, entered: 1, finished: 0, call: Some(call), age_ms }]
    }

    /// No group is made of one that is revoked.
    pub(super) fn waits_for_no_group(&mut self, node: usize, of: Option<GroupId>) {
        self.processes[node].program.asked_for.retain(|(parent, _)| Some(*parent) != of);
    }

    /// A group will not be made. Only a node that is cut off for a heartbeat time-out stops waiting for it.
    pub(super) fn not_made(&mut self, node: usize, parent: GroupId, nth: u64, error: &Error) -> Result<(), String> {
        let is_cut_off = !self.plan.recovers() && self.processes[node].to_blame.is_some();
        match is_cut_off && self.processes[node].program.asked_for.remove(&(parent, nth)) {
            true => Ok(()),
            false => Err(format!("node {node} gets no group {nth} of {parent}: {error}")),
        }
    }

    /// The cluster is broken.
    pub(super) fn leaves_soon(&mut self, node: usize) {
        if self.processes[node].asked_to_leave.is_none() {
            self.processes[node].program.enter(Stage::Leaving);
            self.soon(node, 0..300, Tick::Leave);
        }
    }

    pub(super) fn leave_if_done(&mut self, node: usize) {
        let process = &mut self.processes[node];
        let Some(joined) = process.joined.filter(|_| !self.plan.recovers() && process.alive) else { return };
        if process.program.stage != Stage::Working || !process.program.is_done() {
            return;
        }
        process.program.enter(Stage::Leaving);
        let soonest = if self.plan.is_about(Shape::Plain) { Duration::ZERO } else { SOONEST };
        let span = (joined + soonest).since(self.now) + self.random.span_ms(0..400);
        self.after(node, span, Tick::Leave);
    }

    /// The program has waited long enough: it leaves.
    pub(super) fn has_waited_enough(&mut self, node: usize) -> Result<(), String> {
        if self.is_clean() {
            let program = &self.processes[node].program;
            return Err(format!("node {node} still waits for answers to {:?}, {:?}", program.asks, program.asked_for));
        }
        self.processes[node].program.enter(Stage::Leaving);
        self.leaves(node);
        Ok(())
    }

    pub(super) fn leaves(&mut self, node: usize) {
        self.processes[node].asked_to_leave = Some(self.now);
        if !self.plan.recovers() {
            let open: Vec<Ask> = self.processes[node].program.asks.keys().copied().collect();
            open.into_iter().for_each(|ask| self.command(node, Command::StoreCancel(ask)));
        }
        let leave = Event::NodeInput(node, None, Input::Command(Command::Leave));
        self.queue.put(self.now + super::sabotage::delays(self.sabotage).1, leave);
    }
}
