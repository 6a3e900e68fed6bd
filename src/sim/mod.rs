//! The simulation: the real scheduler and real nodes' brains in one thread, on virtual time, with a network, disks and processes
//! that misbehave by seed. There is one world; recovery and a disk are options of a plan.
//!
//! `plan` makes a story of a seed. Two in five have recovery: nodes are lost and come back, the scheduler dies and is started again,
//! and the job goes on (`aims` says what goes wrong in them). In the others each of up to 62 nodes lives once (`once`). `world` plays
//! it, on `queue`, `random` and `network`: `scheduler` is that process, with the real journal (`journal`) over the simulated disk of
//! `journal::testdisk`; `node` the others. `program` and `recovering` run in those that recover, `errands` in the others; `groups` is
//! what they make, `rounds` their collectives by the real schedules over links, `ledger` what the store must hold, `questions` what
//! they ask each other's whereabouts by, `peers` what they see of each other without their scheduler, and `readers` ask how the job
//! is. `trouble`, `between`, `launcher`, `abandoned` and `abort` are what goes wrong.
//! `checks` are the rules, which hold after every step, `causes` and `sentences` those of first causes, `outcome` those of a story
//! without recovery that has ended; `sabotage` breaks each of them to see it noticed. `table` counts what was met in which phase,
//! and `cells` says what must be met.
//! Invariant: a seed decides everything. The same seed gives the same events, which a test compares one by one.
//! Deliberately absent: sockets, frames (messages go through their bytes now and then).
//!
//! A failure names its seed; `MUSTER_SIM_SEED=<seed> cargo test --lib sim::every -- --nocapture` plays that one alone and tells every
//! step. `MUSTER_SIM_SEEDS=<count>` plays that many.

mod abandoned;
mod abort;
mod aims;
mod between;
mod causes;
mod cells;
mod checks;
mod errands;
mod found;
mod groups;
mod journal;
mod launcher;
mod ledger;
mod network;
mod node;
mod once;
mod outcome;
mod peers;
mod plan;
mod program;
mod questions;
mod queue;
mod random;
mod readers;
mod recovering;
mod rounds;
mod sabotage;
mod scheduler;
mod sentences;
mod table;
mod trouble;
mod world;

use plan::Plan;
use std::io::Write;
use table::Table;
use world::World;

/// How many stories the test plays: 1,200 with recovery, 1,800 without.
const SEEDS: u64 = 3000;
/// How many stories a long run plays.
const SOAK_SEEDS: u64 = 150_000;
/// How often each cell of the table must be hit, and how many faults a story with recovery has at least, on average.
const HITS: u64 = 20;
const FAULTS: u64 = 5;
/// A message that is sent so often in a phase, in so many stories, is also lost in it.
const OFTEN: u64 = 1500;
/// How many of a hundred stories with recovery end with everything done by everybody.
const WELL: u64 = 45;

/// How many collective calls the test draws, of how many ranks and elements at most; and how many in a long run.
const CALLS: (u64, usize, usize) = (400, 20, 120);
const SOAK_CALLS: (u64, usize, usize) = (20_000, 40, 600);

/// Plays a story. If it goes wrong, says what is wrong and how to replay it.
fn play(mut world: World) -> Result<World, String> {
    let Err(wrong) = world.play() else { return Ok(world) };
    let Plan { seed, workers, servers, .. } = world.plan;
    let shape = world.plan.once.as_ref().map(|once| once.shape);
    let at = world.now.0 as f64 / 1e9;
    Err(format!(
        "seed {seed} ({workers} workers, {servers} servers, {shape:?}), step {} at {at:.6} s: {wrong}\n\
         replay: MUSTER_SIM_SEED={seed} cargo test --lib sim::every -- --nocapture",
        world.steps
    ))
}

/// A number from the environment.
fn asked_for(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text:?}: a number is wanted")))
}

/// The sums over many stories.
#[derive(Default)]
struct Total {
    table: Table,
    steps: u64,
    /// The stories with recovery: how many they are, the faults in them, their epochs, and how many end well.
    recovering: u64,
    faults: u64,
    epochs: u64,
    ended_well: u64,
    wrong: Vec<String>,
}

