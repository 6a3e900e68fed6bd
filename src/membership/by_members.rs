//! Groups that their members make by themselves: nobody else takes part, and there is no parent whose sequence orders
//! them. So each has a name, and all its members must use the same. Tested in `by_members_test.rs`.
//!
//! Two nodes disagree if each asks at the same time for another list under the same tag, and both lists have both nodes.
//! Then each waits for the other. In all other cases they may only make the same calls in another order.

use super::cluster_state::ClusterState;
use super::conductor::Conductor;
use super::group_table::{GroupTable, OPEN_MAX};
use super::pacts::{Name, NAMED_MAX};
use crate::error::{Failure, Status};
use crate::types::GroupId;
use crate::wire::{MadeByMembers, MakeByMembers, Message, Record};

impl Conductor {
    /// A member wants the group, or does not wait for it any more. A member that has come back asks again for groups
    /// made before.
    pub(super) fn make_by_members(&mut self, key: u32, wanted: MakeByMembers) {
        let MakeByMembers { ask, wants, tag, nth, members } = wanted;
        let (cluster, table) = (&mut self.cluster, &mut self.groups.table);
        let name = Name { members, tag, nth };
        if !name.can_be(cluster.rules.worker_num) || !name.members.contains(&key) {
            return cluster.out.note(format!("node {key} asks for a group of impossible members: ignored"));
        }
        if let Some(group) = table.pacts.made(&name) {
            table.uses(group, key);
            return tell(cluster, key, ask, Ok(group));
        }
        if !wants {
            let failure = awaited(cluster, table, &name, key);
            table.pacts.withdraw(&name, key);
            return tell(cluster, key, ask, Err(failure));
        }
        if cluster.job.is_broken() {
            return; // it has been told
        }
        if self.recovery.is_open() {
            let cause = format!("another node has called muster_recover, which ends epoch {}", cluster.epoch.0);
            let failure = cluster.failure(Status::Revoked, None, cause);
            return tell(cluster, key, ask, Err(failure));
        }
        if let Some(failure) = refusal(cluster, table, &name, key) {
            return tell(cluster, key, ask, Err(failure));
        }
        if let Some((other, other_name)) = table.pacts.disagreement(&name, key) {
            let failure = disagreement(cluster, (key, &name), (other, &other_name));
            tell(cluster, key, ask, Err(failure.clone()));
            return end_pacts(cluster, table, |open| *open == name || *open == other_name, |_, _| failure.clone());
        }
        if let Some(asks) = table.pacts.join(&name, key, ask) {
            let (group, record) = table.make_by_members(name);
            cluster.out.promise(Record::ByMembers(record));
            asks.into_iter().for_each(|(member, ask)| tell(cluster, member, ask, Ok(group)));
        }
    }

    /// A node has called `muster_recover`: nobody waits any more for groups that this epoch would have made.
    pub(super) fn end_all_pacts(&mut self, by: u32) {
        let culprit = self.cluster.nodes.get(&by).map(|node| node.culprit());
        let cause = format!("called muster_recover, which ends epoch {}", self.cluster.epoch.0);
        let failure = self.cluster.failure(Status::Revoked, culprit, cause);
        end_pacts(&mut self.cluster, &mut self.groups.table, |_| true, |_, _| failure.clone());
    }

    /// A node has left: groups that need it cannot be made.
    pub(super) fn end_pacts_with(&mut self, key: u32) {
        let culprit = self.cluster.nodes.get(&key).map(|node| node.culprit());
        let needs_it = |name: &Name| name.members.contains(&key);
        end_pacts(&mut self.cluster, &mut self.groups.table, needs_it, |cluster, name| {
            cluster.failure(Status::PeerLeft, culprit.clone(), left(name))
        });
    }
}

/// Tells a member what became of its wish.
fn tell(cluster: &mut ClusterState, key: u32, ask: u64, outcome: Result<GroupId, Failure>) {
    let (group, failure) = match outcome {
        Ok(group) => (Some(group), None),
        Err(failure) => (None, Some(failure)),
    };
    cluster.send_to(key, Message::MadeByMembers(MadeByMembers { ask, group, failure }));
}

/// Ends the open groups for which `which` is true, each with the failure that `failure` gives.
fn end_pacts(
    cluster: &mut ClusterState,
    table: &mut GroupTable,
    which: impl Fn(&Name) -> bool,
    failure: impl Fn(&ClusterState, &Name) -> Failure,
) {
    let ended: Vec<Name> = table.pacts.open().filter(|name| which(name)).cloned().collect();
    for name in ended {
        let failure = failure(cluster, &name);
        let asks = table.pacts.end(&name);
        asks.into_iter().for_each(|(member, ask)| tell(cluster, member, ask, Err(failure.clone())));
    }
}

fn left(name: &Name) -> String {
    format!("has left the cluster, and {} needs it", name.in_words())
}

/// The reason why there will be no such group, if that is known.
fn refusal(cluster: &ClusterState, table: &GroupTable, name: &Name, key: u32) -> Option<Failure> {
    if let Some(gone) = name.members.iter().find(|member| cluster.nodes.has_left(**member)) {
        let culprit = cluster.nodes.get(gone).map(|node| node.culprit());
        return Some(cluster.failure(Status::PeerLeft, culprit, left(name)));
    }
    // A member that was attached again asks once more for what it waits for.
    let open = table.pacts.open_by(key);
    (open >= OPEN_MAX && !table.pacts.waits(name, key)).then(|| {
        let cause = format!("this node is already making {open} groups: the limit is {OPEN_MAX} at a time");
        cluster.failure(Status::Limit, None, cause)
    })
}

/// Names the members that have not asked. A member that stops waiting is told this.
fn awaited(cluster: &ClusterState, table: &GroupTable, name: &Name, key: u32) -> Failure {
    let mut missing = name.members.iter().filter(|member| **member != key && !table.pacts.waits(name, **member));
    let first = missing.next().and_then(|member| cluster.nodes.get(member)).map(|node| node.culprit());
    let others: Vec<u32> = missing.copied().collect();
    let named: Vec<String> = others.iter().take(NAMED_MAX).map(|member| cluster.nodes.in_words(*member)).collect();
    let more = others.len() - named.len();
    let more = if more == 0 { String::new() } else { format!(" and {more} others") };
    let others = if named.is_empty() { String::new() } else { format!("; nor has {}{more}", named.join(", nor ")) };
    let cause = format!("has not asked for {} in time{others}", name.in_words());
    cluster.failure(Status::Timeout, first, cause)
}

fn disagreement(cluster: &ClusterState, one: (u32, &Name), other: (u32, &Name)) -> Failure {
    let (first, second) = if one.0 < other.0 { (one, other) } else { (other, one) };
    let said = |(key, name): (u32, &Name)| format!("{} asks for {}", cluster.nodes.in_words(key), name.in_words());
    let cause = format!("{}, but {}: members must name the same ranks in the same order", said(first), said(second));
    cluster.failure(Status::Mismatch, None, cause)
}

#[cfg(test)]
#[path = "by_members_test.rs"]
mod tests;
