//! What `--join` decides: when to stop which process, and which failed first. It has no process, signal or clock in
//! it.
//!
//! Contract: feed one input ([`Supervisor::ended`], [`signalled`](Supervisor::signalled), [`tick`](Supervisor::tick)),
//! then drain [`Supervisor::next_action`] until there is none. Nothing else changes its state. Time is what has passed
//! since the launcher began.
//!
//! After the first failure the survivors have a moment, `stop::COLLECT`, to say themselves what they lost. Then the rest is
//! told to end. What is still there `stop::KILL_AFTER_FAILURE` after the failure is killed. The kernel does not tell in
//! which order children ended that are found dead in one look. So the verdict weighs the evidence among those children. All
//! that are found in one look get the same time.
//!
//! With restarts a child that fails is started again, as often as it may. Only a child with no restart left is a failure. A
//! scheduler comes back only if something ended it, such as a disk that refused its journal. If it ends by itself the job is
//! over. Then only a worker that was killed is started again, because it may have been about to end well. All workers have a
//! while ([`OVER`]) to end. The ends of their last lives are then the result, unless the scheduler here says that one has
//! aborted the job. Tested in `supervise_test.rs` and `not_started_test.rs`.
//!
//! Decision: a journal that fails while the scheduler serves costs a restart. A new start may mend it: the torn end is
//! cut off, and the disk may have room again. A journal that fails as the scheduler starts is not tried again: on a
//! full disk restarts and pauses would only pass the time. The user mends the disk and starts the run once more: it
//! goes on where it was.

use super::child_state::{back_after_the_end, tell, ChildState};
use super::restarts::{gave_up, is_from_elsewhere, ENDS_BY_ITSELF};
use super::stop::{Stop, Why};
use crate::code;
use crate::sys::Ending;
use muster::types::Role;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

pub use super::action::{Action, Whom};
pub use super::stop::{CLOSING, KILL_AFTER_SIGNAL, OVER, SCHEDULER_AFTER_FAILURE, SCHEDULER_AFTER_GIVING_UP};

/// How it all ended. Children are named by their index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All ended well.
    Success,
    /// The user ended it with this signal.
    Interrupted(i32),
    /// A child failed.
    Failed {
        /// The first that failed.
        first: usize,
        /// The others that failed before they were told to end.
        then: Vec<usize>,
    },
    /// No child here failed: the job is over, as its scheduler says, and they were told to end.
    JobOver,
}

/// Decides when to stop or start which child, and which failed first.
pub struct Supervisor {
    children: Vec<ChildState>,
    /// No worker of the job runs elsewhere, or no longer.
    all_here: bool,
    /// The scheduler tells the launchers of other hosts how the job goes.
    others_hear: bool,
    /// The scheduler has told why the job is over: because of this child, if it named one.
    word: Option<Option<usize>>,
    /// Failures in the order in which they were noticed.
    failures: Vec<usize>,
    /// The children that would have been started again if the run had not ended.
    cut_short: Vec<usize>,
    /// The children that were to be started again, in the order in which they were lost: some may run by now.
    lost: Vec<usize>,
    stop: Option<Stop>,
    /// Processes whose parents, among the children and their descendants, have ended.
    orphans: usize,
    /// The orphans that are in no child's group.
    strays: Vec<i32>,
    /// Strays that were asked to end. Once is enough: a program may take a second request for impatience.
    asked: BTreeSet<i32>,
    actions: VecDeque<Action>,
}

impl Supervisor {
    /// A supervisor of children that have just been started; `schedulers` says of each whether it is the scheduler.
    /// Each child may be started again so many times.
    pub fn new(schedulers: impl IntoIterator<Item = bool>, all_here: bool, max_restarts: u32) -> Supervisor {
        let child = |is_scheduler: bool| {
            let role = if is_scheduler { Role::Scheduler } else { Role::Worker };
            ChildState::new(role, max_restarts)
        };
        Supervisor {
            children: schedulers.into_iter().map(child).collect(),
            all_here,
            others_hear: false,
            word: None,
            failures: Vec::new(),
            cut_short: Vec::new(),
            lost: Vec::new(),
            stop: None,
            orphans: 0,
            strays: Vec::new(),
            asked: BTreeSet::new(),
            actions: VecDeque::new(),
        }
    }

