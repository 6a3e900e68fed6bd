//! The connections on which the nodes watch each other while the scheduler gives no sign of life: what the brain wants of them
//! (`agent::ToPeer`), and what is seen on them (`agent::PeerSign`).
//!
//! One is opened like a link of universe (its ranks are the nodes' indices) and stays a handshake that goes on. Of two that cross
//! both are kept: a peer has gone when the last one has ended. Deliberately absent: what any of it means. Tested with processes in
//! `tests/python/test_without_scheduler.py`.

use super::handshake::{frame, leave, Stage};
use super::mesh::Mesh;
use crate::agent::{PeerSign, PeerWord, ToPeer};
use crate::net::{host, limit, Poller, Token, Transport};
use crate::runtime::base::link_key::LinkKey;
use crate::types::{GroupId, Time};
use crate::wire::{Channel, LinkKind, LinkRevoke, LinkSuspect};
use std::time::Duration;

/// How long a kernel may owe an answer at least before it is said not to answer: a packet that was lost has been sent again by then.
const OWES: Duration = Duration::from_millis(500);

/// The watch between this node and the one with this index.
fn key_of(index: u32) -> LinkKey {
    LinkKey::new(GroupId::UNIVERSE, Channel::Watch, index)
}

impl Mesh {
    /// Does something about a node that is watched; what is seen of it waits in `take_signs`.
    pub fn tell_peer(&mut self, index: u32, what: ToPeer, poller: &Poller) {
        let key = key_of(index);
        match what {
            ToPeer::Watch if self.watches(key).next().is_some() => self.signs.push((index, PeerSign::Stands)),
            ToPeer::Watch => {
                self.make_room_for_watches();
                self.open_if_located(key, poller);
            }
            ToPeer::Say(word) => self.say(key, &word, poller),
            ToPeer::Look => {
                let sign = self.look_at(key);
                self.signs.push((index, sign));
            }
            ToPeer::Close => {
                let over: Vec<Token> = self.watches(key).collect();
                over.iter().for_each(|token| drop(self.handshakes.remove(token)));
            }
        }
    }

    /// The one that keeps the watch has a connection to each node. Where there cannot be so many it goes without some.
    fn make_room_for_watches(&mut self) {
        let nodes =
            self.formed.as_ref().map_or(0, |formed| u64::from(formed.worker_num) + u64::from(formed.server_num));
        if std::mem::replace(&mut self.has_room, true) {
            return;
        }
        let _ = limit::room_for(nodes);
    }

    /// What has been seen since, if anything.
    pub fn take_signs(&mut self) -> Option<Vec<(u32, PeerSign)>> {
        (!self.signs.is_empty()).then(|| std::mem::take(&mut self.signs))
    }

    fn watches(&self, key: LinkKey) -> impl Iterator<Item = Token> + '_ {
        let is_one = move |stage: &Stage| matches!(stage, Stage::Watching(of) if *of == key);
        self.handshakes.iter().filter(move |(_, shake)| is_one(&shake.stage)).map(|(token, _)| *token)
    }

    /// How many connections are no handshakes any more, and stay.
    pub(crate) fn watched(&self) -> usize {
        self.handshakes.values().filter(|shake| matches!(shake.stage, Stage::Watching(_))).count()
    }

    /// A handshake for a watch is done.
    pub(crate) fn begin_watch(&mut self, token: Token, key: LinkKey, poller: &Poller) {
        let Some(shake) = self.handshakes.get_mut(&token) else { return };
        shake.stage = Stage::Watching(key);
        shake.deadline = Time::NEVER;
        self.signs.push((key.rank, PeerSign::Stands));
        self.advance(token, poller);
    }

    /// A watch has ended, or an attempt at one.
    pub(crate) fn watch_failed(&mut self, key: LinkKey, how: String, stood: bool) {
        match stood {
            true if self.watches(key).next().is_some() => {}
            true => self.signs.push((key.rank, PeerSign::Ended(how))),
            false => self.signs.push((key.rank, PeerSign::Refused(how))),
        }
    }

    /// Nobody could be asked, or nobody was there to answer for the peer's process.
    pub(crate) fn watch_unanswered(&mut self, key: LinkKey) {
        self.signs.push((key.rank, PeerSign::Unanswered));
    }

    fn say(&mut self, key: LinkKey, word: &PeerWord, poller: &Poller) {
        let bytes = match word {
            PeerWord::Beat(beat) => frame(LinkKind::Beat, beat),
            PeerWord::Suspect(peer, evidence) => {
                frame(LinkKind::Suspect, &LinkSuspect { peer: *peer, evidence: evidence.clone() })
            }
            PeerWord::GivesUp(failure) => frame(LinkKind::Revoke, &LinkRevoke { failure: failure.clone() }),
            PeerWord::Leaves => leave(),
        };
        let tokens: Vec<Token> = self.watches(key).collect();
        for token in tokens {
            if let Some(shake) = self.handshakes.get_mut(&token) {
                shake.outbound.extend_from_slice(&bytes);
                self.advance(token, poller);
            }
        }
    }

    fn look_at(&self, key: LinkKey) -> PeerSign {
        let liveness = self.process_of(key.rank);
        let of_key = |stage: &Stage| matches!(stage, Stage::Watching(of) | Stage::Dialled(of) if *of == key);
        // Its kernel has taken these connections; whether it still answers is known where something is owed.
        let time_out = self.formed.as_ref().map_or(0, |formed| formed.agreed.heartbeat_timeout_ms);
        let owes = OWES.max(Duration::from_millis(time_out / 2));
        let answers = |transport: &dyn Transport| transport.silence().is_none_or(|silence| silence < owes);
        let answers = self.handshakes.values().any(|shake| of_key(&shake.stage) && answers(&*shake.transport));
        PeerSign::Seen {
            is_gone: liveness == host::Liveness::Gone,
            lives: liveness == host::Liveness::Alive,
            answers: answers || liveness == host::Liveness::Alive,
        }
    }

    /// What this host knows of a node's process, if it is one of its own.
    fn process_of(&self, index: u32) -> host::Liveness {
        let formed = self.formed.as_ref();
        let both = formed.and_then(|formed| Some((formed.members.find(formed.index)?, formed.members.find(index)?)));
        match both {
            Some((own, other))
                if own.host.key == other.host.key && own.process.pid_namespace == other.process.pid_namespace =>
            {
                host::alive(other.process.pid, other.process.start_ticks)
            }
            _ => host::Liveness::Unknown,
        }
    }
}
