//! What the brain does in a watch: it speaks to the other nodes, takes in what is seen of them, and tells the first cause.

use super::contract::{Event, Output, PeerSign, PeerWord, ToPeer};
use super::watch::{Finding, Peer, Round, Seen, Standing};
use super::{seconds, Agent, Stage};
use crate::error::{Culprit, Failure, Status};
use crate::types::{Epoch, Time};
use crate::wire::{LinkBeat, Member, PeerState};
use std::time::Duration;

/// How long others have to tell of more dead when the first is known, so that all name the lowest.
const GATHER: Duration = Duration::from_millis(100);

impl Agent {
    /// Begins to watch the others when the scheduler falls silent, and ends when it is heard again.
    pub(super) fn watch_turn(&mut self, now: Time) {
        let (has_scheduler, is_over) = (self.has_scheduler(now), self.is_done_with_others());
        match &self.watch.round {
            Some(_) if has_scheduler || is_over => {
                self.end_watch();
                self.watch.peers.values_mut().for_each(|peer| (peer.suspected, peer.ended) = (None, None));
                self.beat_to_peers(now, false);
                self.watch.up().into_iter().for_each(|index| self.close_if_at_rest(now, index));
            }
            None if !has_scheduler && !is_over => {
                let heard_at = self.line.heard_before().unwrap_or(self.pulse.heard_at());
                self.watch.round = Some(Round { heard_at, began: now, settles_at: None, is_cut_off: false });
                self.watch.peers.values_mut().for_each(Peer::begin(now));
                self.watch.look_at = Some(now);
                self.seek(now);
            }
            _ => {}
        }
        self.hand_on_suspects(now);
    }

    /// What was said of this node in the watch that ends holds no longer.
    pub(super) fn end_watch(&mut self) {
        if self.watch.round.take().is_some_and(|round| round.is_cut_off) {
            self.tell(Event::CutOff(None));
        }
    }

    /// Whether a watch begins as soon as the scheduler is in doubt.
    pub(super) fn may_watch(&self) -> bool {
        self.watch.round.is_none() && !self.is_done_with_others()
    }

    /// Nothing that it could find out about the others matters any more, or there are none.
    fn is_done_with_others(&self) -> bool {
        let Stage::Member(member) = &self.stage else { return true };
        let is_over = self.broken.is_some() && !self.can_recover();
        member.leaving.is_some() || member.expelled || is_over || self.watch.is_alone()
    }

    /// It is attached, and the scheduler answers.
    fn has_scheduler(&self, now: Time) -> bool {
        self.line.is_attached() && now < self.pulse.doubt_at()
    }

    /// Whether the nodes judge each other: the scheduler is away, and will not come back to do it.
    fn judges(&self) -> bool {
        let is_free = matches!(&self.stage, Stage::Member(member) if member.leaving.is_none() && !member.expelled);
        is_free && self.broken.is_none() && !self.line.is_attached() && !self.profile.register.recovery
    }

    /// What callers suspect is found out here where the scheduler does not.
    fn hand_on_suspects(&mut self, now: Time) {
        if self.watch.round.is_none() || !self.judges() {
            return;
        }
        for (peer, evidence) in self.asks.suspects() {
            let known = self.watch.peer(peer, now);
            if known.suspected.is_some() {
                continue;
            }
            known.suspected = Some(evidence.clone());
            let (is_up, has_left) = (known.standing == Standing::Up, known.standing == Standing::Left);
            self.tell_peer(peer, ToPeer::Look);
            if has_left {
                self.answer_suspicion(peer, PeerState::Left);
            } else if is_up {
                self.say(peer, beat(false, true));
            }
            let keeper = self.watch.keeper();
            if self.watch.peers.get(&keeper).is_some_and(|peer| peer.standing == Standing::Up) {
                self.say(keeper, PeerWord::Suspect(peer, evidence));
            }
            self.seek(now);
            self.settle(now);
        }
    }

    fn answer_suspicion(&mut self, peer: u32, state: PeerState) {
        if let Some(member) = self.watch.member(peer) {
            if self.asks.reported(peer) {
                self.watch.peers.entry(peer).and_modify(|peer| peer.suspected = None);
                self.tell(Event::Peer(peer, state, member.culprit()));
            }
        }
    }

    /// Signs of peers.
    pub(super) fn peer_signs(&mut self, now: Time, signs: Vec<(u32, PeerSign)>) {
        let mut is_news = false;
        for (index, sign) in signs {
            let is_member = index != self.watch.own && self.watch.member(index).is_some();
            if is_member && matches!(self.stage, Stage::Member(_)) {
                is_news |= self.peer_sign(now, index, sign);
            }
        }
        if is_news && self.watch.round.is_some() {
            self.seek(now);
            self.settle(now);
        }
    }