impl Total {
    /// Every seed below this, on all processors.
    fn of(seeds: u64) -> Total {
        let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get() as u64);
        std::thread::scope(|scope| {
            let share = |first: u64| move || Total::play((first..seeds).step_by(threads as usize));
            let shares: Vec<_> = (0..threads).map(|first| scope.spawn(share(first))).collect();
            let mut total = Total::default();
            shares.into_iter().for_each(|share| total.add(share.join().expect("a story panics")));
            total
        })
    }

    fn play(seeds: impl Iterator<Item = u64>) -> Total {
        let mut total = Total::default();
        for seed in seeds {
            match play(World::new(Plan::of(seed), false)) {
                Ok(world) => total.add(Total::one(world)),
                Err(wrong) => total.wrong.push(wrong),
            }
        }
        total
    }

    fn one(world: World) -> Total {
        let ended_well = u64::from(checks::ended_well(&world));
        let World { table, steps, faults, newest, plan, .. } = world;
        let total = Total { table, steps, ..Total::default() };
        match plan.recovers() {
            true => Total { recovering: 1, faults, epochs: newest.0, ended_well, ..total },
            false => total,
        }
    }

    fn add(&mut self, other: Total) {
        self.table.add(&other.table);
        self.steps += other.steps;
        self.recovering += other.recovering;
        self.faults += other.faults;
        self.epochs += other.epochs;
        self.ended_well += other.ended_well;
        self.wrong.extend(other.wrong);
    }
}

#[test]
fn every_story_keeps_the_rules_and_ends_well_or_with_the_right_cause() {
    if let Some(seed) = asked_for("MUSTER_SIM_SEED") {
        let plan = Plan::of(seed);
        eprintln!("{plan:#?}");
        play(World::new(plan, true)).unwrap_or_else(|wrong| panic!("{wrong}"));
        return;
    }
    let usual = if std::env::var_os("MUSTER_SOAK").is_some() { SOAK_SEEDS } else { SEEDS };
    let seeds = asked_for("MUSTER_SIM_SEEDS").unwrap_or(usual);
    let Total { table, steps, recovering, faults, epochs, ended_well, wrong } = Total::of(seeds);
    // Not by `println`: the test's runner shows nothing of that when all is well.
    let told = format!(
        "{seeds} stories, {steps} steps; {recovering} with recovery, {faults} faults, {epochs} epochs, {ended_well} ended well\n\
         {table}"
    );
    std::io::stdout().write_all(told.as_bytes()).expect("standard output can be written");
    let passed_over = cells::passed_over(table.often_sent(seeds.max(SEEDS) / SEEDS * OFTEN));
    let missing = if seeds < SEEDS { Vec::new() } else { table.missing(HITS) };
    assert!(wrong.is_empty(), "{} stories went wrong:\n{}\n{missing:#?}", wrong.len(), wrong.join("\n"));
    assert!(faults >= FAULTS * recovering, "{faults} faults in {recovering} stories");
    assert!(ended_well * 100 >= WELL * recovering, "{ended_well} of {recovering} stories ended well");
    assert!(passed_over.is_empty(), "{passed_over:#?}");
    assert!(missing.is_empty(), "not met {HITS} times: {missing:#?}");
}

#[test]
fn a_seed_gives_the_same_story_twice() {
    let mut stories = std::collections::BTreeSet::new();
    for seed in 0..60 {
        let [one, other] = [0, 1].map(|_| {
            let mut world = World::new(Plan::of(seed), false);
            world.trace = Some(Vec::new());
            play(world).unwrap_or_else(|wrong| panic!("{wrong}")).trace.expect("a trace was wanted")
        });
        let parted = one.iter().zip(&other).position(|(one, other)| one != other);
        assert_eq!((parted, one.len()), (None, other.len()), "seed {seed} parts at this step");
        stories.insert(one);
    }
    assert_eq!(stories.len(), 60, "other seeds, other stories");
}

#[test]
fn collectives_drawn_by_seed_are_right() {
    let (calls, sizes, counts) = if std::env::var_os("MUSTER_SOAK").is_some() { SOAK_CALLS } else { CALLS };
    crate::schedules::soak_test::try_calls(calls, sizes, counts);
}
