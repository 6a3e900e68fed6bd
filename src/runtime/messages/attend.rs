//! The attendant: the thread that waits for the links of a group's messages, keeps the time of operations, and finds out
//! what became of a peer whose link ended. Whatever callers can do themselves, they do.

use super::engine::{Engine, Suspect, Trouble};
use super::peer::Slot;
use super::Office;
use crate::error::{Failure, Result, Status};
use crate::net::{Poller, Registry, Token};
use crate::runtime::base::sync::lock;
use crate::runtime::collectives::failure::Word;
use crate::runtime::groups::group::{Group, Mail, WAKER};
use crate::runtime::links::link::{Link, LinkEnd};
use crate::runtime::links::mesh::LinkKey;
use crate::runtime::links::silence::Finding;
use crate::runtime::state::node_state::{Shared, ToNode};
use crate::wire::Channel;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::time::Duration;

impl Group {
    /// Until the group's messages are ended.
    pub(super) fn attend(&self, office: &Office, mut poller: Poller) {
        let mut ready: Vec<u32> = Vec::new();
        while let Ok(shared) = self.shared() {
            #[cfg(test)]
            office.turns.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let (until, more) = {
                let mut engine = lock(&office.engine);
                ready.extend(std::iter::from_fn(|| engine.more.pop_first()));
                ready.drain(..).for_each(|rank| engine.pump(rank));
                let look_at = engine.look_for_signs(shared.clock.now(), |rank| self.answer_about(&shared, rank));
                let until = engine.expire(&shared).min(look_at);
                engine.flush();
                engine.alarm = until;
                (until, !engine.more.is_empty())
            };
            self.see_to(office, &shared);
            if office.mailbox.take_signal() {
                self.look_in_mailbox(office, &shared, poller.registry());
                if lock(&self.messages.attendant).ended {
                    return;
                }
                continue;
            }
            let wait = if more { Some(Duration::ZERO) } else { shared.clock.until(until) };
            drop(shared); // a cluster that is freed meanwhile says so through the mailbox
            poller.poll(wait).expect("epoll_wait fails only for bad arguments");
            ready.extend(poller.ready().filter(|ready| ready.token.0 != WAKER).map(|ready| ready.token.0 as u32));
        }
        lock(&office.engine).forsake();
    }

    /// Takes what the agent thread has for the messages. Where the group is over, they end; that is done once, for to say so once
    /// more would make the attendant look up again, without end.
    fn look_in_mailbox(&self, office: &Office, shared: &Shared, registry: &Registry) {
        let mut engine = lock(&office.engine);
        for mail in office.mailbox.take() {
            match engine.failed {
                Some(_) => self.drop_mail(mail),
                None => take_in(&mut engine, mail, registry),
            }
        }
        if engine.failed.is_some() {
            return;
        }
        if let Some(failure) = self.told(shared) {
            let first = self.break_with(failure);
            engine.fail(&first, &self.last_word_of(&first));
        }
    }

    /// What takes its time, or other threads: links to be opened, and peers that may be lost.
    fn see_to(&self, office: &Office, shared: &Shared) {
        let (wanted, suspects, trouble) = {
            let mut engine = lock(&office.engine);
            (std::mem::take(&mut engine.wanted), std::mem::take(&mut engine.suspects), engine.trouble.take())
        };
        for rank in wanted {
            shared.ask(ToNode::Open(LinkKey::new(self.id(), Channel::Messages, rank)));
        }
        match trouble {
            None => {}
            Some(Trouble::Heard(failure)) => self.revoke(shared, shared.heard(&self.formed, failure), false),
            Some(Trouble::Corrupt(rank, what)) => {
                let cause = format!("messages on {}: {}", self.id(), self.on_link(rank, &what));
                self.revoke(shared, self.messages_failure(Status::Corrupt, None, cause), true);
            }
            Some(Trouble::Memory(rank, bytes)) => {
                let (own, from) = (self.rank().unwrap_or(0), self.describe(rank));
                let cause = format!("has no memory for a message of {bytes} bytes on {} from {from}", self.id());
                self.revoke(shared, self.messages_failure(Status::Memory, Some(own), cause), true);
            }
        }
        for Suspect { rank, end, finding } in suspects {
            let evidence = end.in_words();
            match finding {
                _ if self.told(shared).is_some() => {}
                Finding::Ask => self.ask_early(shared, rank, &evidence),
                Finding::Unreached => self.settle(office, shared, rank, &evidence, Word::Alive),
                _ => self.settle(office, shared, rank, &evidence, self.ask_about(shared, rank, &end)),
            }
        }
    }

