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
    assert_eq!(spans, [50, 50, 50, 400, 400, 400, 400, 400]);
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

/// Like `found_nothing`, with a clock of the test's.
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
        let mut ways: Vec<GiveWay> = (1..=3 * u64::from(TESTS)).map(|nth| test_at(&mut tester, at(3 * nth))).collect();
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
    for (cores, local_size, places) in [(2, 1, 1), (1, 1, 0), (4, 1, 3), (8, 4, 1), (7, 4, 0), (16, 4, 3), (0, 1, 0)] {
        let polling = polling(cores);
        let taken: Vec<_> = (0..places + 2).map_while(|_| polling.place_beside(local_size)).collect();
        assert_eq!(taken.len(), places, "{cores} processors, {local_size} ranks");
        drop(taken);
        assert_eq!(polling.servants.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn late_yields_end_polling_once_they_have_cost_more_than_others_took() {
    let (polling, soon, late) = (Polling::new(None), LATE, 4000 * US);
    let back_at = || Time(polling.back_at.load(Ordering::Relaxed));
    // Whether there is trust after so many of these yields.
    let after = |now: Time, yields: u32, took: Duration| {
        (0..yields).for_each(|_| polling.account(now, took, LATE));
        now >= back_at()
    };
    let now = at(1_000_000);
    assert!(after(now, 1000, soon) && after(now, 2, late), "others took more, of which 10 ms count");
    assert!(!after(now, 1, late), "the third has used it up");
    assert!(!after(back_at(), 1, late), "trust comes back without any");
    let now = back_at();
    assert!(after(now, 21, soon) && after(now, 1, late) && !after(now, 1, late), "it is earned again");
    assert_eq!(polling.trust.lock().unwrap().span, 4 * DISTRUST, "lost three times in a row");
}

#[test]
fn the_node_stops_polling_for_all_its_threads() {
    let clock = Clock::start();
    let polling = Polling { credit: AtomicU64::new(0), ..Polling::new(None) };
    let mut idle = Idle::default();
    // Any yield takes longer than that.
    let strict = Polls { span: Duration::from_secs(100), late: Duration::ZERO };
    assert!(polling.poll(&mut idle, &strict, &clock), "there is something to look at after a yield");
    assert!(!polling.poll(&mut idle, &strict, &clock));
    assert!(!polling.poll(&mut Idle::default(), &strict, &clock));
    let never = Polls::new(1, 1, Some(Duration::ZERO));
    assert!(!Polling::new(None).poll(&mut Idle::default(), &never, &clock));
}
