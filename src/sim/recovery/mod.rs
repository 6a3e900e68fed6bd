//! Stories with recovery: nodes are lost and come back, the scheduler dies and is started again, and the job goes on.
//!
//! `plan` makes a story of a seed; `world` plays it: `scheduler` is that process with the real journal over the simulated
//! disk of `journal::testdisk`, `node`, `program` and `recovering` are the others, `groups` the groups that these make, `rounds`
//! their collectives by the real schedules over links, `questions` what they ask each other's whereabouts by, `readers` who asks
//! how the job is, `trouble`, `between`, `launcher`, `giving_up` and `abort` what goes wrong, `ledger` what the store must hold.
//! `checks` are the rules, which hold after every step, `causes` and `sentences` those of first causes, and `sabotage` breaks each of them to see
//! it noticed. `table` counts what was met in which phase, and `cells` says what must be met.
//! Invariant: a seed decides everything.
//!
//! A failure names its seed; `MUSTER_SIM_SEED=<seed> cargo test --lib sim::recovery -- --nocapture` plays that one alone
//! and tells every step.

mod abort;
mod aims;
mod between;
mod causes;
mod cells;
mod checks;
mod found;
mod giving_up;
mod groups;
mod launcher;
mod ledger;
mod node;
mod plan;
mod program;
mod questions;
mod readers;
mod recovering;
mod rounds;
mod sabotage;
mod scheduler;
mod sentences;
mod table;
mod trouble;
mod world;

use super::asked_for;
use plan::Plan;
use std::io::Write;
use table::Table;
use world::World;

/// How many stories the test plays.
const SEEDS: u64 = 1200;
/// How often each cell of the table must be hit, and how many faults a story has at least, on average.
const HITS: u64 = 20;
const FAULTS: u64 = 5;
/// A message that is sent so often in a phase, in so many stories, is also lost in it.
const OFTEN: u64 = 1500;
/// How many of a hundred end with everything done by everybody.
const WELL: u64 = 45;

/// Plays one story; where it goes wrong, what is wrong and how to replay it.
fn play(seed: u64, verbose: bool) -> Result<World, String> {
    let plan = Plan::of(seed);
    if verbose {
        eprintln!("{plan:#?}");
    }
    let mut world = World::new(plan, verbose);
    let Err(wrong) = world.play() else { return Ok(world) };
    let (workers, servers) = (world.plan.workers, world.plan.servers);
    let at = world.now.0 as f64 / 1e9;
    Err(format!(
        "seed {seed} ({workers} workers, {servers} servers), step {} at {at:.6} s: {wrong}\n\
         replay: MUSTER_SIM_SEED={seed} cargo test --lib sim::recovery::every -- --nocapture",
        world.steps
    ))
}

/// What many stories come to.
#[derive(Default)]
struct Total {
    table: Table,
    steps: u64,
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
            match play(seed, false) {
                Ok(world) => total.add(Total::one(world)),
                Err(wrong) => total.wrong.push(wrong),
            }
        }
        total
    }

    fn one(world: World) -> Total {
        let ended_well = u64::from(checks::ended_well(&world));
        let World { table, steps, faults, newest, .. } = world;
        Total { table, steps, faults, epochs: newest.0, ended_well, wrong: Vec::new() }
    }

    fn add(&mut self, other: Total) {
        self.table.add(&other.table);
        self.steps += other.steps;
        self.faults += other.faults;
        self.epochs += other.epochs;
        self.ended_well += other.ended_well;
        self.wrong.extend(other.wrong);
    }
}

#[test]
fn every_story_of_loss_and_return_keeps_the_rules() {
    if let Some(seed) = asked_for("MUSTER_SIM_SEED") {
        play(seed, true).unwrap_or_else(|wrong| panic!("{wrong}"));
        return;
    }
    let seeds = asked_for("MUSTER_SIM_SEEDS").unwrap_or(SEEDS);
    let Total { table, steps, faults, epochs, ended_well, wrong } = Total::of(seeds);
    // Not by `println`, of which the test's runner shows nothing when all is well.
    let told =
        format!("{seeds} stories, {steps} steps, {faults} faults, {epochs} epochs; {ended_well} ended well\n{table}");
    std::io::stdout().write_all(told.as_bytes()).expect("standard output can be written");
    let passed_over = cells::passed_over(table.often_sent(seeds.max(SEEDS) / SEEDS * OFTEN));
    let missing = if seeds < SEEDS { Vec::new() } else { table.missing(HITS) };
    assert!(wrong.is_empty(), "{} stories went wrong:\n{}\n{missing:#?}", wrong.len(), wrong.join("\n"));
    assert!(faults >= FAULTS * seeds, "{faults} faults in {seeds} stories");
    assert!(ended_well * 100 >= WELL * seeds, "{ended_well} of {seeds} stories ended well");
    assert!(passed_over.is_empty(), "{passed_over:#?}");
    assert!(missing.is_empty(), "not met {HITS} times: {missing:#?}");
}

#[test]
fn a_seed_gives_the_same_story_of_recovery_twice() {
    for seed in 0..20 {
        let one = play(seed, false).unwrap_or_else(|wrong| panic!("{wrong}"));
        let other = play(seed, false).unwrap_or_else(|wrong| panic!("{wrong}"));
        assert_eq!((one.steps, one.hash), (other.steps, other.hash), "seed {seed}");
    }
}
