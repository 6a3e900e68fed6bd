//! Collectives of ranks that share memory: what each rank puts there, and what it takes from there.
//!
//! Each rank has room for a *contribution*, which every rank can read. It is one part, or one for each rank, where what a rank gives
//! differs from receiver to receiver. A contribution that is longer than its room is put piece by piece: a piece has the same
//! stretch of each part. So a call is: put your piece; wait for the others'; take what is yours. Where elements are combined, what
//! is taken is folded from all ranks' pieces, in the order of [`order`](super::order).
//!
//! Pure, like schedules: it knows neither memory nor time. What is said here is the same on every rank, but for where things lie in
//! this rank's own buffers. Tested by the runtime's tests of shared memory, against the schedules.

use super::widen::conversions;
use super::{Algorithm, Buffer, Conversion, Fold, Shape, Span};
use crate::types::{CallKind, DType, ReduceOp};

/// What becomes of the contributions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taking {
    /// Nothing: to have come is all.
    Nothing,
    /// Each lies down where it belongs.
    Parts,
    /// They are folded, and every rank gets all of the result.
    All,
    /// They are folded, and the root gets the result.
    AtRoot,
    /// They are folded, and each rank gets the part that is its own.
    OwnPart,
}

/// One call, as ranks carry it out that share memory.
#[derive(Clone, Copy, Debug)]
pub struct Sharing<'a> {
    shape: Shape<'a>,
    algorithm: &'static Algorithm,
    /// An average's elements may be wider on their way: how they become so, and how the result becomes narrow again.
    widened: Option<[Conversion; 2]>,
}

