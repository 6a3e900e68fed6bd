//! What goes wrong: processes, machines, disks, and connections to the scheduler.

use super::network::{Fate, Side};
use super::node::{End, Line};
use super::plan::{Trouble, When, SILENCE};
use super::table::{Event as Met, Phase};
use super::world::{Event, World};
use crate::membership::{self, Closed, ConnId};
use crate::types::Epoch;
use crate::wire::{Lane, Message};
use std::time::Duration;

/// A process that stands still for no longer than this is not taken for dead.
const HARMLESS: Duration = Duration::from_millis(400);

/// A connection that stood so long is made again at once.
const STOOD: Duration = Duration::from_millis(120);

impl World {
    pub(super) fn trouble(&mut self, trouble: Trouble) -> Result<(), String> {
        if self.host.ended.is_some() || (self.spares_nodes() && trouble.takes_nodes()) {
            return Ok(());
        }
        match trouble {
            Trouble::Kill { slot, back, forgets } => {
                if self.process_dies(slot, false, back) && forgets {
                    let seed = self.random.bits();
                    self.slots[slot].disk = crate::journal::testdisk::MemoryDisk::new(seed);
                    self.fault(Duration::from_secs(31));
                }
            }
            Trouble::Vanish { slot, back } => drop(self.process_dies(slot, true, back)),
            Trouble::KillSome { first, count, back } => {
                self.met(Met::SeveralKilled);
                for at in first..first + count {
                    self.process_dies(at % self.slots.len(), false, back);
                }
            }
            Trouble::AllButOne { slot, back } => self.all_but_one_die(slot, back),
            Trouble::Abort { slot, within } if within == self.phase => self.abort_from(slot),
            // The program aborts at the next time.
            Trouble::Abort { within, .. } => {
                self.troubles.insert(0, (When::In(within, Duration::from_millis(20)), trouble))
            }
            Trouble::Stop { slot, span, next } => self.stop(self.running(slot), span, next),
            Trouble::Twin { slot } => {
                let slot = self.running(slot);
                if self.current(slot).is_some() {
                    self.met(Met::Twin);
                    self.fault(Duration::ZERO);
                    self.start_twin(slot)?;
                }
            }
            Trouble::Scheduler { machine, back } if self.host.running.is_some() => self.scheduler_dies(machine, back),
            Trouble::Both { slot, machine, back } if self.host.running.is_some() => {
                self.met(Met::SchedulerAndNode);
                self.scheduler_dies(machine, back);
                self.process_dies(slot, false, back / 2);
            }
            Trouble::All { machine, back } if self.host.running.is_some() => {
                self.met(Met::EverythingDies);
                self.scheduler_dies(machine, back);
                for slot in 0..self.slots.len() {
                    let later = back + self.random.span_ms(0..300);
                    self.process_dies(slot, machine, later);
                }
            }
            Trouble::Scheduler { .. } | Trouble::Both { .. } | Trouble::All { .. } => {}
            Trouble::Free { slot } => self.frees(slot),
            Trouble::Lie { slot } => self.lie(slot),
            Trouble::Abandon { slot } => self.launcher_abandons(slot),
            Trouble::AbandonFalsely { slot } => self.is_falsely_abandoned(slot),
            Trouble::NodeDisk { slot, after, back } => {
                self.slots[slot].disk.crash_after(after);
                self.process_dies(slot, false, back);
            }
            Trouble::DiskOperation { after, .. } => self.host.disk.crash_after(after),
            Trouble::DiskFull { bytes, .. } => self.host.disk.fill_after(bytes),
            Trouble::SyncFails { after, .. } => self.host.disk.fail_sync_after(after),
            Trouble::SlowDisk { span } => self.slow_disk(span),
            Trouble::Link { .. } | Trouble::LinkSilent { .. } | Trouble::LinkSlow { .. } => {
                self.trouble_on_link(trouble)
            }
            Trouble::PauseScheduler { span } => {
                self.met(Met::SchedulerPaused);
                self.host.paused_until = self.now + span;
            }
            Trouble::Stranger => self.stranger(),
            Trouble::Reset { .. }
            | Trouble::OneWay { .. }
            | Trouble::Partition { .. }
            | Trouble::Duplicate { .. }
            | Trouble::HalfOpen { .. }
            | Trouble::Stall { .. } => self.trouble_on_line(trouble),
        }
        Ok(())
    }

