//! The true culprit: what nodes say of each other, and whose loss is only the consequence of another's.
//!
//! A node that closes after it suspected X is not called lost before X has been judged: X lost, it is a consequence; X
//! heard again since, it is a culprit of its own. Tested in `suspicion_test.rs`.

use super::node::{Suspicion, Witness};
use super::standing::Presence;
use super::timers::{Due, HELD};
use super::Scheduler;
use crate::types::Time;
use crate::wire::{Message, PeerReport, PeerState, Suspect, Verdict};
use std::time::Duration;

/// How often something that waits for another's judgement is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// How far blame is followed from node to node; beyond that one waits for the nearer ones to be judged.
const CHAIN_MAX: usize = 32;

impl Scheduler {
    pub(super) fn suspect(&mut self, now: Time, key: u32, suspect: Suspect) {
        let peer = suspect.peer;
        if let Some(failure) = self.job.verdict().cloned() {
            return self.send_to(key, Message::Verdict(Verdict { failure }));
        }
        let Some(suspected) = self.nodes.get_mut(&peer).filter(|_| peer != key) else {
            return self.note(format!("node {key} suspects node {peer}, which is not one of its peers"));
        };
        if suspected.presence == Presence::Left {
            let culprit = suspected.culprit();
            return self.send_to(key, Message::PeerReport(PeerReport { peer, state: PeerState::Left, culprit }));
        }
        let is_known = |witness: &Witness| witness.by.is_none() && !witness.is_disproved(suspected.heard);
        if !suspected.witness.as_ref().is_some_and(is_known) {
            suspected.witness = Some(Witness { by: Some(key), at: now, evidence: suspect.evidence });
        }
        if let Some(node) = self.nodes.get_mut(&key) {
            node.suspect(peer, now);
        }
        self.timers.at(now + HELD, Due::Answer(key));
        self.look_into(now, peer);
    }

    /// Something may be wrong with a node: it is asked for a sign, or judged where it cannot be asked.
    pub(super) fn look_into(&mut self, now: Time, key: u32) {
        if self.nodes.get(&key).is_some_and(|node| node.conn.is_some()) {
            self.probe(key);
            self.ask_for_heartbeat(now, key);
        } else {
            self.judge_soon(now, key);
        }
    }

    /// Answers what this node asked, as far as it is known by now.
    pub(super) fn answer_suspicions(&mut self, now: Time, key: u32) {
        let (silence, is_broken) = (self.silence(), self.job.is_broken());
        let Some(node) = self.nodes.get(&key) else { return };
        if is_broken || node.conn.is_none() {
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
            if let Some(node) = self.nodes.get_mut(&key) {
                node.suspicions[at].answered = true;
            }
            self.send_to(key, Message::PeerReport(report));
        }
        if let Some(due) = next {
            self.timers.at(due, Due::Answer(key));
        }
    }

    /// Whether the suspect has shown since then that it lives. One that does not hear may be cut off from all, and not only from
    /// who suspects it: heartbeats show that after two intervals.
    fn is_cleared(&self, now: Time, suspicion: &Suspicion) -> bool {
        self.nodes.get(&suspicion.peer).is_none_or(|peer| match peer.presence {
            Presence::Member => {
                let is_well =
                    peer.conn.is_some() && peer.confirmed_lost.is_none() && peer.unhearing(now) <= self.interval() * 2;
                is_well && peer.heard > suspicion.at && now >= suspicion.at + HELD
            }
            Presence::Left => true,
            Presence::Lost { .. } => false,
        })
    }

    /// This node is lost for certain, for this cause.
    pub(super) fn confirm_lost(&mut self, now: Time, key: u32, cause: String) {
        let Some(node) = self.nodes.get_mut(&key).filter(|node| node.is_member()) else { return };
        node.confirmed_lost = Some(format!("{cause}{}", node.heard_in(now)));
        if self.job.is_broken() {
            return self.gone_after_verdict(now, key);
        }
        self.find_culprit(now, key);
    }

    /// Follows the suspicions from a node whose loss is confirmed to the one that is the cause, if that is known yet.
    pub(super) fn find_culprit(&mut self, now: Time, key: u32) {
        if self.job.is_broken() || !self.job.is_complete() {
            return;
        }
        let has_waited = now.since(self.gone_since(key)) >= self.silence() * 2;
        match self.abandoned_earlier(key) {
            Some(first) if self.nodes[&first].confirmed_lost.is_some() => return self.verdict_on(now, first),
            Some(_) if !has_waited => return self.timers.at(now + LOOK_AGAIN, Due::Judge(key)),
            _ => {}
        }
        let mut chain = vec![key];
        while let Some(blamed) = chain.last().and_then(|last| self.blames(now, *last)) {
            if chain.len() == CHAIN_MAX {
                break;
            }
            if let Some(start) = chain.iter().position(|known| *known == blamed) {
                // They blame each other: the one that went first.
                let first = chain[start..].iter().copied().min_by_key(|known| (self.gone_since(*known), *known));
                return self.verdict_on(now, first.unwrap_or(key));
            }
            chain.push(blamed);
        }
        let last = chain.last().copied().unwrap_or(key);
        let is_confirmed_lost = |key: &u32| self.nodes.get(key).is_some_and(|node| node.confirmed_lost.is_some());
        if chain.len() < CHAIN_MAX && is_confirmed_lost(&last) {
            return self.verdict_on(now, last);
        }
        if has_waited {
            // The node that is blamed has had every chance to be found lost: the last that is certainly gone.
            let gone = chain.iter().rev().copied().find(is_confirmed_lost);
            return self.verdict_on(now, gone.unwrap_or(key));
        }
        // A node that is blamed and gone looks at the next one itself, and often enough for all.
        let blames_the_gone = chain.get(1).is_some_and(is_confirmed_lost);
        let again = if blames_the_gone { self.interval().max(LOOK_AGAIN) } else { LOOK_AGAIN };
        self.timers.at(now + again, Due::Judge(key));
    }

    /// Whom a node whose loss is confirmed suspected shortly before it went, and who has not been cleared since: rather one who is still
    /// to be judged than one who is gone too.
    fn blames(&self, now: Time, key: u32) -> Option<u32> {
        let node = self.nodes.get(&key)?;
        node.confirmed_lost.as_ref()?;
        let (gone, silence) = (self.gone_since(key), self.silence());
        let mut gone_too = None;
        for suspicion in node.suspicions.iter().filter(|suspicion| gone.since(suspicion.at) < silence) {
            if self.is_cleared(now, suspicion) {
                continue;
            }
            if self.nodes.get(&suspicion.peer).is_some_and(|peer| peer.confirmed_lost.is_none()) {
                return Some(suspicion.peer);
            }
            gone_too = gone_too.or(Some(suspicion.peer));
        }
        gone_too
    }

    /// Since when a node whose loss is confirmed has been gone: its connection ended, or it was last heard.
    pub(super) fn gone_since(&self, key: u32) -> Time {
        self.nodes.get(&key).map_or(Time(0), |node| node.detached.as_ref().map_or(node.heard, |gone| gone.since))
    }
}

#[cfg(test)]
#[path = "suspicion_test.rs"]
mod tests;
