//! Users' reduction functions. They are numbered in the order in which they are made. So ranks that make them in the
//! same order mean the same by the same number. A number is never used again.

use crate::error::{Error, Result};
use crate::schedules::kernels::UserFunction;
use crate::types::ReduceOp;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many may be made on one cluster, freed ones included.
const OPERATIONS_MAX: usize = 1 << 16;

/// The functions that were made; none in the place of one that has been freed since.
#[derive(Default)]
pub struct ReduceFunctions {
    made: Mutex<Vec<Option<(bool, UserFunction)>>>,
}

impl ReduceFunctions {
    fn made(&self) -> MutexGuard<'_, Vec<Option<(bool, UserFunction)>>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes an operation of a user's function.
    pub fn make(&self, function: UserFunction, commutative: bool) -> Result<ReduceOp> {
        let mut made = self.made();
        if made.len() >= OPERATIONS_MAX {
            let what =
                format!("{OPERATIONS_MAX} operations have been made on this cluster, which is the most there can be");
            return Err(Error::new(crate::error::Status::Limit, what));
        }
        made.push(Some((commutative, function)));
        Ok(ReduceOp::User { number: made.len() as u32 - 1, commutative })
    }

    /// Frees an operation. Calls that have begun go on with it.
    pub fn free(&self, code: i32) -> Result<()> {
        let number = u32::try_from(code).ok().and_then(|code| code.checked_sub(ReduceOp::FIRST_USER));
        let mut made = self.made();
        let entry = number.and_then(|number| made.get_mut(number as usize)).and_then(Option::take);
        entry
            .map(drop)
            .ok_or_else(|| Error::invalid(format!("op is {code}: expected what muster_op_create gave, not freed yet")))
    }

    /// The operation with this number, unless it has been freed.
    pub fn find(&self, number: u32) -> Option<(ReduceOp, UserFunction)> {
        let (commutative, function) = (*self.made().get(number as usize)?)?;
        Some((ReduceOp::User { number, commutative }, function))
    }
}
