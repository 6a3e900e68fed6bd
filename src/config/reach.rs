//! At which addresses a process listens, and which it tells others: the settings of docs/networking.md, and how they
//! are read.
//!
//! Deliberately not here: any question to the system. The runtime finds out which of these addresses and interfaces
//! there are. Tested below.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;

/// How many addresses a process may be given: as many as a node can register with.
pub(super) const ADDRESSES_LIMIT: usize = 8;
/// How many names of interfaces may be given.
const INTERFACES_LIMIT: usize = 64;
/// The longest name of an interface, as Linux has it.
const INTERFACE_MAX_BYTES: usize = 15;

/// At which addresses a process listens, and which it tells others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// The addresses that the scheduler binds in place of its host; empty: its host.
    pub sched_bind: Vec<IpAddr>,
    /// The addresses that a node tells the others in place of those that it binds; empty: those that it binds.
    pub advertise: Vec<Endpoint>,
    /// The ports of which a node takes the first that is free.
    pub port_range: Option<RangeInclusive<u16>>,
    /// The interfaces that count when a node looks for its addresses.
    pub interfaces: Option<Interfaces>,
}

/// An address to tell, and its port, if that is not the port that is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The address.
    pub ip: IpAddr,
    /// The port; none: the one that is bound.
    pub port: Option<u16>,
}

/// Which interfaces count, in NCCL's manner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interfaces {
    names: Vec<String>,
    /// The names are whole ones, not beginnings.
    exact: bool,
    /// All interfaces count but these.
    excluded: bool,
}

impl Interfaces {
    /// Whether the interface with this name counts.
    pub fn admit(&self, name: &str) -> bool {
        let fits = |own: &String| if self.exact { name == own } else { name.starts_with(own.as_str()) };
        self.names.iter().any(fits) != self.excluded
    }

    /// Whether the interface is named itself, and does not only count because it is not excluded.
    pub fn name(&self, name: &str) -> bool {
        !self.excluded && self.admit(name)
    }
}

impl fmt::Display for Interfaces {
    /// As the setting has it.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (excluded, exact) = (if self.excluded { "^" } else { "" }, if self.exact { "=" } else { "" });
        write!(out, "{excluded}{exact}{}", self.names.join(","))
    }
}

/// Whether many hosts may have this address, so that nobody can connect to it: multicast, or the broadcast address of
/// any network.
pub fn is_of_many(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST)
}

/// Whether others can connect to this address, as far as that is known without asking anybody.
fn can_be_reached(ip: IpAddr) -> bool {
    !ip.is_unspecified() && !is_of_many(ip)
}

/// Reads what stands between commas, without the blanks around it; at least one, and not too many.
fn list<T>(text: &str, limit: usize, read: impl Fn(&str) -> Option<T>) -> Option<Vec<T>> {
    let read: Option<Vec<T>> = text.split(',').map(|part| read(part.trim())).collect();
    read.filter(|list| list.len() <= limit)
}

/// Literal addresses at which others can reach this host: no wildcard, no multicast.
pub(super) fn addresses(text: &str) -> Option<Vec<IpAddr>> {
    list(text, ADDRESSES_LIMIT, address)
}

/// One such address, of any host.
pub(super) fn address(text: &str) -> Option<IpAddr> {
    text.parse::<IpAddr>().ok().map(|ip| ip.to_canonical()).filter(|ip| can_be_reached(*ip))
}

/// Addresses to bind: `*`, which is every address of both families, or single addresses; the wildcard of one family is
/// allowed, too.
pub(super) fn binds(text: &str) -> Option<Vec<IpAddr>> {
    if text == "*" {
        return Some(vec![Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()]);
    }
    list(text, ADDRESSES_LIMIT, |part| {
        part.parse::<IpAddr>().ok().map(|ip| ip.to_canonical()).filter(|ip| !is_of_many(*ip))
    })
}

/// `10.0.0.1`, `10.0.0.1:7000`, `fd00::1`, `[fd00::1]` or `[fd00::1]:7000`.
pub(super) fn endpoints(text: &str) -> Option<Vec<Endpoint>> {
    list(text, ADDRESSES_LIMIT, |part| {
        let bare = part.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        if let Some(ip) = address(bare.filter(|bare| bare.contains(':')).unwrap_or(part)) {
            return Some(Endpoint { ip, port: None });
        }
        let full: SocketAddr = part.parse().ok()?;
        let port = Some(full.port()).filter(|port| *port != 0)?;
        Some(full.ip().to_canonical()).filter(|ip| can_be_reached(*ip)).map(|ip| Endpoint { ip, port: Some(port) })
    })
}

