//! What the scheduler says.

use super::contract::Event;
use super::{Agent, Member, Stage};
use crate::error::{Culprit, Error, Failure, Status};
use crate::types::{Epoch, Time};
use crate::wire::{AskCall, Formed, InEpoch, Known, LostNodes, Message, NotYet, PeerReport, Rejected};
use std::time::Duration;

/// How long a node waits before it registers again, whatever it is told.
const NOT_YET_LEAST: Duration = Duration::from_millis(10);
const NOT_YET_MOST: Duration = Duration::from_secs(60);

impl Agent {
    pub(super) fn received(&mut self, now: Time, message: Message) {
        if !self.line.is_up() {
            return;
        }
        self.pulse.heard(now);
        if let Message::PassBy(word) = message {
            return self.not_this_job(now, word.reason);
        }
        self.line.meets_the_scheduler();
        if !matches!(message, Message::Rejected(_)) {
            self.line.finds_the_scheduler();
        }
        if let Stage::Forming(forming) = &mut self.stage {
            forming.complaints.settle();
        }
        let told = match message {
            Message::Rejected(rejected) => return self.rejected(now, rejected),
            Message::Formed(formed) => return self.formed(now, formed),
            Message::Verdict(verdict) => {
                self.abort_is_news &= verdict.failure.status != Status::Aborted;
                return self.verdict(now, verdict.failure);
            }
            Message::Bye => return self.bye(now),
            Message::HeartbeatEcho(echo) => {
                self.pulse.echo(echo.sequence);
                self.line.answered();
                return;
            }
            Message::Report => return self.beat(now),
            Message::AskCall(AskCall { group, sequence }) => {
                return self.outputs.push_back(super::Output::SendCall { group, sequence });
            }
            Message::PeerReport(PeerReport { peer, state, culprit }) => {
                Ok(self.asks.reported(peer).then_some(Event::Peer(peer, state, culprit)))
            }
            Message::Revoked(revoked) if !self.is_in(revoked.failure.epoch) => return,
            Message::Revoked(revoked) => Ok(self.asks.revoked(revoked.failure)),
            Message::Absent(absent) => Ok(self.asks.absent(absent)),
            Message::GroupMade(made) => {
                if let Stage::Member(member) = &mut self.stage {
                    member.group = member.group.max(made.group.map_or(0, |group| group.0));
                }
                Ok(self.asks.made(made))
            }
            Message::GroupFreed(freed) => return self.asks.freed(freed.group),
            Message::NotRecovered(word) if word.failure.status == Status::Fenced => return self.put_out(word.failure),
            Message::NotRecovered(word) if !self.is_in(word.failure.epoch) => return,
            Message::NotRecovered(word) => Ok(self.asks.not_recovered(word.failure)),
            Message::LostNodes(lost) => Ok(self.lost(lost)),
            Message::NotYet(word) => return self.not_yet(now, word),
            Message::Located(located) => {
                self.asks.located(&located.member).into_iter().for_each(|event| self.tell(event));
                return;
            }
            Message::StoreReply(reply) => self.store.replied(reply),
            Message::StorePiece(piece) => self.store.piece(&piece),
            other => Err(format!("message {} is not one that a scheduler sends", other.kind())),
        };
        match told {
            Ok(Some(event)) => self.tell(event),
            Ok(None) => {}
            Err(reason) => self.refuse_line(now, reason),
        }
    }

    fn formed(&mut self, now: Time, formed: Formed) {
        match &self.stage {
            Stage::Forming(_) => self.joined(now, formed),
            Stage::Member(member) if formed.instance == member.instance && formed.generation < member.generation => {
                let (theirs, known) = (formed.generation, member.generation);
                self.refuse_line(
                    now,
                    format!("it is this job's scheduler of start {theirs}, and there was a start {known}"),
                );
            }
            Stage::Member(member) if formed.instance == member.instance && formed.epoch > member.epoch => {
                self.renewed(formed);
            }
            Stage::Member(_) if self.line.is_attached() => {}
            Stage::Member(member) if (formed.instance, formed.epoch) == (member.instance, member.epoch) => {
                self.attach_again(formed.generation);
                self.ask_store_again();
            }
            Stage::Member(_) => {
                self.refuse_line(now, "it is the scheduler of another job or of another epoch".to_owned());
            }
            Stage::Over => {}
        }
    }

