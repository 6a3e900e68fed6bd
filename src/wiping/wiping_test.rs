//! Looks, through the kernel, at memory that nobody has any more.

use super::wiping;
use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;

const WORD: [u8; 8] = *b"hunter2!";
const LENGTH: usize = 32 << 10;

/// How often the word is still there; not at all where the memory has gone back.
fn left(address: usize, length: usize) -> usize {
    let mut bytes = vec![0; length];
    match File::open("/proc/self/mem").unwrap().read_exact_at(&mut bytes, address as u64) {
        Ok(()) => bytes.windows(WORD.len()).filter(|window| **window == WORD).count(),
        Err(_) => 0,
    }
}

#[test]
fn what_is_freed_within_is_overwritten() {
    let text = wiping(|| WORD.repeat(LENGTH / WORD.len()));
    let address = text.as_ptr() as usize;
    assert_eq!(left(address, LENGTH), LENGTH / WORD.len());
    wiping(|| drop(text));
    assert_eq!(left(address, LENGTH), 0);
}

#[test]
fn what_grows_within_leaves_nothing_at_its_former_place() {
    let (former, mut grown) = wiping(|| {
        let mut text = WORD.repeat(LENGTH / WORD.len());
        let former = text.as_ptr() as usize;
        let next = Box::new([0_u8; 64]); // so that it cannot grow where it is
        text.reserve_exact(16 << 20);
        black_box(next);
        (former, text)
    });
    assert!(grown.as_ptr() as usize != former && grown[LENGTH - 8..] == WORD);
    assert_eq!(left(former, LENGTH), 0);
    grown.clear();
}

#[inline(never)]
fn write_on_the_stack() -> usize {
    let mut stack = [WORD; LENGTH / WORD.len()];
    black_box(&mut stack).as_ptr() as usize
}

#[test]
fn the_stack_is_overwritten() {
    let address = wiping(write_on_the_stack);
    assert_eq!(left(address, LENGTH), 0);
}

#[test]
fn a_scope_ends_also_where_it_fails() {
    let failed = std::panic::catch_unwind(|| wiping(|| wiping(|| panic!("on purpose"))));
    assert!(failed.is_err());
    assert_eq!(super::allocator::scopes(), 0);
}
