//! The input from which a schedule is computed: one rank's view of one call.

use super::{Buffer, Span};
use crate::types::{Call, CallKind, ReduceOp};

/// Where the ranks' parts of one buffer lie, in elements from its beginning. Both lists are as long as the group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// How many elements each part has.
    pub counts: Vec<u64>,
    /// Where each part begins.
    pub displs: Vec<u64>,
}

/// What a call says beyond its [`Call`](crate::types::Call), where each rank's part has a size of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// The elements of this rank's own part, where no list below tells: its input of a gatherv, its output of a
    /// scatterv. In a sum of addends: the number of this rank's addends.
    pub own: u64,
    /// The parts of `Input`: of a scatterv (at its root), a reduce_scatterv (without gaps) and an alltoallv. In a sum
    /// of addends: how many each rank brings, and how many the ranks below it bring; empty until the ranks have told
    /// each other.
    pub input: Parts,
    /// The parts of `Output`: of an allgatherv, a gatherv (at its root) and an alltoallv.
    pub output: Parts,
}

impl Layout {
    /// The parts of this buffer.
    pub fn parts(&self, buffer: Buffer) -> &Parts {
        if buffer == Buffer::Input {
            &self.input
        } else {
            &self.output
        }
    }
}

/// One rank's view of one call. Schedules rely on what [`Shape::check`] checks.
///
/// | kind | `count` | `Input` | `Output` | in place |
/// | --- | --- | --- | --- | --- |
/// | barrier | 0 | empty | empty | |
/// | broadcast | elements | not used | all of them, the root's filled | |
/// | allreduce | elements | all of them | all of them | `Input` is `Output` |
/// | allgather | elements per rank | this rank's | every rank's, in order | `Input` is this rank's part of `Output` |
/// | allgatherv | elements of all | this rank's | every rank's | likewise |
/// | reduce | elements | all of them | the root's: all of them | the root's `Input` is `Output` |
/// | gather | elements per rank | this rank's | the root's: every rank's, in order | the root's `Input` is its part of `Output` |
/// | gatherv | 0 | this rank's | the root's: every rank's | likewise |
/// | scatter | elements per rank | the root's: every rank's, in order | this rank's | the root's `Output` is its part of `Input` |
/// | scatterv | 0 | the root's: every rank's | this rank's | likewise |
/// | reduce_scatter | elements per rank | every rank's, in order | this rank's | `Output` is this rank's part of `Input` |
/// | reduce_scatterv | elements of all | every rank's, in order | this rank's | likewise |
/// | alltoall | elements per rank | for every rank, in order | of every rank, in order | `Input` is `Output` |
/// | alltoallv | 0 | for every rank | of every rank | likewise, with the same parts |
///
/// In an all-reduce of addends, `Input` holds as many vectors of `count` elements as this rank brings, one after
/// another. In place, its first vector is `Output`.
///
/// Buffers that are only the root's have no bytes elsewhere. Where parts differ in size `layout` says where they lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape<'a> {
    /// This rank in the group.
    pub rank: u32,
    /// How many ranks the group has.
    pub size: u32,
    /// The call.
    pub call: Call,
    /// Whether `Input` lies within `Output`, as the table above says. Ranks may differ in this.
    pub in_place: bool,
    /// Where the parts lie, in the calls whose parts differ in size.
    pub layout: Option<&'a Layout>,
}

