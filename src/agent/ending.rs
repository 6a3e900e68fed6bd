//! What ends: the cluster, broken by a first cause; this node's part in it, when it leaves or is put out; and the brain itself.
//!
//! A node that leaves says so, and waits for the scheduler's Bye, but never for long. While the scheduler is in reach,
//! the wait is the finalize time-out. Without it, the wait ends 5 s after the scheduler was last there (but not sooner
//! than 1 s after the wish to leave), because only the scheduler misses the goodbye. A node leaves a broken cluster
//! within 1 s, and at once if the scheduler is away. There is one exception, with recovery: a scheduler that does not
//! know yet that the job was aborted has to be told. Otherwise it would wait for nodes that nobody starts again.

use super::contract::{Event, Output};
use super::{Agent, Stage};
use crate::error::{Culprit, Error, Failure, Status};
use crate::types::Time;
use crate::wire::Message;

impl Agent {
    /// Tells the last event.
    pub(super) fn end(&mut self, event: Event) {
        self.out.put(Output::Disconnect);
        self.out.tell(event);
        self.line.shut();
        self.stage = Stage::Over;
    }

    pub(super) fn leave(&mut self, now: Time) {
        match &mut self.stage {
            Stage::Member(member) if member.is_put_out() => {
                self.end(Event::Left(Some("the scheduler had put this node out of the cluster".to_owned())));
            }
            Stage::Member(member) => {
                if member.leave(now, self.profile.finalize_timeout) {
                    self.watch.says_that_it_leaves(&mut self.out);
                    if self.line.is_attached() {
                        self.out.send(Message::Leave);
                    }
                }
            }
            Stage::Forming(_) => {
                if self.line.is_up() {
                    self.out.send(Message::Leave);
                }
                self.end(Event::Left(None));
            }
            Stage::Over => {}
        }
    }

    pub(super) fn leave_deadline(&self) -> Time {
        self.stage.member().map_or(Time::NEVER, |member| member.leave_deadline(self.line.away_since()))
    }

    pub(super) fn leave_timer(&mut self, now: Time) {
        if now < self.leave_deadline() {
            return;
        }
        let (scheduler, reason) = (self.line.scheduler(), self.line.search.last_reason());
        let warning = match self.line.is_attached() {
            true => format!("the scheduler at {scheduler} did not confirm in time that this node has left"),
            false => format!("left without telling the scheduler at {scheduler}, which is away: {reason}"),
        };
        self.end(Event::Left(Some(warning)));
    }

    /// This node is told the first cause of a broken cluster.
    pub(super) fn verdict(&mut self, now: Time, mut failure: Failure) {
        if self.calls_this_node_lost(&failure) {
            failure = failure.to_the_lost();
        }
        let is_fenced = self.profile.register.recovery && failure.status == Status::Fenced;
        match &mut self.stage {
            Stage::Member(member) if failure.epoch != member.epoch => {} // it was told of its own epoch, or will be
            Stage::Member(member) if is_fenced && !member.is_leaving() => self.put_out(failure),
            Stage::Member(member) => {
                member.hasten(now);
                self.break_up(failure);
            }
            Stage::Forming(_) => self.end(Event::Failed(failure.into())),
            Stage::Over => {}
        }
    }

    fn calls_this_node_lost(&self, failure: &Failure) -> bool {
        let own = &self.profile.register;
        let is_this = |culprit: &Culprit| culprit.role == own.role && culprit.node_id == own.node_id;
        failure.status == Status::PeerLost && failure.culprit.as_ref().is_some_and(is_this)
    }

    /// A peer says that this node is lost. If that is the scheduler's verdict, which names no group, it holds, although
    /// the scheduler cannot say it here. A peer's own belief does not hold: with recovery it may be wrong, and the
    /// scheduler knows better.
    pub(super) fn heard_of_verdict(&mut self, now: Time, failure: Failure) {
        if failure.group.is_none() && self.calls_this_node_lost(&failure) {
            self.verdict(now, failure);
        }
    }

    /// A node has ended the job without the scheduler. If this node has a scheduler, it tells the scheduler.
    pub(super) fn heard_of_abort(&mut self, now: Time, failure: Failure) {
        let is_known = self.stage.member().is_some_and(|member| member.is_aborted());
        if failure.status != Status::Aborted || is_known {
            return;
        }
        self.verdict(now, failure);
        let Stage::Member(member) = &mut self.stage else { return };
        if member.hear_abort_of_a_peer() && self.line.is_attached() {
            member.known(self.asks.all_revoked()).into_iter().for_each(|known| self.out.send(known));
        }
    }

    /// The others go on without this life of the node: it has nothing more to say, and nothing to wait for.
    pub(super) fn put_out(&mut self, failure: Failure) {
        let Stage::Member(member) = &mut self.stage else { return };
        let error = Error::from(failure.clone());
        if member.is_leaving() {
            return self.end(Event::Left(Some(format!("left without the scheduler's goodbye: {error}"))));
        }
        if !member.put_out() {
            return;
        }
        self.out.put(Output::Disconnect);
        self.line.shut();
        let in_vain = self.asks.recovers_in_vain(&failure);
        self.break_up(failure);
        in_vain.into_iter().for_each(|event| self.out.tell(event));
        self.store.fail_all(&error).into_iter().for_each(|event| self.out.tell(event));
    }

    /// The cluster is broken. Tells the first cause, once; and, if the cluster could have become whole again, that it
    /// will not. The cause comes first: a program whose muster_recover has failed may ask for it at once.
    fn break_up(&mut self, failure: Failure) {
        let Stage::Member(member) = &mut self.stage else { return };
        let is_news = member.break_by(&failure);
        let may_recover = member.may_recover();
        let ends_recovery = is_news && self.profile.register.recovery && !may_recover;
        let in_vain = ends_recovery.then(|| self.asks.recovers_in_vain(&failure)).flatten();
        self.asks.broken(may_recover);
        if is_news {
            self.out.tell(Event::Broken(failure));
        }
        in_vain.into_iter().for_each(|event| self.out.tell(event));
    }
}
