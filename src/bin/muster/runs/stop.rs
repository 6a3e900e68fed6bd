//! Ends a run from outside its launcher: its processes are asked, waited for, and killed. The workers are first: they
//! need the scheduler until they have left.

use super::find::{in_folder, Found, Processes};
use super::options::Stop;
use crate::code;
use crate::run::family::{kill_all, Pace};
use crate::run::supervise::KILL_AFTER_SIGNAL;
use crate::sys;
use crate::voice::Voice;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How long killed processes may take to be gone.
const KILL_PATIENCE: Duration = Duration::from_secs(10);
/// How much longer than its grace a launcher may take.
const LAUNCHER_PATIENCE: Duration = Duration::from_secs(5);
/// How long the scheduler may take to end, even if the workers have used up the grace.
const SCHEDULER_GRACE: Duration = Duration::from_secs(1);
/// How many processes are named.
const NAMED: usize = 8;

/// Stops the runs of a folder. Returns the exit code.
pub fn run(options: &Stop) -> i32 {
    let (voice, folder) = (Voice::error(), options.folder.display());
    let found = match in_folder(&options.folder) {
        Ok(found) => found,
        Err(why) => {
            voice.say(format!("muster stop: {why}\n"));
            return code::FAILED;
        }
    };
    let (here, elsewhere): (Vec<Found>, Vec<Found>) = found.into_iter().partition(Found::is_here);
    for run in &elsewhere {
        let host = run.tenant.host();
        voice.say(format!("muster stop: a part of the run is on host {host}: run muster stop there\n"));
    }
    if here.is_empty() {
        voice.say(format!("muster stop: no run lives in \"{folder}\" on this host; muster ps lists those that do\n"));
        return code::FAILED;
    }
    let left: BTreeSet<i32> = here.iter().flat_map(|run| end(run, options.grace, &voice)).collect();
    if !left.is_empty() {
        voice.say(format!("muster stop: these could not be ended: {}\n", named(&left)));
        return code::FAILED;
    }
    voice.say(format!("muster stop: the run in \"{folder}\" has ended\n"));
    0
}

/// Ends one run. Returns the processes that are left.
fn end(run: &Found, grace: Duration, voice: &Voice) -> BTreeSet<i32> {
    let began = Instant::now();
    let has_killed = if let Some(launcher) = run.launcher() {
        let time = KILL_AFTER_SIGNAL.as_secs();
        voice.say(format!("muster stop: the launcher {launcher} is asked to end its run, and has {time} s for that\n"));
        ask(launcher);
        await_end(|| run.members(), KILL_AFTER_SIGNAL + LAUNCHER_PATIENCE, |_| {});
        kill(|| run.members(), voice)
    } else {
        let has_killed = ask_and_kill(|| parts(run).0, grace, voice);
        let left = grace.saturating_sub(began.elapsed()).max(SCHEDULER_GRACE);
        let has_killed = ask_and_kill(|| parts(run).1, left, voice) || has_killed;
        kill(|| run.members(), voice) || has_killed // one that began between two looks
    };
    if has_killed {
        kill_all(run.tenant.run(), &BTreeSet::new(), KILL_PATIENCE); // what these have started as they were killed
    }
    run.members()
}

/// The processes of a run that are not its scheduler, and those that are.
fn parts(run: &Found) -> (BTreeSet<i32>, BTreeSet<i32>) {
    let Processes { logs, others } = run.processes();
    let (schedulers, workers): (Vec<_>, Vec<_>) = logs.into_iter().partition(|(log, _)| log == "scheduler.log");
    let writers = |logs: Vec<(String, BTreeSet<i32>)>| logs.into_iter().flat_map(|(_, writers)| writers);
    (writers(workers).chain(others).collect(), writers(schedulers).collect())
}

/// Asks a part of a run to end, and kills what is left of it when the time is up. Returns whether it killed any.
fn ask_and_kill(left: impl Fn() -> BTreeSet<i32>, time: Duration, voice: &Voice) -> bool {
    let (first, mut asked) = (left(), BTreeSet::new());
    if first.is_empty() {
        return false;
    }
    voice.say(format!("muster stop: asked to end: {}\n", named(&first)));
    let mut ask_each = |left: &BTreeSet<i32>| left.iter().filter(|pid| asked.insert(**pid)).for_each(|pid| ask(*pid));
    ask_each(&first);
    await_end(&left, time, ask_each);
    kill(left, voice)
}

/// Kills a part of a run, and says so. Returns whether any was left.
fn kill(left: impl Fn() -> BTreeSet<i32>, voice: &Voice) -> bool {
    let first = left();
    if first.is_empty() {
        return false;
    }
    voice.say(format!("muster stop: killed, for they had not ended: {}\n", named(&first)));
    await_end(left, KILL_PATIENCE, |left| left.iter().for_each(|pid| sys::signal_process(*pid, libc::SIGKILL)));
    true
}

/// Waits until nobody is left, or the time is up. Each look passes on those that are left.
fn await_end(left: impl Fn() -> BTreeSet<i32>, time: Duration, mut look: impl FnMut(&BTreeSet<i32>)) {
    let (deadline, mut pace) = (Instant::now() + time, Pace::new());
    loop {
        let left = left();
        if left.is_empty() || Instant::now() >= deadline {
            return;
        }
        look(&left);
        pace.wait();
    }
}

/// Asks a process to end. One that is stopped hears it only when it goes on.
fn ask(pid: i32) {
    sys::signal_process(pid, libc::SIGTERM);
    sys::signal_process(pid, libc::SIGCONT);
}

fn named(pids: &BTreeSet<i32>) -> String {
    let named: Vec<String> = pids.iter().take(NAMED).map(i32::to_string).collect();
    let more = pids.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", named.join(", "))
}
