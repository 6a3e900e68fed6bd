//! The interruptions that end a call's wait before its time: by the program's hook, and by `muster_interrupt`.
//!
//! The thread that waits asks the hook itself, so that a language's handlers run on the thread to which they belong. A
//! call takes an [`Attention`] when it begins: every later interruption of the node ends its waits, and no earlier one
//! does. A wait looks at the attention while it holds the lock under which it is woken, and asks the hook with no lock
//! held ([`wait_until`]). An interruption first counts itself, and then wakes all that sleep: so no thread sleeps
//! through it (`loom_test.rs`).
//!
//! Deliberately absent: any list of the threads that wait. Each place where calls sleep knows how to wake them
//! ([`nudge`]).

use super::sync::{lock, wait, AtomicU64, Condvar, Instant, Mutex, Ordering};
use crate::error::{Error, Result, Status};
use crate::types::Hook;
use std::cell::Cell;
use std::time::Duration;

/// How often a call that sleeps asks the hook.
pub(crate) const ASK_EVERY: Duration = Duration::from_millis(50);

/// The interruptions of the calls of one node.
#[derive(Default)]
pub(crate) struct Interrupts {
    hook: Hook,
    /// How often the program has interrupted.
    count: AtomicU64,
}

/// The attention of one call that may wait; or of a wait that the program cannot end.
pub(crate) struct Attention<'a> {
    /// The interruptions to which it listens, and how often the program had interrupted when the call began.
    to: Option<(&'a Interrupts, u64)>,
    /// The time to ask the hook; none before the call sleeps.
    ask_at: Cell<Option<Instant>>,
    /// What the hook has answered, if it has interrupted: the call may have a stage to come, and ends there.
    answer: Cell<Option<i32>>,
    /// What else it listens to, if the call waits for several nodes of this process.
    also: Option<Box<Attention<'a>>>,
}

impl Interrupts {
    /// The interruptions of a node with this hook.
    pub(crate) fn new(hook: Hook) -> Interrupts {
        Interrupts { hook, count: AtomicU64::new(0) }
    }

    /// The attention of a call that begins now.
    pub(crate) fn attention(&self) -> Attention<'_> {
        Attention { to: Some((self, self.count.load(Ordering::Acquire))), ..Attention::none() }
    }

    /// Interrupts: all calls that have begun end their waits once they are woken.
    pub(crate) fn interrupt(&self) {
        self.count.fetch_add(1, Ordering::AcqRel);
    }
}

impl<'a> Attention<'a> {
    /// The attention of a wait that nothing ends early.
    pub(crate) const fn none() -> Attention<'static> {
        Attention { to: None, ask_at: Cell::new(None), answer: Cell::new(None), also: None }
    }

    /// The attention of the same call, which waits for another node as well.
    pub(crate) fn and(self, other: &'a Interrupts) -> Attention<'a> {
        Attention { also: Some(Box::new(self)), ..other.attention() }
    }

    /// Whether the hook is to be asked now; an error if the program has interrupted. Takes no lock, and asks nobody.
    pub(crate) fn is_due(&self) -> Result<bool> {
        let Some((interrupts, count)) = self.to else { return Ok(false) };
        if interrupts.count.load(Ordering::Acquire) != count {
            return Err(interrupted("muster_interrupt was called"));
        }
        if let Some(answer) = self.answer.get() {
            return Err(interrupted(&format!("the hook of muster_config_set_interrupt returned {answer}")));
        }
        let is_due = self.ask_at.get().is_some_and(|at| at.saturating_duration_since(Instant::now()).is_zero());
        Ok(self.also.as_ref().map_or(Ok(false), |also| also.is_due())? || is_due)
    }

    /// How long to sleep at a time, out of the time that is left (`None`: without limit).
    pub(crate) fn left(&self, left: Option<Duration>) -> Option<Duration> {
        let left = self.also.as_ref().map_or(left, |also| also.left(left));
        if self.hook().is_none() {
            return left;
        }
        let now = Instant::now();
        let ask_at = self.ask_at.get().or_else(|| now.checked_add(ASK_EVERY));
        self.ask_at.set(ask_at);
        let until = ask_at.map(|at| at.saturating_duration_since(now));
        left.into_iter().chain(until).min()
    }

    /// A signal has ended the sleep: the hook is asked at once.
    pub(crate) fn signalled(&self) {
        self.also.iter().for_each(|also| also.signalled());
        if self.hook().is_some() {
            self.ask_at.set(Some(Instant::now()));
        }
    }

    /// Asks the hook, if it is time. An error ends the wait. Not to be called with a lock held that a program's handler
    /// could want.
    pub(crate) fn ask(&self) -> Result<()> {
        if !self.is_due()? {
            return Ok(());
        }
        self.also.as_ref().map_or(Ok(()), |also| also.ask())?;
        self.ask_at.set(Instant::now().checked_add(ASK_EVERY));
        self.answer.set(self.hook().map(Hook::ask).filter(|answer| *answer != 0));
        self.is_due().map(drop) // it may have called muster_interrupt
    }

    fn hook(&self) -> Option<&Hook> {
        self.to.map(|(interrupts, _)| &interrupts.hook).filter(|hook| hook.is_set())
    }
}

