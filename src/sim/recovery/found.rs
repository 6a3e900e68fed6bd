//! Seeds that have found something wrong, kept: each was noticed by the rule that is named, before it was mended. What was
//! wrong has a test of its own beside the mended file; these hold as long as `plan` and `aims` make the same of a seed.

use super::play;

const FOUND: [(u64, &str); 10] = [
    (3, "the epoch goes back: a sync fails, and the next start takes for durable what it reads"),
    (191, "an acknowledged write is lost: likewise"),
    (174, "another epoch is told: a snapshot has a life in it that only waits for the next epoch"),
    (241, "two lives of a slot: who comes back, is away and registers again is told of the epoch before"),
    (588, "the same with two nodes"),
    (1413, "another epoch is told: the same in a larger cluster"),
    (760, "the epoch goes back: a snapshot that is made when the job has ended forgets it"),
    (1910, "no end: who first hears of its epoch after a restart is not listened to"),
    (3719, "the culprit did not fail: a node whose connection ended soon after it was made waits half a second"),
    (4382, "no end: all had left when the scheduler was started again"),
];

#[test]
fn what_was_found_once_is_not_found_again() {
    for (seed, what) in FOUND {
        if let Err(wrong) = play(seed, false) {
            panic!("{what}: {wrong}");
        }
    }
}
