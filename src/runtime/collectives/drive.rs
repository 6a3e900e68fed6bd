//! How a collective is carried out: by the thread that calls it, over the group's own links, action by action.
//!
//! The thread polls for a short while, as `polling` says, and then sleeps in the group's poller, from which the agent
//! thread can wake it. Nothing is handed from thread to thread, and nothing is allocated once the scratch has grown to its
//! size.

use super::call_progress::{CallProgress, Exchange, Opening};
use super::engine::{Collectives, Driver, DOORBELL, WAKER};
use super::failure::{give_up_for_one_behind, is_late};
use super::stop::{Running, Stop};
use crate::agent::Command;
use crate::net::{Token, Woken};
use crate::runtime::base::polling::Idle;
use crate::runtime::links::link::{Arrival, LinkEnd, Moved};
use crate::runtime::links::peers::{Entry, Slot};
use crate::runtime::links::sink::{scratch_bytes, Sink};
use crate::runtime::memory::buffer::{Arithmetic, Memory};
use crate::runtime::state::node_state::{AgentCommand, NodeState};
use crate::schedules::kernels::UserFunction;
use crate::schedules::{Action, Algorithm, Landing, Shape, Span};
use crate::types::{CallKind, DType, Time};
use crate::wire::{DataHeader, FrameHeader, LinkKind};
use std::os::fd::RawFd;

/// After how many turns a call that makes progress looks at the clock.
pub(super) const CLOCK_TURNS: u32 = 64;

/// A schedule, and the ranks that it is for.
pub(crate) struct Plan<'a> {
    pub shape: &'a Shape<'a>,
    pub algorithm: &'a Algorithm,
    /// The rank in the group of each rank that the shape counts; none if the shape counts all.
    pub ranks: Option<&'a dyn Fn(u32) -> u32>,
}

impl<'a> Plan<'a> {
    /// A plan for all ranks of the group.
    pub(crate) fn of_all(shape: &'a Shape<'a>, algorithm: &'a Algorithm) -> Plan<'a> {
        Plan { shape, algorithm, ranks: None }
    }
}

impl Collectives {
    pub(crate) fn carry_out(
        &self,
        driver: &mut Driver,
        running: &Running<'_>,
        plan: &Plan<'_>,
        memory: &Memory<'_>,
        function: Option<UserFunction>,
    ) -> Result<(), Stop> {
        let Plan { shape, algorithm, ranks } = plan;
        let summed = shape.summed();
        let arithmetic = summed.dtype.zip(summed.op).map(|(dtype, op)| Arithmetic { dtype, op, function });
        let expect = || arithmetic.expect("a schedule that reduces has a type and an operation");
        let mut head = None; // a call that sends nothing needs no head
        let (first, mut begun) = match std::mem::take(&mut driver.progress) {
            CallProgress::Exchange(number, exchange) => (number, Some(exchange)),
            _ => {
                driver.peers.silence.end();
                (0, None)
            }
        };
        for number in first.. {
            match algorithm.step(shape, number) {
                Action::Exchange { send, receive } => {
                    let (mut kept, mut fresh) = (begun.take(), None);
                    let exchange = match &mut kept {
                        Some(kept) => &mut **kept,
                        None => {
                            if let Some((_, landing)) = receive {
                                memory.forget_checksums(Landing::into(&landing));
                            }
                            let head = *head.get_or_insert_with(|| running.data.encode_in(&mut driver.head));
                            let of = |rank: u32| ranks.map_or(rank, |of| of(rank));
                            let send = send.map(|(to, span)| (of(to), span));
                            let receive = receive.map(|(from, landing)| (of(from), landing));
                            let opening = Opening::Peer;
                            fresh.insert(Exchange { head, send, receive, started: false, arithmetic, opening })
                        }
                    };
                    let outcome = self.exchange(driver, running, exchange, memory);
                    if outcome.as_ref().is_err_and(Stop::goes_on) {
                        let exchange = kept.or_else(|| fresh.map(Box::new)).ok_or(Stop::Bug)?;
                        driver.progress = CallProgress::Exchange(number, exchange);
                    }
                    outcome?;
                }
                Action::Copy { from, to } => {
                    memory.forget_checksums(to);
                    memory.copy(from, to);
                }
                Action::Reduce { mine, other, into, other_side } => {
                    memory.forget_checksums(into);
                    memory.reduce(mine, other, into, other_side, expect());
                }
                Action::SumExact { own, others, into } => {
                    memory.forget_checksums(into);
                    memory.sum_exact([own, others], into, expect().dtype);
                }
                Action::Divide { span, by } => {
                    memory.forget_checksums(span);
                    memory.divide(span, by, expect().dtype);
                }
                Action::Convert { from, to, how } => {
                    memory.forget_checksums(to);
                    memory.convert(from, to, how);
                }
                Action::Done => break,
            }
        }
        Ok(())
    }

