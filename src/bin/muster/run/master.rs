//! Finds out whether this host has the scheduler's address. If so, its listener is bound before anything is started.

use super::parse::{RunOptions, SchedulerAt};
use crate::sys;
use crate::voice::Voice;
use muster::config::{Key, Value};
use muster::net::{interface, resolve};
use socket2::{Domain, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

/// How long a host name may take to be resolved.
pub const RESOLVE_WAIT: Duration = Duration::from_secs(30);
/// How long it may take if the launcher can do without.
const LOOK_ONCE: Duration = Duration::from_secs(2);
/// How long one waits before looking up a name again that is not known yet.
const LOOK_UP_AGAIN: Duration = Duration::from_secs(1);

/// Checks that the scheduler's address is not that of a host whose launcher leaves the scheduler to another one: there
/// nobody would answer. That launcher starts the scheduler before this one begins. So if both are on one host, the
/// address is in use. What a shell shows may be over there by now, and a name may become known later.
pub fn check_place(options: &RunOptions) -> Result<(), String> {
    if options.placement.scheduler != SchedulerAt::Remote || options.dry_run.is_some() {
        return Ok(());
    }
    let name = &options.master_addr;
    let found = resolve::resolve(name, options.master_port, LOOK_ONCE).unwrap_or_default();
    match found.iter().any(|address| !address.ip().to_canonical().is_loopback() && is_unused_here(*address)) {
        false => Ok(()),
        true => Err(format!(
            "--master_addr (if it is not given, the first host's name) is {name:?}, an address of this host, but the \
             scheduler runs on the first host of the list: put this host first, or give an address of the first host"
        )),
    }
}

/// Whether this is an address of this host, and nobody listens there.
fn is_unused_here(address: SocketAddr) -> bool {
    interface::is_local(address) && TcpListener::bind(address).is_ok()
}

/// Checks that a launcher that starts all workers has no place behind others, if the scheduler is not here.
pub fn check_node_rank(options: &RunOptions) -> Result<(), String> {
    let RunOptions { worker_num, master_addr, placement, .. } = options;
    let first_rank = placement.first_rank.filter(|rank| *rank > 0 && options.all_here());
    first_rank.map_or(Ok(()), |first_rank| {
        Err(format!(
            "--node_rank is {}, but all {worker_num} workers are on this host, and --master_addr, {master_addr:?}, is not an \
             address of it: give the number of workers on each host by --local_worker_num",
            first_rank / worker_num
        ))
    })
}

/// The scheduler's listener, if the scheduler is to be here: on the host that has the master's address. The environment may say
/// what the scheduler binds in place of that address. Then others may reach this host by an address that it does not have, so
/// the first host has the scheduler, where it is known which one that is.
pub fn listener(options: &RunOptions, bind: Option<Value>, voice: &Voice) -> Result<Option<TcpListener>, String> {
    match bind {
        _ if options.placement.scheduler == SchedulerAt::Remote => Ok(None),
        Some(Value::Addresses(addresses)) => {
            let is_here = match options.placement.first_rank {
                _ if options.all_here() => true,
                Some(first) => first == 0,
                None => look_up(options, voice)?.into_iter().any(interface::is_local),
            };
            is_here.then(|| bound(&addresses, options.master_port)).transpose()
        }
        _ => match (listen(&look_up(options, voice)?, options.all_here())?, options.placement.scheduler) {
            // The scheduler belongs here, by whatever address others reach this host.
            (None, SchedulerAt::Here) => everywhere(options.master_port).map(Some),
            (found, _) => Ok(found),
        },
    }
}

/// If this host resolves its own name to its loopback, and workers of other hosts are to come: the address by which
/// they find this host is bound, and told in place of the name.
pub fn leave_loopback(options: &mut RunOptions) {
    let name = &options.master_addr;
    if resolve::asks_nobody(name) || options.all_here() || options.placement.scheduler == SchedulerAt::Remote {
        return;
    }
    let found = resolve::resolve(name, options.master_port, RESOLVE_WAIT).unwrap_or_default();
    let beyond = interface::beyond_loopback(name, found.clone());
    if let Some(first) = beyond.first().filter(|_| beyond != found) {
        options.master_addr = first.ip().to_string();
    }
}

/// The master's addresses. If another host may have it, its name may become known only after this launcher starts.
fn look_up(options: &RunOptions, voice: &Voice) -> Result<Vec<SocketAddr>, String> {
    let (began, mut is_told) = (Instant::now(), false);
    // A negative time is no limit.
    let is_over = || u64::try_from(options.cluster_time_out).is_ok_and(|limit| began.elapsed().as_secs() >= limit);
    loop {
        let error = match resolve::resolve(&options.master_addr, options.master_port, RESOLVE_WAIT) {
            Ok(addresses) => return Ok(addresses),
            Err(error) => format!("--master_addr: {error}"),
        };
        if options.all_here() || is_over() {
            return Err(error);
        }
        if !std::mem::replace(&mut is_told, true) {
            voice.say(format!("muster: {error}; it is looked up again until the forming time is over\n"));
        }
        thread::sleep(LOOK_UP_AGAIN); // nothing is started yet, and a signal ends it
    }
}

/// One listener on what the scheduler is to bind: one address, or every address.
fn bound(addresses: &[IpAddr], port: u16) -> Result<TcpListener, String> {
    let setting = Key::SchedBind.setting().variable();
    let every = addresses.iter().all(IpAddr::is_unspecified);
    if addresses.len() > 1 && !every {
        return Err(format!(
            "{setting} has {} addresses, and muster run binds one: expected one, or *",
            addresses.len()
        ));
    }
    // A socket of IPv6 accepts connections of both families. A host may have no IPv6.
    let last = *addresses.last().unwrap_or(&Ipv4Addr::UNSPECIFIED.into());
    let listener = bind_both(interface::scoped(last, port)).or_else(|error| match every && last.is_ipv6() {
        true => TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)),
        false => Err(error),
    });
    let listener = listener.and_then(|listener| sys::widen_backlog(&listener).map(|()| listener));
    listener.map_err(|error| format!("{setting}: {}", cannot_bind(&SocketAddr::new(last, port), &error, true)))
}

