use super::*;
use crate::net::testfork::ForkedChild;
use crate::net::testlink::tcp_pair;
use crate::net::{Listener, Poller, Token, Transport, Waker};
use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::IntoRawFd;

fn is_open(fd: RawFd) -> bool {
    // SAFETY: takes integers.
    unsafe { libc::fcntl(fd, libc::F_GETFD) != -1 }
}

/// Runs `body` in a forked child and returns the exit code that it gives.
fn in_child(body: impl FnOnce() -> i32) -> i32 {
    ForkedChild::start(body).exit_code()
}

/// The descriptors in the table.
fn table() -> BTreeSet<RawFd> {
    let table = lock();
    let entered = |fd: &RawFd| {
        let (word, bit) = Table::place(*fd);
        table.words[word] & bit != 0
    };
    (0..table.words.len() as RawFd * 64).filter(entered).collect()
}

/// The descriptors that this process has, but for the one that lists them.
fn open_ones() -> BTreeSet<RawFd> {
    let names = std::fs::read_dir("/proc/self/fd").unwrap();
    let listed: Vec<RawFd> = names.map(|name| name.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect();
    listed.into_iter().filter(|fd| is_open(*fd)).collect()
}

#[test]
fn a_child_holds_none_of_our_descriptors_and_the_parent_keeps_them() {
    let poller = Poller::new().unwrap();
    let waker = Waker::new().unwrap();
    let listener = Listener::bind(&["127.0.0.1:0".parse().unwrap(), "[::1]:0".parse().unwrap()]).unwrap();
    let (mut dialled, accepted) = tcp_pair();
    dialled.register(poller.registry(), Token(0)).unwrap();
    waker.register(poller.registry(), Token(1)).unwrap();
    let made = generation();
    let code = in_child(move || {
        // Ours are closed by now. Numbers taken by others meanwhile must survive the end of inherited objects.
        if open_descriptors() != 0 || generation() != made + 1 {
            return 1;
        }
        // SAFETY: takes a constant string and an integer.
        let first = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY) };
        let mut last = first;
        for _ in 0..64 {
            // SAFETY: takes integers.
            last = unsafe { libc::dup(first) };
        }
        waker.wake();
        let drained = waker.drain();
        drop((poller, waker, listener, dialled, accepted));
        if drained {
            return 2;
        }
        if (first..=last).all(is_open) {
            0
        } else {
            3
        }
    });
    assert_eq!(code, 0);
    assert_eq!(generation(), made);
}

#[test]
fn the_parents_objects_work_on_after_a_fork_and_their_end_reaches_the_peer() {
    let (mut a, mut b) = tcp_pair();
    let child = ForkedChild::start(|| loop {
        // SAFETY: takes nothing.
        unsafe { libc::pause() };
    });
    a.write(&[std::io::IoSlice::new(b"x")]).unwrap();
    drop(a);
    // The child still lives, yet the connection ends.
    let mut poller = Poller::new().unwrap();
    b.register(poller.registry(), Token(0)).unwrap();
    let mut room = [0; 8];
    let mut total = 0;
    loop {
        match b.read(&mut [std::io::IoSliceMut::new(&mut room)]) {
            Ok(0) => break,
            Ok(count) => total += count,
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                poller.poll(Some(std::time::Duration::from_secs(20))).unwrap();
                assert!(poller.ready().count() > 0, "the child hides the end of the connection");
            }
        }
    }
    assert_eq!(total, 1);
    drop(child);
}

#[test]
fn every_descriptor_closes_on_exec_and_is_in_the_table() {
    // This runs in a child: its table begins empty, and no other test runs there.
    let code = in_child(|| {
        let before = open_ones();
        let poller = Poller::new().unwrap();
        let waker = Waker::new().unwrap();
        let two = ["127.0.0.1:0".parse().unwrap(), "127.0.0.2:0".parse().unwrap()];
        let listener = Listener::bind(&two).unwrap();
        let pair = tcp_pair();
        let made: BTreeSet<RawFd> = open_ones().difference(&before).copied().collect();
        assert_eq!(made.len(), 1 + 1 + 2 + 2);
        assert_eq!(made, table());
        for fd in made {
            // SAFETY: takes integers.
            let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
            assert_eq!(flags, libc::FD_CLOEXEC, "descriptor {fd} stays open on exec");
        }
        drop((poller, waker, listener, pair));
        assert_eq!(table(), BTreeSet::new());
        assert_eq!(open_ones(), before);
        0
    });
    assert_eq!(code, 0);
}

#[test]
fn a_released_descriptor_stays_open_in_a_child() {
    let file = Guarded::create(|| File::open("/dev/null")).unwrap();
    let kept = Guarded::create(|| File::open("/dev/null")).unwrap();
    let released = file.release();
    let (fd, kept_fd) = (released.as_raw_fd(), kept.as_raw_fd());
    assert_eq!(in_child(move || i32::from(is_open(fd)) + 2 * i32::from(is_open(kept_fd))), 1);
    assert!(is_open(kept_fd));
    drop(released);
}

#[test]
fn no_child_keeps_a_descriptor_however_the_forks_fall() {
    // One thread opens and closes without pause while this one forks.
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stopped = std::sync::Arc::clone(&stop);
    // By this file of the test's own, its descriptors are known in the child.
    let path = std::env::temp_dir().join(format!("muster-fork-test-{}", std::process::id()));
    let own = File::create(&path).unwrap();
    let inode = std::os::unix::fs::MetadataExt::ino(&own.metadata().unwrap());
    drop(own);
    let opened = path.clone();
    let thread = std::thread::spawn(move || {
        while !stopped.load(Ordering::Relaxed) {
            let first = Guarded::create(|| File::open(&opened)).unwrap();
            let second = Guarded::create(|| File::open(&opened)).unwrap();
            drop(first);
            drop(second);
        }
    });
    for _ in 0..100 {
        let code = in_child(|| {
            for fd in 0..256 {
                // SAFETY: an all-zero `stat` is a valid one for the kernel to fill in.
                let mut stat: libc::stat = unsafe { std::mem::zeroed() };
                // SAFETY: `stat` outlives the call.
                if unsafe { libc::fstat(fd, &raw mut stat) } == 0 && stat.st_ino == inode {
                    return 1;
                }
            }
            0
        });
        assert_eq!(code, 0);
    }
    stop.store(true, Ordering::Relaxed);
    thread.join().unwrap();
    std::fs::remove_file(path).unwrap();
}

#[test]
fn wrapping_keeps_the_descriptor() {
    let file = Guarded::create(|| File::open("/dev/null")).unwrap();
    let fd = file.as_raw_fd();
    let wrapped = file.map(std::os::fd::OwnedFd::from);
    assert_eq!(wrapped.as_raw_fd(), fd);
    assert!(!wrapped.is_inherited());
    let raw = wrapped.release().into_raw_fd();
    // SAFETY: closes what `into_raw_fd` has just given up.
    unsafe { libc::close(raw) };
}
