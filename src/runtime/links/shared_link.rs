//! A link between two processes of one host: two rings in memory that they share, beside the connection on which they agreed on it.
//!
//! The connection stays. A byte on it wakes the end that sleeps, and says nothing else. When it ends, the link ends: so the death
//! of a process is noticed as on any link. The memory has no name, and once both ends have mapped it no descriptor. It is freed
//! when both processes are gone.
//!
//! How the ends come to share the memory: the accepter asks. It names its doorbell, the proof to show there, and how long
//! rings it can have. The dialler makes the memory, hands it to that doorbell, and says how long the rings are. The
//! accepter maps it, and agrees. An end that can't go on says why, in place of its next word. The accepter repeats the
//! dialler's reason, to show that it has heard it. Then both go on over the connection as it is: neither has sent anything
//! else by then. Where memory is required, the link fails instead. An end that gives the link up says the empty word at any
//! time, and then what it has to say. Each end has the kernel make the pages of the ring that it writes.
//!
//! When the connection has ended, what is still in the rings counts: it is read first.

use super::link::would_block;
use super::shared_rings::{ring_at, total_bytes, Rings, Transfer};
use super::terms::Terms;
use crate::net::doorbell::{Address, Doorbell, NAME_BYTES, PROOF_BYTES};
use crate::net::shm::{page_bytes, Segment};
use crate::net::{cgroup, host, pass_over, Acknowledged, Registry, Side, Signs, Token, Transport};
use std::fmt::Display;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::time::Duration;

/// How long a ring is at most. Two of this length usually fit into a processor's own cache; in shorter ones each end
/// waits for the other.
const LENGTH_MAX: u64 = 512 << 10;
/// How much memory the rings of one group between all nodes of a host take at most, if each pair has a link.
const TOTAL_BYTES_MAX: u64 = 32 << 20;
/// The rings of one group take at most one part in so many of the memory that is still free.
const PART_TAKEN: u64 = 4;
/// How often this end sleeps at most before it reads, from the connection, the bytes that have woken it.
const SLEEPS: u32 = 64;
/// A word's head: whether its sender can go on, and the length of what follows.
const HEAD_BYTES: usize = 2;
const QUESTION_BYTES: usize = size_of::<u32>() + NAME_BYTES + PROOF_BYTES;

/// What the accepter asks for.
struct Question {
    longest: u32,
    name: [u8; NAME_BYTES],
    proof: [u8; PROOF_BYTES],
}

enum Stage {
    /// The accepter has asked.
    Asked(Doorbell, Question),
    /// The dialler waits for the accepter's question.
    Unasked,
    /// The dialler has handed the memory over, with rings of this length.
    Handed(Segment, usize),
    /// The dialler has said that it can't, and why, and waits until the accepter has heard it.
    Refused(String),
    /// The connection carries the link.
    Apart,
    /// The rings carry the link.
    Together(Box<Rings<Segment>>),
}

/// One end of a link through memory.
pub(super) struct SharedLink {
    connection: Box<dyn Transport>,
    stage: Stage,
    /// Three things about the connection: what is still to be said on it; whether some of that has not gone out yet; and
    /// what has come so far of the other end's next word.
    outbound: Vec<u8>,
    is_speaking: bool,
    inbound: Vec<u8>,
    terms: Terms,
    /// Whether the connection may have something to read that this end does not know of.
    has_news: bool,
    /// Whether the connection has ended.
    has_ended: bool,
    /// How often this end has slept since it last read the connection.
    sleeps: u32,
}

impl SharedLink {
    /// One end, over a connection on which both have agreed to share memory.
    pub(super) fn new(connection: Box<dyn Transport>, side: Side, terms: Terms) -> io::Result<SharedLink> {
        let mut link = SharedLink {
            connection,
            stage: Stage::Unasked,
            outbound: Vec::new(),
            is_speaking: false,
            inbound: Vec::new(),
            terms,
            has_news: false,
            has_ended: false,
            sleeps: 0,
        };
        if side == Side::Server {
            match ask(link.terms.local_size) {
                Ok((doorbell, question)) => {
                    let mut payload = question.longest.to_le_bytes().to_vec();
                    payload.extend(question.name);
                    payload.extend(question.proof);
                    link.say(true, &payload);
                    link.stage = Stage::Asked(doorbell, question);
                }
                Err(why) => link.refuse(&why)?,
            }
        }
        Ok(link)
    }

    fn say(&mut self, can: bool, payload: &[u8]) {
        self.outbound.extend([u8::from(can), payload.len() as u8]);
        self.outbound.extend(payload);
        self.is_speaking = true;
    }

    /// The accepter cannot share memory: it says why.
    fn refuse(&mut self, why: &str) -> io::Result<()> {
        self.say_why(why);
        let _ = self.pass_on(); // what does not go now goes later, if the connection stays
        self.stay_apart(&format!("this process can't: {why}"))
    }

