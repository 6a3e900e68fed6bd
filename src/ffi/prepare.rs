//! Turns a collective's arguments into the runtime's work: checks each argument, and names the one that is wrong.

use super::convert::{null, slice};
use crate::error::{memory, Error, Result};
use crate::runtime::collectives::queued_call::Work;
use crate::runtime::groups::group::Group;
use crate::runtime::memory::buffer::{CallBuffers, PartList, Placement};
use crate::runtime::UserFunction;
use crate::schedules::kernels::Function;
use crate::schedules::{Layout, Parts};
use crate::types::{hash, Call, CallKind, DType, ReduceOp};
use std::ffi::c_void;
use std::fmt::Display;

/// An input buffer and how many elements of it there are.
pub(super) type In = (*const c_void, usize);
/// An output buffer and how many elements of it there are.
pub(super) type Out = (*mut c_void, usize);

/// Where one buffer must begin within the other for a call to be in place, in elements.
#[derive(Clone, Copy)]
pub(super) enum InPlace {
    /// The input within the output.
    InputAt(usize),
    /// The output within the input.
    OutputAt(usize),
    /// This kind of call, or this rank, has one buffer only.
    Never,
}

/// What combines elements, as a caller names it.
pub(super) enum Operator {
    /// By the number of an operation.
    Numbered(i32),
    /// The exact sum of as many vectors as each rank brings.
    Addends,
    /// By a function that comes with the call, its context, and whether operands may be exchanged (1) or not (0).
    Given(Option<Function>, *mut c_void, i32),
}

/// A call that is being put together, where it lies: it is long, and each copy of it would cost a short call a few per cent.
pub(super) struct Prepared {
    pub call: Call,
    pub function: Option<UserFunction>,
    pub layout: Option<Layout>,
}

impl Prepared {
    /// A call of this kind, without elements.
    pub fn of(kind: CallKind) -> Prepared {
        let call = Call { kind, dtype: None, op: None, root: None, count: 0, layout: 0 };
        Prepared { call, function: None, layout: None }
    }

    /// Sets the number and the type of the elements.
    pub fn elements(&mut self, count: usize, code: i32) -> Result<&mut Prepared> {
        (self.call.count, self.call.dtype) = (count as u64, Some(dtype(code)?));
        Ok(self)
    }

    /// Sets the operation.
    ///
    /// # Safety
    /// For as long as the work is not done, a function that is given must be good, as [`UserFunction::new`] says.
    pub unsafe fn op(&mut self, group: &Group, operator: Operator) -> Result<&mut Prepared> {
        let (op, function) = match operator {
            Operator::Numbered(code) => operation(group, code)?,
            Operator::Addends => (ReduceOp::SumOfAddends, None),
            Operator::Given(function, ctx, commutative) => {
                // SAFETY: as promised by the caller.
                let (op, function) = unsafe { given(function, ctx, commutative) }?;
                (op, Some(function))
            }
        };
        (self.call.op, self.function) = (Some(op), function);
        if let Some(dtype) = self.call.dtype.filter(|dtype| dtype.is_opaque() && !op.is_users()) {
            let what = format!(
                "{}: op is {op}, which does not know what {dtype} mean: expected what muster_op_create gave, or a function with \
                 the call (muster_allreduce_with and its like)",
                self.call.kind
            );
            return Err(Error::invalid(what));
        }
        if let Some(dtype) = self.call.dtype.filter(|dtype| op.is_bitwise() && !dtype.is_integer()) {
            let what = format!(
                "{}: op is {op}, which is bitwise, and dtype is {dtype}: expected an integer type",
                self.call.kind
            );
            return Err(Error::invalid(what));
        }
        if let Some(dtype) = self.call.dtype.filter(|dtype| op.is_exact() && !op.is_for(*dtype)) {
            let op = if op == ReduceOp::SumOfAddends { String::new() } else { format!("op is {op}, and ") };
            let what = format!("{}: {op}dtype is {dtype}: expected a float type", self.name());
            return Err(Error::invalid(what));
        }
        Ok(self)
    }

