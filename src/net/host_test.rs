use super::*;
use crate::net::testfork::ForkedChild;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_secs(20);

#[test]
fn this_host_and_process_are_known() {
    assert!(!name().unwrap().is_empty());
    assert_eq!(boot_id().len(), 36);
    assert_ne!(pid_namespace(), 0);
    assert_ne!(own_start_ticks(), 0);
    assert_eq!(alive(std::process::id(), own_start_ticks()), Liveness::Alive);
    assert_eq!(alive(std::process::id(), 0), Liveness::Alive);
    assert_eq!(alive(std::process::id(), own_start_ticks() + 1), Liveness::Gone);
    assert_eq!(alive(0, 0), Liveness::Unknown);
    assert_eq!(alive(u32::MAX, 0), Liveness::Gone);
}

#[test]
fn a_killed_child_is_gone_before_and_after_it_is_reaped() {
    let mut child = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
    let pid = child.id();
    let start = start_ticks(pid);
    assert_eq!(alive(pid, start), Liveness::Alive);
    child.kill().unwrap();
    // Waits until the child has ended, and leaves it unreaped.
    // SAFETY: an all-zero `siginfo_t` is a valid one for the kernel to fill in.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: `info` outlives the call.
    let result = unsafe { libc::waitid(libc::P_PID, pid, &raw mut info, libc::WEXITED | libc::WNOWAIT) };
    assert_eq!(result, 0);
    assert_eq!(alive(pid, start), Liveness::Gone);
    assert_eq!(alive(pid, 0), Liveness::Gone);
    child.wait().unwrap();
    assert_eq!(alive(pid, start), Liveness::Gone);
}

#[test]
fn a_stopped_child_is_alive() {
    let mut child = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
    let pid = child.id();
    // SAFETY: takes two integers; the child is not reaped yet, so that the number is its.
    assert_eq!(unsafe { libc::kill(pid as libc::pid_t, libc::SIGSTOP) }, 0);
    assert_eq!(alive(pid, start_ticks(pid)), Liveness::Alive);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_process_is_gone_as_soon_as_its_death_ends_its_connection() {
    for round in 0..100 {
        let (mut here, there) = UnixStream::pair().unwrap();
        here.set_read_timeout(Some(DEADLINE)).unwrap();
        let child = ForkedChild::start(|| loop {
            // SAFETY: takes nothing.
            unsafe { libc::pause() };
        });
        drop(there);
        let start = start_ticks(child.pid());
        assert_eq!(alive(child.pid(), start), Liveness::Alive);
        child.kill();
        assert_eq!(here.read(&mut [0]).unwrap(), 0);
        assert_eq!(alive(child.pid(), start), Liveness::Gone, "round {round}");
    }
}

#[test]
fn a_process_may_outlive_its_first_thread() {
    let (here, mut there) = UnixStream::pair().unwrap();
    let other = here.try_clone().unwrap();
    let child = ForkedChild::start(move || {
        drop(here);
        std::thread::spawn(move || {
            // This lasts until the parent closes its end.
            let _ = there.read(&mut [0]);
            0
        });
        // SAFETY: ends this thread alone.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
        1
    });
    let start = start_ticks(child.pid());
    let since = Instant::now();
    loop {
        match process_state(child.pid()) {
            Probe::Found(stat) if stat.state == b'Z' => break,
            _ => assert!(since.elapsed() < DEADLINE, "the first thread does not end"),
        }
        std::thread::yield_now();
    }
    assert_eq!(alive(child.pid(), start), Liveness::Alive);
    drop(other);
    child.kill();
    let pid = child.pid();
    drop(child);
    assert_eq!(alive(pid, start), Liveness::Gone);
}

#[test]
fn a_program_name_may_hold_parentheses_and_spaces() {
    let rest = "S 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 4711 23 24 25 26 27 28 29 30 31 32 33";
    let stat = Some(Stat { state: b'S', parent: 4, flags: 9, threads: 20, start_ticks: 4711, pending: 31 });
    assert_eq!(Stat::parse(format!("12 (a) Z (b c)) {rest}").as_bytes()), stat);
    assert_eq!(Stat::parse(format!("12 (\u{fffd}) {rest}").as_bytes()), stat);
    assert_eq!(Stat::parse(b"12 (a) S 1 2"), None);
    assert_eq!(Stat::parse(b""), None);
}

#[test]
fn a_thread_that_has_been_killed_and_waits_for_a_disk_is_ending() {
    let stat = |state, pending| Stat { state, parent: 1, flags: 0, threads: 1, start_ticks: 1, pending };
    assert!(stat(b'D', 1 << 8).is_ending());
    assert!(!stat(b'D', 0).is_ending() && !stat(b'D', 1 << 14).is_ending(), "another signal may be ignored");
}

#[test]
fn ancestors_are_told_from_the_nearest_on() {
    let own = fs::read("/proc/self/stat").unwrap();
    let parent = Stat::parse(&own).unwrap().parent;
    assert_eq!(parent, std::os::unix::process::parent_id());
    let found = ancestors();
    assert_eq!(found[0], fs::read(format!("/proc/{parent}/cmdline")).unwrap());
    assert!(found.len() <= ANCESTORS_MAX);
}

#[test]
fn random_bytes_differ() {
    assert_ne!(random_bytes::<16>().unwrap(), random_bytes::<16>().unwrap());
    assert_ne!(random_bytes::<1024>().unwrap()[1000..], [0; 24]);
    assert_eq!(random_bytes::<0>().unwrap(), [0u8; 0]);
}

#[test]
fn it_may_run_on_as_many_processors_as_the_standard_library_counts_at_most() {
    let counted = std::thread::available_parallelism().unwrap().get() as u32;
    assert!(cores() >= counted, "that heeds limits on time, too"); // fewer only where a cgroup grants less time
}
