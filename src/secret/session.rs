//! What two ends say to each other before they believe the other's first message. It moves no bytes itself.
//!
//! The dialler sends a nonce, and gets the accepter's. Then each side's first message is followed by a MAC of it, of both nonces and
//! of the role. The dialler's comes first, so that a process that only asks gets no MAC by which it could test guesses. The
//! accepter's covers the dialler's MAC, too. What comes later is the same as without a secret.
//!
//! Invariants: no byte of a side that has not proved the secret is passed on, with two exceptions, which can do no more
//! than end the connection. A refusal that anybody may send is passed on: a side that has another secret, or none,
//! must be able to say so. Any other refusal may end more than this connection, so it needs its proof. Bytes that are no
//! frame at all are passed on, because their reader can best say what is wrong with them. Tested in `session_test.rs`.

use super::key::JobSecret;
use crate::error::Status;
use crate::net::Side;
use crate::wire::{
    body_bytes, encode_frame, peek_frame, Decoder, LinkHello, LinkKind, LinkReject, LinkRejectReason, Message, PassBy,
    Rejected, Wire, WireError, CONTROL_PAYLOAD_MAX, HEADER_BYTES, MAGIC, NONCE_BYTES, PROOF_ASK, PROOF_CHALLENGE,
    PROOF_MAC, UNREGISTERED_PAYLOAD_MAX,
};
use ring::hmac;
use std::sync::Arc;

const DIALLER: &[u8] = b"muster job secret, version 1: the dialler's first message";
const ACCEPTER: &[u8] = b"muster job secret, version 1: the accepter's first message";
/// How much of what is written is held before the other side has proved itself; it is refused beyond that.
const HELD_MAX: usize = 64 << 10;

/// Why a connection fails.
#[derive(Debug, PartialEq, Eq)]
pub enum Fault {
    /// One side refuses the other.
    Refused(String),
    /// What came was damaged on the way: the next attempt may go well.
    Damaged(String),
}

impl Fault {
    /// The reason in words.
    pub fn reason(&self) -> &str {
        match self {
            Fault::Refused(why) | Fault::Damaged(why) => why,
        }
    }
}

impl From<WireError> for Fault {
    fn from(error: WireError) -> Fault {
        match error.is_damage() {
            true => Fault::Damaged(error.0),
            false => Fault::Refused(error.0),
        }
    }
}

/// What is awaited of the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Incoming {
    /// The dialler's nonce.
    Ask,
    /// The accepter's nonce.
    Challenge,
    /// The other side's first message, and the MAC.
    First,
    /// Nothing: the other side has proved itself, and bytes come as they are.
    Open,
    /// Nothing: the other side refuses, and nothing counts after that.
    Refused,
}

/// One end's side of the proof.
pub struct Session {
    secret: Arc<JobSecret>,
    side: Side,
    /// The job as this side's launcher tells it.
    derived_job: Option<String>,
    own_nonce: [u8; NONCE_BYTES],
    nonce: [u8; NONCE_BYTES],
    /// The key of both MACs, from the dialler's first message on until both sides have proved themselves.
    key: Option<Arc<hmac::Key>>,
    /// The dialler's MAC, once it is known.
    dialler_mac: Vec<u8>,
    incoming: Incoming,
    inbound: Vec<u8>,
    /// The bytes for the reader.
    pub readable: Vec<u8>,
    /// What was written and waits until our first message has gone.
    first: Vec<u8>,
    has_sent_first: bool,
    /// What is to go out before all else.
    pub outgoing: Vec<u8>,
}

impl Session {
    /// Begins a session, with a nonce that nobody could foresee.
    pub fn new(secret: Arc<JobSecret>, side: Side, own_nonce: [u8; NONCE_BYTES]) -> Session {
        let mut outgoing = Vec::new();
        if side == Side::Client {
            encode_frame(PROOF_ASK, 0, &own_nonce, &mut outgoing);
        }
        Session {
            secret,
            side,
            derived_job: None,
            own_nonce,
            nonce: [0; NONCE_BYTES],
            key: None,
            dialler_mac: Vec::new(),
            incoming: if side == Side::Client { Incoming::Challenge } else { Incoming::Ask },
            inbound: Vec::new(),
            readable: Vec::new(),
            first: Vec::new(),
            has_sent_first: false,
            outgoing,
        }
    }

    /// The same session with a mark of the job, for a process that knows its job from its launcher. A scheduler's side
    /// tells a node of another such job, which has another secret or none, to look for its own scheduler.
    pub fn of_derived_job(self, mark: Option<&str>) -> Session {
        Session { derived_job: mark.map(str::to_owned), ..self }
    }

    /// Whether what is written goes out as it is, behind `outgoing`.
    pub fn writes_freely(&self) -> bool {
        self.has_sent_first
    }

