//! Which addresses are this host's, asked of the kernel itself: no external program, no parsing of interface lists.
//!
//! No packet leaves the host for any of this: the sockets are datagram sockets that send nothing.

use super::call::check;
use super::fork::{beyond_standard, Guarded};
use super::resolve::{asks_nobody, with_port};
use crate::config::is_of_many;
use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};

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

/// Whether the address is one of this host's. Unspecified addresses (`0.0.0.0`, `::`) are not local. Multicast and broadcast
/// addresses are not local, although they can be bound. Addresses of other hosts are not local, even if the system lets us bind
/// them (the sysctl `net.ipv4.ip_nonlocal_bind`).
pub fn is_local(address: SocketAddr) -> bool {
    let mut address = address;
    address.set_port(0);
    let can_be_bound = || Guarded::create(|| UdpSocket::bind(address)).is_ok();
    // Packets to a second address of a network leave from the first one.
    let is_listed = || own_addresses().is_ok_and(|own| own.iter().any(|own| own.address.ip() == address.ip()));
    !address.ip().is_unspecified() && !is_shared(address) && can_be_bound() && (stays_here(address) || is_listed())
}

/// Whether what is sent to the address stays on this host.
pub(super) fn stays_here(address: SocketAddr) -> bool {
    address.ip().is_loopback() || address_towards(address).is_ok_and(|from| from == address.ip())
}

/// Whether this is a multicast address or, by what the kernel knows of this host's networks, a broadcast address. Nobody can
/// connect there.
pub fn is_shared(address: SocketAddr) -> bool {
    // The kernel refuses (EACCES) a socket that has not asked for permission to broadcast.
    let is_broadcast = || matches!(address_towards(address), Err(error) if error.raw_os_error() == Some(libc::EACCES));
    is_of_many(address.ip()) || (address.is_ipv4() && !address.ip().is_unspecified() && is_broadcast())
}

/// The address with this port and, if it is valid on one link only (`fe80::`), with the interface on which this host has it.
pub fn scoped(ip: IpAddr, port: u16) -> SocketAddr {
    let own = if is_link_local(ip) { own_addresses().unwrap_or_default() } else { Vec::new() };
    let address = own.iter().map(|own| own.address).find(|own| own.ip() == ip);
    with_port(address.unwrap_or_else(|| SocketAddr::new(ip, 0)), port)
}

/// The address, once for each link on which it may be meant: an address that is valid on one link only, and does not say on
/// which, may be on each of this host's links.
pub fn on_each_link(address: SocketAddr) -> Vec<SocketAddr> {
    let SocketAddr::V6(found) = address else { return vec![address] };
    if found.scope_id() != 0 || !is_link_local(address.ip()) {
        return vec![address];
    }
    let mut links: Vec<u32> = own_addresses().unwrap_or_default().iter().filter_map(OwnAddress::link).collect();
    links.sort_unstable();
    links.dedup();
    let on = |link: u32| SocketAddr::V6(SocketAddrV6::new(*found.ip(), found.port(), 0, link));
    match links.is_empty() {
        true => vec![address],
        false => links.into_iter().map(on).collect(),
    }
}

/// The addresses, without the wildcard of a family (`::`, `0.0.0.0`) that this host lacks. If none remains, all are returned.
pub fn of_families(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let is_there = |address: &SocketAddr| {
        !address.ip().is_unspecified() || Guarded::create(|| UdpSocket::bind((address.ip(), 0))).is_ok()
    };
    let there: Vec<SocketAddr> = addresses.iter().copied().filter(is_there).collect();
    if there.is_empty() {
        addresses.to_vec()
    } else {
        there
    }
}

/// The address that this host would use towards any other host. A loopback address if it has no other.
pub fn usual_address() -> IpAddr {
    // No host has these addresses, which are for documentation: only a default route leads there.
    let anywhere = [IpAddr::from([192, 0, 2, 1]), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into()];
    let routed = anywhere.iter().find_map(|ip| address_towards(SocketAddr::new(*ip, 9)).ok());
    let listed = || {
        let own = own_addresses().unwrap_or_default();
        let usable = own.into_iter().filter(|own| own.is_up && !own.is_loopback && !is_link_local(own.address.ip()));
        usable.map(|own| own.address.ip()).next()
    };
    routed.or_else(listed).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

/// Where other hosts find the host with this name. `found` is what the name leads to on that host itself. On many systems
/// a host's own name leads to its loopback address, which no other host can reach. That address is left out. If nothing
/// remains, the usual address takes its place. An address and `localhost` mean what they say, and a host that has only
/// its loopback address keeps it.
pub fn beyond_loopback(name: &str, found: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let is_meant = asks_nobody(name) || name.eq_ignore_ascii_case("localhost");
    let Some(inside) = found.iter().find(|address| address.ip().is_loopback()).filter(|_| !is_meant) else {
        return found;
    };
    let beyond: Vec<SocketAddr> = found.iter().copied().filter(|address| !address.ip().is_loopback()).collect();
    let usual = || Some(SocketAddr::new(usual_address(), inside.port())).filter(|usual| !usual.ip().is_loopback());
    match beyond.is_empty() {
        true => usual().map_or(found, |usual| vec![usual]),
        false => beyond,
    }
}

/// Whether the address is valid on one link only.
pub fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.segments()[0] & 0xffc0 == 0xfe80)
}

/// One address of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnAddress {
    /// The name of its interface.
    pub interface: String,
    /// The address. Its port is 0.
    pub address: SocketAddr,
    /// Whether the interface is up and has a carrier.
    pub is_up: bool,
    /// Whether nobody outside this host can use it.
    pub is_loopback: bool,
}

