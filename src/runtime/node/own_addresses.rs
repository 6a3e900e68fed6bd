//! The addresses at which a node listens, and those which it tells the others.
//!
//! The choice, in this order: the addresses of `worker_ip`; those of the interfaces of `ifname`; all, if `advertise`
//! says what is told; the one that leads to the scheduler. Tested below, and between hosts by
//! `tests/python/test_reach.py`.

use crate::config::{Assignment, Endpoint, Interfaces, Key, Reach, Settings};
use crate::error::{Error, Result, Status};
use crate::net::interface::{self, is_link_local, own_addresses, scoped, OwnAddress};
use crate::net::{resolve::with_port, Listener};
use crate::wire::ADDRESSES_MAX;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// What the settings say of a node's addresses.
#[derive(Clone, Debug, Default)]
pub struct OwnAddresses {
    given: Vec<IpAddr>,
    reach: Reach,
    /// The address that takes the place of the one that leads to the scheduler, if the scheduler is in this process.
    pub instead: Option<IpAddr>,
    names: Names,
}

/// How the user knows the settings.
#[derive(Clone, Debug, Default)]
struct Names {
    given: String,
    interfaces: String,
    advertise: String,
    ports: String,
}

impl OwnAddresses {
    /// The addresses that the settings describe. Nobody looks for a cluster of one.
    pub fn of(settings: &Settings) -> OwnAddresses {
        let is_alone = matches!(settings.assignment, Assignment::Alone { .. });
        OwnAddresses {
            given: if is_alone { Vec::new() } else { settings.worker_addresses.clone() },
            reach: settings.reach.clone(),
            instead: None,
            names: Names {
                given: settings.origin(Key::WorkerIp),
                interfaces: settings.origin(Key::Ifname),
                advertise: settings.origin(Key::Advertise),
                ports: settings.origin(Key::PortRange),
            },
        }
    }

    /// Listens, if that can be done before it is known which address leads to the scheduler.
    pub fn listen_at_once(&self) -> Result<Option<Listener>> {
        let (addresses, setting) = match (&self.given[..], &self.reach.interfaces) {
            ([], Some(interfaces)) => (self.of_interfaces(interfaces)?, &self.names.interfaces),
            ([], None) if !self.reach.advertise.is_empty() => (everywhere(), &self.names.advertise),
            ([], None) => return Ok(None),
            (given, _) => (given.iter().map(|ip| scoped(*ip, 0)).collect(), &self.names.given),
        };
        self.listen(&addresses, setting).map(Some)
    }

    /// Listens at the address that leads to the scheduler.
    pub fn listen_towards(&self, own: SocketAddr) -> Result<Listener> {
        let own = self.instead.map_or(own, |ip| SocketAddr::new(ip, 0));
        self.listen(&[with_port(own, 0)], &self.names.given)
    }

    fn listen(&self, addresses: &[SocketAddr], setting: &str) -> Result<Listener> {
        let (bound, setting) = match (&self.reach.port_range, self.told_port()) {
            (Some(range), _) => {
                let setting = format!("{} is {}-{}", self.names.ports, range.start(), range.end());
                (Listener::bind_within(addresses, range.clone()), setting)
            }
            (None, Some(port)) => {
                let at: Vec<SocketAddr> = addresses.iter().map(|address| with_port(*address, port)).collect();
                (Listener::bind(&at), self.names.advertise.clone())
            }
            (None, None) => (Listener::bind(addresses), setting.to_owned()),
        };
        bound.map_err(|error| Error::new(error.status(), format!("{setting}: {}", error.message())))
    }

    /// The port that the others are told, if there is just one. Without a range it is the port that is bound.
    fn told_port(&self) -> Option<u16> {
        let mut ports = self.reach.advertise.iter().filter_map(|told| told.port);
        let first = ports.next()?;
        ports.all(|port| port == first).then_some(first)
    }

    /// The addresses that the others are told of a node that listens there.
    pub fn told(&self, bound: Vec<SocketAddr>) -> Vec<SocketAddr> {
        let Some(port) = bound.first().map(SocketAddr::port).filter(|_| !self.reach.advertise.is_empty()) else {
            return bound;
        };
        let tell = |told: &Endpoint| SocketAddr::new(told.ip, told.port.unwrap_or(port));
        self.reach.advertise.iter().map(tell).collect()
    }

    /// The addresses of the interfaces that count.
    fn of_interfaces(&self, interfaces: &Interfaces) -> Result<Vec<SocketAddr>> {
        let all = own_addresses().map_err(|error| Error::system("cannot list this host's addresses", &error))?;
        let chosen = choose(interfaces, &all);
        if !chosen.is_empty() {
            return Ok(chosen);
        }
        let there: Vec<String> = all.iter().map(described).collect();
        Err(Error::new(
            Status::Bind,
            format!(
                "{} is \"{interfaces}\", which leaves no address of this host: expected an interface that is up; \
                 there are {}",
                self.names.interfaces,
                there.join(", ")
            ),
        ))
    }
}

/// The first of the addresses that a node of this host tells the others, if only these interfaces count. None, if that leaves
/// no address.
pub fn first_of_interfaces(interfaces: &Interfaces) -> Option<IpAddr> {
    choose(interfaces, &own_addresses().ok()?).first().map(SocketAddr::ip)
}

/// Every address of this host, of each family that it has.
fn everywhere() -> Vec<SocketAddr> {
    let all = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
    interface::of_families(&all.map(|ip| SocketAddr::new(ip, 0)))
}

/// `eth0 (10.0.0.1, down)`
fn described(own: &OwnAddress) -> String {
    let down = if own.is_up { "" } else { ", down" };
    format!("{} ({}{down})", own.interface, own.address.ip())
}

/// Chooses among the addresses that count. A link-local one is taken only if there is nothing else; one of a loopback
/// interface counts only if the interface is named.
fn choose(interfaces: &Interfaces, all: &[OwnAddress]) -> Vec<SocketAddr> {
    let counts = |own: &&OwnAddress| {
        own.is_up && interfaces.admit(&own.interface) && (!own.is_loopback || interfaces.name(&own.interface))
    };
    let counting = all.iter().filter(counts);
    let (of_links, others): (Vec<SocketAddr>, Vec<SocketAddr>) =
        counting.map(|own| own.address).partition(|address| is_link_local(address.ip()));
    let mut chosen = if others.is_empty() { of_links } else { others };
    chosen.truncate(ADDRESSES_MAX);
    chosen
}

#[cfg(test)]
#[path = "own_addresses_test.rs"]
mod tests;
