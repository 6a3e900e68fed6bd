//! How a thread waits for what may come soon: it looks again and again, lets others run in between, and sleeps when the time
//! for that is up. One policy for collectives, for messages, for progress threads, and for callers that test requests.
//!
//! To let others run is good where they are ranks that are waited for, and harmless where there is nobody. A program that
//! computes keeps the processor for its whole time slice, some milliseconds, whatever comes meanwhile; a thread that sleeps
//! is woken at once. So a yield that comes back late ends polling for the whole node: waits sleep at once, for as long as
//! [`Trust`] says. Pure but for [`Polling`], and tested below.

use super::clock::Clock;
use crate::net::{cgroup, host};
use crate::types::Time;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// How long a call polls before it sleeps, where no setting says; a wake-up from sleep costs about as much.
const POLL: Duration = Duration::from_micros(50);
/// A yield that takes longer has let somebody run who was not about to wait: a rank has sent or combined a piece by then.
const LATE: Duration = Duration::from_micros(200);
/// Where ranks share cores a peer has its turn only after others have had theirs, so a call polls longer, by the number of
/// ranks to a core, up to this. It costs little: each poll lets the others run first. A yield takes longer, too.
const SHARES_MAX: u32 = 8;
/// For how long nobody yields after the first yield that was late, and at most where they are late again and again.
const DISTRUST: Duration = Duration::from_millis(20);
const DISTRUST_MAX: Duration = Duration::from_millis(1280);
/// So many tests that find nothing make a caller that waits by testing, if they take no longer than this.
const TESTS: u32 = 16;
const TESTS_WITHIN: Duration = Duration::from_micros(4);
/// The same for questions whether a message is there, each of which looks at a link.
const PROBES_WITHIN: Duration = Duration::from_micros(64);
/// How long it sleeps where a yield has come back late, unless what it tests for ends before. A timer that is due so soon has to be
/// programmed, which on a virtual machine costs more than a small collective: so it yields as long as that will do.
const TEST_SLEEP: Duration = Duration::from_micros(100);

/// How long the calls of a group poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Polls {
    span: Duration,
    late: Duration,
}

impl Polls {
    /// Where so many ranks share so many cores; `set` is what the user wants.
    pub(crate) fn new(local_size: u32, cores: u32, set: Option<Duration>) -> Polls {
        let shares = local_size.div_ceil(cores).clamp(1, SHARES_MAX);
        Polls { span: set.unwrap_or(POLL * shares), late: LATE * shares }
    }
}

/// Whether it is worth while to let others run: whether yields come back soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Trust {
    /// It is not until then, and was not for so long.
    back_at: Time,
    span: Duration,
}

impl Trust {
    const FULL: Trust = Trust { back_at: Time(0), span: Duration::ZERO };

    /// A yield has come back late. The span doubles where trust had hardly come back.
    fn lose(&mut self, now: Time) {
        if now < self.back_at {
            return; // another thread was sooner
        }
        let is_same = now.since(self.back_at) <= self.span;
        self.span = if is_same { (2 * self.span).clamp(DISTRUST, DISTRUST_MAX) } else { DISTRUST };
        self.back_at = now + self.span;
    }
}

/// One wait: since when there has been nothing to do.
#[derive(Debug, Default)]
pub(crate) struct Idle {
    since: Option<Time>,
}

impl Idle {
    /// Something has been done, or slept for: the next wait begins anew.
    pub(crate) fn end(&mut self) {
        self.since = None;
    }

    /// Nothing was found: whether to look again, once others have run; else to sleep.
    fn polls_on(&mut self, now: Time, polls: &Polls, back_at: Time) -> bool {
        now.since(*self.since.get_or_insert(now)) < polls.span && now >= back_at
    }
}

/// What all threads of a node know of the processors' other users.
#[derive(Debug)]
pub(crate) struct Polling {
    /// `Trust::back_at`, so that a look at it takes no lock.
    back_at: AtomicU64,
    trust: Mutex<Trust>,
    /// What the user wants.
    pub(crate) set: Option<Duration>,
    /// How many processors this process may run on.
    pub(crate) cores: u32,
    /// The same, or fewer, if a control group has a quota. It is read when it is first asked for: a start has no need of it.
    free: OnceLock<u32>,
    /// How many threads of this cluster poll that serve, and so would sleep otherwise.
    servants: AtomicU32,
}

