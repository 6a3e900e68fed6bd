//! Collectives of ranks that share memory: what each rank puts there, and what it takes from there.
//!
//! Each rank has room for a *contribution*, which every rank can read. A contribution is one part, or one part for each
//! rank if a rank gives different receivers different elements. A contribution that is longer than its room is put
//! piece by piece: a piece has the same stretch of each part. So a call is: put your piece; wait for the others'; take
//! what is yours. If elements are combined, a rank folds what it takes from all ranks' pieces, in the order of
//! [`order`](super::order). An exact sum adds all of them at once. If ranks bring several vectors to it, a contribution
//! has a part for each.
//!
//! Pure, like schedules: this knows neither memory nor time. All of it is the same on every rank, except where things
//! lie in this rank's own buffers. Tested by the runtime's tests of shared memory, against the schedules.

use super::widen::conversions;
use super::{Algorithm, Buffer, Conversion, Fold, Shape, Span};
use crate::types::{CallKind, DType, ReduceOp};

/// How much of each vector goes at a time at least, if ranks bring several to a sum.
const ADDEND_BYTES_MIN: usize = 512;

/// What becomes of the contributions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taking {
    /// Nothing: it is enough that a rank has come.
    Nothing,
    /// Each is laid down where it belongs.
    Parts,
    /// They are folded, and every rank gets all of the result.
    All,
    /// They are folded, and the root gets the result.
    AtRoot,
    /// They are folded, and each rank gets the part that is its own.
    OwnPart,
}

/// One call, as ranks that share memory carry it out.
#[derive(Clone, Copy, Debug)]
pub struct Sharing<'a> {
    shape: Shape<'a>,
    algorithm: &'static Algorithm,
    /// An average's elements may be wider on their way: how they are made wide, and how the result is made narrow
    /// again.
    widened: Option<[Conversion; 2]>,
    /// The length of the longest part, if the ranks have told each other.
    told_longest: Option<usize>,
}

/// Why the sizes that a rank has told of its parts are wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistold {
    /// The rank gives this one so many elements, where so many are expected.
    Differs(u32, u64, u64),
    /// The rank gives more than any memory holds.
    TooMany(u32, u64),
}

