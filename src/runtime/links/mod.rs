//! Links to other nodes: opened, accepted, watched, ended. It knows rosters, and no group.

pub(crate) mod address_lookup;
pub(crate) mod announcements;
pub(crate) mod complaints;
pub(crate) mod dial;
pub(crate) mod handshake;
pub(crate) mod identities;
pub(crate) mod identity_check;
pub(crate) mod keepalive;
pub(crate) mod link;
pub(crate) mod link_end;
pub(crate) mod mesh;
pub(crate) mod mesh_connections;
pub(crate) mod outgoing;
pub(crate) mod peers;
pub(crate) mod port;
pub(crate) mod redial;
pub(crate) mod revoke_broadcast;
pub(crate) mod rosters;
pub(crate) mod shared_link;
mod shared_rings;
pub(crate) mod shortage;
pub(crate) mod sink;
pub(crate) mod spare_descriptor;
mod terms;
pub(crate) mod unanswered;
pub(crate) mod upgrade;
pub(crate) mod watching;

#[cfg(any(test, fuzzing))]
pub(crate) use shared_rings::fuzz as fuzz_rings;
