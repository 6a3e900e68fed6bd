//! The system's allocator, which overwrites what a thread frees while it handles secrets. Elsewhere it costs a look at a number.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::mem::MaybeUninit;
use zeroize::Zeroize;

#[global_allocator]
static ALLOCATOR: Wiping = Wiping;

thread_local! {
    /// How many scopes this thread is in. It has no destructor, so that it can be asked to the thread's very end.
    static SCOPES: Cell<u32> = const { Cell::new(0) };
}

/// As long as it lives this thread wipes what it frees.
pub struct Scope(());

impl Scope {
    pub fn begin() -> Scope {
        SCOPES.set(SCOPES.get() + 1);
        Scope(())
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        SCOPES.set(SCOPES.get() - 1);
    }
}

/// How many this thread is in.
#[cfg(test)]
pub fn scopes() -> u32 {
    SCOPES.get()
}

struct Wiping;

// SAFETY: the system's allocator does all of it; what is overwritten is about to be freed, and is as long as its layout says.
unsafe impl GlobalAlloc for Wiping {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    // SAFETY: the contract of the trait is the caller's to keep.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    // SAFETY: the contract of the trait is the caller's to keep.
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        if SCOPES.get() > 0 {
            // SAFETY: the block is the caller's until it is freed below.
            unsafe { wipe(at, layout.size()) };
        }
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(at, layout) }
    }

    // SAFETY: the contract of the trait is the caller's to keep.
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if SCOPES.get() == 0 {
            // SAFETY: the caller keeps the contract.
            return unsafe { System.realloc(at, layout, size) };
        }
        // SAFETY: the caller vouches for the size.
        let moved = unsafe { self.alloc(Layout::from_size_align_unchecked(size, layout.align())) };
        if !moved.is_null() {
            // SAFETY: both blocks are at least so long, and they are two.
            unsafe { moved.copy_from_nonoverlapping(at, layout.size().min(size)) };
            // SAFETY: nobody uses the former place any more.
            unsafe { self.dealloc(at, layout) };
        }
        moved
    }
}

/// # Safety
/// So many bytes there belong to the caller.
unsafe fn wipe(at: *mut u8, length: usize) {
    // SAFETY: the caller vouches for it; nothing is read.
    unsafe { std::slice::from_raw_parts_mut(at.cast::<MaybeUninit<u8>>(), length) }.zeroize();
}
