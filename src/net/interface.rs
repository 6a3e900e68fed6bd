//! Which addresses are this host's, asked of the kernel itself: no external program, no parsing of interface lists.
//!
//! No packet leaves the host for any of this: the sockets are datagram sockets that send nothing.

use super::fork::Guarded;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

/// The address of this host from which packets to `target` leave. It is the one to advertise to nodes on that network.
pub fn address_towards(target: SocketAddr) -> io::Result<IpAddr> {
    let any: IpAddr = if target.is_ipv4() { [0u8; 4].into() } else { [0u8; 16].into() };
    let socket = Guarded::create(|| UdpSocket::bind((any, 0)))?;
    // A port is needed, and any will do.
    let port = if target.port() == 0 { 9 } else { target.port() };
    let mut target = target;
    target.set_port(port);
    socket.connect(target)?;
    socket.local_addr().map(|address| address.ip())
}

/// Whether the address is one of this host's. Unspecified ones (`0.0.0.0`, `::`) are not: they are no address.
pub fn is_local(address: SocketAddr) -> bool {
    let mut address = address;
    address.set_port(0);
    !address.ip().is_unspecified() && Guarded::create(|| UdpSocket::bind(address)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn towards_loopback_is_loopback() {
        let towards = |text: &str| address_towards(text.parse().unwrap()).unwrap().to_string();
        assert_eq!(towards("127.0.0.1:80"), "127.0.0.1");
        assert_eq!(towards("127.0.0.1:0"), "127.0.0.1");
        assert_eq!(towards("[::1]:80"), "::1");
    }

    #[test]
    fn this_hosts_addresses_are_told_from_others() {
        let local = |text: &str| is_local(text.parse().unwrap());
        assert!(local("127.0.0.1:8118"));
        assert!(local("127.5.6.7:1"));
        assert!(local("[::1]:8118"));
        assert!(!local("192.0.2.1:8118"));
        assert!(!local("[2001:db8::1]:8118"));
        assert!(!local("0.0.0.0:8118"));
        assert!(!local("[::]:8118"));
    }
}
