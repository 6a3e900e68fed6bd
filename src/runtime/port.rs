//! Where a scheduler listens: a descriptor that it inherits, or an address of this host. Every complaint names the setting
//! that is to be mended. Tested by `tests/python/test_settings.py`.

use crate::config::{Key, Settings};
use crate::error::{Error, Result};
use crate::net::{interface, resolve, Listener};
use std::net::SocketAddr;
use std::time::Duration;

/// How long a name may take to be resolved.
pub const RESOLVE_WAIT: Duration = Duration::from_secs(10);

/// The socket, and how a sentence names it.
pub fn listen(settings: &Settings, host: &str, port: u16) -> Result<(Listener, String)> {
    if let Some(fd) = settings.sched_fd {
        let adopted = Listener::adopt(fd).map_err(|error| under(&settings.origin(Key::SchedFd), &error))?;
        return Ok((adopted, format!("descriptor {fd}")));
    }
    let all = resolve::resolve(host, port, RESOLVE_WAIT).map_err(|error| named(settings, &error))?;
    // A name may stand for addresses of which this host has only some.
    let here = |address: &SocketAddr| address.ip().is_unspecified() || interface::is_local(*address);
    let own: Vec<SocketAddr> = all.iter().copied().filter(here).collect();
    let (key, value) = match own.is_empty() {
        true => (Key::SchedHost, host.to_owned()),
        false => (Key::SchedPort, port.to_string()),
    };
    let bound = Listener::bind(if own.is_empty() { &all } else { &own });
    let listener = bound.map_err(|error| under(&format!("{} is {value:?}", settings.origin(key)), &error))?;
    Ok((listener, host.to_owned()))
}

/// An error that says which setting it is about.
fn under(setting: &str, error: &Error) -> Error {
    Error::new(error.status(), format!("{setting}: {}", error.message()))
}

/// An unresolvable host, named as its user knows it.
pub fn named(settings: &Settings, error: &Error) -> Error {
    Error::config(format!("{}: {}", settings.origin(Key::SchedHost), error.message()))
}