/// One listener on every address of IPv4, though nobody has asked for that.
fn everywhere(port: u16) -> Result<TcpListener, String> {
    let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    let listener = bind_both(address).and_then(|listener| sys::widen_backlog(&listener).map(|()| listener));
    listener.map_err(|error| cannot_bind(&address, &error, true))
}

/// A listener on this address. The unspecified address of IPv6 accepts connections of both families, whatever the
/// system's default is.
fn bind_both(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() && address.ip().is_unspecified() {
        socket.set_only_v6(false)?;
    }
    socket.bind(&address.into())?;
    socket.listen(libc::SOMAXCONN)?;
    Ok(socket.into())
}

/// The listener on the first of the master's addresses that is one of this host's; none if none is. The error is a
/// sentence for the user, whose job may have other launchers, too.
fn listen(addresses: &[SocketAddr], all_here: bool) -> Result<Option<TcpListener>, String> {
    let mut refused = None;
    for address in addresses.iter().filter(|address| interface::is_local(**address)) {
        // The standard library sets SO_REUSEADDR and not SO_REUSEPORT, and close-on-exec.
        match TcpListener::bind(address).and_then(|listener| sys::widen_backlog(&listener).map(|()| listener)) {
            Ok(listener) => return Ok(Some(listener)),
            // The address has just gone from this host: another address of the name may do.
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
        io::ErrorKind::AddrNotAvailable => "; give an address of this host (MUSTER_SCHED_BIND)",
        _ => "",
    };
    let hosts = match error.kind() {
        io::ErrorKind::AddrInUse if !all_here => {
            ". If another launcher of this job has it: run the launchers of one job on different hosts, one on each"
        }
        _ => "",
    };
    format!("can't bind the scheduler's address {address}: {error}{advice}{hosts}")
}

#[cfg(test)]
mod tests {
    use super::super::parse::{parse, Placement};
    use super::*;
    use crate::cli::words::Asked;

    fn listen_at(host: &str, port: u16, all_here: bool) -> Result<Option<TcpListener>, String> {
        listen(&resolve::resolve(host, port, RESOLVE_WAIT).unwrap(), all_here)
    }

    #[test]
    fn an_address_of_this_host_is_bound_and_another_is_not() {
        let listener = listen_at("127.0.0.1", 0, true).unwrap().expect("loopback is here");
        assert_ne!(listener.local_addr().unwrap().port(), 0);
        assert!(listen_at("localhost", 0, true).unwrap().is_some());
        assert!(listen_at("192.0.2.1", 0, true).unwrap().is_none(), "an address for documentation is nobody's");
    }

    #[test]
    fn an_address_is_unused_if_it_is_here_and_nobody_listens_there() {
        let listener = listen_at("127.0.0.1", 0, true).unwrap().unwrap();
        let address = listener.local_addr().unwrap();
        assert!(!is_unused_here(address), "the launcher with the scheduler is on this host, too");
        drop(listener);
        assert!(is_unused_here(address));
        let every = everywhere(0).unwrap();
        let port = every.local_addr().unwrap().port();
        let error = everywhere(port).unwrap_err();
        let expected = format!("can't bind the scheduler's address 0.0.0.0:{port}: ");
        assert!(error.starts_with(&expected) && error.contains("--master_port"), "{error}");
        assert!(!is_unused_here((Ipv4Addr::LOCALHOST, port).into()), "it listens at every address");
        assert!(!is_unused_here("192.0.2.1:0".parse().unwrap()), "an address for documentation is nobody's");
    }

    fn options(line: &str, scheduler: SchedulerAt) -> RunOptions {
        let words = line.split_whitespace().map(std::ffi::OsString::from).collect();
        let placement = Placement { scheduler, ..Placement::default() };
        match parse(words, placement, false) {
            Ok(Asked::With(options)) => options,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn a_loopback_address_and_a_name_that_is_not_known_pass() {
        for address in ["127.0.0.1", "localhost", "no-such-name.invalid"] {
            let line = format!("--worker_num=4 --local_worker_num=2 --master_addr={address} a.out");
            assert_eq!(check_place(&options(&line, SchedulerAt::Remote)), Ok(()), "{address}");
        }
    }

    #[test]
    fn one_that_starts_all_workers_and_is_not_the_first_is_refused() {
        let of = |words: &str| check_node_rank(&options(&format!("{words} a.out"), SchedulerAt::Address));
        let error = of("--worker_num=4 --master_addr=192.0.2.1 --node_rank=1").unwrap_err();
        assert!(error.starts_with("--node_rank is 1, but all 4 workers are on this host"), "{error}");
        assert!(error.contains("--master_addr, \"192.0.2.1\", is not an address of it"), "{error}");
        for words in ["--worker_num=4", "--worker_num=4 --node_rank=0"] {
            assert_eq!(of(words), Ok(()), "{words}");
        }
        assert_eq!(of("--worker_num=4 --local_worker_num=2 --node_rank=1"), Ok(()));
    }

    #[test]
    fn what_the_scheduler_binds_is_one_address_or_every_one() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(bound(&[ip("127.0.0.3")], 0).unwrap().local_addr().unwrap().ip(), ip("127.0.0.3"));
        assert!(bound(&[ip("0.0.0.0"), ip("::")], 0).unwrap().local_addr().unwrap().ip().is_unspecified());
        let error = bound(&[ip("127.0.0.3"), ip("127.0.0.4")], 0).unwrap_err();
        assert!(error.contains("MUSTER_SCHED_BIND has 2 addresses"), "{error}");
        let error = bound(&[ip("192.0.2.1")], 0).unwrap_err();
        assert!(error.starts_with("MUSTER_SCHED_BIND: can't bind the scheduler's address 192.0.2.1:0"), "{error}");
    }

    #[test]
    fn a_port_in_use_is_an_error_that_names_it() {
        let listener = listen_at("127.0.0.1", 0, true).unwrap().unwrap();
        let address = listener.local_addr().unwrap();
        for all_here in [true, false] {
            let error = listen_at("127.0.0.1", address.port(), all_here).unwrap_err();
            assert!(error.contains(&address.to_string()) && error.contains("--master_port"), "{error}");
            assert_eq!(error.contains("run the launchers of one job on different hosts"), !all_here, "{error}");
        }
    }
}
