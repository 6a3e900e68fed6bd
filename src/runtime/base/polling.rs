//! How a thread waits for what may come soon: it looks again and again, lets others run in between, and sleeps when it
//! has done so for long enough. One policy for collectives, for messages, for progress threads, and for callers that
//! test requests.
//!
//! Letting others run helps where they are ranks that are waited for, and does no harm where there is nobody. A program
//! that computes keeps the processor for its whole time slice, some milliseconds, whatever comes meanwhile; but a
//! thread that sleeps is woken at once. So late yields end polling for the whole node, once they have cost more time
//! than quick ones: waits then sleep at once, for as long as [`Trust`] says. A few late yields do not end it: a rank
//! computes between two calls, and a virtual machine is stopped now and then. Pure but for [`Polling`], and tested
//! below.

use super::clock::Clock;
use crate::net::{cgroup, host};
use crate::types::Time;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// How long a call polls before it sleeps, where no setting says; a wake-up from sleep costs about as much.
const POLL: Duration = Duration::from_micros(50);
/// A yield that takes longer has let a program run that was not about to wait: a rank has sent or combined a piece by
/// then.
const LATE: Duration = Duration::from_micros(200);
/// If ranks share cores, a peer has its turn only after others have had theirs, so a call polls longer. It costs
/// little: each poll lets the others run first, and a peer that has a piece to combine takes some 100 us for it.
const POLL_SHARED: Duration = Duration::from_micros(400);
/// A yield takes longer on shared cores, too: by the number of ranks to a core, up to this.
const SHARES_MAX: u32 = 8;
/// Yields that come back soon earn credit for the time that they took, up to this; late ones use it up.
const CREDIT_MAX: Duration = Duration::from_millis(10);
/// How long nobody yields after late yields have used the credit up; and the longest such time, if they do so again and
/// again.
const DISTRUST: Duration = Duration::from_millis(20);
const DISTRUST_MAX: Duration = Duration::from_millis(1280);
/// A caller counts as one that waits by testing after so many tests that find nothing, if they take no longer than
/// this.
const TESTS: u32 = 16;
const TESTS_WITHIN: Duration = Duration::from_micros(4);
/// The same limit for questions whether a message is there: each of them looks at a link.
const PROBES_WITHIN: Duration = Duration::from_micros(64);
/// How long such a caller sleeps after a yield that came back late, unless what it tests for ends before. A timer that
/// is due so soon has to be programmed, which on a virtual machine costs more than a small collective: so the caller
/// yields as long as that will do.
const TEST_SLEEP: Duration = Duration::from_micros(100);

/// How long the calls of a group poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Polls {
    span: Duration,
    late: Duration,
}

impl Polls {
    /// The polls of a group on a host where so many ranks share so many cores; `set` is what the user wants.
    pub(crate) fn new(local_size: u32, cores: u32, set: Option<Duration>) -> Polls {
        let shares = local_size.div_ceil(cores).clamp(1, SHARES_MAX);
        let span = if shares > 1 { POLL_SHARED } else { POLL };
        Polls { span: set.unwrap_or(span), late: LATE * shares }
    }
}

/// Whether letting others run is worth while: whether yields come back soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Trust {
    /// Trust is lost until this time, and was lost for so long.
    back_at: Time,
    span: Duration,
}

impl Trust {
    const FULL: Trust = Trust { back_at: Time(0), span: Duration::ZERO };

    /// Yields have come back late. The span doubles if trust had hardly come back.
    fn lose(&mut self, now: Time) {
        if now < self.back_at {
            return; // another thread was sooner
        }
        let is_same = now.since(self.back_at) <= self.span;
        self.span = if is_same { (2 * self.span).clamp(DISTRUST, DISTRUST_MAX) } else { DISTRUST };
        self.back_at = now + self.span;
    }
}

/// One wait: the time since which there has been nothing to do.
#[derive(Debug, Default)]
pub(crate) struct Idle {
    since: Option<Time>,
}

impl Idle {
    /// Something has been done, or the thread has slept: the next wait begins anew.
    pub(crate) fn end(&mut self) {
        self.since = None;
    }

