//! `--join`: waits for the children, stops them when one fails or the user says so, and leaves nothing behind.
//!
//! One loop: a descriptor of signals (among them "a child has ended") and the next deadline of the [`Supervisor`], which
//! decides everything. Children that have ended stay zombies until the end, so that the number of their group can't come
//! to mean another.

use super::children::{Child, Part};
use super::supervise::{Action, Supervisor, Verdict, Whom};
use crate::sys::{self, Ending};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

/// The signals that end a run.
const ENDING: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGQUIT, libc::SIGHUP];

/// The launcher's signals, as something to be read.
pub struct Signals(OwnedFd);

impl Signals {
    /// From now on they wait to be read. To be called before the first child is started. A hangup is left alone where
    /// the launcher was told to ignore it (nohup).
    pub fn begin() -> io::Result<Signals> {
        let mut signals = vec![libc::SIGCHLD];
        signals.extend(ENDING.iter().filter(|signal| **signal != libc::SIGHUP || !sys::ignored(**signal)));
        sys::signal_descriptor(&signals).map(Signals)
    }

    /// The next signal that ends the run, if one waits.
    pub fn ending(&self) -> Option<i32> {
        std::iter::from_fn(|| sys::next_signal(&self.0)).find(|signal| *signal != libc::SIGCHLD)
    }

    /// As a descriptor for a poll.
    pub fn descriptor(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// What a finished run looks like.
pub struct Outcome {
    /// Who is to blame.
    pub verdict: Verdict,
    /// How each child ended.
    pub endings: Vec<Ending>,
}

/// Waits until it is over. `named` is asked, once, which child the scheduler's last words blame.
pub fn join(
    children: &[Child],
    all_here: bool,
    signals: &Signals,
    named: impl FnOnce() -> Option<usize>,
) -> io::Result<Outcome> {
    let began = Instant::now();
    let mut supervisor = Supervisor::new(children.iter().map(|child| child.part == Part::Scheduler), all_here);
    loop {
        let mut has_ended = false;
        for (index, child) in
            children.iter().enumerate().filter(|(index, _)| supervisor.runs(*index)).collect::<Vec<_>>()
        {
            if let Some(ending) = sys::ended(child.pid) {
                supervisor.ended(index, ending, began.elapsed());
                has_ended = true;
            }
        }
        // Many children that end one by one are no reason to ask as often who is left: that matters to a run that is being
        // stopped. Otherwise it is for burying those who have ended, whom nothing else explains.
        if supervisor.is_stopping() || !has_ended {
            look_for_orphans(&mut supervisor, children);
        }
        supervisor.tick(began.elapsed());
        while let Some(action) = supervisor.next_action() {
            perform(action, children);
        }
        if supervisor.finished() {
            break;
        }
        let patience = supervisor.deadline().map(|deadline| deadline.saturating_sub(began.elapsed()));
        sys::poll([signals.descriptor()], patience)?;
        while let Some(signal) = signals.ending() {
            look_for_orphans(&mut supervisor, children);
            supervisor.signalled(signal, began.elapsed());
        }
    }
    let verdict = supervisor.verdict(named());
    let endings = (0..children.len()).filter_map(|index| supervisor.ending(index)).collect();
    for child in children {
        if verdict != Verdict::Success {
            // For a kernel that doesn't tell of orphans: their group at least is known.
            sys::signal_group(child.pid, libc::SIGKILL);
        }
        sys::reap(child.pid);
    }
    Ok(Outcome { verdict, endings })
}

fn look_for_orphans(supervisor: &mut Supervisor, children: &[Child]) {
    let orphans = orphans(children);
    supervisor.orphans(orphans.len(), strays(orphans, children));
}

/// Processes that descend from the children and whose own parents have ended. Those that have ended too are buried.
fn orphans(children: &[Child]) -> Vec<i32> {
    sys::children()
        .into_iter()
        .filter(|pid| children.iter().all(|child| child.pid != *pid))
        .filter(|pid| sys::reap(*pid).is_none())
        .collect()
}

/// Those that are in no child's group.
fn strays(mut orphans: Vec<i32>, children: &[Child]) -> Vec<i32> {
    orphans.retain(|pid| {
        let group = sys::group_of(*pid);
        children.iter().all(|child| Some(child.pid) != group)
    });
    orphans
}

fn perform(action: Action, children: &[Child]) {
    let (whom, signal) = match action {
        Action::Terminate(whom) => (whom, libc::SIGTERM),
        Action::Kill(whom) => (whom, libc::SIGKILL),
    };
    match whom {
        Whom::Stray(pid) => sys::signal_process(pid, signal),
        Whom::Workers | Whom::Scheduler => children
            .iter()
            .filter(|child| (child.part == Part::Scheduler) == (whom == Whom::Scheduler))
            .for_each(|child| sys::signal_group(child.pid, signal)),
    }
}
