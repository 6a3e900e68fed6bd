//! From a host's name, or an address as people write it, to socket addresses.
//!
//! Literal addresses need no lookup. A name goes through the C library's `getaddrinfo`, which reads /etc/hosts and
//! asks name servers, and which nothing can interrupt. So it runs on a thread of its own ([`Lookup`]). Its caller waits
//! until its time is up ([`resolve`]), or is told when there is an answer. Usually the thread ends with the answer. A
//! lookup that is dropped before that is abandoned. Its thread touches nothing of ours. It ends when the name servers' own
//! time-outs are over (10 to 40 s as they are usually set), and until then the shared library must stay mapped. So it
//! is pinned, and a `dlclose` does not pull the code away under that thread. Only a disk that does not return makes a
//! thread outlast the last handle, too.

use super::{fork, thread};
use crate::config::is_of_many;
use crate::error::{Error, Result, Status};
use std::ffi::CString;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The longest name that is looked up: the domain name system's limit.
const MAX_NAME_BYTES: usize = 253;

/// What the name service answers.
type Answer = io::Result<Vec<SocketAddr>>;

/// The addresses of a host, best first, with the port. The host is an IPv4 address, an IPv6 address (with or without
/// brackets, with a scope such as `%eth0` or `%2`), or a name. An IPv4 address in the form of IPv6 (`::ffff:10.0.0.1`)
/// is that IPv4 address.
pub fn resolve(host: &str, port: u16, timeout: Duration) -> Result<Vec<SocketAddr>> {
    resolve_in_spans(host, port, timeout, Ok)
}

/// As [`resolve`], in a wait that something else may end. `span` gets the time that is left, and says how long to sleep next. Its
/// error ends the wait.
pub fn resolve_in_spans(
    host: &str,
    port: u16,
    timeout: Duration,
    span: impl Fn(Duration) -> Result<Duration>,
) -> Result<Vec<SocketAddr>> {
    let addresses = Lookup::start(host, || ()).wait(timeout, span)?;
    Ok(addresses.into_iter().map(|address| with_port(address, port)).collect())
}

/// The same address, with this port.
pub fn with_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}

/// A host whose addresses are being found out.
#[derive(Debug)]
pub struct Lookup {
    host: String,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// The result is known without a question.
    Known(Result<Vec<SocketAddr>>),
    /// A thread asks the name service.
    Asked(Receiver<Answer>, JoinHandle<()>),
    /// The caller has been told the result.
    Told,
}

impl Lookup {
    /// Begins a lookup. `done` is called on the lookup's thread when an answer has come. If nobody need be asked, it is not
    /// called, and the answer is there at once.
    pub fn start(host: &str, done: impl FnOnce() + Send + 'static) -> Lookup {
        Lookup::start_with(host, done, |name| {
            // The port is put in later: an abandoned lookup must not depend on it.
            fork::beyond_standard(|| (name, 0).to_socket_addrs().map(Iterator::collect))?
        })
    }

    fn start_with<D, F>(host: &str, done: D, lookup: F) -> Lookup
    where
        D: FnOnce() + Send + 'static,
        F: FnOnce(&str) -> Answer + Send + 'static,
    {
        let stage = match without_asking(host) {
            Some(known) => Stage::Known(known.map_err(|reason| failed(host, &reason))),
            None => ask(bare(host).to_owned(), done, lookup).unwrap_or_else(|error| Stage::Known(Err(error))),
        };
        Lookup { host: host.to_owned(), stage }
    }

    /// Returns the addresses (their ports are 0), or why there are none: once, as soon as that is known.
    pub fn answer(&mut self) -> Option<Result<Vec<SocketAddr>>> {
        let answer = match &self.stage {
            Stage::Asked(receiver, _) => match receiver.try_recv() {
                Ok(answer) => Some(answer),
                Err(TryRecvError::Empty) => return None,
                Err(TryRecvError::Disconnected) => None,
            },
            Stage::Known(_) | Stage::Told => None,
        };
        self.tell(answer)
    }