impl Polling {
    /// Full of trust.
    pub(crate) fn new(set: Option<Duration>) -> Polling {
        let (free, servants) = (OnceLock::new(), AtomicU32::new(0));
        Polling {
            back_at: AtomicU64::new(0),
            trust: Mutex::new(Trust::FULL),
            set,
            cores: host::cores(),
            free,
            servants,
        }
    }

    /// How many processors' time this process may use, together with the others of its control group.
    pub(crate) fn free_cores(&self) -> u32 {
        *self.free.get_or_init(|| match cgroup::quota() {
            Some(quota) => self.cores.min(quota.cores as u32),
            None => self.cores,
        })
    }

    /// Whether such threads poll.
    #[cfg(test)]
    pub(crate) fn has_servants(&self) -> bool {
        self.servants.load(Ordering::SeqCst) > 0
    }

    /// A place for a thread that serves to poll, where so many ranks share the processors: if there is a processor for each rank, and
    /// for as many such threads of each as there are of this one.
    pub(crate) fn place_beside(&self, local_size: u32) -> Option<PlaceToPoll<'_>> {
        let place = PlaceToPoll(&self.servants);
        let servants = self.servants.fetch_add(1, Ordering::Relaxed) + 1;
        (local_size.saturating_mul(1 + servants) <= self.free_cores()).then_some(place)
    }

    /// Whether yields have come back soon of late: nobody else wants the processors, as far as is known.
    pub(crate) fn has_trust(&self, clock: &Clock) -> bool {
        clock.now() >= Time(self.back_at.load(Ordering::Relaxed))
    }

    /// There is nothing to do: lets others run, after which the caller looks again. False: it is to sleep.
    pub(crate) fn poll(&self, idle: &mut Idle, polls: &Polls, clock: &Clock) -> bool {
        let before = clock.now();
        if !idle.polls_on(before, polls, Time(self.back_at.load(Ordering::Relaxed))) {
            idle.end();
            return false;
        }
        std::thread::yield_now();
        let after = clock.now();
        if after.since(before) > polls.late {
            let mut trust = self.trust.lock().unwrap_or_else(PoisonError::into_inner);
            trust.lose(after);
            self.back_at.store(trust.back_at.0, Ordering::Relaxed);
        }
        true
    }
}

/// Held by a thread that serves, while it polls.
pub(crate) struct PlaceToPoll<'a>(&'a AtomicU32);

impl Drop for PlaceToPoll<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A thread that serves, and sleeps in between. Where what it has just served is mostly followed by more, it looks again for as
/// long as a call polls: to be woken would take longer than all else.
#[derive(Debug)]
pub(crate) struct Lookout {
    polls: Polls,
    idle: Idle,
    is_awake: bool,
}

impl Lookout {
    /// One that sleeps; `set` is what the user wants.
    pub(crate) fn new(set: Option<Duration>) -> Lookout {
        Lookout { polls: Polls::new(1, 1, set), idle: Idle::default(), is_awake: false }
    }

    /// Something has come, or has been answered, that is soon followed by more.
    pub(crate) fn stir(&mut self) {
        self.is_awake = true;
        self.idle.end();
    }

    /// There is nothing to do: whether to look again, now that others have run; else to sleep.
    pub(crate) fn looks_again(&mut self, polling: &Polling, clock: &Clock) -> bool {
        self.is_awake = self.is_awake && polling.poll(&mut self.idle, &self.polls, clock);
        self.is_awake
    }
}

/// What a test that found nothing is followed by.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum GiveWay {
    /// Nothing: the caller has other things to do.
    No,
    /// Others run: among them, perhaps, the thread that does the work.
    Yield,
    /// Sleep until the end of what is tested, for so long at most.
    Sleep(Duration),
}

