//! The nodes watch each other while the scheduler gives no sign of life, so that they know without it who is lost.
//!
//! One of them keeps the watch, the *coordinator*: the one with the lowest index that answers. All others connect to
//! it; it connects to those that do not. A node tells the coordinator what it suspects. The coordinator finds out,
//! decides and tells all. So all nodes that reach each other name the same dead node; of several dead nodes, the
//! lowest. If the coordinator itself is dead, all find that out, and it is the lowest dead node. The first loss ends a job
//! without recovery, so nobody need keep the watch after that.
//!
//! A node is dead if its process has gone or its port refuses, and if it was needed or had been heard in this watch. While
//! the coordinator's own program waits for the next epoch, every node is needed, and one that has left ends that wait. A
//! node is dead, too, if it says nothing for the heartbeat time-out. If its host still answers, it is stopped. If a node
//! is dead, and a lower one has been silent for nearly as long, the verdict waits for the lower one. A node is not dead if it said
//! before it went that it leaves, or why it gives up. A node that hears nobody at all is cut off itself, and says so.
//! A node also says so if it has heard nobody, finds all gone, and its scheduler had fallen silent before: the others may
//! have ended because this node was lost.
//!
//! Deliberately absent: judging others with recovery, for the scheduler comes back and does that; there a node only
//! says that it is cut off. Nobody judges while a node is heard that has its scheduler. `watching` feeds the watch and
//! acts on it. Tested in `agent_watch_test.rs` and by seed in `watch_sim_test.rs`.

use super::contract::{PeerProcess, Seen};
use super::line::Departure;
use super::seconds::seconds;
use crate::error::Failure;
use crate::types::{GroupId, Time};
use crate::wire::{Member, Members};
use std::collections::BTreeMap;
use std::time::Duration;

/// How many nodes beside the coordinator are asked if it does not answer, to know whether any node answers.
const OTHERS_ASKED: usize = 64;

/// What a node knows of the others by itself.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// The key of this node's host.
    pub(super) host_key: String,
    pub(super) own: u32,
    pub(super) members: Option<Members>,
    pub(super) timeout: Duration,
    pub(super) round: Option<Round>,
    pub(super) peers: BTreeMap<u32, Peer>,
    pub(super) look_at: Option<Time>,
    pub(super) beat_at: Time,
    /// How many questions this node has asked.
    pub(super) asked: u32,
}

/// A time without the scheduler.
#[derive(Debug)]
pub(super) struct Round {
    /// When anybody was heard last: the scheduler, or another node.
    pub(super) heard_at: Time,
    pub(super) began: Time,
    /// When what is known becomes the verdict.
    pub(super) settles_at: Option<Time>,
    /// Whether it has been told that this node is cut off.
    pub(super) is_cut_off: bool,
}

#[derive(Debug)]
pub(super) struct Peer {
    pub(super) standing: Standing,
    /// When the peer was heard last, or first looked for.
    pub(super) heard: Time,
    pub(super) has_scheduler: bool,
    /// Why somebody believes that it is lost.
    pub(super) suspected: Option<String>,
    /// How its last connection of this watch ended, without a word.
    pub(super) ended: Option<String>,
    /// The number of the newest question when the connection ended, or when the peer became a suspect. An answer to
    /// that question, or to an earlier one, may have been said before.
    pub(super) in_doubt_since: u32,
    /// Why it has given up, and when it said so.
    pub(super) followed: Option<(Failure, Time)>,
    /// What the last look has shown; none since the peer was heard.
    pub(super) seen: Option<Seen>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// No connection stands yet, or any more; nobody tries to make one.
    Down,
    /// No connection stands yet, or any more; an attempt is under way.
    Dialled,
    Up,
    Refused(String),
    Left,
}

impl Standing {
    /// Whether the peer has neither left nor refused a connection: it is to be heard.
    pub(super) fn is_sought(&self) -> bool {
        matches!(self, Standing::Down | Standing::Dialled | Standing::Up)
    }
}

/// What a watch has found out.
#[derive(Debug)]
pub(super) enum Finding {
    Lost(u32, String),
    /// A node has left, and without it there is no next epoch, for which the program waits.
    Left(u32),
    /// A node that somebody needs has gone after it gave up, for this cause.
    Followed(Failure),
    CutOff(Duration),
    /// All are gone, and may have gone after they had judged this node.
    LeftBehind(Duration),
}

impl Watch {
    pub(super) fn new(host_key: &str) -> Watch {
        Watch { host_key: host_key.to_owned(), ..Watch::default() }
    }

    pub(super) fn interval(&self) -> Duration {
        self.timeout / 5
    }

    fn members(&self) -> &[std::sync::Arc<Member>] {
        self.members.as_deref().unwrap_or_default()
    }

