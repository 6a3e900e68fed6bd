//! The ranks that have not entered a collective, and where they are instead: for members who wait in it, and for whoever asks how the
//! job is. Tested in `stragglers_test.rs` and `status_test.rs`.

use super::standing::Presence;
use super::status::milliseconds;
use super::timers::Due;
use super::Scheduler;
use crate::types::{GroupId, Time};
use crate::wire::{Absence, AbsenceState, Absent, GroupProgress, Message, MessageWait, StatusGroup, WhereAre};
use std::collections::BTreeSet;
use std::time::Duration;

/// How long those who are asked may take.
pub(super) const PATIENCE: Duration = Duration::from_millis(100);
/// How many absent members an answer lists.
pub(super) const LISTED_MAX: usize = 8;
/// How many different questions are open at once; beyond that the answer is what is known.
const QUERIES_MAX: usize = 256;
/// How many ask the same question at once; beyond that, the answer is what is known.
const ASKERS_MAX: usize = 1 << 16;
/// From when on a call counts as one that waits, in milliseconds: then its rank says so with a heartbeat of its own.
const WAITS_AFTER_MS: u64 = 300;

/// A question, put by one or more nodes.
#[derive(Debug)]
pub(super) struct Query {
    id: u64,
    group: GroupId,
    sequence: u64,
    /// The one node that it is about, if it is.
    about: Option<u32>,
    /// The nodes that have been asked for a heartbeat, and has not sent one.
    waiting: BTreeSet<u32>,
    /// The one that wants to know, and how it numbers the question.
    askers: Vec<(u32, u64)>,
}

impl Scheduler {
    pub(super) fn where_are(&mut self, now: Time, key: u32, question: WhereAre) {
        let WhereAre { query, group, sequence, about } = question;
        let Some(members) = self.members_of(group).filter(|members| members.contains(&key)) else {
            self.note(format!("node {key} asks after members of {group}, of which it is no member"));
            return self.send_to(key, Message::Absent(Absent { query, total: 0, members: Vec::new() }));
        };
        let same = |open: &&mut Query| {
            (open.group, open.sequence, open.about) == (group, sequence, about) && open.askers.len() < ASKERS_MAX
        };
        if let Some(open) = self.queries.iter_mut().find(same) {
            return open.askers.push((key, query));
        }
        let id = self.next_query;
        self.next_query += 1;
        let mut open = Query { id, group, sequence, about, waiting: BTreeSet::new(), askers: vec![(key, query)] };
        if self.queries.len() < QUERIES_MAX {
            let absent = members.into_iter().filter(|member| self.is_asked_for(*member, &open));
            open.waiting =
                absent.filter(|member| self.nodes.get(member).is_some_and(|node| node.conn.is_some())).collect();
        }
        if open.waiting.is_empty() {
            return self.answer_query(now, &open);
        }
        for member in open.waiting.clone() {
            self.ask_for_heartbeat(now, member);
        }
        self.queries.push(open);
        self.timers.at(now + PATIENCE, Due::Query(id));
    }

    pub(super) fn query_due(&mut self, now: Time, id: u64) {
        if let Some(at) = self.queries.iter().position(|query| query.id == id) {
            let query = self.queries.remove(at);
            self.answer_query(now, &query);
        }
    }

    /// This node has said where it is, or will not any more.
    pub(super) fn settle_queries(&mut self, now: Time, key: u32) {
        let mut settled = Vec::new();
        for query in &mut self.queries {
            if query.waiting.remove(&key) && query.waiting.is_empty() {
                settled.push(query.id);
            }
        }
        for id in settled {
            self.query_due(now, id);
        }
    }

    /// Remembers how far a node is in the groups that are known here.
    pub(super) fn keep_progress(&mut self, now: Time, key: u32, progress: Vec<GroupProgress>) {
        let known: Vec<(GroupProgress, Time)> = progress
            .into_iter()
            .filter(|progress| self.is_in(progress.group, key))
            .map(|progress| (progress, now))
            .collect();
        if let Some(node) = self.nodes.get_mut(&key) {
            node.progress = known;
            // Each group's newest comes first; what follows is only to be compared.
            let mut seen = BTreeSet::new();
            node.progress.retain(|(progress, _)| seen.insert(progress.group));
        }
        self.settle_queries(now, key);
    }

