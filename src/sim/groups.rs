//! The groups that programs make. With recovery all are alike, only turned round, divided, or without the last node.
//! They are used in every epoch from then on. Nodes that come back use them, too, and make them again. They are freed
//! when all is done; the first of them when half of it is. Without recovery the plan's wishes count: groups are made of
//! the universe, with all or by their members alone, and of those again; then they are freed.

use super::checks;
use super::plan::Plan;
use super::program::{Next, Tick};
use super::random::Random;
use super::rounds::What;
use super::table::Event as Met;
use super::world::{Event, World};
use crate::agent::{Command, Input};
use crate::error::{Error, Status};
use crate::types::GroupId;
use crate::wire::{GroupMade, GroupWish, MakeByMembers, MakeGroup};

/// How a group is made of the universe.
#[derive(Clone, Debug)]
pub(super) enum Wish {
    Ranks(Vec<u32>),
    /// Each node's colour and key, by its index.
    Split(Vec<(Option<u32>, i32)>),
    /// These workers make it without the others.
    ByMembers(Vec<u32>),
}

/// What a program does next with groups.
#[derive(Clone, Copy, Debug)]
pub(super) enum GroupStep {
    /// Ask for the n-th group that is made of this one.
    Make(GroupId, u64),
    Free(GroupId),
}

/// The creation whose groups are freed early.
const SHORT_LIVED: u64 = 1;

/// The wishes of a plan without recovery, for so many nodes, of which so many are workers.
pub(super) fn wishes(random: &mut Random, nodes: u32, workers: u32) -> Vec<Wish> {
    let some = |random: &mut Random, of: u32, least: usize| {
        let mut ranks: Vec<u32> = (0..of).collect();
        random.shuffle(&mut ranks);
        ranks.truncate(least + random.index(of as usize + 1 - least));
        ranks
    };
    let wish = |random: &mut Random| {
        if random.once_in(3) {
            return Wish::ByMembers(some(random, workers, 1));
        }
        if random.once_in(2) {
            let colours = random.below(1..4);
            let one = |random: &mut Random| {
                let colour = (!random.once_in(5)).then(|| random.below(0..colours) as u32);
                (colour, random.below(0..5) as i32 - 2)
            };
            return Wish::Split((0..nodes).map(|_| one(random)).collect());
        }
        Wish::Ranks(some(random, nodes, 0))
    };
    (0..random.below(1..5)).map(|_| wish(random)).collect()
}

impl Wish {
    /// What the node with this index wants of a group that is made with all.
    fn of(&self, index: u32) -> GroupWish {
        match self {
            Wish::Ranks(ranks) | Wish::ByMembers(ranks) => GroupWish::Ranks(ranks.clone()),
            Wish::Split(wishes) => {
                let (colour, key) = wishes[index as usize];
                GroupWish::Colour { colour, key }
            }
        }
    }

    /// The members of its group, in order of rank; none: it is in none.
    fn members(&self, index: u32) -> Vec<u32> {
        let members = match self {
            Wish::Ranks(ranks) | Wish::ByMembers(ranks) => ranks.clone(),
            Wish::Split(wishes) => {
                let colour = |index: u32| wishes[index as usize].0;
                let is_in = |other: &u32| colour(index).is_some() && colour(*other) == colour(index);
                let mut members: Vec<u32> = (0..wishes.len() as u32).filter(is_in).collect();
                members.sort_by_key(|index| wishes[*index as usize].1);
                members
            }
        };
        if members.contains(&index) {
            members
        } else {
            Vec::new()
        }
    }
}

impl Plan {
    /// The wish of the n-th creation of all.
    fn wish(&self, nth: u64) -> Option<Wish> {
        let (size, at) = (self.size(), nth as usize - 1);
        match (&self.once, nth % 3) {
            (Some(once), _) => once.wishes.get(at).cloned(),
            (None, 0) => Some(Wish::Ranks((0..size - 1).collect())),
            (None, 1) => Some(Wish::Split((0..size).map(|index| (Some(index % 2), -(index as i32))).collect())),
            (None, _) => Some(Wish::Ranks((0..size).rev().collect())),
        }
    }
}

impl World {
    /// The members of the n-th group that is made of this one, in which this node is to be.
    pub(super) fn members(&self, parent: GroupId, nth: u64, index: u32) -> Vec<u32> {
        match parent {
            GroupId::UNIVERSE => self.plan.wish(nth).map_or(Vec::new(), |wish| wish.members(index)),
            parent => self.told.members(parent).iter().rev().copied().collect(),
        }
    }

    /// Makes the n-th group of all; with `again`, the others have it already.
    pub(super) fn make_group(&mut self, node: usize, nth: u64, again: bool) {
        let process = &mut self.processes[node];
        let Some(index) = process.formed.as_ref().map(|formed| formed.index) else { return };
        let Some(wish) = self.plan.wish(nth) else { return };
        process.program.sequence += u64::from(!again);
        let sequence = if again { 0 } else { process.program.sequence };
        process.program.calls += 1;
        let call = process.program.calls;
        process.program.creation = Some((call, again));
        let wanted = MakeGroup { parent: GroupId::UNIVERSE, nth, sequence, digest: 0, wish: wish.of(index) };
        self.command(node, Command::MakeGroup(wanted));
        self.after(node, super::plan::OPERATION, Tick::OperationOver(call));
    }

