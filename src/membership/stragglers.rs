//! The ranks that have not entered a collective, and where they are instead. Members that wait in it ask for this, and
//! `muster status`. Tested in `stragglers_test.rs` and `status_test.rs`.

use super::cluster_state::ClusterState;
use super::groups::Groups;
use super::node::Node;
use super::standing::Presence;
use super::timers::{Due, PATIENCE};
use crate::types::{GroupId, Time};
use crate::wire::{
    Absent, GroupCarrier, GroupProgress, Message, MessageWait, StatusGroup, Straggler, StragglerState, WhereAre,
    WAITS_AFTER,
};
use std::collections::BTreeSet;
use std::time::Duration;

/// How many absent members an answer lists.
pub(super) const LISTED_MAX: usize = 8;
/// How many different questions are open at once; beyond that the answer is what is known.
const QUERIES_MAX: usize = 256;
/// How many nodes may ask the same question at once; beyond that, the answer is what is known.
const ASKERS_MAX: usize = 1 << 16;

/// A question, put by one or more nodes.
#[derive(Debug)]
pub(super) struct Query {
    id: u64,
    group: GroupId,
    sequence: u64,
    /// The one node that the question is about, if it is about one.
    about: Option<u32>,
    /// The nodes that have been asked for a heartbeat, and have not sent one.
    waiting: BTreeSet<u32>,
    /// The nodes that ask, and the number that each gives the question.
    askers: Vec<(u32, u64)>,
}

/// The questions that are open.
#[derive(Debug, Default)]
pub(super) struct Stragglers {
    queries: Vec<Query>,
    next_query: u64,
}

impl Stragglers {
    /// A member asks which of the others have not entered a collective.
    pub(super) fn where_are(
        &mut self,
        cluster: &mut ClusterState,
        groups: &Groups,
        now: Time,
        key: u32,
        question: WhereAre,
    ) {
        let WhereAre { query, group, sequence, about } = question;
        let Some(members) = groups.table.members_of(group).filter(|members| members.contains(&key)) else {
            cluster.out.note(format!("node {key} asks about members of {group}, but is not a member of it"));
            return cluster.send_to(key, Message::Absent(Absent { query, total: 0, members: Vec::new() }));
        };
        let same = |open: &&mut Query| {
            (open.group, open.sequence, open.about) == (group, sequence, about) && open.askers.len() < ASKERS_MAX
        };
        if let Some(open) = self.queries.iter_mut().find(same) {
            return open.askers.push((key, query));
        }
        let id = self.next_query;
        self.next_query += 1;
        let view = View { cluster, groups, now };
        let mut open = Query { id, group, sequence, about, waiting: BTreeSet::new(), askers: vec![(key, query)] };
        if self.queries.len() < QUERIES_MAX {
            let absent = members.into_iter().filter(|member| view.is_asked_for(*member, &open));
            open.waiting =
                absent.filter(|member| cluster.nodes.get(member).is_some_and(|node| node.conn().is_some())).collect();
        }
        if open.waiting.is_empty() {
            return answer(cluster, groups, now, &open);
        }
        for member in open.waiting.clone() {
            cluster.ask_for_heartbeat(now, member);
        }
        self.queries.push(open);
        cluster.out.at(now + PATIENCE, Due::Query(id));
    }

    /// The nodes that were asked have had their time.
    pub(super) fn query_due(&mut self, cluster: &mut ClusterState, groups: &Groups, now: Time, id: u64) {
        if let Some(at) = self.queries.iter().position(|query| query.id == id) {
            let query = self.queries.remove(at);
            answer(cluster, groups, now, &query);
        }
    }

    /// This node has said where it is, or will not say it any more.
    pub(super) fn settle(&mut self, cluster: &mut ClusterState, groups: &Groups, now: Time, key: u32) {
        let mut settled = Vec::new();
        for query in &mut self.queries {
            if query.waiting.remove(&key) && query.waiting.is_empty() {
                settled.push(query.id);
            }
        }
        for id in settled {
            self.query_due(cluster, groups, now, id);
        }
    }

