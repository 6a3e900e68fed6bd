//! The progress thread: the thread that waits for the links of a group's messages, keeps the time of operations, and finds out
//! what became of a peer whose link ended. Whatever callers can do themselves, they do.

use super::engine::{Engine, Trouble};
use super::unreached::Suspect;
use super::{EngineHandle, Messages, WAKER};
use crate::error::{Failure, Result, Status};
use crate::net::{Poller, Registry, Token};
use crate::runtime::base::link_key::LinkKey;
use crate::runtime::base::sync::lock;
use crate::runtime::links::link::LinkEnd;
use crate::runtime::links::peers::{turn_away, Mail, Slot};
use crate::runtime::state::node_state::AgentCommand;
use crate::runtime::state::silence::Finding;
use crate::runtime::state::verdict::Word;
use crate::wire::Channel;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::time::Duration;

impl Messages {
    /// Until the group's messages are ended.
    pub(super) fn attend(&self, handle: &EngineHandle, mut poller: Poller) {
        let mut ready: Vec<u32> = Vec::new();
        let shared = &self.context.shared;
        loop {
            #[cfg(test)]
            handle.turns.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let (until, more) = {
                let mut engine = lock(&handle.engine);
                ready.extend(std::iter::from_fn(|| engine.more.pop_first()));
                ready.drain(..).for_each(|rank| engine.pump(rank));
                let look_at = engine.look_for_signs(shared.clock.now(), |rank| self.context.answer_about(rank));
                let until = engine.expire(shared).min(look_at);
                engine.flush();
                engine.alarm = until;
                (until, !engine.more.is_empty())
            };
            self.see_to(handle);
            if handle.mailbox.take_signal() {
                self.look_in_mailbox(handle, poller.registry());
                if lock(&self.progress_thread).ended {
                    return;
                }
                continue;
            }
            let wait = if more { Some(Duration::ZERO) } else { shared.clock.until(until) };
            poller.poll(wait).expect("epoll_wait fails only for bad arguments");
            ready.extend(poller.ready().filter(|ready| ready.token.0 != WAKER).map(|ready| ready.token.0 as u32));
        }
    }

    /// Takes what the agent thread has for the messages. Where the group is over, they end; that is done once, for to say so once
    /// more would make the progress thread look up again, without end.
    fn look_in_mailbox(&self, handle: &EngineHandle, registry: &Registry) {
        let mut engine = lock(&handle.engine);
        for mail in handle.mailbox.take() {
            match engine.failed {
                Some(_) => turn_away(mail, self.context.last_word.get()),
                None => take_in(&mut engine, mail, registry),
            }
        }
        if engine.failed.is_some() {
            return;
        }
        if let Some(failure) = self.context.told() {
            let first = self.context.break_with(failure);
            engine.fail(&first, &self.context.last_word_of(&first));
        }
    }

    /// What takes its time, or other threads: links to be opened, and peers that may be lost.
    fn see_to(&self, handle: &EngineHandle) {
        let (wanted, suspects, trouble) = {
            let mut engine = lock(&handle.engine);
            (std::mem::take(&mut engine.wanted), std::mem::take(&mut engine.suspects), engine.trouble.take())
        };
        for rank in wanted {
            self.context.shared.ask(AgentCommand::Open(LinkKey::new(self.context.id(), Channel::Messages, rank)));
        }
        match trouble {
            None => {}
            Some(Trouble::Heard(failure)) => {
                self.revoke(self.context.shared.heard(self.context.formed(), failure), false)
            }
            Some(Trouble::Corrupt(rank, what)) => {
                let cause = format!("messages on {}: {}", self.context.id(), self.context.on_link(rank, &what));
                self.revoke(self.messages_failure(Status::Corrupt, None, cause), true);
            }
            Some(Trouble::Memory(rank, bytes)) => {
                let (own, from) = (self.context.rank().unwrap_or(0), self.context.describe(rank));
                let cause =
                    format!("has no memory for a message of {bytes} bytes on {} from {from}", self.context.id());
                self.revoke(self.messages_failure(Status::Memory, Some(own), cause), true);
            }
        }
        for Suspect { rank, end, finding } in suspects {
            let evidence = end.in_words();
            match finding {
                _ if self.context.told().is_some() => {}
                Finding::Ask => self.context.ask_early(rank, &evidence),
                Finding::Unreached => self.settle(handle, rank, &evidence, Word::Alive),
                _ => self.settle(
                    handle,
                    rank,
                    &evidence,
                    self.context.ask_about(rank, &evidence, matches!(end, LinkEnd::Silent(_))),
                ),
            }
        }
    }