    /// Nothing was found. Returns whether to look again, once others have run; if not, the thread is to sleep.
    fn polls_on(&mut self, now: Time, polls: &Polls, back_at: Time) -> bool {
        now.since(*self.since.get_or_insert(now)) < polls.span && now >= back_at
    }
}

/// What all threads of a node know of the processors' other users.
#[derive(Debug)]
pub(crate) struct Polling {
    /// A copy of `Trust::back_at`, so that a look at it takes no lock.
    back_at: AtomicU64,
    trust: Mutex<Trust>,
    /// The time, in ns, that yields took which came back soon, less that of late ones: 0 to [`CREDIT_MAX`]. If threads
    /// write it at the same time, what one of them adds may be lost, which does no harm.
    credit: AtomicU64,
    /// How long calls poll, if the user has set it.
    pub(crate) set: Option<Duration>,
    /// How many processors this process may run on.
    pub(crate) cores: u32,
    /// The same number, or fewer if a control group has a quota. It is read when it is first asked for: a start does
    /// not need it.
    free: OnceLock<u32>,
    /// How many serving threads of this cluster poll, which otherwise would sleep.
    servants: AtomicU32,
}

impl Polling {
    /// The polling of a node that has full trust.
    pub(crate) fn new(set: Option<Duration>) -> Polling {
        let (free, servants) = (OnceLock::new(), AtomicU32::new(0));
        Polling {
            back_at: AtomicU64::new(0),
            trust: Mutex::new(Trust::FULL),
            credit: AtomicU64::new(CREDIT_MAX.as_nanos() as u64),
            set,
            cores: host::cores(),
            free,
            servants,
        }
    }

    /// The number of processors whose time this process may use, together with the others of its control group.
    pub(crate) fn free_cores(&self) -> u32 {
        *self.free.get_or_init(|| match cgroup::quota() {
            Some(quota) => self.cores.min(quota.cores as u32),
            None => self.cores,
        })
    }

    /// Whether serving threads poll.
    #[cfg(test)]
    pub(crate) fn has_servants(&self) -> bool {
        self.servants.load(Ordering::SeqCst) > 0
    }

    /// A place for a serving thread to poll, where so many ranks share the processors. There is one if there are enough
    /// processors for all ranks, and for as many serving threads of each rank as there are of this one.
    pub(crate) fn place_beside(&self, local_size: u32) -> Option<PlaceToPoll<'_>> {
        let place = PlaceToPoll(&self.servants);
        let servants = self.servants.fetch_add(1, Ordering::Relaxed) + 1;
        (local_size.saturating_mul(1 + servants) <= self.free_cores()).then_some(place)
    }

    /// Whether yields have come back soon of late: then nobody else wants the processors, as far as is known.
    pub(crate) fn has_trust(&self, clock: &Clock) -> bool {
        clock.now() >= Time(self.back_at.load(Ordering::Relaxed))
    }

    /// There is nothing to do: lets others run, after which the caller looks again. Returns false if the caller is to
    /// sleep.
    pub(crate) fn poll(&self, idle: &mut Idle, polls: &Polls, clock: &Clock) -> bool {
        let before = clock.now();
        if !idle.polls_on(before, polls, Time(self.back_at.load(Ordering::Relaxed))) {
            idle.end();
            return false;
        }
        std::thread::yield_now();
        let after = clock.now();
        self.account(after, after.since(before), polls.late);
        true
    }

    /// A yield has come back after so long. Trust is lost once late yields have used up all credit, and comes back
    /// without any.
    fn account(&self, now: Time, took: Duration, late: Duration) {
        let (credit, took_ns) = (self.credit.load(Ordering::Relaxed), took.as_nanos() as u64);
        if took <= late {
            let most = CREDIT_MAX.as_nanos() as u64;
            if credit < most {
                self.credit.store(most.min(credit + took_ns), Ordering::Relaxed);
            }
            return;
        }
        self.credit.store(credit.saturating_sub(took_ns), Ordering::Relaxed);
        if credit <= took_ns {
            let mut trust = self.trust.lock().unwrap_or_else(PoisonError::into_inner);
            trust.lose(now);
            self.back_at.store(trust.back_at.0, Ordering::Relaxed);
        }
    }
}

/// A serving thread holds this while it polls.
pub(crate) struct PlaceToPoll<'a>(&'a AtomicU32);

