//! What a node does in a watch: it speaks to the other nodes, takes in what is seen of them, and finds the first cause.

use super::asks::Asks;
use super::contract::{Event, Output, PeerSign, PeerWord, ToPeer};
use super::line::Line;
use super::outputs::Outputs;
use super::seconds::seconds;
use super::stage::{Member, Stage};
use super::watch::{Finding, Peer, Round, Standing, Watch};
use crate::error::{Failure, Status};
use crate::types::Time;
use crate::wire::{Formed, LinkBeat, PeerState};
use std::time::Duration;

/// How long others have to tell of more dead nodes when the first is known, so that all name the lowest.
const GATHER: Duration = Duration::from_millis(100);

/// What is around a watch: the rest of the brain, as far as it concerns it.
pub(super) struct Around<'a> {
    now: Time,
    line: &'a Line,
    member: Option<&'a Member>,
    asks: &'a mut Asks,
    out: &'a mut Outputs,
}

impl<'a> Around<'a> {
    pub(super) fn new(
        now: Time,
        line: &'a Line,
        stage: &'a Stage,
        asks: &'a mut Asks,
        out: &'a mut Outputs,
    ) -> Around<'a> {
        Around { now, line, member: stage.member(), asks, out }
    }

    fn has_scheduler(&self) -> bool {
        self.line.answers(self.now)
    }

    /// Whether the nodes judge each other: the scheduler is away, and will not come back to do it.
    fn judges(&self) -> bool {
        self.member.is_some_and(Member::may_judge) && !self.line.is_attached()
    }

    fn tell_peer(&mut self, index: u32, what: ToPeer) {
        self.out.put(Output::Peer(index, what));
    }

    fn say(&mut self, index: u32, word: PeerWord) {
        self.tell_peer(index, ToPeer::Say(word));
    }

    fn beat(&mut self, index: u32, asks: u32, answers: u32) {
        let has_scheduler = self.has_scheduler();
        self.say(index, PeerWord::Beat(LinkBeat { has_scheduler, asks, answers }));
    }
}

impl Watch {
    /// An epoch begins.
    pub(super) fn form(&mut self, formed: &Formed, out: &mut Outputs) {
        self.end(out);
        *self = Watch {
            host_key: std::mem::take(&mut self.host_key),
            own: formed.index,
            members: Some(formed.members.clone()),
            timeout: Duration::from_millis(formed.agreed.heartbeat_timeout_ms),
            ..Watch::default()
        };
    }

    /// Begins to watch the others when the scheduler falls silent, and ends when it is heard again. Returns the first
    /// cause, if it is found out; so do the methods below.
    pub(super) fn turn(&mut self, around: &mut Around) -> Option<Failure> {
        let (now, member) = (around.now, around.member?);
        let goes_on = !around.has_scheduler() && self.matters(member);
        if self.round.is_some() && !goes_on {
            self.end(around.out);
            self.peers.values_mut().for_each(|peer| (peer.suspected, peer.ended) = (None, None));
            self.beat_to_peers(around);
            self.up().into_iter().for_each(|index| self.close_if_at_rest(index, around));
        } else if self.round.is_none() && goes_on {
            let heard_at = around.line.heard_at();
            self.round = Some(Round { heard_at, began: now, settles_at: None, is_cut_off: false });
            self.peers.values_mut().for_each(Peer::begin(now));
            self.look_at = Some(now);
            self.seek(around);
        }
        self.hand_on_suspects(around)
    }

    /// What was said of this node in the watch that ends holds no longer.
    fn end(&mut self, out: &mut Outputs) {
        if self.round.take().is_some_and(|round| round.is_cut_off) {
            out.tell(Event::CutOff(None));
        }
    }

    /// Whether a watch begins as soon as the scheduler is in doubt.
    pub(super) fn begins(&self, member: &Member) -> bool {
        self.round.is_none() && self.matters(member)
    }

    /// Whether there are others, and it still matters what the watch finds out about them.
    fn matters(&self, member: &Member) -> bool {
        member.cares() && !self.is_alone()
    }