    /// Remembers for which messages it waits, in groups that are known here.
    pub(super) fn keep_waits(&mut self, now: Time, key: u32, mut waits: Vec<MessageWait>) {
        waits.retain(|wait| self.is_in(wait.group, key));
        if let Some(node) = self.nodes.get_mut(&key) {
            node.waits = (!waits.is_empty()).then(|| Box::new((waits, now)));
        }
    }

    /// The newest collective of a group that a node is known to have entered.
    fn entered(&self, key: u32, group: GroupId) -> u64 {
        let progress = self.nodes.get(&key).and_then(|node| node.progress_in(group));
        progress.map_or(0, |(progress, _)| progress.entered)
    }

    fn is_asked_for(&self, key: u32, query: &Query) -> bool {
        query.about.map_or_else(|| self.entered(key, query.group) < query.sequence, |about| about == key)
    }

    fn answer_query(&mut self, now: Time, query: &Query) {
        let absent: Vec<u32> = self
            .members_of(query.group)
            .into_iter()
            .flatten()
            .filter(|member| self.is_asked_for(*member, query))
            .collect();
        let (members, total) = (self.first_of(now, &absent, query), absent.len() as u32);
        for (key, number) in &query.askers {
            self.send_to(*key, Message::Absent(Absent { query: *number, total, members: members.clone() }));
        }
    }

    /// The newest collective of a group in which members wait while others are known not to have entered it. Nobody is
    /// asked: who has said nothing since it began is absent when more than a heartbeat of it is missing.
    pub(super) fn waited_in(&self, now: Time, group: GroupId, members: &[u32]) -> Option<StatusGroup> {
        let waits = |key: &u32| {
            let (progress, told) = self.nodes.get(key).filter(|node| node.is_member())?.progress_in(group)?;
            let inside = progress.entered > progress.finished && progress.age_ms >= WAITS_AFTER_MS;
            inside.then(|| (progress, Duration::from_millis(progress.age_ms) + now.since(*told)))
        };
        let waiting: Vec<(&GroupProgress, Duration)> = members.iter().filter_map(waits).collect();
        let sequence = waiting.iter().map(|(progress, _)| progress.entered).max()?;
        let newest = || waiting.iter().filter(|(progress, _)| progress.entered == sequence);
        let age = newest().map(|(_, age)| *age).max()?;
        let (since, overdue) = (now - age, age >= self.interval() * 2);
        let mut query = Query { id: 0, group, sequence, about: None, waiting: BTreeSet::new(), askers: Vec::new() };
        let mut absent: Vec<u32> = Vec::new();
        for key in members.iter().filter(|key| self.entered(**key, group) < sequence) {
            let Some(node) = self.nodes.get(key) else { continue };
            let has_told = node.heartbeat.is_some_and(|at| at >= since);
            if !has_told && overdue {
                query.waiting.insert(*key);
            }
            if has_told || overdue || node.conn.is_none() {
                absent.push(*key);
            }
        }
        let first = self.first_of(now, &absent, &query);
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

    /// As many of these absent ones as an answer lists.
    fn first_of(&self, now: Time, absent: &[u32], query: &Query) -> Vec<Absence> {
        absent.iter().take(LISTED_MAX).filter_map(|member| self.absence(now, *member, query)).collect()
    }

    fn absence(&self, now: Time, key: u32, query: &Query) -> Option<Absence> {
        let node = self.nodes.get(&key)?;
        let known = node.progress_in(query.group);
        let state = match known {
            _ if node.presence == Presence::Left => AbsenceState::Left,
            _ if node.conn.is_none() || node.presence.is_lost() => AbsenceState::Silent,
            // Nor has one answered that has only just attached again: what is known is from before.
            _ if node.heartbeat.is_none() || query.waiting.contains(&key) => AbsenceState::Silent,
            None => AbsenceState::Never,
            Some((progress, _)) if progress.entered == 0 => AbsenceState::Never,
            Some((progress, _)) if progress.entered > progress.finished => AbsenceState::Inside,
            Some(_) => AbsenceState::Outside,
        };
        let age = known.map_or(0, |(progress, told)| progress.age_ms.saturating_add(milliseconds(now.since(*told))));
        Some(Absence {
            culprit: node.culprit(),
            state,
            sequence: known.map_or(0, |(progress, _)| progress.entered),
            call: known.and_then(|(progress, _)| progress.call),
            age_ms: age,
            wait: self.waits_of(now, node).into_iter().next(),
        })
    }
}

#[cfg(test)]
#[path = "stragglers_test.rs"]
mod tests;
