//! What the node does with what the scheduler says.

use super::believing::{check_formed, check_made};
use super::contract::{Event, Output};
use super::line::Loss;
use super::stage::Member;
use super::{Agent, Stage};
use crate::error::{Error, Failure, Status};
use crate::types::Time;
use crate::wire::{AskCall, Formed, InEpoch, Message, NotYet, PeerReport, Rejected};
use std::time::Duration;

/// How long a node waits before it registers again, whatever it is told.
const NOT_YET_LEAST: Duration = Duration::from_millis(10);
const NOT_YET_MOST: Duration = Duration::from_secs(60);

impl Agent {
    pub(super) fn received(&mut self, now: Time, message: Message) {
        if !self.line.is_up() {
            return;
        }
        self.line.hears(now);
        if let Message::PassBy(word) = message {
            return self.not_this_job(now, word.reason);
        }
        self.line.search.meets_the_scheduler();
        if !matches!(message, Message::Rejected(_)) {
            self.line.search.finds_the_scheduler();
        }
        if let Stage::Forming(forming) = &mut self.stage {
            forming.hears();
        }
        self.obeys(now, message);
    }

    /// Does what the scheduler's message says, or refuses it.
    fn obeys(&mut self, now: Time, message: Message) {
        let told = match message {
            Message::Rejected(rejected) => return self.rejected(now, rejected),
            Message::Formed(formed) => return self.formed(now, formed),
            Message::Verdict(verdict) => {
                if let (Stage::Member(member), Status::Aborted) = (&mut self.stage, verdict.failure.status) {
                    member.hear_abort_of_the_scheduler();
                }
                return self.verdict(now, verdict.failure);
            }
            Message::Bye if self.stage.member().is_some_and(Member::is_leaving) => {
                return self.end(Event::Left(None));
            }
            Message::Bye => Err("it said goodbye to a node that is not leaving".to_owned()),
            Message::HeartbeatEcho(echo) => return self.line.echoed(echo.sequence),
            Message::Report => return self.line.beat(now, &mut self.out),
            Message::AskCall(AskCall { group, sequence }) => {
                return self.out.put(Output::SendCall { group, sequence });
            }
            Message::PeerReport(PeerReport { peer, state, culprit }) => {
                Ok(self.asks.reported(peer).then_some(Event::Peer(peer, state, culprit)))
            }
            Message::Revoked(revoked) if !self.stage.is_in(revoked.failure.epoch) => return,
            Message::Revoked(revoked) => Ok(self.asks.revoked(revoked.failure)),
            Message::Absent(absent) => Ok(self.asks.absent(absent)),
            Message::GroupMade(made) => {
                if let Err(reason) = check_made(&self.profile.register, &made) {
                    return self.refuse(now, reason);
                }
                if let (Stage::Member(member), Some(group)) = (&mut self.stage, made.group) {
                    member.group_made(group.0);
                }
                Ok(self.asks.made(made))
            }
            Message::MadeByMembers(made) => {
                if let (Stage::Member(member), Some(group)) = (&mut self.stage, made.group) {
                    member.group_made(group.0);
                }
                Ok(self.asks.made_by_members(made))
            }
            Message::GroupFreed(freed) => return self.asks.freed(freed.group),
            Message::NotRecovered(word) if word.failure.status == Status::Fenced => return self.put_out(word.failure),
            Message::NotRecovered(word) if !self.stage.is_in(word.failure.epoch) => return,
            Message::NotRecovered(word) => Ok(self.asks.not_recovered(word.failure)),
            Message::LostNodes(lost) => {
                let is_present = self.stage.member_mut().is_some_and(|member| member.lose(&lost));
                Ok(is_present.then_some(Event::Lost(lost.nodes)))
            }
            Message::NotYet(word) => return self.not_yet(now, word),
            Message::Located(located) => {
                self.asks.located(&located.member).into_iter().for_each(|event| self.out.tell(event));
                return;
            }
            Message::StoreReply(reply) => self.store.replied(reply),
            Message::StorePiece(piece) => self.store.piece(&piece),
            other => Err(format!("message {} is not one that a scheduler sends", other.kind())),
        };
        match told {
            Ok(Some(event)) => self.out.tell(event),
            Ok(None) => {}
            Err(reason) => self.refuse(now, reason),
        }
    }

    fn formed(&mut self, now: Time, formed: Formed) {
        if let Err(reason) = check_formed(&self.profile.register, &formed) {
            return match self.stage {
                Stage::Forming(_) => {
                    let scheduler = self.line.scheduler();
                    let reason = format!("the scheduler at {scheduler} is not this job's: {reason}");
                    self.end(Event::Failed(Error::new(Status::Rejected, reason)));
                }
                _ => self.refuse(now, reason),
            };
        }
        match &self.stage {
            Stage::Forming(_) => self.joined(now, formed),
            Stage::Member(member) if formed.instance == member.instance && formed.generation < member.generation => {
                let (theirs, known) = (formed.generation, member.generation);
                self.refuse(
                    now,
                    format!("it is an older scheduler of this job: start {theirs}, after start {known} was seen"),
                );
            }
            Stage::Member(member) if formed.instance == member.instance && formed.epoch > member.epoch => {
                self.renewed(now, formed);
            }
            Stage::Member(_) if self.line.is_attached() => {}
            Stage::Member(member) if (formed.instance, formed.epoch) == (member.instance, member.epoch) => {
                self.attach_again(formed.generation);
                self.ask_store_again();
            }
            Stage::Member(_) => {
                self.refuse(now, "it is the scheduler of another job or of another epoch".to_owned());
            }
            Stage::Over => {}
        }
    }

