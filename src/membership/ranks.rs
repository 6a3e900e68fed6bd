//! Ranks for nodes. Pure functions of which nodes registered, in which order; tested in `ranks_test.rs`.

use crate::types::{HostName, Role};
use std::cmp::Ordering;
use std::collections::HashMap;

use super::node::Place;

/// What decides a node's rank.
#[derive(Clone, Debug)]
pub(super) struct Candidate<'a> {
    pub(super) role: Role,
    /// The rank that its id or its launcher gives it. It is unique in its role, and below the number of that role's
    /// nodes.
    pub(super) explicit_rank: Option<u32>,
    pub(super) node_id: &'a str,
    pub(super) node_id_given: bool,
    pub(super) host: &'a HostName,
}

/// Whether an id consists of digits only.
pub(super) fn is_decimal(id: &str) -> bool {
    !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit())
}

/// The rank that an id means, if it means one: decimal, no leading zero, below the number of nodes.
pub(super) fn rank_of_id(id: &str, number: u32) -> Option<u32> {
    let plain = is_decimal(id) && (id == "0" || !id.starts_with('0'));
    plain.then(|| id.parse().ok()).flatten().filter(|rank| *rank < number)
}

/// The part in which two ids must differ: decimal ids must differ in more than leading zeros.
pub(super) fn canonical(id: &str) -> &str {
    if !is_decimal(id) {
        return id;
    }
    match id.trim_start_matches('0') {
        "" => "0",
        stripped => stripped,
    }
}

/// Orders text as people do: runs of digits by their value, so that `worker_2` comes before `worker_10`.
pub(super) fn natural(a: &str, b: &str) -> Ordering {
    let (mut rest_a, mut rest_b) = (a.as_bytes(), b.as_bytes());
    while !rest_a.is_empty() && !rest_b.is_empty() {
        let (digits_a, digits_b) = (digits(rest_a), digits(rest_b));
        if digits_a > 0 && digits_b > 0 {
            let (run_a, run_b) = (value(&rest_a[..digits_a]), value(&rest_b[..digits_b]));
            let order = run_a.len().cmp(&run_b.len()).then_with(|| run_a.cmp(run_b));
            if order != Ordering::Equal {
                return order;
            }
            (rest_a, rest_b) = (&rest_a[digits_a..], &rest_b[digits_b..]);
        } else {
            if rest_a[0] != rest_b[0] {
                return rest_a[0].cmp(&rest_b[0]);
            }
            (rest_a, rest_b) = (&rest_a[1..], &rest_b[1..]);
        }
    }
    // Equal but for leading zeros, or one begins the other: any fixed order will do, and the shorter goes first.
    rest_a.len().cmp(&rest_b.len()).then_with(|| a.len().cmp(&b.len())).then_with(|| a.cmp(b))
}

fn digits(text: &[u8]) -> usize {
    text.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

/// A run of digits without its leading zeros.
fn value(run: &[u8]) -> &[u8] {
    &run[run.iter().take_while(|byte| **byte == b'0').count()..]
}

/// A place for every candidate, in the same order. `candidates` are in order of registration. There are as many of each
/// role as the cluster has.
pub(super) fn assign(candidates: &[Candidate<'_>]) -> Vec<Place> {
    let mut ranks = vec![0; candidates.len()];
    for role in [Role::Worker, Role::Server] {
        let of_role: Vec<usize> = (0..candidates.len()).filter(|at| candidates[*at].role == role).collect();
        assign_role(candidates, &of_role, &mut ranks);
    }
    let ranked = candidates.iter().zip(ranks).map(|(candidate, rank)| (candidate.role, &candidate.host.key[..], rank));
    places(&ranked.collect::<Vec<_>>())
}

/// The places of nodes of these roles, on hosts of these keys, with these ranks.
pub(super) fn places(ranked: &[(Role, &str, u32)]) -> Vec<Place> {
    let mut by_rank: Vec<usize> = (0..ranked.len()).collect();
    by_rank.sort_by_key(|at| ranked[*at].2);
    let mut on_host: HashMap<(Role, &str), u32> = HashMap::new();
    let mut places = vec![Place { rank: 0, local_rank: 0, local_size: 0 }; ranked.len()];
    for at in by_rank {
        let (role, host, rank) = ranked[at];
        let count = on_host.entry((role, host)).or_default();
        places[at] = Place { rank, local_rank: *count, local_size: 0 };
        *count += 1;
    }
    for (place, (role, host, _)) in places.iter_mut().zip(ranked) {
        place.local_size = on_host[&(*role, *host)];
    }
    places
}

/// Gives out the explicit ranks; then the free ranks to given ids in natural order; then to nodes without ids, host by
/// host.
fn assign_role(candidates: &[Candidate<'_>], of_role: &[usize], ranks: &mut [u32]) {
    let mut taken = vec![false; of_role.len()];
    let (mut named, mut nameless) = (Vec::new(), Vec::new());
    let mut host_order: HashMap<&str, usize> = HashMap::new();
    for &at in of_role {
        let candidate = &candidates[at];
        if let Some(rank) = candidate.explicit_rank {
            ranks[at] = rank;
            taken[rank as usize] = true;
        } else if candidate.node_id_given {
            named.push(at);
        } else {
            let next = host_order.len();
            nameless.push((*host_order.entry(&candidate.host.key).or_insert(next), at));
        }
    }
    named.sort_by(|a, b| natural(candidates[*a].node_id, candidates[*b].node_id));
    nameless.sort_unstable();
    let free = (0u32..).zip(taken).filter(|(_, taken)| !taken).map(|(rank, _)| rank);
    for (rank, at) in free.zip(named.into_iter().chain(nameless.into_iter().map(|(_, at)| at))) {
        ranks[at] = rank;
    }
}

/// The ranks that schedules on a group of `size` use from `rank`: the ring, recursive doubling, Bruck's and the
/// binomial trees' partners are all a power of two away. Sorted; with `rank` itself.
pub(super) fn schedule_peers(rank: u32, size: u32) -> Vec<u32> {
    let mut peers = vec![rank];
    let (rank, size) = (u64::from(rank), u64::from(size));
    let mut step = 1;
    while step < size {
        peers.push(((rank + step) % size) as u32);
        peers.push(((rank + size - step) % size) as u32);
        step *= 2;
    }
    peers.sort_unstable();
    peers.dedup();
    peers
}

#[cfg(test)]
#[path = "ranks_test.rs"]
mod tests;
