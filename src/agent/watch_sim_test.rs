//! Nodes' brains without their scheduler, on virtual time, by seed. Some die, some are stopped, one may be cut off. What
//! the others do about it is compared with what really happened. A story that goes wrong is played again, and tells its
//! steps.

use super::bench::{failure, formed, profile, MS};
use super::*;
use crate::error::Status;
use crate::types::{GroupId, HostName};
use crate::wire::{self, HeartbeatEcho};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

const SEEDS: u64 = 3_000;
/// The heartbeat time-out of the stories; the interval is a fifth.
const TIMEOUT_MS: u64 = 1000;
/// When the scheduler goes.
const GOES: Time = Time(2_000 * MS);
/// If several nodes are stopped within so many milliseconds after that, all name the lowest of them.
const SOON_MS: u64 = TIMEOUT_MS * 3 / 10;
/// When all must be over.
const END: Time = Time(12_000 * MS);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Lives,
    Killed(Time),
    Stopped(Time),
    CutOff(Time),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    Stays,
    Exits,
    Leaves,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SchedulerFate {
    Killed,
    Stopped,
    Lives,
}

struct Node {
    agent: Agent,
    fate: Fate,
    after: After,
    armed: Time,
    gone: Option<Time>,
    up: Vec<u32>,
    broken: Option<(Time, Failure)>,
    has_line: bool,
}

enum Happens {
    Fed(usize, Box<Input>),
    Timer(usize, Time),
    Ends(usize),
    Look,
}

fn fed(node: usize, input: Input) -> Happens {
    Happens::Fed(node, Box::new(input))
}

struct Story {
    nodes: Vec<Node>,
    scheduler: SchedulerFate,
    random: u64,
    now: Time,
    queue: BinaryHeap<Reverse<(Time, u64)>>,
    events: std::collections::HashMap<u64, Happens>,
    count: u64,
    verbose: bool,
}

fn host_of(node: usize, hosts: usize) -> HostName {
    let name = format!("h{}", node % hosts);
    HostName { name: name.clone(), key: name }
}

impl Story {
    fn random(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % below
    }

    fn put(&mut self, at: Time, what: Happens) {
        self.count += 1;
        self.queue.push(Reverse((at, self.count)));
        self.events.insert(self.count, what);
    }

    fn new(seed: u64, verbose: bool) -> Story {
        let (nodes, events, queue) = (Vec::new(), std::collections::HashMap::new(), BinaryHeap::new());
        let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5555;
        let mut story =
            Story { nodes, scheduler: SchedulerFate::Killed, random, now: Time(0), queue, events, count: 0, verbose };
        let count = 2 + story.random(7) as usize;
        let hosts = 1 + story.random(3) as usize;
        story.scheduler = [SchedulerFate::Killed, SchedulerFate::Killed, SchedulerFate::Stopped, SchedulerFate::Lives]
            [story.random(4) as usize];
        let members = (0..count).map(|node| {
            let mut member = wire::Member::clone(&formed(1, 1).members[0]);
            (member.index, member.rank, member.node_id) = (node as u32, node as u32, node.to_string());
            member.host = host_of(node, hosts);
            Arc::new(member)
        });
        let members = wire::Members::new(members.collect());
        let cut = story.random(4) == 0;
        let victims = 1 + story.random(2).min(count as u64 - 2);
        for node in 0..count {
            let mut profile = profile();
            profile.seed = story.random(1000);
            profile.register.node_id = node.to_string();
            profile.register.worker_num = count as u32;
            profile.register.host = host_of(node, hosts);
            let agent = Agent::new(profile, Time(0));
            let after = [After::Stays, After::Exits, After::Leaves][story.random(3) as usize];
            let (fate, up) = (Fate::Lives, Vec::new());
            story.nodes.push(Node {
                agent,
                fate,
                after,
                armed: Time::NEVER,
                gone: None,
                up,
                broken: None,
                has_line: true,
            });
        }
        for _ in 0..victims {
            let victim = story.random(count as u64) as usize;
            let within = [1, SOON_MS, 3000][story.random(3) as usize];
            let later = Time(GOES.0 + story.random(within) * MS);
            story.nodes[victim].fate = match (cut, story.scheduler, story.random(2)) {
                (true, _, _) => Fate::CutOff(GOES),
                (_, SchedulerFate::Lives, _) => Fate::Lives,
                (_, _, 0) => Fate::Stopped(later),
                _ => Fate::Killed(later),
            };
            if cut {
                break;
            }
        }
        for node in 0..count {
            let (index, worker_num, members) = (node as u32, count as u32, members.clone());
            let table = wire::Formed { index, rank: index, worker_num, members, ..formed(1, 1) };
            story.feed(node, Input::Connected(Vec::new()));
            story.feed(node, Input::Received(Message::Formed(table)));
            if let Fate::Killed(at) = story.nodes[node].fate {
                story.put(at, Happens::Ends(node));
            }
        }
        story.put(GOES, Happens::Look);
        story
    }

