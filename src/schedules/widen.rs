//! Averages of narrow types: their sums may not fit the type, though the average does. So each rank makes a wide copy
//! of what it gives, in scratch. The schedule of an average runs on that, and the result is made narrow again at the
//! end.
//!
//! | elements | summed as | |
//! | --- | --- | --- |
//! | int8, uint8 | 16 bits; 32 beyond 256 ranks | exact, and truncated once |
//! | int16, uint16 | 32 bits; 64 beyond 65,536 ranks | likewise |
//! | int32, uint32 | 64 bits | likewise |
//! | float16 | float32 | |
//! | bfloat16 | float32, scaled by 2^-ceil(log2 n) | as large as a float32, so that sums could be too large for that |
//!
//! Wide types are what is on the wire then. All other types, and all other operations, stay as they are.

use super::conversion::Conversion;
use super::phases::{rounds, Phases};
use super::{Action, Buffer, Landing, Shape, Span};
use crate::types::{Call, CallKind, DType, ReduceOp};

/// A schedule.
pub(super) type Schedule = fn(&Shape<'_>, u32) -> Action;

/// The type in which so many elements of this type can be summed, if it is another one.
pub fn sum_type(dtype: DType, size: u32) -> Option<DType> {
    match dtype {
        DType::Int8 if size <= 1 << 8 => Some(DType::Int16),
        DType::Int8 => Some(DType::Int32),
        DType::Int16 if size <= 1 << 16 => Some(DType::Int32),
        DType::Int16 | DType::Int32 => Some(DType::Int64),
        DType::Uint8 if size <= 1 << 8 => Some(DType::Uint16),
        DType::Uint8 => Some(DType::Uint32),
        DType::Uint16 if size <= 1 << 16 => Some(DType::Uint32),
        DType::Uint16 | DType::Uint32 => Some(DType::Uint64),
        DType::Float16 | DType::Bfloat16 => Some(DType::Float32),
        DType::Int64 | DType::Uint64 | DType::Float32 | DType::Float64 | DType::Element(_) => None,
    }
}

/// An average that is summed in another type.
#[derive(Clone, Copy, Debug)]
pub struct Wide<'a> {
    /// The call as the caller makes it.
    narrow: Shape<'a>,
    /// The same call on the wide copy, in place: input and output lie in the scratch.
    pub shape: Shape<'a>,
    types: [DType; 2],
}

impl<'a> Wide<'a> {
    /// The call with this shape, if it is such an average.
    pub fn of(narrow: &Shape<'a>) -> Option<Wide<'a>> {
        let dtype = narrow.call.dtype.filter(|_| narrow.is_average())?;
        let wide = sum_type(dtype, narrow.size)?;
        let in_place = narrow.call.kind != CallKind::Reduce || narrow.is_root();
        let call = Call { dtype: Some(wide), ..narrow.call };
        Some(Wide { narrow: *narrow, shape: Shape { call, in_place, ..*narrow }, types: [dtype, wide] })
    }

    /// The number of elements that this rank gives.
    fn given(&self) -> usize {
        self.shape.count() * if self.shape.count_is_per_rank() { self.shape.size as usize } else { 1 }
    }

    /// The elements that the caller gives.
    pub fn original(&self) -> Span {
        Span::new(Buffer::Input, 0, self.given() * self.types[0].size())
    }

    /// Where the wide copy of these elements lies.
    pub fn copy(&self) -> Span {
        Span::new(Buffer::Scratch, 0, self.given() * self.types[1].size())
    }

    /// Where the wide result of this rank lies, if it has one, and where the narrow one belongs.
    pub fn result(&self) -> Option<(Span, Span)> {
        let is_part = matches!(self.shape.call.kind, CallKind::ReduceScatter | CallKind::ReduceScatterv);
        let whole = |shape: &Shape<'_>| match is_part {
            true => shape.part(Buffer::Input, shape.rank),
            false => shape.whole(Buffer::Input),
        };
        let has_one = self.shape.call.kind != CallKind::Reduce || self.shape.is_root();
        let output = Span::new(Buffer::Output, 0, whole(&self.narrow).len);
        has_one.then(|| (whole(&self.shape).within(Buffer::Scratch), output))
    }

