//! The hosts of a group's members.

use crate::runtime::state::context::Context;
use crate::schedules::{Layout, Parts};
use crate::types::Call;

/// Which members are on which host: the same on all ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hosts {
    /// The members of each host, in order of rank. The hosts are in the order of their lowest ranks.
    members: Vec<Vec<u32>>,
    /// This rank's host, and its place there.
    own: (usize, usize),
    /// How many members there are.
    size: u32,
    /// Whether the members of each host follow each other, in the order of hosts.
    are_in_order: bool,
}

impl Hosts {
    /// The hosts of a group; none where each node knows only some of the others, and not all nodes the same ones.
    pub(super) fn of(context: &Context) -> Option<Hosts> {
        let formed = context.formed();
        let is_known = formed.members.len() == (formed.worker_num + formed.server_num) as usize;
        let keys = || context.roster.members.iter().map(|index| Some(formed.members.find(*index)?.host.key));
        let keys: Option<Vec<String>> = is_known.then(|| keys().collect()).flatten();
        Hosts::of_names(&keys?, context.rank()?)
    }

    pub(super) fn of_names<N: PartialEq>(names: &[N], own: u32) -> Option<Hosts> {
        let mut members: Vec<(&N, Vec<u32>)> = Vec::new();
        for (rank, name) in (0..).zip(names) {
            match members.iter_mut().find(|(known, _)| *known == name) {
                Some((_, ranks)) => ranks.push(rank),
                None => members.push((name, vec![rank])),
            }
        }
        let members: Vec<Vec<u32>> = members.into_iter().map(|(_, ranks)| ranks).collect();
        let place = |ranks: &Vec<u32>| ranks.iter().position(|rank| *rank == own);
        let own = members.iter().enumerate().find_map(|(host, ranks)| Some((host, place(ranks)?)))?;
        let size = names.len() as u32;
        let are_in_order = members.iter().flatten().copied().eq(0..size);
        Some(Hosts { members, own, size, are_in_order })
    }

    /// How many hosts there are.
    pub(super) fn count(&self) -> usize {
        self.members.len()
    }

    /// How many members the hosts have together.
    pub(super) fn size(&self) -> u32 {
        self.size
    }

    /// Whether ranks are in the order of their hosts.
    pub(super) fn are_in_order(&self) -> bool {
        self.are_in_order
    }

    /// All ranks, in the order of their hosts.
    pub(super) fn ranks(&self) -> impl Iterator<Item = u32> + '_ {
        self.members.iter().flatten().copied()
    }

    /// How many ranks are on the hosts before this rank's.
    pub(super) fn ranks_before(&self) -> usize {
        self.members[..self.own.0].iter().map(Vec::len).sum()
    }

    /// Lays out the hosts' parts, one after another, where each rank has so many elements.
    pub(super) fn lay_out(&self, count_of: impl Fn(u32) -> u64, layout: &mut Layout) {
        let counts = self.members.iter().map(|ranks| ranks.iter().map(|rank| count_of(*rank)).sum());
        lay_out(counts, self.own.0, layout);
    }

    /// Lays out the parts of the members on this rank's host in the same way.
    pub(super) fn lay_out_here(&self, count_of: impl Fn(u32) -> u64, layout: &mut Layout) {
        lay_out(self.here().iter().map(|rank| count_of(*rank)), self.own.1, layout);
    }

    /// The members on this rank's host.
    pub(super) fn here(&self) -> &[u32] {
        &self.members[self.own.0]
    }

    /// This rank's host among all.
    pub(super) fn own_host(&self) -> u32 {
        self.own.0 as u32
    }

    /// This rank's place among the members on its host.
    pub(super) fn place(&self) -> usize {
        self.own.1
    }

    /// How many members the host with the most members has.
    pub(super) fn most(&self) -> usize {
        self.members.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// The host that has this rank.
    pub(super) fn host_of(&self, rank: u32) -> u32 {
        self.members.iter().position(|ranks| ranks.contains(&rank)).unwrap_or(0) as u32
    }

    /// The rank that speaks for a host: the root, if it is there, and otherwise the lowest.
    pub(super) fn speaker(&self, host: u32, root: Option<u32>) -> u32 {
        let ranks = &self.members[host as usize];
        root.filter(|root| ranks.contains(root)).unwrap_or(ranks[0])
    }

    /// Whether a call's contributions come in order of rank if each host's are combined first, or need not.
    pub(super) fn keep_order(&self, call: &Call) -> bool {
        call.op.is_none_or(|op| op.is_commutative()) || self.are_in_order
    }
}

/// Lays out parts with so many elements, one after another. `own` is the number of this rank's or this host's own part.
/// Where the lists are long enough, it allocates nothing.
fn lay_out(parts: impl Iterator<Item = u64> + Clone, own: usize, layout: &mut Layout) {
    for Parts { counts, displs } in [&mut layout.input, &mut layout.output] {
        counts.clear();
        displs.clear();
        let mut before = 0;
        for count in parts.clone() {
            counts.push(count);
            displs.push(before);
            before += count;
        }
    }
    layout.own = layout.input.counts[own];
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::types::{CallKind, ReduceOp};

    #[test]
    fn members_are_told_apart_by_their_hosts() {
        let hosts = Hosts::of_names(&["b", "a", "b", "c"], 2).expect("it is a member");
        assert_eq!((hosts.count(), hosts.here(), hosts.place(), hosts.most()), (3, &[0, 2][..], 1, 2));
        let speakers = |root| [0, 1, 2].map(|host| hosts.speaker(host, root));
        assert_eq!((speakers(None), speakers(Some(2))), ([0, 1, 3], [2, 1, 3]));
        assert_eq!([0, 1, 2, 3].map(|rank| hosts.host_of(rank)), [0, 1, 0, 2]);
        assert_eq!(Hosts::of_names(&["a"], 1), None);
    }

    #[test]
    fn parts_of_hosts_follow_each_other() {
        let hosts = Hosts::of_names(&["b", "a", "b", "c"], 3).expect("it is a member");
        assert_eq!((hosts.size(), hosts.ranks().collect::<Vec<_>>()), (4, vec![0, 2, 1, 3]));
        let mut layout = Layout::default();
        hosts.lay_out_here(|rank| u64::from(rank) + 1, &mut layout);
        assert_eq!((layout.own, &layout.output.counts[..]), (4, &[4][..]));
        for _ in 0..2 {
            hosts.lay_out(|_| 10, &mut layout);
            assert_eq!((&layout.output.counts[..], &layout.output.displs[..]), (&[20, 10, 10][..], &[0, 20, 30][..]));
            assert_eq!((layout.own, &layout.input, hosts.ranks_before()), (10, &layout.output, 3));
        }
    }

    #[test]
    fn operands_keep_their_order_where_a_host_has_ranks_that_follow_each_other() {
        let op = |commutative| Some(ReduceOp::User { number: 0, commutative });
        let call = |op| Call { kind: CallKind::Allreduce, dtype: None, op, root: None, count: 1, layout: 0 };
        let keep = |names: &[&str], op| Hosts::of_names(names, 0).expect("a member").keep_order(&call(op));
        assert!(keep(&["a", "a", "b"], op(false)) && keep(&["a", "b", "a"], op(true)) && keep(&["a", "b", "a"], None));
        assert!(!keep(&["a", "b", "a"], op(false)));
    }
}
