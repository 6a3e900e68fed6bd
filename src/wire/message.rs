//! The control plane's messages, between a node (or a launcher) and its scheduler: their numbers, and in which queue each waits.

use super::calls::{AskCall, Called};
use super::change::{
    FreeGroup, GroupFreed, GroupMade, InEpoch, MadeByMembers, MakeByMembers, MakeGroup, NotRecovered, NotYet, Recover,
};
use super::codec::{Decoder, Encoder, Wire, WireError};
use super::control::{
    Abort, Absent, Formed, Known, Locate, Located, LostNodes, PassBy, PeerReport, Register, Rejected, Revoke, Revoked,
    Suspect, Verdict, WhereAre,
};
use super::heartbeat::{Heartbeat, HeartbeatEcho};
use super::launcher::{Abandoned, ChildEnded};
use super::status::{JobNews, StatusPart, StatusQuery, Watch};
use super::store::{StoreBegin, StoreCancel, StorePiece, StoreReply};

/// How many bytes are reserved for a message: most messages fit, and the others need not grow from nothing.
const ENCODED_BYTES: usize = 256;

/// In which queue a message waits. Urgent messages pass between the pieces of a bulk transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Everything but the store.
    Urgent,
    /// The store.
    Bulk,
}

/// Declares the messages, each with its number on the wire.
macro_rules! messages {
    ($($(#[$about:meta])* $name:ident = $number:literal $(($body:ty))?,)*) => {
        /// A message of the control plane.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[allow(clippy::large_enum_variant)] // they live briefly, and rarely in numbers
        pub enum Message {
            $($(#[$about])* $name $(($body))?,)*
        }

        impl Message {
            /// Its number on the wire.
            pub fn kind(&self) -> u8 {
                match self {
                    $(messages!(@pattern $name $(($body))?) => $number,)*
                }
            }

            /// Its payload.
            pub fn encode(&self) -> Vec<u8> {
                let mut to = Encoder { bytes: Vec::with_capacity(ENCODED_BYTES) };
                match self {
                    $(messages!(@bind body $name $(($body))?) => messages!(@put body to $(($body))?),)*
                }
                to.bytes
            }

            /// The message that a frame of this kind carries.
            pub fn decode(kind: u8, payload: &[u8]) -> Result<Message, WireError> {
                let mut from = Decoder::new(payload);
                let message = match kind {
                    $($number => messages!(@take from $name $(($body))?),)*
                    other => return Err(WireError(format!("unknown message {other}"))),
                };
                from.finish()?;
                Ok(message)
            }

            /// Every kind, with its name.
            #[cfg(test)]
            pub(crate) const KINDS: &'static [(u8, &'static str)] = &[$(($number, stringify!($name)),)*];
        }
    };
    (@pattern $name:ident ($body:ty)) => { Message::$name(_) };
    (@pattern $name:ident) => { Message::$name };
    (@bind $bound:ident $name:ident ($body:ty)) => { Message::$name($bound) };
    (@bind $bound:ident $name:ident) => { Message::$name };
    (@put $bound:ident $to:ident ($body:ty)) => { $bound.put(&mut $to) };
    (@put $bound:ident $to:ident) => { {} };
    (@take $from:ident $name:ident ($body:ty)) => { Message::$name(<$body>::take(&mut $from)?) };
    (@take $from:ident $name:ident) => { Message::$name };
}

messages! {
    /// Node: let me in.
    Register = 1 (Register),
    /// Scheduler: no.
    Rejected = 2 (Rejected),
    /// Scheduler: all are here.
    Formed = 3 (Formed),
    /// Node: I live, and am here.
    Heartbeat = 4 (Heartbeat),
    /// Scheduler: heard.
    HeartbeatEcho = 5 (HeartbeatEcho),
    /// Scheduler: send a heartbeat now.
    Report = 6,
    /// Node: my time for forming is up.
    TimeUp = 7,
    /// Node: I leave.
    Leave = 8,
    /// Scheduler: then go.
    Bye = 9,
    /// Node: something is wrong with a peer.
    Suspect = 10 (Suspect),
    /// Scheduler: nothing is wrong with it, or it has left.
    PeerReport = 11 (PeerReport),
    /// Scheduler: the cluster is broken.
    Verdict = 12 (Verdict),
    /// Node: I give up on a group.
    Revoke = 13 (Revoke),
    /// Scheduler: the group is revoked.
    Revoked = 14 (Revoked),
    /// Node: who is absent?
    WhereAre = 15 (WhereAre),
    /// Scheduler: these.
    Absent = 16 (Absent),
    /// Node: who is this index?
    Locate = 17 (Locate),
    /// Scheduler: this.
    Located = 18 (Located),
    /// Node: end the job.
    Abort = 19 (Abort),
    /// Node: I end without leaving; do not wait for me.
    Gone = 20,
    /// Node: make a group.
    MakeGroup = 21 (MakeGroup),
    /// Scheduler: it is made.
    GroupMade = 22 (GroupMade),
    /// Node: I no longer use a group.
    FreeGroup = 23 (FreeGroup),
    /// Node: make the cluster whole again.
    Recover = 24 (Recover),
    /// Scheduler: that is not possible, or not yet.
    NotRecovered = 25 (NotRecovered),
    /// Node: I have taken up an epoch.
    InEpoch = 26 (InEpoch),
    /// Scheduler: you may come back, but not yet.
    NotYet = 27 (NotYet),
    /// Scheduler: these are lost.
    LostNodes = 28 (LostNodes),
    /// Node: this is what I was told.
    Known = 29 (Known),
    /// A stranger: how is the job?
    StatusQuery = 30 (StatusQuery),
    /// Scheduler: so it is, in parts.
    StatusPart = 31 (StatusPart),
    /// Node: a store request begins.
    StoreBegin = 32 (StoreBegin),
    /// Either: a part of a value.
    StorePiece = 33 (StorePiece),
    /// Node: forget a store request.
    StoreCancel = 34 (StoreCancel),
    /// Scheduler: the answer to a store request.
    StoreReply = 35 (StoreReply),
    /// Launcher: a process of mine has ended.
    ChildEnded = 36 (ChildEnded),
    /// Launcher: I start nobody in these places any more.
    Abandoned = 37 (Abandoned),
    /// Scheduler: I have noted for good that you no longer use it.
    GroupFreed = 38 (GroupFreed),
    /// Scheduler: I belong to another job; yours listens elsewhere.
    PassBy = 39 (PassBy),
    /// Scheduler: what did you call?
    AskCall = 40 (AskCall),
    /// Node: this.
    Called = 41 (Called),
    /// Node: make a group with its other members.
    MakeByMembers = 42 (MakeByMembers),
    /// Scheduler: it is made, or not.
    MadeByMembers = 43 (MadeByMembers),
    /// Launcher: tell me how the job goes.
    Watch = 44 (Watch),
    /// Scheduler: so it goes now.
    JobNews = 45 (JobNews),
}

impl Message {
    /// The queue in which it waits.
    pub fn lane(&self) -> Lane {
        match self {
            Message::StoreBegin(_) | Message::StorePiece(_) | Message::StoreCancel(_) | Message::StoreReply(_) => {
                Lane::Bulk
            }
            _ => Lane::Urgent,
        }
    }

    /// The whole frame.
    #[cfg(test)]
    pub(super) fn to_frame(&self, node: u32) -> Vec<u8> {
        let payload = self.encode();
        let mut bytes = Vec::with_capacity(payload.len() + 64);
        super::encode_frame(self.kind(), node, &payload, &mut bytes);
        bytes
    }
}
