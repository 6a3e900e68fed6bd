//! Point to point: messages between two members of a group, by tag.
//!
//! | file | what it owns |
//! | --- | --- |
//! | [`matching`] | which message meets which receive |
//! | [`queues`] | what waits, by what it waits for |
//! | [`operation`] | one send or receive, until it has ended |
//! | [`peer`] | what is known of one peer beside its link |
//! | [`buffer_pool`], [`ranks`] | buffers to be used again; sets of peers |
//! | [`transfers`], [`posting`], [`leaving`] | what is posted and what has come; how that begins; what becomes of it when a peer leaves |
//! | [`engine`] | those transfers, and all that can happen to them: |
//! | [`traffic`], [`arrivals`] | frames, out and in; what each does that comes in |
//! | [`giving_up`] | what is cancelled, late, refused or dropped, and what the peer says of that |
//! | [`deadlines`], [`late`], [`unreached`] | when the time of operations is up, and what becomes of them then; peers that may not be reached |
//! | [`ending`] | what becomes of all that when the group is over |
//! | [`progress_thread`], [`revoke`] | the thread that sees to it that messages go on by themselves; what ends the group because of them |
//!
//! A group's messages have links of their own. From the first use on one thread waits for those links. The thread that
//! posts an operation moves what can be moved at once. A caller that waits drives its message for a short while before
//! it sleeps. All of it under one lock, so that a message is handed from thread to thread only where somebody sleeps.

mod arrivals;
mod buffer_pool;
mod deadlines;
mod ending;
mod engine;
#[cfg(test)]
mod engine_test;
mod giving_up;
mod late;
mod leaving;
#[cfg(all(test, loom))]
mod loom_test;
mod matching;
#[cfg(test)]
pub(crate) mod messages_test;
mod operation;
mod peer;
mod posting;
mod progress_thread;
mod queues;
mod ranks;
mod revoke;
mod traffic;
mod transfers;
mod unreached;

pub use operation::{Direction, Post};

use crate::agent::Command;
use crate::error::{memory, Error, Failure, Result, Status};
use crate::net::{thread, Poller, Token};
use crate::runtime::base::interrupts::Attention;
use crate::runtime::base::link_key::LinkKey;
use crate::runtime::base::mailbox::{Mailbox, Signal};
use crate::runtime::base::patience::{self, WARN_AFTER};
use crate::runtime::base::polling::Idle;
use crate::runtime::base::request::{Outcome, Request, RequestEngine, RequestedOperation};
use crate::runtime::base::sync::{lock, Bell, Mutex};
use crate::runtime::links::peers::{turn_away, Mail};
use crate::runtime::state::context::{Context, TimeLimit};
use crate::runtime::state::node_state::AgentCommand;
use crate::types::Time;
use crate::wire::{Channel, MessageWait, WAITS_AFTER};
use engine::Engine;
use matching::{OpId, Wanted};
use operation::call_title;
use std::hint::spin_loop;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;
use transfers::Transfers;

/// The token of the progress thread's waker. A link's token is its peer's rank.
const WAKER: usize = usize::MAX - 1;

/// How often a caller looks without a pause for others, if each rank has a processor of its own, as far as is known.
/// These looks take some microseconds in memory, and some ten over TCP.
const LOOKS: u32 = 64;
/// How long a heartbeat waits for a thread that moves messages, at most.
const BUSY_WAIT: Duration = Duration::from_millis(2);

/// A group's messages. There is nothing of them before their first use.
pub(crate) struct Messages {
    context: Arc<Context>,
    handle: OnceLock<Arc<EngineHandle>>,
    progress_thread: Mutex<ProgressThread>,
}

#[derive(Default)]
struct ProgressThread {
    thread: Option<JoinHandle<()>>,
    ended: bool,
}

/// What a caller does once its operations are posted.
#[derive(Clone, Copy)]
enum Caller {
    /// It does something else.
    GoesOn,
    /// It waits, and looks for what comes from this peer, or from any.
    Waits(Option<u32>),
}

/// What callers and the progress thread share.
struct EngineHandle {
    engine: Mutex<Engine>,
    mailbox: Mailbox<Mail>,
    /// How often the progress thread has looked up.
    #[cfg(test)]
    turns: std::sync::atomic::AtomicU64,
}

