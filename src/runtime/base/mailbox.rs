//! Where one thread leaves something for another that may be asleep in its poller.
//!
//! The sleeper's order: `take_signal`, and only where that is false sleep; where it is true `take`, then look again. Then
//! nothing that was delivered, and no interruption, is slept through: `loom_test.rs` tries every order.

use super::sync::{lock, AtomicBool, Bell, Mutex, Ordering};
use std::os::fd::RawFd;

/// One thread's mail.
pub(crate) struct Mailbox<M> {
    /// None once it is shut.
    mail: Mutex<Option<Vec<M>>>,
    signal: AtomicBool,
    bell: Bell,
}

impl<M> Mailbox<M> {
    /// An empty one, whose bell the sleeper watches.
    pub(crate) fn new(bell: Bell) -> Mailbox<M> {
        Mailbox { mail: Mutex::new(Some(Vec::new())), signal: AtomicBool::new(false), bell }
    }

    /// Leaves something, and makes the sleeper look; given back by a mailbox that is shut.
    pub(crate) fn deliver(&self, what: M) -> Result<(), M> {
        let taken = match &mut *lock(&self.mail) {
            Some(mail) => {
                mail.push(what);
                Ok(())
            }
            None => Err(what),
        };
        self.interrupt();
        taken
    }

    /// Makes the sleeper look up, whether there is mail or not.
    pub(crate) fn interrupt(&self) {
        // An exchange, where a store would hide the one before it: who takes the signal sees what either was about.
        self.signal.swap(true, Ordering::AcqRel);
        self.bell.wake();
    }

    /// Whether there is a reason to look up, that no earlier call has told of.
    pub(crate) fn take_signal(&self) -> bool {
        self.signal.load(Ordering::Relaxed) && self.signal.swap(false, Ordering::Acquire)
    }

    /// What can be read once the bell has rung.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.bell.descriptor()
    }

    /// For who finds the bell ringing although the signal is down: it rang late.
    pub(crate) fn hush(&self) {
        self.bell.drain();
    }

    /// All that has been delivered.
    pub(crate) fn take(&self) -> Vec<M> {
        self.bell.drain();
        lock(&self.mail).as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// All that has been delivered; nothing more is taken in.
    pub(crate) fn shut(&self) -> Vec<M> {
        lock(&self.mail).take().unwrap_or_default()
    }

    #[cfg(test)]
    pub(crate) fn has_mail(&self) -> bool {
        lock(&self.mail).as_ref().is_some_and(|mail| !mail.is_empty())
    }
}
