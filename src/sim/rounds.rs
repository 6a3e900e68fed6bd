//! Collectives among the nodes: the real schedules, step by step, over links that carry frames in order.
//!
//! A link belongs to an epoch. A frame of an older epoch finds nobody that lets it in. A frame of a newer epoch waits
//! until its receiver has heard of that epoch. What a process has received it may act on at once, later, or never.

use super::checks;
use super::plan::OPERATION;
use super::program::Tick;
use super::questions::WARN_AFTER;
use super::sabotage::Sabotage;
use super::world::{Event, World};
use crate::schedules::{choose, Action, Algorithm, Buffer, Landing, Shape, Side, Span, Thresholds};
use crate::types::{Call, CallKind, DType, Epoch, GroupId, ReduceOp, Secret, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// What travels on a link.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) from: u32,
    pub(super) epoch: Epoch,
    pub(super) secret: Secret,
    pub(super) group: GroupId,
    pub(super) sequence: u64,
    pub(super) bytes: Vec<u8>,
}

/// One process's side of its links.
#[derive(Debug, Default)]
pub(super) struct Links {
    inbox: BTreeMap<(GroupId, u32), VecDeque<Frame>>,
    /// Frames of epochs that it has not heard of.
    early: Vec<Frame>,
    /// Peers whose links have ended.
    pub(super) ended: BTreeSet<u32>,
    /// Processes which this one's frames do not reach any more.
    pub(super) silent: BTreeSet<usize>,
    /// When the newest frame to each process arrives.
    newest: BTreeMap<usize, Time>,
}

/// A collective under way.
#[derive(Debug)]
pub(super) struct Collective {
    /// Its number among the calls of its program.
    pub(super) number: u64,
    pub(super) group: GroupId,
    /// The nodes' indices, in order of rank.
    pub(super) members: Vec<u32>,
    pub(super) sequence: u64,
    pub(super) what: What,
    call: Call,
    rank: u32,
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
    /// On the group of this creation, in this round.
    OnGroup(u64, u64),
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

