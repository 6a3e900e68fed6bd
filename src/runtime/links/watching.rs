//! The connections on which the nodes watch each other while the scheduler gives no sign of life: what is seen on them
//! (`agent::PeerSign`), for the brain that wants them (`agent::ToPeer`).
//!
//! Such a connection is opened like a link of universe (whose ranks are the nodes' indices), and stays a handshake that
//! goes on. If two nodes dial each other, both connections are kept: a peer has gone when its last one has ended.
//! Deliberately absent: what any of it means. Tested with processes in `tests/python/test_without_scheduler.py`.

use super::handshake::{frame, leave};
use super::mesh_connections::MeshConnections;
use super::rosters::Rosters;
use crate::agent::{PeerProcess, PeerSign, PeerWord, Seen};
use crate::net::{host, limit};
use crate::runtime::base::link_key::LinkKey;
use crate::types::GroupId;
use crate::wire::{Channel, Formed, LinkKind, LinkRevoke, LinkSuspect};
use std::time::Duration;

/// A kernel counts as silent only if it has owed an answer for at least this long: by then a lost packet has been sent
/// again.
const OWES: Duration = Duration::from_millis(500);

/// The watch between this node and the one with this index.
pub(super) fn key_of(index: u32) -> LinkKey {
    LinkKey::new(GroupId::UNIVERSE, Channel::Watch, index)
}

/// What has been seen of nodes that are watched.
#[derive(Default)]
pub(crate) struct Watching {
    signs: Vec<(u32, PeerSign)>,
    /// Whether room for connections to all nodes has been made, as far as possible.
    has_room: bool,
}

impl Watching {
    /// A new epoch: what was seen in the one before means nothing.
    pub fn begin_epoch(&mut self) {
        self.signs.clear();
    }

    /// This has been seen of the node with this index.
    pub fn saw(&mut self, index: u32, sign: PeerSign) {
        self.signs.push((index, sign));
    }

    /// What has been seen since the last call, if anything.
    pub fn take_signs(&mut self) -> Option<Vec<(u32, PeerSign)>> {
        (!self.signs.is_empty()).then(|| std::mem::take(&mut self.signs))
    }

    /// Makes room for descriptors: a node that keeps watch has a connection to each node. If it cannot have so many, it
    /// does without some of them.
    pub fn make_room(&mut self, formed: Option<&Formed>) {
        let nodes = formed.map_or(0, |formed| u64::from(formed.worker_num) + u64::from(formed.server_num));
        if !std::mem::replace(&mut self.has_room, true) {
            let _ = limit::room_for(nodes, 0);
        }
    }
}

/// The frame that says this on a watch.
pub(super) fn frame_of(word: &PeerWord) -> Vec<u8> {
    match word {
        PeerWord::Beat(beat) => frame(LinkKind::Beat, beat),
        PeerWord::Suspect(peer, evidence) => {
            frame(LinkKind::Suspect, &LinkSuspect { peer: *peer, evidence: evidence.clone() })
        }
        PeerWord::GivesUp(failure) => frame(LinkKind::Revoke, &LinkRevoke { failure: failure.clone() }),
        PeerWord::Leaves => leave(),
    }
}

/// What can be seen of a node now.
pub(super) fn look_at(key: LinkKey, connections: &MeshConnections, rosters: &Rosters) -> PeerSign {
    let formed = rosters.formed();
    let liveness = formed.map_or(host::Liveness::Unknown, |formed| process_of(formed, key.rank));
    // The node's kernel has taken these connections. Whether it still answers is known only where it owes an answer.
    let time_out = formed.map_or(0, |formed| formed.agreed.heartbeat_timeout_ms);
    let owes = OWES.max(Duration::from_millis(time_out / 2));
    let answers = connections.watching(key).any(|transport| transport.silence().is_none_or(|silence| silence < owes));
    let process = match liveness {
        host::Liveness::Gone => PeerProcess::Gone,
        host::Liveness::Alive => PeerProcess::Lives,
        host::Liveness::Unknown => PeerProcess::Unknown,
    };
    PeerSign::Seen(Seen { process, answers: answers || process == PeerProcess::Lives })
}

/// What this host knows of a node's process, if the process is on this host and in the same namespace of process ids.
fn process_of(formed: &Formed, index: u32) -> host::Liveness {
    match (formed.members.find(formed.index), formed.members.find(index)) {
        (Some(own), Some(other))
            if own.host.key == other.host.key && own.process.pid_namespace == other.process.pid_namespace =>
        {
            host::alive(other.process.pid, other.process.start_ticks)
        }
        _ => host::Liveness::Unknown,
    }
}
