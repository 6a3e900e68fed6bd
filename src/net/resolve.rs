//! From a host's name, or an address as people write it, to socket addresses.
//!
//! Literal addresses need no lookup. A name goes through the C library's `getaddrinfo`, which reads /etc/hosts and
//! asks name servers, and which nothing can interrupt. So it runs on a thread of its own, for which the caller waits
//! until its time is up. As a rule the thread has ended when `resolve` returns. If the time is up before, the lookup
//! is abandoned. Its thread touches nothing of ours. It ends when the name servers' own time-outs are over (10 to 40 s
//! as they are usually set), and until then the shared library must stay mapped. `resolve` then pins it, so that a
//! `dlclose` does not pull the code away under that thread. Only a disk that does not return makes a thread outlast
//! the last handle, too.

use super::{fork, thread};
use crate::error::{Error, Result, Status};
use std::ffi::CString;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// The longest name that is looked up: the domain name system's limit.
const MAX_NAME_BYTES: usize = 253;

/// The addresses of a host, best first, with the port. The host is an IPv4 address, an IPv6 address (with or without
/// brackets, with a scope such as `%eth0` or `%2`), or a name.
pub fn resolve(host: &str, port: u16, timeout: Duration) -> Result<Vec<SocketAddr>> {
    resolve_with(host, port, timeout, |name| {
        // The port is put in later: it must not be part of what may be abandoned.
        fork::beyond_standard(|| (name, 0).to_socket_addrs().map(Iterator::collect))?
    })
}

fn resolve_with<F>(host: &str, port: u16, timeout: Duration, lookup: F) -> Result<Vec<SocketAddr>>
where
    F: FnOnce(&str) -> io::Result<Vec<SocketAddr>> + Send + 'static,
{
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    if let Some(address) = literal(bare).map_err(|reason| failed(host, &reason))? {
        return Ok(vec![with_port(address, port)]);
    }
    if bare.is_empty() || bare.len() > MAX_NAME_BYTES || bare.contains('\0') {
        return Err(failed(host, &format!("a host's name has 1 to {MAX_NAME_BYTES} bytes, none of them zero")));
    }
    let mut addresses = look_up(host, bare.to_string(), timeout, lookup)?;
    for address in &mut addresses {
        address.set_port(port);
    }
    let mut unique: Vec<SocketAddr> = Vec::new();
    for address in addresses {
        if !unique.contains(&address) {
            unique.push(address);
        }
    }
    if unique.is_empty() {
        return Err(failed(host, "the name has no address"));
    }
    Ok(unique)
}

/// The same address, with this port.
pub fn with_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}

/// The address, if the text is one; an error if it is one with a scope that this host does not have.
fn literal(text: &str) -> std::result::Result<Option<SocketAddr>, String> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(Some(SocketAddr::new(address, 0)));
    }
    let Some((address, scope)) = text.split_once('%') else { return Ok(None) };
    let Ok(address) = address.parse::<Ipv6Addr>() else { return Ok(None) };
    let scope = match scope.parse::<u32>() {
        Ok(number) => number,
        Err(_) => interface_index(scope).ok_or_else(|| format!("this host has no interface {scope:?}"))?,
    };
    Ok(Some(SocketAddrV6::new(address, 0, 0, scope).into()))
}

fn interface_index(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    // SAFETY: the pointer is to a string that ends in 0 and outlives the call.
    let index = fork::beyond_standard(|| unsafe { libc::if_nametoindex(name.as_ptr()) }).ok()?; // it opens a socket
    (index != 0).then_some(index)
}