    /// Whether this child is not yet known to have ended.
    pub fn runs(&self, child: usize) -> bool {
        self.children[child].runs()
    }

    /// How this child's present life ended, if it has.
    pub fn ending(&self, child: usize) -> Option<Ending> {
        self.children[child].ending()
    }

    /// How the life before the present one ended, if the present one only ended because it was told to.
    pub fn ending_before(&self, child: usize) -> Option<Ending> {
        self.children[child].before_if_told()
    }

    /// How the life before the present one ended.
    pub fn ending_of_last(&self, child: usize) -> Ending {
        self.children[child].before().unwrap_or(Ending::Exit(0))
    }

    /// Whether this child was told to end before it was seen to have ended.
    pub fn was_told(&self, child: usize) -> bool {
        self.children[child].was_told()
    }

    /// How often this child was started again, or is about to be.
    pub fn restarts(&self, child: usize) -> u32 {
        self.children[child].restarts().used()
    }

    /// Whether the job is over, and the workers may still say how.
    pub fn is_over(&self) -> bool {
        self.stop.as_ref().is_some_and(Stop::leaves_time)
    }

    /// Whether the scheduler may have to be started again.
    pub fn needs_port(&self) -> bool {
        self.children.iter().enumerate().any(|(index, one)| {
            one.is_scheduler() && (one.starts_at().is_some() || (one.runs() && self.may_return(index, None)))
        })
    }

    /// A child was found to have ended.
    pub fn ended(&mut self, child: usize, ending: Ending, now: Duration) {
        let one = &mut self.children[child];
        if !one.ends(ending) {
            return;
        }
        let failed = one.failed();
        let [aborted, all_have_left] = [code::ABORTED, 0].map(|code| one.is_scheduler_that_says(code));
        if aborted {
            self.fail_those_lost(|_| true, now);
        } else if all_have_left {
            self.fail_those_lost(gave_up, now);
            let waits = |one: &&mut ChildState| one.is_scheduler() || one.starts_at().is_some();
            self.children.iter_mut().filter(waits).for_each(|one| one.is_found_lost(now));
        }
        if failed {
            self.children[child].is_found_lost(now);
            self.comes_back_or_fails(child, now);
        }
        if !back_after_the_end(&self.children).is_empty() {
            self.stop.get_or_insert_with(|| Stop::after_the_scheduler(now));
        }
        self.tick(now);
    }

    /// A worker that ended with code 0 has not left, and the others wait for it.
    pub fn ended_uncleanly(&mut self, child: usize, now: Duration) {
        let is_over = self.signal().is_some() || self.failures.contains(&child);
        if self.children[child].ended_well() && !is_over {
            self.children[child].is_found_lost(now);
            self.comes_back_or_fails(child, now);
            self.tick(now);
        }
    }

    /// The next life of a child, which was about to begin, could not be started. So the life before it is the present one
    /// again: what ended that is what is told. The next attempt is a restart, too.
    pub fn not_started(&mut self, child: usize, now: Duration) {
        self.children[child].put_off(None);
        match self.stop.as_ref().is_some_and(Stop::is_hard) {
            true => self.cut_short.push(child),
            false => self.comes_back_or_fails(child, now),
        }
        self.tick(now);
    }

    fn comes_back_or_fails(&mut self, child: usize, now: Duration) {
        if self.may_return(child, self.children[child].ending()) && self.children[child].comes_back(now) {
            self.lost.retain(|other| *other != child);
            self.lost.push(child);
            return self.actions.push_back(Action::Clear(child));
        }
        self.fails(child, now);
    }

    /// The next life of a child, which was about to begin, is to begin later; never, if a failure ends the run meanwhile.
    pub fn put_off(&mut self, child: usize, until: Duration) {
        let ends = self.stop.as_ref().is_some_and(Stop::is_hard);
        self.children[child].put_off((!ends).then_some(until));
        if ends {
            self.cut_short.push(child);
        }
    }

