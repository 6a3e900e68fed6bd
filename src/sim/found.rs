//! Seeds whose stories once found something that was wrong. With the fault put back, the named rule notices each of
//! them. Each fault has a test of its own beside the mended file, too. A fault that no story finds any more has only
//! that test.
//!
//! They hold as long as `plan` and `aims` make the same of a seed. When those change, the second test fails. Then put
//! each fault back, find a seed that notices it (`MUSTER_SIM_SEEDS`), and enter that seed here.

use super::plan::Plan;
use super::play;
use super::world::World;

const FOUND: [(u64, &str); 11] = [
    (651, "the epoch goes back: a sync fails, and the next start takes for durable what it reads"),
    (3615, "an acknowledged write is lost: likewise"),
    (780, "two lives of an index: a snapshot has a life in it that only waits for the next epoch"),
    (1, "two lives of a slot: a node that comes back, is away and registers again is told of the epoch before"),
    (306, "an abort is dropped by a scheduler that is started again, and has found somebody lost before it is told"),
    (30, "a rank that is in a collective is absent from it: it has just attached again, and has said nothing yet"),
    (80, "that a place is abandoned is told, and not written: it had been said before, was disproved, and dropped by a rewrite"),
    (53435, "an epoch is formed with one that is abandoned: it has died, and its connection has not ended yet"),
    (74945, "likewise, with a server"),
    (37665, "a node is the cause that had left the run, for a place had been abandoned: the scheduler was started again"),
    (22040, "likewise, and somebody was started in the place that had been abandoned"),
];

/// What `plan` and `aims` made of them when they were entered.
const PLANS: u64 = 659_597_363_081_812_059;

#[test]
fn what_was_found_once_is_not_found_again() {
    for (seed, what) in FOUND {
        if let Err(wrong) = play(World::new(Plan::of(seed), false)) {
            panic!("{what}: {wrong}");
        }
    }
}

#[test]
fn the_seeds_stand_for_the_stories_that_found_something() {
    let mut sum = 0xcbf2_9ce4_8422_2325u64;
    for (seed, _) in FOUND {
        for byte in format!("{:?}", Plan::of(seed)).bytes() {
            sum = (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    assert_eq!(sum, PLANS, "they are other stories now: find seeds anew, as is said above");
}