impl<'a> Sharing<'a> {
    /// The call that this schedule would carry out; none where ranks know too little of each other's parts, and of exact sums, which
    /// are not folded.
    pub fn of(shape: Shape<'a>, algorithm: &'static Algorithm) -> Option<Sharing<'a>> {
        use CallKind::{Alltoallv, Gatherv, GroupCreate, GroupSplit, Scatterv};
        let unknown = matches!(shape.call.kind, Gatherv | Scatterv | Alltoallv | GroupCreate | GroupSplit);
        (!unknown && !shape.is_exact()).then(|| Sharing { shape, algorithm, widened: conversions(&shape) })
    }

    /// What becomes of the contributions.
    pub fn taking(&self) -> Taking {
        match self.shape.call.kind {
            CallKind::Barrier => Taking::Nothing,
            CallKind::Allreduce => Taking::All,
            CallKind::Reduce => Taking::AtRoot,
            CallKind::ReduceScatter | CallKind::ReduceScatterv => Taking::OwnPart,
            _ => Taking::Parts,
        }
    }

    /// This rank.
    pub fn rank(&self) -> u32 {
        self.shape.rank
    }

    /// Whether this rank gets something.
    pub fn takes(&self) -> bool {
        use CallKind::{Gather, Reduce};
        !matches!(self.shape.call.kind, Gather | Reduce) || self.shape.is_root()
    }

    /// Whether a rank gives something.
    pub fn gives(&self, rank: u32) -> bool {
        use CallKind::{Broadcast, Scatter};
        let at_root_only = matches!(self.shape.call.kind, Broadcast | Scatter);
        !at_root_only || rank == self.shape.root()
    }

    /// How many parts a contribution has.
    pub fn parts(&self) -> u32 {
        use CallKind::{Alltoall, ReduceScatter, ReduceScatterv, Scatter};
        match self.shape.call.kind {
            Alltoall | ReduceScatter | ReduceScatterv | Scatter => self.shape.size,
            _ => 1,
        }
    }

    /// An element's bytes as it lies in shared memory.
    pub fn element(&self) -> usize {
        self.dtype().map_or(1, DType::size)
    }

    /// Its type.
    pub fn dtype(&self) -> Option<DType> {
        self.widened.map(|[there, _]| there.to).or(self.shape.call.dtype)
    }

    /// How contributions are folded, if they are.
    pub fn op(&self) -> Option<ReduceOp> {
        self.shape.call.op
    }

    /// How many elements a part has of what `from` gives.
    pub fn elements(&self, from: u32, part: u32) -> usize {
        let Some(layout) = self.shape.layout else { return self.shape.count() };
        match self.shape.call.kind {
            CallKind::Allgatherv => layout.output.counts[from as usize] as usize,
            _ => layout.input.counts[part as usize] as usize,
        }
    }

    /// The longest part that any rank gives.
    pub fn longest(&self) -> usize {
        let layout = self.shape.layout.map(|layout| match self.shape.call.kind {
            CallKind::Allgatherv => &layout.output.counts,
            _ => &layout.input.counts,
        });
        layout.map_or(self.shape.count(), |counts| counts.iter().copied().max().unwrap_or(0) as usize)
    }

    /// Where the elements `first..end` of a part lie that this rank gives.
    pub fn given(&self, part: u32, [first, end]: [usize; 2]) -> Span {
        let buffer = if self.shape.call.kind == CallKind::Broadcast { Buffer::Output } else { Buffer::Input };
        let begin = if self.parts() == 1 { 0 } else { self.shape.part(buffer, part).offset };
        self.within(buffer, begin, [first, end])
    }

    /// How they become what is shared, if they are not that already.
    pub fn widens(&self) -> Option<Conversion> {
        self.widened.map(|[there, _]| there)
    }

    /// How a result becomes what the caller wants, if it is not that already.
    pub fn narrows(&self) -> Option<Conversion> {
        self.widened.map(|[_, back]| back)
    }

    /// By what a sum is divided, if it is to become an average.
    pub fn divisor(&self) -> Option<u32> {
        self.shape.is_average().then_some(self.shape.size)
    }

    /// Which part this rank takes of what others give, where contributions are not folded.
    pub fn taken_part(&self) -> u32 {
        if self.parts() == 1 {
            0
        } else {
            self.shape.rank
        }
    }

    /// Where the elements `first..end` of what `from` gives this rank belong.
    pub fn place(&self, from: u32, [first, end]: [usize; 2]) -> Span {
        use CallKind::{Allgather, Allgatherv, Alltoall, Gather};
        let begin = match self.shape.call.kind {
            Allgather | Allgatherv | Alltoall | Gather => self.shape.part(Buffer::Output, from).offset,
            _ => 0,
        };
        self.within(Buffer::Output, begin, [first, end])
    }

    /// What this rank gives itself: where it lies, and where it belongs. None where it is there already.
    pub fn own(&self) -> Option<(Span, Span)> {
        let own = self.shape.rank;
        let gives = self.taking() == Taking::Parts && self.gives(own) && self.takes();
        let is_there = self.shape.in_place || self.shape.call.kind == CallKind::Broadcast;
        (gives && !is_there).then(|| {
            let all = [0, self.elements(own, self.taken_part())];
            (self.given(self.taken_part(), all), self.place(own, all))
        })
    }

    /// Which ranks fold the elements `first..end` of a piece that all want folded, each its own stretch: that of this one.
    pub fn slice(&self, rank: u32, [first, end]: [usize; 2]) -> [usize; 2] {
        let size = self.shape.size as usize;
        let at = |rank: usize| first + (end - first) * rank / size;
        [at(rank as usize), at(rank as usize + 1)]
    }

    /// The block in which an element lies, and where that ends: as [`Algorithm::block_at`].
    pub fn block_at(&self, element: usize) -> (u32, usize) {
        match self.taking() {
            Taking::OwnPart => (self.shape.rank, usize::MAX),
            _ => self.algorithm.block_at(&self.shape, element),
        }
    }

    /// How that is folded: as [`Algorithm::fold`].
    pub fn fold(&self, block: u32, each: &mut impl FnMut(Fold)) -> u32 {
        self.algorithm.fold(&self.shape, block, each)
    }

    fn within(&self, buffer: Buffer, begin: usize, [first, end]: [usize; 2]) -> Span {
        let element = self.shape.element();
        Span::new(buffer, begin + first * element, (end - first) * element)
    }
}