impl Shape<'_> {
    /// How many vectors a rank may bring to an exact sum.
    pub const ADDENDS_MAX: u32 = 1 << 16;

    /// Whether the call has a root.
    pub(super) fn has_root(&self) -> bool {
        use CallKind::{Broadcast, Gather, Gatherv, Reduce, Scatter, Scatterv};
        matches!(self.call.kind, Broadcast | Reduce | Gather | Gatherv | Scatter | Scatterv)
    }

    /// Whether the call combines elements.
    pub(super) fn reduces(&self) -> bool {
        use CallKind::{Allreduce, Reduce, ReduceScatter, ReduceScatterv};
        matches!(self.call.kind, Allreduce | Reduce | ReduceScatter | ReduceScatterv)
    }

    /// Whether `count` counts one rank's part, and a buffer holds one part for each rank.
    pub(super) fn count_is_per_rank(&self) -> bool {
        use CallKind::{Allgather, Alltoall, Gather, ReduceScatter, Scatter};
        matches!(self.call.kind, Allgather | Gather | Scatter | ReduceScatter | Alltoall)
    }

    /// Whether the call is an exact sum.
    pub fn is_exact(&self) -> bool {
        self.reduces() && self.call.op.is_some_and(ReduceOp::is_exact)
    }

    /// Whether every rank brings one vector to an exact sum.
    pub(super) fn is_one_row_each(&self) -> bool {
        self.call.op == Some(ReduceOp::SumExact)
    }

    /// The ranks' numbers of addends, if these may differ from one.
    fn addend_parts(&self) -> Option<&Parts> {
        self.layout.filter(|_| self.call.op == Some(ReduceOp::SumOfAddends)).map(|layout| &layout.input)
    }

    /// How many vectors a rank brings to an exact sum.
    pub fn addends(&self, rank: u32) -> u32 {
        self.addend_parts().map_or(1, |parts| parts.counts[rank as usize] as u32)
    }

    /// How many vectors the ranks below this one bring.
    pub(super) fn addends_below(&self, rank: u32) -> usize {
        self.addend_parts().map_or(rank as usize, |parts| parts.displs[rank as usize] as usize)
    }

    /// The rank that brings the vector with this number.
    pub(super) fn rank_of_addend(&self, number: usize) -> u32 {
        let is_before = |below: &u64| *below as usize <= number;
        // Among ranks with the same number of vectors below them, the last one brings something.
        self.addend_parts().map_or(number as u32, |parts| parts.displs.partition_point(is_before) as u32 - 1)
    }

    /// How many vectors all ranks bring together.
    pub(super) fn all_addends(&self) -> usize {
        self.addends_below(self.size - 1) + self.addends(self.size - 1) as usize
    }

    /// How many vectors the rank with most of them brings.
    pub(super) fn most_addends(&self) -> u32 {
        self.addend_parts().map_or(1, |parts| parts.counts.iter().max().map_or(0, |most| *most as u32))
    }

    /// The root's rank; 0 where the call has none.
    pub(super) fn root(&self) -> u32 {
        self.call.root.unwrap_or(0)
    }

    /// Whether this rank is the root.
    pub(super) fn is_root(&self) -> bool {
        self.call.root == Some(self.rank)
    }

    /// The rank that stands `distance` above this one, going round.
    pub(super) fn above(&self, distance: u32) -> u32 {
        around(self.rank, distance, self.size)
    }

    /// The rank that stands `distance` below this one, going round; `distance` is at most the size.
    pub(super) fn below(&self, distance: u32) -> u32 {
        around(self.rank, self.size - distance, self.size)
    }

    /// `count` elements, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.count() * self.element()
    }

    /// `count` elements of every rank, in bytes; saturates.
    pub(super) fn total_bytes(&self) -> u64 {
        (self.bytes() as u64).saturating_mul(u64::from(self.size))
    }

    /// All `count` elements of a buffer.
    pub(super) fn whole(&self, buffer: Buffer) -> Span {
        Span::new(buffer, 0, self.bytes())
    }

    /// The part of a buffer that belongs to this rank, or is for it.
    pub(super) fn part(&self, buffer: Buffer, rank: u32) -> Span {
        let parts = self.layout.map(|layout| layout.parts(buffer));
        match parts.filter(|parts| !parts.counts.is_empty()) {
            Some(parts) => {
                let (count, displ) = (parts.counts[rank as usize] as usize, parts.displs[rank as usize] as usize);
                Span::new(buffer, displ * self.element(), count * self.element())
            }
            None => self.parts(rank, rank + 1).within(buffer),
        }
    }

    /// This rank's own part in bytes, if it gives or takes just that.
    pub(super) fn own_bytes(&self) -> usize {
        self.layout.map_or(self.bytes(), |layout| layout.own as usize * self.element())
    }

    /// The elements `first..end` of the output.
    pub(super) fn elements(&self, first: usize, end: usize) -> Span {
        Span::new(Buffer::Output, first * self.element(), (end - first) * self.element())
    }

    /// The parts of the ranks `first..end`, `count` elements each, in the output.
    pub(super) fn parts(&self, first: u32, end: u32) -> Span {
        Span::new(Buffer::Output, first as usize * self.bytes(), (end - first) as usize * self.bytes())
    }

    /// The blocks `first..end` of the output, which is cut into as many blocks as there are ranks. They differ by one
    /// element at most. Some are empty where the elements are fewer than the ranks.
    pub(super) fn blocks(&self, first: u32, end: u32) -> Span {
        let size = self.size as usize;
        let (each, rest) = (self.count() / size, self.count() % size);
        let start = |block: u32| block as usize * each + (block as usize).min(rest);
        self.elements(start(first), start(end))
    }

    /// The ranks that stand `first..end` above this one, going round, as one or two stretches of ranks. Part 0 ends
    /// where ranks begin anew; part 1 is what follows there, if anything does. The caller may count upwards or
    /// downwards: the same ranks are cut alike.
    pub(super) fn arc(&self, first: u32, end: u32, part: u32) -> Option<(u32, u32)> {
        let start = self.above(first);
        let stop = start + end.saturating_sub(first);
        let stretch = if part == 0 { (start, stop.min(self.size)) } else { (0, stop.saturating_sub(self.size)) };
        (stretch.0 < stretch.1).then_some(stretch)
    }

    /// Whether the result is an average, and so must be divided after it was summed.
    pub(super) fn is_average(&self) -> bool {
        self.call.op == Some(ReduceOp::Avg) && self.size > 1
    }

    /// In a group of one, many calls only copy the beginning of the input to the beginning of the output. Returns how many bytes
    /// such a call copies; None if the call may do more.
    pub fn copy_alone(&self) -> Option<usize> {
        let is_plain = self.size == 1 && self.layout.is_none() && !self.is_exact();
        let stays = self.in_place || matches!(self.call.kind, CallKind::Barrier | CallKind::Broadcast);
        is_plain.then(|| if stays { 0 } else { self.bytes() })
    }

    /// The number of elements; `check` has seen that it fits.
    pub(super) fn count(&self) -> usize {
        self.call.count as usize
    }

    /// The size of an element in bytes; 0 in a call without elements.
    pub(super) fn element(&self) -> usize {
        self.call.dtype.map_or(0, |dtype| dtype.size())
    }
}