    /// This node is attached again, and in the present epoch.
    fn attach_again(&mut self, generation: u64) {
        let Stage::Member(member) = &mut self.stage else { return };
        let is_another = member.follow(generation);
        if is_another {
            self.asks.forget_that_there_is_no_next_epoch();
        }
        self.line.attached(&mut self.out);
        self.out.send(Message::InEpoch(InEpoch { epoch: member.epoch }));
        // Even the same scheduler does not know of an abort that came from another node.
        if is_another || member.has_news() {
            member.known(self.asks.all_revoked()).into_iter().for_each(|known| self.out.send(known));
        }
        match member.is_leaving() {
            true => self.out.send(Message::Leave),
            false => self.ask_again(),
        }
    }

    /// The cluster is whole again, in a new epoch.
    fn renewed(&mut self, now: Time, formed: Formed) {
        let Stage::Member(member) = &mut self.stage else { return };
        let (generation, was_attached) = (formed.generation, self.line.is_attached());
        // The scheduler has not heard of an abort, and begins an epoch. The job is over all the same.
        let abort = member.first_cause().filter(|_| member.has_news()).cloned();
        let abort = abort.map(|first| Failure { epoch: formed.epoch, ..first });
        member.renew(formed.epoch);
        self.asks.renew();
        self.watch.form(&formed, &mut self.out);
        self.out.tell(Event::Formed(Box::new(formed)));
        if let Some(abort) = abort {
            self.heard_of_abort(now, abort); // before a good-bye: nothing is heard behind that
        }
        self.attach_again(generation);
        if !was_attached {
            self.ask_store_again(); // on the same connection they are on their way: they would be carried out twice
        }
    }

    /// The cluster is complete, for the first time.
    fn joined(&mut self, now: Time, formed: Formed) {
        self.line.agree(now, Duration::from_millis(formed.agreed.heartbeat_timeout_ms));
        self.store.set_limits(&formed.agreed);
        self.watch.form(&formed, &mut self.out);
        self.stage = Stage::Member(Member::new(&formed, self.profile.register.recovery));
        self.line.attached(&mut self.out);
        self.out.tell(Event::Formed(Box::new(formed)));
        self.ask_again();
        self.ask_store_again();
    }

    /// Sends again everything that waits for an answer, except requests to the store, on this connection.
    fn ask_again(&mut self) {
        self.asks.again().into_iter().for_each(|message| self.out.send(message));
    }

    /// Sends again the requests to the store, on a connection on which they were not sent yet.
    fn ask_store_again(&mut self) {
        if self.stage.member().is_some_and(|member| !member.is_leaving()) {
            self.store.again().into_iter().for_each(|message| self.out.send(message));
        }
    }

    /// What listens here is the scheduler of another job: this one's is at another port, if there are several.
    fn not_this_job(&mut self, now: Time, reason: String) {
        match self.stage {
            Stage::Forming(_) if self.line.search.has_several_places() => self.lost(now, Loss::AnotherJob, reason),
            Stage::Forming(_) => self.rejected(now, Rejected { status: Status::Rejected, reason }),
            _ => self.refuse(now, format!("it is not this job's scheduler: {reason}")),
        }
    }

    /// The scheduler does not want this node, or not any more.
    fn rejected(&mut self, now: Time, Rejected { status, reason }: Rejected) {
        match &self.stage {
            Stage::Forming(_) => self.end(Event::Failed(Error::new(status, reason))),
            // Its own scheduler puts a member out only for a newer life. Any other scheduler that refuses it does not know it.
            Stage::Member(member) if status != Status::Fenced && !member.is_leaving() => {
                self.refuse(now, format!("it is not this job's scheduler: {reason}"));
            }
            Stage::Member(member) => {
                let epoch = member.epoch;
                self.put_out(Failure { status, culprit: None, cause: reason, epoch, group: None, sequence: 0 });
            }
            Stage::Over => {}
        }
    }

    /// This node may come back, but not yet.
    fn not_yet(&mut self, now: Time, word: NotYet) {
        let Stage::Forming(forming) = &mut self.stage else {
            return self.refuse(now, "it asks a member to come back later".to_owned());
        };
        let wait = Duration::from_millis(word.wait_ms).clamp(NOT_YET_LEAST, NOT_YET_MOST);
        self.out.put(Output::Log { quiet: !word.long, line: format!("not yet: {}", word.reason) });
        forming.waits_until(now + wait);
        self.line.wait_to_register(now, wait, word.reason, &mut self.out);
    }
}
