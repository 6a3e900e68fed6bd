//! What `--join` decides: when to stop which process, and which failed first. It has no process, signal or clock in
//! it.
//!
//! Contract: feed one input ([`Supervisor::ended`], [`signalled`](Supervisor::signalled), [`tick`](Supervisor::tick)),
//! then drain [`Supervisor::next_action`] until there is none. Nothing else changes its state. Time is what has passed
//! since the launcher began.
//!
//! After the first failure the survivors have a moment, [`COLLECT`], to say themselves what they lost. Then the rest is
//! told to end. What is still there [`KILL_AFTER_FAILURE`] after the failure is killed. The kernel does not tell in
//! which order children ended that are found dead together. So the verdict weighs evidence among those of the first
//! moment.
//!
//! With restarts a child that fails is started again, as often as it may. Only a child with no restart left is a
//! failure. A scheduler comes back only if something ended it, such as a disk that refused its journal. If it ends by
//! itself the job is over. Then only a worker that was killed comes back, for it may have been about to end well. What
//! the last lives of all workers say is then the result. Tested in `supervise_test.rs`.
//!
//! Decision: a journal that fails while the scheduler serves costs a restart. A new start may mend it: the torn end is
//! cut off, and the disk may have room again. A journal that fails as the scheduler starts is not tried again: on a
//! full disk restarts and pauses would only pass the time. The user mends the disk and starts the run once more: it
//! goes on where it was.

use super::lives::{gave_up, Lives};
use super::stop::{Stop, Why};
use crate::code;
use crate::sys::Ending;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

pub use super::stop::{
    CLOSING, COLLECT, KILL_AFTER_FAILURE, KILL_AFTER_SIGNAL, OVER, SCHEDULER_AFTER_FAILURE, SCHEDULER_AFTER_GIVING_UP,
};

/// The processes that an action is for. A child always stands for its whole process group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    /// All workers, also those that have ended: their children may live.
    Workers,
    /// The scheduler.
    Scheduler,
    /// A process that a child has left behind outside its group.
    Stray(i32),
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Ask these processes to end.
    Terminate(Whom),
    /// Kill these processes.
    Kill(Whom),
    /// Kill what is left of this child's last life: another life will begin in its place.
    Clear(usize),
    /// Start this child again.
    Start(usize),
}

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
        /// The child whose end gives the exit code: the first, unless that ended with code 0.
        gives_code: usize,
        /// The others that failed before they were told to end.
        then: Vec<usize>,
    },
    /// No child here failed: the job is over, as its scheduler says, and they were told to end.
    JobOver,
}

struct Member {
    scheduler: bool,
    ending: Option<Ending>,
    /// It was told to end before it was seen to have ended.
    told: bool,
    lives: Lives,
    /// When its next life begins.
    starts_at: Option<Duration>,
    /// How the life before this one ended.
    before: Option<Ending>,
}

impl Member {
    fn failed(&self) -> bool {
        !self.told && self.ending.is_some_and(|ending| ending != Ending::Exit(0))
    }
}

