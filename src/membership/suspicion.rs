//! The true culprit: what nodes say of each other, and whose loss is only the consequence of another's.
//!
//! A node that closes after it suspected X is not called lost before X has been judged. If X is lost, the node's end is
//! a consequence of that. If X has been heard again since, the node is a culprit of its own. Tested in
//! `suspicion_test.rs`.

use super::cluster_state::ClusterState;
use super::node::{Suspicion, Witness};
use super::standing::Presence;
use super::timers::{Due, HELD};
use crate::types::Time;
use crate::wire::{Message, PeerReport, PeerState, Suspect, Verdict};
use std::time::Duration;

/// How often a loss is looked at that waits for another node's judgement.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// How far blame is followed from node to node. Beyond that, a node waits for the nearer ones to be judged.
const CHAIN_MAX: usize = 32;

/// What comes of the search for the culprit behind a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Search {
    /// This node is the culprit.
    Culprit(u32),
    /// The culprit is not known yet: it is looked for again at this time.
    Again(Time),
}

impl ClusterState {
    /// A node found something wrong with a peer. Returns whether that is to be looked into.
    pub(super) fn suspect(&mut self, now: Time, key: u32, suspect: Suspect) -> bool {
        let peer = suspect.peer;
        if let Some(failure) = self.job.verdict().cloned() {
            self.send_to(key, Message::Verdict(Verdict { failure }));
            return false;
        }
        let Some(suspected) = self.nodes.get_mut(peer).filter(|_| peer != key) else {
            self.out.note(format!("node {key} suspects node {peer}, which is not one of its peers"));
            return false;
        };
        if suspected.presence == Presence::Left {
            let culprit = suspected.culprit();
            self.send_to(key, Message::PeerReport(PeerReport { peer, state: PeerState::Left, culprit }));
            return false;
        }
        let is_known = |witness: &Witness| witness.by.is_none() && !witness.is_disproved(suspected.contact.heard);
        if !suspected.evidence.witness.as_ref().is_some_and(is_known) {
            suspected.evidence.witness = Some(Witness { by: Some(key), at: now, evidence: suspect.evidence });
        }
        if let Some(node) = self.nodes.get_mut(key) {
            node.suspect(peer, now);
        }
        self.out.at(now + HELD, Due::Answer(key));
        true
    }

    /// Answers what this node asked, as far as it is known by now.
    pub(super) fn answer_suspicions(&mut self, now: Time, key: u32) {
        let (silence, is_broken) = (self.silence(), self.job.is_broken());
        let Some(node) = self.nodes.get(&key) else { return };
        if is_broken || node.conn().is_none() {
            return;
        }
        let mut reports = Vec::new();
        let mut next = None;
        for (at, suspicion) in node.suspicions.iter().enumerate().filter(|(_, suspicion)| !suspicion.answered) {
            let Some(peer) = self.nodes.get(&suspicion.peer) else { continue };
            let state = match peer.presence {
                Presence::Left => Some(PeerState::Left),
                _ if self.is_cleared(now, suspicion) => Some(PeerState::Alive),
                _ => None,
            };
            if let Some(state) = state {
                reports.push((at, PeerReport { peer: suspicion.peer, state, culprit: peer.culprit() }));
            } else if now.since(suspicion.at) < silence {
                let due = (suspicion.at + HELD).max(now + LOOK_AGAIN);
                next = Some(next.map_or(due, |earliest: Time| earliest.min(due)));
            }
        }
        for (at, report) in reports {
            if let Some(node) = self.nodes.get_mut(key) {
                node.suspicions[at].answered = true;
            }
            self.send_to(key, Message::PeerReport(report));
        }
        if let Some(due) = next {
            self.out.at(due, Due::Answer(key));
        }
    }

    /// Whether the suspect has shown since then that it lives. A suspect that does not hear may be cut off from all
    /// nodes, and not only from the one that suspects it: heartbeats show that after two intervals.
    fn is_cleared(&self, now: Time, suspicion: &Suspicion) -> bool {
        self.nodes.get(&suspicion.peer).is_none_or(|peer| match peer.presence {
            Presence::Member => {
                let is_well = peer.conn().is_some()
                    && !peer.is_confirmed_lost()
                    && peer.contact.unhearing(now) <= self.interval() * 2;
                is_well && peer.contact.heard > suspicion.at && now >= suspicion.at + HELD
            }
            Presence::Left => true,
            Presence::Lost { .. } => false,
        })
    }

    /// Follows the suspicions from a node whose loss is confirmed to the node that is the cause, if that is known yet.
    pub(super) fn find_culprit(&self, now: Time, key: u32) -> Search {
        let has_waited = now.since(self.nodes.gone_since(key)) >= self.silence() * 2;
        match self.nodes.abandoned_earlier(key) {
            Some(first) if self.nodes.is_confirmed_lost(first) => return Search::Culprit(first),
            Some(_) if !has_waited => return Search::Again(now + LOOK_AGAIN),
            _ => {}
        }
        let mut chain = vec![key];
        while let Some(blamed) = chain.last().and_then(|last| self.blames(now, *last)) {
            if chain.len() == CHAIN_MAX {
                break;
            }
            if let Some(start) = chain.iter().position(|known| *known == blamed) {
                // They blame each other: the one that went first is the culprit.
                let first = chain[start..].iter().copied().min_by_key(|known| (self.nodes.gone_since(*known), *known));
                return Search::Culprit(first.unwrap_or(key));
            }
            chain.push(blamed);
        }
        let last = chain.last().copied().unwrap_or(key);
        if chain.len() < CHAIN_MAX && self.nodes.is_confirmed_lost(last) {
            return Search::Culprit(last);
        }
        if has_waited {
            // The blamed node has had every chance to be found lost: the culprit is the last that is certainly gone.
            let gone = chain.iter().rev().copied().find(|key| self.nodes.is_confirmed_lost(*key));
            return Search::Culprit(gone.unwrap_or(key));
        }
        // A blamed node that is gone has a search of its own, which follows its blame further. This one need not look often.
        let blames_the_gone = chain.get(1).is_some_and(|blamed| self.nodes.is_confirmed_lost(*blamed));
        Search::Again(now + if blames_the_gone { self.interval().max(LOOK_AGAIN) } else { LOOK_AGAIN })
    }

    /// The peer that a node suspected shortly before it went, if that node's loss is confirmed and the peer has not
    /// been cleared since. A peer that is still to be judged comes before one that is gone, too.
    fn blames(&self, now: Time, key: u32) -> Option<u32> {
        let node = self.nodes.get(&key).filter(|node| node.is_confirmed_lost())?;
        let (gone, silence) = (self.nodes.gone_since(key), self.silence());
        let mut gone_too = None;
        for suspicion in node.suspicions.iter().filter(|suspicion| gone.since(suspicion.at) < silence) {
            if self.is_cleared(now, suspicion) {
                continue;
            }
            if self.nodes.get(&suspicion.peer).is_some_and(|peer| !peer.is_confirmed_lost()) {
                return Some(suspicion.peer);
            }
            gone_too = gone_too.or(Some(suspicion.peer));
        }
        gone_too
    }
}

#[cfg(test)]
#[path = "suspicion_test.rs"]
mod tests;
