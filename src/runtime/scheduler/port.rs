//! Where a scheduler listens (a descriptor that it inherits, or an address of this host), and where others look for it.
//! Every complaint names the setting that is to be mended. Tested by `tests/python/test_settings.py`,
//! `test_launchers.py` and `test_own_name.py`.

use crate::config::{Assignment, Key, Settings, MASTER_ADDR};
use crate::error::{Error, Result, Status};
use crate::net::{host, interface, resolve, Listener};
use crate::runtime::base::interrupts::{in_call, Interrupts};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// How long a name may take to be resolved, at most.
const RESOLVE_WAIT: Duration = Duration::from_secs(10);

/// A scheduler's socket.
pub struct Bound {
    /// The socket.
    pub listener: Listener,
    /// How a sentence names it.
    pub name: String,
    /// What the user must not expect of its address.
    pub remark: Option<String>,
}

/// Binds a scheduler's socket. If there are several ports, it takes the first that is free.
pub fn listen(settings: &Settings, host: &str, ports: &[u16]) -> Result<Bound> {
    if let Some(fd) = settings.sched_fd {
        let listener = Listener::adopt(fd).map_err(|error| under(&settings.origin(Key::SchedFd), &error))?;
        return Ok(Bound { listener, name: format!("descriptor {fd}"), remark: None });
    }
    let Own { addresses: own, setting, remark } = own_addresses(settings, host)?;
    let mut taken = None;
    for port in ports {
        let addresses: Vec<SocketAddr> = own.iter().map(|address| resolve::with_port(*address, *port)).collect();
        match Listener::bind(&addresses) {
            Ok(listener) => return Ok(Bound { listener, name: host.to_owned(), remark }),
            // Another port does not help if the address is wrong.
            Err(error) if !own.iter().all(is_here) => return Err(not_here(settings, host, &under(&setting, &error))),
            Err(error) => taken = Some((port, error)),
        }
    }
    let (port, error) = taken.expect("there is at least one port");
    match settings.derived_job.as_ref().filter(|_| ports.len() > 1) {
        Some(job) => {
            let (setting, job) = (Key::SchedPort.setting().variable(), job.mark());
            let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
            let whose = format!(
                "{setting} is not set, and none of the ports of this job ({job:?}) is free ({})",
                ports.join(", ")
            );
            Err(under(&whose, &error))
        }
        None => Err(under(&told(settings, Key::SchedPort, &port.to_string()), &error)),
    }
}

/// Says what a setting is. The default port is that of every job that sets none, so this names the setting that sets
/// another.
fn told(settings: &Settings, key: Key, value: &str) -> String {
    format!("{} is {value:?}", settings.origin(key))
}

/// An error that says which setting it is about.
fn under(setting: &str, error: &Error) -> Error {
    Error::new(error.status(), format!("{setting}: {}", error.message()))
}

/// The addresses that this host is to bind.
struct Own {
    addresses: Vec<SocketAddr>,
    /// The setting that says so.
    setting: String,
    remark: Option<String>,
}

/// The addresses of the scheduler's host that this host has; or all of them, if it has none.
fn own_addresses(settings: &Settings, host: &str) -> Result<Own> {
    if !settings.reach.sched_bind.is_empty() {
        let given: Vec<SocketAddr> = settings.reach.sched_bind.iter().map(|ip| interface::scoped(*ip, 0)).collect();
        let setting = settings.origin(Key::SchedBind);
        return Ok(Own { addresses: interface::of_families(&given), setting, remark: None });
    }
    let unknown = |error: Error| match error.status() {
        Status::Interrupted => error,
        _ => Error::config(format!("{}: {}; {}", settings.origin(Key::SchedHost), error.message(), advice())),
    };
    let all = look_up(settings, host, 0).map_err(unknown)?;
    let setting = told(settings, Key::SchedHost, host);
    let beyond = towards_others(settings.spans_hosts, host, all.clone());
    // An address for which the name itself stands is no surprise.
    let is_guessed = beyond.iter().any(|address| !all.contains(address));
    let remark = is_guessed.then(|| left_loopback(&setting, &all, &beyond));
    let here: Vec<SocketAddr> = beyond.iter().copied().filter(is_here).collect();
    Ok(Own { addresses: if here.is_empty() { beyond } else { here }, setting, remark })
}

