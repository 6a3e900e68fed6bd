//! Runs the schedules of all ranks of a group against each other in memory, interleaved by seed, and checks at every
//! step what the head of `schedules` promises.

use super::{kernels, Action, Algorithm, Buffer, Conversion, Landing, Layout, Rows, Shape, Side, Span};
use crate::types::{Call, CallKind, ReduceOp};
use std::collections::{HashMap, VecDeque};
use std::ops::Range;

/// The byte that fills memory which nobody has written yet.
pub(super) const JUNK: u8 = 0xa5;

/// More steps than any schedule here has: a schedule that reaches this number does not end.
const MAX_STEPS: u32 = 100_000;

/// Random numbers that a seed determines (splitmix64).
pub(super) struct Random(pub u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// Which ranks call in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InPlace {
    Nobody,
    Everybody,
    OddRanks,
}

/// What a run ends with.
pub(super) struct Outcome {
    /// Every rank's output.
    pub outputs: Vec<Vec<u8>>,
    /// The length of the longest chain of exchanges in which each had to wait for the one before.
    pub rounds: u32,
}

/// Combines `other`, which is lower or is not, into `mine`.
pub(super) type Fold = fn(call: &Call, mine: &mut [u8], other: &[u8], other_lower: bool);

/// Folds with the kernels.
pub(super) fn fold_with_kernels(call: &Call, mine: &mut [u8], other: &[u8], other_lower: bool) {
    let (Some(op), Some(dtype)) = (call.op, call.dtype) else { panic!("nothing to reduce with") };
    kernels::reduce_slices(op, dtype, mine, other, other_lower);
}

struct Frame {
    bytes: Vec<u8>,
    round: u32,
}

struct Member<'a> {
    shape: Shape<'a>,
    memory: Vec<u8>,
    /// 1 for each byte of the memory that holds something; all else is junk that nobody may read.
    known: Vec<u8>,
    output: Range<usize>,
    input: Range<usize>,
    scratch: Range<usize>,
    step: u32,
    round: u32,
    /// The round that the exchange under way will end, as far as known.
    ends_round: u32,
    sending: Option<(u32, Span)>,
    receiving: Option<(u32, Landing)>,
    done: bool,
    fold: Fold,
}

/// How many bytes of input and output a rank has. And, in place, where in the output its input lies (or, negative,
/// where in the input its output lies); none where it cannot be in place.
fn sizes(shape: &Shape<'_>) -> (usize, usize, Option<isize>) {
    let (bytes, all) = (shape.bytes(), shape.bytes() * shape.size as usize);
    let at_root = shape.call.root == Some(shape.rank);
    let only = |there: bool, bytes: usize| if there { bytes } else { 0 };
    let extent =
        |buffer| (0..shape.size).map(|rank| shape.part(buffer, rank)).map(|s| s.offset + s.len).max().unwrap_or(0);
    let part = |buffer| shape.part(buffer, shape.rank).offset as isize;
    let own = shape.own_bytes();
    match shape.call.kind {
        CallKind::Barrier => (0, 0, None),
        CallKind::Broadcast => (0, bytes, None),
        CallKind::Allreduce => (bytes * shape.addends(shape.rank) as usize, bytes, Some(0)),
        CallKind::Reduce => (bytes, only(at_root, bytes), at_root.then_some(0)),
        CallKind::Allgather => (bytes, all, Some(part(Buffer::Output))),
        CallKind::Allgatherv => (own, extent(Buffer::Output), Some(part(Buffer::Output))),
        CallKind::Gather => (bytes, only(at_root, all), at_root.then(|| part(Buffer::Output))),
        CallKind::Gatherv if at_root => (own, extent(Buffer::Output), Some(part(Buffer::Output))),
        CallKind::Gatherv => (own, 0, None),
        CallKind::Scatter => (only(at_root, all), bytes, at_root.then(|| -part(Buffer::Input))),
        CallKind::Scatterv if at_root => (extent(Buffer::Input), own, Some(-part(Buffer::Input))),
        CallKind::Scatterv => (0, own, None),
        CallKind::ReduceScatter => (all, bytes, Some(-part(Buffer::Input))),
        CallKind::ReduceScatterv => (extent(Buffer::Input), own, Some(-part(Buffer::Input))),
        CallKind::Alltoall => (all, all, Some(0)),
        CallKind::Alltoallv => {
            let alike = shape.layout.is_some_and(|layout| layout.input == layout.output);
            (extent(Buffer::Input), extent(Buffer::Output), alike.then_some(0))
        }
        CallKind::GroupCreate | CallKind::GroupSplit => unreachable!("the scheduler carries these out"),
    }
}

