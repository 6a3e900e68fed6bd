//! One connection on which a link is being opened: what has been said on it, and what that means.
//!
//! Invariants: the dialler sends no payload before *Accept*, and the accepter none before the dialler has confirmed that.
//! So until both have the link a damaged byte costs an attempt and nothing else. The confirmation is an empty frame: that
//! it arrives is enough, so damage in it does not matter. The mesh decides which link is let in.

use super::link_end::{self, LinkEnd};
use crate::agent::PeerWord;
use crate::error::Failure;
use crate::net::{end_after_refusal, is_refusal, pass_over, Transport};
use crate::runtime::base::link_key::LinkKey;
use crate::types::{Secret, Time};
use crate::wire::{
    encode_frame, peek_frame, Channel, Decoder, Encoder, FrameHeader, LinkAccept, LinkBeat, LinkHello, LinkKind,
    LinkReject, LinkRejectReason, LinkRevoke, LinkSuspect, Wire, WireError, HEADER_BYTES, PROOF_ASK, PROOF_BYTES,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::time::Duration;

/// How much is read during a handshake; a link takes over what was read beyond it.
pub(crate) const HANDSHAKE_BYTES: usize = 4096;

/// How long a stranger may take to introduce itself, and a peer to answer a hello once it knows its cluster.
pub(crate) const HELLO_WAIT: Duration = Duration::from_secs(5);

/// How much is read ahead at most on a watch, and while a member tells that a group is over. A frame's payload has at
/// most half of that.
const WORD_BYTES: usize = 32 << 10;
/// How many words one look at a connection reads at most. A node that watches another sends one word an interval, and is lost
/// after five intervals of silence.
pub(crate) const STEPS_MAX: u32 = 4096;

/// What is said of a connection that ended before it was a link.
const CLOSED: &str = "its end of a new link was closed";

/// What is said of a peer that demands another certificate.
pub(crate) const MISNAMED: &str =
    "it refused the link: the certificate of this node (client_cert_path) does not carry its node id, and that \
                        is demanded there (verify_node_id)";

/// A connection on which something is still to be said.
pub(crate) struct Handshake {
    pub transport: Box<dyn Transport>,
    pub inbound: Vec<u8>,
    pub outbound: Vec<u8>,
    /// Only connections that others opened have a deadline: the groups limit how long a dial may take.
    pub deadline: Time,
    pub stage: Stage,
}

#[derive(PartialEq)]
pub(crate) enum Stage {
    /// We dialled, and wait for the answer.
    Dialled(LinkKey),
    /// They dialled; their hello has not come yet.
    Accepted,
    /// They dialled when no descriptor was left, and we let them in with the spare one. So this never becomes a link: the
    /// answer only says that descriptors are used up, and whose limit that is.
    AcceptedOnSpare(String),
    /// Their hello came before our `Formed`.
    Held(LinkHello),
    /// Our *Accept* is going out, with the features that both ends offer. If it is for a link, the confirmation is awaited then.
    Accepting(LinkKey, u64),
    /// The peer has accepted us, and our confirmation is going out.
    Confirming(LinkKey, u64),
    /// Our *Reject* is going out.
    Rejecting,
    /// Our last word is out. What still comes is read and dropped, so that the last word is not lost in a reset.
    Rejected,
    /// We tell a member that the group is over.
    RevokeBroadcast(LinkKey),
    /// A member tells us that the group is over.
    Hearing(LinkKey),
    /// Both say that they live, for as long as the connection stays.
    Watching(LinkKey),
}

/// What to do with a handshake after a look at it.
pub(crate) enum Next {
    Wait,
    Close,
    /// The link may be used, with these features.
    Deliver(LinkKey, u64),
    Failed(LinkKey, LinkEnd),
    /// The connection that we dialled has ended, and nothing was said on it.
    Unanswered(LinkKey, LinkEnd),
    /// On the connection that we dialled one side refuses the other. What is damaged in the opening of TLS looks the same.
    Declined(LinkKey, LinkEnd),
    /// No peer has answered on the connection that we dialled. Its further addresses are tried, and the log is told this.
    Elsewhere(LinkKey, Option<String>),
    /// The connection that we let in has ended before the dialler has confirmed it.
    Unconfirmed(LinkKey, LinkEnd),
    /// One side refuses the other: what the log says of it. The last word may still be on its way.
    Refused(WireError),
    /// The peer has freed the group.
    Freed(LinkKey),
    /// The peer gives the group up, for it cannot have the link.
    Over(LinkKey, Failure),
    Answer(LinkHello),
    /// The peer says that the group is over.
    Told(LinkKey, Failure),
    /// The member has been told.
    HasTold(LinkKey),
    /// A peer that is watched says this; there may be more.
    Says(LinkKey, PeerWord),
    /// A watch has ended.
    WatchEnded(LinkKey, String),
}

impl Handshake {
    /// The handshake for a watch or a word is done. A word is said by its dialler, which believes that the member is told once it
    /// has said it: so the other side waits for it as long as the connection stands.
    pub(crate) fn begin_talk(&mut self, key: LinkKey, word: Vec<u8>) {
        self.deadline = Time::NEVER;
        if key.channel == Channel::Watch {
            self.stage = Stage::Watching(key);
        } else if matches!(self.stage, Stage::Dialled(_)) {
            (self.stage, self.outbound) = (Stage::RevokeBroadcast(key), word);
        } else {
            self.stage = Stage::Hearing(key);
            self.transport.ask_for_signs(HELLO_WAIT); // so the connection of a host that has gone ends
        }
    }

    /// Writes what is to be said, reads what has come, and says what to do.
    pub(crate) fn look(&mut self, secret: Option<Secret>) -> Result<Next, WireError> {
        if self.stage == Stage::Rejected {
            return Ok(self.pass_over());
        }
        match self.write() {
            Ok(true) => {}
            Ok(false) => return Ok(Next::Wait),
            Err(error) => return self.broken(&error),
        }
        match self.stage {
            Stage::Confirming(key, features) => return Ok(Next::Deliver(key, features)),
            Stage::Accepting(key, features) if !key.is_link() => return Ok(Next::Deliver(key, features)),
            Stage::Rejecting => {
                self.end_refused();
                return Ok(self.pass_over());
            }
            Stage::RevokeBroadcast(key) => return Ok(Next::HasTold(key)),
            Stage::Held(_) => return self.look_at_held(),
            Stage::Dialled(_) | Stage::Accepted | Stage::AcceptedOnSpare(_) | Stage::Accepting(..) => {}
            Stage::Hearing(_) | Stage::Watching(_) | Stage::Rejected => {}
        }
        let is_long = matches!(self.stage, Stage::Hearing(_) | Stage::Watching(_));
        let room = if is_long { WORD_BYTES } else { HANDSHAKE_BYTES };
        loop {
            if let Some(next) = self.take_frame(room, secret)? {
                return Ok(next);
            }
            let start = self.inbound.len();
            self.inbound.resize(room, 0);
            let got = self.transport.read(&mut [IoSliceMut::new(&mut self.inbound[start..])]);
            self.inbound.truncate(start + *got.as_ref().unwrap_or(&0));
            match got {
                Ok(0) => return Ok(self.ended(LinkEnd::Ended("it closed the connection".to_owned()))),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Next::Wait),
                Err(error) => return self.broken(&error),
            }
        }
    }

    /// Takes the first frame of what has come, if it is whole.
    fn take_frame(&mut self, room: usize, secret: Option<Secret>) -> Result<Option<Next>, WireError> {
        if let Stage::Accepting(key, features) = self.stage {
            return Ok(self.is_confirmed().then_some(Next::Deliver(key, features)));
        }
        let Some((frame, taken)) = peek_frame(&self.inbound, room as u64 / 2)? else { return Ok(None) };
        let next = self.heard(frame.header.kind, &frame.payload, secret);
        self.inbound.drain(..taken);
        next.map(Some)
    }

    /// Whether the dialler has spoken since it was let in. Its confirmation is taken off, even if it was damaged. Anything
    /// else that it says is left for the group.
    fn is_confirmed(&mut self) -> bool {
        let Some(head) = self.inbound.first_chunk::<HEADER_BYTES>() else { return false };
        let is_another = FrameHeader::decode(head).is_ok_and(|header| header.kind != LinkKind::KeepAlive as u8);
        if !is_another {
            self.inbound.drain(..HEADER_BYTES);
        }
        true
    }

    /// Ends this direction. What still comes is passed over.
    pub(crate) fn end_refused(&mut self) {
        let _ = self.transport.shutdown_write(); // the connection's end shows when it is read
        self.stage = Stage::Rejected;
    }

    fn pass_over(&mut self) -> Next {
        match pass_over(&mut *self.transport) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Next::Wait,
            _ => Next::Close,
        }
    }

    /// A hello waits. Its sender must say nothing more, but may close the connection.
    fn look_at_held(&mut self) -> Result<Next, WireError> {
        let ahead = || WireError("it went on before its hello was answered".to_owned());
        if !self.inbound.is_empty() {
            return Err(ahead());
        }
        match self.transport.read(&mut [IoSliceMut::new(&mut [0; 64])]) {
            Ok(0) => Ok(Next::Close),
            Ok(_) => Err(ahead()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Next::Wait),
            Err(_) => Ok(Next::Close),
        }
    }

    /// Whether everything is written.
    fn write(&mut self) -> io::Result<bool> {
        while !self.outbound.is_empty() {
            match self.transport.write(&[IoSlice::new(&self.outbound)]) {
                Ok(count) => drop(self.outbound.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        match self.transport.flush() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            flushed => flushed.map(|()| true),
        }
    }

    /// What becomes of it when what has come is none of this protocol, or is damaged.
    pub(crate) fn not_understood(&self, why: &WireError) -> Next {
        match self.stage {
            Stage::Watching(key) => Next::WatchEnded(key, format!("it is closed: {why}")),
            Stage::Dialled(key) if why.is_damage() => {
                let end = LinkEnd::Corrupt(format!("its answer for a new link was damaged on the way: {why}"));
                Next::Unanswered(key, end)
            }
            Stage::Dialled(key) => Next::Failed(key, LinkEnd::Ended(format!("what answers there is no peer: {why}"))),
            _ => Next::Close,
        }
    }

    fn broken(&mut self, error: &io::Error) -> Result<Next, WireError> {
        match self.stage {
            // One side refuses the other.
            Stage::Accepted if is_refusal(error) => Ok(Next::Refused(WireError(error.to_string()))),
            Stage::Accepted if error.kind() == io::ErrorKind::InvalidData => Err(WireError(error.to_string())),
            Stage::Dialled(key) | Stage::Accepting(key, _) if is_refusal(error) => {
                end_after_refusal(&mut *self.transport);
                let end = link_end::ended(error).after(CLOSED);
                // A word has turns of its own, and others tell the member, too.
                let is_tried_again = self.stage == Stage::Dialled(key) && key.channel != Channel::Word;
                Ok(if is_tried_again { Next::Declined(key, end) } else { Next::Failed(key, end) })
            }
            _ => Ok(self.ended(link_end::ended(error))),
        }
    }

    fn ended(&self, end: LinkEnd) -> Next {
        match self.stage {
            Stage::Dialled(key) if !matches!(end, LinkEnd::Silent(_)) => Next::Unanswered(key, end.after(CLOSED)),
            Stage::Accepting(key, _) if !matches!(end, LinkEnd::Silent(_)) => Next::Unconfirmed(key, end.after(CLOSED)),
            Stage::Dialled(key) | Stage::Accepting(key, _) | Stage::Confirming(key, _) => {
                Next::Failed(key, end.after(CLOSED))
            }
            Stage::Watching(key) => Next::WatchEnded(key, end.after("its connection ended").in_words()),
            _ => Next::Close,
        }
    }

    fn heard(&self, kind: u8, payload: &[u8], secret: Option<Secret>) -> Result<Next, WireError> {
        if let Stage::Watching(key) = self.stage {
            return word_of(LinkKind::from_code(kind)?, payload).map(|word| Next::Says(key, word));
        }
        if kind == PROOF_ASK {
            return Err(WireError("it proves a job secret, and none is set here (job_secret)".to_owned()));
        }
        let mut from = Decoder::new(payload);
        match (LinkKind::from_code(kind)?, &self.stage) {
            (LinkKind::Hello, Stage::Accepted | Stage::AcceptedOnSpare(_)) => {
                let hello = LinkHello::take(&mut from)?;
                from.finish()?;
                Ok(Next::Answer(hello))
            }
            (LinkKind::Accept, &Stage::Dialled(key)) => {
                let LinkAccept { proof, features } = LinkAccept::take(&mut from)?;
                from.finish()?;
                if !secret.is_some_and(|secret| same_bytes(&proof, &half(&secret, 1))) {
                    return Err(WireError("it does not know the epoch's secret".to_owned()));
                }
                Ok(Next::Deliver(key, features))
            }
            (LinkKind::Reject, &Stage::Dialled(key)) => {
                let reason = LinkReject::take(&mut from)?.reason;
                from.finish()?;
                match reason {
                    // The peer's own attempt, or the link that it led to, is used instead.
                    LinkRejectReason::Crossing | LinkRejectReason::Duplicate => Ok(Next::Close),
                    LinkRejectReason::NoGroup => Ok(Next::Freed(key)),
                    LinkRejectReason::Misnamed => Ok(Next::Failed(key, LinkEnd::Ended(MISNAMED.to_owned()))),
                    reason => Ok(Next::Failed(key, LinkEnd::Ended(format!("it refused the link: {reason:?}")))),
                }
            }
            (LinkKind::Revoke, &Stage::Dialled(key)) => {
                let failure = LinkRevoke::take(&mut from)?.failure;
                from.finish()?;
                Ok(Next::Over(key, failure))
            }
            (LinkKind::Revoke, &Stage::Hearing(key)) => {
                let failure = LinkRevoke::take(&mut from)?.failure;
                from.finish()?;
                Ok(Next::Told(key, failure))
            }
            (other, _) => Err(WireError(format!("{other:?} in the middle of a handshake"))),
        }
    }
}

pub(crate) fn frame(kind: LinkKind, body: &impl Wire) -> Vec<u8> {
    let mut payload = Encoder::default();
    body.put(&mut payload);
    let mut bytes = Vec::new();
    encode_frame(kind as u8, 0, &payload.bytes, &mut bytes);
    bytes
}

/// The last word on a link.
pub(crate) fn leave() -> Vec<u8> {
    empty(LinkKind::Leave)
}

/// What the dialler says once it is let in.
pub(crate) fn confirmation() -> Vec<u8> {
    empty(LinkKind::KeepAlive)
}

fn empty(kind: LinkKind) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_frame(kind as u8, 0, &[], &mut bytes);
    bytes
}

