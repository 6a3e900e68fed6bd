//! The groups that the programs make: all alike, only turned round, divided, or without the last node. They are used in every
//! epoch from then on, also by those who come back, who make them again, and are freed when all is done; the first of them when
//! half of it is.

use super::checks;
use super::program::{Next, Tick};
use super::rounds::What;
use super::world::World;
use crate::agent::Command;
use crate::types::GroupId;
use crate::wire::{GroupMade, GroupWish, MakeGroup};

/// What a node wants of the n-th making.
fn wish(nth: u64, index: u32, size: u32) -> GroupWish {
    match nth % 3 {
        0 => GroupWish::Ranks((0..size - 1).collect()),
        1 => GroupWish::Colour { colour: Some(index % 2), key: -(index as i32) },
        _ => GroupWish::Ranks((0..size).rev().collect()),
    }
}

/// The making whose groups are freed early.
const SHORT_LIVED: u64 = 1;

/// The members of a node's group of the n-th making, in order of rank; none: it is in none.
pub(super) fn members(nth: u64, index: u32, size: u32) -> Vec<u32> {
    match nth % 3 {
        0 if index == size - 1 => Vec::new(),
        0 => (0..size - 1).collect(),
        1 => (0..size).rev().filter(|other| other % 2 == index % 2).collect(),
        _ => (0..size).rev().collect(),
    }
}

impl World {
    /// Makes the n-th group of all; `again`: the others have it already.
    pub(super) fn make_group(&mut self, node: usize, nth: u64, again: bool) {
        let size = self.plan.nodes.len() as u32;
        let process = &mut self.processes[node];
        let Some(index) = process.formed.as_ref().map(|formed| formed.index) else { return };
        process.program.sequence += u64::from(!again);
        let sequence = if again { 0 } else { process.program.sequence };
        process.program.calls += 1;
        let call = process.program.calls;
        process.program.making = Some((call, again));
        let wanted = MakeGroup { parent: GroupId::UNIVERSE, nth, sequence, history: 0, wish: wish(nth, index, size) };
        self.command(node, Command::MakeGroup(wanted));
        self.after(node, super::plan::OPERATION, Tick::OperationOver(call));
    }

    pub(super) fn group_made(&mut self, node: usize, made: &GroupMade) -> Result<(), String> {
        checks::group_made(self, node, made)?;
        let program = &mut self.processes[node].program;
        program.made = program.made.max(made.nth);
        if let Some(group) = made.group {
            program.groups.insert(made.nth, (group, made.members.clone()));
        }
        if program.making.take().is_some() {
            self.soon(node, 0..60, Tick::Go);
        }
        Ok(())
    }

    /// A collective on one of the groups, if this node is in that.
    pub(super) fn use_group(&mut self, node: usize, round: u64) -> Result<(), String> {
        let program = &mut self.processes[node].program;
        let nth = if program.made == 0 { 0 } else { 1 + round % program.made };
        let is_over = nth == SHORT_LIVED && round >= self.plan.rounds / 2;
        match !is_over && program.groups.contains_key(&nth) {
            true => self.begin_collective(node, What::OnGroup(nth, round)),
            false => {
                program.next = Next::after(round, self.plan.rounds);
                self.go(node)
            }
        }
    }

    /// A round is done by all. Nobody goes back to one before it, so that nobody needs any more what was for those.
    pub(super) fn free_early(&mut self, node: usize, round: u64) {
        if round < self.plan.rounds / 2 {
            return;
        }
        if let Some((group, _)) = self.processes[node].program.groups.remove(&SHORT_LIVED) {
            self.command(node, Command::FreeGroup(group));
        }
    }

    /// All is done.
    pub(super) fn free_groups(&mut self, node: usize) {
        let groups = std::mem::take(&mut self.processes[node].program.groups);
        for (group, _) in groups.into_values() {
            self.command(node, Command::FreeGroup(group));
        }
    }
}
