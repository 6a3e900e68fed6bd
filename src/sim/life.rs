//! What nodes and their programs do: act, hear answers, leave.

use super::checks;
use super::plan::{Action, Mishap, Shape};
use super::program::Asked;
use super::world::{Event, World};
use crate::agent::{self, Command};
use crate::error::{Failure, Status};
use crate::types::{GroupId, Role};
use crate::wire::Formed;
use std::time::Duration;

/// When a program leaves at the latest, answers or none, counted from the complete cluster: far beyond its last action.
const ENOUGH: Duration = Duration::from_secs(14);

impl World {
    /// A node's brain tells its program something.
    pub(super) fn told(&mut self, node: usize, event: agent::Event) -> Result<(), String> {
        checks::still_talking(self, node)?;
        match event {
            agent::Event::Formed(formed) => self.formed(node, *formed)?,
            agent::Event::Failed(error) => {
                self.nodes[node].failed = Some((self.now, error));
                self.nodes[node].alive = false;
                // Whoever counted on it loses it now.
                self.nodes[node].to_blame = true;
            }
            agent::Event::Broken(failure) => {
                if self.nodes[node].broken.replace(failure).is_some() {
                    return Err(format!("node {node} was told twice that the cluster is broken"));
                }
                let at = self.now + self.random.span_ms(0..300);
                self.queue.put(at, Event::Enough(node));
            }
            agent::Event::Revoked(failure) => {
                self.nodes[node].program.groups.give_up(failure.group);
                checks::revoked(self, node, failure)?;
            }
            agent::Event::Stored(ask, answer) => {
                // A node that is cut off for a heartbeat time-out waits for no store.
                let is_unreachable = answer.as_ref().is_err_and(|error| error.status() == Status::Unreachable);
                if is_unreachable && self.nodes[node].to_blame {
                    self.nodes[node].program.open.remove(&ask);
                    return Ok(());
                }
                let Some(asked) = self.nodes[node].program.open.remove(&ask) else {
                    if answer.is_err() && self.nodes[node].broken.is_some() {
                        return Ok(()); // what was about to be given up
                    }
                    return Err(format!("node {node} was answered {ask}, which it had not asked, or twice"));
                };
                if self.nodes[node].broken.is_none() || answer.is_ok() {
                    self.book.answered(self.index(node), &asked, &answer)?;
                }
            }
            agent::Event::Absent(ask, _) => {
                self.nodes[node].program.open.remove(&ask);
            }
            agent::Event::Located(ask, member) => {
                let asked = self.nodes[node].program.open.remove(&ask);
                let formed = self.nodes[node].formed.as_ref().map(|(_, formed)| formed);
                let known = formed.and_then(|formed| formed.members.get(member.index as usize));
                let was_asked = match asked {
                    Some(Asked::Locate(index)) => index == member.index,
                    Some(_) => false,
                    None => self.nodes[node].asked_to_leave.is_some(), // it does not wait for answers any more
                };
                if known.map(AsRef::as_ref) != Some(&member) || !was_asked {
                    return Err(format!("node {node} asked {asked:?} and was told {member:?}"));
                }
            }
            agent::Event::Peer(..)
            | agent::Event::Lost(_)
            | agent::Event::SchedulerAway(_)
            | agent::Event::CutOff(_) => {}
            agent::Event::NotRecovered(failure) => {
                return Err(format!("node {node} never asked, and was told {failure}"))
            }
            agent::Event::GroupMade(made) => self.group_made(node, &made)?,
            // A node that is cut off for a heartbeat time-out waits for no group.
            agent::Event::NotMade(parent, nth, error) if self.nodes[node].to_blame => {
                self.nodes[node].program.groups.not_made(parent, nth).ok_or(error.message())?;
            }
            agent::Event::NotMade(parent, nth, error) => {
                return Err(format!("node {node} has its scheduler, and gets no group {nth} of {parent}: {error}"));
            }
            agent::Event::Left(warning) => {
                self.nodes[node].left = Some((self.now, warning));
                self.nodes[node].alive = false;
            }
        }
        self.leave_if_done(node);
        Ok(())
    }

    fn formed(&mut self, node: usize, formed: Formed) -> Result<(), String> {
        checks::formed(self, node, &formed)?;
        self.nodes[node].formed = Some((self.now, formed));
        if self.first_formed.is_none() {
            self.first_formed = Some(self.now);
            for (after, mishap) in self.plan.late.clone() {
                self.queue.put(self.now + after, Event::Mishap(mishap));
            }
        }
        if let Some((after, _)) = self.nodes[node].program.to_do.front() {
            self.queue.put(self.now + *after, Event::Act(node));
        }
        self.begin_groups(node);
        self.queue.put(self.now + ENOUGH, Event::Enough(node));
        Ok(())
    }

    /// A node's place in the table, under which it writes.
    fn index(&self, node: usize) -> usize {
        self.nodes[node].formed.as_ref().map_or(usize::MAX, |(_, formed)| formed.index as usize)
    }

    pub(super) fn command(&mut self, node: usize, after: Duration, command: Command) {
        self.queue.put(self.now + after, Event::ToNode(node, None, agent::Input::Command(command)));
    }