    pub(super) fn member(&self, index: u32) -> Option<Member> {
        self.members.as_ref()?.find(index)
    }

    pub(super) fn is_alone(&self) -> bool {
        self.members.as_ref().is_none_or(|members| members.len() < 2)
    }

    pub(super) fn deadline(&self) -> Time {
        self.look_at.unwrap_or(Time::NEVER)
    }

    /// This process stood still: nobody could be heard in that time.
    pub(super) fn paused(&mut self, now: Time, late: Duration) {
        self.peers.values_mut().for_each(|peer| peer.heard.forgive(late, now));
    }

    pub(super) fn peer(&mut self, index: u32, now: Time) -> &mut Peer {
        self.peers.entry(index).or_insert(Peer {
            standing: Standing::Down,
            heard: now,
            has_scheduler: false,
            suspected: None,
            ended: None,
            in_doubt_since: 0,
            followed: None,
            seen: None,
        })
    }

    /// The node that keeps the watch, as far as this node knows: the lowest that is not known to be gone; this node, if
    /// no lower one is left.
    pub(super) fn coordinator(&self) -> u32 {
        let is_out = |index: &u32| self.peers.get(index).is_some_and(|peer| peer.is_out(self.timeout));
        self.members()
            .iter()
            .map(|member| member.index)
            .take_while(|index| *index < self.own)
            .find(|it| !is_out(it))
            .unwrap_or(self.own)
    }

    pub(super) fn up(&self) -> Vec<u32> {
        self.peers.iter().filter(|(_, peer)| peer.standing == Standing::Up).map(|(index, _)| *index).collect()
    }

    fn hears(&self, peer: &Peer, now: Time) -> bool {
        peer.standing == Standing::Up && now.since(peer.heard) < self.timeout
    }

    /// The nodes that this node should be connected to, and is not.
    pub(super) fn wanted(&self, now: Time) -> Vec<u32> {
        let Some(round) = &self.round else { return Vec::new() };
        let (coordinator, others) =
            (self.coordinator(), self.members().iter().map(|member| member.index).filter(|it| *it != self.own));
        let is_soon = |peer: &Peer| peer.standing == Standing::Up && now.since(peer.heard) < self.interval() * 2;
        let is_heard = self.peers.get(&coordinator).is_some_and(is_soon);
        let waited = now.since(round.began);
        let mut wanted: Vec<u32> = match coordinator == self.own {
            // The others are connecting: two connections with each would be one too many.
            true if waited < self.interval() / 4 => Vec::new(),
            true => others.collect(),
            false if is_heard || waited < self.interval() => vec![coordinator],
            false => others.take(OTHERS_ASKED).collect(),
        };
        wanted.extend(self.peers.iter().filter(|(_, peer)| peer.suspected.is_some()).map(|(index, _)| *index));
        wanted.sort_unstable();
        wanted.dedup();
        wanted.retain(|index| self.peers.get(index).is_none_or(|peer| peer.standing == Standing::Down));
        wanted
    }

    /// Why this peer is dead, if it is.
    fn death(&self, peer: &Peer, now: Time, is_heard: bool, needs_all: bool) -> Option<String> {
        let waits = needs_all.then_some("muster_recover waits for it");
        let was_needed = peer.ended.as_deref().or(peer.suspected.as_deref()).or(waits);
        let silent = now.since(peer.heard);
        match &peer.standing {
            Standing::Left => None,
            _ if peer.followed(self.timeout).is_some() => None,
            Standing::Refused(how) => {
                let lives = peer.seen.is_some_and(|seen| seen.process == PeerProcess::Lives);
                was_needed.filter(|_| !lives).map(|evidence| format!("{evidence}, and {how}"))
            }
            Standing::Down | Standing::Dialled | Standing::Up => match peer.seen {
                Some(Seen { process: PeerProcess::Gone, .. }) if was_needed.is_some() => {
                    was_needed.map(|evidence| format!("{evidence}, and its process has ended"))
                }
                Some(Seen { answers: true, .. }) if silent >= self.timeout => Some(format!(
                    "it has said nothing for {} though its host answers: it is stopped, or stuck",
                    seconds(silent)
                )),
                Some(Seen { answers: false, .. }) if silent >= self.timeout && is_heard => {
                    Some(format!("it has not been heard for {}, and its host does not answer", seconds(silent)))
                }
                _ => None,
            },
        }
    }

    /// How long it takes until all lower nodes are known to be dead or not: an interval at most. A node that has been
    /// silent for less has a right to its whole time.
    pub(super) fn doubt_below(&self, index: u32, now: Time) -> Duration {
        let ends = self.timeout - self.interval();
        let is_in_doubt = |peer: &&Peer| peer.standing.is_sought() && now.since(peer.heard) >= ends;
        let lower = self.peers.range(..index).map(|(_, peer)| peer).filter(is_in_doubt);
        lower.map(|peer| self.timeout.saturating_sub(now.since(peer.heard))).max().unwrap_or_default()
    }

