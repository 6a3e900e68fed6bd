//! The place where one thread leaves something for another that may be asleep in its poller.
//!
//! The sleeper's order: `take_signal`, and sleep only if that is false; if it is true, `take`, and then look again. So
//! no delivery, and no interruption, is slept through: `loom_test.rs` tries every order.

use super::sync::{lock, Arc, AtomicBool, Bell, Mutex, Ordering};
use std::os::fd::RawFd;

/// The signal that makes one sleeping thread look up.
pub(crate) struct Signal {
    is_up: AtomicBool,
    bell: Bell,
}

impl Signal {
    /// A signal that is down; the sleeper watches the bell.
    pub(crate) fn new(bell: Bell) -> Arc<Signal> {
        Arc::new(Signal { is_up: AtomicBool::new(false), bell })
    }

    /// Makes the sleeper look up.
    pub(crate) fn raise(&self) {
        // This is an exchange, because a store would hide an earlier one: the thread that takes the signal sees the
        // reasons of both.
        self.is_up.swap(true, Ordering::AcqRel);
        self.bell.wake();
    }

    /// Whether there is a reason to look up that no earlier call has returned.
    fn take(&self) -> bool {
        self.is_up.load(Ordering::Relaxed) && self.is_up.swap(false, Ordering::Acquire)
    }
}

/// One thread's mail.
pub(crate) struct Mailbox<M> {
    /// None once it is shut.
    mail: Mutex<Option<Vec<M>>>,
    signal: Arc<Signal>,
}

impl<M> Mailbox<M> {
    /// An empty mailbox, whose owner looks up when this signal is raised.
    pub(crate) fn new(signal: Arc<Signal>) -> Mailbox<M> {
        Mailbox { mail: Mutex::new(Some(Vec::new())), signal }
    }

    /// Leaves something, and makes the sleeper look. A mailbox that is shut gives it back.
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
        self.signal.raise();
    }

    /// Whether there is a reason to look up that no earlier call has returned.
    pub(crate) fn take_signal(&self) -> bool {
        self.signal.take()
    }

    /// The descriptor that can be read once the bell has rung.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.signal.bell.descriptor()
    }

    /// Silences a bell that rings although the signal is down: it rang late.
    pub(crate) fn hush(&self) {
        self.signal.bell.drain();
    }

    /// Takes all that has been delivered.
    pub(crate) fn take(&self) -> Vec<M> {
        self.signal.bell.drain();
        lock(&self.mail).as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Takes all that has been delivered. Nothing more is taken in.
    pub(crate) fn shut(&self) -> Vec<M> {
        lock(&self.mail).take().unwrap_or_default()
    }

    #[cfg(test)]
    pub(crate) fn has_mail(&self) -> bool {
        lock(&self.mail).as_ref().is_some_and(|mail| !mail.is_empty())
    }
}