impl<'a> Member<'a> {
    fn new(algorithm: &Algorithm, mut shape: Shape<'a>, input: &[u8], fold: Fold) -> Member<'a> {
        let (given, result, place) = sizes(&shape);
        shape.in_place = shape.in_place && place.is_some();
        // Odd places, so that nothing is aligned.
        let (output, lies) = match place.filter(|_| shape.in_place) {
            Some(place) if place >= 0 => (1, 1 + place as usize),
            Some(place) => (1 + place.unsigned_abs(), 1),
            None => (1, 1 + result + 1),
        };
        let (output, input_range) = (output..output + result, lies..lies + given);
        let behind = output.end.max(input_range.end) + 1;
        let scratch = behind..behind + algorithm.scratch_bytes(&shape);
        let mut memory = vec![JUNK; scratch.end + 1];
        let mut known = vec![0; memory.len()];
        let given = if shape.call.kind != CallKind::Broadcast {
            input_range.clone()
        } else if shape.rank == shape.root() {
            output.clone()
        } else {
            0..0
        };
        memory[given.clone()].copy_from_slice(&input[..given.len()]);
        known[given].fill(1);
        let (step, round, ends_round, sending, receiving, done) = (0, 0, 0, None, None, false);
        Member {
            shape,
            memory,
            known,
            output,
            input: input_range,
            scratch,
            step,
            round,
            ends_round,
            sending,
            receiving,
            done,
            fold,
        }
    }

    /// The place of a span in memory. Fails unless the span lies in its buffer.
    fn range(&self, span: Span) -> Range<usize> {
        let buffer = match span.buffer {
            Buffer::Input => &self.input,
            Buffer::Output => &self.output,
            Buffer::Scratch => &self.scratch,
        };
        let range = buffer.start + span.offset..buffer.start + span.offset + span.len;
        assert!(range.end <= buffer.end, "{:?} step {}: {span:?} reaches out of its buffer", self.shape, self.step);
        range
    }

    /// The place of a span that is read now.
    fn read(&self, span: Span) -> Range<usize> {
        let range = self.range(span);
        let known = !self.known[range.clone()].contains(&0);
        assert!(known, "{:?} step {}: {span:?} is read before it was written", self.shape, self.step);
        range
    }

    /// The place of a span that is written now.
    fn write(&mut self, span: Span) -> Range<usize> {
        let range = self.target(span);
        self.known[range.clone()].fill(1);
        range
    }

    /// In a call whose parts differ in size, one buffer may be a list: then only one part moves at a time.
    fn check_part(&self, span: Span) {
        let listed = match self.shape.call.kind {
            CallKind::Allgatherv => Buffer::Output,
            CallKind::ReduceScatterv => Buffer::Input,
            _ => return,
        };
        let holds = |part: Span| part.offset <= span.offset && span.offset + span.len <= part.offset + part.len;
        let mut parts = (0..self.shape.size).map(|rank| self.shape.part(listed, rank));
        let whole = span.buffer != listed || span.len == 0 || parts.any(holds);
        assert!(whole, "{:?} step {}: {span:?} is of several parts", self.shape, self.step);
    }

    /// Does the same for a span that is to be written.
    fn target(&self, span: Span) -> Range<usize> {
        self.check_part(span);
        assert!(span.buffer != Buffer::Input, "{:?} step {}: the input would be written", self.shape, self.step);
        self.range(span)
    }

    fn copy(&mut self, from: Span, to: Span) {
        let (from, to) = (self.read(from), self.write(to));
        assert_eq!(from.len(), to.len());
        assert!(apart(&from, &to), "{:?} step {}: a copy overlaps", self.shape, self.step);
        self.memory.copy_within(from, to.start);
    }

    fn reduce(&mut self, mine: Span, other: &[u8], other_side: Side, into: Span) {
        let (mine, into) = (self.read(mine), self.write(into));
        assert!(mine.len() == other.len() && into.len() == other.len(), "{:?}: lengths differ", self.shape);
        assert!(mine == into || apart(&mine, &into), "{:?} step {}: operands overlap", self.shape, self.step);
        self.memory.copy_within(mine, into.start);
        (self.fold)(&self.shape.summed(), &mut self.memory[into], other, other_side == Side::Lower);
    }

    fn sum_exact(&mut self, [own, others]: [Rows; 2], into: Span) {
        let spans = (0..own.count).map(|at| own.row(at)).chain((0..others.count).map(|at| others.row(at)));
        let ranges: Vec<Range<usize>> = spans.map(|span| self.read(span)).collect();
        let into = self.write(into);
        let sound = |row: &Range<usize>| row.len() == into.len() && (*row == into || apart(row, &into));
        assert!(ranges.iter().all(sound), "{:?} step {}: rows overlap the sum", self.shape, self.step);
        let rows: Vec<Vec<u8>> = ranges.into_iter().map(|range| self.memory[range].to_vec()).collect();
        let rows: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
        let dtype = self.shape.call.dtype.expect("what is summed has a type");
        kernels::sum_exact_slices(dtype, &rows, &mut self.memory[into]);
    }

    fn divide(&mut self, span: Span, by: u32) {
        assert_eq!(self.shape.call.op, Some(ReduceOp::Avg));
        let range = self.read(span);
        assert_eq!(range, self.target(span));
        let dtype = self.shape.summed().dtype.expect("what is reduced has a type");
        kernels::divide_slice(dtype, &mut self.memory[range], by);
    }

    fn convert(&mut self, from: Span, to: Span, how: Conversion) {
        let (from, to) = (self.read(from), self.write(to));
        assert!(apart(&from, &to), "{:?} step {}: a conversion overlaps", self.shape, self.step);
        let from = self.memory[from].to_vec();
        kernels::convert_slice(how, &from, &mut self.memory[to]);
    }

    /// Begins the next step, or carries it out.
    fn begin(&mut self, algorithm: &Algorithm) {
        let action = algorithm.step(&self.shape, self.step);
        match action {
            Action::Exchange { send, receive } => {
                for peer in send.iter().map(|send| send.0).chain(receive.iter().map(|receive| receive.0)) {
                    assert!(peer < self.shape.size && peer != self.shape.rank, "{:?}: peer {peer}", self.shape);
                }
                if let Some((_, sent)) = send {
                    self.check_part(sent);
                }
                if let Some((_, Landing::Reduce { mine, .. })) = receive {
                    self.check_part(mine);
                }
                if let (Some((_, sent)), Some((_, landing))) = (&send, &receive) {
                    let (sent, into) = (self.range(*sent), self.target(landing.into()));
                    assert!(apart(&sent, &into), "{:?} step {}: sends what it writes", self.shape, self.step);
                }
                self.ends_round = self.round + u32::from(send.is_some() || receive.is_some());
                (self.sending, self.receiving) = (send, receive);
            }
            Action::Copy { from, to } => self.copy(from, to),
            Action::Reduce { mine, other, into, other_side } => {
                assert!(apart(&self.range(other), &self.range(into)), "{:?}: operands overlap", self.shape);
                assert_eq!(other.buffer, Buffer::Scratch, "{:?}: what is lost would be the caller's", self.shape);
                self.check_part(mine);
                let lost = self.read(other);
                let other = self.memory[lost.clone()].to_vec();
                self.known[lost].fill(0);
                self.reduce(mine, &other, other_side, into);
            }
            Action::SumExact { own, others, into } => self.sum_exact([own, others], into),
            Action::Divide { span, by } => self.divide(span, by),
            Action::Convert { from, to, how } => self.convert(from, to, how),
            Action::Done => {
                self.done = true;
                assert_eq!(algorithm.step(&self.shape, self.step + 1), Action::Done, "done is not the end");
            }
        }
        self.step += 1;
        assert!(self.step < MAX_STEPS, "{:?}: {algorithm:?} does not end", self.shape);
    }

    fn land(&mut self, landing: Landing, frame: Frame) {
        match landing {
            Landing::Place(span) => {
                let range = self.write(span);
                assert_eq!(range.len(), frame.bytes.len(), "{:?} step {}: another length", self.shape, self.step);
                self.memory[range].copy_from_slice(&frame.bytes);
            }
            Landing::Reduce { mine, into, arrives } => self.reduce(mine, &frame.bytes, arrives, into),
        }
        self.ends_round = self.ends_round.max(frame.round);
    }
}

fn apart(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.is_empty() || other.is_empty() || one.end <= other.start || other.end <= one.start
}

/// Runs one call on `inputs.len()` ranks. A seed decides which rank moves when, and whether links hold frames or a send
/// ends only once its receiver has asked for it.
pub(super) fn run(algorithm: &Algorithm, call: Call, inputs: &[Vec<u8>], in_place: InPlace, seed: u64) -> Outcome {
    run_with(fold_with_kernels, algorithm, call, inputs, in_place, seed, &[])
}

/// Runs one call with an operation of the test's own, and with each rank's layout, if there is one.
pub(super) fn run_with(
    fold: Fold,
    algorithm: &Algorithm,
    call: Call,
    inputs: &[Vec<u8>],
    in_place: InPlace,
    seed: u64,
    layouts: &[Layout],
) -> Outcome {
    let size = inputs.len() as u32;
    let mut random = Random(seed);
    let buffered = random.below(2) == 0;
    let mut members = Vec::new();
    for (rank, input) in (0..).zip(inputs) {
        let in_place = in_place == InPlace::Everybody || (in_place == InPlace::OddRanks && rank % 2 == 1);
        let shape = Shape { rank, size, call, in_place, layout: layouts.get(rank as usize) };
        let member = Member::new(algorithm, shape, input, fold);
        member.shape.check().expect("the tests make sensible calls");
        members.push(member);
    }
    let mut links: HashMap<(u32, u32), VecDeque<Frame>> = HashMap::new();
    let mut order: Vec<usize> = (0..members.len()).collect();
    while members.iter().any(|member| !member.done) {
        for at in (1..order.len()).rev() {
            order.swap(at, random.below(at + 1));
        }
        let mut moved = false;
        for &at in &order {
            moved |= advance(&mut members, &mut links, at, algorithm, buffered);
        }
        assert!(moved, "{algorithm:?}, {call}, {size} ranks, {in_place:?}, seed {seed}: nobody can move");
    }
    assert!(links.values().all(VecDeque::is_empty), "{algorithm:?}, {call}, {size} ranks: frames are left over");
    for (member, input) in members.iter().zip(inputs) {
        let untouched = member.shape.in_place || call.kind == CallKind::Broadcast;
        assert!(
            untouched || member.memory[member.input.clone()] == input[..member.input.len()],
            "{algorithm:?}: the input was written"
        );
    }
    Outcome {
        rounds: members.iter().map(|member| member.round).max().unwrap_or(0),
        outputs: members.into_iter().map(|member| member.memory[member.output].to_vec()).collect(),
    }
}

/// Lets one rank do what it can. Returns whether it did anything.
fn advance(
    members: &mut [Member<'_>],
    links: &mut HashMap<(u32, u32), VecDeque<Frame>>,
    at: usize,
    algorithm: &Algorithm,
    buffered: bool,
) -> bool {
    let rank = at as u32;
    let mut moved = false;
    if let Some((peer, span)) = members[at].sending {
        let asked = members[peer as usize].receiving.is_some_and(|(from, _)| from == rank);
        let queue = links.entry((rank, peer)).or_default();
        if buffered || (asked && queue.is_empty()) {
            let bytes = members[at].memory[members[at].read(span)].to_vec();
            queue.push_back(Frame { bytes, round: members[at].round + 1 });
            members[at].sending = None;
            moved = true;
        }
    }
    if let Some((peer, landing)) = members[at].receiving {
        if let Some(frame) = links.entry((peer, rank)).or_default().pop_front() {
            members[at].land(landing, frame);
            members[at].receiving = None;
            moved = true;
        }
    }
    let member = &mut members[at];
    if member.sending.is_none() && member.receiving.is_none() && !member.done {
        member.round = member.ends_round;
        member.begin(algorithm);
        moved = true;
    }
    moved
}