    fn all_but_one_die(&mut self, slot: usize, back: Duration) {
        let slot = self.running(slot);
        if self.current(slot).is_none() {
            return;
        }
        self.met(Met::AllButOne);
        for other in (0..self.slots.len()).filter(|other| *other != slot) {
            let later = back + self.random.span_ms(0..300);
            self.process_dies(other, false, later);
        }
    }

    /// The process that has a slot's place, where it runs.
    pub(super) fn current(&self, slot: usize) -> Option<usize> {
        self.slots[slot].current.filter(|at| self.processes[*at].alive && self.processes[*at].paused_until <= self.now)
    }

    /// This slot, or the next one where a process runs. Without recovery it is always this one: the others are assumed
    /// to be well.
    pub(super) fn running(&self, slot: usize) -> usize {
        let count = if self.plan.recovers() { self.slots.len() } else { 1 };
        let mut slots = (0..count).map(|more| (slot + more) % self.slots.len());
        slots.find(|slot| self.current(*slot).is_some()).unwrap_or(slot)
    }

    fn trouble_on_line(&mut self, trouble: Trouble) {
        let (Trouble::Reset { slot, .. }
        | Trouble::OneWay { slot, .. }
        | Trouble::Partition { slot, .. }
        | Trouble::Duplicate { slot }
        | Trouble::HalfOpen { slot, .. }
        | Trouble::Stall { slot, .. }) = trouble
        else {
            return;
        };
        let count = self.slots.len();
        let tried = if self.plan.recovers() { count } else { 1 };
        let lines = (0..tried).filter_map(|more| {
            let node = self.current((slot + more) % count)?;
            let Line::Up(conn) = self.processes[node].line else { return None };
            Some((node, conn))
        });
        let Some((node, conn)) = lines.into_iter().next() else { return };
        self.disturb_line(node);
        match trouble {
            Trouble::Reset { quiet, .. } => {
                self.met(if quiet { Met::ConnectionHalfOpen } else { Met::ConnectionReset });
                self.reset(node, conn, quiet);
                self.is_slow_to_return(node);
            }
            Trouble::OneWay { to_scheduler, .. } => {
                self.met(Met::OneWaySilence);
                self.network.mute(conn, if to_scheduler { Side::Node } else { Side::Scheduler });
                self.blame(node);
            }
            Trouble::Partition { count, span, links, .. } => self.part(node, count, span, links),
            Trouble::HalfOpen { hears, told, how, .. } => self.half_opens(node, conn, hears, told, how),
            Trouble::Stall { span, .. } => {
                self.met(Met::Stalled);
                self.network.stall(conn, self.now + span);
            }
            _ => {
                self.met(Met::DuplicateConnection);
                self.open_duplicate(node);
            }
        }
    }

    fn disturb_line(&mut self, node: usize) {
        self.fault(Duration::ZERO);
        self.disturb(node, 0);
        // It may be slow to come back: the message that tells it that it is attached is held back, or its connection
        // had not stood long.
        let stood = self.now.since(self.processes[node].up_since) >= STOOD;
        if self.plan.recovers() && (self.disk_is_slow() || !stood) {
            self.blame(node);
        }
    }

    /// A delay of many times the usual makes every return uncertain.
    fn is_slow_to_return(&mut self, node: usize) {
        if self.plan.spikes {
            self.blame(node);
        }
    }

    /// A connection ends, and one end is not told, or none is.
    fn half_opens(&mut self, node: usize, conn: usize, hears: Option<Side>, told: bool, how: Closed) {
        self.met(if told { Met::HalfOpenTold } else { Met::ConnectionHalfOpen });
        let soon = self.now + self.network.delay();
        match hears {
            Some(Side::Node) => {
                self.network.cut(conn, [false, told]);
                self.queue.put(soon, super::node::closed(node, conn, "connection reset by peer"));
                self.is_slow_to_return(node);
            }
            Some(Side::Scheduler) => {
                self.network.cut(conn, [told, false]);
                let input = membership::Input::Closed(ConnId(conn as u64), how, "the network says so".to_owned());
                self.queue.put(soon, Event::SchedulerInput(self.host.life, Some(conn), input));
                match how == Closed::Ended || !told {
                    true => self.blame(node),
                    false => self.is_slow_to_return(node),
                }
            }
            None => {
                self.network.cut(conn, [false; 2]);
                self.blame(node);
            }
        }
    }

