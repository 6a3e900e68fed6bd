use super::*;
use crate::types::{ChecksumScope, SharedMemory};

pub(crate) fn agreed(heartbeat_timeout_ms: u64) -> Agreed {
    let (thresholds, store_key_max, store_value_max) = (Vec::new(), 1, 1);
    let shared_memory = SharedMemory::Off;
    Agreed {
        heartbeat_timeout_ms,
        checksums: ChecksumScope::Network,
        thresholds,
        store_key_max,
        store_value_max,
        shared_memory,
    }
}

#[test]
fn all_that_is_done_about_a_silence_is_done_by_the_heartbeat_time_out_and_one_interval() {
    let ms = Duration::from_millis;
    for (time_out, every, ask, patience, most, attempts) in [
        (500, 50, 200, 450, 600, 4000),
        (2000, 200, 800, 1800, 2400, 4000),
        (5000, 500, 2000, 4500, 6000, 6000),
        (60_000, 1000, 24_000, 59_000, 72_000, 72_000),
    ] {
        let (every, ask, patience, most) = (ms(every), ms(ask), ms(patience), ms(most));
        assert_eq!(Bounds::of(&agreed(time_out)), Bounds { every, ask, patience, most });
        assert_eq!(attempt(&agreed(time_out)), ms(attempts));
    }
    assert!(Bounds::of(&agreed(u64::MAX)).most > ms(u64::MAX), "whatever comes over the wire");
    assert!(Bounds::of(&agreed(0)).every > Duration::ZERO);
}

#[test]
fn what_a_silence_calls_for() {
    let (bounds, ms) = (Bounds::of(&agreed(1000)), Duration::from_millis);
    let finding = |silence, has_asked, answer| bounds.finding(ms(silence), has_asked, || answer);
    let (alive, left, nothing) = (Some(PeerState::Alive), Some(PeerState::Left), None);
    for (silence, has_asked, answer, expected) in [
        (0, false, alive, None),
        (399, false, alive, None),
        (400, false, alive, Some(Finding::Ask)),
        (400, true, alive, None),
        (899, true, alive, None),
        (900, true, alive, Some(Finding::Unreached)),
        (900, true, nothing, None),
        (900, false, alive, Some(Finding::Ask)),
        (1199, true, nothing, None),
        (1200, true, nothing, Some(Finding::Unknown)),
        (1200, true, alive, Some(Finding::Unreached)),
        (1200, false, alive, Some(Finding::Unknown)),
        (10, true, left, Some(Finding::Unknown)),
        (0, true, left, None),
        (10, false, left, None),
    ] {
        assert_eq!(finding(silence, has_asked, answer), expected, "{silence} ms, asked: {has_asked}, {answer:?}");
    }
}