    /// Whether what comes in is for the reader as it is, behind `readable`.
    pub fn reads_freely(&self) -> bool {
        self.incoming == Incoming::Open
    }

    /// Whether the other side refuses, so that nothing follows.
    pub fn is_refused(&self) -> bool {
        self.incoming == Incoming::Refused
    }

    /// Whether the other side has sent its nonce, and so knows of secrets.
    pub fn is_asked(&self) -> bool {
        self.incoming == Incoming::First
    }

    /// Whether the dialler has not said a byte.
    pub fn is_unasked(&self) -> bool {
        self.incoming == Incoming::Ask && self.inbound.is_empty()
    }

    /// How many bytes wait for the other side's proof.
    pub fn held(&self) -> usize {
        self.first.len()
    }

    /// Takes what is written before the first message has gone. Returns how many bytes; 0 if enough waits. Once the other side is
    /// ready, the message is taken up to its end, however long it is.
    pub fn take(&mut self, bytes: &[u8]) -> usize {
        let longest = HEADER_BYTES as u64 + body_bytes(CONTROL_PAYLOAD_MAX, 0);
        let most = if self.is_ready() { longest as usize } else { HELD_MAX };
        let count = bytes.len().min(most.saturating_sub(self.first.len()));
        self.first.extend_from_slice(&bytes[..count]);
        self.send_first();
        count
    }

    /// Whether the other side is ready for our first message.
    fn is_ready(&self) -> bool {
        match self.side {
            Side::Client => self.incoming == Incoming::First,
            Side::Server => self.incoming == Incoming::Open,
        }
    }

    /// Our first message goes out with its MAC, as soon as it is whole and the other side is ready for it.
    fn send_first(&mut self) {
        if self.has_sent_first || !self.is_ready() {
            return;
        }
        let Ok(Some((_, length))) = peek_frame(&self.first, u64::MAX) else { return };
        let first = &self.first[..length];
        let key = self.key.get_or_insert_with(|| key_of(&self.secret, first)).clone();
        let mac = self.mac(&key, self.side, first);
        let rest = self.first.split_off(length);
        self.outgoing.append(&mut self.first);
        encode_frame(PROOF_MAC, 0, mac.as_ref(), &mut self.outgoing);
        self.outgoing.extend_from_slice(&rest);
        self.first = Vec::new();
        self.has_sent_first = true;
        if self.side == Side::Client {
            self.dialler_mac = mac.as_ref().to_vec();
        }
        self.forget();
    }

    /// The MAC of the first message of the side `of`.
    fn mac(&self, key: &hmac::Key, of: Side, frame: &[u8]) -> hmac::Tag {
        let mut context = hmac::Context::with_key(key);
        let (dialler, accepter) = match self.side {
            Side::Client => (&self.own_nonce, &self.nonce),
            Side::Server => (&self.nonce, &self.own_nonce),
        };
        context.update(if of == Side::Client { DIALLER } else { ACCEPTER });
        context.update(dialler);
        context.update(accepter);
        if of == Side::Server {
            context.update(&self.dialler_mac);
        }
        context.update(frame);
        context.sign()
    }

    /// Takes what has come in, until `reads_freely`. An error ends the connection: `outgoing` may still hold an answer.
    pub fn heard(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.inbound.extend_from_slice(bytes);
        while self.step()? {}
        Ok(())
    }

