//! How TCP decides how much it sends at a time (`TCP_CONGESTION`, tcp(7)), where both ends are on one host.
//!
//! On one host there is no path to share, and pacing only holds the sender up. Where BBR is the system's default, an
//! allreduce of 1 MiB among 8 ranks of one host takes half as long again. Reno is in every Linux, may be chosen by any
//! process, and does not pace. It is chosen before a connection is made: once BBR has begun, the kernel paces for
//! good. So a listener chooses Reno for all connections. A connection from another host then gets the system's choice.

pub(super) use super::interface::stays_here;
use super::socket::tcp_socket;
use socket2::SockRef;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;

/// The algorithm that is chosen within a host.
pub(super) const UNPACED: &[u8] = b"reno";

/// The kernel's name of an algorithm.
pub(super) type Name = Vec<u8>;

/// Whether a connection between these addresses stays on this host.
pub(super) fn joins_one_host(local: SocketAddr, peer: SocketAddr) -> bool {
    local.ip() == peer.ip() || peer.ip().is_loopback()
}

/// Chooses the algorithm for connections within one host.
pub(super) fn choose_unpaced(fd: &impl AsFd) {
    choose(fd, UNPACED);
}

/// The algorithm that the system chooses for a connection of the address's family, if it says so.
pub(super) fn usual(address: &SocketAddr) -> Option<Name> {
    chosen(&*tcp_socket(address).ok()?).ok()
}

/// Chooses an algorithm by name. Returns whether it was chosen: if the kernel refuses, all stays as it was, at most slower.
pub(super) fn choose(fd: &impl AsFd, name: &[u8]) -> bool {
    SockRef::from(fd).set_tcp_congestion(name).is_ok()
}

/// The algorithm that is chosen.
pub(super) fn chosen(fd: &impl AsFd) -> io::Result<Name> {
    let filled_up = SockRef::from(fd).tcp_congestion()?; // with zeros
    Ok(filled_up.into_iter().take_while(|byte| *byte != 0).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_s_choice_can_be_given_back() {
        let address = "127.0.0.1:0".parse().unwrap();
        let (fd, usual) = (tcp_socket(&address).unwrap(), usual(&address).unwrap());
        choose_unpaced(&*fd);
        assert_eq!(chosen(&*fd).unwrap(), UNPACED);
        assert!(choose(&*fd, &usual));
        assert_eq!(chosen(&*fd).unwrap(), usual);
        assert!(!choose(&*fd, b"no such one"));
    }

    #[test]
    fn what_stays_on_this_host_is_known_by_its_addresses() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        assert!(stays_here(at("127.0.0.1:80")) && stays_here(at("127.9.9.9:80")) && stays_here(at("[::1]:80")));
        assert!(!stays_here(at("192.0.2.1:80")), "nobody has an address for documentation");
        assert!(joins_one_host(at("127.0.0.1:5000"), at("127.0.0.2:80")));
        assert!(joins_one_host(at("192.0.2.1:5000"), at("192.0.2.1:80")));
        assert!(!joins_one_host(at("192.0.2.1:5000"), at("192.0.2.2:80")));
    }
}
