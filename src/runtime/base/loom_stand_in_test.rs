//! Stand-ins for locks, clock and waker in the models of `loom_test.rs`.
//!
//! loom has locks of its own, but its condition variable never times out, and it knows neither a clock nor a poller. So
//! here a wait with a limit always returns early, which it may, with the lock let go in between and with its time up:
//! each thread has a clock that moves only by such waits. A wait without limit ends by being notified only.

use crate::net::{Registry, Token};
use loom::sync as model;
use std::cell::Cell;
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};
use std::time::Duration;

/// A mutex whose guard knows it, so that a wait can take it anew.
#[derive(Debug, Default)]
pub struct Mutex<T>(model::Mutex<T>);

#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    of: &'a Mutex<T>,
    held: model::MutexGuard<'a, T>,
}

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Mutex<T> {
        Mutex(model::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        match self.0.lock() {
            Ok(held) => Ok(MutexGuard { of: self, held }),
            Err(left) => Err(PoisonError::new(MutexGuard { of: self, held: left.into_inner() })),
        }
    }

    pub(crate) fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        let held = self.0.try_lock().map_err(|_| TryLockError::WouldBlock)?;
        Ok(MutexGuard { of: self, held })
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.held
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.held
    }
}

/// A condition variable that times out.
#[derive(Debug, Default)]
pub struct Condvar(model::Condvar);

impl Condvar {
    pub(crate) fn new() -> Condvar {
        Condvar::default()
    }

    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        let MutexGuard { of, held } = guard;
        let held = self.0.wait(held).unwrap_or_else(PoisonError::into_inner);
        Ok(MutexGuard { of, held })
    }

    /// The time is up.
    pub(crate) fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        limit: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, ())> {
        let of = guard.of;
        drop(guard);
        CLOCK.with(|clock| clock.set(clock.get() + limit));
        let guard = of.lock().unwrap_or_else(PoisonError::into_inner);
        Ok((guard, ()))
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}

loom::thread_local! {
    static CLOCK: Cell<Duration> = Cell::new(Duration::ZERO);
}

/// The time of a thread's clock.
#[derive(Clone, Copy, Debug)]
pub struct Instant(Duration);

impl Instant {
    pub(crate) fn now() -> Instant {
        Instant(CLOCK.with(Cell::get))
    }

    pub(crate) fn elapsed(&self) -> Duration {
        Instant::now().saturating_duration_since(*self)
    }

    pub(crate) fn checked_add(&self, duration: Duration) -> Option<Instant> {
        self.0.checked_add(duration).map(Instant)
    }

    pub(crate) fn saturating_duration_since(&self, earlier: Instant) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// A waker with the poller that watches it: a counter, and the edge that the poller reports once.
#[derive(Clone, Debug)]
pub struct Bell(model::Arc<(model::Mutex<Rung>, model::Condvar)>);

#[derive(Debug, Default)]
struct Rung {
    count: u64,
    edge: bool,
}

impl Bell {
    pub(crate) fn new() -> crate::error::Result<Bell> {
        Ok(Bell(model::Arc::default()))
    }

    /// In a model the poller is [`Bell::sleep`].
    pub(crate) fn register(&self, _: &Registry, _: Token) -> io::Result<()> {
        Ok(())
    }

    pub(crate) fn descriptor(&self) -> std::os::fd::RawFd {
        -1
    }

    pub(crate) fn wake(&self) {
        let (rung, changed) = &*self.0;
        let mut rung = rung.lock().unwrap();
        rung.count += 1;
        rung.edge = true;
        changed.notify_all();
    }

    pub(crate) fn drain(&self) -> bool {
        let mut rung = self.0 .0.lock().unwrap();
        std::mem::take(&mut rung.count) > 0
    }

    /// Sleeps until there is an edge to report. If the wakes of an edge have been drained, it counts as none.
    pub(crate) fn sleep(&self) {
        let (rung, changed) = &*self.0;
        let mut rung = rung.lock().unwrap();
        while !(std::mem::take(&mut rung.edge) && rung.count > 0) {
            rung = changed.wait(rung).unwrap();
        }
    }
}
