//! Where a scheduler listens (a descriptor that it inherits, or an address of this host), and where it is looked for. Every
//! complaint names the setting that is to be mended. Tested by `tests/python/test_settings.py` and `test_launchers.py`.

use crate::config::{Assignment, Key, Settings};
use crate::error::{Error, Result};
use crate::net::{interface, resolve, Listener};
use std::net::SocketAddr;
use std::time::Duration;

/// How long a name may take to be resolved.
const RESOLVE_WAIT: Duration = Duration::from_secs(10);

/// The socket, and how a sentence names it. Of several ports it is the first that is free.
pub fn listen(settings: &Settings, host: &str, ports: &[u16]) -> Result<(Listener, String)> {
    if let Some(fd) = settings.sched_fd {
        let adopted = Listener::adopt(fd).map_err(|error| under(&settings.origin(Key::SchedFd), &error))?;
        return Ok((adopted, format!("descriptor {fd}")));
    }
    let all = resolve::resolve(host, ports[0], RESOLVE_WAIT).map_err(|error| named(settings, &error))?;
    // A name may stand for addresses of which this host has only some.
    let here = |address: &SocketAddr| address.ip().is_unspecified() || interface::is_local(*address);
    let own: Vec<SocketAddr> = all.iter().copied().filter(here).collect();
    if own.is_empty() {
        let listener = Listener::bind(&all).map_err(|error| under(&told(settings, Key::SchedHost, host), &error))?;
        return Ok((listener, host.to_owned()));
    }
    let mut taken = None;
    for port in ports {
        let addresses: Vec<SocketAddr> = own.iter().map(|address| resolve::with_port(*address, *port)).collect();
        match Listener::bind(&addresses) {
            Ok(listener) => return Ok((listener, host.to_owned())),
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

/// What a setting says. The default port is that of every job that sets none, so the setting is named that sets another.
fn told(settings: &Settings, key: Key, value: &str) -> String {
    format!("{} is {value:?}", settings.origin(key))
}

/// An error that says which setting it is about.
fn under(setting: &str, error: &Error) -> Error {
    Error::new(error.status(), format!("{setting}: {}", error.message()))
}

/// An unresolvable host, named as its user knows it.
pub fn named(settings: &Settings, error: &Error) -> Error {
    Error::config(format!("{}: {}", settings.origin(Key::SchedHost), error.message()))
}

/// Where the scheduler may be, in the order in which that is tried, and how sentences name each place.
pub fn places(settings: &Settings, own: Option<&[SocketAddr]>) -> Result<Vec<(Vec<SocketAddr>, String)>> {
    if let Some(addresses) = own {
        return Ok(vec![(addresses.to_vec(), addresses[0].to_string())]);
    }
    let Assignment::Node { host, ports, .. } = &settings.assignment else {
        return Err(Error::config("a cluster of one has its own scheduler"));
    };
    let found = resolve::resolve(host, ports[0], RESOLVE_WAIT).map_err(|error| named(settings, &error))?;
    let at = |port: &u16| {
        let addresses = found.iter().map(|address| resolve::with_port(*address, *port)).collect();
        (addresses, if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") })
    };
    Ok(ports.iter().map(at).collect())
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