    /// Something of a peer. Whether something may follow from it before the next look.
    fn peer_sign(&mut self, now: Time, index: u32, sign: PeerSign) -> bool {
        if matches!(sign, PeerSign::Stands | PeerSign::Says(_) | PeerSign::Ended(_)) {
            self.watch.round.iter_mut().for_each(|round| round.heard_at = now);
        }
        let peer = self.watch.peer(index, now);
        match sign {
            PeerSign::Stands => self.stands(now, index),
            PeerSign::Says(word) => {
                if peer.standing != Standing::Left {
                    (peer.standing, peer.heard, peer.seen) = (Standing::Up, now, None);
                }
                self.hears_word(now, index, word);
            }
            PeerSign::Refused(how) => {
                if matches!(peer.standing, Standing::Sought(_)) {
                    peer.standing = Standing::Refused(how);
                    self.tell_peer(index, ToPeer::Look);
                }
            }
            PeerSign::Unanswered => {
                if peer.standing == Standing::Sought(true) {
                    peer.standing = Standing::Sought(false); // tried again at the next look
                }
                return false;
            }
            PeerSign::Unable => {
                (peer.standing, peer.heard) = (Standing::Sought(false), now); // its silence is this node's own want
                return false;
            }
            PeerSign::Ended(how) => {
                if peer.standing == Standing::Up {
                    (peer.standing, peer.heard) = (Standing::Sought(false), now);
                    // With the scheduler back it is closed in peace, or the scheduler finds out.
                    if self.watch.round.is_some() {
                        self.watch.peer(index, now).ended = Some(how);
                        self.tell_peer(index, ToPeer::Look);
                    }
                }
            }
            PeerSign::Seen { is_gone, lives, answers } => peer.seen = Some(Seen { is_gone, lives, answers }),
        }
        true
    }

    fn stands(&mut self, now: Time, index: u32) {
        let peer = self.watch.peer(index, now);
        if peer.standing == Standing::Left {
            return;
        }
        (peer.standing, peer.heard, peer.seen) = (Standing::Up, now, None);
        self.watch.look_at.get_or_insert(now);
        let has_scheduler = self.has_scheduler(now);
        self.say(index, PeerWord::Beat(LinkBeat { has_scheduler, asks: true, answers: false }));
        if let Some(failure) = self.broken.clone().filter(|_| !self.can_recover() && !has_scheduler) {
            self.say(index, PeerWord::GivesUp(failure.to_others()));
        }
        if index == self.watch.keeper() {
            let suspects: Vec<(u32, String)> =
                self.watch.peers.iter().filter_map(|(peer, it)| Some((*peer, it.suspected.clone()?))).collect();
            for (peer, evidence) in suspects {
                self.say(index, PeerWord::Suspect(peer, evidence));
            }
        }
    }

    fn hears_word(&mut self, now: Time, index: u32, word: PeerWord) {
        match word {
            PeerWord::Beat(LinkBeat { has_scheduler, asks, answers }) => {
                self.watch.peer(index, now).has_scheduler = has_scheduler;
                if asks {
                    let has_scheduler = self.has_scheduler(now);
                    self.say(index, PeerWord::Beat(LinkBeat { has_scheduler, asks: false, answers: true }));
                }
                if answers {
                    self.watch.peer(index, now).ended = None;
                    self.answer_suspicion(index, PeerState::Alive);
                }
                self.close_if_at_rest(now, index);
            }
            PeerWord::Suspect(suspect, evidence) => {
                let is_known = suspect != self.watch.own && self.watch.member(suspect).is_some();
                if !is_known || !self.judges() {
                    return;
                }
                self.watch.peer(suspect, now).suspected.get_or_insert(evidence);
                self.tell_peer(suspect, ToPeer::Look);
            }
            PeerWord::GivesUp(failure) => {
                let is_of_epoch = matches!(&self.stage, Stage::Member(member) if member.epoch == failure.epoch);
                if !is_of_epoch {
                    return;
                }
                self.watch.peer(index, now).followed = Some((failure.clone(), now));
                if failure.group.is_none() && self.judges() {
                    self.conclude(now, failure);
                }
            }
            PeerWord::Leaves => {
                self.watch.peer(index, now).standing = Standing::Left;
                self.answer_suspicion(index, PeerState::Left);
            }
        }
    }

    /// Where both have their scheduler again nobody need watch: the connection would cost a descriptor for the rest of the epoch.
    fn close_if_at_rest(&mut self, now: Time, index: u32) {
        let has_scheduler = self.watch.round.is_none() && self.has_scheduler(now);
        let peer = self.watch.peer(index, now);
        if has_scheduler && peer.has_scheduler && peer.standing == Standing::Up {
            peer.standing = Standing::Sought(false);
            self.tell_peer(index, ToPeer::Close);
        }
    }

    /// This node gives up on a group: the keeper knows then that what it does next follows from that.
    pub(super) fn gives_up(&mut self, failure: &Failure) {
        if self.judges() {
            for index in self.watch.up() {
                self.say(index, PeerWord::GivesUp(failure.clone()));
            }
        }
    }

    pub(super) fn says_that_it_leaves(&mut self) {
        for index in self.watch.up() {
            self.say(index, PeerWord::Leaves);
        }
    }

