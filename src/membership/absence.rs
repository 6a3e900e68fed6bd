//! Who has not entered a collective, and where they are instead. Tested in `absence_test.rs`.

use super::timers::Due;
use super::Scheduler;
use crate::types::{GroupId, Time};
use crate::wire::{Absence, AbsenceState, Absent, GroupProgress, Message, WhereAre};
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

/// A question, put by one or more nodes.
#[derive(Debug)]
pub(super) struct Query {
    id: u64,
    group: GroupId,
    sequence: u64,
    /// Who has been asked for a heartbeat, and has not sent one.
    waiting: BTreeSet<u32>,
    /// Who wants to know, and how it numbers the question.
    askers: Vec<(u32, u64)>,
}

impl Scheduler {
    pub(super) fn where_are(&mut self, now: Time, key: u32, question: WhereAre) {
        let WhereAre { query, group, sequence } = question;
        let Some(members) = self.members_of(group).filter(|members| members.contains(&key)) else {
            self.note(format!("node {key} asks after members of {group}, of which it is no member"));
            return self.send_to(key, Message::Absent(Absent { query, total: 0, members: Vec::new() }));
        };
        let same =
            |open: &&mut Query| open.group == group && open.sequence == sequence && open.askers.len() < ASKERS_MAX;
        if let Some(open) = self.queries.iter_mut().find(same) {
            return open.askers.push((key, query));
        }
        let id = self.next_query;
        self.next_query += 1;
        let mut open = Query { id, group, sequence, waiting: BTreeSet::new(), askers: vec![(key, query)] };
        if self.queries.len() < QUERIES_MAX {
            let absent = members.into_iter().filter(|member| self.entered(*member, group) < sequence);
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

    /// The newest collective of a group that a node is known to have entered.
    fn entered(&self, key: u32, group: GroupId) -> u64 {
        let progress = self.nodes.get(&key).and_then(|node| node.progress_in(group));
        progress.map_or(0, |(progress, _)| progress.entered)
    }

    fn answer_query(&mut self, now: Time, query: &Query) {
        let absent: Vec<u32> = self
            .members_of(query.group)
            .into_iter()
            .flatten()
            .filter(|member| self.entered(*member, query.group) < query.sequence)
            .collect();
        let members: Vec<Absence> =
            absent.iter().take(LISTED_MAX).filter_map(|member| self.absence(now, *member, query)).collect();
        let total = absent.len() as u32;
        for (key, number) in &query.askers {
            self.send_to(*key, Message::Absent(Absent { query: *number, total, members: members.clone() }));
        }
    }

    fn absence(&self, now: Time, key: u32, query: &Query) -> Option<Absence> {
        let node = self.nodes.get(&key)?;
        let known = node.progress_in(query.group);
        let state = match known {
            _ if node.presence == super::node::Presence::Left => AbsenceState::Left,
            _ if node.conn.is_none() || query.waiting.contains(&key) => AbsenceState::Silent,
            None => AbsenceState::Never,
            Some((progress, _)) if progress.entered == 0 => AbsenceState::Never,
            Some((progress, _)) if progress.entered > progress.finished => AbsenceState::Inside,
            Some(_) => AbsenceState::Outside,
        };
        let age = known.map_or(0, |(progress, told)| {
            progress.age_ms.saturating_add(u64::try_from(now.since(*told).as_millis()).unwrap_or(u64::MAX))
        });
        Some(Absence {
            culprit: node.culprit(),
            state,
            sequence: known.map_or(0, |(progress, _)| progress.entered),
            call: known.and_then(|(progress, _)| progress.call),
            age_ms: age,
        })
    }
}

#[cfg(test)]
#[path = "absence_test.rs"]
mod tests;
