//! A small heap for what is needed later: its pages are in no core dump, and what is freed there is overwritten.
//!
//! Invariants: what is not taken is zero. There is no lock, so that a forked child finds the heap as it was. What finds no room is
//! left to the system's allocator.

use std::alloc::Layout;
use std::mem::MaybeUninit;
use std::ptr::{null_mut, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use zeroize::Zeroize;

/// A block; what is taken are blocks in a row. The secret numbers of an RSA key of 4,096 bits take one or two each.
const BLOCK: usize = 256;
/// As many blocks as one number has bits. None is taken beyond the end of a row.
const ROW: usize = 64;
const ROWS: usize = 64;
const BYTES: usize = ROWS * ROW * BLOCK;

/// Where it is, once something has been taken.
static PLACE: AtomicPtr<u8> = AtomicPtr::new(null_mut());
/// Which blocks are taken, one bit each.
static TAKEN: [AtomicU64; ROWS] = [const { AtomicU64::new(0) }; ROWS];

/// So many blocks from this bit on.
fn mask(blocks: usize, from: usize) -> u64 {
    (u64::MAX >> (ROW - blocks)) << from
}

fn blocks(size: usize) -> usize {
    size.div_ceil(BLOCK).max(1)
}

/// Room for this, zeroed. `None` if there is none here.
pub fn take(layout: Layout) -> Option<NonNull<u8>> {
    let blocks = blocks(layout.size());
    if blocks > ROW || layout.align() > BLOCK {
        return None;
    }
    let place = place()?;
    let (row, bit) = TAKEN.iter().enumerate().find_map(|(row, taken)| Some((row, take_in(taken, blocks)?)))?;
    // SAFETY: the row and the bit are within the heap.
    Some(unsafe { place.add((row * ROW + bit) * BLOCK) })
}

/// Takes so many blocks of a row. Returns the first.
fn take_in(row: &AtomicU64, blocks: usize) -> Option<usize> {
    let free = |taken: u64| (0..=ROW - blocks).find(|from| taken & mask(blocks, *from) == 0);
    let mut first = None;
    let taken = row.fetch_update(Ordering::Acquire, Ordering::Relaxed, |taken| {
        first = free(taken);
        first.map(|from| taken | mask(blocks, from))
    });
    taken.ok().and(first)
}

/// Whether this lies here.
#[inline]
pub fn holds(at: *mut u8) -> bool {
    let place = PLACE.load(Ordering::Relaxed);
    !place.is_null() && (at as usize).wrapping_sub(place as usize) < BYTES
}

/// Overwrites it, and gives it back.
///
/// # Safety
/// It was taken here, with this size, and nobody uses it any more.
pub unsafe fn give_back(at: *mut u8, size: usize) {
    let nth = (at as usize - PLACE.load(Ordering::Relaxed) as usize) / BLOCK;
    // SAFETY: all of these blocks are the caller's; nothing is read.
    unsafe { std::slice::from_raw_parts_mut(at.cast::<MaybeUninit<u8>>(), blocks(size) * BLOCK) }.zeroize();
    TAKEN[nth / ROW].fetch_and(!mask(blocks(size), nth % ROW), Ordering::Release);
}

/// Where it is; it is mapped when it is first needed, and stays.
fn place() -> Option<NonNull<u8>> {
    let place = PLACE.load(Ordering::Acquire);
    if !place.is_null() {
        return NonNull::new(place);
    }
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: asks for new memory at any place.
    let mapped = unsafe { libc::mmap(null_mut(), BYTES, access, kind, -1, 0) };
    if mapped == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the pages are ours. Where the kernel knows no such advice they are as other memory.
    let _ = unsafe { libc::madvise(mapped, BYTES, libc::MADV_DONTDUMP) };
    let first = PLACE.compare_exchange(null_mut(), mapped.cast(), Ordering::AcqRel, Ordering::Acquire);
    if let Err(place) = first {
        // SAFETY: another thread was sooner, and nobody knows of these pages.
        let _ = unsafe { libc::munmap(mapped, BYTES) };
        return NonNull::new(place);
    }
    NonNull::new(mapped.cast())
}