impl Messages {
    pub(crate) fn new(context: &Arc<Context>) -> Messages {
        Messages { context: Arc::clone(context), handle: OnceLock::new(), progress_thread: Mutex::default() }
    }

    /// The messages that have waited for so long that a heartbeat tells of them.
    pub(crate) fn waits(&self, now: Time) -> Vec<MessageWait> {
        let Some(handle) = self.handle.get() else { return Vec::new() };
        // The agent thread does not wait for a thread that copies a long message: a later heartbeat tells.
        let begin = self.context.state.clock.now();
        loop {
            match handle.engine.try_lock() {
                Ok(engine) => return engine.transfers.waits(now - WAITS_AFTER, now),
                Err(_) if self.context.state.clock.now().since(begin) > BUSY_WAIT => return Vec::new(),
                Err(_) => std::thread::yield_now(),
            }
        }
    }

    /// Carries out a send, a receive, or both together, and returns when they have ended.
    pub fn run(self: &Arc<Self>, first: Post, second: Option<Post>) -> Outcome {
        let asked = (first.direction, second.as_ref().map(|post| post.direction));
        let peer = if second.is_none() { first.direction.peer() } else { None };
        let attention = self.context.state.program.interrupts.attention();
        let outcome = self.guarded(|| {
            let (request, ended) = self.post_messages(first, second, Caller::Waits(peer))?;
            ended.unwrap_or_else(|| self.await_message(&request, peer, asked, &attention))
        });
        self.context.told_by(outcome)
    }

    /// Starts a send, a receive, or both together, which go on while the caller does something else.
    pub fn start(self: &Arc<Self>, first: Post, second: Option<Post>) -> Result<Request> {
        self.guarded(|| self.post_messages(first, second, Caller::GoesOn).map(|(request, _)| request))
    }

    /// The message that a receive with this source and tag would get, if there is one now. What can be moved is moved
    /// first.
    pub fn look_for(self: &Arc<Self>, from: Option<u32>, tag: Option<i32>) -> Outcome {
        let outcome = self.guarded(|| {
            self.begin("iprobe")?;
            let handle = self.handle()?;
            let mut engine = lock(&handle.engine);
            engine.look(from);
            let found = engine.look_for(Wanted { source: from, tag });
            self.leave_engine(handle, engine, false);
            found
        });
        self.context.told_by(outcome)
    }

    /// Whether this process may use the group for the call with this name.
    fn begin(&self, name: &str) -> Result<()> {
        match self.context.rank() {
            Some(_) => self.context.begin(),
            None => Err(Error::invalid(format!("{name}: this process is no member of {}", self.context.id()))),
        }
    }

    /// Posts one operation or two. For a caller that waits: returns their outcome if they have ended; if they have not,
    /// the caller is one of the engine's callers from now on.
    fn post_messages(
        self: &Arc<Self>,
        first: Post,
        second: Option<Post>,
        caller: Caller,
    ) -> Result<(Request, Option<Outcome>)> {
        self.begin(second.as_ref().map_or(first.direction.name(), |_| "sendrecv"))?;
        let handle = self.handle()?;
        let time = self.context.time_limit();
        let (deadline, TimeLimit { since: now, limit_ms }) = (time.deadline(), time);
        let mut engine = lock(&handle.engine);
        let receives = second.is_some() || first.direction.wanted().is_some();
        let looks = match caller {
            Caller::Waits(peer) if receives => {
                engine.callers += 1;
                engine.look(peer); // so that a peer that answers at once need not wake this node
                true
            }
            Caller::Waits(_) | Caller::GoesOn => false,
        };
        if let Err(error) = self.make_room(&mut engine, &first, second.as_ref()) {
            if looks {
                engine.caller_leaves();
            }
            self.leave_engine(handle, engine, false);
            return Err(error);
        }
        let (request, completer) = self.context.requests.make();
        let op = engine.transfers.upcoming();
        let count = 1 + OpId::from(second.is_some());
        let own: Arc<dyn RequestEngine> = self.clone();
        let request = request.of(own, RequestedOperation::Messages(op..op + count));
        match second {
            None => engine.post(first, now, limit_ms, deadline, completer),
            Some(second) => {
                let [one, other] = completer.halves();
                engine.post(first, now, limit_ms, deadline, one);
                engine.post(second, now, limit_ms, deadline, other);
            }
        }
        engine.flush();
        let ended = match caller {
            Caller::Waits(_) => request.test(),
            Caller::GoesOn => None,
        };
        match (caller, ended.is_some(), looks) {
            (_, true, true) => engine.caller_leaves(),
            (Caller::Waits(_), false, false) => engine.callers += 1,
            _ => {}
        }
        let alarm = deadline.min(engine.silence.wait(now));
        let early = engine.alarm > alarm;
        engine.alarm = engine.alarm.min(alarm);
        self.leave_engine(handle, engine, early);
        Ok((request, ended))
    }

