use super::*;
use crate::net::fork::{beyond_standard, Guarded};
use crate::net::testfork::ForkedChild;
use crate::net::testlink::tcp_pair;
use crate::net::{resolve, Listener, Poller, Transport, Waker};
use std::fs::File;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::time::Duration;

fn is_open(fd: RawFd) -> bool {
    // SAFETY: takes integers.
    unsafe { libc::fcntl(fd, libc::F_GETFD) != -1 }
}

fn all_closed() -> bool {
    !(0..STANDARD).any(is_open)
}

/// Runs `body` in a child without standard streams. 0 is a success.
fn without_streams(body: impl FnOnce() -> i32) -> i32 {
    let child = ForkedChild::start(|| {
        (0..STANDARD).for_each(close);
        body()
    });
    child.exit_code()
}

/// What `write` to this number fails with.
fn write_error(fd: RawFd) -> Option<i32> {
    // SAFETY: pointer and length are those of a constant.
    let written = unsafe { libc::write(fd, c"x".as_ptr().cast(), 1) };
    (written == -1).then(|| io::Error::last_os_error().raw_os_error()).flatten()
}

#[test]
fn nothing_of_ours_has_a_low_number_and_those_stay_closed() {
    let code = without_streams(|| {
        let poller = Poller::new().unwrap();
        let waker = Waker::new().unwrap();
        let listener = Listener::bind(&["127.0.0.1:0".parse().unwrap(), "127.0.0.2:0".parse().unwrap()]).unwrap();
        let (dialled, accepted) = tcp_pair();
        let file = Guarded::create(|| File::open("/dev/null")).unwrap();
        let numbers = [waker.descriptor(), dialled.descriptor(), accepted.descriptor(), file.as_raw_fd()];
        let are_high = numbers.iter().all(|fd| *fd >= STANDARD) && all_closed();
        drop((poller, waker, listener, dialled, accepted, file));
        i32::from(!are_high || !all_closed())
    });
    assert_eq!(code, 0);
}

#[test]
fn a_long_opening_takes_the_low_numbers_and_gives_them_back() {
    let code = without_streams(|| {
        let seen = beyond_standard(|| {
            let file = File::open("/dev/null").unwrap();
            let within = Guarded::create(|| File::open("/dev/null")).unwrap(); // its end is not the outer one's
            let refused = (0..STANDARD).all(|fd| write_error(fd) == Some(libc::EINVAL));
            file.as_raw_fd() >= STANDARD && within.as_raw_fd() >= STANDARD && refused
        });
        let looked_up = resolve::resolve("localhost", 1, Duration::from_secs(20)).is_ok();
        i32::from(!seen.unwrap()) + 2 * i32::from(!looked_up) + 4 * i32::from(!all_closed())
    });
    assert_eq!(code, 0);
}

#[test]
fn what_the_program_puts_there_meanwhile_stays() {
    let code = without_streams(|| {
        let null = File::open("/dev/null").unwrap(); // the program opens it, so it gets number 0
        let put = beyond_standard(|| {
            // SAFETY: takes integers.
            unsafe { libc::dup2(null.as_raw_fd(), 2) }
        });
        i32::from(null.as_raw_fd() != 0 || put.unwrap() != 2 || !is_open(0) || is_open(1) || !is_open(2))
    });
    assert_eq!(code, 0);
}

#[test]
fn a_child_that_is_forked_meanwhile_has_the_numbers_free() {
    let code = without_streams(|| {
        let code = beyond_standard(|| {
            let child = ForkedChild::start(|| {
                let made = Guarded::create(|| File::open("/dev/null")).unwrap();
                i32::from(!all_closed() || made.as_raw_fd() < STANDARD)
            });
            child.exit_code()
        });
        code.unwrap() + i32::from(!all_closed())
    });
    assert_eq!(code, 0);
}

#[test]
fn a_listener_that_was_given_to_us_low_is_moved() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let code = without_streams(|| {
        // SAFETY: takes integers.
        let low = unsafe { libc::dup2(listener.as_raw_fd(), 1) };
        let adopted = Listener::adopt(low).unwrap();
        let is_there = adopted.local_addresses() == [address] && all_closed();
        let moved = adopted.release().pop().unwrap().into_raw_fd();
        i32::from(!is_there || moved < STANDARD)
    });
    assert_eq!(code, 0);
}