    fn say_why(&mut self, why: &str) {
        self.say(false, &why.as_bytes()[..why.len().min(u8::MAX.into())]);
    }

    fn stay_apart(&mut self, why: &str) -> io::Result<()> {
        self.stage = Stage::Apart;
        let peer = &self.terms.peer;
        if self.terms.is_required {
            let what = format!("memory can't be shared with {peer}, which shm \"require\" asks for: {why}");
            return Err(io::Error::new(ErrorKind::Unsupported, what));
        }
        self.terms.logger.debug(&format!("what goes to {peer} goes over its connection, not through memory: {why}"));
        Ok(())
    }

    /// Goes on agreeing with the other end. Returns whether it is known by now what carries the link.
    fn settle(&mut self) -> io::Result<bool> {
        loop {
            would_block(self.pass_on())?;
            if matches!(self.stage, Stage::Apart | Stage::Together(_)) {
                return Ok(true);
            }
            let Some((can, payload)) = self.hear()? else { return Ok(matches!(self.stage, Stage::Apart)) };
            match (can, std::mem::replace(&mut self.stage, Stage::Apart)) {
                (false, _) if payload.is_empty() => {} // it is giving the link up
                (false, Stage::Refused(why)) => self.stay_apart(&format!("this process can't: {why}"))?,
                (false, Stage::Asked(..)) => {
                    self.say(false, &payload); // so that it knows that this end has heard it
                    let _ = self.pass_on();
                    self.stay_apart(&format!("it can't: {}", String::from_utf8_lossy(&payload)))?;
                }
                (false, _) => self.stay_apart(&format!("it can't: {}", String::from_utf8_lossy(&payload)))?,
                (true, Stage::Unasked) => match hand_over(self.terms.local_size, &read_question(&payload)?) {
                    Ok((segment, length)) => {
                        self.say(true, &(length as u32).to_le_bytes());
                        self.stage = Stage::Handed(segment, length);
                    }
                    Err(why) => {
                        self.say_why(&why);
                        self.stage = Stage::Refused(why);
                    }
                },
                (true, Stage::Asked(doorbell, question)) => match map(&doorbell, &question, read_length(&payload)?) {
                    Ok((segment, length)) => {
                        self.say(true, &[]);
                        self.go_together(segment, 1, length);
                    }
                    Err(why) => self.refuse(&why)?,
                },
                (true, Stage::Handed(segment, length)) => self.go_together(segment, 0, length),
                (true, Stage::Refused(_) | Stage::Apart | Stage::Together(_)) => return Err(odd()),
            }
        }
    }

    fn go_together(&mut self, segment: Segment, own: usize, length: usize) {
        let (peer, kib) = (&self.terms.peer, length >> 10);
        self.terms.logger.debug(&format!("what goes to {peer} goes through memory: two rings of {kib} KiB"));
        self.stage = Stage::Together(Box::new(Rings::new(segment, own, length)));
    }

    /// Says on the connection what is to be said. If that fails once the ends share memory, the connection is over. The next read
    /// finds that out, after it has read what is in the ring.
    fn pass_on(&mut self) -> io::Result<()> {
        if !self.is_speaking {
            return Ok(());
        }
        match (self.speak(), &self.stage) {
            (Err(error), Stage::Together(_)) if error.kind() != ErrorKind::WouldBlock => self.has_news = true,
            (said, _) => said?,
        }
        self.outbound.clear();
        self.is_speaking = false;
        Ok(())
    }

    fn speak(&mut self) -> io::Result<()> {
        while !self.outbound.is_empty() {
            let count = self.connection.write(&[IoSlice::new(&self.outbound)])?;
            self.outbound.drain(..count);
        }
        self.connection.flush()
    }