    /// Remembers how far a node is in the groups that are known here.
    pub(super) fn keep_progress(
        &mut self,
        cluster: &mut ClusterState,
        groups: &Groups,
        now: Time,
        key: u32,
        progress: Vec<GroupProgress>,
    ) {
        let known: Vec<(GroupProgress, Time)> = progress
            .into_iter()
            .filter(|progress| groups.table.is_in(progress.group, key))
            .map(|progress| (progress, now))
            .collect();
        if let Some(node) = cluster.nodes.get_mut(key) {
            node.course.progress = known;
            // Each group's newest collective comes first. What follows is only for comparison.
            let mut seen = BTreeSet::new();
            node.course.progress.retain(|(progress, _)| seen.insert(progress.group));
        }
        self.settle(cluster, groups, now, key);
    }

    /// A new epoch: nothing is asked in it.
    pub(super) fn begin_epoch(&mut self) {
        self.queries.clear();
    }

    /// Remembers the messages for which a node waits, in groups that are known here.
    pub(super) fn keep_waits(
        &self,
        cluster: &mut ClusterState,
        groups: &Groups,
        now: Time,
        key: u32,
        mut waits: Vec<MessageWait>,
    ) {
        waits.retain(|wait| groups.table.is_in(wait.group, key));
        if let Some(node) = cluster.nodes.get_mut(key) {
            node.course.waits = (!waits.is_empty()).then(|| Box::new((waits, now)));
        }
    }

    /// Remembers what carries the collectives of groups that are known here.
    pub(super) fn keep_carriers(
        &self,
        cluster: &mut ClusterState,
        groups: &Groups,
        key: u32,
        mut carriers: Vec<GroupCarrier>,
    ) {
        carriers.retain(|carried| groups.table.is_in(carried.group, key));
        if let Some(node) = cluster.nodes.get_mut(key) {
            node.course.carriers = carriers;
        }
    }
}

fn answer(cluster: &mut ClusterState, groups: &Groups, now: Time, query: &Query) {
    let (total, members) = View { cluster, groups, now }.absent(query);
    for (key, number) in &query.askers {
        cluster.send_to(*key, Message::Absent(Absent { query: *number, total, members: members.clone() }));
    }
}

/// What is known of the groups and their members at one moment.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) cluster: &'a ClusterState,
    pub(super) groups: &'a Groups,
    pub(super) now: Time,
}

