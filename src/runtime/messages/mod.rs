//! Point to point: messages between two members of a group, by tag.
//!
//! | file | what it owns |
//! | --- | --- |
//! | [`matching`] | which message meets which receive |
//! | [`queues`] | what waits, by what it waits for |
//! | [`operation`] | one send or receive, until it has ended |
//! | [`peer`] | what is known of one peer |
//! | [`engine`] | the state of a group's messages, and all that can happen to it |
//! | [`traffic`] | frames, out and in |
//! | [`spare`], [`ranks`] | buffers to be used again; sets of peers |
//! | [`ending`] | what becomes of all that when a peer leaves, or the group is over |
//! | [`signs`] | peers that live and are not reached |
//! | [`attend`] | the thread that sees to it that messages go on by themselves |
//!
//! A group's messages have links of their own. From the first use on one thread waits for those links; whoever posts an
//! operation moves what can be moved at once, and a caller who waits drives its message for a short while before it
//! sleeps. All of it under one lock, so that a message is handed from thread to thread only where somebody sleeps.

mod attend;
mod ending;
mod engine;
#[cfg(test)]
mod engine_test;
mod late;
#[cfg(all(test, loom))]
mod loom_test;
mod matching;
#[cfg(test)]
mod messages_test;
mod operation;
mod peer;
mod queues;
mod ranks;
mod signs;
mod spare;
mod traffic;

pub use operation::{Post, Way};

use crate::agent::Command;
use crate::error::{memory, Error, Failure, Result, Status};
use crate::net::{thread, Poller, Token};
use crate::runtime::base::mailbox::Mailbox;
use crate::runtime::base::polling::Idle;
use crate::runtime::base::request::{Cancel, Outcome, Request};
use crate::runtime::base::sync::{lock, Bell, Mutex};
use crate::runtime::collectives::drive::WARN_AFTER;
use crate::runtime::collectives::progress::WAITS_AFTER;
use crate::runtime::groups::group::{Group, Mail, WAKER};
use crate::runtime::links::mesh::LinkKey;
use crate::runtime::state::node_state::{Shared, ToNode};
use crate::types::Time;
use crate::wire::{Channel, MessageWait};
use engine::Engine;
use matching::OpId;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

/// A group's messages; nothing before their first use.
#[derive(Default)]
pub(crate) struct Messages {
    office: OnceLock<Arc<Office>>,
    attendant: Mutex<Attendant>,
}

#[derive(Default)]
struct Attendant {
    thread: Option<JoinHandle<()>>,
    ended: bool,
}

/// What callers and attendant share.
struct Office {
    engine: Mutex<Engine>,
    mailbox: Mailbox<Mail>,
    /// How often the attendant has looked up.
    #[cfg(test)]
    turns: std::sync::atomic::AtomicU64,
}

impl Messages {
    /// Makes the attendant look up.
    pub(crate) fn interrupt(&self) {
        if let Some(office) = self.office.get() {
            office.mailbox.interrupt();
        }
    }
}

impl Group {
    /// The messages that have been waited for so long that a heartbeat tells of them.
    pub(crate) fn message_waits(&self, now: Time) -> Vec<MessageWait> {
        let Some(office) = self.messages.office.get() else { return Vec::new() };
        lock(&office.engine).waits(now - WAITS_AFTER, now)
    }

    /// Carries out a send, a receive, or both together, and returns when they have ended.
    pub fn run_messages(self: &Arc<Self>, first: Post, second: Option<Post>) -> Outcome {
        let peer = match (first.way, &second) {
            (Way::Send { to, .. }, None) => Some(to),
            (Way::Receive { from, .. }, None) => from,
            _ => None,
        };
        let title = second.as_ref().map_or(first.way.name(), |_| "sendrecv");
        let request = self.start_messages(first, second)?;
        let outcome = self.guarded(|| self.await_message(&request, peer, title));
        match self.shared() {
            Ok(shared) => self.told_by(&shared, outcome),
            Err(_) => outcome,
        }
    }

    /// Starts a send, a receive, or both together, which go on while the caller does something else.
    pub fn start_messages(self: &Arc<Self>, first: Post, second: Option<Post>) -> Result<Request> {
        self.guarded(|| self.post_messages(first, second))
    }

    fn post_messages(self: &Arc<Self>, first: Post, second: Option<Post>) -> Result<Request> {
        let shared = self.shared()?;
        if self.rank().is_none() {
            let name = second.map_or(first.way.name(), |_| "sendrecv");
            return Err(Error::invalid(format!("{name}: this process is no member of {}", self.id())));
        }
        self.begin(&shared)?;
        let office = self.office()?;
        let now = shared.clock.now();
        let (limit_ms, deadline) = (self.timeout_ms(), self.deadline(now));
        let mut engine = lock(&office.engine);
        engine.check(&first, second.as_ref())?;
        let (to, own_bytes) = engine.keeps(&first, second.as_ref());
        if !self.requests.has_spare() || engine.is_full(to, own_bytes) {
            memory::with_reserve("one message more", || engine.reserve(to, own_bytes))?;
        }
        let (request, completer) = self.requests.make();
        let op = engine.upcoming();
        let count = 1 + OpId::from(second.is_some());
        completer.cancel_by(Cancel::Messages(Arc::downgrade(self), op..op + count));
        match second {
            None => engine.post(first, now, limit_ms, deadline, completer),
            Some(second) => {
                let [one, other] = completer.halves();
                engine.post(first, now, limit_ms, deadline, one);
                engine.post(second, now, limit_ms, deadline, other);
            }
        }
        engine.flush();
        let alarm = deadline.min(engine.look_at(now));
        let early = engine.alarm > alarm;
        engine.alarm = engine.alarm.min(alarm);
        self.leave_engine(&shared, office, engine, early);
        Ok(request)
    }