    fn seek(&mut self, now: Time) {
        for index in self.watch.wanted(now) {
            self.watch.peer(index, now).standing = Standing::Sought(true);
            self.tell_peer(index, ToPeer::Watch);
        }
    }

    fn beat_to_peers(&mut self, now: Time, asks: bool) {
        self.watch.beat_at = now + self.watch.interval();
        let has_scheduler = self.has_scheduler(now);
        for index in self.watch.up() {
            self.say(index, beat(has_scheduler, asks));
        }
    }

    pub(super) fn watch_timer(&mut self, now: Time) {
        if self.watch.look_at.is_none_or(|at| now < at) {
            return;
        }
        if now >= self.watch.beat_at {
            self.beat_to_peers(now, false);
        }
        let (interval, is_on) = (self.watch.interval(), self.watch.round.is_some());
        // While nobody need be judged a beat is all, as long as somebody listens.
        self.watch.look_at = (is_on || !self.watch.up().is_empty()).then(|| now + interval / 2);
        if is_on {
            let is_silent = |peer: &Peer| {
                matches!(peer.standing, Standing::Sought(_) | Standing::Up) && now.since(peer.heard) >= interval * 2
            };
            let silent: Vec<u32> =
                self.watch.peers.iter().filter(|(_, it)| is_silent(it)).map(|(index, _)| *index).collect();
            silent.into_iter().for_each(|index| self.tell_peer(index, ToPeer::Look));
            self.seek(now);
            self.settle(now);
        }
    }

    /// Decides, if there is enough to decide.
    fn settle(&mut self, now: Time) {
        if self.watch.round.is_none() {
            return;
        }
        let judges = self.judges();
        let found = self.watch.find(&self.profile.register.host.key, now, judges);
        let in_doubt = match &found {
            Some(Finding::Lost(index, _)) => self.watch.doubt_below(*index, now),
            _ => Duration::ZERO,
        };
        let gather = GATHER.min(self.watch.interval() / 4).max(in_doubt);
        let Some(round) = &mut self.watch.round else { return };
        match found {
            None => {
                round.settles_at = None;
                if std::mem::take(&mut round.is_cut_off) {
                    self.tell(Event::CutOff(None));
                }
            }
            Some(Finding::CutOff(silent)) if !std::mem::replace(&mut round.is_cut_off, true) => {
                let failure = self.cut_off(silent);
                match self.can_recover() || self.broken.is_some() {
                    true => self.tell(Event::CutOff(Some(failure))),
                    false => self.break_up(failure),
                }
            }
            Some(Finding::CutOff(_)) => {}
            Some(finding) => match round.settles_at {
                Some(at) if now >= at => self.decide(now, finding),
                Some(_) => {}
                None => {
                    round.settles_at = Some(now + gather);
                    self.watch.look_at = Some(self.watch.look_at.map_or(now + gather, |at| at.min(now + gather)));
                }
            },
        }
    }

    fn decide(&mut self, now: Time, finding: Finding) {
        let Stage::Member(member) = &self.stage else { return };
        let epoch = member.epoch;
        let failure = match finding {
            Finding::Lost(index, why) => {
                let culprit = self.watch.member(index).as_ref().map(Member::culprit);
                let cause = format!("was lost: {why} (found by the ranks themselves, for the scheduler is away)");
                lost(culprit, cause, epoch)
            }
            Finding::Followed(failure) => Failure { group: None, ..failure },
            Finding::CutOff(_) => return,
        };
        self.conclude(now, failure);
    }

    /// The first cause is known: all that hear this node are told before its callers are.
    fn conclude(&mut self, now: Time, failure: Failure) {
        for index in self.watch.up() {
            self.say(index, PeerWord::GivesUp(failure.clone()));
        }
        self.verdict(now, failure);
    }

    fn cut_off(&self, silent: Duration) -> Failure {
        let epoch = match &self.stage {
            Stage::Member(member) => member.epoch,
            _ => Epoch::default(),
        };
        let culprit = self.watch.member(self.watch.own).as_ref().map(Member::culprit);
        let cause = format!(
            "has heard neither the scheduler nor any other rank for {}: it seems to be cut off itself",
            seconds(silent)
        );
        Failure { status: Status::Unreachable, culprit, cause, epoch, group: None, sequence: 0 }
    }

    fn tell_peer(&mut self, index: u32, what: ToPeer) {
        self.outputs.push_back(Output::Peer(index, what));
    }

    fn say(&mut self, index: u32, word: PeerWord) {
        self.tell_peer(index, ToPeer::Say(word));
    }
}

fn beat(has_scheduler: bool, asks: bool) -> PeerWord {
    PeerWord::Beat(LinkBeat { has_scheduler, asks, answers: false })
}

fn lost(culprit: Option<Culprit>, cause: String, epoch: Epoch) -> Failure {
    Failure { status: Status::PeerLost, culprit, cause, epoch, group: None, sequence: 0 }
}
