//! A node's port: how it lets connections in. It lets in all of them at once, so that a peer never waits behind strangers. Those
//! that have proved nothing yet are a [`Crowd`](crate::strangers::Crowd) with a limit, which is lower where the process is short
//! of descriptors. If there are more, the crowd says which one is closed. A peer whose connection is closed dials again
//! (`redial`). A second crowd is that of the members' connections that are no links: each member knows the secret, and one may
//! open many. Tested in `port_test.rs`.

use super::complaints::CROWD;
use super::handshake::{Stage, HELLO_WAIT};
use super::mesh::Mesh;
use super::mesh_connections::{STAYING_SPARE, UNPROVED_MAX, UNPROVED_WHEN_SHORT};
use crate::net::{limit, listener, Listener, Poller, TcpTransport, Transport};
use crate::types::Time;
use std::io;

/// How many connections are let in before the agent thread does other things.
pub(super) const ACCEPTED_AT_ONCE: usize = 64;

impl Mesh {
    /// Lets connections in, no faster than they are looked at. Returns when to come again for further ones that the poller
    /// will not report.
    pub fn accept(&mut self, listener: &mut Listener, poller: &Poller, now: Time) -> Time {
        for _ in self.connections.line.len()..ACCEPTED_AT_ONCE {
            let (transport, stage) = match listener.accept() {
                Ok((transport, _)) => (transport, Stage::Accepted),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.spare.keep();
                    return Time::NEVER;
                }
                Err(error) => match self.accept_in_want(listener, now, &error) {
                    Some(accepted) => accepted,
                    None => return now + listener::EXHAUSTED_PAUSE,
                },
            };
            let most = if limit::is_short(transport.descriptor()) { UNPROVED_WHEN_SHORT } else { UNPROVED_MAX };
            self.insert(transport, poller, now + HELLO_WAIT, stage, Vec::new());
            while self.connections.unproved() > most && self.put_out_one() {}
            self.keep_staying(if most == UNPROVED_MAX { STAYING_SPARE } else { UNPROVED_WHEN_SHORT });
        }
        now
    }

    /// There is no descriptor: a stranger that has one loses it, or a member that has too many beside its links. Only if there is
    /// neither, the spare descriptor is used.
    fn accept_in_want(
        &mut self,
        listener: &mut Listener,
        now: Time,
        error: &io::Error,
    ) -> Option<(TcpTransport, Stage)> {
        limit::shortage(error)?;
        if self.put_out_one() || self.keep_staying(0) {
            return listener.accept().ok().map(|(transport, _)| (transport, Stage::Accepted));
        }
        let (transport, whose) = self.spare.accept(listener, now, error)?;
        Some((transport, Stage::AcceptedOnSpare(whose)))
    }

    /// Closes one connection of those that have proved nothing. Returns whether there was one.
    fn put_out_one(&mut self) -> bool {
        let Some(shake) = self.connections.take_first_to_go() else { return false };
        let why =
            "too many connections have not yet proved that they belong to the job, and it is the oldest from there";
        self.complaints.turned_away(CROWD, shake.transport.peer_address(), why);
        true
    }

    /// Closes connections of members that are no links, where there are more than two for each node and so many. Returns whether
    /// there were.
    fn keep_staying(&mut self, spare: usize) -> bool {
        let most = 2 * self.rosters.nodes() + spare;
        let (mut any, why) =
            (false, "too many connections wait beside the links, and the member that it names has more than any other");
        while let Some(shake) = self.connections.take_beyond(most) {
            any = true;
            self.complaints.turned_away(CROWD, shake.transport.peer_address(), why);
        }
        any
    }

    /// Dials the links again whose last attempt ended without an answer. Returns when to come again.
    pub fn dial_again(&mut self, now: Time, poller: &Poller) -> Time {
        let (due, next) = self.redials.due(now);
        for key in due {
            self.open_if_located(key, poller);
        }
        next
    }
}