    fn is_cut(&self, node: usize) -> bool {
        matches!(self.nodes[node].fate, Fate::CutOff(at) if self.now >= at)
    }

    fn is_stopped(&self, node: usize) -> bool {
        matches!(self.nodes[node].fate, Fate::Stopped(at) if self.now >= at)
    }

    fn has_scheduler(&self, node: usize) -> bool {
        !self.is_cut(node) && (self.now < GOES || self.scheduler == SchedulerFate::Lives)
    }

    fn say(&self, what: impl FnOnce() -> String) {
        if self.verbose {
            eprintln!("{:>9.3} {}", self.now.0 as f64 / 1e9, what());
        }
    }

    fn feed(&mut self, node: usize, input: Input) {
        if self.nodes[node].gone.is_some() {
            return;
        }
        self.say(|| format!("node {node} <- {input:?}"));
        let now = self.now;
        self.nodes[node].agent.handle(now, input);
        while let Some(output) = self.nodes[node].agent.next_output() {
            self.carry_out(node, output);
        }
    }

    fn soon(&mut self) -> Time {
        self.now + Duration::from_micros(20 + self.random(400))
    }

    fn carry_out(&mut self, node: usize, output: Output) {
        let soon = self.now + Duration::from_micros(100);
        match output {
            Output::Arm(at) => {
                self.nodes[node].armed = at;
                self.put(at.max(self.now), Happens::Timer(node, at));
            }
            Output::SendHeartbeat { sequence, .. } if self.has_scheduler(node) => {
                let echo = Message::HeartbeatEcho(HeartbeatEcho { sequence });
                self.put(soon, fed(node, Input::Received(echo)));
            }
            Output::Connect { .. } if self.now == Time(0) || self.is_cut(node) => {}
            Output::Connect { .. } if self.scheduler == SchedulerFate::Stopped => {
                self.put(soon, fed(node, Input::Connected(Vec::new())));
            }
            Output::Connect { .. } => {
                self.put(soon, fed(node, Input::ConnectFailed("refused".to_owned())));
            }
            Output::Peer(peer, what) => self.at_peer(node, peer as usize, what),
            Output::Tell(Event::Broken(failure)) => {
                self.say(|| format!("node {node} is told: {failure}"));
                let known = self.nodes[node].broken.replace((self.now, failure));
                assert!(known.is_none(), "it is told once");
                let later = self.now + Duration::from_millis(self.random(300));
                match self.nodes[node].after {
                    After::Stays => {}
                    After::Exits => self.put(later, Happens::Ends(node)),
                    After::Leaves => self.put(later, fed(node, Input::Command(Command::Leave))),
                }
            }
            Output::Tell(Event::Left(_)) => self.put(self.now, Happens::Ends(node)),
            _ => {}
        }
    }