impl OwnAddress {
    /// The link of an address that is valid on one link only.
    fn link(&self) -> Option<u32> {
        match self.address {
            SocketAddr::V6(address) if self.is_up && !self.is_loopback && is_link_local(self.address.ip()) => {
                Some(address.scope_id()).filter(|scope| *scope != 0)
            }
            _ => None,
        }
    }
}

/// All addresses of this host, in the kernel's order.
pub fn own_addresses() -> io::Result<Vec<OwnAddress>> {
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: the pointer is to a variable that outlives the call.
    beyond_standard(|| check(unsafe { libc::getifaddrs(&raw mut list) }))??;
    let mut own = Vec::new();
    let mut next = list;
    while !next.is_null() {
        // SAFETY: the list and what it points to live until it is freed below.
        let entry = unsafe { &*next };
        own.extend(own_address(entry));
        next = entry.ifa_next;
    }
    // SAFETY: it is the list that getifaddrs made, and nothing that lives on points into it.
    unsafe { libc::freeifaddrs(list) };
    Ok(own)
}

/// The address of an entry, if it has one, and of a family that we know.
fn own_address(entry: &libc::ifaddrs) -> Option<OwnAddress> {
    if entry.ifa_addr.is_null() || entry.ifa_name.is_null() {
        return None;
    }
    // SAFETY: it is not null, and any address begins with its family.
    let family = unsafe { (*entry.ifa_addr).sa_family };
    let address = match i32::from(family) {
        libc::AF_INET => {
            // SAFETY: an address of this family is such a structure; the allocation is the C library's, and aligned.
            let found = unsafe { entry.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned() };
            SocketAddr::new(Ipv4Addr::from(found.sin_addr.s_addr.to_ne_bytes()).into(), 0)
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let found = unsafe { entry.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned() };
            SocketAddrV6::new(Ipv6Addr::from(found.sin6_addr.s6_addr), 0, 0, found.sin6_scope_id).into()
        }
        _ => return None,
    };
    // SAFETY: it is not null, and the C library ends names with a zero byte.
    let interface = unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned();
    let has = |flag: libc::c_int| entry.ifa_flags & flag as u32 != 0;
    // IFF_RUNNING would come up to a second later.
    let (is_up, is_loopback) = (has(libc::IFF_UP) && has(libc::IFF_LOWER_UP), has(libc::IFF_LOOPBACK));
    Some(OwnAddress { interface, address, is_up, is_loopback })
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
        // These addresses can be bound, but nobody can connect there.
        for shared in ["224.0.0.1:8118", "255.255.255.255:8118", "127.255.255.255:8118", "[ff02::1]:8118"] {
            assert!(!local(shared) && is_shared(shared.parse().unwrap()), "{shared}");
        }
        assert!(!is_shared("127.0.0.1:8118".parse().unwrap()) && !is_shared("0.0.0.0:8118".parse().unwrap()));
    }

    #[test]
    fn the_kernel_lists_this_hosts_addresses() {
        let own = own_addresses().unwrap();
        let loopback = own.iter().find(|own| own.address == "127.0.0.1:0".parse().unwrap()).expect("it has one");
        assert!(loopback.interface == "lo" && loopback.is_up && loopback.is_loopback);
        let mut four = own.iter().filter(|own| own.address.is_ipv4());
        assert!(four.all(|own| is_local(own.address)), "{own:?}"); // one of IPv6 may not be settled yet
        assert!(own.iter().any(|own| own.address.ip() == usual_address()));
    }

    #[test]
    fn other_hosts_find_a_host_beyond_its_loopback() {
        let at = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<SocketAddr>>();
        let inside = at(&["127.0.1.1:7", "[::1]:7"]);
        let usual = usual_address();
        let instead = if usual.is_loopback() { inside.clone() } else { vec![SocketAddr::new(usual, 7)] };
        assert_eq!(beyond_loopback("node-a", inside.clone()), instead);
        assert_eq!(
            beyond_loopback("node-a", at(&["127.0.1.1:7", "10.0.0.1:7", "10.0.0.2:7"])),
            at(&["10.0.0.1:7", "10.0.0.2:7"])
        );
        assert_eq!(beyond_loopback("node-a", at(&["10.0.0.1:7"])), at(&["10.0.0.1:7"]));
        assert_eq!(beyond_loopback("node-a", Vec::new()), []);
        for meant in ["localhost", "LocalHost", "127.0.1.1", "[::1]", "::1"] {
            assert_eq!(beyond_loopback(meant, inside.clone()), inside, "{meant}");
        }
    }

    #[test]
    fn only_an_address_of_one_link_needs_to_be_told_which() {
        for plain in ["10.0.0.1:80", "[fd00::1]:80", "[fe80::1%7]:80"] {
            let plain: SocketAddr = plain.parse().unwrap();
            assert_eq!(on_each_link(plain), [plain]);
        }
        let links: Vec<u32> = own_addresses().unwrap().iter().filter_map(OwnAddress::link).collect();
        let found = on_each_link("[fe80::1]:80".parse().unwrap());
        assert!(found
            .iter()
            .all(|found| found.port() == 80 && found.ip() == IpAddr::from([0xfe80, 0, 0, 0, 0, 0, 0, 1])));
        assert!(!found.is_empty() && found.len() <= links.len().max(1));
        assert_eq!(scoped("127.0.0.1".parse().unwrap(), 7), "127.0.0.1:7".parse().unwrap());
    }
}