    /// A span of the wide call's own buffers, as one of the scratch.
    fn rebased(&self, span: Span) -> Span {
        let begin = match span.buffer {
            Buffer::Input => 0,
            Buffer::Output => self.result().map_or(0, |(result, _)| result.offset),
            Buffer::Scratch => self.copy().len,
        };
        Span::new(Buffer::Scratch, begin + span.offset, span.len)
    }

    fn moved(&self, action: Action) -> Action {
        let at = |span| self.rebased(span);
        let landing = |landing| match landing {
            Landing::Place(span) => Landing::Place(at(span)),
            Landing::Reduce { mine, into, arrives } => Landing::Reduce { mine: at(mine), into: at(into), arrives },
        };
        match action {
            Action::Exchange { send, receive } => Action::Exchange {
                send: send.map(|(to, span)| (to, at(span))),
                receive: receive.map(|(from, it)| (from, landing(it))),
            },
            Action::Copy { from, to } => Action::Copy { from: at(from), to: at(to) },
            Action::Reduce { mine, other, into, other_side } => {
                Action::Reduce { mine: at(mine), other: at(other), into: at(into), other_side }
            }
            Action::Divide { span, by } => Action::Divide { span: at(span), by },
            Action::SumExact { .. } | Action::Convert { .. } | Action::Done => action,
        }
    }

    /// How the given elements become wide, and the result narrow again.
    pub fn conversions(&self) -> [Conversion; 2] {
        let [narrow, wide] = self.types;
        let exponent = if narrow == DType::Bfloat16 { rounds(self.shape.size) as i32 } else { 0 };
        [Conversion { from: narrow, to: wide, exponent: -exponent }, Conversion { from: wide, to: narrow, exponent }]
    }

    fn step(&self, schedule: Schedule, step: u32) -> Action {
        let [there, back] = self.conversions();
        let mut phases = Phases::of(step);
        if phases.once(true) {
            return Action::Convert { from: self.original(), to: self.copy(), how: there };
        }
        let inner = step - 1;
        let action = schedule(&self.shape, inner);
        if action != Action::Done {
            return self.moved(action);
        }
        let is_first = inner == 0 || schedule(&self.shape, inner - 1) != Action::Done;
        match self.result().filter(|_| is_first) {
            Some((from, to)) => Action::Convert { from, to, how: back },
            None => Action::Done,
        }
    }
}

/// What to do at this step of a call that this schedule carries out.
pub(super) fn step(schedule: Schedule, shape: &Shape<'_>, step: u32) -> Action {
    match Wide::of(shape) {
        Some(wide) => wide.step(schedule, step),
        None => schedule(shape, step),
    }
}

/// How the elements of a call become wide, and its result narrow again, if it is an average that is summed in another type.
pub(super) fn conversions(shape: &Shape<'_>) -> Option<[Conversion; 2]> {
    Wide::of(shape).map(|wide| wide.conversions())
}

/// How many bytes of scratch a call needs, its wide copy included.
pub(super) fn scratch_bytes(scratch: fn(&Shape<'_>) -> usize, shape: &Shape<'_>) -> usize {
    match Wide::of(shape) {
        Some(wide) => wide.copy().len + scratch(&wide.shape),
        None => scratch(shape),
    }
}

impl Shape<'_> {
    /// The call as it is carried out: an average's elements may be of a wider type.
    pub fn summed(&self) -> Call {
        Wide::of(self).map_or(self.call, |wide| wide.shape.call)
    }

    /// How many bytes an element of this type has on its way in this call. In an average these are more than the caller's
    /// element has, if the average is summed in a wider type.
    pub(super) fn bytes_on_the_way(&self, dtype: DType) -> usize {
        let wide = sum_type(dtype, self.size).filter(|_| self.call.op == Some(ReduceOp::Avg) && self.size > 1);
        wide.unwrap_or(dtype).size()
    }
}