    pub(super) fn leave_if_done(&mut self, node: usize) {
        let side = &mut self.nodes[node];
        let Some((formed, _)) = &side.formed else { return };
        if side.is_over() || side.program.leaving || !side.program.is_done() || side.broken.is_some() {
            return;
        }
        side.program.leaving = true;
        // Where something is still to happen, most are there to see it.
        let soonest = if self.plan.shape == Shape::Plain { Duration::ZERO } else { Duration::from_millis(1800) };
        let at = self.now.max(*formed + soonest) + self.random.span_ms(0..400);
        self.queue.put(at, Event::Enough(node));
    }

    /// The program's next action.
    pub(super) fn act(&mut self, node: usize) -> Result<(), String> {
        let side = &mut self.nodes[node];
        let Some((formed_at, formed)) = side.formed.clone() else { return Ok(()) };
        if side.is_over() || side.asked_to_leave.is_some() || side.broken.is_some() {
            return Ok(());
        }
        let Some((_, action)) = side.program.to_do.pop_front() else { return Ok(()) };
        if let Some((after, _)) = side.program.to_do.front() {
            self.queue.put((formed_at + *after).max(self.now), Event::Act(node));
        }
        self.carry_out(node, &formed, &action);
        self.leave_if_done(node);
        Ok(())
    }

    fn carry_out(&mut self, node: usize, formed: &Formed, action: &Action) {
        let now = Duration::ZERO;
        if let Some(command) = self.book.command(&mut self.nodes[node].program, formed.index as usize, action) {
            if let (Action::GiveUp, Command::Store { ask, .. }) = (action, &command) {
                let (ask, patience) = (*ask, self.random.span_ms(10..300));
                self.nodes[node].program.open.remove(&ask);
                self.command(node, now, command);
                return self.command(node, patience, Command::StoreCancel(ask));
            }
            return self.command(node, now, command);
        }
        match action {
            Action::WhereAre => {
                let group = if self.nodes[node].plan.role == Role::Worker { GroupId::WORLD } else { GroupId::UNIVERSE };
                let ask = self.nodes[node].program.ask(Asked::WhereAre);
                self.command(node, now, Command::WhereAre(ask, group, 2, None));
            }
            Action::Locate => {
                let index = self.random.index(formed.members.len()) as u32;
                let ask = self.nodes[node].program.ask(Asked::Locate(index));
                self.command(node, now, Command::Locate(ask, index));
            }
            Action::SuspectSomebody => self.suspect_somebody(node, formed),
            Action::Revoke => {
                self.network.tally.count(super::faults::Fault::Revocation);
                let failure = Failure {
                    status: Status::Timeout,
                    culprit: None,
                    cause: format!("node {node} gives up"),
                    epoch: formed.epoch,
                    group: Some(GroupId::UNIVERSE),
                    sequence: 1,
                };
                self.command(node, now, Command::Revoke(failure));
            }
            Action::Abort => {
                self.network.tally.count(super::faults::Fault::Abort);
                self.nodes[node].to_blame = true;
                self.command(node, now, Command::Abort { code: 3, reason: format!("node {node} has had enough") });
            }
            _ => {}
        }
    }

    /// Suspects a peer to which nothing happens: a second witness would make a short absence a loss.
    fn suspect_somebody(&mut self, node: usize, formed: &Formed) {
        let peer = self.random.index(formed.members.len()) as u32;
        let suspected = formed.members[peer as usize].process.pid as usize - 1000;
        let planned = self.plan.early.iter().map(|(_, mishap)| mishap);
        let mut planned = planned.chain(self.plan.late.iter().map(|(_, mishap)| mishap));
        if suspected == node || planned.any(|mishap| mishap.befalls(suspected)) {
            return;
        }
        self.network.tally.count(super::faults::Fault::WrongSuspicion);
        let evidence = "its link ended".to_owned();
        self.command(node, Duration::ZERO, Command::Suspect { peer, evidence });
    }

    /// The program has done everything, or has waited long enough, or the cluster is broken: it leaves.
    pub(super) fn enough(&mut self, node: usize) -> Result<(), String> {
        let side = &mut self.nodes[node];
        if side.is_over() || side.asked_to_leave.is_some() {
            return Ok(());
        }
        if !side.program.is_done() && side.broken.is_none() && self.is_clean() {
            return Err(format!("node {node} still waits for answers to {:?}", self.nodes[node].program.open));
        }
        let side = &mut self.nodes[node];
        side.asked_to_leave = Some(self.now);
        let open: Vec<_> = std::mem::take(&mut side.program.open).into_keys().collect();
        open.into_iter().for_each(|ask| self.command(node, Duration::ZERO, Command::StoreCancel(ask)));
        self.command(node, Duration::ZERO, Command::Leave);
        Ok(())
    }
}

impl Mishap {
    /// Whether it concerns this node.
    pub(super) fn befalls(&self, node: usize) -> bool {
        match self {
            Mishap::Reset(it)
            | Mishap::LostAtNode(it)
            | Mishap::LostAtScheduler { node: it, .. }
            | Mishap::LostSilently(it)
            | Mishap::Stall(it, _)
            | Mishap::Isolate(it, _)
            | Mishap::Kill(it)
            | Mishap::Vanish(it)
            | Mishap::PauseNode(it, _) => *it == node,
            Mishap::PauseScheduler(_) | Mishap::Stranger => false,
        }
    }
}