/// `(rank + distance) mod size`, for a distance of at most `size`.
pub(super) fn around(rank: u32, distance: u32, size: u32) -> u32 {
    ((u64::from(rank) + u64::from(distance)) % u64::from(size)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedules::{choose, Action, Thresholds};
    use crate::types::CallKind::{Allgatherv, Alltoallv, Gatherv, GroupCreate, GroupSplit, ReduceScatterv, Scatterv};
    use crate::types::DType;

    fn shape(kind: CallKind, count: u64) -> Shape<'static> {
        let call = Call { kind, dtype: Some(DType::Float64), op: Some(ReduceOp::Sum), root: Some(0), count, layout: 0 };
        Shape { rank: 0, size: 4, call, in_place: false, layout: None }
    }

    #[test]
    fn what_a_group_of_one_copies_is_what_its_schedules_do() {
        for kind in CallKind::ALL {
            let shape = Shape { size: 1, ..shape(kind, 5) };
            let is_unequal = matches!(kind, Gatherv | Scatterv | ReduceScatterv | Allgatherv | Alltoallv);
            if is_unequal || matches!(kind, GroupCreate | GroupSplit) {
                continue;
            }
            for in_place in [false, true] {
                let shape = Shape { in_place, ..shape };
                let algorithm = choose(&shape, &Thresholds::default());
                let steps = (0..).map(|step| algorithm.step(&shape, step)).take_while(|step| *step != Action::Done);
                // Some schedules copy by way of the scratch.
                let end = steps.fold(shape.whole(Buffer::Input), |at, step| match step {
                    Action::Copy { from, to } if from == at => to,
                    other => panic!("{kind}: {other:?} with {at:?}"),
                });
                assert!(end == shape.whole(end.buffer) && end.buffer != Buffer::Scratch, "{kind}: {end:?}");
                let is_there = end.buffer == Buffer::Input || in_place;
                let wanted = if is_there { 0 } else { end.len };
                assert_eq!(shape.copy_alone(), Some(wanted), "{kind}, in place: {in_place}");
            }
        }
        let exact = Call { op: Some(ReduceOp::SumExact), ..shape(CallKind::Allreduce, 5).call };
        assert_eq!(Shape { size: 1, call: exact, ..shape(CallKind::Allreduce, 5) }.copy_alone(), None);
        assert_eq!(shape(CallKind::Allreduce, 5).copy_alone(), None);
    }

    #[test]
    fn blocks_cover_everything_in_order() {
        for size in 1..20 {
            for count in 0..50 {
                let shape = Shape { size, ..shape(CallKind::Allreduce, count) };
                let mut end = 0;
                for block in 0..size {
                    let span = shape.blocks(block, block + 1);
                    assert_eq!(span.offset, end);
                    end += span.len;
                }
                assert_eq!(end, shape.bytes());
            }
        }
    }
}