    fn at_peer(&mut self, node: usize, peer: usize, what: ToPeer) {
        self.say(|| format!("node {node} to {peer}: {what:?}"));
        let is_near = self.nodes[node].agent.profile.register.host == self.nodes[peer].agent.profile.register.host;
        let passes = !self.is_cut(node) && !self.is_cut(peer);
        let (gone, stopped) = (self.nodes[peer].gone.is_some(), self.is_stopped(peer));
        let at = self.soon();
        let sign = |from: usize, sign| Input::of_peer(from as u32, sign);
        match what {
            ToPeer::Look => {
                let process = match (is_near, gone) {
                    (false, _) => PeerProcess::Unknown,
                    (true, false) => PeerProcess::Lives,
                    (true, true) => PeerProcess::Gone,
                };
                let seen = Seen { process, answers: passes && !gone };
                self.put(self.now, fed(node, sign(peer, PeerSign::Seen(seen))));
            }
            _ if !passes => {}
            ToPeer::Watch if gone => {
                self.put(at, fed(node, sign(peer, PeerSign::Refused("connection refused".to_owned()))));
            }
            ToPeer::Watch if stopped => {}
            ToPeer::Watch => {
                self.nodes[node].up.push(peer as u32);
                self.nodes[peer].up.push(node as u32);
                self.put(at, fed(node, sign(peer, PeerSign::Stands)));
                self.put(at, fed(peer, sign(node, PeerSign::Stands)));
            }
            ToPeer::Close => self.put(
                self.now + Duration::from_micros(450),
                fed(peer, sign(node, PeerSign::Ended("closed".to_owned()))),
            ),
            // The order is kept: what a node says later comes later.
            ToPeer::Say(word) => {
                self.put(self.now + Duration::from_micros(450), fed(peer, sign(node, PeerSign::Says(word))))
            }
        }
    }

    /// A process ends: its connections end, and the nodes that were in a call with it suspect it.
    fn ends(&mut self, node: usize) {
        if self.nodes[node].gone.is_some() || self.is_stopped(node) {
            return;
        }
        self.say(|| format!("node {node} ends"));
        self.nodes[node].gone = Some(self.now);
        for peer in 0..self.nodes.len() {
            let passes = peer != node && !self.is_cut(peer) && !self.is_cut(node);
            if passes && self.nodes[peer].up.contains(&(node as u32)) {
                let at = self.now + Duration::from_micros(600);
                self.put(at, fed(peer, Input::of_peer(node as u32, PeerSign::Ended("it ended".to_owned()))));
            }
            if passes {
                let at = self.now + Duration::from_micros(700 + self.random(20_000));
                let evidence = "its end of a link was closed".to_owned();
                self.put(at, fed(peer, Input::Command(Command::Suspect { peer: node as u32, evidence })));
            }
        }
    }

    fn scheduler_goes(&mut self) {
        for node in 0..self.nodes.len() {
            let is_told = self.scheduler == SchedulerFate::Killed && !self.is_cut(node);
            if is_told && std::mem::take(&mut self.nodes[node].has_line) {
                let at = self.soon();
                self.put(at, fed(node, Input::Closed("reset".to_owned())));
            }
        }
    }

    fn play(mut self) -> Story {
        while let Some(Reverse((at, number))) = self.queue.pop() {
            if at > END {
                break;
            }
            self.now = at;
            match self.events.remove(&number).expect("it was put there") {
                Happens::Look => self.scheduler_goes(),
                Happens::Ends(node) => self.ends(node),
                Happens::Fed(node, _) | Happens::Timer(node, _) if self.is_stopped(node) => {}
                Happens::Fed(node, input) => {
                    let is_lost = match &*input {
                        Input::Peers(signs) => signs.iter().any(|(from, sign)| {
                            let is_sent = !matches!(sign, PeerSign::Seen(_));
                            is_sent && (self.is_cut(node) || self.is_cut(*from as usize))
                        }),
                        _ => false,
                    };
                    if !is_lost {
                        self.feed(node, *input);
                    }
                }
                Happens::Timer(node, armed) => {
                    if self.nodes[node].armed == armed {
                        self.nodes[node].armed = Time::NEVER;
                        self.feed(node, Input::Timer);
                    }
                }
            }
        }
        self
    }