    /// A caller has done something to the engine: what remains is the agent thread's, or the attendant's.
    fn leave_engine(&self, shared: &Shared, office: &Office, mut engine: EngineGuard<'_>, look: bool) {
        let wanted = std::mem::take(&mut engine.wanted);
        let look = look || engine.needs_attention();
        drop(engine);
        for rank in wanted {
            shared.ask(ToNode::Open(LinkKey::new(self.id(), Channel::Messages, rank)));
        }
        if look {
            office.mailbox.interrupt();
        }
    }

    /// Drives messages for a short while, as `polling` says; then sleeps.
    fn await_message(&self, request: &Request, peer: Option<u32>, title: &str) -> Outcome {
        let shared = self.shared()?;
        let Some(office) = self.messages.office.get() else {
            return Err(Error::new(Status::Internal, "messages without an office"));
        };
        let mut idle = Idle::default();
        loop {
            if let Some(outcome) = request.test() {
                return outcome;
            }
            if let Ok(mut engine) = office.engine.try_lock() {
                let before = engine.moved;
                engine.look(peer);
                if engine.moved != before {
                    idle.end();
                }
                self.leave_engine(&shared, office, engine, false);
            }
            if !shared.polling.poll(&mut idle, &self.polls, &shared.clock) {
                break;
            }
        }
        if let Some(outcome) = request.wait(Some(WAITS_AFTER)) {
            return outcome;
        }
        shared.ask(ToNode::Brain(Command::Report));
        if let Some(outcome) = request.wait(Some(WARN_AFTER - WAITS_AFTER)) {
            return outcome;
        }
        let with = peer.map_or("any rank".to_owned(), |rank| self.describe(rank));
        let waited = WARN_AFTER.as_secs();
        shared.logger.warn(&format!("{title} with {with} on {} has been waiting for {waited} s", self.id()));
        request.wait(None).unwrap_or_else(|| Err(Error::new(Status::Internal, "a wait without limit has ended")))
    }

    pub(crate) fn cancel_messages(&self, ops: std::ops::Range<OpId>) {
        let (Ok(shared), Some(office)) = (self.shared(), self.messages.office.get()) else { return };
        let mut engine = lock(&office.engine);
        ops.for_each(|op| engine.cancel(op));
        engine.flush();
        self.leave_engine(&shared, office, engine, false);
    }

    /// The engine and its attendant, from now on.
    fn office(self: &Arc<Self>) -> Result<&Arc<Office>> {
        if let Some(office) = self.messages.office.get() {
            return Ok(office);
        }
        let mut attendant = lock(&self.messages.attendant);
        if attendant.ended {
            return Err(Error::new(Status::State, format!("{} has been freed, or its cluster left", self.id())));
        }
        if attendant.thread.is_none() {
            let (poller, waker) = (Poller::new()?, Bell::new()?);
            let watched = waker.register(poller.registry(), Token(WAKER));
            watched.map_err(|error| Error::system("the waker of a group's messages cannot be watched", &error))?;
            let (engine, mailbox) = (Mutex::new(Engine::new(&self.roster)), Mailbox::new(waker));
            let office = Arc::new(Office {
                engine,
                mailbox,
                #[cfg(test)]
                turns: Default::default(),
            });
            let (group, theirs) = (Arc::clone(self), Arc::clone(&office));
            let attend = move || {
                let _ = group.guarded(|| {
                    group.attend(&theirs, poller);
                    Ok(())
                });
            };
            attendant.thread = Some(thread::spawn("muster-messages", attend)?);
            let _ = self.messages.office.set(office); // under the lock, so there is none yet
            self.messages.interrupt(); // whoever broke the group before that found no attendant to tell
        }
        self.messages.office.get().ok_or_else(|| Error::new(Status::Internal, "messages without an office"))
    }

    /// The agent thread has something for the messages.
    pub(crate) fn deliver_to_messages(self: &Arc<Self>, mail: Mail) -> std::result::Result<(), Mail> {
        match self.office() {
            Ok(office) => office.mailbox.deliver(mail),
            Err(_) => Err(mail), // the group is over, or the system refuses: the peer hears that the link ended
        }
    }

    /// Ends all messages, and says the last word on their links.
    pub(crate) fn close_messages(&self) {
        if let (Some(office), Some(failure)) = (self.messages.office.get(), self.broken()) {
            lock(&office.engine).fail(&failure, &self.last_word_of(&failure));
        }
    }

    /// The newest message whose time was up, while the group still holds.
    pub(crate) fn late_message(&self) -> Option<Failure> {
        self.messages.office.get().and_then(|office| lock(&office.engine).late.clone())
    }

    /// Goes on with what is said last. Returns whether all of it has reached the peers.
    pub(crate) fn are_messages_drained(&self) -> bool {
        self.messages.office.get().is_none_or(|office| !lock(&office.engine).drain())
    }

    /// Tells the attendant to end, if there is one; gives its thread. The group is broken by now.
    pub(crate) fn end_attendant(&self) -> Option<JoinHandle<()>> {
        let thread = {
            let mut attendant = lock(&self.messages.attendant);
            attendant.ended = true;
            attendant.thread.take()
        };
        self.messages.interrupt();
        thread
    }

    /// Drops every link for messages.
    pub(crate) fn shut_messages(&self) {
        let Some(office) = self.messages.office.get() else { return };
        office.mailbox.shut().into_iter().for_each(|mail| self.drop_mail(mail));
        lock(&office.engine).peers.clear();
    }
}

type EngineGuard<'a> = crate::runtime::base::sync::MutexGuard<'a, Engine>;