    /// This node is attached again, and in the present epoch.
    fn attach_again(&mut self, generation: u64) {
        let Stage::Member(member) = &mut self.stage else { return };
        let (leaving, epoch) = (member.leaving.is_some(), member.epoch);
        let is_another = std::mem::replace(&mut member.generation, generation) != generation;
        if is_another {
            self.asks.forget_that_there_is_no_next_epoch();
        }
        self.attached();
        self.send(Message::InEpoch(InEpoch { epoch }));
        // The same scheduler does not know of an abort that came from another node.
        if is_another || self.abort_is_news {
            self.say_what_is_known();
        }
        match leaving {
            true => self.send(Message::Leave),
            false => self.ask_again(),
        }
    }

    /// Tells the scheduler what it, or another one before it, may not have told this node.
    fn say_what_is_known(&mut self) {
        let Stage::Member(member) = &self.stage else { return };
        let (epoch, lost) = (member.epoch, member.lost.clone());
        let (failure, revoked) = (self.broken.clone(), self.asks.all_revoked());
        if failure.is_some() || !revoked.is_empty() {
            self.send(Message::Known(Known { epoch, failure, lost, revoked }));
        }
    }

    /// The cluster is whole again, in a new epoch.
    fn renewed(&mut self, formed: Formed) {
        let Stage::Member(member) = &mut self.stage else { return };
        let (generation, was_attached) = (formed.generation, self.line.is_attached());
        member.epoch = formed.epoch;
        member.lost.clear();
        self.broken = None;
        self.asks.renew();
        self.end_watch();
        self.watch.form(formed.index, &formed.members, Duration::from_millis(formed.agreed.heartbeat_timeout_ms));
        self.tell(Event::Formed(Box::new(formed)));
        self.attach_again(generation);
        if !was_attached {
            self.ask_store_again(); // over the same connection they are on their way, and would be carried out twice
        }
    }

    /// The cluster is complete, for the first time.
    fn joined(&mut self, now: Time, formed: Formed) {
        if !formed.members.has(formed.index) {
            return self.refuse_line(now, format!("its table of nodes does not name this node, {}", formed.index));
        }
        self.pulse.agree(now, Duration::from_millis(formed.agreed.heartbeat_timeout_ms));
        self.store.set_limits(&formed.agreed);
        self.watch.form(formed.index, &formed.members, Duration::from_millis(formed.agreed.heartbeat_timeout_ms));
        self.stage = Stage::Member(Member {
            instance: formed.instance,
            generation: formed.generation,
            epoch: formed.epoch,
            group: 0,
            lost: Vec::new(),
            leaving: None,
            expelled: false,
        });
        self.attached();
        self.tell(Event::Formed(Box::new(formed)));
        self.ask_again();
        self.ask_store_again();
    }

    /// Everything that waits for an answer but what was asked of the store, on this connection.
    fn ask_again(&mut self) {
        self.asks.again().into_iter().for_each(|message| self.send(message));
    }

    /// What was asked of the store, on a connection on which it was not.
    fn ask_store_again(&mut self) {
        if matches!(&self.stage, Stage::Member(member) if member.leaving.is_none()) {
            self.store.again().into_iter().for_each(|message| self.send(message));
        }
    }

    /// Whether this is the present epoch of a member.
    fn is_in(&self, epoch: Epoch) -> bool {
        matches!(&self.stage, Stage::Member(member) if member.epoch == epoch)
    }

    /// Whether the job has been ended for good.
    pub(super) fn is_aborted(&self) -> bool {
        self.broken.as_ref().is_some_and(|first| first.status == Status::Aborted)
    }

    /// Whether a broken cluster may be whole again, and this node in it.
    pub(super) fn can_recover(&self) -> bool {
        let is_over = |first: &Failure| matches!(first.status, Status::Aborted | Status::Fenced);
        self.profile.register.recovery && !self.broken.as_ref().is_some_and(is_over)
    }

    /// What listens here is the scheduler of another job: this one's is at another port, if there are several.
    fn not_this_job(&mut self, now: Time, reason: String) {
        match self.stage {
            Stage::Forming(_) if self.has_several_places() => self.pass_by(now, reason),
            Stage::Forming(_) => self.rejected(now, Rejected { status: Status::Rejected, reason }),
            _ => self.refuse_line(now, format!("it is not this job's scheduler: {reason}")),
        }
    }