    /// Sets the root.
    pub fn root(&mut self, group: &Group, root: i32) -> Result<&mut Prepared> {
        check_member(group, self.call.kind)?;
        let last = i64::from(group.size()) - 1;
        let root = u32::try_from(root).ok().filter(|root| i64::from(*root) <= last).ok_or_else(|| {
            Error::invalid(format!("{}: root is {root}: expected a rank from 0 to {last}", self.call.kind))
        })?;
        self.call.root = Some(root);
        Ok(self)
    }

    /// Whether this rank is the root.
    pub fn is_root(&self, group: &Group) -> bool {
        self.call.root.is_some() && self.call.root == group.rank()
    }

    /// Sets the sizes and places of the parts.
    pub fn layout(&mut self, layout: Layout) {
        self.layout = Some(layout);
    }

    /// All ranks must agree on these counts.
    pub fn agreed(&mut self, counts: &[u64]) {
        self.call.count = counts.iter().sum();
        self.call.layout = hash(counts.iter().copied());
    }

    /// Makes the work on these buffers, with the layout. If they overlap and are not in place, the work uses a copy of the input.
    ///
    /// # Safety
    /// For as long as the work is not done, `input` must be readable and `output` writable for their elements, and nobody
    /// else may write to them, or read `output`.
    pub unsafe fn buffers(&mut self, input: In, output: Out, place: InPlace) -> Result<Work<'static>> {
        let kind = self.call.kind;
        let element = self.element();
        let [input_name, output_name] = if kind == CallKind::Broadcast { ["buf", "buf"] } else { ["in", "out"] };
        let (input_bytes, output_bytes) = (self.bytes(input.1, input_name)?, self.bytes(output.1, output_name)?);
        check_null(input.0, input.1, input_name)?;
        check_null(output.0, output.1, output_name)?;
        let (from, to) = (input.0 as usize, output.0 as usize);
        let in_place = match place {
            InPlace::InputAt(offset) => from == to.wrapping_add(offset * element),
            InPlace::OutputAt(offset) => to == from.wrapping_add(offset * element),
            InPlace::Never => false,
        };
        let placement = match overlap((from, input_bytes), (to, output_bytes)) {
            false => Placement::Apart,
            true if in_place => Placement::InPlace,
            true => Placement::Overlapping,
        };
        // SAFETY: as promised by the caller; how the buffers lie was just found.
        Ok(unsafe { self.placed((input.0, input_bytes), (output.0, output_bytes), placement, None) })
    }

    /// Makes the work on buffers of these lengths in bytes. `list` has the places of the parts of one buffer, whose own address
    /// then has no meaning.
    ///
    /// # Safety
    /// As for [`CallBuffers::new`], for as long as the work is not done.
    pub unsafe fn placed(
        &mut self,
        input: In,
        output: Out,
        placement: Placement,
        list: Option<PartList>,
    ) -> Work<'static> {
        // SAFETY: as promised by the caller.
        let buffers = unsafe { CallBuffers::new((input.0.cast(), input.1), (output.0.cast(), output.1), placement) };
        Work { call: self.call, layout: self.layout.take(), list, function: self.function, buffers }
    }

    /// The length of one element in bytes.
    pub fn element(&self) -> usize {
        self.call.dtype.map_or(0, DType::size)
    }

    /// The length in bytes of a buffer of `count` elements.
    pub fn bytes(&self, count: usize, name: &str) -> Result<usize> {
        let bytes = self.call.dtype.map_or(Some(0), |dtype| dtype.bytes_of(count as u64));
        bytes.ok_or_else(|| self.too_long(count, name))
    }

    #[cold]
    fn too_long(&self, count: usize, name: &str) -> Error {
        let call = self.name();
        Error::invalid(format!("{call}: by its count {name} has {count} elements: more than any memory holds"))
    }

    /// The name of the function that the program called.
    fn name(&self) -> String {
        match self.call.op {
            Some(ReduceOp::SumOfAddends) => "allreduce_addends".to_owned(),
            _ => self.call.kind.to_string(),
        }
    }
}