    /// A link ended: what that means is the scheduler's to say.
    fn settle(&self, office: &Office, shared: &Shared, rank: u32, evidence: &str, word: Word) {
        match word {
            Word::Told(failure) => {
                self.break_with(failure);
                self.interrupt();
            }
            Word::Left(culprit) => lock(&office.engine).peer_left(rank, Some(culprit)),
            // Nobody needs it just now; it may be leaving.
            Word::Alive | Word::Silent | Word::CutOff(_) if !lock(&office.engine).needs(rank) => {}
            Word::Alive => {
                let (own, other) = (self.describe(self.rank().unwrap_or(0)), self.describe(rank));
                let cause = format!(
                    "messages on {}: {own} and {other} cannot reach each other although both live: {evidence}",
                    self.id()
                );
                self.revoke(shared, self.messages_failure(Status::Link, None, cause), true);
            }
            Word::CutOff(failure) => self.revoke(shared, Failure { group: Some(self.id()), ..failure }, true),
            Word::Silent => {
                let cause = format!(
                    "is probably lost, unconfirmed: among the messages on {}, {evidence}, and the scheduler said nothing",
                    self.id()
                );
                self.revoke(shared, self.messages_failure(Status::PeerLost, Some(rank), cause), true);
            }
        }
    }

    /// Does something with the messages. A panic there is a bug of this library; it ends all of the group's messages, since
    /// nobody would move them any more, and what has ended touches no caller's memory.
    pub(super) fn guarded<T>(&self, body: impl FnOnce() -> Result<T>) -> Result<T> {
        catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
            let cause = format!("messages on {}: a bug in this library, printed above; please report it", self.id());
            let failure = self.messages_failure(Status::Internal, self.rank(), cause);
            match self.shared() {
                Ok(shared) => self.revoke(&shared, failure.clone(), true),
                Err(_) => drop(self.break_with(failure.clone())),
            }
            self.close_messages();
            Err(self.broken().unwrap_or(failure).into())
        })
    }

    fn messages_failure(&self, status: Status, culprit: Option<u32>, cause: String) -> Failure {
        let culprit = culprit.and_then(|rank| self.roster.culprit(rank));
        Failure { status, culprit, cause, epoch: self.formed.epoch, group: Some(self.id()), sequence: 0 }
    }

    /// Ends the group for everyone; who drives its links looks up and tells the peers.
    fn revoke(&self, shared: &Shared, failure: Failure, is_own: bool) {
        let cause = self.agree_on_cause(shared, failure, is_own);
        self.break_with(cause);
        self.interrupt();
    }
}

fn take_in(engine: &mut Engine, mail: Mail, registry: &Registry) {
    match mail {
        Mail::Up(rank, transport, ahead) => {
            let mut link = Link::new(transport, &ahead);
            if !matches!(engine.peer(rank).slot, Slot::Unused | Slot::Asked) {
                return; // a second link is dropped; the agent thread does not let one in
            }
            match link.transport().register(registry, Token(rank as usize)) {
                Ok(()) => {
                    engine.peer(rank).slot = Slot::Up(Box::new(link));
                    engine.pump(rank);
                }
                Err(error) => engine.never_up(rank, LinkEnd::Ended(format!("it cannot be watched: {error}"))),
            }
        }
        Mail::Failed(rank, end) => engine.never_up(rank, end),
        Mail::Freed(rank) => {
            if matches!(engine.peer(rank).slot, Slot::Unused | Slot::Asked) {
                engine.peer_left(rank, None);
            }
        }
    }
}