impl<'a> Sharing<'a> {
    /// The call that this schedule would carry out.
    pub fn of(shape: Shape<'a>, algorithm: &'static Algorithm) -> Option<Sharing<'a>> {
        let is_carried = !matches!(shape.call.kind, CallKind::GroupCreate | CallKind::GroupSplit);
        is_carried.then(|| Sharing { shape, algorithm, widened: conversions(&shape), told_longest: None })
    }

    /// Whether the ranks know too little of each other's parts, so that each must first tell all others.
    pub fn needs_telling(&self) -> bool {
        use CallKind::{Alltoallv, Gatherv, Scatterv};
        matches!(self.shape.call.kind, Gatherv | Scatterv | Alltoallv) && self.told_longest.is_none()
    }

    /// The numbers that this rank tells: how many elements each of its parts has.
    pub fn tells(&self) -> impl Iterator<Item = u64> + '_ {
        let own = self.shape.rank;
        (0..self.parts()).map(move |part| if self.gives(own) { self.elements(own, part) as u64 } else { 0 })
    }

    /// The same call, once all ranks have told; `told` is what a rank has told of a part.
    pub fn told(self, told: impl Fn(u32, u32) -> u64) -> Result<Sharing<'a>, Mistold> {
        let (own, part, parts) = (self.shape.rank, self.taken_part(), self.parts() as usize);
        let most = isize::MAX as usize / (self.element() * parts).max(1);
        let mut longest = 0;
        for rank in 0..self.shape.size {
            for part in 0..parts as u32 {
                let count = told(rank, part);
                let fits = usize::try_from(count).ok().filter(|count| *count <= most);
                longest = longest.max(fits.ok_or(Mistold::TooMany(rank, count))?);
            }
            let is_for_this = rank != own && self.gives(rank) && self.takes();
            let expected = || self.elements(rank, part) as u64;
            if is_for_this && told(rank, part) != expected() {
                return Err(Mistold::Differs(rank, told(rank, part), expected()));
            }
        }
        Ok(Sharing { told_longest: Some(longest), ..self })
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
        use CallKind::{Gather, Gatherv, Reduce};
        !matches!(self.shape.call.kind, Gather | Gatherv | Reduce) || self.shape.is_root()
    }

    /// Whether a rank gives something.
    pub fn gives(&self, rank: u32) -> bool {
        use CallKind::{Broadcast, Scatter, Scatterv};
        let at_root_only = matches!(self.shape.call.kind, Broadcast | Scatter | Scatterv);
        !at_root_only || rank == self.shape.root()
    }

    /// How many parts a contribution has.
    pub fn parts(&self) -> u32 {
        use CallKind::{Alltoall, Alltoallv, ReduceScatter, ReduceScatterv, Scatter, Scatterv};
        match self.shape.call.kind {
            Alltoall | Alltoallv | ReduceScatter | ReduceScatterv | Scatter | Scatterv => self.shape.size,
            _ if self.is_of_addends() => self.shape.most_addends().max(1),
            _ => 1,
        }
    }

    /// Whether all elements that ranks bring are added at once.
    pub fn is_exact(&self) -> bool {
        self.shape.is_exact()
    }

    /// Whether each rank may bring several vectors.
    fn is_of_addends(&self) -> bool {
        self.shape.call.op == Some(ReduceOp::SumOfAddends)
    }

    /// How many vectors an exact sum adds.
    pub fn rows(&self) -> usize {
        self.shape.all_addends()
    }

    /// The rank that brings the vector with this number, and the number of the vector's part among those of the rank
    /// that go to this rank.
    pub fn row(&self, number: usize) -> (u32, u32) {
        if !self.is_of_addends() {
            return (number as u32, self.taken_part());
        }
        let rank = self.shape.rank_of_addend(number);
        (rank, (number - self.shape.addends_below(rank)) as u32)
    }

    /// The parts of a rank that this rank folds.
    pub fn folded_parts(&self, rank: u32) -> std::ops::Range<u32> {
        if self.is_of_addends() {
            return 0..self.shape.addends(rank);
        }
        self.taken_part()..self.taken_part() + 1
    }

    /// The least number of bytes of each part for which a piece must have room; a call for which it has less goes over
    /// links. If ranks bring several vectors, one element is not enough: each piece costs some time for each vector.
    pub fn least(&self) -> usize {
        let least = if self.is_of_addends() && self.parts() > 1 { ADDEND_BYTES_MIN } else { 0 };
        least.max(self.element())
    }

    /// The size in bytes of an element in shared memory.
    pub fn element(&self) -> usize {
        self.dtype().map_or(1, DType::size)
    }

    /// The type of an element in shared memory.
    pub fn dtype(&self) -> Option<DType> {
        self.widened.map(|[there, _]| there.to).or(self.shape.call.dtype)
    }

    /// How contributions are folded, if they are.
    pub fn op(&self) -> Option<ReduceOp> {
        self.shape.call.op
    }

    /// How many elements a part has that `from` gives. This rank knows that of the parts that it gives or takes.
    pub fn elements(&self, from: u32, part: u32) -> usize {
        use CallKind::{Allgatherv, Alltoallv, Gatherv, Scatterv};
        if self.is_of_addends() {
            return if part < self.shape.addends(from) { self.shape.count() } else { 0 };
        }
        let Some(layout) = self.shape.layout else { return self.shape.count() };
        let is_own = from == self.shape.rank;
        let (given, taken) = (|| layout.input.counts[part as usize], || layout.output.counts[from as usize]);
        let elements = match self.shape.call.kind {
            Allgatherv => taken(),
            Gatherv if is_own => layout.own,
            Gatherv => taken(),
            Scatterv if !is_own => layout.own,
            Alltoallv if !is_own => taken(),
            _ => given(),
        };
        elements as usize
    }

    /// How many elements the result has that this rank folds.
    pub fn result_elements(&self) -> usize {
        if self.is_of_addends() {
            return self.shape.count();
        }
        self.elements(self.shape.rank, self.taken_part())
    }

    /// The longest part that any rank gives.
    pub fn longest(&self) -> usize {
        if let Some(longest) = self.told_longest {
            return longest;
        }
        let layout = self.shape.layout.filter(|_| !self.is_of_addends());
        let layout = layout.map(|layout| match self.shape.call.kind {
            CallKind::Allgatherv => &layout.output.counts,
            _ => &layout.input.counts,
        });
        layout.map_or(self.shape.count(), |counts| counts.iter().copied().max().unwrap_or(0) as usize)
    }

    /// Where the elements `first..end` of a part that this rank gives lie.
    pub fn given(&self, part: u32, [first, end]: [usize; 2]) -> Span {
        let buffer = if self.shape.call.kind == CallKind::Broadcast { Buffer::Output } else { Buffer::Input };
        let begin = match self.parts() {
            1 => 0,
            _ if self.is_of_addends() => part as usize * self.shape.bytes(),
            _ => self.shape.part(buffer, part).offset,
        };
        self.within(buffer, begin, [first, end])
    }

    /// How elements are converted for shared memory, if they are.
    pub fn widens(&self) -> Option<Conversion> {
        self.widened.map(|[there, _]| there)
    }

    /// How a result is converted to what the caller wants, if it is.
    pub fn narrows(&self) -> Option<Conversion> {
        self.widened.map(|[_, back]| back)
    }

    /// The divisor of a sum, if it is to become an average.
    pub fn divisor(&self) -> Option<u32> {
        self.shape.is_average().then_some(self.shape.size)
    }

    /// The part that this rank takes of what others give. If there are several vectors, there is not just one such
    /// part.
    pub fn taken_part(&self) -> u32 {
        if self.parts() == 1 || self.is_of_addends() {
            0
        } else {
            self.shape.rank
        }
    }

    /// Where the elements `first..end` that `from` gives this rank belong.
    pub fn place(&self, from: u32, [first, end]: [usize; 2]) -> Span {
        use CallKind::{Allgather, Allgatherv, Alltoall, Alltoallv, Gather, Gatherv};
        let begin = match self.shape.call.kind {
            Allgather | Allgatherv | Alltoall | Alltoallv | Gather | Gatherv => {
                self.shape.part(Buffer::Output, from).offset
            }
            _ => 0,
        };
        self.within(Buffer::Output, begin, [first, end])
    }

    /// Where the part that this rank gives itself lies, and where it belongs. None if it is there already.
    pub fn own(&self) -> Option<(Span, Span)> {
        let own = self.shape.rank;
        let gives = self.taking() == Taking::Parts && self.gives(own) && self.takes();
        let is_there = self.shape.in_place || self.shape.call.kind == CallKind::Broadcast;
        (gives && !is_there).then(|| {
            let all = [0, self.elements(own, self.taken_part())];
            (self.given(self.taken_part(), all), self.place(own, all))
        })
    }

    /// The stretch of the elements `first..end` of a piece that this rank folds, if all want the result and each rank
    /// folds a stretch.
    pub fn slice(&self, rank: u32, [first, end]: [usize; 2]) -> [usize; 2] {
        let size = self.shape.size as usize;
        let at = |rank: usize| first + (end - first) * rank / size;
        [at(rank as usize), at(rank as usize + 1)]
    }

    /// The block in which an element lies, and where the block ends, like [`Algorithm::block_at`].
    pub fn block_at(&self, element: usize) -> (u32, usize) {
        match self.taking() {
            _ if self.is_exact() => (0, usize::MAX),
            Taking::OwnPart => (self.shape.rank, usize::MAX),
            _ => self.algorithm.block_at(&self.shape, element),
        }
    }

    /// Tells how a block is folded, like [`Algorithm::fold`].
    pub fn fold(&self, block: u32, each: &mut impl FnMut(Fold)) -> u32 {
        self.algorithm.fold(&self.shape, block, each)
    }

    fn within(&self, buffer: Buffer, begin: usize, [first, end]: [usize; 2]) -> Span {
        let element = self.shape.element();
        Span::new(buffer, begin + first * element, (end - first) * element)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedules::{choose, Layout, Parts, Thresholds};
    use crate::types::Call;

    fn sharing(kind: CallKind, rank: u32, layout: &Layout) -> Sharing<'_> {
        let call = Call { kind, dtype: Some(DType::Uint16), op: None, root: Some(1), count: 0, layout: 0 };
        let shape = Shape { rank, size: 3, call, in_place: false, layout: Some(layout) };
        Sharing::of(shape, choose(&shape, &Thresholds::default())).expect("no group is made")
    }

    fn parts(counts: [u64; 3]) -> Parts {
        Parts { counts: counts.into(), displs: vec![0, counts[0], counts[0] + counts[1]] }
    }

    #[test]
    fn ranks_tell_how_long_their_parts_are_and_the_taker_holds_it_against_what_it_expects() {
        let (root, other) = (
            Layout { own: 4, input: Parts::default(), output: parts([3, 4, 0]) },
            Layout { own: 3, ..Layout::default() },
        );
        let (at_root, at_other) = (sharing(CallKind::Gatherv, 1, &root), sharing(CallKind::Gatherv, 0, &other));
        assert!(at_root.needs_telling() && at_other.needs_telling());
        assert_eq!([at_root.tells().collect::<Vec<_>>(), at_other.tells().collect()], [vec![4], vec![3]]);
        let told = |counts: [u64; 3]| move |rank: u32, _: u32| counts[rank as usize];
        let known = at_root.told(told([3, 4, 0])).expect("as is expected");
        assert_eq!((known.needs_telling(), known.longest(), known.elements(0, 0)), (false, 4, 3));
        assert_eq!(at_root.told(told([3, 4, 9])).err(), Some(Mistold::Differs(2, 9, 0)));
        assert_eq!(at_other.told(told([3, 4, 9])).expect("it takes nothing").longest(), 9);
        assert_eq!(at_other.told(told([3, u64::MAX, 0])).err(), Some(Mistold::TooMany(1, u64::MAX)));
    }

    #[test]
    fn where_each_rank_gets_another_part_there_is_a_row_of_counts() {
        let layout = Layout { own: 0, input: parts([1, 2, 3]), output: parts([7, 2, 9]) };
        let call = sharing(CallKind::Alltoallv, 1, &layout);
        assert_eq!(call.tells().collect::<Vec<_>>(), [1, 2, 3]);
        let rows = |seven: u64| {
            move |rank: u32, part: u32| [[0, seven, 5], [1, 2, 3], [0, 9, 0]][rank as usize][part as usize]
        };
        assert_eq!(call.told(rows(7)).map(|known| (known.longest(), known.elements(2, 1))), Ok((9, 9)));
        assert_eq!(call.told(rows(8)).err(), Some(Mistold::Differs(0, 8, 7)));
        let root = Layout { own: 2, input: parts([1, 2, 3]), output: Parts::default() };
        let other = Layout { own: 3, ..Layout::default() };
        let rows = |rank: u32, part: u32| u64::from(rank == 1) * u64::from(part + 1);
        for (rank, layout, tells) in [(1, &root, [1, 2, 3]), (2, &other, [0; 3])] {
            let call = sharing(CallKind::Scatterv, rank, layout);
            assert_eq!(call.tells().collect::<Vec<_>>(), tells);
            assert_eq!(call.told(rows).map(|known| known.longest()), Ok(3));
        }
    }
}