    /// The job is over, as others say: a child that was to be started again has failed.
    pub fn over(&mut self, now: Duration) {
        self.fail_those_lost(|_| true, now);
        self.tick(now);
    }

    /// The lost processes that ended so have failed, in the order of their losses, as if restarts were not allowed.
    fn fail_those_lost(&mut self, so: fn(Option<Ending>) -> bool, now: Duration) {
        let mut lost = self.lost.clone();
        lost.retain(|child| so(self.children[*child].ending()) && self.children[*child].begins_no_more());
        lost.into_iter().for_each(|child| self.fails(child, now));
    }

    fn fails(&mut self, child: usize, now: Duration) {
        self.failures.push(child);
        let one = &self.children[child];
        let ended_itself = one.is_scheduler() && one.ending() == Some(Ending::Exit(code::FAILED));
        match &self.stop {
            // The first failure decides the times; a later one doesn't prolong them.
            Some(stop) if stop.is_hard() || stop.leaves_time() => {}
            None if ended_itself && one.restarts().can_return() => {
                self.stop = Some(Stop::after_the_scheduler(now));
                self.fail_those_lost(gave_up, now);
            }
            _ => self.stop_all(Why::Failure, now),
        }
    }

    /// Stops the workers first, and the scheduler when it has told those elsewhere.
    fn stop_all(&mut self, why: Why, now: Duration) {
        self.begin_no_more();
        let can_return = self.children.iter().any(|one| one.restarts().can_return());
        let is_awaited_elsewhere = !self.all_here && (can_return || self.others_hear);
        let last = if is_awaited_elsewhere { SCHEDULER_AFTER_GIVING_UP } else { SCHEDULER_AFTER_FAILURE };
        self.stop = Some(Stop::after_failure(why, now, last));
    }

    /// The cluster is complete, and the scheduler tells the launchers of other hosts how the job goes.
    pub fn formed(&mut self) {
        self.others_hear = true;
    }

    /// The scheduler says why the job is over for good: because of this child, if it names one.
    pub fn told_why(&mut self, named: Option<usize>, now: Duration) {
        self.word = Some(named);
        if let Some(child) = named {
            self.ended_uncleanly(child, now); // if it ended with code 0
        }
    }

    /// Whether a scheduler elsewhere may still tell which worker caused the failure: one here that ended with code 0, or one of
    /// several that ended at once, or one elsewhere. A run waits for this until it kills what is left.
    fn awaits_word(&self) -> bool {
        let is_early = self.stop.as_ref().is_some_and(|stop| stop.killed_at.is_none());
        let may_hear = self.others_hear && self.word.is_none() && !self.children.iter().any(ChildState::is_scheduler);
        may_hear && is_early && self.gives_up()
    }

    /// The job is over for good, as the scheduler says. What runs here is stopped, as after a failure here.
    pub fn job_is_lost(&mut self, now: Duration) {
        if self.stop.is_none() {
            self.stop_all(Why::JobOver, now);
        }
    }

    /// Whether another life follows this child's end, if it ended so.
    fn may_return(&self, child: usize, ending: Option<Ending>) -> bool {
        let one = &self.children[child];
        let goes_on = match &self.stop {
            None => true,
            Some(stop) => !stop.is_hard() && !stop.asking && !one.is_scheduler(),
        };
        let over = match one.is_scheduler() {
            true => matches!(ending, Some(Ending::Exit(code)) if ENDS_BY_ITSELF.contains(&code)),
            // All have left, or the others cannot come back.
            false => gave_up(ending) && (self.scheduler_says(0) || self.scheduler_says(code::FAILED)),
        };
        one.restarts().any_left() && goes_on && !over
    }

    /// Whether the scheduler has ended by itself, with this code. 0 means that all have left.
    fn scheduler_says(&self, code: i32) -> bool {
        self.children.iter().any(|one| one.is_scheduler_that_says(code))
    }

    /// Starts no process again: a process that was to be started again stays what it is.
    fn begin_no_more(&mut self) {
        for (index, one) in self.children.iter_mut().enumerate() {
            if one.begins_no_more() {
                self.cut_short.push(index);
            }
        }
    }

    /// The workers of the job that ran elsewhere have ended well. To be followed by [`tick`](Supervisor::tick).
    pub fn others_done(&mut self) {
        self.all_here = true;
    }