/// See the module.
pub struct Supervisor {
    members: Vec<Member>,
    /// No worker of the job runs elsewhere, or no longer.
    all_here: bool,
    /// The scheduler tells the launchers of other hosts how the job goes.
    others_hear: bool,
    /// The scheduler has said that the job is over, before anything failed here.
    job_over: bool,
    /// Failures in the order in which they were noticed.
    failures: Vec<usize>,
    /// The children that would have been started again if the run had not ended.
    cut_short: Vec<usize>,
    /// The children that were to be started again, in the order in which they were lost: some may run by now.
    lost: Vec<usize>,
    signal: Option<i32>,
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
        let member = |scheduler| {
            let lives = Lives::new(max_restarts);
            Member { scheduler, ending: None, told: false, lives, starts_at: None, before: None }
        };
        let members = schedulers.into_iter().map(member).collect();
        Supervisor {
            members,
            all_here,
            others_hear: false,
            job_over: false,
            failures: Vec::new(),
            cut_short: Vec::new(),
            lost: Vec::new(),
            signal: None,
            stop: None,
            orphans: 0,
            strays: Vec::new(),
            asked: BTreeSet::new(),
            actions: VecDeque::new(),
        }
    }

    /// Whether this child is not yet known to have ended.
    pub fn runs(&self, child: usize) -> bool {
        self.members[child].ending.is_none()
    }

    /// How this child's present life ended, if it has.
    pub fn ending(&self, child: usize) -> Option<Ending> {
        self.members[child].ending
    }

    /// How the life before the present one ended, if the present one only ended because it was told to.
    pub fn ending_before(&self, child: usize) -> Option<Ending> {
        self.members[child].before.filter(|_| self.members[child].told)
    }

    /// How the life before the present one ended.
    pub fn ending_of_last(&self, child: usize) -> Ending {
        self.members[child].before.unwrap_or(Ending::Exit(0))
    }

    /// How often this child was started again, or is about to be.
    pub fn restarts(&self, child: usize) -> u32 {
        self.members[child].lives.used()
    }

    /// Whether the job is over, and the workers may still say how.
    pub fn is_over(&self) -> bool {
        self.stop.as_ref().is_some_and(Stop::leaves_time)
    }

    /// Whether the scheduler may have to be started again.
    pub fn needs_port(&self) -> bool {
        self.members.iter().enumerate().any(|(index, one)| {
            one.scheduler && (one.starts_at.is_some() || (one.ending.is_none() && self.may_return(index, None)))
        })
    }

    /// A child was found to have ended, or could not be started again.
    pub fn ended(&mut self, child: usize, ending: Ending, now: Duration) {
        let member = &mut self.members[child];
        if member.ending.is_some() {
            return;
        }
        member.ending = Some(ending);
        let (failed, aborted) = (member.failed(), member.scheduler && ending == Ending::Exit(code::ABORTED));
        if failed && aborted {
            self.fail_those_lost(|_| true, now);
        }
        if failed {
            self.lost(child, now);
        }
        self.tick(now);
    }

    /// A worker that ended with code 0 has not left, and the others wait for it.
    pub fn ended_uncleanly(&mut self, child: usize, now: Duration) {
        let member = &self.members[child];
        let is_over = self.signal.is_some() || member.told || self.failures.contains(&child);
        if member.ending == Some(Ending::Exit(0)) && member.starts_at.is_none() && !is_over {
            self.lost(child, now);
            self.tick(now);
        }
    }

    fn lost(&mut self, child: usize, now: Duration) {
        if self.may_return(child, self.members[child].ending) {
            self.members[child].starts_at = self.members[child].lives.next(now);
        }
        if self.members[child].starts_at.is_some() {
            self.lost.retain(|other| *other != child);
            self.lost.push(child);
            return self.actions.push_back(Action::Clear(child));
        }
        self.fails(child, now);
    }

    /// The next life of a child, which was about to begin, is to begin later; never, if a failure ends the run meanwhile.
    pub fn put_off(&mut self, child: usize, until: Duration) {
        let ends = self.stop.as_ref().is_some_and(Stop::is_hard);
        let member = &mut self.members[child];
        member.ending = member.before.take();
        match ends {
            true => self.cut_short.push(child),
            false => member.starts_at = Some(until),
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
        lost.retain(|child| so(self.members[*child].ending) && self.members[*child].starts_at.take().is_some());
        lost.into_iter().for_each(|child| self.fails(child, now));
    }

    fn fails(&mut self, child: usize, now: Duration) {
        self.failures.push(child);
        let ended_itself =
            self.members[child].scheduler && self.members[child].ending == Some(Ending::Exit(code::FAILED));
        match &self.stop {
            // The first failure decides the times; a later one doesn't prolong them.
            Some(stop) if stop.is_hard() || stop.leaves_time() => {}
            None if ended_itself && self.members[child].lives.can_return() => {
                let (workers_at, kill_at) = (Some(now + OVER), now + OVER + KILL_AFTER_FAILURE - COLLECT);
                self.stop = Some(Stop { workers_at, ..Stop::new(Why::SchedulerEnded, kill_at) });
                self.fail_those_lost(gave_up, now);
            }
            _ => self.stop_all(now),
        }
    }

    /// Stops the workers first, and the scheduler when it has told those elsewhere.
    fn stop_all(&mut self, now: Duration) {
        self.begin_no_more();
        let can_return = self.members.iter().any(|one| one.lives.can_return());
        let is_awaited_elsewhere = !self.all_here && (can_return || self.others_hear);
        let last = if is_awaited_elsewhere { SCHEDULER_AFTER_GIVING_UP } else { SCHEDULER_AFTER_FAILURE };
        self.stop = Some(Stop::after_failure(now, last));
    }

    /// The cluster is complete, and the scheduler tells the launchers of other hosts how the job goes.
    pub fn formed(&mut self) {
        self.others_hear = true;
    }

    /// The scheduler says that the job is over for good. What runs here is stopped, as after a failure here.
    pub fn job_is_lost(&mut self, now: Duration) {
        if self.stop.is_none() {
            self.job_over = true;
            self.stop_all(now);
        }
    }

    /// Whether another life follows this child's end, if it ended so.
    fn may_return(&self, child: usize, ending: Option<Ending>) -> bool {
        let goes_on = match &self.stop {
            None => true,
            Some(stop) => !stop.is_hard() && !stop.asking && !self.members[child].scheduler,
        };
        let over = match self.members[child].scheduler {
            true => matches!(ending, Some(Ending::Exit(code)) if ENDS_BY_ITSELF.contains(&code)),
            false => self.job_is_over() && gave_up(ending),
        };
        self.members[child].lives.any_left() && goes_on && !over
    }

    /// Whether all have left, or the others cannot come back: the scheduler has ended, and said so.
    fn job_is_over(&self) -> bool {
        let ends = [0, code::FAILED].map(|code| Some(Ending::Exit(code)));
        self.members.iter().any(|one| one.scheduler && ends.contains(&one.ending))
    }

    /// Starts no process again: a process that was to be started again stays what it is.
    fn begin_no_more(&mut self) {
        for (index, member) in self.members.iter_mut().enumerate() {
            if member.starts_at.take().is_some() {
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
        let again = self.stop.as_ref().is_some_and(|stop| stop.why == Why::User);
        if self.failures.is_empty() {
            self.signal.get_or_insert(signal);
        }
        let kill_at = if again { now } else { now + KILL_AFTER_SIGNAL };
        let kill_at = self.stop.as_ref().map_or(kill_at, |stop| stop.kill_at.min(kill_at));
        self.begin_no_more();
        let (workers_at, scheduler_at) = (Some(now), Some(kill_at));
        let killed_at = self.stop.as_ref().and_then(|stop| stop.killed_at);
        self.stop = Some(Stop { workers_at, scheduler_at, killed_at, ..Stop::new(Why::User, kill_at) });
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
        self.close_when_done(now);
        if self.stop.as_ref().and_then(|stop| stop.workers_at).is_some_and(|at| at <= now) {
            self.begin_no_more();
        }
        for (index, member) in self.members.iter_mut().enumerate() {
            if member.starts_at.is_some_and(|at| at <= now) {
                member.starts_at = None;
                member.before = member.ending.take();
                member.lives.begins(now);
                self.actions.push_back(Action::Start(index));
            }
        }
        let Some(stop) = &mut self.stop else { return };
        if stop.workers_at.is_some_and(|at| at <= now) {
            stop.workers_at = None;
            stop.asking = true;
            self.actions.push_back(Action::Terminate(Whom::Workers));
            tell(&mut self.members, false);
        }
        // A stray comes into sight when its parent has ended, and that may be at any time.
        for stray in self.strays.iter().filter(|_| stop.asking) {
            if self.asked.insert(*stray) {
                self.actions.push_back(Action::Terminate(Whom::Stray(*stray)));
            }
        }
        let nothing_to_wait_for = self.signal.is_some()
            && self.orphans == 0
            && self.members.iter().all(|one| one.scheduler || one.ending.is_some());
        if stop.scheduler_at.is_some_and(|at| at <= now || nothing_to_wait_for) {
            stop.scheduler_at = None;
            self.actions.push_back(Action::Terminate(Whom::Scheduler));
            tell(&mut self.members, true);
        }
        if stop.kill_at <= now {
            if stop.kills(now) {
                self.orphans = 0; // what cannot be killed is left
                let left = self.members.iter_mut().filter(|one| one.ending.is_none());
                left.for_each(|one| one.ending = Some(Ending::Signal(libc::SIGKILL)));
            }
            self.actions.push_back(Action::Kill(Whom::Workers));
            tell(&mut self.members, false);
            if stop.kill_scheduler_at <= now {
                self.actions.push_back(Action::Kill(Whom::Scheduler));
                tell(&mut self.members, true);
            }
            self.actions.extend(self.strays.iter().map(|stray| Action::Kill(Whom::Stray(*stray))));
        }
    }

    /// Once every worker of the job has ended well nobody needs the scheduler. Multi-host jobs end when it says so.
    fn close_when_done(&mut self, now: Duration) {
        if self.all_done() && self.stop.is_none() && self.signal.is_none() {
            self.begin_no_more();
            self.stop = Some(Stop { scheduler_at: Some(now + CLOSING), ..Stop::new(Why::Done, now + 2 * CLOSING) });
        }
    }

    /// Whether every worker of the job is here and has ended well, by itself.
    fn all_done(&self) -> bool {
        let well = |one: &Member| one.ending == Some(Ending::Exit(0)) && !one.told && one.starts_at.is_none();
        self.all_here && self.members.iter().all(|one| one.scheduler || well(one))
    }

    /// Whether only the scheduler's end is still waited for, and nothing has failed.
    pub fn is_closing(&self) -> bool {
        self.signal.is_none() && self.failures.is_empty() && self.is_stopping() && self.all_done()
    }

    /// Whether no failure counts.
    fn went_well(&self) -> bool {
        let restarts = self.members.iter().any(|one| one.lives.can_return());
        let workers_failed = self.failures.iter().any(|child| !self.members[*child].scheduler);
        let nothing_failed = self.failures.is_empty() && !self.job_over;
        self.signal.is_none() && (nothing_failed || restarts && !workers_failed && self.all_done())
    }

    /// Whether a failure ends the run, and nobody is started again.
    pub fn gives_up(&self) -> bool {
        self.signal.is_none() && self.stop.as_ref().is_some_and(Stop::is_hard)
    }

    /// Whether the user ended the run.
    pub fn is_interrupted(&self) -> bool {
        self.signal.is_some()
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
        let starts = self.members.iter().filter_map(|one| one.starts_at);
        let stop = self.stop.as_ref().map(|stop| [stop.workers_at, stop.scheduler_at, Some(stop.kill_at)]);
        starts.chain(stop.into_iter().flatten().flatten()).min()
    }

    /// Whether the run is over. A job that ended well may leave processes behind; one that was stopped waits for their end.
    pub fn finished(&self) -> bool {
        let ended = |one: &Member| one.ending.is_some() && one.starts_at.is_none();
        self.members.iter().all(ended) && (self.went_well() || self.orphans == 0)
    }

    /// The child to blame. `named` is the child that the scheduler's last words name, if they name one.
    pub fn verdict(&self, named: Option<usize>) -> Verdict {
        if let Some(signal) = self.signal {
            return Verdict::Interrupted(signal);
        }
        if self.went_well() {
            return Verdict::Success;
        }
        let ending = |child: usize| self.ending_before(child).or(self.ending(child));
        let weight = |child: usize| match (ending(child), self.members[child].scheduler) {
            // The scheduler alone knows that forming timed out; the others just ended.
            (Some(Ending::Exit(code::FORMING)), true) => 0,
            (_, true) => 4,
            _ if named == Some(child) => 1,
            (Some(ending), _) if is_from_elsewhere(ending) => 2,
            _ => 3,
        };
        let mut failures = self.failures.clone();
        // If the named child's present life was only told to end, an earlier life of it has failed.
        failures.extend(named.filter(|child| !failures.contains(child) && self.ending_before(*child).is_some()));
        failures.extend(named.filter(|child| !failures.contains(child) && self.cut_short.contains(child)));
        failures.sort_by_key(|child| weight(*child)); // stable: otherwise in the order in which they were noticed
        failures.extend(self.cut_short.iter().filter(|child| Some(**child) != named));
        let Some(gives_code) = failures.first().copied() else { return Verdict::JobOver };
        // To end well without leaving the cluster is a failure, too. Only the scheduler sees it.
        let unclean = named.filter(|child| ending(*child) == Some(Ending::Exit(0)));
        let first = unclean.unwrap_or(gives_code);
        Verdict::Failed { first, gives_code, then: failures.into_iter().filter(|child| *child != first).collect() }
    }
}

/// Whether a signal from elsewhere ended it. Programs raise SIGABRT and SIGPIPE to give up when they lost another.
pub fn is_from_elsewhere(ending: Ending) -> bool {
    matches!(ending, Ending::Signal(signal) if signal != libc::SIGABRT && signal != libc::SIGPIPE)
}

/// The codes of a scheduler that has said why it ends: another start would not find the job, or end in the same way.
const ENDS_BY_ITSELF: [i32; 6] = [0, code::FAILED, code::USAGE, code::ABORTED, code::UNABLE, code::FORMING];

fn tell(members: &mut [Member], scheduler: bool) {
    for member in members.iter_mut().filter(|one| one.scheduler == scheduler && one.ending.is_none()) {
        member.told = true;
    }
}

#[cfg(test)]
#[path = "supervise_test.rs"]
mod tests;
