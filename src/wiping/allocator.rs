//! The system's allocator, which overwrites what a thread frees while it handles secrets, and takes what it keeps of them from a heap of
//! its own. Elsewhere it costs a look at a number.

use super::hidden;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use zeroize::Zeroize;

#[global_allocator]
static ALLOCATOR: Wiping = Wiping;

thread_local! {
    /// How many scopes of each kind this thread is in. They have no destructor, so that they can be asked to the thread's very end.
    static SCOPES: [Cell<u32>; 2] = const { [const { Cell::new(0) }; 2] };
}

/// What a scope is for.
#[derive(Clone, Copy)]
pub enum Kind {
    /// What is freed within it is wiped.
    Wiping,
    /// What is allocated within it lies in the hidden heap.
    Keeping,
}

/// As long as it lives this thread does so.
pub struct Scope(Kind);

impl Scope {
    pub fn begin(kind: Kind) -> Scope {
        SCOPES.with(|scopes| scopes[kind as usize].update(|number| number + 1));
        Scope(kind)
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        SCOPES.with(|scopes| scopes[self.0 as usize].update(|number| number - 1));
    }
}

/// How many of this kind this thread is in.
#[inline]
pub fn scopes(kind: Kind) -> u32 {
    SCOPES.with(|scopes| scopes[kind as usize].get())
}

struct Wiping;

impl Wiping {
    /// Room in the hidden heap, where this thread keeps secrets.
    #[inline]
    fn hidden(layout: Layout) -> Option<NonNull<u8>> {
        if scopes(Kind::Keeping) == 0 {
            return None;
        }
        hidden::take(layout)
    }
}

// SAFETY: the system's allocator does nearly all of it; the hidden heap has what it has given away. What is overwritten is about to be
// freed, and is as long as its layout says.
unsafe impl GlobalAlloc for Wiping {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match Wiping::hidden(layout) {
            Some(at) => at.as_ptr(),
            // SAFETY: the caller keeps the contract.
            None => unsafe { System.alloc(layout) },
        }
    }

    // SAFETY: the contract of the trait is the caller's to keep.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match Wiping::hidden(layout) {
            Some(at) => at.as_ptr(), // what is not taken there is zero
            // SAFETY: the caller keeps the contract.
            None => unsafe { System.alloc_zeroed(layout) },
        }
    }

    // SAFETY: the contract of the trait is the caller's to keep.
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        if hidden::holds(at) {
            // SAFETY: it came from there, with this layout.
            return unsafe { hidden::give_back(at, layout.size()) };
        }
        if scopes(Kind::Wiping) > 0 {
            // SAFETY: the block is the caller's until it is freed below.
            unsafe { wipe(at, layout.size()) };
        }
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(at, layout) }
    }

    // SAFETY: the contract of the trait is the caller's to keep.
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if scopes(Kind::Wiping) + scopes(Kind::Keeping) == 0 && !hidden::holds(at) {
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