/// Waits until `check` finds what it looks for in the state, no time is `left`, or the program interrupts the call that
/// waits. It looks at least once.
pub(crate) fn wait_until<S, T>(
    (state, changed): (&Mutex<S>, &Condvar),
    left: impl Fn() -> Option<Duration>,
    attention: &Attention<'_>,
    mut check: impl FnMut(&mut S) -> Option<T>,
) -> Result<Option<T>> {
    let mut held = lock(state);
    loop {
        if let Some(found) = check(&mut held) {
            return Ok(Some(found));
        }
        let left = left();
        if left == Some(Duration::ZERO) {
            return Ok(None);
        }
        if attention.is_due()? {
            drop(held);
            let answer = attention.ask();
            held = lock(state);
            match answer {
                Ok(()) => continue,
                // What `check` looks for may have come while the hook ran: then it counts.
                Err(why) => return check(&mut held).map(Some).ok_or(why),
            }
        }
        held = wait(changed, held, attention.left(left));
    }
}

/// Makes the threads that wait like this look whether the program has interrupted them.
pub(crate) fn nudge<S>((state, changed): (&Mutex<S>, &Condvar)) {
    drop(lock(state)); // a thread that has looked and does not sleep yet holds it
    changed.notify_all();
}

fn interrupted(why: &str) -> Error {
    Error::new(Status::Interrupted, why)
}

/// The same error, saying which call it ended.
pub(crate) fn in_call(title: &str, error: &Error) -> Error {
    Error::new(error.status(), format!("{title} was interrupted: {}", error.message()))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicI32;
    use std::sync::Arc;

    fn said(outcome: Result<()>) -> String {
        outcome.expect_err("it is interrupted").message().to_owned()
    }

    #[test]
    fn a_call_hears_what_interrupts_after_its_beginning_and_the_next_does_not() {
        let interrupts = Interrupts::default();
        let first = interrupts.attention();
        assert_eq!((first.is_due(), first.ask(), first.left(None)), (Ok(false), Ok(()), None), "nobody is asked");
        interrupts.interrupt();
        assert_eq!(said(first.ask()), "muster_interrupt was called");
        assert_eq!(first.is_due().map_err(|error| error.status()), Err(Status::Interrupted));
        assert_eq!(interrupts.attention().is_due(), Ok(false), "it does not stick");
        assert_eq!(Attention::none().is_due(), Ok(false));
    }

    #[test]
    fn a_hook_is_asked_once_a_call_has_slept_for_its_span_and_at_once_after_a_signal() {
        let answer = Arc::new(AtomicI32::new(7));
        let theirs = Arc::clone(&answer);
        let interrupts = Interrupts::new(Hook::new(move || theirs.load(std::sync::atomic::Ordering::SeqCst)));
        let attention = interrupts.attention();
        assert_eq!(attention.ask(), Ok(()), "it has not slept");
        assert!(attention.left(None).is_some_and(|left| left <= ASK_EVERY));
        assert_eq!(attention.left(Some(Duration::ZERO)), Some(Duration::ZERO));
        attention.signalled();
        assert_eq!(attention.left(None), Some(Duration::ZERO));
        assert_eq!(said(attention.ask()), "the hook of muster_config_set_interrupt returned 7");
        answer.store(0, std::sync::atomic::Ordering::SeqCst);
        let attention = interrupts.attention();
        attention.signalled();
        assert_eq!(attention.ask(), Ok(()));
        assert!(attention.left(None).is_some_and(|left| left > Duration::ZERO), "the next span has begun");
        assert_eq!(Attention::none().left(None), None);
    }

    #[test]
    fn a_call_that_waits_for_two_nodes_hears_both() {
        let hooked = Interrupts::new(Hook::new(|| 3));
        let (first, second) = (Interrupts::default(), Interrupts::default());
        let attention = first.attention().and(&hooked).and(&second);
        assert_eq!((attention.is_due(), attention.left(None).is_some()), (Ok(false), true));
        first.interrupt();
        assert_eq!(said(attention.ask()), "muster_interrupt was called");
        let attention = first.attention().and(&hooked).and(&second);
        attention.signalled();
        assert_eq!(said(attention.ask()), "the hook of muster_config_set_interrupt returned 3");
    }

    #[test]
    fn what_comes_while_the_hook_runs_ends_the_wait_as_if_nothing_had_interrupted_it() {
        let waits = Arc::new((Mutex::new(false), Condvar::new()));
        let theirs = Arc::clone(&waits);
        let comes = Arc::new(std::sync::atomic::AtomicBool::new(true));
        let may = Arc::clone(&comes);
        let interrupts = Interrupts::new(Hook::new(move || {
            *lock(&theirs.0) = may.load(std::sync::atomic::Ordering::SeqCst);
            7
        }));
        let outcome = || {
            let attention = interrupts.attention();
            attention.signalled();
            wait_until((&waits.0, &waits.1), || None, &attention, |came| std::mem::take(came).then_some(()))
        };
        assert_eq!(outcome(), Ok(Some(())));
        comes.store(false, std::sync::atomic::Ordering::SeqCst);
        assert_eq!(said(outcome().map(drop)), "the hook of muster_config_set_interrupt returned 7");
        let attention = interrupts.attention();
        attention.signalled();
        assert!(attention.ask().is_err() && attention.is_due().is_err(), "a call of several stages ends at the next");
    }

    #[test]
    fn a_hook_may_interrupt() {
        let interrupts = Arc::new_cyclic(|own: &std::sync::Weak<Interrupts>| {
            let own = own.clone();
            Interrupts::new(Hook::new(move || {
                own.upgrade().expect("it is asked").interrupt();
                0
            }))
        });
        let attention = interrupts.attention();
        attention.signalled();
        assert_eq!(said(attention.ask()), "muster_interrupt was called");
    }
}