    /// If the scheduler does not find out what callers suspect, the watch does.
    fn hand_on_suspects(&mut self, around: &mut Around) -> Option<Failure> {
        if self.round.is_none() || !around.judges() {
            return None;
        }
        for (peer, evidence) in around.asks.suspects() {
            let asked = self.asked;
            let known = self.peer(peer, around.now);
            if known.suspected.is_some() {
                continue;
            }
            known.suspected = Some(evidence.clone());
            known.in_doubt_since = asked;
            let (is_up, has_left) = (known.standing == Standing::Up, known.standing == Standing::Left);
            around.tell_peer(peer, ToPeer::Look);
            if has_left {
                self.answer_suspicion(peer, PeerState::Left, around);
            } else if is_up {
                self.ask(peer, around);
            }
            let coordinator = self.coordinator();
            if self.peers.get(&coordinator).is_some_and(|peer| peer.standing == Standing::Up) {
                around.say(coordinator, PeerWord::Suspect(peer, evidence));
            }
            if let Some(failure) = self.look(around) {
                return Some(failure);
            }
        }
        None
    }

    fn answer_suspicion(&mut self, peer: u32, state: PeerState, around: &mut Around) {
        if let Some(member) = self.member(peer) {
            if around.asks.reported(peer) {
                self.peers.entry(peer).and_modify(|peer| peer.suspected = None);
                around.out.tell(Event::Peer(peer, state, member.culprit()));
            }
        }
    }

    /// Takes in a sign of a peer. Returns whether something may follow from it before the next look, and the first
    /// cause.
    pub(super) fn sign(&mut self, index: u32, sign: PeerSign, around: &mut Around) -> (bool, Option<Failure>) {
        let is_other = index != self.own && self.member(index).is_some();
        if !is_other || around.member.is_none() {
            return (false, None);
        }
        let now = around.now;
        if matches!(sign, PeerSign::Stands | PeerSign::Says(_) | PeerSign::Ended(_)) {
            self.round.iter_mut().for_each(|round| round.heard_at = now);
        }
        let (is_on, asked) = (self.round.is_some(), self.asked);
        let peer = self.peer(index, now);
        match sign {
            PeerSign::Stands => self.stands(index, around),
            PeerSign::Says(word) => {
                if peer.standing != Standing::Left {
                    (peer.standing, peer.heard, peer.seen) = (Standing::Up, now, None);
                }
                return (true, self.hears_word(index, word, around));
            }
            PeerSign::Refused(how) => {
                if matches!(peer.standing, Standing::Down | Standing::Dialled) {
                    peer.standing = Standing::Refused(how);
                    around.tell_peer(index, ToPeer::Look);
                }
            }
            PeerSign::Unanswered => {
                if peer.standing == Standing::Dialled {
                    peer.standing = Standing::Down; // the next look tries again
                }
                return (false, None);
            }
            PeerSign::Unable => {
                (peer.standing, peer.heard) = (Standing::Down, now); // this node is to blame for its silence
                return (false, None);
            }
            PeerSign::Ended(how) => {
                if peer.standing == Standing::Up {
                    (peer.standing, peer.heard) = (Standing::Down, now);
                    // If the scheduler is back, the connection is closed in peace, or the scheduler finds out.
                    if is_on {
                        (peer.ended, peer.in_doubt_since) = (Some(how), asked);
                        around.tell_peer(index, ToPeer::Look);
                    }
                }
            }
            PeerSign::Seen(seen) => peer.seen = Some(seen),
        }
        (true, None)
    }

    /// Asks a peer to say that it lives, after what is known of it by now.
    fn ask(&mut self, index: u32, around: &mut Around) {
        self.asked += 1;
        around.beat(index, self.asked, 0);
    }