    fn exchange(
        &self,
        driver: &mut Driver,
        running: &Running<'_>,
        exchange: &mut Exchange,
        memory: &Memory<'_>,
    ) -> Result<(), Stop> {
        let mut idle = Idle::default();
        let mut goes_on = true;
        loop {
            if goes_on && !running.is_woven {
                keep_to_time(self, driver, running, exchange)?;
            }
            let sent = self.move_out(driver, exchange, memory)?;
            let got = self.move_in(driver, running, exchange, memory)?;
            goes_on = sent || got;
            if goes_on {
                driver.peers.silence.end(); // what is under way now began after the silence
            }
            if exchange.send.is_none() && exchange.receive.is_none() {
                return Ok(());
            }
            if self.take_signal() {
                self.look_up(driver)?;
                continue;
            }
            // A rank that has sent everything and got nothing lets others run at once, for the peer may be one of them.
            // With two ranks, each mostly has a core of its own.
            if got || (sent && (exchange.send.is_some() || self.context.size() == 2)) {
                idle.end();
                continue;
            }
            if running.is_woven {
                return Err(Stop::NotYet(None));
            }
            let NodeState { polling, clock, .. } = &*self.context.state;
            if !exchange.may_poll(&driver.peers.links) || !polling.poll(&mut idle, &self.context.polls, clock) {
                self.sleep(driver, running, exchange, None)?;
                idle.end();
            }
        }
    }

    fn move_out(&self, driver: &mut Driver, exchange: &mut Exchange, memory: &Memory<'_>) -> Result<bool, Stop> {
        let Some((peer, span)) = exchange.send else { return Ok(false) };
        let mutual = exchange.receive.is_some_and(|(from, _)| from == peer);
        let opens = !(mutual && self.context.rank() > Some(peer) && exchange.leaves_opening());
        let Some(link) = driver.peers.link(&self.context, peer, opens)? else { return Ok(false) };
        if !exchange.started {
            link.start_send(LinkKind::Data, &exchange.head, span);
            exchange.started = true;
        }
        match link.send(memory) {
            Ok(Moved::Done) => {
                exchange.send = None;
                Ok(true)
            }
            Ok(moved) => Ok(moved == Moved::Some),
            // The peer's last word tells more than the closed link does.
            Err(end) => match link.peek() {
                Ok(Some(Arrival::Revoke(failure))) => Err(Stop::Heard(Box::new(failure))),
                Ok(Some(Arrival::Leave)) => Err(Stop::Left(peer)),
                _ => Err(Stop::Ended(peer, end)),
            },
        }
    }

    fn move_in(
        &self,
        driver: &mut Driver,
        running: &Running<'_>,
        exchange: &mut Exchange,
        memory: &Memory<'_>,
    ) -> Result<bool, Stop> {
        let Some((peer, landing)) = exchange.receive else { return Ok(false) };
        let Driver { peers, piece, .. } = driver;
        let opens = !exchange.leaves_opening();
        let Some(link) = peers.link(&self.context, peer, opens)? else { return Ok(false) };
        if let (Landing::Reduce { into, .. }, Some(how)) = (landing, exchange.arithmetic) {
            grow(piece, scratch_bytes(into.len, how.dtype.size()))?;
        }
        let ended = |end| Stop::Ended(peer, end);
        let sink = Sink { memory, landing, arithmetic: exchange.arithmetic };
        match link.peek_for(&sink, piece).map_err(ended)? {
            None => Ok(false),
            Some(Arrival::Message(..)) => {
                Err(ended(LinkEnd::Corrupt("a message on a link for collectives".to_owned())))
            }
            Some(Arrival::Revoke(failure)) => Err(Stop::Heard(Box::new(failure))),
            Some(Arrival::Leave) => {
                peers.links.entry(peer).slot = Slot::Left(None);
                Err(Stop::Left(peer))
            }
            Some(Arrival::Data(header, data)) => {
                agree(running, peer, &header, &data, Landing::into(&landing))?;
                let moved = link.receive(&sink, piece).map_err(ended)?;
                if moved == Moved::Done {
                    exchange.receive = None;
                    let word = link.word_behind();
                    word.map_or(Ok(()), |failure| peers.later.hear(running, failure))?;
                }
                Ok(moved != Moved::Nothing)
            }
        }
    }