    /// What is wrong with the way in which the story ended.
    fn wrong(&self) -> Option<String> {
        let dead: Vec<usize> = (0..self.nodes.len()).filter(|node| self.nodes[*node].fate != Fate::Lives).collect();
        let soon = Time(GOES.0 + SOON_MS * MS);
        let at_once = dead.iter().all(|node| self.nodes[*node].fate == Fate::Killed(GOES))
            || dead.iter().all(|node| matches!(self.nodes[*node].fate, Fate::Stopped(at) if at < soon));
        let began = dead.iter().map(|node| match self.nodes[*node].fate {
            Fate::Lives => GOES,
            Fate::Killed(at) | Fate::Stopped(at) | Fate::CutOff(at) => at,
        });
        let began = began.max().unwrap_or(GOES);
        // A scheduler that stops is known to be away after the time-out, less an interval.
        let away = if self.scheduler == SchedulerFate::Killed { 0 } else { TIMEOUT_MS };
        let latest = began + Duration::from_millis(away + TIMEOUT_MS + TIMEOUT_MS / 5 + 150);
        let mut named = Vec::new();
        for (number, node) in self.nodes.iter().enumerate() {
            let culprit = |failure: &Failure| failure.culprit.as_ref().and_then(|culprit| culprit.rank);
            match (&node.fate, &node.broken) {
                (Fate::CutOff(_), Some((at, failure))) => {
                    let is_own = failure.status == Status::Unreachable && culprit(failure) == Some(number as u32);
                    if !is_own || *at > latest {
                        return Some(format!("node {number}, which is cut off, says at {at:?}: {failure}"));
                    }
                }
                (Fate::CutOff(_), None) => return Some(format!("node {number} does not find out that it is cut off")),
                (Fate::Lives, Some((at, failure))) => {
                    let rank = culprit(failure);
                    let is_right =
                        dead.iter().any(|dead| rank == Some(*dead as u32)) && failure.status == Status::PeerLost;
                    // If there are two nodes, the one that is left cannot know which of them is cut off.
                    let both_are = self.nodes.len() == 2 && failure.status == Status::Unreachable;
                    if !(is_right || both_are) || *at > latest {
                        return Some(format!("node {number} names, by {latest:?}, at {at:?}: {failure}"));
                    }
                    if at_once && rank != Some(dead[0] as u32) {
                        return Some(format!("node {number} does not name the lowest: {failure}"));
                    }
                    named.push(rank);
                }
                (Fate::Lives, None) if !dead.is_empty() && self.scheduler != SchedulerFate::Lives => {
                    return Some(format!("node {number} never hears of {dead:?}"));
                }
                _ => {}
            }
        }
        named.dedup();
        (named.len() > 1).then(|| format!("they do not agree: {named:?}"))
    }
}

#[test]
fn survivors_find_out_by_themselves_who_is_dead_and_agree() {
    let (mut told, mut cut, mut stopped) = (0, 0, 0);
    for seed in 0..SEEDS {
        let story = Story::new(seed, false).play();
        let fates: Vec<Fate> = story.nodes.iter().map(|node| node.fate).collect();
        if let Some(wrong) = story.wrong() {
            Story::new(seed, true).play();
            panic!("seed {seed}: scheduler {:?}, {fates:?}: {wrong}", story.scheduler);
        }
        told += story.nodes.iter().filter(|node| node.broken.is_some()).count();
        cut += usize::from(fates.iter().any(|fate| matches!(fate, Fate::CutOff(_))));
        stopped += usize::from(fates.iter().any(|fate| matches!(fate, Fate::Stopped(_))));
    }
    assert!(told > 1000 && cut > 100 && stopped > 100, "{told} {cut} {stopped}");
}

#[test]
fn a_group_that_was_given_up_is_why_its_member_has_gone() {
    let gives_up = failure(Status::Timeout, Some(GroupId::WORLD), "allreduce #3 on world: the time is over");
    let mut story = Story::new(1, false);
    story.scheduler = SchedulerFate::Killed;
    story.nodes.iter_mut().for_each(|node| node.fate = Fate::Lives);
    let last = story.nodes.len() - 1;
    let revoke = Input::Command(Command::Revoke(gives_up));
    story.put(Time(GOES.0 + 500 * MS), fed(last, revoke));
    story.put(Time(GOES.0 + 600 * MS), Happens::Ends(last));
    let story = story.play();
    for node in &story.nodes[..last] {
        let (_, failure) = node.broken.as_ref().expect("it needs one who has gone");
        assert_eq!(
            (failure.status, failure.cause.as_str()),
            (Status::Timeout, "allreduce #3 on world: the time is over")
        );
    }
}