    fn stands(&mut self, index: u32, around: &mut Around) {
        let peer = self.peer(index, around.now);
        if peer.standing == Standing::Left {
            return;
        }
        (peer.standing, peer.heard, peer.seen) = (Standing::Up, around.now, None);
        self.look_at.get_or_insert(around.now);
        self.ask(index, around);
        // Tells the peer what it would have heard if it had been in reach. A node that has its scheduler does so, too: the
        // scheduler may have judged the peer.
        if let Some(failure) = around.member.and_then(Member::end_cause) {
            around.say(index, PeerWord::GivesUp(failure.clone().to_others()));
        }
        if around.member.is_some_and(Member::is_leaving) {
            around.say(index, PeerWord::Leaves);
        }
        if index == self.coordinator() {
            let suspects = self.peers.iter().filter_map(|(peer, it)| Some((*peer, it.suspected.clone()?)));
            suspects.for_each(|(peer, evidence)| around.say(index, PeerWord::Suspect(peer, evidence)));
        }
    }

    fn hears_word(&mut self, index: u32, word: PeerWord, around: &mut Around) -> Option<Failure> {
        let now = around.now;
        match word {
            PeerWord::Beat(LinkBeat { has_scheduler, asks, answers }) => {
                self.peer(index, now).has_scheduler = has_scheduler;
                if asks != 0 {
                    around.beat(index, 0, asks);
                }
                if answers > self.peer(index, now).in_doubt_since {
                    let peer = self.peer(index, now);
                    peer.ended = None;
                    // If this node never took the suspicion in, it did not ask after it: that answer may be older than
                    // the peer's death.
                    if peer.suspected.is_some() {
                        self.answer_suspicion(index, PeerState::Alive, around);
                    }
                }
                self.close_if_at_rest(index, around);
            }
            PeerWord::Suspect(suspect, evidence) => {
                let is_known = suspect != self.own && self.member(suspect).is_some();
                if is_known && around.judges() {
                    let asked = self.asked;
                    let suspected = self.peer(suspect, now);
                    if suspected.suspected.is_none() {
                        (suspected.suspected, suspected.in_doubt_since) = (Some(evidence), asked);
                    }
                    around.tell_peer(suspect, ToPeer::Look);
                }
            }
            PeerWord::GivesUp(failure) if around.member.is_some_and(|member| member.epoch == failure.epoch) => {
                self.peer(index, now).followed = Some((failure.clone(), now));
                if failure.group.is_none() && around.judges() {
                    return Some(self.conclude(failure, around));
                }
            }
            PeerWord::GivesUp(_) => {}
            PeerWord::Leaves => {
                self.peer(index, now).standing = Standing::Left;
                self.answer_suspicion(index, PeerState::Left, around);
            }
        }
        None
    }

    /// Closes the connection if both nodes have their scheduler again: nobody need watch, and it would cost a
    /// descriptor for the rest of the epoch.
    fn close_if_at_rest(&mut self, index: u32, around: &mut Around) {
        let has_scheduler = self.round.is_none() && around.has_scheduler();
        let peer = self.peer(index, around.now);
        if has_scheduler && peer.has_scheduler && peer.standing == Standing::Up {
            peer.standing = Standing::Down;
            around.tell_peer(index, ToPeer::Close);
        }
    }

    /// This node gives up on a group. The coordinator is told, and knows then that what this node does next follows
    /// from that.
    pub(super) fn gives_up(&mut self, failure: &Failure, around: &mut Around) {
        if around.judges() {
            self.up().into_iter().for_each(|index| around.say(index, PeerWord::GivesUp(failure.clone())));
        }
    }

    pub(super) fn says_that_it_leaves(&self, out: &mut Outputs) {
        let words = self.up().into_iter().map(|index| Output::Peer(index, ToPeer::Say(PeerWord::Leaves)));
        words.for_each(|word| out.put(word));
    }

    fn seek(&mut self, around: &mut Around) {
        for index in self.wanted(around.now) {
            self.peer(index, around.now).standing = Standing::Dialled;
            around.tell_peer(index, ToPeer::Watch);
        }
    }

    fn beat_to_peers(&mut self, around: &mut Around) {
        self.beat_at = around.now + self.interval();
        self.up().into_iter().for_each(|index| around.beat(index, 0, 0));
    }

