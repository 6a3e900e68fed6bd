//! The locks of what several threads of a caller wait for, so that a model checker can take their place.
//!
//! In tests that are built with `--cfg loom` these are loom's, and the models in `loom_test.rs` try every order in which threads
//! can run.

#[cfg(not(all(test, loom)))]
pub(crate) use crate::net::Waker as Bell;
#[cfg(not(all(test, loom)))]
pub(crate) use std::sync::{
    atomic::{fence, AtomicBool, AtomicU64, Ordering},
    Arc, Condvar, Mutex, MutexGuard,
};
#[cfg(not(all(test, loom)))]
pub(crate) use std::time::Instant;

#[cfg(all(test, loom))]
pub(crate) use super::loom_stand_in_test::{Bell, Condvar, Instant, Mutex, MutexGuard};
#[cfg(all(test, loom))]
pub(crate) use loom::sync::{
    atomic::{fence, AtomicBool, AtomicU64, Ordering},
    Arc,
};

use std::sync::PoisonError;
use std::time::Duration;

/// Locks a mutex. What a panicking thread left behind is used as it is.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits to be notified, at most so long; `None`: without limit. May return early.
pub(crate) fn wait<'a, T>(changed: &Condvar, guard: MutexGuard<'a, T>, limit: Option<Duration>) -> MutexGuard<'a, T> {
    match limit {
        None => changed.wait(guard).unwrap_or_else(PoisonError::into_inner),
        Some(limit) => changed.wait_timeout(guard, limit).unwrap_or_else(PoisonError::into_inner).0,
    }
}
