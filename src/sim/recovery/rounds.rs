//! Collectives among the nodes: the real schedules, step by step, over links that carry frames in order.
//!
//! A link belongs to an epoch: a frame of an older one finds nobody who lets it in, one of a newer one waits until its
//! receiver has heard of that. What a process has received it may act on at once, later, or never.

use super::checks;
use super::node::Process;
use super::plan::OPERATION;
use super::program::Tick;
use super::sabotage::Sabotage;
use super::world::{Event, World};
use crate::collective::{choose, Action, Algorithm, Buffer, Landing, Shape, Side, Span, Thresholds};
use crate::types::{Call, CallKind, DType, Epoch, ReduceOp, Secret, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// What travels on a link.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) from: u32,
    pub(super) epoch: Epoch,
    pub(super) secret: Secret,
    pub(super) sequence: u64,
    pub(super) bytes: Vec<u8>,
}

/// One process's side of its links.
#[derive(Debug, Default)]
pub(super) struct Links {
    inbox: BTreeMap<u32, VecDeque<Frame>>,
    /// Of epochs that it has not heard of.
    early: Vec<Frame>,
    /// Peers whose links have ended.
    pub(super) ended: BTreeSet<u32>,
    /// When the newest frame to each process arrives.
    newest: BTreeMap<usize, Time>,
}

/// A collective under way.
#[derive(Debug)]
pub(super) struct Collective {
    pub(super) sequence: u64,
    pub(super) what: What,
    call: Call,
    rank: u32,
    size: u32,
    algorithm: &'static Algorithm,
    memory: [Vec<u8>; 3],
    step: u32,
    receiving: Option<(u32, Landing)>,
}

/// What it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// The checkpoint that all have.
    Agree,
    Round(u64),
    /// All have done everything.
    Last,
}

impl Collective {
    fn at(&self, span: Span) -> &[u8] {
        &self.memory[place(span.buffer)][span.offset..span.offset + span.len]
    }

    fn write(&mut self, span: Span, bytes: &[u8]) {
        self.memory[place(span.buffer)][span.offset..span.offset + span.len].copy_from_slice(bytes);
    }

    fn reduce(&mut self, mine: Span, other: &[u8], into: Span) {
        let least = self.call.op == Some(ReduceOp::Min);
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        let both = self.at(mine).chunks_exact(8).zip(other.chunks_exact(8));
        let result: Vec<u8> = both
            .flat_map(|(one, other)| {
                let (one, other) = (word(one), word(other));
                (if least { one.min(other) } else { one.wrapping_add(other) }).to_le_bytes()
            })
            .collect();
        self.write(into, &result);
    }

    fn land(&mut self, landing: Landing, bytes: &[u8]) {
        match landing {
            Landing::Place(span) => self.write(span, bytes),
            Landing::Reduce { mine, into, arrives: Side::Lower | Side::Higher } => self.reduce(mine, bytes, into),
        }
    }

    pub(super) fn result(&self) -> &[u8] {
        &self.memory[1]
    }

    pub(super) fn call(&self) -> Call {
        self.call
    }
}

fn place(buffer: Buffer) -> usize {
    match buffer {
        Buffer::Input => 0,
        Buffer::Output => 1,
        Buffer::Scratch => 2,
    }
}

/// How many elements a round has, in which epoch.
fn count(epoch: Epoch, round: u64) -> u64 {
    [1, 3, 40, 700, 3000][((epoch.0 * 7 + round * 3) % 5) as usize]
}

/// What a rank gives to a round.
fn given(rank: u32, round: u64, element: u64) -> u64 {
    (u64::from(rank) + 1).wrapping_mul(round * 1_000_003 + element + 17)
}

/// What comes out of a round.
pub(super) fn expected(size: u32, epoch: Epoch, round: u64) -> Vec<u8> {
    let sum = |element| (0..size).fold(0u64, |sum, rank| sum.wrapping_add(given(rank, round, element)));
    (0..count(epoch, round)).flat_map(|element| sum(element).to_le_bytes()).collect()
}

impl World {
    /// The program calls a collective.
    pub(super) fn begin_collective(&mut self, node: usize, what: What) -> Result<(), String> {
        let process = &mut self.processes[node];
        let Some(formed) = &process.formed else { return Ok(()) };
        let (rank, size, epoch) = (formed.index, formed.members.len() as u32, formed.epoch);
        let thresholds = Thresholds::from_slice(&formed.agreed.thresholds).ok_or("thresholds that nobody knows")?;
        let call = |kind, op, count| Call { kind, dtype: Some(DType::Uint64), op, root: None, count, layout: 0 };
        let done = self.slots[process.slot].done;
        let (call, input): (Call, Vec<u8>) = match what {
            What::Agree => (call(CallKind::Allreduce, Some(ReduceOp::Min), 1), done.to_le_bytes().to_vec()),
            What::Round(round) => {
                let count = count(epoch, round);
                let given = (0..count).flat_map(|element| given(rank, round, element).to_le_bytes()).collect();
                (call(CallKind::Allreduce, Some(ReduceOp::Sum), count), given)
            }
            What::Last => {
                (Call { kind: CallKind::Barrier, dtype: None, op: None, root: None, count: 0, layout: 0 }, Vec::new())
            }
        };
        let shape = Shape { rank, size, call, in_place: false, layout: None };
        let algorithm = choose(&shape, &thresholds);
        let memory = [input.clone(), vec![0xa5; input.len()], vec![0xa5; (algorithm.scratch_bytes)(&shape)]];
        process.program.sequence += 1;
        let sequence = process.program.sequence;
        let collective = Collective { sequence, what, call, rank, size, algorithm, memory, step: 0, receiving: None };
        process.program.collective = Some(collective);
        let token = process.program.token;
        self.queue.put(self.now + OPERATION, Event::Program(node, token, Tick::OperationOver(sequence)));
        if let Some(peer) = self.processes[node].links.ended.first().copied() {
            self.suspect(node, peer);
        }
        self.advance(node)
    }

