use super::*;

fn host(name: &str) -> HostName {
    HostName { name: name.to_string(), key: name.to_string() }
}

/// Ranks of workers given as (explicit rank, id or "" for none, host).
fn ranks(nodes: &[(Option<u32>, &str, &str)]) -> Vec<(u32, u32, u32)> {
    let hosts: Vec<HostName> = nodes.iter().map(|(_, _, name)| host(name)).collect();
    let candidates: Vec<Candidate<'_>> = nodes
        .iter()
        .zip(&hosts)
        .map(|((explicit_rank, node_id, _), host)| Candidate {
            role: Role::Worker,
            explicit_rank: *explicit_rank,
            node_id,
            node_id_given: !node_id.is_empty(),
            host,
        })
        .collect();
    assign(&candidates).into_iter().map(|place| (place.rank, place.local_rank, place.local_size)).collect()
}

fn only_ranks(nodes: &[(Option<u32>, &str, &str)]) -> Vec<u32> {
    ranks(nodes).into_iter().map(|(rank, ..)| rank).collect()
}

#[test]
fn ids_that_are_ranks() {
    assert_eq!(rank_of_id("0", 4), Some(0));
    assert_eq!(rank_of_id("3", 4), Some(3));
    assert_eq!(rank_of_id("4", 4), None);
    assert_eq!(rank_of_id("00", 4), None);
    assert_eq!(rank_of_id("03", 4), None);
    assert_eq!(rank_of_id("+3", 4), None);
    assert_eq!(rank_of_id("", 4), None);
    assert_eq!(rank_of_id("99999999999999999999", 4), None);
}

#[test]
fn ids_that_are_too_alike() {
    assert_eq!(canonical("00"), canonical("0"));
    assert_eq!(canonical("007"), canonical("7"));
    assert_ne!(canonical("70"), canonical("7"));
    assert_ne!(canonical("worker_0"), canonical("worker_00"));
}

#[test]
fn natural_order() {
    let mut ids = ["worker_10", "worker_2", "b", "worker_1", "a10b2", "a10b10", "a9", "worker_02", "10", "9", "worker"];
    ids.sort_by(|a, b| natural(a, b));
    assert_eq!(
        ids,
        ["9", "10", "a9", "a10b2", "a10b10", "b", "worker", "worker_1", "worker_2", "worker_02", "worker_10"]
    );
    assert_eq!(natural("99999999999999999999998", "99999999999999999999999"), Ordering::Less);
    assert_eq!(natural("x", "x"), Ordering::Equal);
    for a in ids {
        for b in ids {
            assert_eq!(natural(a, b), natural(b, a).reverse(), "{a} {b}");
        }
    }
}

#[test]
fn explicit_ranks_then_names_then_the_nameless_host_by_host() {
    let nodes = [
        (None, "", "b"),
        (None, "worker_10", "a"),
        (Some(2), "2", "a"),
        (None, "", "a"),
        (None, "worker_2", "b"),
        (None, "", "b"),
        (Some(0), "", "c"),
    ];
    assert_eq!(only_ranks(&nodes), [4, 3, 2, 6, 1, 5, 0]);
}

#[test]
fn local_ranks_count_a_host_in_order_of_rank() {
    let nodes = [(Some(3), "3", "a"), (Some(0), "0", "a"), (Some(2), "2", "b"), (Some(1), "1", "a")];
    assert_eq!(ranks(&nodes), [(3, 2, 3), (0, 0, 3), (2, 0, 1), (1, 1, 3)]);
}

#[test]
fn roles_have_their_own_rank_spaces() {
    let a = host("a");
    let candidate = |role, node_id| Candidate { role, explicit_rank: None, node_id, node_id_given: true, host: &a };
    let places = assign(&[candidate(Role::Server, "s"), candidate(Role::Worker, "w"), candidate(Role::Server, "r")]);
    let of = |rank, local_rank, local_size| Place { rank, local_rank, local_size };
    assert_eq!(places, [of(1, 1, 2), of(0, 0, 1), of(0, 0, 2)]);
}

#[test]
fn schedules_reach_powers_of_two() {
    assert_eq!(schedule_peers(0, 1), [0]);
    assert_eq!(schedule_peers(1, 2), [0, 1]);
    assert_eq!(schedule_peers(0, 6), [0, 1, 2, 4, 5]);
    assert!(schedule_peers(9_999, 18_000).len() <= 31);
    // Recursive doubling's partners, and those of ranks beyond the power of two, are among them.
    for size in [1025u32, 1500, 2048] {
        let power = 1 << size.ilog2();
        for rank in [0, 1, 5, power - 1, size - 1] {
            let peers = schedule_peers(rank, size);
            let has = |peer: u32| peers.binary_search(&peer).is_ok();
            assert!((0..size.ilog2()).all(|bit| rank >= power || has(rank ^ (1 << bit))), "{rank} of {size}");
            assert!(rank < power || has(rank - power), "{rank} of {size}");
        }
    }
}
