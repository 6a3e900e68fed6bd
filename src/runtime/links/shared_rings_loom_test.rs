//! Two ends of rings, in every order of their steps: nobody sleeps for ever, and what is taken is what was put.

use super::*;
use crate::runtime::base::sync::{Arc, AtomicU64, Bell};
use crate::runtime::loom_test::every_order;
use loom::thread;

const LENGTH: usize = 2;

struct Memory {
    words: Vec<AtomicU64>,
    bytes: Vec<AtomicU64>,
}

/// The words by their number: an end has four.
fn word(at: usize) -> usize {
    let (end, word) = (at / END_BYTES, at % END_BYTES);
    4 * end + [PUT, TAKEN, SLEEPS_FOR_BYTES, SLEEPS_FOR_ROOM].iter().position(|place| *place == word).unwrap()
}

impl SharedWords for Arc<Memory> {
    fn load(&self, at: usize) -> u64 {
        self.words[word(at)].load(Ordering::Acquire)
    }

    fn store(&self, at: usize, value: u64) {
        self.words[word(at)].store(value, Ordering::Release);
    }
}

/// The bytes have no order of their own, so that it shows if the words do not order them.
impl Bytes for Arc<Memory> {
    fn read(&self, at: usize, into: &mut [u8]) {
        for (byte, at) in into.iter_mut().zip(at - head_bytes()..) {
            *byte = self.bytes[at].load(Ordering::Relaxed) as u8;
        }
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        for (byte, at) in bytes.iter().zip(at - head_bytes()..) {
            self.bytes[at].store(u64::from(*byte), Ordering::Relaxed);
        }
    }
}

struct End {
    rings: Rings<Arc<Memory>>,
    bells: [Bell; 2],
}

impl End {
    fn done(&self, (count, wakes): Transfer) -> usize {
        if wakes {
            self.bells[1 - self.rings.own].wake();
        }
        count
    }

    /// Puts and takes so many bytes, like a thread that serves a link: it sleeps only when nothing can be done.
    fn exchange(&mut self, put: u8, taken: u8) {
        let (mut next, mut expected) = (0, 0);
        while next < put || expected < taken {
            let mut byte = [0];
            let got = self.rings.read(&mut [IoSliceMut::new(&mut byte)]).unwrap();
            let got = self.done(got);
            if got > 0 {
                assert_eq!(byte[0], 10 * self.rings.own as u8 + expected);
                expected += 1;
            }
            let mut gone = 0;
            if next < put {
                let put = self.rings.write(&[IoSlice::new(&[10 * (1 - self.rings.own as u8) + next])]).unwrap();
                gone = self.done(put);
                next += gone as u8;
            }
            let is_done = next == put && expected == taken;
            if !is_done && got == 0 && gone == 0 && self.rings.may_sleep() {
                self.bells[self.rings.own].sleep();
            }
        }
    }
}

fn ends() -> [End; 2] {
    let memory = Arc::new(Memory {
        words: (0..8).map(|_| AtomicU64::new(0)).collect(),
        bytes: (0..2 * LENGTH).map(|_| AtomicU64::new(0)).collect(),
    });
    let bells = [(); 2].map(|()| Bell::new().unwrap());
    [0, 1].map(|own| End { rings: Rings::new(Arc::clone(&memory), own, LENGTH), bells: bells.clone() })
}

fn run(counts: [u8; 2]) {
    every_order(move || {
        let [mut one, mut other] = ends();
        let thread = thread::spawn(move || other.exchange(counts[1], counts[0]));
        one.exchange(counts[0], counts[1]);
        thread.join().unwrap();
    });
}

#[test]
fn more_than_a_ring_holds_goes_one_way() {
    run([LENGTH as u8 + 2, 0]);
}

#[test]
fn each_sends_and_takes() {
    run([1, 1]);
}