    /// The scheduler does not want this node, or not any more.
    fn rejected(&mut self, now: Time, rejected: Rejected) {
        let error = Error::new(rejected.status, rejected.reason);
        let member = match &mut self.stage {
            Stage::Member(member) => member,
            Stage::Forming(_) => return self.fail(error),
            Stage::Over => return,
        };
        if member.leaving.is_some() {
            return self.end(Event::Left(Some(format!("left without the scheduler's goodbye: {error}"))));
        }
        if error.status() == Status::Rejected {
            return self.refuse_line(now, format!("it is not this job's scheduler: {}", error.message()));
        }
        let failure = Failure {
            status: error.status(),
            culprit: None,
            cause: error.message().to_owned(),
            epoch: member.epoch,
            group: None,
            sequence: 0,
        };
        self.put_out(failure);
    }

    /// The others go on without this life of the node: it has nothing more to say, and nothing to wait for.
    fn put_out(&mut self, failure: Failure) {
        let Stage::Member(member) = &mut self.stage else { return };
        if std::mem::replace(&mut member.expelled, true) {
            return;
        }
        self.outputs.push_back(super::Output::Disconnect);
        self.line.shut();
        if let Some(event) = self.asks.recovers_in_vain(&failure) {
            self.tell(event);
        }
        let error = Error::from(failure.clone());
        self.break_up(failure);
        self.store.fail_all(&error).into_iter().for_each(|event| self.tell(event));
    }

    /// The nodes lost by now, if that is of the present epoch.
    fn lost(&mut self, lost: LostNodes) -> Option<Event> {
        let Stage::Member(member) = &mut self.stage else { return None };
        if member.epoch != lost.epoch {
            return None;
        }
        member.lost.clone_from(&lost.nodes);
        Some(Event::Lost(lost.nodes))
    }

    /// This node may come back, but not yet.
    fn not_yet(&mut self, now: Time, word: NotYet) {
        if !matches!(self.stage, Stage::Forming(_)) {
            return self.refuse_line(now, "it asks a member to come back later".to_owned());
        }
        let wait = Duration::from_millis(word.wait_ms).clamp(NOT_YET_LEAST, NOT_YET_MOST);
        self.outputs.push_back(super::Output::Log { quiet: !word.long, line: format!("not yet: {}", word.reason) });
        self.outputs.push_back(super::Output::Disconnect);
        self.wait_to_register(now, wait, word.reason);
    }

    pub(super) fn verdict(&mut self, now: Time, mut failure: Failure) {
        if self.calls_this_node_lost(&failure) {
            failure = failure.to_the_lost();
        }
        let fenced = self.profile.register.recovery && failure.status == Status::Fenced;
        match &self.stage {
            Stage::Member(member) if failure.epoch != member.epoch => {} // it was told, or will be
            Stage::Member(member) if fenced && member.leaving.is_none() => self.put_out(failure),
            Stage::Member(_) => {
                self.break_up(failure);
                self.hasten_leave(now);
            }
            Stage::Forming(_) => self.fail(Error::from(failure)),
            Stage::Over => {}
        }
    }

    fn calls_this_node_lost(&self, failure: &Failure) -> bool {
        let own = &self.profile.register;
        let is_this = |culprit: &Culprit| culprit.role == own.role && culprit.node_id == own.node_id;
        failure.status == Status::PeerLost && failure.culprit.as_ref().is_some_and(is_this)
    }

    /// A peer says that this node is lost. As the scheduler's verdict, which names no group, that holds although the scheduler
    /// can't say it here; a peer's own belief does not: with recovery it may be wrong, and the scheduler knows better.
    pub(super) fn heard_of_verdict(&mut self, now: Time, failure: Failure) {
        if failure.group.is_none() && self.calls_this_node_lost(&failure) {
            self.verdict(now, failure);
        }
    }

    /// A node has ended the job without the scheduler. Where this one has a scheduler, that passes it on.
    pub(super) fn heard_of_abort(&mut self, now: Time, failure: Failure) {
        if failure.status != Status::Aborted || self.is_aborted() {
            return;
        }
        self.verdict(now, failure);
        self.abort_is_news = self.is_aborted();
        if self.abort_is_news && self.line.is_attached() {
            self.say_what_is_known();
        }
    }

    /// The cluster is broken: the first cause is told, once; and, where it could have been whole again, that it will not.
    pub(super) fn break_up(&mut self, failure: Failure) {
        let could_recover = self.can_recover();
        let is_over = matches!(failure.status, Status::Aborted | Status::Fenced);
        if could_recover && is_over {
            let event = self.asks.recovers_in_vain(&failure);
            event.into_iter().for_each(|event| self.tell(event));
        }
        self.asks.broken(could_recover && !is_over);
        if self.broken.is_none() || (could_recover && is_over) {
            self.broken = Some(failure.clone());
            self.tell(Event::Broken(failure));
        }
    }
}