    /// A connection ends; `quiet`: the scheduler is not told.
    fn reset(&mut self, node: usize, conn: usize, quiet: bool) {
        let soon = self.now + self.network.delay();
        self.network.cut(conn, [false; 2]);
        self.queue.put(soon, super::node::closed(node, conn, "connection reset by peer"));
        if !quiet {
            let later = self.now + self.network.delay();
            self.closed_at_scheduler(later, conn, "connection reset by peer");
        }
    }

    /// An attempt to connect succeeds that the process does not know of any more: it registers, and ends.
    pub(super) fn open_duplicate(&mut self, node: usize) {
        let conn = self.network.connect(Some(node));
        let Fate::Arrives(at) = self.network.send(self.now, conn, Side::Node, Lane::Urgent) else { return };
        let opened = membership::Input::Opened(ConnId(conn as u64), format!("10.0.1.{node}:4001"));
        self.queue.put(at, Event::SchedulerInput(self.host.life, Some(conn), opened));
        let process = &self.processes[node];
        let mut register = process.register.clone();
        register.instance = process.formed.as_ref().map(|formed| formed.instance);
        if let Fate::Arrives(at) = self.network.send(self.now, conn, Side::Node, Lane::Urgent) {
            let input = membership::Input::Received(ConnId(conn as u64), Message::Register(register));
            self.queue.put(at, Event::SchedulerInput(self.host.life, Some(conn), input));
        }
        if let Some(at) = self.network.finish(self.now, conn, Side::Node) {
            let later = at + self.random.span_ms(0..20);
            self.closed_at_scheduler(later, conn, "end of stream");
        }
    }

    /// This node and those after it do not reach the scheduler for a while; perhaps not the other nodes either.
    fn part(&mut self, first: usize, count: usize, span: Duration, links: bool) {
        self.met(if links { Met::PartitionOfLinks } else { Met::Partition });
        let (slot, slots) = (self.processes[first].slot, self.slots.len());
        let apart: Vec<usize> = (0..count.min(slots)).filter_map(|more| self.current((slot + more) % slots)).collect();
        self.fault(span);
        for node in &apart {
            self.network.of_node(*node).into_iter().for_each(|conn| self.network.cut(conn, [false; 2]));
            self.processes[*node].apart_until = self.now + span;
            self.blame(*node);
        }
        if links {
            self.part_links(apart, span);
        }
    }

    /// Whether this message is planned to be lost with its connection. If so, it is lost now.
    pub(super) fn loses(&mut self, conn: usize, kind: u8) -> bool {
        let is_aimed_at = |node: &usize| self.processes[*node].alive && self.plan.recovers();
        let Some(node) = self.network.node_of(conn).filter(is_aimed_at) else { return false };
        self.table.sends(kind, self.phase);
        let Some(Trouble::Reset { quiet, .. }) = self.due_loss(kind) else { return false };
        self.met(Met::MessageLost(kind));
        self.disturb_line(node);
        self.reset(node, conn, quiet);
        true
    }

    /// The loss of a message of this kind, if it is planned now.
    pub(super) fn due_loss(&mut self, kind: u8) -> Option<Trouble> {
        self.due(|when, phase| match when {
            When::Lost { kind: planned, phase: within, nth } if *planned == kind && *within == phase => Some(nth),
            _ => None,
        })
    }

    /// The trouble whose time has come, of those that this counts down.
    pub(super) fn due(&mut self, counts: impl Fn(&mut When, Phase) -> Option<&mut u32>) -> Option<Trouble> {
        let phase = self.phase;
        let mut due = None;
        for (at, (when, _)) in self.troubles.iter_mut().enumerate() {
            if let Some(left) = counts(when, phase).filter(|_| due.is_none()) {
                *left -= 1;
                due = (*left == 0).then_some(at);
            }
        }
        due.map(|at| self.troubles.remove(at).1)
    }

