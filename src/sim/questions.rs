//! What programs ask the scheduler about each other: where a node is reached, and which node keeps a collective
//! waiting.

use super::checks;
use super::world::World;
use crate::agent::{Ask, Command};
use crate::error::Status;
use crate::types::{GroupId, Time};
use crate::wire::{Absent, Member};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a collective takes before somebody asks who is absent.
pub(super) const WARN_AFTER: Duration = Duration::from_millis(400);

/// The question which of these nodes have not entered this collective.
#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) group: GroupId,
    pub(super) sequence: u64,
    /// The nodes' indices.
    pub(super) members: Vec<u32>,
    pub(super) asked: Time,
    /// Its time is up: the call fails once this is answered.
    fails: bool,
}

/// What a program has asked, and has not been told.
#[derive(Debug, Default)]
pub(super) struct Questions {
    located: BTreeMap<Ask, u32>,
    absent: BTreeMap<Ask, Question>,
}

impl Questions {
    pub(super) fn are_answered(&self) -> bool {
        self.located.is_empty() && self.absent.is_empty()
    }

    /// A new epoch: nobody is told any more which nodes were absent in the last one.
    pub(super) fn renew(&mut self) {
        self.absent.clear();
    }
}

impl World {
    /// Asks where some node is reached.
    pub(super) fn ask_address(&mut self, node: usize) {
        let index = self.random.index(self.plan.size() as usize) as u32;
        let program = &mut self.processes[node].program;
        program.next_ask += 1;
        let ask = program.next_ask;
        program.questions.located.insert(ask, index);
        self.command(node, Command::Locate(ask, index));
    }

    pub(super) fn located(&mut self, node: usize, ask: Ask, member: &Member) -> Result<(), String> {
        let asked = self.processes[node].program.questions.located.remove(&ask);
        checks::located(self, node, asked, member)
    }

    /// Asks which node keeps this node's collective waiting.
    pub(super) fn ask_absent(&mut self, node: usize, fails: bool) {
        let Some(collective) = &self.processes[node].program.collective else { return };
        let (group, sequence, members) = (collective.group, collective.sequence, collective.members.clone());
        self.ask_stragglers(node, group, sequence, members, fails);
    }

    /// Asks which of these nodes have not entered this collective.
    pub(super) fn ask_stragglers(
        &mut self,
        node: usize,
        group: GroupId,
        sequence: u64,
        members: Vec<u32>,
        fails: bool,
    ) {
        let program = &mut self.processes[node].program;
        program.next_ask += 1;
        let ask = program.next_ask;
        program.questions.absent.insert(ask, Question { group, sequence, members, asked: self.now, fails });
        self.command(node, Command::WhereAre(ask, group, sequence, None));
    }

    pub(super) fn absent(&mut self, node: usize, ask: Ask, absent: &Absent) -> Result<(), String> {
        let Some(question) = self.processes[node].program.questions.absent.remove(&ask) else {
            return Err(format!("node {node} was told who is absent, and had not asked: {absent:?}"));
        };
        checks::absent(self, node, &question, absent)?;
        let collective = self.processes[node].program.collective.as_ref();
        let is_inside = collective.is_some_and(|it| (it.group, it.sequence) == (question.group, question.sequence));
        if question.fails && is_inside {
            self.times_out(node, absent.members.first().map(|first| &first.culprit));
        }
        Ok(())
    }

    /// The call has taken too long.
    pub(super) fn times_out(&mut self, node: usize, absent: Option<&crate::error::Culprit>) {
        let cause = absent.map_or("took too long".to_owned(), |absent| format!("took too long: {absent} never came"));
        self.revoke(node, Status::Timeout, &cause, None);
    }
}