    /// Whether any other host or process shows that this node reaches it.
    fn reaches_somebody(&self, now: Time) -> bool {
        let is_elsewhere = |index: u32| self.member(index).is_some_and(|member| member.host.key != self.host_key);
        self.peers.iter().any(|(index, peer)| match &peer.standing {
            Standing::Up if self.hears(peer, now) && now.since(peer.heard) < self.interval() * 5 / 2 => true,
            Standing::Refused(_) => is_elsewhere(*index),
            Standing::Left => false,
            _ => peer.seen.is_some_and(|seen| seen.answers),
        })
    }

    /// Whether nobody was heard in this watch, and the node `dead` has gone: then nobody tells what came first.
    fn is_left_alone(&self, round: &Round, dead: u32) -> bool {
        let has_gone = |peer: &Peer| {
            matches!(peer.standing, Standing::Refused(_))
                || peer.seen.is_some_and(|seen| seen.process == PeerProcess::Gone)
        };
        round.heard_at <= round.began && self.peers.get(&dead).is_some_and(has_gone)
    }

    /// What is known by now. `needs_all`: the program waits for the next epoch, which takes every node.
    pub(super) fn find(&self, now: Time, judges: bool, needs_all: bool, departure: Departure) -> Option<Finding> {
        let round = self.round.as_ref()?;
        let is_heard = self.reaches_somebody(now);
        if self.peers.values().any(|peer| peer.has_scheduler && self.hears(peer, now)) {
            return None;
        }
        let silent = now.since(round.heard_at);
        let is_sought = |peer: &&Peer| peer.standing.is_sought();
        let is_deaf = |peer: &Peer| {
            now.since(peer.heard) >= self.interval() * 5 / 2 && peer.seen.is_some_and(|seen| !seen.answers)
        };
        let mut sought = self.peers.values().filter(is_sought).peekable();
        if !is_heard && silent >= self.timeout && sought.peek().is_some() && sought.all(is_deaf) {
            return Some(Finding::CutOff(silent));
        }
        if !judges {
            return None;
        }
        let death = |peer: &Peer| self.death(peer, now, is_heard, needs_all);
        let dead = self.peers.iter().find_map(|(index, peer)| Some((*index, death(peer)?)));
        let coordinator = self.coordinator();
        let is_dead = |peer: &Peer| death(peer).is_some();
        // If the coordinator is dead, all find that out; what else each node knows was told to no other.
        let decides = coordinator == self.own || self.peers.get(&coordinator).is_some_and(is_dead);
        if !decides {
            return None;
        }
        if let Some((index, why)) = dead {
            return match departure {
                Departure::Seen => Some(Finding::Lost(index, why)),
                _ if !self.is_left_alone(round, index) => Some(Finding::Lost(index, why)),
                Departure::Unseen => Some(Finding::LeftBehind(silent)),
                Departure::Open => None,
            };
        }
        let left = self.peers.iter().find(|(_, peer)| needs_all && peer.standing == Standing::Left);
        if let Some((index, _)) = left {
            return Some(Finding::Left(*index));
        }
        let gone = self.peers.values().find(|peer| peer.suspected.is_some() && peer.standing != Standing::Up);
        gone.and_then(|peer| peer.followed(self.timeout).cloned()).map(Finding::Followed)
    }
}

impl Peer {
    /// Whether this peer cannot keep the watch, and is not dead for that.
    fn is_out(&self, patience: Duration) -> bool {
        matches!(self.standing, Standing::Left | Standing::Refused(_))
            || (self.followed(patience).is_some() && self.standing != Standing::Up)
    }

    /// The cause for which this peer may have gone. A program may not mind the end of a group that it made: a peer that
    /// is heard for longer than the heartbeat time-out after it gave up has gone on.
    fn followed(&self, patience: Duration) -> Option<&Failure> {
        let is_why = |(failure, said): &&(Failure, Time)| {
            failure.group.is_none_or(|group| group <= GroupId::UNIVERSE) || self.heard.since(*said) <= patience
        };
        self.followed.as_ref().filter(is_why).map(|(failure, _)| failure)
    }

    /// A round begins: what came before it counts for nothing, except that a node has left.
    pub(super) fn begin(now: Time) -> impl Fn(&mut Peer) {
        move |peer| {
            (peer.heard, peer.has_scheduler, peer.seen) = (now, false, None);
            if matches!(peer.standing, Standing::Refused(_)) {
                peer.standing = Standing::Down;
            }
        }
    }
}