    fn step(&mut self) -> Result<bool, Fault> {
        let payload_max = if self.side == Side::Client { CONTROL_PAYLOAD_MAX } else { UNREGISTERED_PAYLOAD_MAX };
        if matches!(self.incoming, Incoming::Open | Incoming::Refused) {
            return Ok(false);
        }
        let (kind, payload, length) = match peek_frame(&self.inbound, payload_max) {
            Ok(None) => return Ok(false),
            Ok(Some((frame, length))) => (frame.header.kind, frame.payload.into_owned(), length),
            Err(error) if error.is_damage() => return Err(error.into()),
            Err(_) if self.incoming != Incoming::First && !self.inbound.starts_with(&MAGIC.to_le_bytes()) => {
                self.open_with(Vec::new());
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        };
        if self.side == Side::Client && is_strangers_refusal(kind, &payload) {
            self.inbound.truncate(length);
            self.readable = std::mem::take(&mut self.inbound);
            self.incoming = Incoming::Refused;
            return Ok(false);
        }
        match (self.incoming, kind) {
            (Incoming::Ask, PROOF_ASK) | (Incoming::Challenge, PROOF_CHALLENGE) => {
                self.nonce = payload.try_into().map_err(|_| refused("its nonce is of a wrong length"))?;
                self.inbound.drain(..length);
                if self.incoming == Incoming::Ask {
                    encode_frame(PROOF_CHALLENGE, 0, &self.own_nonce, &mut self.outgoing);
                }
                self.incoming = Incoming::First;
                self.send_first();
                Ok(true)
            }
            (Incoming::Ask, kind) => {
                self.refuse(kind, &payload, "this job has a secret, and the process that connects shows none");
                Err(refused("it shows no job secret, and one is set here (job_secret)"))
            }
            (Incoming::Challenge, _) => {
                Err(refused("it answers without a proof of the job secret: perhaps none is set there (job_secret)"))
            }
            (_, kind) => self.judge(kind, length),
        }
    }

    /// Judges the other side's first message, which is there. Its MAC follows, or is there, too.
    fn judge(&mut self, kind: u8, length: usize) -> Result<bool, Fault> {
        let Some((proof, proof_length)) = peek_frame(&self.inbound[length..], 64)? else {
            return Ok(false);
        };
        let other = if self.side == Side::Client { Side::Server } else { Side::Client };
        let first = &self.inbound[..length];
        let key = self.key.get_or_insert_with(|| key_of(&self.secret, first)).clone();
        let expected = self.mac(&key, other, first);
        let is_right = proof.header.kind == PROOF_MAC && is_same(expected.as_ref(), &proof.payload);
        if !is_right {
            if self.side == Side::Server {
                let payload =
                    peek_frame(first, u64::MAX)?.map(|(frame, _)| frame.payload.into_owned()).unwrap_or_default();
                self.refuse(kind, &payload, "the job's secret is another than that of the process that connects");
            }
            return Err(refused("its job secret is another than the one that is set here (job_secret)"));
        }
        if other == Side::Client {
            self.dialler_mac = expected.as_ref().to_vec();
        }
        let rest = self.inbound.split_off(length + proof_length);
        self.inbound.truncate(length);
        self.open_with(rest);
        self.send_first();
        Ok(false)
    }

    /// All that has come is for the reader.
    fn open_with(&mut self, mut rest: Vec<u8>) {
        self.readable = std::mem::take(&mut self.inbound);
        self.readable.append(&mut rest);
        self.incoming = Incoming::Open;
        self.forget();
    }

    /// Drops the key once both sides have proved themselves: nothing more is to be proved.
    fn forget(&mut self) {
        if self.has_sent_first && self.incoming == Incoming::Open {
            self.key = None;
        }
    }

    /// Answers a first message that is refused. A process that knows nothing of secrets understands the answer, too.
    fn refuse(&mut self, kind: u8, payload: &[u8], why: &str) {
        if kind == LinkKind::Hello as u8 {
            let mut payload = crate::wire::Encoder::default();
            LinkReject { reason: LinkRejectReason::Stranger }.put(&mut payload);
            return encode_frame(LinkKind::Reject as u8, 0, &payload.bytes, &mut self.outgoing);
        }
        let reason = format!("{why}: MUSTER_JOB_SECRET (or MUSTER_JOB_SECRET_FILE) must be the same everywhere");
        let message = match self.is_of_another_job(kind, payload) {
            true => Message::PassBy(PassBy { reason }),
            false => Message::Rejected(Rejected { status: Status::Rejected, reason }),
        };
        encode_frame(message.kind(), 0, &message.encode(), &mut self.outgoing);
    }

    /// Whether this is the registration of a node that knows its job from its launcher, and that job is not this side's.
    fn is_of_another_job(&self, kind: u8, payload: &[u8]) -> bool {
        let Ok(Message::Register(register)) = Message::decode(kind, payload) else { return false };
        register.derived_job.is_some() && register.derived_job != self.derived_job
    }
}

/// The key of a connection that begins with this frame.
fn key_of(secret: &JobSecret, first: &[u8]) -> Arc<hmac::Key> {
    let hello = match peek_frame(first, UNREGISTERED_PAYLOAD_MAX) {
        Ok(Some((frame, _))) if frame.header.kind == LinkKind::Hello as u8 => {
            LinkHello::take(&mut Decoder::new(&frame.payload)).ok()
        }
        _ => None,
    };
    hello.map_or_else(|| secret.of_connection(), |hello| secret.of_link(&hello))
}

fn refused(why: &str) -> Fault {
    Fault::Refused(why.to_owned())
}

/// Whether a message can only end this connection: it is a refusal of a side that does not know the other.
fn is_strangers_refusal(kind: u8, payload: &[u8]) -> bool {
    if kind == LinkKind::Reject as u8 {
        let reject = LinkReject::take(&mut Decoder::new(payload));
        return reject.is_ok_and(|reject| reject.reason == LinkRejectReason::Stranger);
    }
    let message = Message::decode(kind, payload);
    matches!(message, Ok(Message::PassBy(_) | Message::Rejected(Rejected { status: Status::Rejected, .. })))
}

/// Whether two MACs are equal, in a time that does not tell where they differ.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

#[cfg(test)]
#[path = "session_test.rs"]
mod tests;