    /// Goes on as far as what has come allows.
    pub(super) fn advance(&mut self, node: usize) -> Result<(), String> {
        loop {
            let Some(mut collective) = self.processes[node].program.collective.take() else { return Ok(()) };
            if let Some((from, landing)) = collective.receiving {
                let Some(frame) = self.next_frame(node, from) else {
                    self.processes[node].program.collective = Some(collective);
                    return Ok(());
                };
                checks::acted_on(&self.processes[node], node, &frame, collective.sequence)?;
                collective.land(landing, &frame.bytes);
                collective.receiving = None;
            }
            let Collective { rank, size, call, step, .. } = collective;
            let shape = Shape { rank, size, call, in_place: false, layout: None };
            collective.step += 1;
            match (collective.algorithm.step)(&shape, step) {
                Action::Exchange { send, receive } => {
                    if let Some((to, span)) = send {
                        self.send_frame(node, to, collective.sequence, collective.at(span).to_vec());
                    }
                    collective.receiving = receive;
                }
                Action::Copy { from, to } => {
                    let bytes = collective.at(from).to_vec();
                    collective.write(to, &bytes);
                }
                Action::Reduce { mine, other, into, .. } => {
                    let other = collective.at(other).to_vec();
                    collective.reduce(mine, &other, into);
                }
                Action::Divide { .. } => return Err("a sum is divided".to_owned()),
                Action::Done => return self.collective_done(node, collective),
            }
            self.processes[node].program.collective = Some(collective);
        }
    }

    fn next_frame(&mut self, node: usize, from: u32) -> Option<Frame> {
        self.processes[node].links.inbox.get_mut(&from)?.pop_front()
    }

    fn send_frame(&mut self, node: usize, to: u32, sequence: u64, mut bytes: Vec<u8>) {
        let process = &self.processes[node];
        let Some(formed) = &process.formed else { return };
        let peer = formed.members[to as usize].process.pid as usize - 1000;
        if process.links.ended.contains(&to) {
            return;
        }
        if self.sabotage == Some(Sabotage::WrongResult) && self.random.once_in(200) {
            bytes.iter_mut().take(1).for_each(|byte| *byte ^= 4);
        }
        let (from, epoch, secret) = (formed.index, formed.epoch, formed.secret);
        let at = (self.now + self.network.delay()).max(process.links.newest.get(&peer).copied().unwrap_or_default());
        self.processes[node].links.newest.insert(peer, at);
        if !self.processes[peer].alive {
            let later = at + self.network.delay();
            return self.queue.put(later, Event::LinkEnded { at: node, peer });
        }
        self.queue.put(at, Event::Frame(peer, Frame { from, epoch, secret, sequence, bytes }));
    }

    pub(super) fn frame_arrives(&mut self, node: usize, frame: Frame) -> Result<(), String> {
        let process = &mut self.processes[node];
        let known = process.formed.as_ref().map(|formed| formed.secret);
        if process.epoch == frame.epoch && known == Some(frame.secret) || self.sabotage == Some(Sabotage::AnyEpoch) {
            process.links.inbox.entry(frame.from).or_default().push_back(frame);
            return self.advance(node);
        }
        if frame.epoch > process.epoch {
            process.links.early.push(frame);
        }
        Ok(())
    }

    /// A process's link to another has ended.
    pub(super) fn link_ended(&mut self, node: usize, peer: usize) -> Result<(), String> {
        let process = &mut self.processes[node];
        let Some(formed) = &process.formed else { return Ok(()) };
        let pid = 1000 + peer as u32;
        let Some(member) = formed.members.iter().find(|member| member.process.pid == pid) else { return Ok(()) };
        let index = member.index;
        if process.links.ended.insert(index) && process.program.collective.is_some() {
            self.suspect(node, index);
        }
        Ok(())
    }

    /// Everybody who has a link to this process hears that it has ended.
    pub(super) fn end_links(&mut self, dead: usize) {
        for node in 0..self.processes.len() {
            let at = self.now + self.network.delay() + self.random.span_us(0..3000);
            if node != dead && self.processes[node].alive && self.processes[node].epoch.0 > 0 {
                self.queue.put(at, Event::LinkEnded { at: node, peer: dead });
            }
        }
    }
}

impl Links {
    /// A new epoch: nothing is left of the one before, and what came early is let in.
    pub(super) fn renew(&mut self, epoch: Epoch, secret: Secret, keeps: bool) {
        let inbox = std::mem::take(&mut self.inbox);
        let early = std::mem::take(&mut self.early);
        *self = Links { newest: std::mem::take(&mut self.newest), ..Links::default() };
        if keeps {
            self.inbox = inbox;
        }
        for frame in early {
            if frame.epoch > epoch {
                self.early.push(frame);
            } else if (frame.epoch, frame.secret) == (epoch, secret) {
                self.inbox.entry(frame.from).or_default().push_back(frame);
            }
        }
    }
}

impl Process {
    /// How long a collective may go on being looked for in heartbeats.
    pub(super) fn entered(&self) -> Option<(u64, Call)> {
        self.program.collective.as_ref().map(|collective| (collective.sequence, collective.call()))
    }
}

/// How long a verdict is waited for.
pub(super) const VERDICT_WAIT: Duration = Duration::from_millis(250);
