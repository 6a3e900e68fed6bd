//! A program whose epoch has broken. It calls `muster_recover`, sooner or later, for a while, and once more, until
//! there is a next epoch, or it is clear that there will be none.

use super::abandoned::is_first_cause;
use super::causes;
use super::checks;
use super::node::End;
use super::plan::IN_VAIN;
use super::program::{Stage, Tick};
use super::rounds::VERDICT_WAIT;
use super::sabotage::Sabotage;
use super::world::{Event, World};
use crate::agent::Command;
use crate::error::{Failure, Status};
use crate::wire::Message;
use std::time::Duration;

/// How long a program tries to recover in all.
const PATIENCE: Duration = Duration::from_secs(100);

impl World {
    /// Something broke: the program calls `muster_recover`, sooner or later.
    pub(super) fn breaks(&mut self, node: usize) {
        let program = &mut self.processes[node].program;
        if program.stage != Stage::Working {
            return;
        }
        program.enter(Stage::Recovering);
        program.recovering_since = Some(self.now);
        if self.sabotage == Some(Sabotage::NeverRecovers) && self.processes[node].slot == 0 {
            return;
        }
        let late = self.random.once_in(8);
        self.soon(node, if late { 500..3000 } else { 0..60 }, Tick::Recover);
    }

    pub(super) fn goes_inside(&mut self, node: usize) {
        self.processes[node].program.is_inside = true;
        self.command(node, Command::Recover(true));
        self.soon(node, 1000..15_000, Tick::RecoverOver);
    }

    pub(super) fn waits_no_more(&mut self, node: usize) {
        self.processes[node].program.is_inside = false;
        self.command(node, Command::Recover(false));
        self.after(node, VERDICT_WAIT, Tick::NoWord);
    }

    pub(super) fn tries_again(&mut self, node: usize) {
        let since = self.processes[node].program.recovering_since.unwrap_or(self.now);
        self.processes[node].program.token += 1;
        let patience = if self.awaits_in_vain() { IN_VAIN } else { PATIENCE };
        if self.now.since(since) < patience {
            return self.soon(node, 0..400, Tick::Recover);
        }
        match self.awaits_in_vain() {
            true => self.quits(node, End::Died),
            false => self.leave_in_vain(node),
        }
    }

    /// The program leaves: the cluster will not be whole again, or has not been in a long time.
    pub(super) fn leave_in_vain(&mut self, node: usize) {
        if self.finishing.is_none() {
            self.finishing = Some(self.now);
            self.may_fail |= checks::somebody_is_missing(self);
        }
        self.processes[node].program.enter(Stage::Leaving);
        self.soon(node, 0..200, Tick::Leave);
    }

    /// A program that waits for the next epoch is told why there is none.
    pub(super) fn not_recovered(&mut self, node: usize, failure: &Failure) -> Result<(), String> {
        if !self.plan.recovers() {
            return Err(format!("node {node} never asked for another epoch, and was told {failure}"));
        }
        if is_first_cause(failure) {
            causes::heard(self, node, failure, false)?;
        }
        if self.processes[node].program.stage != Stage::Recovering {
            return Ok(());
        }
        match failure.status {
            Status::Timeout => self.tries_again(node),
            Status::Fenced => self.abandons(node),
            _ if is_first_cause(failure) && !self.plan.leaves_in_vain => {
                self.quits(node, End::Failed(failure.clone().into()));
            }
            // The program leaves this run, and not the job.
            _ if is_first_cause(failure) => {
                self.processes[node].program.leaves_run = true;
                self.processes[node].program.enter(Stage::Leaving);
                self.soon(node, 0..200, Tick::Leave);
            }
            _ => self.leave_in_vain(node),
        }
        Ok(())
    }

    /// There is no next epoch for a program: it ends without leaving.
    fn quits(&mut self, node: usize, end: End) {
        if self.random.once_in(2) {
            self.send_to_scheduler(node, Message::Gone);
        }
        if !self.processes[node].alive {
            return; // with that word
        }
        self.process_ends(node, end);
        self.has_ended_in_vain(node);
    }

    /// A process has ended in vain: its launcher starts it again, in vain, or does not.
    pub(super) fn has_ended_in_vain(&mut self, node: usize) {
        let slot = self.processes[node].slot;
        if self.slots[slot].current != Some(node) {
            return;
        }
        match self.random.once_in(2) {
            true => {
                self.slots[slot].finished = true;
                self.launcher_abandons(slot);
            }
            false => {
                let back = self.random.span_ms(20..800);
                self.queue.put(self.now + back, Event::StartNode(slot));
            }
        }
    }
}