/// The addresses of the scheduler's host. The program may interrupt the wait for the name service, and half of the forming time is
/// left for the nodes.
fn look_up(settings: &Settings, host: &str, port: u16) -> Result<Vec<SocketAddr>> {
    let limit = settings.forming_timeout.map_or(RESOLVE_WAIT, |limit| RESOLVE_WAIT.min(limit / 2));
    let interrupts = Interrupts::new(settings.interrupt.clone());
    let attention = interrupts.attention();
    resolve::resolve_in_spans(host, port, limit, |left| {
        attention.ask().map_err(|why| in_call("the lookup of the scheduler's host", &why))?;
        Ok(attention.left(Some(left)).unwrap_or(left))
    })
}

/// The addresses for which the name of the scheduler's host is taken here, out of those found, in a job with ranks on
/// other hosts or without.
pub fn towards_others(spans_hosts: bool, host: &str, found: Vec<SocketAddr>) -> Vec<SocketAddr> {
    match spans_hosts {
        true => interface::beyond_loopback(host, found),
        false => found,
    }
}

/// The words about a name that was not taken as this host resolves it.
fn left_loopback(setting: &str, found: &[SocketAddr], taken: &[SocketAddr]) -> String {
    let listed = |addresses: &[SocketAddr]| -> String {
        addresses.iter().map(|address| address.ip().to_string()).collect::<Vec<_>>().join(", ")
    };
    format!(
        "{setting}, which leads this host to {}, and ranks of other hosts can't come to its loopback: the scheduler binds {}; if \
         they don't find it there, set {} to this host's address",
        listed(found),
        listed(taken),
        Key::SchedHost.setting().variable()
    )
}

fn is_here(address: &SocketAddr) -> bool {
    address.ip().is_unspecified() || interface::is_local(*address)
}

/// The error for an address that is not this host's.
fn not_here(settings: &Settings, host: &str, error: &Error) -> Error {
    if !settings.reach.sched_bind.is_empty() {
        return error.clone();
    }
    let of_list = advice_of_list(settings, host).map_or_else(String::new, |of_list| format!("; {of_list}"));
    Error::new(error.status(), format!("{}{of_list}; {}", error.message(), advice()))
}

/// The advice for a launcher's list whose first host does not have rank 0: Slurm sorts its nodes.
fn advice_of_list(settings: &Settings, listed: &str) -> Option<String> {
    let (own, short) = (host::name().ok()?, |name: &str| name.split('.').next().map(str::to_owned));
    let is_other = settings.host_is_listed() && short(listed) != short(&own);
    is_other.then(|| format!("rank 0 runs the scheduler, and is on {own}: set {MASTER_ADDR}={own} for all ranks"))
}

/// The advice for the case that nodes look for the scheduler elsewhere.
fn advice() -> String {
    let setting = Key::SchedBind.setting().variable();
    format!("if this is the scheduler's host, and nodes reach it by a name or an address that it has not itself, set {setting}=*")
}

/// The address by which this process reaches its own scheduler, which may listen at every address.
pub fn connectable(address: SocketAddr) -> SocketAddr {
    let loopback: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    if address.ip().is_unspecified() {
        SocketAddr::new(loopback, address.port())
    } else {
        address
    }
}

/// The address at which a node listens if its own process hosts the scheduler, at every address of the host: the one
/// that leads to where the others look for the scheduler.
pub fn address_instead(settings: &Settings, listens: &[SocketAddr]) -> Result<Option<IpAddr>> {
    let Assignment::Node { host, ports, .. } = &settings.assignment else { return Ok(None) };
    if !listens.iter().any(|address| address.ip().is_unspecified()) {
        return Ok(None);
    }
    let found = match look_up(settings, host, ports[0]) {
        Err(error) if error.status() == Status::Interrupted => return Err(error),
        found => towards_others(settings.spans_hosts, host, found.unwrap_or_default()),
    };
    let mut towards = found.into_iter().filter(|found| !found.ip().is_unspecified());
    let found = towards.find_map(|found| interface::address_towards(found).ok());
    Ok(Some(found.unwrap_or_else(interface::usual_address)))
}

/// The settings that say where the scheduler is, as the user knows them.
pub fn settings_of_places(settings: &Settings) -> String {
    let host = settings.origin(Key::SchedHost);
    match settings
        .derived_job
        .as_ref()
        .filter(|_| matches!(&settings.assignment, Assignment::Node { ports, .. } if ports.len() > 1))
    {
        Some(job) => {
            let (mark, port) = (job.mark(), Key::SchedPort.setting().variable());
            format!("{host} and {port} (which is not set: the ports are those of the job {mark:?})")
        }
        None => format!("{host} and {}", settings.origin(Key::SchedPort)),
    }
}
