//! The floating-point environment in which the kernels compute: the one that every process begins with.
//!
//! A caller may have its own in its thread: subnormals taken for zero (as `-ffast-math` links in), another direction of
//! rounding, exceptions that are signals. A result must not depend on it, or ranks that differ in it would differ in their
//! results. So each kernel that computes floats enters the usual environment, and leaves it for the caller's; a user's
//! function is called in the usual one, too. On processors other than these two they take the caller's. Tested in
//! `exact_test.rs`, and in C by `ctests/exact.c`.

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use std::arch::asm;

/// The caller's environment, to go back to; none if it is the usual one.
pub(super) struct Usual {
    callers: Option<Control>,
}

#[cfg(not(target_arch = "aarch64"))]
type Control = u32;
#[cfg(target_arch = "aarch64")]
type Control = u64;

/// The usual settings: every exception masked, rounding to the nearest, subnormals as they are.
#[cfg(target_arch = "x86_64")]
const USUAL: Control = 0x1f80;
#[cfg(not(target_arch = "x86_64"))]
const USUAL: Control = 0;

/// The bits that are no setting, but a note of what has happened: they may be anything.
#[cfg(target_arch = "x86_64")]
const NOTES: Control = 0x3f;
#[cfg(not(target_arch = "x86_64"))]
const NOTES: Control = 0;

impl Usual {
    /// Enters the usual environment, until this is dropped.
    #[inline(always)]
    pub fn enter() -> Usual {
        let callers = read();
        if callers & !NOTES == USUAL {
            return Usual { callers: None };
        }
        write(USUAL);
        Usual { callers: Some(callers) }
    }
}

impl Drop for Usual {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(callers) = self.callers {
            write(callers);
        }
    }
}

// That these may touch memory, as far as the compiler knows, keeps the kernels' loads and stores between them.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) fn read() -> Control {
    let mut control: Control = 0;
    // SAFETY: it writes four bytes to a number that has them.
    unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut control, options(nostack, preserves_flags)) };
    control
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) fn write(control: Control) {
    // SAFETY: it is the usual environment, which is what Rust takes for granted, or what the register held before.
    unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const control, options(nostack, preserves_flags)) };
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(super) fn read() -> Control {
    let control: Control;
    // SAFETY: it reads a register that every process may read.
    unsafe { asm!("mrs {}, fpcr", out(reg) control, options(nostack, preserves_flags)) };
    control
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(super) fn write(control: Control) {
    // SAFETY: it is the usual environment, which is what Rust takes for granted, or what the register held before.
    unsafe { asm!("msr fpcr, {}", in(reg) control, options(nostack, preserves_flags)) };
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) fn read() -> Control {
    USUAL
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) fn write(_control: Control) {}