    /// Whether these may be posted, and makes room for them. Nothing may come in between this and their posting.
    fn make_room(&self, engine: &mut Engine, first: &Post, second: Option<&Post>) -> Result<()> {
        engine.check(first, second)?;
        let (to, own_bytes) = engine.transfers.keeps(first, second);
        if !self.context.requests.has_spare() || engine.is_full(to, own_bytes) {
            memory::with_reserve("one message more", || engine.reserve(to, own_bytes))?;
        }
        Ok(())
    }

    /// A caller has done something to the engine. The rest is for the agent thread, or the progress thread.
    fn leave_engine(&self, handle: &EngineHandle, mut engine: EngineGuard<'_>, look: bool) {
        let wanted = std::mem::take(&mut engine.transfers.wanted);
        let look = look || engine.needs_attention();
        drop(engine);
        self.ask_for_links(wanted);
        if look {
            handle.mailbox.interrupt();
        }
    }

    /// Asks the agent thread for links, without the engine's lock.
    fn ask_for_links(&self, ranks: Vec<u32>) {
        for rank in ranks {
            self.context.state.ask(AgentCommand::Open(LinkKey::new(self.context.id(), Channel::Messages, rank)));
        }
    }

    /// Drives messages for a short while, as `polling` says; then sleeps.
    fn await_message(
        &self,
        request: &Request,
        peer: Option<u32>,
        asked: (Direction, Option<Direction>),
        attention: &Attention<'_>,
    ) -> Outcome {
        let state = &self.context.state;
        let Some(handle) = self.handle.get() else {
            return Err(Error::new(Status::Internal, "messages without a handle"));
        };
        let outcome = self.look_for_a_while(handle, request, peer);
        let mut engine = lock(&handle.engine);
        engine.caller_leaves();
        self.leave_engine(handle, engine, false);
        if let Some(outcome) = outcome {
            return outcome;
        }
        let title = || call_title(asked, &self.context.roster);
        for limit in [Some(WAITS_AFTER), Some(WARN_AFTER - WAITS_AFTER), None] {
            match self.context.requests.wait_in(request, limit, attention) {
                Ok(Some(outcome)) => return outcome,
                Ok(None) if limit == Some(WAITS_AFTER) => state.ask(AgentCommand::Brain(Command::Report)),
                Ok(None) => state.logger.warn(&patience::in_words(&title(), "")),
                Err(why) => {
                    let give_up = |operation: &RequestedOperation| self.end_ops(operation, Transfers::give_up_recalled);
                    return self.take_back(request, &title(), &why, give_up);
                }
            }
        }
        Err(Error::new(Status::Internal, "a wait without limit has ended"))
    }

    /// Drives messages until the request has ended, or `polling` says that it is enough.
    fn look_for_a_while(&self, handle: &EngineHandle, request: &Request, peer: Option<u32>) -> Option<Outcome> {
        let state = &self.context.state;
        let mut idle = Idle::default();
        let polling = &state.polling;
        let has_processor = self.context.formed().local_size <= polling.cores && polling.set != Some(Duration::ZERO);
        let own_looks = if has_processor && polling.has_trust(&state.clock) { LOOKS } else { 0 };
        let mut looks = 0;
        loop {
            if let Ok(mut engine) = handle.engine.try_lock() {
                if engine.look(peer) {
                    idle.end();
                }
                self.leave_engine(handle, engine, false);
            }
            if let Some(outcome) = request.test() {
                return Some(outcome);
            }
            looks += 1;
            if looks <= own_looks {
                spin_loop();
            } else if !polling.poll(&mut idle, &self.context.polls, &state.clock) {
                return None;
            }
        }
    }