    /// Returns the other end's next word, if it is there as a whole, and reads no byte of what follows. If the connection
    /// has ended there is no word, and the next read finds that end.
    fn hear(&mut self) -> io::Result<Option<(bool, Vec<u8>)>> {
        loop {
            let known = self.inbound.len();
            let length = self.inbound.get(1).map_or(HEAD_BYTES, |length| HEAD_BYTES + usize::from(*length));
            if known == length && known >= HEAD_BYTES {
                let word = std::mem::take(&mut self.inbound);
                return match word[0] {
                    0 | 1 => Ok(Some((word[0] == 1, word[HEAD_BYTES..].to_vec()))),
                    _ => Err(odd()),
                };
            }
            self.inbound.resize(length, 0);
            let got = self.connection.read(&mut [IoSliceMut::new(&mut self.inbound[known..])]);
            self.inbound.truncate(known + *got.as_ref().unwrap_or(&0));
            match got {
                Ok(0) => {
                    self.stage = Stage::Apart;
                    return Ok(None);
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// Wakes the other end, if the transfer asks for that. Returns how many bytes the transfer moved.
    fn done(&mut self, (count, wakes): Transfer) -> usize {
        if wakes && self.outbound.is_empty() {
            self.outbound.push(0);
            self.is_speaking = true;
            let _ = self.pass_on(); // what does not go now goes when the connection takes more
        }
        count
    }
}

/// How long each ring can be where `local_size` nodes share a host.
fn longest(local_size: u32) -> Result<usize, String> {
    longest_of(local_size, cgroup::free_memory().unwrap_or(u64::MAX), page_bytes())
}

fn longest_of(local_size: u32, free: u64, page: usize) -> Result<usize, String> {
    let pairs = u64::from(local_size.max(1)) * u64::from(local_size.max(2) - 1);
    let each = (TOTAL_BYTES_MAX.min(free / PART_TAKEN) / pairs).min(LENGTH_MAX);
    if each < page as u64 {
        return Err(format!(
            "{free} bytes of memory are left on this host: too little for rings between its {local_size} nodes"
        ));
    }
    Ok(1 << each.ilog2())
}

/// The accepter's first step: makes its doorbell and its question.
fn ask(local_size: u32) -> Result<(Doorbell, Question), String> {
    let longest = longest(local_size)? as u32;
    let (name, proof) = (host::random_bytes(), host::random_bytes());
    let (name, proof) = (name.map_err(in_words("no random number"))?, proof.map_err(in_words("no random number"))?);
    let doorbell = Doorbell::bind(&name).map_err(in_words("a local socket cannot be made"))?;
    Ok((doorbell, Question { longest, name, proof }))
}

/// The dialler's step: makes the memory and hands it to the accepter's doorbell.
fn hand_over(local_size: u32, question: &Question) -> Result<(Segment, usize), String> {
    let length = fitting(longest(local_size)?.min(question.longest as usize))?;
    let (segment, file) = Segment::create(total_bytes(length)).map_err(in_words("the memory cannot be made"))?;
    segment.populate(&file, 0, ring_at(1, length)).map_err(in_words("its memory cannot be had"))?;
    let name = host::random_bytes().map_err(in_words("no random number"))?;
    let own = Doorbell::bind(&name).map_err(in_words("a local socket cannot be made"))?;
    let handed = Address::of(&question.name).and_then(|to| own.hand(&to, &question.proof, &file));
    handed.map_err(in_words("the other process cannot be reached"))?;
    Ok((segment, length))
}

/// The accepter's last step: takes the memory from its doorbell and maps it.
fn map(doorbell: &Doorbell, question: &Question, length: usize) -> Result<(Segment, usize), String> {
    if fitting(length)? > question.longest as usize {
        return Err(format!("rings of {length} bytes are longer than was asked for"));
    }
    let file = doorbell.take(&question.proof).map_err(in_words("the memory is not there"))?;
    let segment = Segment::open(&file, total_bytes(length)).map_err(in_words("the memory cannot be mapped"))?;
    segment.populate(&file, ring_at(1, length), length).map_err(in_words("its memory cannot be had"))?;
    Ok((segment, length))
}

/// Returns the length, if rings can have it: a power of two, and at least a page.
fn fitting(length: usize) -> Result<usize, String> {
    let fits = length.is_power_of_two() && length >= page_bytes();
    if fits {
        Ok(length)
    } else {
        Err(format!("rings cannot have {length} bytes"))
    }
}

fn read_question(payload: &[u8]) -> io::Result<Question> {
    let payload: &[u8; QUESTION_BYTES] = payload.try_into().map_err(|_| odd())?;
    let (longest, rest) = payload.split_at(size_of::<u32>());
    let (name, proof) = rest.split_at(NAME_BYTES);
    let longest = read_length(longest)?;
    let of_length = "as long as that";
    Ok(Question {
        longest: longest as u32,
        name: name.try_into().expect(of_length),
        proof: proof.try_into().expect(of_length),
    })
}

fn read_length(payload: &[u8]) -> io::Result<usize> {
    payload.try_into().map(|bytes| u32::from_le_bytes(bytes) as usize).map_err(|_| odd())
}

fn is_much(error: &io::Error) -> bool {
    error.kind() == ErrorKind::TimedOut && error.raw_os_error().is_none()
}

fn odd() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "its words about the memory to be shared make no sense")
}

fn in_words<E: Display>(what: &str) -> impl Fn(E) -> String + '_ {
    move |error| format!("{what}: {error}")
}

impl Transport for SharedLink {
    fn read(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if buffers.iter().all(|buffer| buffer.is_empty()) {
            return Err(io::Error::new(ErrorKind::InvalidInput, "no room to read into"));
        }
        if !self.settle()? {
            return Err(ErrorKind::WouldBlock.into());
        }
        let Stage::Together(rings) = &mut self.stage else { return self.connection.read(buffers) };
        let transfer = rings.read(buffers)?;
        if transfer.0 > 0 || !self.has_news {
            return if transfer.0 > 0 { Ok(self.done(transfer)) } else { Err(ErrorKind::WouldBlock.into()) };
        }
        let told = match self.has_ended {
            true => Ok(0),
            false => pass_over(&mut *self.connection),
        };
        self.sleeps = 0;
        match told {
            // `pass_over` itself says so if there is more than it reads at a time (`is_much`). The next look reads the rest.
            Err(error) if error.kind() == ErrorKind::WouldBlock || is_much(&error) => {
                self.has_news = is_much(&error) || self.connection.holds_readable();
                Err(ErrorKind::WouldBlock.into())
            }
            // What the other end put into its ring before it ended is read first.
            told => {
                self.has_ended = told.is_ok();
                let transfer = rings.read(buffers)?;
                if transfer.0 > 0 {
                    Ok(transfer.0)
                } else {
                    told
                }
            }
        }
    }