    fn shape(&self) -> Shape<'static> {
        let (rank, size) = (self.rank, self.members.len() as u32);
        Shape { rank, size, call: self.call, in_place: false, layout: None }
    }

    /// Whether a node takes part.
    pub(super) fn needs(&self, index: u32) -> bool {
        self.members.contains(&index)
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

/// The result, if it is known beforehand.
pub(super) fn expected(collective: &Collective, epoch: Epoch) -> Option<Vec<u8>> {
    let (What::Round(round) | What::OnGroup(_, round)) = collective.what else { return None };
    let (members, count) = (&collective.members, count(epoch, round));
    let all = |member: &u32| (0..count).map(|element| given(*member, round, element)).collect::<Vec<u64>>();
    let numbers: Vec<u64> = match (collective.call.kind, collective.call.root) {
        (CallKind::Allgather, _) => members.iter().flat_map(all).collect(),
        (_, Some(root)) => all(&members[root as usize]),
        _ => {
            let add = |element, sum: u64, member: &u32| sum.wrapping_add(given(*member, round, element));
            (0..count).map(|element| members.iter().fold(0, |sum, member| add(element, sum, member))).collect()
        }
    };
    Some(numbers.into_iter().flat_map(u64::to_le_bytes).collect())
}

/// The call of a node, with the memory of its input and of its output.
fn call(what: What, index: u32, members: &[u32], epoch: Epoch, done: u64) -> (Call, Vec<u8>, Vec<u8>) {
    let call = |kind, op, root, count| Call { kind, dtype: Some(DType::Uint64), op, root, count, layout: 0 };
    let mine = |round| (0..count(epoch, round)).flat_map(move |element| given(index, round, element).to_le_bytes());
    let empty = |bytes: usize| vec![0xa5; bytes];
    match what {
        What::Agree => (call(CallKind::Allreduce, Some(ReduceOp::Min), None, 1), done.to_le_bytes().to_vec(), empty(8)),
        What::Round(round) => {
            let input: Vec<u8> = mine(round).collect();
            let output = empty(input.len());
            (call(CallKind::Allreduce, Some(ReduceOp::Sum), None, count(epoch, round)), input, output)
        }
        What::OnGroup(nth, round) => {
            let (input, count): (Vec<u8>, u64) = (mine(round).collect(), count(epoch, round));
            let root = (round % members.len() as u64) as u32;
            match (nth + round) % 3 {
                0 => {
                    let output = empty(input.len() * members.len());
                    (call(CallKind::Allgather, None, None, count), input, output)
                }
                1 => {
                    let output = if members[root as usize] == index { input } else { empty(input.len()) };
                    (call(CallKind::Broadcast, None, Some(root), count), Vec::new(), output)
                }
                _ => {
                    let output = empty(input.len());
                    (call(CallKind::Allreduce, Some(ReduceOp::Sum), None, count), input, output)
                }
            }
        }
        What::Last => {
            let call = Call { kind: CallKind::Barrier, dtype: None, op: None, root: None, count: 0, layout: 0 };
            (call, Vec::new(), Vec::new())
        }
    }
}

impl World {
    /// The program calls a collective.
    pub(super) fn begin_collective(&mut self, node: usize, what: What) -> Result<(), String> {
        let process = &mut self.processes[node];
        let Some(formed) = &process.formed else { return Ok(()) };
        let (index, epoch) = (formed.index, formed.epoch);
        let thresholds = Thresholds::from_slice(&formed.agreed.thresholds).ok_or("thresholds that nobody knows")?;
        let (group, members) = match what {
            What::OnGroup(nth, _) => process.program.groups.get(&nth).cloned().ok_or("a group that it is not in")?,
            _ => (GroupId::UNIVERSE, (0..formed.members.len() as u32).collect()),
        };
        let rank = members.iter().position(|member| *member == index).ok_or("a group without its own node")? as u32;
        let (call, input, output) = call(what, index, &members, epoch, self.slots[process.slot].done);
        let shape = Shape { rank, size: members.len() as u32, call, in_place: false, layout: None };
        let algorithm = choose(&shape, &thresholds);
        let memory = [input, output, vec![0xa5; algorithm.scratch_bytes(&shape)]];
        let program = &mut process.program;
        let entered = match group {
            GroupId::UNIVERSE => &mut program.sequence,
            _ => program.sequences.entry(group).or_default(),
        };
        *entered += 1;
        let sequence = *entered;
        program.calls += 1;
        let (number, step, receiving) = (program.calls, 0, None);
        let collective =
            Collective { number, group, members, sequence, what, call, rank, algorithm, memory, step, receiving };
        let missing = process.links.ended.iter().copied().find(|index| collective.needs(*index));
        process.program.collective = Some(collective);
        let token = process.program.token;
        self.queue.put(self.now + WARN_AFTER, Event::Program(node, token, Tick::Warn(number)));
        self.queue.put(self.now + OPERATION, Event::Program(node, token, Tick::OperationOver(number)));
        self.told.enters(epoch, group, sequence, index, self.now);
        if let Some(peer) = missing {
            self.suspect(node, peer);
        }
        self.advance(node)
    }

    /// Goes on as far as what has come allows.
    pub(super) fn advance(&mut self, node: usize) -> Result<(), String> {
        loop {
            let Some(mut collective) = self.processes[node].program.collective.take() else { return Ok(()) };
            if let Some((from, landing)) = collective.receiving {
                let from = (collective.group, collective.members[from as usize]);
                let Some(frame) = self.next_frame(node, from) else {
                    self.processes[node].program.collective = Some(collective);
                    return Ok(());
                };
                checks::acted_on(&self.processes[node], node, &frame, collective.sequence)?;
                collective.land(landing, &frame.bytes);
                collective.receiving = None;
            }
            let step = collective.step;
            collective.step += 1;
            match collective.algorithm.step(&collective.shape(), step) {
                Action::Exchange { send, receive } => {
                    if let Some((to, span)) = send {
                        self.send_frame(node, to, &collective, collective.at(span).to_vec());
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
                Action::Divide { .. } | Action::Convert { .. } | Action::SumExact { .. } => {
                    return Err("a plain sum is all that is called here".to_owned());
                }
                Action::Done => return self.collective_done(node, collective),
            }
            self.processes[node].program.collective = Some(collective);
        }
    }

    fn next_frame(&mut self, node: usize, from: (GroupId, u32)) -> Option<Frame> {
        self.processes[node].links.inbox.get_mut(&from)?.pop_front()
    }

    fn send_frame(&mut self, node: usize, to: u32, collective: &Collective, bytes: Vec<u8>) {
        let process = &self.processes[node];
        let Some(formed) = &process.formed else { return };
        let to = collective.members[to as usize];
        let peer = formed.members[to as usize].process.pid as usize - 1000;
        if process.links.ended.contains(&to) {
            return;
        }
        let (from, epoch, secret) = (formed.index, formed.epoch, formed.secret);
        let Collective { group, sequence, .. } = *collective;
        let at = (self.now + self.network.delay()).max(process.links.newest.get(&peer).copied().unwrap_or_default());
        self.processes[node].links.newest.insert(peer, at);
        if !self.processes[peer].alive {
            let later = at + self.network.delay();
            return self.queue.put(later, Event::LinkEnded { at: node, peer });
        }
        let Some(at) = self.through_gaps(node, peer, at) else { return };
        self.processes[node].links.newest.insert(peer, at);
        let mut frame = Frame { from, epoch, secret, group, sequence, bytes };
        super::sabotage::spoiled(self, collective, &mut frame);
        self.queue.put(at, Event::Frame(peer, frame));
    }

    pub(super) fn frame_arrives(&mut self, node: usize, frame: Frame) -> Result<(), String> {
        let process = &mut self.processes[node];
        let known = process.formed.as_ref().map(|formed| formed.secret);
        if process.epoch == frame.epoch && known == Some(frame.secret) || self.sabotage == Some(Sabotage::AnyEpoch) {
            process.links.inbox.entry((frame.group, frame.from)).or_default().push_back(frame);
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
        let needed = process.program.collective.as_ref().is_some_and(|collective| collective.needs(index));
        if process.links.ended.insert(index) && needed {
            self.suspect(node, index);
        }
        Ok(())
    }

    /// Every process that has a link to this process hears that it has ended.
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
                self.inbox.entry((frame.group, frame.from)).or_default().push_back(frame);
            }
        }
    }
}

/// How long a verdict is waited for.
pub(super) const VERDICT_WAIT: Duration = Duration::from_millis(250);