/// Whether two stretches of memory, each an address and a length, have a byte in common.
pub(super) fn overlap(one: (usize, usize), other: (usize, usize)) -> bool {
    let (end, other_end) = (one.0.saturating_add(one.1), other.0.saturating_add(other.1));
    one.1 > 0 && other.1 > 0 && one.0 < other_end && other.0 < end
}

/// A function that comes with a call, checked.
///
/// # Safety
/// As for [`UserFunction::new`].
pub(super) unsafe fn given(
    function: Option<Function>,
    ctx: *mut c_void,
    commutative: i32,
) -> Result<(ReduceOp, UserFunction)> {
    let function = function.ok_or_else(|| null("fn"))?;
    if !matches!(commutative, 0 | 1) {
        return Err(Error::invalid(format!("commutative is {commutative}: expected 0 or 1")));
    }
    // SAFETY: as promised by the caller.
    let function = unsafe { UserFunction::new(function, ctx) };
    Ok((ReduceOp::Given { commutative: commutative == 1 }, function))
}

/// The parts that two lists of a call describe, one entry per rank; without displacements the parts follow each other.
///
/// # Safety
/// `counts` must be readable for one number per rank of the group, `displs` likewise or NULL.
pub(super) unsafe fn parts(
    group: &Group,
    (counts, counts_name): (*const usize, &str),
    (displs, displs_name): (*const usize, &str),
) -> Result<Parts> {
    let size = group.size() as usize;
    // SAFETY: as promised by the caller.
    let given = unsafe { slice(counts, size, counts_name) }?;
    let mut counts = group.list();
    memory::more(&mut counts, size, counts_name)?;
    counts.extend(given.iter().map(|count| *count as u64));
    let too_many = |rank: usize| {
        Error::invalid(format!(
            "{counts_name}[{rank}] is {}: the parts up to it are more than any memory holds",
            counts[rank]
        ))
    };
    let fits = |end: u64| isize::try_from(end).is_ok();
    if displs.is_null() {
        let mut displs = group.list();
        memory::more(&mut displs, size, "the places of the parts")?;
        let mut end = 0u64;
        for (rank, count) in counts.iter().enumerate() {
            displs.push(end);
            end = end.checked_add(*count).filter(|end| fits(*end)).ok_or_else(|| too_many(rank))?;
        }
        return Ok(Parts { counts, displs });
    }
    // SAFETY: as promised by the caller.
    let given = unsafe { slice(displs, size, displs_name) }?;
    // The place of an empty part has no meaning: it says nothing about how long the buffer is.
    let place = |(displ, count): (&usize, &u64)| if *count == 0 { 0 } else { *displ as u64 };
    let mut displs = group.list();
    memory::more(&mut displs, size, displs_name)?;
    displs.extend(given.iter().zip(&counts).map(place));
    for (rank, (count, displ)) in counts.iter().zip(&displs).enumerate() {
        if !displ.checked_add(*count).is_some_and(fits) {
            let what = format!(
                "{displs_name}[{rank}] is {displ} and {counts_name}[{rank}] {count}: more than any memory holds"
            );
            return Err(Error::invalid(what));
        }
    }
    Ok(Parts { counts, displs })
}

/// Refuses parts that are written and overlap.
pub(super) fn check_apart(parts: &Parts, name: &str) -> Result<()> {
    if lie_in_order(parts) {
        return Ok(());
    }
    let mut order: Vec<usize> = (0..parts.counts.len()).filter(|rank| parts.counts[*rank] > 0).collect();
    order.sort_by_key(|rank| parts.displs[*rank]);
    for two in order.windows(2) {
        if parts.displs[two[0]] + parts.counts[two[0]] > parts.displs[two[1]] {
            return Err(Error::invalid(format!(
                "{name}: the parts of ranks {} and {} overlap, but both are written",
                two[0].min(two[1]),
                two[0].max(two[1])
            )));
        }
    }
    Ok(())
}