    fn out_of_time(&self, driver: &mut Driver, exchange: &Exchange, now: Time) -> Stop {
        Stop::Timeout(driver.peers.awaited(&self.context, exchange.peers(), now))
    }

    /// Sleeps until something happens on any link of the group, or to the group, or on this descriptor; serves the
    /// links that the call does not use.
    pub(super) fn sleep(
        &self,
        driver: &mut Driver,
        running: &Running<'_>,
        exchange: &mut Exchange,
        also: Option<RawFd>,
    ) -> Result<(), Stop> {
        let now = self.context.state.clock.now();
        if now >= running.deadline {
            return Err(self.out_of_time(driver, exchange, now));
        }
        if self.tell_of_waiting(driver, running, now)? {
            return Ok(());
        }
        driver.peers.look_for_signs(&self.context, exchange.peers(), now)?;
        let opening = exchange.opening_until(&driver.peers.links, now);
        if opening <= now {
            return Ok(());
        }
        let (receiving, sending) =
            (exchange.receive.map(|(peer, _)| peer as usize), exchange.send.map(|(peer, _)| peer as usize));
        if self.watch_links(driver, running, receiving, sending)? {
            return Ok(());
        }
        also.into_iter().for_each(|descriptor| driver.watch.add(Token(DOORBELL), descriptor, true, false));
        let until = running.deadline.min(driver.patience.next()).min(opening).min(driver.peers.silence.look_at());
        self.wait_and_serve(driver, running, until, receiving)
    }

    /// What a call does before it sleeps: it stops if its caller has interrupted it, reports a long wait, and checks
    /// the deadlines of the calls behind it. Returns whether the call must look again before it sleeps.
    pub(super) fn tell_of_waiting(&self, driver: &mut Driver, running: &Running<'_>, now: Time) -> Result<bool, Stop> {
        let patience = &mut driver.patience;
        running.attention.ask().map_err(Stop::Interrupted)?;
        if now >= patience.report_at {
            // This does not wait for the next heartbeat: if ranks called different things and exchange no frames, that
            // must be found within a second, however rare heartbeats are.
            patience.report_at = Time::NEVER;
            self.context.state.ask(AgentCommand::Brain(Command::Report));
        }
        if now >= patience.warn_at {
            patience.warn_at = Time::NEVER;
            running.warn_of_absent();
            return Ok(true);
        }
        Ok(now >= self.behind.first() && give_up_for_one_behind(self, now))
    }

    /// Watches the group's bell and its links. Returns whether something was found at once, so that the call is to look
    /// again.
    pub(super) fn watch_links(
        &self,
        driver: &mut Driver,
        running: &Running<'_>,
        receiving: Option<usize>,
        sending: Option<usize>,
    ) -> Result<bool, Stop> {
        let Driver { watch, peers, .. } = driver;
        watch.clear();
        watch.add(Token(WAKER), self.bell(), true, false);
        for Entry { rank, slot, .. } in peers.links.used_mut() {
            let (peer, Some(link)) = (*rank as usize, slot.opened()) else { continue };
            // A rank that gives up says why behind all that it sent before. It may take long until this rank reads
            // that.
            if receiving != Some(peer) {
                link.peers_last_word().map_or(Ok(()), |failure| peers.later.hear(running, failure))?;
            }
            if (receiving == Some(peer) || !link.is_waited_for()) && !link.transport().may_sleep() {
                return if receiving == Some(peer) { Ok(()) } else { peers.serve(running, peer as u32) }.map(|()| true);
            }
            // Data that nobody has asked for yet stays unread; the peer's end behind it is told once.
            let (reads, writes) = (receiving == Some(peer) || !link.is_waited_for(), sending == Some(peer));
            if reads || writes || !link.end_is_noted() {
                watch.add(Token(peer), link.descriptor(), reads, writes);
            }
        }
        Ok(false)
    }

