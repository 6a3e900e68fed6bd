//! The program in each process of a story with recovery. It joins, agrees on a checkpoint with the others, and does its
//! rounds (a collective, something with the store, now and then a group). When something breaks it calls
//! `muster_recover`. It leaves when all is done. Without recovery it goes on `errands`.

use super::checks;
use super::groups::GroupStep;
use super::ledger::{Asked, StoreRequest};
use super::node::End;
use super::once::Errand;
use super::questions::Questions;
use super::rounds::{Collective, What, VERDICT_WAIT};
use super::sabotage::Sabotage;
use super::sentences::Sentences;
use super::world::{Event, World};
use crate::agent::{self, Ask, Command};
use crate::error::{Error, Failure, Status};
use crate::types::GroupId;
use crate::wire::{Formed, GroupProgress, Message, PeerState};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// How long a program waits for the store.
const STORE: Duration = Duration::from_secs(40);

/// What a timer of the program is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Tick {
    /// On with the next step.
    Go,
    /// The verdict on this peer has been waited for.
    JudgeOver(u32, u64),
    OperationOver(u64),
    /// A collective takes long.
    Warn(u64),
    /// Nobody has said in time who is absent.
    NoAnswer(u64),
    StoreOver(Ask),
    /// The store's answer has taken too long, and the program goes on without it.
    StoreGivenUp(Ask),
    /// The program calls `muster_recover`.
    Recover,
    /// Its time in `muster_recover` is up.
    RecoverOver,
    /// The scheduler has not said why in time.
    NoWord,
    Leave,
    /// The next errand, and the next step with groups.
    Errand,
    Group(GroupStep),
    /// The program has waited long enough for its answers.
    Enough,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    #[default]
    Joining,
    Working,
    Recovering,
    Leaving,
}

/// What comes next in the work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Next {
    /// The groups that the others have made already.
    #[default]
    MakeAgain,
    Agree,
    Round(u64),
    Store(u64),
    Make(u64),
    OnGroup(u64),
    Last,
}

