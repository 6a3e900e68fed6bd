use super::*;
use crate::net::Waker;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::Arc;

static SIGNALS: AtomicU32 = AtomicU32::new(0);

extern "C" fn count_signal(_: libc::c_int) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
}

/// Sends this thread a signal whose handler does not restart calls, again and again, until dropped.
struct Bombardment {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Bombardment {
    fn start() -> Bombardment {
        // SAFETY: an all-zero `sigaction` is a valid one: no flags (so no SA_RESTART), an empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = count_signal as *const () as usize;
        // SAFETY: the handler only counts, in an atomic.
        assert_eq!(unsafe { libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut()) }, 0);
        // SAFETY: takes nothing.
        let target = unsafe { libc::pthread_self() };
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                // SAFETY: the target thread joins this one before it ends.
                unsafe { libc::pthread_kill(target, libc::SIGUSR2) };
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        Bombardment { stop, thread: Some(thread) }
    }
}

impl Drop for Bombardment {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

#[test]
fn signals_neither_end_nor_prolong_a_wait() {
    let mut poller = Poller::new().unwrap();
    let waker = Waker::new().unwrap();
    waker.register(poller.registry(), Token(0)).unwrap();
    let _bombardment = Bombardment::start();
    let before = SIGNALS.load(Ordering::Relaxed);
    let start = Instant::now();
    poller.poll(Some(Duration::from_millis(200))).unwrap();
    assert_eq!(poller.ready().count(), 0);
    assert!(start.elapsed() >= Duration::from_millis(200));
    assert!(start.elapsed() < Duration::from_secs(20));
    assert!(SIGNALS.load(Ordering::Relaxed) > before, "no signal came");
    // The same holds without a limit.
    let other = waker.clone();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50)); // the poll below has mostly begun; it ends by the wake-up either way
        other.wake();
    });
    poller.poll(None).unwrap();
    assert_eq!(poller.ready().count(), 1);
    thread.join().unwrap();
}

#[test]
fn zero_only_looks_and_huge_times_are_no_overflow() {
    let mut poller = Poller::new().unwrap();
    let waker = Waker::new().unwrap();
    waker.register(poller.registry(), Token(9)).unwrap();
    poller.poll(Some(Duration::ZERO)).unwrap();
    assert_eq!(poller.ready().count(), 0);
    waker.wake();
    poller.poll(Some(Duration::MAX)).unwrap();
    assert_eq!(poller.ready().next().unwrap().token, Token(9));
}