impl Drop for PlaceToPoll<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A thread that serves, and sleeps in between. If what it has just served is mostly followed by more, it looks again
/// for as long as a call polls: a wake-up would take longer than all else.
#[derive(Debug)]
pub(crate) struct Lookout {
    polls: Polls,
    idle: Idle,
    is_awake: bool,
}

impl Lookout {
    /// A thread that sleeps; `set` is what the user wants.
    pub(crate) fn new(set: Option<Duration>) -> Lookout {
        Lookout { polls: Polls::new(1, 1, set), idle: Idle::default(), is_awake: false }
    }

    /// Something has come, or has been answered, and more mostly follows soon.
    pub(crate) fn stir(&mut self) {
        self.is_awake = true;
        self.idle.end();
    }

    /// There is nothing to do. Returns whether to look again, now that others have run; if not, the thread is to sleep.
    pub(crate) fn looks_again(&mut self, polling: &Polling, clock: &Clock) -> bool {
        self.is_awake = self.is_awake && polling.poll(&mut self.idle, &self.polls, clock);
        self.is_awake
    }
}

/// What follows a test that found nothing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum GiveWay {
    /// Nothing: the caller has other things to do.
    No,
    /// Others run: among them, perhaps, the thread that does the work.
    Yield,
    /// Sleep until the end of what is tested, for so long at most.
    Sleep(Duration),
}

/// A thread that tests requests. If it does nothing else, it would keep the processor from the thread that does the
/// work; if it computes between tests, they cost it no more than a look.
#[derive(Clone, Copy, Debug)]
pub struct Tester {
    within: Duration,
    clock: Option<Clock>,
    fruitless: u32,
    /// When the present run of fruitless tests began.
    since: Time,
    trust: Trust,
}

impl Tester {
    /// A tester that has not tested yet.
    pub(crate) const fn new() -> Tester {
        Tester { within: TESTS_WITHIN, clock: None, fruitless: 0, since: Time(0), trust: Trust::FULL }
    }

    /// A tester that asks for messages.
    pub(crate) const fn of_probes() -> Tester {
        Tester { within: PROBES_WITHIN, ..Tester::new() }
    }

    /// A tester that has tested in vain so often that it sleeps with the next test.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn tired() -> Tester {
        let trust = Trust { back_at: Time::NEVER, span: DISTRUST };
        Tester { fruitless: TESTS - 1, since: Time::NEVER, trust, ..Tester::new() }
    }

    /// A test has found an end.
    pub(crate) fn found(&mut self) {
        self.fruitless = 0;
    }

    /// A test has found nothing. The clock is read once in [`TESTS`] tests.
    pub(crate) fn found_nothing(&mut self) -> GiveWay {
        self.fruitless += 1;
        if self.fruitless < TESTS {
            return GiveWay::No;
        }
        let now = self.clock.get_or_insert_with(Clock::start).now();
        self.after_some(now)
    }

    /// [`TESTS`] tests have found nothing.
    fn after_some(&mut self, now: Time) -> GiveWay {
        let took = now.since(self.since);
        (self.fruitless, self.since) = (0, now);
        match took <= self.within {
            false => GiveWay::No,
            true if now < self.trust.back_at => GiveWay::Sleep(TEST_SLEEP),
            true => GiveWay::Yield,
        }
    }

    /// Counts a look that found something, or nothing, and gives way if that is due. It is for events that nothing else
    /// would wake the caller for.
    pub(crate) fn looked(&mut self, found: bool) {
        if found {
            return self.found();
        }
        let way = self.found_nothing();
        match way {
            GiveWay::No => return,
            GiveWay::Yield => std::thread::yield_now(),
            GiveWay::Sleep(limit) => std::thread::sleep(limit),
        }
        self.gave_way(&way);
    }

    /// The tester has given way: the next tests are counted from now on.
    pub(crate) fn gave_way(&mut self, way: &GiveWay) {
        let now = self.clock.get_or_insert_with(Clock::start).now();
        self.back(way, now);
    }

    fn back(&mut self, way: &GiveWay, now: Time) {
        if *way == GiveWay::Yield && now.since(self.since) > LATE {
            self.trust.lose(now);
        }
        self.since = now;
    }
}

#[cfg(all(test, not(loom)))]
#[path = "polling_test.rs"]
mod tests;
