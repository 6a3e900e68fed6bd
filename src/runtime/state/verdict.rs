//! Asking the scheduler what became of a peer, and agreeing with the other members on the one first cause of a group's end.

use super::context::Context;
use super::node_state::{AgentCommand, NodeView};
use crate::agent::Command;
use crate::error::{Culprit, Failure, Status};
use crate::runtime::base::patience::VERDICT_WAIT;
use crate::types::Time;
use crate::wire::{encode_frame, Encoder, LinkKind, LinkRevoke, PeerState, Wire};
use std::time::Duration;

/// How long a rank waits for the scheduler's word while the scheduler is away. The same time is left then to tell the
/// others, and to be told.
const ALONE_WAIT: Duration = Duration::from_millis(125);

/// How often a wait looks whether the scheduler is away by now.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A question about a peer that the scheduler was asked.
pub(crate) struct PeerQuery {
    index: u32,
    is_silent: bool,
    since: Time,
}

impl PeerQuery {
    /// Asks the scheduler what became of a peer. `is_silent`: nothing was heard of the peer; otherwise its link has ended.
    pub(crate) fn about(context: &Context, peer: u32, evidence: &str, is_silent: bool) -> PeerQuery {
        context.ask_early(peer, evidence);
        let index = context.index_of(peer).expect("a link's peer is a member");
        PeerQuery { index, is_silent, since: context.state.clock.now() }
    }

    /// What is known of the peer by now; none while the scheduler may still answer.
    pub(crate) fn word(&self, context: &Context) -> Option<Word> {
        let now = context.state.clock.now();
        let mut view = context.state.view();
        let limit = self.limit(context, &view);
        self.heard(context, &mut view).or_else(|| (now >= limit).then_some(Word::Unsaid(Unsaid::Silent)))
    }

    /// Waits for what is known of the peer.
    pub(crate) fn wait(&self, context: &Context) -> Word {
        let state = &context.state;
        loop {
            let limit = self.limit(context, &state.view());
            // The scheduler may be away, or be back, before the limit.
            let look_at = limit.min((self.since + ALONE_WAIT).max(state.clock.now() + LOOK_AGAIN));
            match state.wait(look_at, |view| self.heard(context, view)) {
                None if state.clock.now() < limit => {}
                heard => return heard.unwrap_or(Word::Unsaid(Unsaid::Silent)),
            }
        }
    }

    fn heard(&self, context: &Context, view: &mut NodeView) -> Option<Word> {
        if let Some(failure) = context.first_cause(view) {
            return Some(Word::Told(failure));
        }
        if let Some(failure) = view.cut_off.clone() {
            return Some(Word::Unsaid(Unsaid::CutOff(failure)));
        }
        view.epoch.peers.get(&self.index).cloned().map(|(state, culprit)| match state {
            PeerState::Left => Word::Left(culprit),
            PeerState::Alive => Word::Unsaid(Unsaid::Alive),
        })
    }

    /// Until when the scheduler, or the nodes among themselves, may find out what became of the peer.
    fn limit(&self, context: &Context, view: &NodeView) -> Time {
        let is_away = view.away.is_some();
        // The nodes find out among themselves: at once if the process has gone, else within the heartbeat time-out.
        // With recovery each node finds out whether it is itself cut off. Only silence can mean that.
        let longest = match self.is_silent || (is_away && !context.state.recovery) {
            true => context.bounds.most() + VERDICT_WAIT,
            false if is_away => ALONE_WAIT,
            false => VERDICT_WAIT,
        };
        self.since + longest
    }

    /// How long a thread that cannot sleep until the answer comes waits before it looks for the answer again.
    pub(crate) fn pause(&self, now: Time) -> Duration {
        (now.since(self.since) / 8).clamp(Duration::from_millis(1), LOOK_AGAIN)
    }
}

/// A link of this group has said that its peer has left the cluster. That is then known on all groups: while the scheduler is away
/// nobody else may say it. A group that the program made tells no more than that the peer may have freed it.
pub(crate) fn note_that_it_left(context: &Context, peer: u32, culprit: Option<&Culprit>) {
    let (Some(index), Some(culprit), false) = (context.index_of(peer), culprit, context.is_made()) else { return };
    let mut view = context.state.view();
    if view.epoch.is_in(context.epoch()) {
        view.epoch.peers.insert(index, (PeerState::Left, culprit.clone()));
    }
}

/// What is known of a peer whose link has ended.
pub(crate) enum Word {
    /// The cluster or the group is broken: the first cause.
    Told(Failure),
    /// The peer has left.
    Left(Culprit),
    /// No first cause is known.
    Unsaid(Unsaid),
}

/// What is known while nobody has said a first cause.
pub(crate) enum Unsaid {
    /// The peer lives.
    Alive,
    /// This node hears nobody.
    CutOff(Failure),
    /// Nobody said anything in time.
    Silent,
}