fn look_up<F>(host: &str, name: String, timeout: Duration, lookup: F) -> Result<Vec<SocketAddr>>
where
    F: FnOnce(&str) -> io::Result<Vec<SocketAddr>> + Send + 'static,
{
    let (sender, receiver) = mpsc::sync_channel(1);
    let thread = thread::spawn("muster-resolve", move || {
        // The receiver is gone where the lookup was abandoned.
        let _ = sender.send(lookup(&name));
    })?;
    let answer = match receiver.recv_timeout(timeout) {
        Ok(answer) => answer,
        Err(RecvTimeoutError::Timeout) => {
            thread::stay_mapped();
            return Err(failed(host, &format!("no answer from the name service within {timeout:?}")));
        }
        Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("the lookup ended without an answer")),
    };
    // It has sent its answer and has nothing more to do. A panic in it is told by the channel.
    let _ = thread.join();
    answer.map_err(|error| {
        let reason = error.to_string();
        failed(host, reason.strip_prefix("failed to lookup address information: ").unwrap_or(&reason))
    })
}

fn failed(host: &str, reason: &str) -> Error {
    Error::new(Status::Unreachable, format!("cannot resolve host {host:?}: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(20);

    fn no_lookup(host: &str) -> Result<Vec<SocketAddr>> {
        resolve_with(host, 80, TIMEOUT, |_| panic!("a literal address needs no lookup"))
    }

    #[test]
    fn literal_addresses_need_no_lookup() {
        let one = |text: &str| vec![text.parse::<SocketAddr>().unwrap()];
        assert_eq!(no_lookup("127.0.0.1").unwrap(), one("127.0.0.1:80"));
        assert_eq!(no_lookup("::1").unwrap(), one("[::1]:80"));
        assert_eq!(no_lookup("[::1]").unwrap(), one("[::1]:80"));
        assert_eq!(no_lookup("fe80::1%7").unwrap(), one("[fe80::1%7]:80"));
        assert_eq!(no_lookup("[fe80::1%lo]").unwrap(), one("[fe80::1%1]:80"));
        let error = no_lookup("fe80::1%nosuch0").unwrap_err();
        assert_eq!(error.status(), Status::Unreachable);
        assert_eq!(error.message(), "cannot resolve host \"fe80::1%nosuch0\": this host has no interface \"nosuch0\"");
    }

    #[test]
    fn names_are_looked_up_and_failures_name_them() {
        let addresses = resolve("localhost", 8118, TIMEOUT).unwrap();
        assert!(addresses.iter().all(|address| address.ip().is_loopback() && address.port() == 8118));
        // The root's "invalid" never exists (RFC 6761).
        let error = resolve("no-such-host.invalid", 80, TIMEOUT).unwrap_err();
        assert_eq!(error.status(), Status::Unreachable);
        assert!(error.message().starts_with("cannot resolve host \"no-such-host.invalid\": "), "{error}");
        assert!(!error.message().contains("lookup address information"), "{error}");
        for bad in ["", "[]", "a\0b", &"x".repeat(254)] {
            let error = resolve(bad, 80, TIMEOUT).unwrap_err();
            assert!(error.message().contains("1 to 253 bytes"), "{error}");
        }
    }

    #[test]
    fn answers_are_unique_and_an_empty_one_is_an_error() {
        let two = |_: &str| Ok(vec!["10.0.0.1:0".parse().unwrap(), "10.0.0.1:0".parse().unwrap()]);
        let addresses = resolve_with("twice", 9, TIMEOUT, two).unwrap();
        assert_eq!(addresses, ["10.0.0.1:9".parse().unwrap()]);
        let error = resolve_with("empty", 9, TIMEOUT, |_| Ok(Vec::new())).unwrap_err();
        assert_eq!(error.message(), "cannot resolve host \"empty\": the name has no address");
    }

    #[test]
    fn a_lookup_that_takes_too_long_is_abandoned() {
        let (release, wait) = mpsc::channel::<()>();
        let error = resolve_with("slow", 80, Duration::from_millis(20), move |_| {
            let _ = wait.recv();
            Ok(Vec::new())
        });
        let error = error.unwrap_err();
        assert_eq!(error.message(), "cannot resolve host \"slow\": no answer from the name service within 20ms");
        drop(release);
    }
}