    /// A link ended: what that means is the scheduler's to say.
    fn settle(&self, handle: &EngineHandle, rank: u32, evidence: &str, word: Word) {
        match word {
            Word::Told(failure) => {
                self.context.break_with(failure);
                self.context.interrupt();
            }
            Word::Left(culprit) => lock(&handle.engine).peer_left(rank, Some(culprit)),
            // Nobody needs it just now; it may be leaving.
            Word::Alive | Word::Silent | Word::CutOff(_) if !lock(&handle.engine).needs(rank) => {}
            Word::Alive => {
                let (own, other) =
                    (self.context.describe(self.context.rank().unwrap_or(0)), self.context.describe(rank));
                let cause = format!(
                    "messages on {}: {own} and {other} cannot reach each other although both live: {evidence}",
                    self.context.id()
                );
                self.revoke(self.messages_failure(Status::Link, None, cause), true);
            }
            Word::CutOff(failure) => self.revoke(Failure { group: Some(self.context.id()), ..failure }, true),
            Word::Silent => {
                let cause = format!(
                    "is probably lost, unconfirmed: among the messages on {}, {evidence}, and the scheduler said nothing",
                    self.context.id()
                );
                self.revoke(self.messages_failure(Status::PeerLost, Some(rank), cause), true);
            }
        }
    }

    /// Does something with the messages. A panic there is a bug of this library; it ends all of the group's messages, since
    /// nobody would move them any more, and what has ended touches no caller's memory.
    pub(super) fn guarded<T>(&self, body: impl FnOnce() -> Result<T>) -> Result<T> {
        catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
            let cause =
                format!("messages on {}: a bug in this library, printed above; please report it", self.context.id());
            let failure = self.messages_failure(Status::Internal, self.context.rank(), cause);
            self.revoke(failure.clone(), true);
            self.close();
            Err(self.context.broken().unwrap_or(failure).into())
        })
    }

    fn messages_failure(&self, status: Status, culprit: Option<u32>, cause: String) -> Failure {
        let culprit = culprit.and_then(|rank| self.context.roster.culprit(rank));
        Failure {
            status,
            culprit,
            cause,
            epoch: self.context.formed().epoch,
            group: Some(self.context.id()),
            sequence: 0,
        }
    }

    /// Ends the group for everyone; who drives its links looks up and tells the peers.
    fn revoke(&self, failure: Failure, is_own: bool) {
        let cause = self.context.agree_on_cause(failure, is_own);
        self.context.break_with(cause);
        self.context.interrupt();
    }
}

fn take_in(engine: &mut Engine, mail: Mail, registry: &Registry) {
    let (rank, checksums) = (mail.peer(), engine.roster.formed.agreed.checksums);
    if !engine.peer(rank).slot.is_wanted() {
        return;
    }
    match mail {
        Mail::Failed(_, end) => return engine.never_up(rank, end),
        Mail::Freed(_) => return engine.peer_left(rank, None),
        up => engine.peer(rank).slot.take_in(up, checksums),
    }
    let Slot::Up(link) = &mut engine.peer(rank).slot else { return };
    match link.transport().register(registry, Token(rank as usize)) {
        Ok(()) => engine.pump(rank),
        Err(error) => {
            engine.peer(rank).slot = Slot::Asked;
            engine.never_up(rank, LinkEnd::Ended(format!("it cannot be watched: {error}")));
        }
    }
}