    /// Waits for the answer, at most for `timeout`, in such spans.
    fn wait(mut self, timeout: Duration, span: impl Fn(Duration) -> Result<Duration>) -> Result<Vec<SocketAddr>> {
        let begun = Instant::now();
        let answer = loop {
            let Stage::Asked(receiver, _) = &self.stage else { break None };
            let left = timeout.saturating_sub(begun.elapsed());
            match receiver.recv_timeout(span(left)?) {
                Ok(answer) => break Some(answer),
                Err(RecvTimeoutError::Disconnected) => break None,
                Err(RecvTimeoutError::Timeout) if left.is_zero() => return Err(failed(&self.host, &silent(timeout))),
                Err(RecvTimeoutError::Timeout) => {}
            }
        };
        self.tell(answer).unwrap_or_else(|| Err(failed(&self.host, "it was told before")))
    }

    fn tell(&mut self, answer: Option<Answer>) -> Option<Result<Vec<SocketAddr>>> {
        match std::mem::replace(&mut self.stage, Stage::Told) {
            Stage::Told => None,
            Stage::Known(known) => Some(known),
            Stage::Asked(_, thread) => {
                // The thread has sent its answer and has nothing more to do. The channel shows if it has panicked.
                let _ = thread.join();
                let answer = answer.unwrap_or_else(|| Err(io::Error::other("the lookup ended without an answer")));
                Some(answer.map_err(|error| reason(&error)).and_then(usable).map_err(|why| failed(&self.host, &why)))
            }
        }
    }
}

impl Drop for Lookup {
    fn drop(&mut self) {
        if matches!(self.stage, Stage::Asked(..)) {
            thread::stay_mapped();
        }
    }
}

/// The words for a name service that takes too long.
fn silent(timeout: Duration) -> String {
    let tenths = timeout.as_millis().div_ceil(100);
    let fraction = if tenths.is_multiple_of(10) { String::new() } else { format!(".{}", tenths % 10) };
    format!("no answer from the name service within {}{fraction} s", tenths / 10)
}

/// The host without the brackets of an address.
fn bare(host: &str) -> &str {
    host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host)
}

/// Whether the name service need not be asked for this host: it is an address, or can be neither an address nor a name.
pub fn asks_nobody(host: &str) -> bool {
    without_asking(host).is_some()
}

/// The addresses of a host that is an address, or why the host can be neither an address nor a name. None if it must be
/// asked for.
fn without_asking(host: &str) -> Option<std::result::Result<Vec<SocketAddr>, String>> {
    let bare = bare(host);
    match literal(bare) {
        Ok(Some(address)) => return Some(usable(vec![address])),
        Ok(None) => {}
        Err(reason) => return Some(Err(reason)),
    }
    let is_name = !bare.is_empty() && bare.len() <= MAX_NAME_BYTES && !bare.contains('\0');
    (!is_name).then(|| Err(format!("a host's name has 1 to {MAX_NAME_BYTES} bytes, none of them zero")))
}

/// The address, if the text is one. An error if it has a scope that this host does not have.
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

fn ask<D, F>(name: String, done: D, lookup: F) -> Result<Stage>
where
    D: FnOnce() + Send + 'static,
    F: FnOnce(&str) -> Answer + Send + 'static,
{
    let (sender, receiver) = mpsc::sync_channel(1);
    let thread = thread::spawn("muster-resolve", move || {
        // The receiver is gone if the lookup was abandoned.
        let _ = sender.send(lookup(&name));
        done();
    })?;
    Ok(Stage::Asked(receiver, thread))
}

/// Each address once, without those that many hosts share. An error says why no address is left.
fn usable(addresses: Vec<SocketAddr>) -> std::result::Result<Vec<SocketAddr>, String> {
    let mut unique: Vec<SocketAddr> = Vec::new();
    let mut of_many = None;
    for address in addresses {
        let address = match address.ip().to_canonical() {
            ip @ IpAddr::V4(_) => SocketAddr::new(ip, address.port()),
            IpAddr::V6(_) => address,
        };
        if is_of_many(address.ip()) {
            of_many = Some(address.ip());
        } else if !unique.contains(&address) {
            unique.push(address);
        }
    }
    match of_many {
        _ if !unique.is_empty() => Ok(unique),
        None => Err("the name has no address".to_owned()),
        Some(ip) => Err(format!("{ip} is a multicast or broadcast address, to which nobody can connect")),
    }
}