impl View<'_> {
    /// The members that a question asks about: how many there are, and the first of them.
    fn absent(&self, query: &Query) -> (u32, Vec<Straggler>) {
        let members = self.groups.table.members_of(query.group).into_iter().flatten();
        let absent: Vec<u32> = members.filter(|member| self.is_asked_for(*member, query)).collect();
        (absent.len() as u32, self.first_of(&absent, query))
    }

    /// The newest collective of a group in which members wait while others are known not to have entered it. Nobody is
    /// asked. A member that has said nothing since the collective began counts as absent when more than one heartbeat
    /// of it is missing.
    pub(super) fn waited_in(&self, group: GroupId, members: &[u32]) -> Option<StatusGroup> {
        let waits = |key: &u32| {
            let (progress, told) =
                self.cluster.nodes.get(key).filter(|node| node.is_member())?.course.progress_in(group)?;
            let inside = progress.entered > progress.finished && Duration::from_millis(progress.age_ms) >= WAITS_AFTER;
            inside.then(|| (progress, Duration::from_millis(progress.age_ms) + self.now.since(*told)))
        };
        let waiting: Vec<(&GroupProgress, Duration)> = members.iter().filter_map(waits).collect();
        let sequence = waiting.iter().map(|(progress, _)| progress.entered).max()?;
        let newest = || waiting.iter().filter(|(progress, _)| progress.entered == sequence);
        let age = newest().map(|(_, age)| *age).max()?;
        let (since, overdue) = (self.now - age, age >= self.cluster.interval() * 2);
        let mut query = Query { id: 0, group, sequence, about: None, waiting: BTreeSet::new(), askers: Vec::new() };
        let mut absent: Vec<u32> = Vec::new();
        for key in members.iter().filter(|key| self.entered(**key, group) < sequence) {
            let Some(node) = self.cluster.nodes.get(key) else { continue };
            let has_told = node.contact.heartbeat.is_some_and(|at| at >= since);
            if !has_told && overdue {
                query.waiting.insert(*key);
            }
            if has_told || overdue || node.conn().is_none() {
                absent.push(*key);
            }
        }
        let first = self.first_of(&absent, &query);
        (!absent.is_empty()).then(|| StatusGroup {
            group,
            failure: None,
            sequence,
            call: newest().find_map(|(progress, _)| progress.call),
            inside: newest().count() as u32,
            age_ms: milliseconds(age),
            absent: absent.len() as u32,
            members: first,
        })
    }

    /// The newest collective of a group that a node is known to have entered.
    fn entered(&self, key: u32, group: GroupId) -> u64 {
        let progress = self.cluster.nodes.get(&key).and_then(|node| node.course.progress_in(group));
        progress.map_or(0, |(progress, _)| progress.entered)
    }

    fn is_asked_for(&self, key: u32, query: &Query) -> bool {
        query.about.map_or_else(|| self.entered(key, query.group) < query.sequence, |about| about == key)
    }

    /// The first of these absent members: as many as an answer lists.
    fn first_of(&self, absent: &[u32], query: &Query) -> Vec<Straggler> {
        absent.iter().take(LISTED_MAX).filter_map(|member| self.straggler(*member, query)).collect()
    }

    fn straggler(&self, key: u32, query: &Query) -> Option<Straggler> {
        let node = self.cluster.nodes.get(&key)?;
        let known = node.course.progress_in(query.group);
        let state = match known {
            _ if node.presence == Presence::Left => StragglerState::Left,
            _ if node.conn().is_none() || node.presence.is_lost() => StragglerState::Silent,
            // A node that has only just attached again has not answered either: what is known of it is from before.
            _ if node.contact.heartbeat.is_none() || query.waiting.contains(&key) => StragglerState::Silent,
            None => StragglerState::Never,
            Some((progress, _)) if progress.entered == 0 => StragglerState::Never,
            Some((progress, _)) if progress.entered > progress.finished => StragglerState::Inside,
            Some(_) => StragglerState::Outside,
        };
        let age =
            known.map_or(0, |(progress, told)| progress.age_ms.saturating_add(milliseconds(self.now.since(*told))));
        Some(Straggler {
            culprit: node.culprit(),
            state,
            sequence: known.map_or(0, |(progress, _)| progress.entered),
            call: known.and_then(|(progress, _)| progress.call),
            age_ms: age,
            wait: self.waits_of(node).into_iter().next(),
        })
    }

    /// The messages for which a node waits, in groups that still hold.
    pub(super) fn waits_of(&self, node: &Node) -> Vec<MessageWait> {
        let waits = node.course.waits.as_deref().filter(|_| !self.cluster.job.is_broken());
        let Some((waits, told)) = waits else { return Vec::new() };
        let since = milliseconds(self.now.since(*told));
        let holds = |wait: &&MessageWait| !self.groups.is_revoked(wait.group);
        let aged = |wait: &MessageWait| MessageWait { age_ms: wait.age_ms.saturating_add(since), ..wait.clone() };
        waits.iter().filter(holds).map(aged).collect()
    }

    /// What carries a group's collectives, from the first member that tells it. All members have found out the same.
    pub(super) fn carrier_of(&self, group: GroupId, members: &[u32]) -> Option<GroupCarrier> {
        let told = members.iter().filter_map(|key| self.cluster.nodes.get(key)).flat_map(|node| &node.course.carriers);
        told.into_iter().find(|carried| carried.group == group).cloned()
    }

    /// The collectives in which a node is, in groups that still hold.
    pub(super) fn calls_of(&self, node: &Node) -> Vec<GroupProgress> {
        if self.cluster.job.is_broken() {
            return Vec::new();
        }
        let inside = |(progress, _): &&(GroupProgress, Time)| {
            progress.entered > progress.finished && !self.groups.is_revoked(progress.group)
        };
        let since = |(progress, told): &(GroupProgress, Time)| {
            let age_ms = progress.age_ms.saturating_add(milliseconds(self.now.since(*told)));
            GroupProgress { age_ms, ..progress.clone() }
        };
        node.course.progress.iter().filter(inside).map(since).collect()
    }
}

pub(super) fn milliseconds(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "stragglers_test.rs"]
mod tests;