/// Whether the parts lie in order and apart, which is the usual case.
fn lie_in_order(parts: &Parts) -> bool {
    let mut end = 0;
    parts.counts.iter().zip(&parts.displs).filter(|(count, _)| **count > 0).all(|(count, displ)| {
        let follows = *displ >= end;
        end = displ + count;
        follows
    })
}

/// The number of elements of a buffer that holds these parts.
pub(super) fn extent(parts: &Parts) -> usize {
    parts.counts.iter().zip(&parts.displs).map(|(count, displ)| count + displ).max().unwrap_or(0) as usize
}

/// This rank's own count and displacement.
pub(super) fn own(parts: &Parts, group: &Group) -> (usize, usize) {
    let rank = group.rank().unwrap_or(0) as usize;
    (parts.counts.get(rank).map_or(0, |count| *count as usize), parts.displs.get(rank).map_or(0, |at| *at as usize))
}

/// Refuses a process that is no member of the group: without a rank there, its other arguments cannot be judged.
pub(super) fn check_member(group: &Group, what: impl Display) -> Result<()> {
    let is_none = || Error::invalid(format!("{what}: this process is no member of {}", group.id()));
    group.rank().map(drop).ok_or_else(is_none)
}

/// `count` elements of each rank.
pub(super) fn of_all(group: &Group, count: usize) -> Result<usize> {
    count.checked_mul(group.size() as usize).ok_or_else(|| {
        Error::invalid(format!("count is {count}: that of all ranks together is more than any memory holds"))
    })
}

/// Where this rank's part begins, of parts of `count` elements.
pub(super) fn own_at(group: &Group, count: usize) -> usize {
    count.saturating_mul(group.rank().unwrap_or(0) as usize)
}

pub(super) fn dtype(code: i32) -> Result<DType> {
    dtype_of(code, "dtype")
}

/// The type with this code; an error names the argument.
pub(super) fn dtype_of(code: i32, name: &str) -> Result<DType> {
    DType::from_code(code).ok_or_else(|| no_dtype(code, name))
}

#[cold]
fn no_dtype(code: i32, name: &str) -> Error {
    let (last, most) = (DType::ALL.len() - 1, DType::ELEMENT_BYTES_MAX);
    Error::invalid(format!(
        "{name} is {code}: expected one of MUSTER_INT8 (0) to MUSTER_FLOAT64 ({last}), or MUSTER_ELEMENT ({}) plus the bytes \
         of an element, 1 to {most}",
        DType::ELEMENT
    ))
}

fn operation(group: &Group, code: i32) -> Result<(ReduceOp, Option<UserFunction>)> {
    if let Some(op) = ReduceOp::from_code(code) {
        return Ok((op, None));
    }
    let last = ReduceOp::ALL.len() - 1;
    let user = u32::try_from(code).ok().and_then(|code| code.checked_sub(ReduceOp::FIRST_USER));
    let made = user.and_then(|number| group.user_operation(number));
    made.map(|(op, function)| (op, Some(function))).ok_or_else(|| {
        Error::invalid(format!(
            "op is {code}: expected one of MUSTER_SUM (0) to MUSTER_SUM_EXACT ({last}), or what muster_op_create gave"
        ))
    })
}

/// Checks the pointer to a buffer of `count` elements.
pub(super) fn check_null(pointer: *const c_void, elements: usize, name: &str) -> Result<()> {
    match pointer.is_null() && elements > 0 {
        true => Err(null_elements(elements, name)),
        false => Ok(()),
    }
}

#[cold]
fn null_elements(elements: usize, name: &str) -> Error {
    let many = if elements == 1 { "one element".to_owned() } else { format!("{elements} elements") };
    Error::invalid(format!("{name} is NULL, but by the counts it has {many}: expected NULL only where there are none"))
}

/// The same, for a count that is an argument with a name of its own.
pub(super) fn check_null_of(pointer: *const c_void, count: usize, [name, count_name]: [&str; 2]) -> Result<()> {
    if pointer.is_null() && count > 0 {
        return Err(Error::invalid(format!(
            "{name} is NULL, but {count_name} is {count}: expected NULL only where {count_name} is 0"
        )));
    }
    Ok(())
}
