//! Whether this host has the scheduler's address, and if so its listener, bound before anything is started.

use crate::sys;
use muster::net::{interface, resolve};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

/// How long a host name may take to be resolved.
pub const RESOLVE_WAIT: Duration = Duration::from_secs(30);

/// The listener on the first of the master's addresses that is one of this host's; none when none is. The error is a
/// sentence for the user, of whose job other launchers may be a part.
pub fn listen(host: &str, port: u16, all_here: bool) -> Result<Option<TcpListener>, String> {
    let addresses = resolve::resolve(host, port, RESOLVE_WAIT).map_err(|error| format!("--master_addr: {error}"))?;
    let mut refused = None;
    for address in addresses.iter().filter(|address| interface::is_local(**address)) {
        // The standard library sets SO_REUSEADDR and not SO_REUSEPORT, and close-on-exec.
        match TcpListener::bind(address).and_then(|listener| sys::widen_backlog(&listener).map(|()| listener)) {
            Ok(listener) => return Ok(Some(listener)),
            // An address that has just gone from this host: another of the name's may do.
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => refused = Some((address, error)),
            Err(error) => return Err(cannot_bind(address, &error, all_here)),
        }
    }
    match refused {
        None => Ok(None),
        Some((address, error)) => Err(cannot_bind(address, &error, all_here)),
    }
}

fn cannot_bind(address: &SocketAddr, error: &io::Error, all_here: bool) -> String {
    let advice = match error.kind() {
        io::ErrorKind::AddrInUse => "; choose another --master_port, or 0 to let the system choose",
        _ => "",
    };
    let hosts = match error.kind() {
        io::ErrorKind::AddrInUse if !all_here => {
            ". If it is another launcher of this job that has it: the launchers of one job run on different hosts, and \
             one on each"
        }
        _ => "",
    };
    format!("can't bind the scheduler's address {address}: {error}{advice}{hosts}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_this_host_is_bound_and_another_is_not() {
        let listener = listen("127.0.0.1", 0, true).unwrap().expect("loopback is here");
        assert_ne!(listener.local_addr().unwrap().port(), 0);
        assert!(listen("localhost", 0, true).unwrap().is_some());
        assert!(listen("192.0.2.1", 0, true).unwrap().is_none(), "an address for documentation is nobody's");
    }

    #[test]
    fn a_port_in_use_is_an_error_that_names_it() {
        let listener = listen("127.0.0.1", 0, true).unwrap().unwrap();
        let address = listener.local_addr().unwrap();
        for all_here in [true, false] {
            let error = listen("127.0.0.1", address.port(), all_here).unwrap_err();
            assert!(error.contains(&address.to_string()) && error.contains("--master_port"), "{error}");
            assert_eq!(error.contains("launchers of one job run on different hosts"), !all_here, "{error}");
        }
    }
}