    pub(super) fn group_made(&mut self, node: usize, made: &GroupMade) -> Result<(), String> {
        checks::group_made(self, node, made)?;
        self.met(Met::GroupMade);
        if !self.plan.recovers() {
            return self.group_comes(node, made);
        }
        let program = &mut self.processes[node].program;
        program.made = program.made.max(made.nth);
        if let Some(group) = made.group {
            program.groups.insert(made.nth, (group, made.members.clone()));
        }
        if program.creation.take().is_some() {
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

    /// All have done a round. Nobody goes back to an earlier round, so nobody needs any more what was for those.
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

    /// Without recovery: a node that has joined begins with the first.
    pub(super) fn begin_groups(&mut self, node: usize) {
        if self.plan.wish(1).is_some() {
            self.group_soon(node, GroupStep::Make(GroupId::UNIVERSE, 1));
        }
    }

    fn group_soon(&mut self, node: usize, step: GroupStep) {
        self.processes[node].program.steps += 1;
        self.soon(node, 0..200, Tick::Group(step));
    }

    pub(super) fn group_step(&mut self, node: usize, step: GroupStep) {
        let process = &mut self.processes[node];
        process.program.steps -= 1;
        let index = process.formed.as_ref().map_or(0, |formed| formed.index);
        match step {
            GroupStep::Make(parent, _) if self.told.causes.heard_by(node, parent).is_some() => {}
            GroupStep::Make(parent, nth) => match self.plan.wish(nth).filter(|_| parent == GroupId::UNIVERSE) {
                Some(Wish::ByMembers(members)) if members.contains(&index) => self.make_by_members(node, nth, members),
                Some(Wish::ByMembers(_)) => self.next_wish(node, nth),
                wish => {
                    process.program.asked_for.insert((parent, nth));
                    let turned = || GroupWish::Ranks((0..self.told.members(parent).len() as u32).rev().collect());
                    let wish = wish.map_or_else(turned, |wish| wish.of(index));
                    self.command(node, Command::MakeGroup(MakeGroup { parent, nth, sequence: nth, digest: 0, wish }));
                }
            },
            GroupStep::Free(group) => self.command(node, Command::FreeGroup(group)),
        }
        self.leave_if_done(node);
    }

    /// Asks for the group of this wish. The node does not always wait until all have asked.
    fn make_by_members(&mut self, node: usize, nth: u64, members: Vec<u32>) {
        let program = &mut self.processes[node].program;
        program.asked_for.insert((GroupId::UNIVERSE, nth));
        program.next_ask += 1;
        let wanted = MakeByMembers { ask: program.next_ask, wants: true, tag: nth.to_string(), nth: 1, members };
        self.command(node, Command::MakeByMembers(wanted.clone()));
        if self.random.once_in(3) {
            let patience = self.random.span_ms(0..300);
            let given_up = Command::MakeByMembers(MakeByMembers { wants: false, ..wanted });
            self.queue.put(self.now + patience, Event::NodeInput(node, None, Input::Command(given_up)));
        }
    }

    /// Hears what became of such a wish. A member that gave up before all had asked asks once more.
    pub(super) fn made_by_members(
        &mut self,
        node: usize,
        wanted: MakeByMembers,
        made: Result<GroupId, Error>,
    ) -> Result<(), String> {
        let nth = wanted.tag.parse().map_err(|_| format!("node {node} was told of {wanted:?}"))?;
        match made {
            Ok(group) => {
                let MakeByMembers { members, .. } = wanted;
                self.met(Met::MadeByMembers);
                self.group_made(node, &GroupMade { parent: GroupId::UNIVERSE, nth, group: Some(group), members })
            }
            Err(error) if error.status() == Status::Timeout && self.is_at_work(node) => {
                self.met(Met::NotAwaited);
                self.processes[node].program.asked_for.remove(&(GroupId::UNIVERSE, nth));
                self.group_soon(node, GroupStep::Make(GroupId::UNIVERSE, nth));
                Ok(())
            }
            Err(error) => self.not_made(node, GroupId::UNIVERSE, nth, &error),
        }
    }

    fn is_at_work(&self, node: usize) -> bool {
        self.processes[node].program.stage == super::program::Stage::Working
    }

    fn next_wish(&mut self, node: usize, nth: u64) {
        if self.plan.wish(nth + 1).is_some() {
            self.group_soon(node, GroupStep::Make(GroupId::UNIVERSE, nth + 1));
        }
    }

    /// A node is told of a group that it has asked for.
    fn group_comes(&mut self, node: usize, made: &GroupMade) -> Result<(), String> {
        let GroupMade { parent, nth, group, .. } = *made;
        if !self.processes[node].program.asked_for.remove(&(parent, nth)) {
            return Err(format!("node {node} was told of {made:?}, which it had not asked for, or twice"));
        }
        if !self.is_at_work(node) {
            return Ok(());
        }
        match group {
            Some(group) if parent == GroupId::UNIVERSE && nth % 2 == 1 => {
                self.group_soon(node, GroupStep::Make(group, 1));
            }
            Some(group) => self.group_soon(node, GroupStep::Free(group)),
            None => {}
        }
        if group.is_some() && parent != GroupId::UNIVERSE {
            self.group_soon(node, GroupStep::Free(parent));
        }
        if parent == GroupId::UNIVERSE {
            self.next_wish(node, nth);
        }
        Ok(())
    }
}