impl Next {
    /// What comes after everything of a round.
    pub(super) fn after(round: u64, rounds: u64) -> Next {
        match round + 1 < rounds {
            true => Next::Round(round + 1),
            false => Next::Last,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Program {
    pub(super) stage: Stage,
    pub(super) next: Next,
    /// Grows with every change of stage: what was timed before is void.
    pub(super) token: u64,
    /// The number of the newest collective of the group of all, and of those that were made.
    pub(super) sequence: u64,
    pub(super) sequences: BTreeMap<GroupId, u64>,
    /// Numbers everything that it waits for with others.
    pub(super) calls: u64,
    pub(super) collective: Option<Collective>,
    /// The store's question that is waited for.
    pub(super) waits: Option<Ask>,
    pub(super) asks: BTreeMap<Ask, Asked>,
    pub(super) next_ask: Ask,
    pub(super) questions: Questions,
    /// How many groups it has been told of.
    pub(super) made: u64,
    /// The groups in which it is: their members, in order of rank.
    pub(super) groups: BTreeMap<u64, (GroupId, Vec<u32>)>,
    /// The groups that it has freed.
    pub(super) freed: Vec<GroupId>,
    /// The creation that it waits for, and whether the others have made that before.
    pub(super) creation: Option<(u64, bool)>,
    /// Since when it has been trying to recover.
    pub(super) recovering_since: Option<crate::types::Time>,
    /// It waits in `muster_recover`.
    pub(super) is_inside: bool,
    /// It was told that a place was abandoned, and leaves.
    pub(super) leaves_run: bool,
    pub(super) sentences: Sentences,
    /// What it still has to do, and when, counted from the complete cluster.
    pub(super) errands: VecDeque<(Duration, Errand)>,
    /// Groups that it has asked for, and was not told of.
    pub(super) asked_for: BTreeSet<(GroupId, u64)>,
    /// Steps with groups that are still to come.
    pub(super) steps: usize,
}

impl Program {
    pub(super) fn is_working(&self) -> bool {
        self.stage == Stage::Working
    }

    pub(super) fn enter(&mut self, stage: Stage) {
        self.stage = stage;
        self.token += 1;
        self.collective = None;
        self.waits = None;
        self.creation = None;
        self.is_inside = false;
    }
}

impl World {
    /// A process's brain tells its program something.
    pub(super) fn told(&mut self, node: usize, event: agent::Event) -> Result<(), String> {
        if self.processes[node].ended.is_some() {
            return Err(format!("node {node} goes on talking after its last word: {event:?}"));
        }
        let event = super::sabotage::misheard(self, node, event);
        self.says_why(node, &event)?;
        match event {
            agent::Event::Formed(formed) => self.formed(node, *formed)?,
            agent::Event::Failed(error) => self.failed(node, error),
            agent::Event::Broken(failure) => {
                checks::broken(self, node, &failure)?;
                let status = failure.status;
                let had = self.processes[node].broken.replace(failure).is_some();
                match status {
                    _ if !self.plan.recovers() && had => {
                        return Err(format!("node {node} was told twice that the cluster is broken"));
                    }
                    _ if !self.plan.recovers() => self.leaves_soon(node),
                    Status::Fenced => self.abandons(node),
                    Status::Aborted => self.hears_of_abort(node),
                    _ => self.breaks(node),
                }
            }
            agent::Event::Revoked(failure) => {
                checks::revoked(self, node, &failure)?;
                match self.plan.recovers() {
                    true => self.breaks(node),
                    false => self.waits_for_no_group(node, failure.group),
                }
            }
            agent::Event::Stored(ask, answer) => self.stored(node, ask, &answer)?,
            agent::Event::Peer(index, state, culprit) => self.peer(node, index, state, culprit),
            agent::Event::MadeByMembers(wanted, made) => self.made_by_members(node, wanted, made)?,
            agent::Event::GroupMade(made) => self.group_made(node, &made)?,
            agent::Event::NotMade(parent, nth, error) => self.not_made(node, parent, nth, &error)?,
            agent::Event::NotRecovered(failure) => self.not_recovered(node, &failure)?,
            agent::Event::Left(warning) if !self.plan.recovers() => self.is_over_once(node, End::Left(warning)),
            agent::Event::Left(warning) => {
                if let Some(warning) = &warning {
                    self.say(|| format!("node {node} left: {warning}"));
                    // A node that was not told that this one left calls it lost.
                    self.may_fail |= !self.processes[node].program.leaves_run;
                    self.processes[node].to_blame.get_or_insert(self.now);
                }
                self.process_ends(node, End::Left(warning));
                if self.processes[node].program.leaves_run {
                    self.has_ended_in_vain(node);
                    return Ok(());
                }
                let slot = self.processes[node].slot;
                self.slots[slot].finished |= self.slots[slot].current == Some(node);
            }
            agent::Event::Absent(ask, absent) => self.absent(node, ask, &absent)?,
            agent::Event::Located(ask, member) => self.located(node, ask, &member)?,
            agent::Event::Lost(_) | agent::Event::SchedulerAway(_) | agent::Event::CutOff(_) => {}
        }
        self.leave_if_done(node);
        Ok(())
    }

    pub(super) fn soon(&mut self, node: usize, range: std::ops::Range<u64>, tick: Tick) {
        let at = self.now + self.random.span_ms(range);
        self.queue.put(at, Event::Program(node, self.processes[node].program.token, tick));
    }

    pub(super) fn after(&mut self, node: usize, span: Duration, tick: Tick) {
        self.queue.put(self.now + span, Event::Program(node, self.processes[node].program.token, tick));
    }

    pub(super) fn command(&mut self, node: usize, command: Command) {
        self.queue.put(self.now, Event::NodeInput(node, None, agent::Input::Command(command)));
    }

    fn formed(&mut self, node: usize, formed: Formed) -> Result<(), String> {
        // A process that stood still may hear late of a job that is done.
        if Some(formed.instance) == self.host.instance {
            checks::formed(self, node, &formed)?;
            self.newest = self.newest.max(formed.epoch);
        }
        let is_first = self.processes[node].formed.is_none();
        let keeps = self.sabotage == Some(Sabotage::AnyEpoch);
        let process = &mut self.processes[node];
        process.links.renew(formed.epoch, formed.secret, keeps);
        process.epoch = formed.epoch;
        process.broken = None;
        process.formed = Some(formed);
        process.joined.get_or_insert(self.now);
        let (slot, life) = (process.slot, process.incarnation);
        process.program.enter(Stage::Working);
        process.program.next = Next::MakeAgain;
        process.program.sequence = 0;
        process.program.sequences.clear();
        process.program.questions.renew();
        process.program.recovering_since = None;
        for other in self.processes.iter_mut().filter(|other| other.slot == slot && other.incarnation != life) {
            other.replaced = true;
        }
        if !self.plan.recovers() {
            self.begin_errands(node);
            return Ok(());
        }
        if is_first && !self.token_holds(node)? {
            return Ok(()); // its machine has died
        }
        if self.random.once_in(3) {
            self.ask_address(node);
        }
        self.soon(node, 0..80, Tick::Go);
        Ok(())
    }

    /// `muster_init` fails: the process ends, and its supervisor starts another one where that may help.
    fn failed(&mut self, node: usize, error: Error) {
        let status = error.status();
        if !self.plan.recovers() {
            return self.is_over_once(node, End::Failed(error));
        }
        self.process_ends(node, End::Failed(error));
        let slot = self.processes[node].slot;
        if self.slots[slot].current != Some(node) {
            return;
        }
        let in_vain = match status {
            Status::PeerLeft | Status::Aborted => true,
            // Nodes that left unheard are awaited for good.
            Status::Timeout | Status::Unreachable if self.may_fail => true,
            Status::Timeout => self.awaits_in_vain(),
            _ => false,
        };
        if in_vain || self.host.ended.is_some() {
            self.slots[slot].finished = true;
        } else {
            let back = self.random.span_ms(100..1500);
            self.queue.put(self.now + back, Event::StartNode(slot));
        }
    }

    /// The process ends itself, without leaving: another process has its place, or will have it. Perhaps it frees its
    /// cluster first.
    pub(super) fn abandons(&mut self, node: usize) {
        let slot = self.processes[node].slot;
        if self.random.once_in(2) {
            self.send_to_scheduler(node, Message::Gone);
        }
        self.process_ends(node, End::Died);
        if self.slots[slot].current == Some(node) {
            let back = self.random.span_ms(20..1500);
            self.queue.put(self.now + back, Event::StartNode(slot));
        }
    }

    pub(super) fn tick(&mut self, node: usize, tick: Tick) -> Result<(), String> {
        match tick {
            Tick::Go => self.go(node)?,
            Tick::JudgeOver(peer, call) => {
                let program = &self.processes[node].program;
                if program.collective.as_ref().is_some_and(|it| it.number == call) {
                    self.revoke(node, Status::PeerLost, "is probably lost, unconfirmed", Some(peer));
                }
            }
            Tick::OperationOver(call) => {
                let program = &self.processes[node].program;
                let inside = program.collective.as_ref().is_some_and(|it| it.number == call);
                if program.creation == Some((call, true)) {
                    self.abandons(node);
                } else if inside {
                    self.ask_absent(node, true);
                    self.after(node, VERDICT_WAIT, Tick::NoAnswer(call));
                } else if program.creation == Some((call, false)) {
                    self.times_out(node, None);
                }
            }
            Tick::Warn(call) | Tick::NoAnswer(call) => {
                let program = &self.processes[node].program;
                if program.collective.as_ref().is_none_or(|it| it.number != call) {
                    return Ok(());
                }
                match tick {
                    Tick::Warn(_) => self.ask_absent(node, false),
                    _ => self.times_out(node, None),
                }
            }
            // The program ends because of it, as one that does not expect this.
            Tick::StoreOver(ask) if self.processes[node].program.waits == Some(ask) => self.abandons(node),
            Tick::StoreGivenUp(ask) if self.processes[node].program.waits == Some(ask) => {
                self.processes[node].program.waits = None;
                self.command(node, Command::StoreCancel(ask));
                self.soon(node, 0..60, Tick::Go);
            }
            Tick::StoreOver(_) | Tick::StoreGivenUp(_) => {}
            Tick::Recover => self.goes_inside(node),
            Tick::RecoverOver => self.waits_no_more(node),
            Tick::NoWord => self.tries_again(node),
            Tick::Leave => self.leaves(node),
            Tick::Errand => self.errand(node),
            Tick::Group(step) => self.group_step(node, step),
            Tick::Enough => self.has_waited_enough(node)?,
        }
        Ok(())
    }

    /// The next step of the work.
    pub(super) fn go(&mut self, node: usize) -> Result<(), String> {
        if self.random.once_in(24) {
            self.ask_address(node);
        }
        let process = &mut self.processes[node];
        let Some(formed) = &process.formed else { return Ok(()) };
        let known = formed.creations.iter().find(|made| made.parent == GroupId::UNIVERSE).map_or(0, |made| made.count);
        match process.program.next {
            Next::MakeAgain if process.program.made < known => {
                let nth = process.program.made + 1;
                self.make_group(node, nth, true);
            }
            Next::MakeAgain => {
                process.program.next = Next::Agree;
                return self.go(node);
            }
            Next::Agree => return self.begin_collective(node, What::Agree),
            Next::Round(round) => return self.begin_collective(node, What::Round(round)),
            Next::Store(round) => {
                process.program.next_ask += 1;
                let (ask, slot) = (process.program.next_ask, process.slot);
                let others = self.slots.len();
                let request = match self.random.below(0..4) {
                    0 => StoreRequest::Set(8 + self.ledger.versions(slot) % 90),
                    1 => StoreRequest::Read { of: (slot + round as usize) % others, waits: false },
                    2 if !self.ledger.is_claimed() => StoreRequest::Claim,
                    _ => StoreRequest::Add,
                };
                let (asked, command) = self.ledger.ask(ask, request, slot);
                let program = &mut self.processes[node].program;
                program.asks.insert(ask, asked);
                program.waits = Some(ask);
                let makes = program.made < self.plan.groups && round % 2 == 0;
                program.next = if makes { Next::Make(round) } else { Next::OnGroup(round) };
                self.command(node, command);
                match self.random.once_in(8) {
                    true => {
                        let at = self.now + self.random.span_us(200..40_000);
                        let token = self.processes[node].program.token;
                        self.queue.put(at, Event::Program(node, token, Tick::StoreGivenUp(ask)));
                    }
                    false => self.after(node, STORE, Tick::StoreOver(ask)),
                }
            }
            Next::Make(round) => {
                let nth = process.program.made + 1;
                process.program.next = Next::OnGroup(round);
                self.make_group(node, nth, false);
            }
            Next::OnGroup(round) => return self.use_group(node, round),
            Next::Last => return self.begin_collective(node, What::Last),
        }
        Ok(())
    }

    pub(super) fn collective_done(&mut self, node: usize, collective: Collective) -> Result<(), String> {
        checks::collective(self, node, &collective)?;
        let half = self.sabotage == Some(Sabotage::LeavesEarly);
        let rounds = if half { self.plan.rounds / 2 } else { self.plan.rounds };
        let process = &mut self.processes[node];
        let slot = process.slot;
        process.program.next = match collective.what {
            What::Agree => {
                let agreed = u64::from_le_bytes(collective.result().try_into().map_err(|_| "an odd checkpoint")?);
                if agreed > self.slots[slot].done {
                    return Err(format!("node {node} is to go back to round {agreed}, which it has not done"));
                }
                if agreed < rounds {
                    Next::Round(agreed)
                } else {
                    Next::Last
                }
            }
            What::Round(round) => {
                self.slots[slot].done = self.slots[slot].done.max(round + 1);
                process.program.next = Next::Store(round);
                self.free_early(node, round);
                self.soon(node, 0..120, Tick::Go);
                return Ok(());
            }
            What::OnGroup(_, round) => Next::after(round, rounds),
            What::Last => {
                process.program.enter(Stage::Leaving);
                self.free_groups(node);
                if self.finishing.is_none() {
                    self.finishing = Some(self.now);
                    self.may_fail |= checks::somebody_is_missing(self);
                }
                self.soon(node, 0..300, Tick::Leave);
                return Ok(());
            }
        };
        self.soon(node, 0..120, Tick::Go);
        Ok(())
    }

    /// A link to a peer has ended in the middle of a collective.
    pub(super) fn suspect(&mut self, node: usize, peer: u32) {
        let Some(collective) = &self.processes[node].program.collective else { return };
        let call = collective.number;
        self.command(node, Command::Suspect { peer, evidence: "its link ended".to_owned() });
        self.after(node, VERDICT_WAIT, Tick::JudgeOver(peer, call));
    }

    fn peer(&mut self, node: usize, index: u32, state: PeerState, _: crate::error::Culprit) {
        let process = &self.processes[node];
        let needs = process.program.collective.as_ref().is_some_and(|collective| collective.needs(index));
        if !needs || !process.links.ended.contains(&index) {
            return;
        }
        match state {
            PeerState::Left => self.revoke(node, Status::PeerLeft, "has left", Some(index)),
            _ => self.revoke(node, Status::Link, "cannot be reached although it lives", None),
        }
    }

    /// Gives up on the group of its collective, or of its creation, for this cause.
    pub(super) fn revoke(&mut self, node: usize, status: Status, cause: &str, peer: Option<u32>) {
        let process = &self.processes[node];
        let Some(formed) = &process.formed else { return };
        let culprit = peer.map(|peer| formed.members[peer as usize].culprit());
        let inside = process.program.collective.as_ref().map(|collective| (collective.group, collective.sequence));
        let (group, sequence) = inside.unwrap_or((GroupId::UNIVERSE, process.program.sequence));
        let (epoch, group) = (formed.epoch, Some(group));
        let failure = Failure { status, culprit, cause: cause.to_owned(), epoch, group, sequence };
        self.processes[node].program.sentences.abandons(&failure, self.now);
        self.command(node, Command::Revoke(failure));
        self.breaks(node);
    }

    /// How far a process is, for its heartbeats.
    pub(super) fn progress(&self, node: usize) -> Vec<GroupProgress> {
        if !self.plan.recovers() {
            return self.standing(node);
        }
        let program = &self.processes[node].program;
        let made = program.sequences.iter().map(|(group, entered)| (*group, *entered));
        std::iter::once((GroupId::UNIVERSE, program.sequence))
            .chain(made)
            .map(|(group, entered)| {
                let inside = program.collective.as_ref().filter(|collective| collective.group == group);
                let (finished, call) = (entered - u64::from(inside.is_some()), inside.map(Collective::call));
                let since = self.told.entered_at(&self.processes[node], group, entered).unwrap_or(self.now);
                let age_ms = self.now.since(since).as_millis() as u64;
                GroupProgress { group, entered, finished, call, age_ms }
            })
            .collect()
    }
}