fn reason(error: &io::Error) -> String {
    let reason = error.to_string();
    reason.strip_prefix("failed to lookup address information: ").unwrap_or(&reason).to_owned()
}

fn failed(host: &str, reason: &str) -> Error {
    Error::new(Status::Unreachable, format!("cannot resolve host {host:?}: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(20);

    fn resolve_with(
        host: &str,
        timeout: Duration,
        lookup: impl FnOnce(&str) -> Answer + Send + 'static,
    ) -> Result<Vec<SocketAddr>> {
        let found = Lookup::start_with(host, || (), lookup).wait(timeout, Ok)?;
        Ok(found.into_iter().map(|address| with_port(address, 80)).collect())
    }

    fn no_lookup(host: &str) -> Result<Vec<SocketAddr>> {
        resolve_with(host, TIMEOUT, |_| panic!("a literal address needs no lookup"))
    }

    #[test]
    fn literal_addresses_need_no_lookup() {
        let one = |text: &str| vec![text.parse::<SocketAddr>().unwrap()];
        assert_eq!(no_lookup("127.0.0.1").unwrap(), one("127.0.0.1:80"));
        assert_eq!(no_lookup("::1").unwrap(), one("[::1]:80"));
        assert_eq!(no_lookup("[::1]").unwrap(), one("[::1]:80"));
        assert_eq!(no_lookup("::ffff:127.0.0.1").unwrap(), one("127.0.0.1:80"));
        assert_eq!(no_lookup("fe80::1%7").unwrap(), one("[fe80::1%7]:80"));
        assert_eq!(no_lookup("[fe80::1%lo]").unwrap(), one("[fe80::1%1]:80"));
        let error = no_lookup("fe80::1%nosuch0").unwrap_err();
        assert_eq!(error.status(), Status::Unreachable);
        assert_eq!(error.message(), "cannot resolve host \"fe80::1%nosuch0\": this host has no interface \"nosuch0\"");
    }

    #[test]
    fn an_address_of_many_hosts_is_none_of_a_host() {
        for many in ["224.0.0.1", "255.255.255.255", "ff02::1", "::ffff:224.0.0.1"] {
            let error = no_lookup(many).unwrap_err();
            assert!(error.message().contains("multicast or broadcast"), "{error}");
        }
        let mixed = |_: &str| Ok(vec!["224.0.0.1:0".parse().unwrap(), "10.0.0.1:0".parse().unwrap()]);
        assert_eq!(resolve_with("mixed", TIMEOUT, mixed).unwrap(), ["10.0.0.1:80".parse().unwrap()]);
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
        assert_eq!(resolve_with("twice", TIMEOUT, two).unwrap(), ["10.0.0.1:80".parse().unwrap()]);
        let error = resolve_with("empty", TIMEOUT, |_| Ok(Vec::new())).unwrap_err();
        assert_eq!(error.message(), "cannot resolve host \"empty\": the name has no address");
    }

    #[test]
    fn a_lookup_that_takes_too_long_is_abandoned() {
        let (release, wait) = mpsc::channel::<()>();
        let error = resolve_with("slow", Duration::from_millis(20), move |_| {
            let _ = wait.recv();
            Ok(Vec::new())
        });
        let error = error.unwrap_err();
        assert_eq!(error.message(), "cannot resolve host \"slow\": no answer from the name service within 0.1 s");
        drop(release);
    }

    #[test]
    fn an_answer_is_announced_and_told_once() {
        let (release, wait) = mpsc::channel::<()>();
        let (done, is_done) = mpsc::channel();
        let announce = move || done.send(()).expect("the test waits for it");
        let mut lookup = Lookup::start_with("late", announce, move |_| {
            wait.recv().expect("the test lets it go on");
            Ok(vec!["10.0.0.1:0".parse().unwrap()])
        });
        assert!(lookup.answer().is_none(), "nobody has answered");
        release.send(()).unwrap();
        is_done.recv_timeout(TIMEOUT).unwrap();
        assert_eq!(lookup.answer().unwrap().unwrap(), ["10.0.0.1:0".parse().unwrap()]);
        assert!(lookup.answer().is_none(), "it was told");
    }
}