    pub(super) fn timer(&mut self, around: &mut Around) -> Option<Failure> {
        let now = around.now;
        if around.member.is_none() || self.look_at.is_none_or(|at| now < at) {
            return None;
        }
        if now >= self.beat_at {
            self.beat_to_peers(around);
        }
        let (interval, is_on) = (self.interval(), self.round.is_some());
        // While nobody need be judged, a heartbeat is all there is to do, as long as somebody listens.
        self.look_at = (is_on || !self.up().is_empty()).then(|| now + interval / 2);
        if is_on {
            let is_silent = |peer: &Peer| peer.standing.is_sought() && now.since(peer.heard) >= interval * 2;
            let silent = self.peers.iter().filter(|(_, it)| is_silent(it));
            silent.for_each(|(index, _)| around.tell_peer(*index, ToPeer::Look));
        }
        self.look(around)
    }

    /// Looks for the nodes that it needs, and at what is known of them by now.
    pub(super) fn look(&mut self, around: &mut Around) -> Option<Failure> {
        self.round.as_ref()?;
        self.seek(around);
        self.settle(around)
    }

    /// Decides, if there is enough to decide.
    fn settle(&mut self, around: &mut Around) -> Option<Failure> {
        let (now, member) = (around.now, around.member?);
        let found = self.find(now, around.judges(), around.asks.needs_all(), around.line.departure());
        let in_doubt = match &found {
            Some(Finding::Lost(index, _)) => self.doubt_below(*index, now),
            _ => Duration::ZERO,
        };
        let gather = GATHER.min(self.interval() / 4).max(in_doubt);
        let round = self.round.as_mut()?;
        match found {
            None => {
                round.settles_at = None;
                if std::mem::take(&mut round.is_cut_off) {
                    around.out.tell(Event::CutOff(None));
                }
            }
            Some(of_itself @ (Finding::CutOff(_) | Finding::LeftBehind(_))) => {
                if std::mem::replace(&mut round.is_cut_off, true) {
                    return None;
                }
                let failure = self.first_cause(of_itself, member);
                if !member.may_recover() && member.first_cause().is_none() {
                    return Some(failure);
                }
                around.out.tell(Event::CutOff(Some(failure)));
            }
            Some(finding) => match round.settles_at {
                Some(at) if now >= at => {
                    let failure = self.first_cause(finding, member);
                    return Some(self.conclude(failure, around));
                }
                Some(_) => {}
                None => {
                    round.settles_at = Some(now + gather);
                    self.look_at = Some(self.look_at.map_or(now + gather, |at| at.min(now + gather)));
                }
            },
        }
        None
    }

    fn first_cause(&self, finding: Finding, member: &Member) -> Failure {
        let (status, culprit, cause) = match finding {
            Finding::Followed(failure) => return Failure { group: None, ..failure },
            Finding::Lost(index, why) => {
                let cause = format!("was lost: {why} (found by the ranks themselves, because the scheduler is away)");
                (Status::PeerLost, index, cause)
            }
            Finding::Left(index) => {
                (Status::PeerLeft, index, "has left the cluster, and without it there is no next epoch".to_owned())
            }
            Finding::CutOff(silent) => {
                let silent = seconds(silent);
                let cause = format!(
                    "has heard neither the scheduler nor any other rank for {silent}: it seems to be cut off itself"
                );
                (Status::Unreachable, self.own, cause)
            }
            Finding::LeftBehind(silent) => {
                let silent = seconds(silent);
                let cause = format!(
                    "has heard neither the scheduler nor any other rank for {silent}, and finds them gone: it seems to have \
                     been cut off itself"
                );
                (Status::Unreachable, self.own, cause)
            }
        };
        let culprit = self.member(culprit).map(|member| member.culprit());
        Failure { status, culprit, cause, epoch: member.epoch, group: None, sequence: 0 }
    }

    /// The first cause is known: all that hear this node are told before this node's callers are.
    fn conclude(&mut self, failure: Failure, around: &mut Around) -> Failure {
        self.up().into_iter().for_each(|index| around.say(index, PeerWord::GivesUp(failure.clone())));
        failure
    }
}