    /// Sleeps until something that is watched is ready, or the time has come; serves the links that the call does not
    /// read.
    pub(super) fn wait_and_serve(
        &self,
        driver: &mut Driver,
        running: &Running<'_>,
        until: Time,
        receiving: Option<usize>,
    ) -> Result<(), Stop> {
        let Driver { watch, peers, .. } = driver;
        let until = until.min(self.behind.first());
        let left = running.attention.left(self.context.state.clock.until(until));
        if watch.wait(left) == Woken::BySignal {
            running.attention.signalled();
        }
        for (token, closed) in watch.ready().map(|ready| (ready.token.0, ready.closed)) {
            match token {
                WAKER => {
                    self.hush();
                    continue;
                }
                DOORBELL => continue,
                _ => {}
            }
            if let Some(link) = peers.links.opened(token as u32) {
                link.note_end(closed);
                link.transport().is_reported();
            }
            if receiving != Some(token) {
                peers.serve(running, token as u32)?;
            }
        }
        Ok(())
    }
}

/// Makes the scratch long enough. If the machine has too little memory, that is an error, and not the program's end.
pub(crate) fn grow(scratch: &mut Vec<u8>, bytes: usize) -> Result<(), Stop> {
    if scratch.len() < bytes {
        scratch.try_reserve_exact(bytes - scratch.len()).map_err(|_| Stop::Memory(bytes))?;
        scratch.resize(bytes, 0);
    }
    Ok(())
}

/// Whether the frame that a peer sent belongs to the call that this rank is in.
fn agree(running: &Running<'_>, peer: u32, header: &FrameHeader, data: &DataHeader, into: Span) -> Result<(), Stop> {
    if (data.epoch, data.group) != (running.data.epoch, running.data.group) {
        let stray = LinkEnd::Corrupt(format!("a frame of {} in epoch {}", data.group, data.epoch.0));
        return Err(Stop::Ended(peer, stray));
    }
    if data.sequence != running.sequence || data.signature != running.data.signature {
        return Err(Stop::Mismatch(peer, data.sequence, data.call));
    }
    if data.digest != running.data.digest {
        return Err(Stop::Earlier(peer));
    }
    let element = running.call.dtype.map_or(1, DType::size) as u64;
    let whole = header.length.is_multiple_of(element);
    // In calls of these kinds the ranks know different counts, so a difference shows only here.
    let unlike = matches!(data.call.kind, CallKind::Gatherv | CallKind::Scatterv | CallKind::Alltoallv);
    if header.length != into.len as u64 && unlike && whole {
        return Err(Stop::Counts(peer, header.length / element, into.len as u64 / element));
    }
    if header.length != into.len as u64 {
        let odd = LinkEnd::Corrupt(format!("a payload of {} bytes where {} belong", header.length, into.len));
        return Err(Stop::Ended(peer, odd));
    }
    Ok(())
}

/// Checks whether a call is over that never sleeps, because each of its exchanges goes on at once. It checks seldom: a call with
/// a time-out of 0 still does what can be done at once.
fn keep_to_time(
    group: &Collectives,
    driver: &mut Driver,
    running: &Running<'_>,
    exchange: &Exchange,
) -> Result<(), Stop> {
    driver.turns = driver.turns.wrapping_add(1);
    if !driver.turns.is_multiple_of(CLOCK_TURNS) {
        return Ok(());
    }
    if group.take_signal() {
        group.look_up(driver)?;
    }
    match is_late(group, running.deadline) {
        true => Err(group.out_of_time(driver, exchange, running.deadline)),
        false => Ok(()),
    }
}

#[cfg(test)]
#[path = "drive_test.rs"]
mod tests;