/// The half of the epoch's secret that the dialler shows (0), or the accepter (1).
pub(crate) fn half(secret: &Secret, which: usize) -> [u8; PROOF_BYTES] {
    secret.0[which * PROOF_BYTES..][..PROOF_BYTES].try_into().expect("a half is PROOF_BYTES long")
}

/// Whether two proofs are equal, in a time that does not tell where they differ.
pub(crate) fn same_bytes(one: &[u8; PROOF_BYTES], other: &[u8; PROOF_BYTES]) -> bool {
    one.iter().zip(other).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

/// What a frame on a watch says.
pub(crate) fn word_of(kind: LinkKind, payload: &[u8]) -> Result<PeerWord, crate::wire::WireError> {
    use crate::wire::{Decoder, Wire};
    let mut from = Decoder::new(payload);
    let word = match kind {
        LinkKind::Beat => PeerWord::Beat(LinkBeat::take(&mut from)?),
        LinkKind::Suspect => {
            let LinkSuspect { peer, evidence } = LinkSuspect::take(&mut from)?;
            PeerWord::Suspect(peer, evidence)
        }
        LinkKind::Revoke => PeerWord::GivesUp(LinkRevoke::take(&mut from)?.failure),
        LinkKind::Leave => PeerWord::Leaves,
        other => return Err(crate::wire::WireError(format!("{other:?} on a watch"))),
    };
    from.finish()?;
    Ok(word)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::runtime::base::control::tests::Scripted;
    use crate::types::GroupId;
    use crate::wire::Channel;

    /// A link's end is `Silent` if nothing comes back, and `Ended` if the peer's system says so.
    #[test]
    fn how_a_new_link_ended_is_told_with_it() {
        let key = LinkKey::new(GroupId::WORLD, Channel::Collectives, 1);
        for (number, is_silent) in [(libc::ETIMEDOUT, true), (libc::EHOSTUNREACH, true), (libc::ECONNRESET, false)] {
            let transport = Scripted::default();
            transport.script().fails = Some(number);
            let (inbound, outbound) = (Vec::new(), Vec::new());
            let (transport, deadline, stage) = (Box::new(transport), Time::NEVER, Stage::Dialled(key));
            let mut shake = Handshake { transport, inbound, outbound, deadline, stage };
            let Ok(Next::Failed(_, end) | Next::Unanswered(_, end)) = shake.look(None) else { panic!("it has failed") };
            assert_eq!(matches!(end, LinkEnd::Silent(_)), is_silent, "{end:?}");
            assert!(end.in_words().starts_with("its end of a new link was closed: "), "{end:?}");
        }
    }
}