    /// Ends operations, each of them by `end`, as far as that can be done.
    fn end_ops(&self, operation: &RequestedOperation, end: impl Fn(&mut Transfers, OpId)) {
        let (Some(handle), RequestedOperation::Messages(ops)) = (self.handle.get(), operation) else { return };
        let mut engine = lock(&handle.engine);
        ops.clone().for_each(|op| end(&mut engine.transfers, op));
        engine.flush();
        self.leave_engine(handle, engine, false);
    }

    /// The engine and its progress thread, from now on.
    fn handle(self: &Arc<Self>) -> Result<&Arc<EngineHandle>> {
        if let Some(handle) = self.handle.get() {
            return Ok(handle);
        }
        let mut progress_thread = lock(&self.progress_thread);
        if progress_thread.ended {
            return Err(self.context.freed_error());
        }
        if progress_thread.thread.is_none() {
            let (poller, waker) = (Poller::new()?, Bell::new()?);
            let watched = waker.register(poller.registry(), Token(WAKER));
            watched.map_err(|error| Error::system("the waker of a group's messages cannot be watched", &error))?;
            let signal = Signal::new(waker);
            let (engine, mailbox) = (Mutex::new(Engine::new(&self.context.roster)), Mailbox::new(signal.clone()));
            let handle = Arc::new(EngineHandle {
                engine,
                mailbox,
                #[cfg(test)]
                turns: Default::default(),
            });
            let (messages, own) = (Arc::clone(self), Arc::clone(&handle));
            let run = move || {
                let _ = messages.guarded(|| {
                    messages.run_progress_thread(&own, poller);
                    Ok(())
                });
            };
            progress_thread.thread = Some(thread::spawn("muster-messages", run)?);
            let _ = self.handle.set(handle); // under the lock, so there is none yet
            let _ = self.context.bells.messages.set(signal);
            self.context.interrupt_messages(); // a thread that broke the group before that found no progress thread to tell
        }
        self.handle.get().ok_or_else(|| Error::new(Status::Internal, "messages without a handle"))
    }

    /// The agent thread has something for the messages.
    pub(crate) fn deliver(self: &Arc<Self>, mail: Mail) {
        let delivered = match self.handle() {
            Ok(handle) => handle.mailbox.deliver(mail),
            Err(_) => Err(mail), // the group is over, or the system refuses: the peer hears that the link has ended
        };
        delivered.unwrap_or_else(|mail| turn_away(mail, self.context.last_word.get()));
    }

    /// The newest message whose time was up, if the group still holds.
    pub(crate) fn late(&self) -> Option<Failure> {
        self.handle.get().and_then(|handle| lock(&handle.engine).late.clone())
    }

    /// Whether a message ended because the member with this index has left the cluster, or freed the group.
    pub(crate) fn has_missed(&self, index: u32) -> bool {
        let (Some(handle), Some(rank)) = (self.handle.get(), self.context.rank_of(index)) else { return false };
        lock(&handle.engine).transfers.missed.contains(rank)
    }

    /// Goes on with the last words. Returns whether all of them have reached the peers.
    pub(crate) fn is_drained(&self) -> bool {
        self.handle.get().is_none_or(|handle| !lock(&handle.engine).drain())
    }

    /// Tells the progress thread to end, and returns it, if there is one. The group is broken by now.
    pub(crate) fn end(&self) -> Option<JoinHandle<()>> {
        let thread = {
            let mut progress_thread = lock(&self.progress_thread);
            progress_thread.ended = true;
            progress_thread.thread.take()
        };
        self.context.interrupt_messages();
        thread
    }

    /// Drops every link for messages.
    pub(crate) fn shut(&self) {
        let Some(handle) = self.handle.get() else { return };
        handle.mailbox.shut().into_iter().for_each(|mail| turn_away(mail, self.context.last_word.get()));
        lock(&handle.engine).transfers.links.shut();
    }
}

impl RequestEngine for Messages {
    fn cancel(&self, operation: RequestedOperation) {
        self.end_ops(&operation, Transfers::cancel);
    }
}

type EngineGuard<'a> = crate::runtime::base::sync::MutexGuard<'a, Engine>;
