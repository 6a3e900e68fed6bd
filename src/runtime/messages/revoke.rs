//! What ends a group because of its messages: damage, a lost peer, a bug. The scheduler says who is to blame.

use super::engine::Trouble;
use super::peer::SuspectedPeer;
use super::{EngineHandle, Messages};
use crate::error::{Error, Failure, Result, Status};
use crate::runtime::base::interrupts::in_call;
use crate::runtime::base::patience::VERDICT_WAIT;
use crate::runtime::base::request::{Outcome, Request, RequestedOperation};
use crate::runtime::base::sync::lock;
use crate::runtime::links::link::LinkEnd;
use crate::runtime::state::silence::Finding;
use crate::runtime::state::verdict::{Concern, PeerQuery, Unsaid, Word};
use std::panic::{catch_unwind, AssertUnwindSafe};

impl Messages {
    /// Ends the group because of this trouble.
    pub(super) fn revoke_for(&self, trouble: Trouble) {
        match trouble {
            Trouble::Heard(failure) => self.revoke(self.context.state.heard(self.context.formed(), failure), false),
            Trouble::Corrupt(rank, what) => self.revoke(self.on_link(Status::Corrupt, rank, &what), true),
            Trouble::Unsupported(rank, what) => self.revoke(self.on_link(Status::Unsupported, rank, &what), true),
            Trouble::Memory(rank, bytes) => {
                let from = self.context.describe(rank);
                let cause =
                    format!("has no memory for a message of {bytes} bytes on {} from {from}", self.context.id());
                self.revoke(
                    self.context.failure(Status::Memory, self.context.culprit(self.context.own_rank()), cause, 0),
                    true,
                );
            }
        }
    }

    /// Something may be wrong with a peer. Each turn checks what the scheduler says of it.
    pub(super) fn judge(
        &self,
        handle: &EngineHandle,
        suspect: SuspectedPeer,
        open: &mut Vec<(SuspectedPeer, PeerQuery)>,
    ) {
        let evidence = suspect.end.in_words();
        match suspect.finding {
            _ if self.context.told().is_some() => {}
            Finding::Ask => self.context.ask_early(suspect.rank, &evidence),
            Finding::Unreached => self.heed(handle, &suspect, Word::Unsaid(Unsaid::Alive)),
            Finding::Unknown if open.iter().any(|(other, _)| other.rank == suspect.rank) => {}
            Finding::Unknown => {
                let is_silent = matches!(suspect.end, LinkEnd::Silent(_));
                let query = PeerQuery::about(&self.context, suspect.rank, &evidence, is_silent);
                open.push((suspect, query));
            }
        }
    }

    /// Does what follows from what is known of a suspect.
    pub(super) fn heed(&self, handle: &EngineHandle, suspect: &SuspectedPeer, word: Word) {
        let SuspectedPeer { rank, end, .. } = suspect;
        match word {
            Word::Told(failure) => {
                self.context.break_with(failure);
                self.context.interrupt();
            }
            Word::Left(culprit) => {
                let mut engine = lock(&handle.engine);
                engine.transfers.peer_left(*rank, Some(culprit));
                engine.flush();
                drop(engine);
                self.context.interrupt_messages(); // there may be more to do than was found before
            }
            // No operation needs this peer just now; it may be leaving.
            Word::Unsaid(_) if !lock(&handle.engine).transfers.needs(*rank) => {}
            Word::Unsaid(what) => {
                let evidence = end.in_words();
                let concern = Concern { title: &self.title(), sequence: 0, peer: *rank, evidence: &evidence };
                self.revoke(self.context.failure_of(what, &concern), true);
            }
        }
    }

    /// The program has interrupted a caller of messages. When this returns, the caller's buffers are its own again. A
    /// message that has met its other half mostly goes on; if its peer does not go on, the group ends. A send is also
    /// taken back if its receiver does not say whether it has met it.
    pub(super) fn take_back(
        &self,
        request: &Request,
        title: &str,
        why: &Error,
        give_up_recalled: impl Fn(&RequestedOperation),
    ) -> Outcome {
        request.cancel();
        let answered = request.wait(Some(VERDICT_WAIT));
        if let (None, Some(operation)) = (&answered, request.operation()) {
            give_up_recalled(operation);
        }
        let ended = answered.or_else(|| request.test()).or_else(|| {
            let cause = format!("was interrupted in {title}, when a part of it was done");
            let own = self.context.culprit(self.context.own_rank());
            self.revoke(self.context.failure(Status::Aborted, own, cause, 0), true);
            request.wait(None)
        });
        match ended {
            Some(Ok(received)) => Ok(received),
            _ => Err(in_call(title, why)),
        }
    }

    /// Does something with the messages. A panic in it is a bug of this library: it ends all of the group's messages,
    /// because nobody would move them any more. A message that has ended touches no caller's memory.
    pub(super) fn guarded<T>(&self, body: impl FnOnce() -> Result<T>) -> Result<T> {
        catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
            let cause = format!("{}: a bug in this library, printed above; please report it", self.title());
            let failure =
                self.context.failure(Status::Internal, self.context.culprit(self.context.own_rank()), cause, 0);
            self.revoke(failure.clone(), true);
            self.close();
            Err(self.context.broken().unwrap_or(failure).into())
        })
    }

    /// Ends all messages, and says the last word on their links.
    pub(crate) fn close(&self) {
        if let (Some(handle), Some(failure)) = (self.handle.get(), self.context.broken()) {
            let mut engine = lock(&handle.engine);
            engine.fail(&failure, &self.context.last_word_of(&failure));
            engine.deadlines.forget_questions(&self.context.state);
        }
    }

    /// The failure where the link to the peer is itself at fault.
    fn on_link(&self, status: Status, peer: u32, evidence: &str) -> Failure {
        self.context.failure_on_link(status, &Concern { title: &self.title(), sequence: 0, peer, evidence })
    }

    fn title(&self) -> String {
        format!("messages on {}", self.context.id())
    }

    /// Ends the group for everyone. The thread that drives its links looks up and tells the peers.
    fn revoke(&self, failure: Failure, is_own: bool) {
        let cause = self.context.agree_on_cause(failure, is_own);
        self.context.break_with(cause);
        self.context.interrupt();
    }
}
