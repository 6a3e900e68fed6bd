//! Tells the program that an operation has ended: a thread of the node's own calls the program's functions, one after
//! another. So a function may call this library, and none holds up an operation.
//!
//! The thread exists from the first function on, until the cluster is freed. Invariant: what was promised is called,
//! once.

use super::queue::Queue;
use crate::error::{Error, Result, Status};
use crate::net::thread;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Calls one of the program's functions.
type Notice = Box<dyn FnOnce() + Send>;

/// One node's notices. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Notices {
    queue: Arc<Queue<Notice, JoinHandle<()>>>,
}

impl Notices {
    /// Promises one more call of a function: makes sure that there is a thread for it then.
    pub(crate) fn promise(&self) -> Result<()> {
        let queue = Arc::clone(&self.queue);
        let work_off = move || {
            while let Some(notice) = queue.next() {
                notice();
            }
        };
        let promised = self.queue.promise(|| thread::spawn("muster-notify", work_off))?;
        promised.ok_or_else(|| Error::new(Status::State, "the request's cluster has been freed"))
    }

    /// Takes on a promised call of a function.
    pub(crate) fn take_on(&self, notice: Notice) {
        if let Err(notice) = self.queue.keep(notice) {
            notice(); // the thread has ended
        }
    }

    /// Calls what is left, and ends the thread. If this is called on that thread itself, it does not wait for it.
    pub(crate) fn end(&self) {
        let Some(thread) = self.queue.end() else { return };
        if thread.thread().id() != std::thread::current().id() {
            let _ = thread.join(); // it has no result; a panic was printed
        }
    }
}