/// The operation that needed the link to a peer, and the evidence against that peer.
pub(crate) struct Concern<'a> {
    /// `allreduce #1042 on world`
    pub title: &'a str,
    pub sequence: u64,
    pub peer: u32,
    pub evidence: &'a str,
}

impl Context {
    /// Asks the scheduler about a peer; `answer_about` returns its answer.
    pub(crate) fn ask_early(&self, peer: u32, evidence: &str) {
        let index = self.index_of(peer).expect("a link's peer is a member");
        // A peer that has left stays so.
        self.state.view().epoch.peers.retain(|known, (state, _)| *known != index || *state == PeerState::Left);
        self.ask(Command::Suspect { peer: index, evidence: evidence.to_owned() });
    }

    /// The scheduler's answer about a peer since it was asked.
    pub(crate) fn answer_about(&self, peer: u32) -> Option<PeerState> {
        let index = self.index_of(peer).expect("a link's peer is a member");
        self.state.view().epoch.peers.get(&index).map(|(state, _)| *state)
    }

    /// The first cause as far as this node knows it, if nobody has said one.
    pub(crate) fn failure_of(&self, what: Unsaid, concern: &Concern<'_>) -> Failure {
        let Concern { title, sequence, peer, evidence } = concern;
        match what {
            Unsaid::CutOff(failure) => self.cut_off(failure, *sequence),
            Unsaid::Alive => {
                let (own, other) = (self.describe(self.own_rank()), self.describe(*peer));
                let cause =
                    format!("{title}: {own} and {other} cannot reach each other although both live: {evidence}");
                self.failure(Status::Link, None, cause, *sequence)
            }
            Unsaid::Silent => {
                let cause =
                    format!("is probably lost, unconfirmed: in {title}, {evidence}, and the scheduler said nothing");
                self.failure(Status::PeerLost, self.culprit(*peer), cause, *sequence)
            }
        }
    }

    /// The failure of a damaged link, or of a link for which this node lacks something. It names both ends, because all members
    /// get the same sentence. The culprit is nobody if the link is damaged, and otherwise this node.
    pub(crate) fn failure_on_link(&self, status: Status, concern: &Concern<'_>) -> Failure {
        let Concern { title, sequence, peer, evidence } = concern;
        let (own, other) = (self.describe(self.own_rank()), self.describe(*peer));
        let culprit = if status == Status::Unsupported { self.culprit(self.own_rank()) } else { None };
        let cause = format!("{title}: on the link to {other}, as {own} found: {evidence}");
        self.failure(status, culprit, cause, *sequence)
    }

    /// The failure of an operation on a node that hears nobody.
    pub(crate) fn cut_off(&self, failure: Failure, sequence: u64) -> Failure {
        Failure { group: Some(self.id()), sequence, ..failure }
    }

    /// The failure that ends the group.
    pub(crate) fn failure(&self, status: Status, culprit: Option<Culprit>, cause: String, sequence: u64) -> Failure {
        Failure { status, culprit, cause, epoch: self.epoch(), group: Some(self.id()), sequence }
    }

    /// Agrees with the other ranks on the first cause. Several ranks may give up at once, each for its own reason: all
    /// return what reached the scheduler first. If the scheduler does not answer, the rank whose own cause it is tells
    /// the members.
    pub(crate) fn agree_on_cause(&self, cause: Failure, is_own: bool) -> Failure {
        self.ask(Command::Revoke(cause.clone().to_others()));
        let tell = || {
            if is_own {
                self.state.ask(AgentCommand::Tell(cause.clone()));
            }
        };
        let is_away = self.state.view().away.is_some();
        if is_away {
            tell();
        }
        // This rank, or the one that reported the loss, has already waited to learn what became of the lost peer.
        let patience = if is_away && cause.status == Status::PeerLost { ALONE_WAIT } else { VERDICT_WAIT };
        let deadline = self.state.clock.now() + patience;
        let first = self.state.wait(deadline, |view| self.first_cause(view));
        if first.is_none() && !is_away {
            tell();
        }
        first.unwrap_or(cause)
    }

    /// Asks the scheduler for something that means this group, and therefore its epoch only.
    pub(crate) fn ask(&self, command: Command) {
        self.state.ask(AgentCommand::Of(self.epoch(), command));
    }

    /// The last word on a link of a group that is over: why it is over; that this process has left; or nothing if it
    /// just goes.
    pub(crate) fn last_word_of(&self, cause: &Failure) -> Vec<u8> {
        if cause.status == Status::State {
            return self.last_word.get().cloned().unwrap_or_default();
        }
        let mut payload = Encoder::default();
        LinkRevoke { failure: cause.clone().to_others() }.put(&mut payload);
        let mut frame = Vec::new();
        encode_frame(LinkKind::Revoke as u8, 0, &payload.bytes, &mut frame);
        frame
    }
}

#[cfg(test)]
#[path = "verdict_test.rs"]
mod tests;