    /// From now on this process may rightly be called lost.
    pub(super) fn blame(&mut self, node: usize) {
        self.processes[node].to_blame.get_or_insert(self.now);
        if self.plan.recovers() {
            self.may_fail |= self.finishing.is_some();
        } else {
            self.processes[node].disturbed[0] = true;
            // A process that is replaced while the cluster forms does no harm.
            self.may_fail |= self.newest > Epoch(0) || !self.plan.starts_again();
        }
    }

    /// A witness and an ended connection are taken for a loss, whatever ended both.
    pub(super) fn disturb(&mut self, node: usize, what: usize) {
        self.processes[node].disturbed[what] = true;
        if self.processes[node].disturbed == [true; 2] {
            self.blame(node);
        }
    }

    fn stop(&mut self, slot: usize, span: Duration, next: Duration) {
        let Some(node) = self.current(slot) else { return };
        self.met(Met::NodeStopped);
        self.fault(span);
        self.processes[node].paused_until = self.now + span;
        if !self.plan.recovers() {
            self.disturb(node, 0);
        }
        if span > HARMLESS {
            self.blame(node);
        }
        if span > SILENCE * 2 && next < span {
            self.queue.put(self.now + next, Event::StartNode(slot));
        }
    }

    /// The process of a slot dies, and is started again after a while. Returns whether there was one.
    pub(super) fn process_dies(&mut self, slot: usize, with_host: bool, back: Duration) -> bool {
        let current = self.slots[slot].current.filter(|at| self.processes[*at].alive && !self.spares_nodes());
        let Some(node) = current else { return false };
        self.fault(back);
        self.met(if with_host { Met::NodeVanished } else { Met::NodeKilled });
        if self.host.running.is_none() {
            self.met(Met::LostMeanwhile);
        }
        self.blame(node);
        match with_host {
            true => self.host_dies(slot),
            false => self.let_die(node),
        }
        if !self.plan.recovers() {
            self.peers_notice(node, with_host);
        }
        match self.plan.starts_again() {
            true => self.queue.put(self.now + back, Event::StartNode(slot)),
            false => self.slots[slot].finished = true,
        }
        true
    }

    /// A process ends, and its host closes its connections for it.
    pub(super) fn let_die(&mut self, node: usize) {
        if !self.plan.recovers() && self.random.once_in(3) {
            self.met(Met::LastWord);
            self.send_to_scheduler(node, Message::Gone);
        }
        self.processes[node].ended = Some((self.now, End::Died));
        self.processes[node].alive = false;
        self.disconnect(node);
        self.end_links(node);
        self.is_seen_to_end(node);
    }

    /// A slot's machine dies: nobody is told, and what its disk had not made durable is lost.
    pub(super) fn host_dies(&mut self, slot: usize) {
        for node in 0..self.processes.len() {
            if self.processes[node].slot == slot && self.processes[node].alive {
                self.blame(node);
                self.processes[node].ended = Some((self.now, End::Died));
                self.processes[node].alive = false;
                self.network.of_node(node).into_iter().for_each(|conn| self.network.cut(conn, [false; 2]));
            }
        }
        self.slots[slot].disk = self.slots[slot].disk.crash();
    }

    /// A process has come to its own end.
    pub(super) fn process_ends(&mut self, node: usize, end: End) {
        let in_order = matches!(end, End::Left(_));
        self.say(|| format!("node {node} ends: {end:?}"));
        self.processes[node].ended = Some((self.now, end));
        self.processes[node].alive = false;
        if !in_order {
            self.processes[node].to_blame.get_or_insert(self.now);
            self.end_links(node);
            self.is_seen_to_end(node);
        }
        self.disconnect(node);
    }

    /// Whether the process that sends or gets this message is planned to die. If so, it has died.
    pub(super) fn dies_with(&mut self, node: usize, kind: u8) -> bool {
        let slot = self.processes[node].slot;
        if self.slots[slot].current != Some(node) || self.spares_nodes() {
            return false;
        }
        let Some(Trouble::Kill { back, .. }) = self.due(|when, phase| match when {
            When::With { kind: planned, phase: within, nth } if *planned == kind && *within == phase => Some(nth),
            _ => None,
        }) else {
            return false;
        };
        self.met(Met::NodeWith(kind));
        self.process_dies(slot, false, back);
        true
    }
}
