//! Groups that the programs make: of the universe, one after the other, and of those again; then they free them. All
//! members must be told the same number and the same list, which is the one that the plan comes to.

use super::plan::Wish;
use super::random::Random;
use super::world::{Event, World};
use crate::agent::Command;
use crate::types::GroupId;
use crate::wire::{GroupMade, GroupWish, MakeGroup};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What a program does next with groups.
#[derive(Clone, Copy, Debug)]
pub(super) enum GroupStep {
    /// Ask for the n-th group that is made of this one.
    Make(GroupId, u64),
    Free(GroupId),
}

/// One program's groups.
#[derive(Debug, Default)]
pub(super) struct Making {
    /// Asked for, and not answered.
    open: BTreeSet<(GroupId, u64)>,
    /// Steps that are still to come.
    due: usize,
}

impl Making {
    pub(super) fn is_done(&self) -> bool {
        self.open.is_empty() && self.due == 0
    }

    /// It will not be made. None where it was not asked for.
    pub(super) fn not_made(&mut self, parent: GroupId, nth: u64) -> Option<()> {
        self.open.remove(&(parent, nth)).then_some(())
    }

    /// A group is revoked: nothing is made of it any more.
    pub(super) fn give_up(&mut self, group: Option<GroupId>) {
        self.open.retain(|(parent, _)| Some(*parent) != group);
    }
}

/// All groups of a story: number and members, by what they were made of.
#[derive(Debug, Default)]
pub(super) struct Register {
    made: BTreeMap<(GroupId, u64, Vec<u32>), GroupId>,
    pub(super) freed: usize,
}

impl Register {
    /// How many were made.
    pub(super) fn count(&self) -> usize {
        self.made.len()
    }

    fn members(&self, group: GroupId) -> &[u32] {
        let found = self.made.iter().find(|(_, made)| **made == group);
        found.map_or(&[], |((_, _, members), _)| members)
    }
}

/// The wishes of a plan for so many nodes.
pub(super) fn wishes(random: &mut Random, nodes: u32) -> Vec<Wish> {
    let wish = |random: &mut Random| {
        if random.once_in(2) {
            let colours = random.below(1..4);
            let one = |random: &mut Random| {
                let colour = (!random.once_in(5)).then(|| random.below(0..colours) as u32);
                (colour, random.below(0..5) as i32 - 2)
            };
            return Wish::Split((0..nodes).map(|_| one(random)).collect());
        }
        let mut ranks: Vec<u32> = (0..nodes).collect();
        random.shuffle(&mut ranks);
        ranks.truncate(random.index(nodes as usize + 1));
        Wish::Create(ranks)
    };
    (0..random.below(1..5)).map(|_| wish(random)).collect()
}

impl World {
    /// The node has joined: it begins with the first.
    pub(super) fn begin_groups(&mut self, node: usize) {
        if !self.plan.groups.is_empty() {
            self.group_soon(node, GroupStep::Make(GroupId::UNIVERSE, 1));
        }
    }

    fn group_soon(&mut self, node: usize, step: GroupStep) {
        self.nodes[node].program.groups.due += 1;
        let at = self.now + self.random.span_ms(0..200);
        self.queue.put(at, Event::Group(node, step));
    }

    pub(super) fn group_step(&mut self, node: usize, step: GroupStep) {
        self.nodes[node].program.groups.due -= 1;
        let side = &mut self.nodes[node];
        let Some((_, formed)) = side.formed.as_ref() else { return };
        let index = formed.index as usize;
        if side.is_over() || side.asked_to_leave.is_some() || side.broken.is_some() {
            return;
        }
        match step {
            GroupStep::Make(parent, _) if side.revoked.contains_key(&parent) => {}
            GroupStep::Make(parent, nth) => {
                side.program.groups.open.insert((parent, nth));
                let wish = match self.plan.groups.get(nth as usize - 1) {
                    Some(Wish::Split(wishes)) if parent == GroupId::UNIVERSE => {
                        let (colour, key) = wishes[index];
                        GroupWish::Colour { colour, key }
                    }
                    Some(Wish::Create(ranks)) if parent == GroupId::UNIVERSE => GroupWish::Ranks(ranks.clone()),
                    _ => GroupWish::Ranks((0..self.groups.members(parent).len() as u32).rev().collect()),
                };
                let wanted = MakeGroup { parent, nth, sequence: nth, history: 0, wish };
                self.command(node, Duration::ZERO, Command::MakeGroup(wanted));
            }
            GroupStep::Free(group) => {
                self.groups.freed += 1;
                self.command(node, Duration::ZERO, Command::FreeGroup(group));
            }
        }
        self.leave_if_done(node);
    }

    /// A node is told of a group.
    pub(super) fn group_made(&mut self, node: usize, made: &GroupMade) -> Result<(), String> {
        let GroupMade { parent, nth, group, members } = made;
        if !self.nodes[node].program.groups.open.remove(&(*parent, *nth)) {
            return Err(format!("node {node} was told of {made:?}, which it had not asked for, or twice"));
        }
        let own = self.nodes[node].formed.as_ref().map_or(u32::MAX, |(_, formed)| formed.index);
        let expected = self.expected(own, *parent, *nth);
        if *members != expected || group.is_some() == expected.is_empty() {
            return Err(format!("node {node} was told of {made:?}: its members are {expected:?}"));
        }
        if let Some(group) = *group {
            let known = *self.groups.made.entry((*parent, *nth, expected)).or_insert(group);
            let namesakes = self.groups.made.values().filter(|made| **made == group).count();
            if known != group || namesakes != 1 {
                return Err(format!(
                    "node {node} was told of {group}, others of {known}, and {namesakes} are called so"
                ));
            }
            match *parent {
                GroupId::UNIVERSE if nth % 2 == 1 => self.group_soon(node, GroupStep::Make(group, 1)),
                GroupId::UNIVERSE => self.group_soon(node, GroupStep::Free(group)),
                _ => {
                    self.group_soon(node, GroupStep::Free(group));
                    self.group_soon(node, GroupStep::Free(*parent));
                }
            }
        }
        if *parent == GroupId::UNIVERSE && (*nth as usize) < self.plan.groups.len() {
            self.group_soon(node, GroupStep::Make(GroupId::UNIVERSE, nth + 1));
        }
        Ok(())
    }

    /// The members of the group in which this node is to be; none: it is to be in none.
    fn expected(&self, own: u32, parent: GroupId, nth: u64) -> Vec<u32> {
        if parent != GroupId::UNIVERSE {
            return self.groups.members(parent).iter().rev().copied().collect();
        }
        let members = match &self.plan.groups[nth as usize - 1] {
            Wish::Create(ranks) => ranks.clone(),
            Wish::Split(wishes) => {
                let mut members: Vec<u32> = (0..wishes.len() as u32).collect();
                let colour = |index: &u32| wishes[*index as usize].0;
                members.retain(|index| colour(index).is_some() && colour(index) == colour(&own));
                members.sort_by_key(|index| wishes[*index as usize].1);
                members
            }
        };
        if members.contains(&own) {
            members
        } else {
            Vec::new()
        }
    }
}