/// `7000-7999`; one port is `7000-7000`. None is below the least.
pub(super) fn ports(text: &str, least: u64) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-')?;
    let is_whole = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let read = |text: &str| text.parse::<u16>().ok().filter(|_| is_whole(text));
    let port = |text: &str| read(text).filter(|port| u64::from(*port) >= least);
    Some(port(first)?..=port(last)?).filter(|range| !range.is_empty())
}

/// `eth,ib` (these begin so), `=eth0,eth1` (just these), `^docker,lo` (all but those that begin so) or `^=docker0`.
pub(super) fn interfaces(text: &str) -> Option<Interfaces> {
    let (excluded, rest) = text.strip_prefix('^').map_or((false, text), |rest| (true, rest));
    let (exact, rest) = rest.strip_prefix('=').map_or((false, rest), |rest| (true, rest));
    let is_name = |name: &str| {
        let fits = !name.is_empty() && name.len() <= INTERFACE_MAX_BYTES;
        fits && name.chars().all(|it| it.is_ascii_graphic() && !"^=/".contains(it))
    };
    let names = list(rest, INTERFACES_LIMIT, |name| is_name(name).then(|| name.to_owned()))?;
    Some(Interfaces { names, exact, excluded })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_star_is_every_address_of_both_families() {
        assert_eq!(binds("*").unwrap(), [ip("0.0.0.0"), ip("::")]);
        assert_eq!(binds("0.0.0.0").unwrap(), [ip("0.0.0.0")]);
        assert_eq!(binds("10.0.0.1, fd00::1").unwrap(), [ip("10.0.0.1"), ip("fd00::1")]);
        for wrong in ["", "*,10.0.0.1", "eth0", "10.0.0.1:80", "224.0.0.1", "255.255.255.255", "ff02::1"] {
            assert_eq!(binds(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_told_has_a_port_or_not() {
        let told = |text: &str| {
            let found = endpoints(text)?;
            Some(found.into_iter().map(|end| (end.ip.to_string(), end.port)).collect::<Vec<_>>())
        };
        let one = |ip: &str, port| Some(vec![(ip.to_owned(), port)]);
        assert_eq!(told("10.0.0.1"), one("10.0.0.1", None));
        assert_eq!(told("10.0.0.1:7000"), one("10.0.0.1", Some(7000)));
        assert_eq!(told("fd00::1"), one("fd00::1", None));
        assert_eq!(told("[fd00::1]"), one("fd00::1", None));
        assert_eq!(told("[fd00::1]:7000"), one("fd00::1", Some(7000)));
        assert_eq!(told("[::ffff:10.0.0.1]:7000"), one("10.0.0.1", Some(7000)));
        assert_eq!(told("10.0.0.1,10.0.0.2:7").unwrap().len(), 2);
        for wrong in [
            "",
            "host:80",
            "10.0.0.1:0",
            "10.0.0.1:x",
            "10.0.0.1:65536",
            "0.0.0.0",
            "[::]:7",
            "224.0.0.1:7",
            "[10.0.0.1]",
        ] {
            assert_eq!(told(wrong), None, "{wrong}");
        }
        assert_eq!(told(&["10.0.0.1"; 9].join(",")), None);
    }

    #[test]
    fn a_range_of_ports_has_two_ends() {
        let ports = |text| super::ports(text, 1024);
        assert_eq!(ports("7000-7003").unwrap(), 7000..=7003);
        assert_eq!(ports("7000-7000").unwrap(), 7000..=7000);
        for wrong in
            ["", "7000", "7001-7000", "80-90", "7000-65536", "7000-7001-7002", "a-b", "7000 - 7001", "-", "+7000-7001"]
        {
            assert_eq!(ports(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn interfaces_are_named_in_nccls_manner() {
        let admitted = |text: &str| {
            let found = interfaces(text).unwrap();
            let all = ["lo", "eth0", "eth01", "docker0", "ib0"];
            all.into_iter().filter(|name| found.admit(name)).collect::<Vec<_>>()
        };
        assert_eq!(admitted("eth"), ["eth0", "eth01"]);
        assert_eq!(admitted("eth0"), ["eth0", "eth01"]);
        assert_eq!(admitted("=eth0"), ["eth0"]);
        assert_eq!(admitted("=eth0,ib0"), ["eth0", "ib0"]);
        assert_eq!(admitted("ib, eth"), ["eth0", "eth01", "ib0"]);
        assert_eq!(admitted("^docker,lo"), ["eth0", "eth01", "ib0"]);
        assert_eq!(admitted("^=eth0"), ["lo", "eth01", "docker0", "ib0"]);
        assert!(interfaces("lo").unwrap().name("lo") && !interfaces("^docker").unwrap().name("lo"));
        for wrong in ["", "^", "=", "^=", "eth0,", "a b", "eth0,^lo", "=^lo", "a23456789012345x"] {
            assert_eq!(interfaces(wrong), None, "{wrong}");
        }
    }
}
