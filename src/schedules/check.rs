//! Finds what makes no sense in a call, before a schedule relies on it.

use super::{exact, Layout, Parts, Shape};
use crate::error::{Error, Result, Status};
use crate::types::{Call, CallKind, DType, ReduceOp};
use std::fmt::Display;

/// Every buffer is smaller than this. The limit is so low that 32 bits can count a call's steps.
const MAX_BYTES: u128 = DType::ADDRESSABLE_BYTES as u128;

impl Shape<'_> {
    /// Returns an error for a call that makes no sense. A shape that passes has a schedule, and its byte counts fit in an
    /// address.
    pub fn check(&self) -> Result<()> {
        let Call { kind, dtype, op, root, .. } = self.call;
        if self.rank >= self.size {
            return Err(Error::invalid(format!("{kind}: rank {} is not in a group of {}", self.rank, self.size)));
        }
        if matches!(kind, CallKind::GroupCreate | CallKind::GroupSplit) {
            return Err(Error::invalid(format!("{kind}: the scheduler carries it out; it moves no elements")));
        }
        if kind == CallKind::Barrier {
            return Ok(());
        }
        let Some(dtype) = dtype else { return Err(Error::invalid(format!("{kind}: an element type is needed"))) };
        if self.reduces() && op.is_none() {
            return Err(Error::invalid(format!("{kind}: an operation is needed")));
        }
        if let Some(op) = op.filter(|op| op.is_bitwise() && !op.is_for(dtype)) {
            let what = format!("{kind}: {op} is a bitwise operation, and {dtype} is no integer type");
            return Err(Error::invalid(what));
        }
        if let Some(op) = op.filter(|op| dtype.is_opaque() && !op.is_users()) {
            let what =
                format!("{kind}: {op} does not know what {dtype} mean: expected an operation of the caller's own");
            return Err(Error::invalid(what));
        }
        if let Some(op) = op.filter(|op| op.is_exact() && !op.is_for(dtype)) {
            let what = format!("{kind}: {op} is for floats, and {dtype} is no float type");
            return Err(Error::invalid(what));
        }
        if self.has_root() && root.is_none_or(|root| root >= self.size) {
            let root = root.map_or("none".to_string(), |root| root.to_string());
            let last = self.size - 1;
            return Err(Error::invalid(format!("{kind}: the root is {root}; it must be a rank from 0 to {last}")));
        }
        self.check_count(dtype)?;
        if op == Some(ReduceOp::SumOfAddends) {
            return self.check_addends(dtype);
        }
        self.check_layout(dtype)
    }

    fn check_count(&self, dtype: DType) -> Result<()> {
        let Call { kind, count, .. } = self.call;
        let parts = if self.count_is_per_rank() { self.size } else { 1 };
        let bytes = u128::from(count) * self.bytes_on_the_way(dtype) as u128 * u128::from(parts);
        if bytes >= MAX_BYTES {
            let what =
                format!("{kind}: a count of {count} comes to {bytes} bytes: less than {MAX_BYTES} can be addressed");
            return Err(Error::invalid(what));
        }
        Ok(())
    }

    fn check_layout(&self, dtype: DType) -> Result<()> {
        let kind = self.call.kind;
        let is_root = self.rank == self.root();
        let (input, output) = match kind {
            CallKind::Allgatherv => (false, true),
            CallKind::Gatherv => (false, is_root),
            CallKind::Scatterv => (is_root, false),
            CallKind::ReduceScatterv => (true, false),
            CallKind::Alltoallv => (true, true),
            _ if self.layout.is_none() => return Ok(()),
            _ => {
                return Err(Error::invalid(format!(
                    "{kind}: all parts have the same size; no list of counts belongs here"
                )))
            }
        };
        let Some(layout) = self.layout else {
            return Err(Error::invalid(format!("{kind}: the count of every rank's part is needed")));
        };
        self.check_bytes(dtype, "this rank's own part", u128::from(layout.own))?;
        if input {
            self.check_parts(dtype, "input", &layout.input, layout.own)?;
        }
        if output {
            self.check_parts(dtype, "output", &layout.output, layout.own)?;
        }
        self.check_agreement(layout)
    }

    /// Checks what each rank brings to an exact sum. Lists are there once the ranks have told each other.
    fn check_addends(&self, dtype: DType) -> Result<()> {
        let Call { kind, count, .. } = self.call;
        let Some(layout) = self.layout.filter(|_| kind == CallKind::Allreduce) else {
            return Err(Error::invalid(format!("{kind}: a sum of addends is an allreduce, and needs their number")));
        };
        let most = u64::from(Shape::ADDENDS_MAX);
        let parts = &layout.input;
        if let Some(over) = parts.counts.iter().chain([&layout.own]).find(|addends| **addends > most) {
            let what = format!("{kind}: addends is {over}: expected {most} at most");
            return Err(Error::new(Status::Limit, what));
        }
        self.check_bytes(dtype, "all addends of this rank together", u128::from(layout.own) * u128::from(count))?;
        if parts.counts.is_empty() {
            return Ok(());
        }
        let all: u64 = parts.counts.iter().sum();
        let is_sound = parts.counts.len() == self.size as usize
            && parts.displs.len() == self.size as usize
            && parts.counts[self.rank as usize] == layout.own;
        if !is_sound {
            let what = format!("{kind}: {} numbers of addends are given for {} ranks", parts.counts.len(), self.size);
            return Err(Error::invalid(what));
        }
        if exact::pairwise_steps(self) > u64::from(u32::MAX / 2) {
            let what = format!("{kind}: {all} addends of {count} elements in all are more than one call can add");
            return Err(Error::new(Status::Limit, what));
        }
        Ok(())
    }

    fn check_parts(&self, dtype: DType, name: &str, parts: &Parts, own: u64) -> Result<()> {
        let Call { kind, .. } = self.call;
        for (list, length) in [("counts", parts.counts.len()), ("displacements", parts.displs.len())] {
            if length != self.size as usize {
                let what = format!(
                    "{kind}: {length} {list} are given for the parts of the {name}; there must be {}, one for each rank",
                    self.size
                );
                return Err(Error::invalid(what));
            }
        }
        let whole: u128 = parts.counts.iter().map(|count| u128::from(*count)).sum();
        self.check_bytes(dtype, format_args!("all parts of the {name} together"), whole)?;
        for (rank, (count, displ)) in parts.counts.iter().zip(&parts.displs).enumerate() {
            let end = u128::from(*count) + u128::from(*displ);
            self.check_bytes(dtype, format_args!("the {name} up to the end of rank {rank}'s part"), end)?;
        }
        let listed = parts.counts[self.rank as usize];
        if listed != own {
            let what = format!(
                "{kind}: the part of this rank, {}, has {own} elements, but {listed} in the {name}'s counts: they must \
                 be equal",
                self.rank
            );
            return Err(Error::invalid(what));
        }
        Ok(())
    }

    fn check_bytes(&self, dtype: DType, name: impl Display, elements: u128) -> Result<()> {
        let bytes = elements * dtype.size() as u128;
        if bytes >= MAX_BYTES {
            let what =
                format!("{}: {name} comes to {bytes} bytes: less than {MAX_BYTES} can be addressed", self.call.kind);
            return Err(Error::invalid(what));
        }
        Ok(())
    }

    /// Checks that the lists agree with the call, and with each other.
    fn check_agreement(&self, layout: &Layout) -> Result<()> {
        let Call { kind, count, .. } = self.call;
        let agreed = match kind {
            CallKind::Allgatherv => &layout.output,
            CallKind::ReduceScatterv => &layout.input,
            CallKind::Alltoallv if self.in_place && layout.input != layout.output => {
                let what = format!("{kind}: in place, what is sent to a rank must lie where what comes from it will");
                return Err(Error::invalid(what));
            }
            _ => return Ok(()),
        };
        let sum: u64 = agreed.counts.iter().sum();
        if sum != count {
            let what = format!("{kind}: the count is {count}; it must be the sum of all ranks' counts, {sum}");
            return Err(Error::invalid(what));
        }
        let mut end = 0;
        for (rank, (count, displ)) in agreed.counts.iter().zip(&agreed.displs).enumerate() {
            if kind == CallKind::ReduceScatterv && *displ != end {
                let what =
                    format!("{kind}: rank {rank}'s part begins at {displ}; it must follow the one before, at {end}");
                return Err(Error::invalid(what));
            }
            end += count;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "check_test.rs"]
mod tests;
