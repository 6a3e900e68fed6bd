//! A collective as it is called, and one that is left to the progress thread.

use crate::runtime::base::queue::Queue;
use crate::runtime::base::request::Completer;
use crate::runtime::memory::buffer::{CallBuffers, PartList};
use crate::runtime::state::context::TimeLimit;
use crate::schedules::kernels::UserFunction;
use crate::schedules::Layout;
use crate::types::{Call, ReduceOp};
use std::thread::JoinHandle;

/// One collective, as one rank calls it.
pub struct Work<'a> {
    /// The call.
    pub call: Call,
    /// Where the parts of its buffers lie, if each has a size of its own.
    pub layout: Option<Layout>,
    /// Where the parts are in memory, if one of its buffers is a list.
    pub list: Option<PartList>,
    /// The function that combines elements, if that is a user's.
    pub function: Option<UserFunction>,
    /// Its buffers, as long as `Shape` says.
    pub buffers: CallBuffers<'a>,
}

#[cfg(test)]
impl<'a> Work<'a> {
    /// A call whose parts are equally long, and which needs no user's function.
    pub fn plain(call: Call, buffers: CallBuffers<'a>) -> Work<'a> {
        Work { call, layout: None, list: None, function: None, buffers }
    }
}

/// A collective whose caller does not wait.
pub(crate) struct QueuedCall {
    pub turn: u64,
    pub time: TimeLimit,
    pub work: Work<'static>,
    pub completer: Completer,
}

impl QueuedCall {
    /// Whether a thread that waits for the request may carry the call out. Such a thread may have to stop in the
    /// middle. Of a sum of addends, and of a call whose input was copied, nothing keeps what is left to do then.
    pub fn may_change_threads(&self) -> bool {
        self.work.call.op != Some(ReduceOp::SumOfAddends) && self.work.buffers.copied_bytes() == 0
    }
}

/// The calls that the progress thread has before it.
pub(crate) type CallQueue = Queue<QueuedCall, JoinHandle<()>>;