/// A thread that tests requests. Where it does nothing else it would keep the processor from the thread that does the work; where
/// it computes between tests they cost it no more than a look.
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
    /// One that has not tested yet.
    pub(crate) const fn new() -> Tester {
        Tester { within: TESTS_WITHIN, clock: None, fruitless: 0, since: Time(0), trust: Trust::FULL }
    }

    /// One that asks for messages.
    pub(crate) const fn of_probes() -> Tester {
        Tester { within: PROBES_WITHIN, ..Tester::new() }
    }

    /// One that has tested in vain so often that it sleeps with the next test.
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

    /// So many tests have found nothing.
    fn after_some(&mut self, now: Time) -> GiveWay {
        let took = now.since(self.since);
        (self.fruitless, self.since) = (0, now);
        match took <= self.within {
            false => GiveWay::No,
            true if now < self.trust.back_at => GiveWay::Sleep(TEST_SLEEP),
            true => GiveWay::Yield,
        }
    }

    /// A look that found something, or nothing: then it gives way where that is due. For what nobody else brings about: there is
    /// nothing to wake it.
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

    /// It has given way: the next tests are counted from now on.
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
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    fn at(us: u64) -> Time {
        Time(us * 1000)
    }

    #[test]
    fn a_call_polls_for_its_time_and_then_sleeps_and_begins_anew_when_something_came() {
        let polls = Polls::new(2, 2, None);
        let mut idle = Idle::default();
        for (now, polls_on) in [(1000, true), (1020, true), (1049, true), (1050, false), (1060, false)] {
            assert_eq!(idle.polls_on(at(now), &polls, Time(0)), polls_on, "at {now}");
        }
        idle.end();
        assert!(idle.polls_on(at(1060), &polls, Time(0)));
    }

    #[test]
    fn it_polls_longer_where_ranks_share_cores_or_as_long_as_it_is_told() {
        let span = |local_size, cores, set| Polls::new(local_size, cores, set).span;
        let spans: Vec<_> = [0, 1, 2, 3, 4, 8, 16, 64].map(|ranks| span(ranks, 2, None).as_micros()).into();
        assert_eq!(spans, [50, 50, 50, 100, 100, 200, 400, 400]);
        assert_eq!([span(8, 2, Some(7 * US)), span(2, 2, Some(7 * US))], [7 * US, 7 * US]);
        assert_eq!(Polls::new(8, 2, None).late, 800 * US);
        let never = Polls::new(8, 2, Some(Duration::ZERO));
        assert!(!Idle::default().polls_on(at(5), &never, Time(0)));
    }

    #[test]
    fn without_trust_nobody_polls() {
        let polls = Polls::new(2, 2, None);
        let mut trust = Trust::FULL;
        trust.lose(at(1000));
        let mut idle = Idle::default();
        assert!(!idle.polls_on(at(1000), &polls, trust.back_at));
        idle.end();
        assert!(!idle.polls_on(at(20_999), &polls, trust.back_at));
        idle.end();
        assert!(idle.polls_on(at(21_000), &polls, trust.back_at), "it has come back");
    }

    #[test]
    fn trust_stays_away_longer_where_it_is_lost_again_and_again_and_not_where_that_was_long_ago() {
        let mut trust = Trust::FULL;
        let mut now = at(1_000_000);
        let mut spans = Vec::new();
        for _ in 0..9 {
            trust.lose(now);
            spans.push(trust.span.as_millis());
            let lost = trust;
            trust.lose(now + US);
            assert_eq!(trust, lost, "a second thread found the same");
            now = trust.back_at + 4000 * US;
        }
        assert_eq!(spans, [20, 40, 80, 160, 320, 640, 1280, 1280, 1280]);
        trust.lose(trust.back_at + DISTRUST_MAX + US);
        assert_eq!(trust.span, DISTRUST);
    }

    /// As `found_nothing`, with a clock of the test's.
    fn test_at(tester: &mut Tester, now: Time) -> GiveWay {
        tester.fruitless += 1;
        if tester.fruitless < TESTS {
            return GiveWay::No;
        }
        tester.after_some(now)
    }

    #[test]
    fn a_caller_that_only_tests_gives_way_now_and_then() {
        let mut tester = Tester::new();
        tester.since = at(1000);
        let mut now = at(1000);
        let mut ways = Vec::new();
        for _ in 0..3 * TESTS {
            now = now + US / 10;
            let way = test_at(&mut tester, now);
            if way != GiveWay::No {
                now = now + LATE; // the thread that does the work has run, and other ranks: not late yet
                tester.back(&way, now);
                ways.push(way);
            }
        }
        assert_eq!(ways, [GiveWay::Yield, GiveWay::Yield, GiveWay::Yield]);
    }

    #[test]
    fn one_whose_yield_was_late_sleeps_until_trust_is_back() {
        let mut tester = Tester::new();
        let mut now = at(1000);
        tester.since = now;
        (0..TESTS - 1).for_each(|_| assert_eq!(test_at(&mut tester, now), GiveWay::No));
        assert_eq!(test_at(&mut tester, now), GiveWay::Yield);
        now = now + LATE + US;
        tester.back(&GiveWay::Yield, now);
        for later in [Duration::ZERO, DISTRUST - US] {
            tester.since = now + later;
            tester.fruitless = TESTS - 1;
            let way = test_at(&mut tester, now + later);
            assert_eq!(way, GiveWay::Sleep(TEST_SLEEP));
            tester.back(&way, now + later + LATE + US); // that it slept for long says nothing
        }
        (tester.since, tester.fruitless) = (now + DISTRUST, TESTS - 1);
        assert_eq!(test_at(&mut tester, now + DISTRUST), GiveWay::Yield);
    }

    #[test]
    fn a_probe_takes_longer_than_a_test_and_gives_way_all_the_same() {
        let ways = |mut tester: Tester| {
            let mut ways: Vec<GiveWay> =
                (1..=3 * u64::from(TESTS)).map(|nth| test_at(&mut tester, at(3 * nth))).collect();
            ways.retain(|way| *way != GiveWay::No);
            ways.len()
        };
        assert_eq!([ways(Tester::new()), ways(Tester::of_probes())], [0, 3]);
    }

    #[test]
    fn one_that_computes_between_tests_never_gives_way() {
        let mut tester = Tester::new();
        for number in 0..100 * u64::from(TESTS) {
            assert_eq!(test_at(&mut tester, Time(1_000_000 + number * 300)), GiveWay::No, "test {number}");
        }
    }

    #[test]
    fn a_test_that_finds_an_end_counts_for_nothing() {
        let mut tester = Tester::new();
        for _ in 0..10 * TESTS {
            tester.found_nothing();
            tester.found();
        }
        assert_eq!((tester.fruitless, tester.clock.is_none()), (0, true));
    }

    #[test]
    fn threads_that_serve_poll_where_there_is_a_processor_for_all() {
        let polling = |cores| Polling { free: OnceLock::from(cores), ..Polling::new(None) };
        for (cores, local_size, places) in
            [(2, 1, 1), (1, 1, 0), (4, 1, 3), (8, 4, 1), (7, 4, 0), (16, 4, 3), (0, 1, 0)]
        {
            let polling = polling(cores);
            let taken: Vec<_> = (0..places + 2).map_while(|_| polling.place_beside(local_size)).collect();
            assert_eq!(taken.len(), places, "{cores} processors, {local_size} ranks");
            drop(taken);
            assert_eq!(polling.servants.load(Ordering::Relaxed), 0);
        }
    }

    #[test]
    fn the_node_stops_polling_after_a_late_yield_for_all_its_threads() {
        let clock = Clock::start();
        let polling = Polling::new(None);
        let mut idle = Idle::default();
        // Any yield takes longer than that.
        let strict = Polls { span: Duration::from_secs(100), late: Duration::ZERO };
        assert!(polling.poll(&mut idle, &strict, &clock), "there is something to look at after a yield");
        assert!(!polling.poll(&mut idle, &strict, &clock));
        assert!(!polling.poll(&mut Idle::default(), &strict, &clock));
        let never = Polls::new(1, 1, Some(Duration::ZERO));
        assert!(!Polling::new(None).poll(&mut Idle::default(), &never, &clock));
    }
}
