//! Telling the program that an operation has ended: a thread of the node's own calls its functions, one after another. So a function
//! may call this library, and none holds up an operation.
//!
//! The thread exists from the first function on, until the cluster is freed. Invariant: whatever was promised is called, once.

use super::queue::Queue;
use super::request::Notified;
use crate::error::{Error, Result, Status};
use crate::net::thread;
use std::sync::Arc;
use std::thread::JoinHandle;

/// The program's function, which hears how the operation ended.
type Function = Box<dyn FnOnce(Status) + Send>;

/// One node's notices.
#[derive(Default)]
pub(crate) struct Notices {
    queue: Queue<(Notified, Function), JoinHandle<()>>,
}

impl Notices {
    /// One function more will be called; makes sure that this cannot fail then.
    pub(crate) fn promise(self: &Arc<Self>) -> Result<()> {
        let own = Arc::clone(self);
        let work_off = move || {
            while let Some(notice) = own.queue.next() {
                call(notice);
            }
        };
        let promised = self.queue.promise(|| thread::spawn("muster-notify", work_off))?;
        promised.ok_or_else(|| Error::new(Status::State, "the request's cluster has been freed"))
    }

    /// Has a function called that was promised.
    pub(crate) fn take_on(&self, notified: Notified, function: Function) {
        if let Err(notice) = self.queue.keep((notified, function)) {
            call(notice); // the thread has ended
        }
    }

    /// Calls what is left, and ends the thread. One that ends itself so is not waited for.
    pub(crate) fn end(&self) {
        let Some(thread) = self.queue.end() else { return };
        if thread.thread().id() != std::thread::current().id() {
            let _ = thread.join(); // it has no result; a panic was printed
        }
    }
}

/// The word has arrived once the function has returned.
fn call((notified, function): (Notified, Function)) {
    function(notified.status);
    drop(notified);
}
