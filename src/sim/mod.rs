//! The simulation: the real scheduler and up to 64 real nodes' brains in one thread, on virtual time, with a network and
//! processes that misbehave by seed.
//!
//! `plan` makes a story of a seed; `world` plays it, with `driver` in the place of the real drivers, `life` in the place
//! of the programs, and `mishaps`; `groups` are what the programs make and free; `network` carries messages; `checks` holds after every step that ranks are unique and
//! dense and that a node id is held once, and at the end that everybody had an answer in time and that the answers agree.
//! Invariant: a seed decides everything. The same seed gives the same trace, which a test compares step by step.
//! Deliberately absent: sockets, frames (messages go through their bytes now and then). Stories with recovery, a disk and
//! links between nodes are those of `recovery`.
//!
//! A failure names its seed; `MUSTER_SIM_SEED=<seed> cargo test --lib sim:: -- --nocapture` plays that one alone and
//! tells every step. `MUSTER_SIM_SEEDS=<count>` plays that many.

mod checks;
mod driver;
mod faults;
mod groups;
mod life;
mod mishaps;
mod network;
mod plan;
mod program;
mod queue;
mod random;
mod recovery;
mod trace;
mod world;

use faults::{Fault, Tally};
use plan::Plan;
use std::io::Write;
use world::World;

/// How many stories the test plays.
const SEEDS: u64 = 1_800;
/// How many in a long run.
const SOAK_SEEDS: u64 = 100_000;

/// How many collective calls the test draws, of how many ranks and elements at most; and how many in a long run.
const CALLS: (u64, usize, usize) = (400, 20, 120);
const SOAK_CALLS: (u64, usize, usize) = (20_000, 40, 600);

/// Plays one story; panics with the way to replay it where it goes wrong.
fn play(seed: u64, verbose: bool) -> World {
    let plan = Plan::of(seed);
    if verbose {
        eprintln!("{plan:#?}");
    }
    let mut world = World::new(plan, verbose);
    if let Err(wrong) = world.play() {
        let steps = world.trace.steps.len();
        panic!(
            "seed {seed} ({:?}, {} workers, {} servers), step {steps} at {:.6} s: {wrong}\n\
             replay: MUSTER_SIM_SEED={seed} cargo test --lib sim:: -- --nocapture",
            world.plan.shape,
            world.plan.workers,
            world.plan.servers,
            world.now.0 as f64 / 1e9
        );
    }
    world
}

/// A number from the environment.
fn asked_for(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text:?}: a number is wanted")))
}

#[test]
fn every_story_ends_well_or_with_the_right_cause() {
    if let Some(seed) = asked_for("MUSTER_SIM_SEED") {
        play(seed, true);
        return;
    }
    let mut tally = Tally::default();
    let (mut steps, mut groups) = (0, 0);
    let usual = if std::env::var_os("MUSTER_SOAK").is_some() { SOAK_SEEDS } else { SEEDS };
    let seeds = asked_for("MUSTER_SIM_SEEDS").unwrap_or(usual);
    for seed in 0..seeds {
        let world = play(seed, false);
        tally.add(&world.network.tally);
        steps += world.trace.steps.len();
        groups += world.groups.count();
    }
    // Not by `println`, of which the test's runner shows nothing when all is well.
    let told = format!("{seeds} stories, {steps} steps, {groups} groups made; trouble made:\n{tally}");
    std::io::stdout().write_all(told.as_bytes()).expect("standard output can be written");
    assert!(groups > 0, "no group was made");
    let missing: Vec<Fault> = Fault::ALL.into_iter().filter(|fault| tally.of(*fault) == 0).collect();
    assert!(missing.is_empty(), "no trouble of these kinds was made: {missing:?}");
}

#[test]
fn a_seed_gives_the_same_story_twice() {
    let seeds = asked_for("MUSTER_SIM_SEED").map_or(0..36, |seed| seed..seed + 1);
    let mut hashes = std::collections::BTreeSet::new();
    let count = seeds.clone().count();
    for seed in seeds {
        let (first, second) = (play(seed, false), play(seed, false));
        let parted = first.trace.steps.iter().zip(&second.trace.steps).position(|(one, other)| one != other);
        if let Some(at) = parted {
            panic!("seed {seed}: step {at} is {:?}, then {:?}", first.trace.steps[at], second.trace.steps[at]);
        }
        assert_eq!(first.trace.steps.len(), second.trace.steps.len(), "seed {seed}");
        assert_eq!(first.trace.hash(), second.trace.hash(), "seed {seed}");
        hashes.insert(first.trace.hash());
    }
    assert_eq!(hashes.len(), count, "other seeds, other stories");
}

#[test]
fn collectives_drawn_by_seed_are_right() {
    let (calls, sizes, counts) = if std::env::var_os("MUSTER_SOAK").is_some() { SOAK_CALLS } else { CALLS };
    crate::schedules::soak_test::try_calls(calls, sizes, counts);
}