    /// The user wants the run to end.
    pub fn signalled(&mut self, signal: i32, now: Duration) {
        let (why, kill_at) = match self.stop.as_ref().map(|stop| stop.why) {
            Some(again @ Why::User(_)) => (again, now),
            _ => (Why::User(self.failures.is_empty().then_some(signal)), now + KILL_AFTER_SIGNAL),
        };
        let kill_at = self.stop.as_ref().map_or(kill_at, |stop| stop.kill_at.min(kill_at));
        self.begin_no_more();
        let (workers_at, scheduler_at) = (Some(now), Some(kill_at));
        let killed_at = self.stop.as_ref().and_then(|stop| stop.killed_at);
        self.stop = Some(Stop { workers_at, scheduler_at, killed_at, ..Stop::new(why, kill_at) });
        self.tick(now);
    }

    /// How many processes there are that children left behind, and which of them are in no child's group. To be followed
    /// by [`tick`](Supervisor::tick).
    pub fn orphans(&mut self, count: usize, strays: Vec<i32>) {
        self.orphans = count;
        self.strays = strays;
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Duration) {
        // Once every worker of the job has ended well nobody needs the scheduler. Multi-host jobs end when it says so.
        if self.all_done() && self.stop.is_none() {
            self.begin_no_more();
            self.stop = Some(Stop { scheduler_at: Some(now + CLOSING), ..Stop::new(Why::Done, now + 2 * CLOSING) });
        }
        let late = back_after_the_end(&self.children);
        let has_time = self.stop.as_ref().is_some_and(Stop::leaves_time);
        if has_time && self.scheduler_says(0) && late.is_empty() {
            // Those that came back have ended: the others may again take as long as they need.
            self.stop = None;
            if !self.failures.is_empty() {
                self.stop_all(Why::Failure, now);
            }
        }
        if self.stop.as_ref().and_then(|stop| stop.workers_at).is_some_and(|at| at <= now) {
            self.begin_no_more();
            // The job itself went well. The failure is a worker that came back and has not ended in time.
            self.failures.extend(late.into_iter().filter(|child| has_time && self.children[*child].runs()));
        }
        for (index, one) in self.children.iter_mut().enumerate() {
            if one.begins_if_due(now) {
                self.actions.push_back(Action::Start(index));
            }
        }
        let Some(stop) = &mut self.stop else { return };
        if stop.workers_at.is_some_and(|at| at <= now) {
            stop.workers_at = None;
            stop.asking = true;
            self.actions.push_back(Action::Terminate(Whom::Workers));
            tell(&mut self.children, Role::Worker);
        }
        // A stray comes into sight when its parent has ended, and that may be at any time.
        for stray in self.strays.iter().filter(|_| stop.asking) {
            if self.asked.insert(*stray) {
                self.actions.push_back(Action::Terminate(Whom::Stray(*stray)));
            }
        }
        let nothing_to_wait_for = stop.signal().is_some()
            && self.orphans == 0
            && self.children.iter().all(|one| one.is_scheduler() || !one.runs());
        if stop.scheduler_at.is_some_and(|at| at <= now || nothing_to_wait_for) {
            stop.scheduler_at = None;
            self.actions.push_back(Action::Terminate(Whom::Scheduler));
            tell(&mut self.children, Role::Scheduler);
        }
        if stop.kill_at <= now {
            if stop.kills(now) {
                self.orphans = 0; // what cannot be killed is left
                for one in &mut self.children {
                    one.ends(Ending::Signal(libc::SIGKILL));
                }
            }
            self.actions.push_back(Action::Kill(Whom::Workers));
            tell(&mut self.children, Role::Worker);
            if stop.kill_scheduler_at <= now {
                self.actions.push_back(Action::Kill(Whom::Scheduler));
                tell(&mut self.children, Role::Scheduler);
            }
            self.actions.extend(self.strays.iter().map(|stray| Action::Kill(Whom::Stray(*stray))));
        }
    }

    /// Whether every worker of the job is here and has ended well, by itself.
    fn all_done(&self) -> bool {
        self.all_here && self.children.iter().all(|one| one.is_scheduler() || one.ended_well())
    }

