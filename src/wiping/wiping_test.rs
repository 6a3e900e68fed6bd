//! Looks, through the kernel, at memory that nobody has any more.

use super::{keeping, wiping};
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
    assert_eq!(super::allocator::scopes(super::allocator::Kind::Wiping), 0);
}

/// The flags of the mapping with this address, as the kernel tells them.
fn flags(address: usize) -> String {
    let all = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut is_here = false;
    for line in all.lines() {
        let first = line.split(' ').next().unwrap();
        let ends = first.split_once('-').map(|(from, to)| [from, to].map(|end| usize::from_str_radix(end, 16)));
        match ends {
            Some([Ok(from), Ok(to)]) => is_here = (from..to).contains(&address),
            _ if is_here && line.starts_with("VmFlags:") => return format!("{line} "),
            _ => {}
        }
    }
    panic!("{address:x} is in no mapping");
}

#[test]
fn what_is_kept_is_in_no_core_dump_and_is_overwritten_wherever_it_is_freed() {
    for length in [8, 256, 264, 16 << 10] {
        let mut text = keeping(|| WORD.repeat(length / WORD.len()));
        let address = text.as_ptr() as usize;
        assert!(flags(address).contains(" dd "), "{}", flags(address));
        text.shrink_to(length); // elsewhere this may move it; it has no reason to
        assert_eq!(left(address, length), length / WORD.len());
        std::thread::spawn(move || drop(text)).join().unwrap();
        assert_eq!(left(address, length), 0);
    }
    let large = keeping(|| WORD.repeat(1 << 20));
    assert!(!flags(large.as_ptr() as usize).contains(" dd "), "there is no such room");
    let mut grows = keeping(|| WORD.to_vec());
    let former = grows.as_ptr() as usize;
    grows.reserve_exact(LENGTH);
    assert!(grows.as_ptr() as usize != former && grows == WORD && left(former, WORD.len()) == 0);
}

#[test]
fn threads_that_keep_at_once_have_room_of_their_own() {
    let work = |mine: u8| {
        for turn in 0..2000_usize {
            let length = 1 + (turn * 37) % 3000;
            let kept = keeping(|| vec![mine; length]);
            let zeroed = keeping(|| vec![0_u8; length]);
            assert!(kept.iter().all(|byte| *byte == mine) && zeroed.iter().all(|byte| *byte == 0));
        }
    };
    std::thread::scope(|scope| (1..=4).for_each(|mine| drop(scope.spawn(move || work(mine)))));
}
