//! What must not stay in memory: passwords, and the bytes of private keys.
//!
//! | file | what it owns |
//! | --- | --- |
//! | `allocator` | memory that is freed within [`wiping`] is overwritten first |
//! | `hidden` | what is allocated within [`keeping`]: in no core dump, and overwritten when it is freed, wherever that is |
//!
//! Invariants: when [`wiping`] returns, what was allocated and freed within it is overwritten, and so is the stack that it used. That
//! holds for the code of others, too: decoders copy as they like, and a growing `Vec` leaves its former place behind.
//!
//! Deliberately absent: what is secret, and the memory of other threads. Tested in `wiping_test.rs`, and in a process that lives in
//! `tests/python/test_wiping.py`.

mod allocator;
mod hidden;

use allocator::{Kind, Scope};

/// How much of the stack is overwritten: reading and decrypting a file needs less than half (measured), and every thread that comes here has more.
const STACK_BYTES: usize = 64 << 10;

/// Runs what handles secrets, and leaves none behind but in what it returns.
pub fn wiping<T>(inside: impl FnOnce() -> T) -> T {
    wiping_stack::<STACK_BYTES, T>(inside)
}

/// The same for what is known to use no more of the stack than this: a start is slower by each page that is touched.
pub fn wiping_stack<const BYTES: usize, T>(inside: impl FnOnce() -> T) -> T {
    let result = within(inside);
    overwrite_stack::<BYTES>();
    result
}

/// Runs what makes something of a secret that is needed later.
pub fn keeping<T>(inside: impl FnOnce() -> T) -> T {
    let _scope = Scope::begin(Kind::Keeping);
    inside()
}

/// Its frame lies where [`overwrite_stack`] has its own.
#[inline(never)]
fn within<T>(inside: impl FnOnce() -> T) -> T {
    let _scope = Scope::begin(Kind::Wiping);
    inside()
}

#[inline(never)]
fn overwrite_stack<const BYTES: usize>() {
    // Written at once, and not a byte at a time; the line after it makes sure that it is.
    let mut stack = [0_u8; BYTES];
    std::hint::black_box(&mut stack);
}

#[cfg(test)]
#[path = "wiping_test.rs"]
mod tests;