    fn write(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        if !self.settle()? {
            return Err(ErrorKind::WouldBlock.into());
        }
        let Stage::Together(rings) = &mut self.stage else {
            self.pass_on()?;
            return self.connection.write(buffers);
        };
        match rings.write(buffers)? {
            (0, _) if buffers.iter().any(|buffer| !buffer.is_empty()) => Err(ErrorKind::WouldBlock.into()),
            transfer => Ok(self.done(transfer)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.pass_on()?;
        match self.stage {
            Stage::Together(_) => Ok(()), // the other end can read at once what was put into the ring
            _ => self.connection.flush(),
        }
    }

    fn holds_readable(&self) -> bool {
        match &self.stage {
            Stage::Together(rings) => !self.has_ended && (rings.has_bytes() || self.has_news),
            _ => self.connection.holds_readable(),
        }
    }

    fn may_sleep(&mut self) -> bool {
        let Stage::Together(rings) = &mut self.stage else { return self.connection.may_sleep() };
        if self.has_ended {
            return true;
        }
        // Each byte that woke this end lies on the connection until it is read, and there is room for only so many.
        self.sleeps += 1;
        self.has_news |= self.sleeps >= SLEEPS;
        !self.has_news && rings.may_sleep()
    }

    fn is_reported(&mut self) {
        self.has_news = true;
        self.connection.is_reported();
    }

    fn go_as_it_is(&mut self) {
        match std::mem::replace(&mut self.stage, Stage::Apart) {
            Stage::Handed(segment, length) => self.go_together(segment, 0, length), // the other end looks there, too
            Stage::Asked(..) | Stage::Unasked => self.say(false, &[]),
            Stage::Refused(_) | Stage::Apart => {}
            stage @ Stage::Together(_) => self.stage = stage,
        }
    }

    fn shutdown_write(&mut self) -> io::Result<()> {
        self.pass_on()?;
        self.connection.shutdown_write()
    }

    fn unsent(&self) -> usize {
        self.outbound.len() + self.connection.unsent()
    }

    fn is_intact(&self) -> bool {
        match self.stage {
            Stage::Together(_) => self.terms.is_trusted,
            Stage::Apart => self.connection.is_intact(),
            // A frame that begins now may go through memory or over the connection.
            _ => self.terms.is_trusted && self.connection.is_intact(),
        }
    }

    fn peer_names(&self) -> Vec<String> {
        self.connection.peer_names()
    }

    fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        self.connection.register(registry, token)
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        self.connection.deregister(registry)
    }

    fn descriptor(&self) -> RawFd {
        self.connection.descriptor()
    }

    fn local_address(&self) -> SocketAddr {
        self.connection.local_address()
    }

    fn peer_address(&self) -> SocketAddr {
        self.connection.peer_address()
    }
}

/// The signs of life are the connection's. What has been put into a ring needs no answer from any kernel.
impl Signs for SharedLink {
    fn is_acknowledged(&self) -> bool {
        matches!(self.stage, Stage::Apart)
    }

    fn silence(&self) -> Option<Duration> {
        self.connection.silence()
    }

    fn acknowledged(&self) -> Acknowledged {
        self.connection.acknowledged()
    }

    fn ask_for_signs(&mut self, within: Duration) {
        self.connection.ask_for_signs(within);
    }

    fn send_again_evenly(&mut self) {
        self.connection.send_again_evenly();
    }

    fn bound_unsent(&mut self, bytes: u32) {
        self.connection.bound_unsent(bytes);
    }
}

#[cfg(all(test, not(loom)))]
#[path = "shared_link_test.rs"]
mod tests;
