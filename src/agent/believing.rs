//! Compares what the scheduler says with what this node was told, and with what is possible, before anything follows
//! from it. So no number that it names makes this node reserve memory, and no node computes in a cluster of another
//! size than its own settings say.
//!
//! A scheduler of this library says nothing impossible: one that does is another program, or was damaged. Tested in
//! `believing_test.rs`.

use crate::types::Role;
use crate::wire::{Formed, GroupMade, Register, CREATIONS_MAX};
use std::collections::HashSet;

/// The longest heartbeat time-out that can be set.
const HEARTBEAT_MAX_MS: u64 = 1_000_000_000_000;

/// Checks whether the cluster that a scheduler describes can be that of the node that registered so; or says what is
/// wrong.
pub(super) fn check_formed(register: &Register, formed: &Formed) -> Result<(), String> {
    for (theirs, ours, what, setting) in [
        (formed.worker_num, register.worker_num, "workers", "MS_WORKER_NUM"),
        (formed.server_num, register.server_num, "servers", "MS_SERVER_NUM"),
    ] {
        if theirs != ours {
            return Err(format!(
                "it says that the number of {what} is {theirs}, and this node was told {ours} ({setting})"
            ));
        }
    }
    let (workers, servers) = (u64::from(formed.worker_num), u64::from(formed.server_num));
    let all = workers + servers;
    let (first, of_role) = if register.role == Role::Server { (workers, servers) } else { (0, workers) };
    let place = format!("{} of rank {}, node {} of {all}", register.role, formed.rank, formed.index);
    if u64::from(formed.rank) >= of_role || u64::from(formed.index) != first + u64::from(formed.rank) {
        return Err(format!("it gives this node a place that does not exist: {place}"));
    }
    if let Some(own) = register.rank.filter(|own| *own != formed.rank) {
        return Err(format!("it gives this node rank {}, and this node's settings rank {own}", formed.rank));
    }
    if formed.local_rank >= formed.local_size || u64::from(formed.local_size) > of_role {
        let (rank, size) = (formed.local_rank, formed.local_size);
        return Err(format!("it says that this node is number {rank} of {size} on its host, of {of_role} altogether"));
    }
    let members = &formed.members;
    if members.len() as u64 > all || !members.are_in_order_below(all) {
        return Err(format!(
            "its table of {} nodes names a node twice, or a node beyond the {all} of this cluster",
            members.len()
        ));
    }
    if !members.has(formed.index) {
        return Err(format!("its table of nodes does not name this node, {}", formed.index));
    }
    let timeout = formed.agreed.heartbeat_timeout_ms;
    if !(1..=HEARTBEAT_MAX_MS).contains(&timeout) {
        return Err(format!("its heartbeat time-out is {timeout} ms: expected 1 to {HEARTBEAT_MAX_MS}"));
    }
    match formed.creations.len() {
        count if count > CREATIONS_MAX => {
            Err(format!("it lists {count} groups that other groups were made of: the limit is {CREATIONS_MAX}"))
        }
        _ => Ok(()),
    }
}

/// Checks whether a group that a scheduler has made is possible in a cluster of so many nodes, of which this is one; or
/// says what is wrong.
pub(super) fn check_made(register: &Register, made: &GroupMade) -> Result<(), String> {
    let all = u64::from(register.worker_num) + u64::from(register.server_num);
    let mut seen = HashSet::new();
    let is_sound = |index: &u32| u64::from(*index) < all && seen.insert(*index);
    match made.members.iter().all(is_sound) {
        true => Ok(()),
        false => Err(format!("it makes a group that has a node twice, or a node beyond the {all} of this cluster")),
    }
}

#[cfg(test)]
#[path = "believing_test.rs"]
mod tests;