    /// Whether only the scheduler's end is still waited for, and nothing has failed.
    pub fn is_closing(&self) -> bool {
        self.signal().is_none() && self.failures.is_empty() && self.is_stopping() && self.all_done()
    }

    /// Whether no failure counts.
    fn went_well(&self) -> bool {
        let restarts = self.children.iter().any(|one| one.restarts().can_return());
        let workers_failed = self.failures.iter().any(|child| !self.children[*child].is_scheduler());
        let job_over = self.stop.as_ref().is_some_and(|stop| stop.why == Why::JobOver);
        let nothing_failed = self.failures.is_empty() && !job_over;
        let is_forgiven = restarts && !workers_failed && self.all_done() && !self.scheduler_says(code::ABORTED);
        self.signal().is_none() && (nothing_failed || is_forgiven)
    }

    /// Whether a failure ends the run, and nobody is started again.
    pub fn gives_up(&self) -> bool {
        self.signal().is_none() && self.stop.as_ref().is_some_and(Stop::is_hard)
    }

    /// Whether the user ended the run.
    pub fn is_interrupted(&self) -> bool {
        self.signal().is_some()
    }

    /// The user's signal that ended the run, if one did.
    fn signal(&self) -> Option<i32> {
        self.stop.as_ref().and_then(Stop::signal)
    }

    /// Whether the run is being brought to an end.
    pub fn is_stopping(&self) -> bool {
        self.stop.is_some()
    }

    /// The next thing to be done.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When to call [`tick`](Supervisor::tick) at the latest.
    pub fn deadline(&self) -> Option<Duration> {
        let starts = self.children.iter().filter_map(ChildState::starts_at);
        let stop = self.stop.as_ref().map(|stop| [stop.workers_at, stop.scheduler_at, Some(stop.kill_at)]);
        starts.chain(stop.into_iter().flatten().flatten()).min()
    }

    /// Whether the run is over. A job that ended well may leave processes behind; one that was stopped waits for their end.
    pub fn finished(&self) -> bool {
        let is_done = self.children.iter().all(ChildState::is_done) && (self.went_well() || self.orphans == 0);
        is_done && !self.awaits_word()
    }

    /// The child to blame. `named` is the child that the scheduler's last words name, if they name one.
    pub fn verdict(&self, named: Option<usize>) -> Verdict {
        if let Some(signal) = self.signal() {
            return Verdict::Interrupted(signal);
        }
        if self.went_well() {
            return Verdict::Success;
        }
        let named = named.or(self.word.flatten());
        let ending = |child: usize| self.ending_before(child).or(self.ending(child));
        let place = |child: usize| match (ending(child), self.children[child].is_scheduler()) {
            // The scheduler alone knows that forming timed out; the others just ended.
            (Some(Ending::Exit(code::FORMING)), true) => 0,
            (_, true) => 3,
            _ if named == Some(child) => 1,
            _ => 2,
        };
        let gave_up = |child: usize| !ending(child).is_some_and(is_from_elsewhere);
        let mut failures = self.failures.clone();
        // If the named child's present life was only told to end, an earlier life of it has failed.
        failures.extend(named.filter(|child| !failures.contains(child) && self.ending_before(*child).is_some()));
        failures.extend(named.filter(|child| !failures.contains(child) && self.cut_short.contains(child)));
        // What ended a child counts among those of one look only, which have one time.
        failures.sort_by_key(|child| (place(*child), self.children[*child].lost_at(), gave_up(*child)));
        failures.extend(self.cut_short.iter().filter(|child| Some(**child) != named));
        // To end well without leaving the cluster is a failure, too. Only the scheduler sees it.
        let unclean = named.filter(|child| self.children[*child].ended_well());
        let Some(first) = unclean.or(failures.first().copied()) else { return Verdict::JobOver };
        Verdict::Failed { first, then: failures.into_iter().filter(|child| *child != first).collect() }
    }
}

#[cfg(test)]
#[path = "supervise_test.rs"]
mod tests;

#[cfg(test)]
#[path = "not_started_test.rs"]
mod not_started_tests;
