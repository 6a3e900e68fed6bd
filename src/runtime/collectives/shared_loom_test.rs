//! Two ranks that share words, in every order of their steps: nobody sleeps for ever, and nobody reads what is written over.

use super::shared_flags::{fall_asleep, publish, wake_up};
use crate::runtime::base::shared_words::SharedWords;
use crate::runtime::base::sync::{Arc, AtomicU64, Bell, Ordering};
use crate::runtime::loom_test::every_order;
use loom::thread;
use std::sync::atomic::AtomicU32; // not loom's: no other thread looks at it

/// The words of each rank: what it has put, what it has done, and whether it sleeps.
const WORDS: usize = 3;
const PUT: usize = 0;
const DONE: usize = 1;
const ASLEEP: usize = 2;

struct Memory {
    words: Vec<AtomicU64>,
    /// What each rank gives in each of the calls under way.
    given: Vec<AtomicU64>,
    bells: [Bell; 2],
    /// How often each rank has slept, and out of which sleep the other has rung it last. Each is one rank's own.
    sleeps: [AtomicU32; 2],
    rung: [std::sync::atomic::AtomicU64; 2],
    /// How often each rank was rung.
    wakes: [AtomicU32; 2],
    sets: u64,
}

impl SharedWords for Memory {
    fn load(&self, at: usize) -> u64 {
        self.words[at].load(Ordering::Acquire)
    }

    fn store(&self, at: usize, value: u64) {
        self.words[at].store(value, Ordering::Release);
    }
}

impl Memory {
    fn new(sets: u64) -> Arc<Memory> {
        Arc::new(Memory {
            words: (0..2 * WORDS).map(|_| AtomicU64::new(0)).collect(),
            given: (0..2 * sets).map(|_| AtomicU64::new(0)).collect(),
            bells: [(); 2].map(|()| Bell::new().unwrap()),
            sleeps: Default::default(),
            rung: Default::default(),
            wakes: Default::default(),
            sets,
        })
    }

    fn publish(&self, rank: usize, word: usize, value: u64) {
        let other = 1 - rank;
        let sleeper = [(other, other * WORDS + ASLEEP)].into_iter();
        publish(self, rank * WORDS + word, value, rank as u32, sleeper, |other, sleep| {
            if self.rung[other].swap(sleep, Ordering::Relaxed) != sleep {
                self.wakes[other].fetch_add(1, Ordering::Relaxed);
                self.bells[other].wake();
            }
        });
    }

    /// Waits as `shared_wait` does.
    fn wait(&self, rank: usize, word: usize, least: u64) {
        let at = (1 - rank) * WORDS + word;
        while self.load(at) < least {
            let nth = self.sleeps[rank].fetch_add(1, Ordering::Relaxed) + 1;
            fall_asleep(self, rank * WORDS + ASLEEP, nth, 1 - rank as u32);
            if self.load(at) < least {
                self.bells[rank].sleep();
            }
            wake_up(self, rank * WORDS + ASLEEP);
        }
    }

    /// Makes one call, as `shared_drive` does. Returns what the other rank gave.
    fn exchange(&self, rank: usize, call: u64, value: u64) -> u64 {
        self.wait(rank, DONE, call.saturating_sub(self.sets));
        let set = (call % self.sets) as usize;
        // Without an order of their own, so that whatever is not ordered by the words shows.
        self.given[rank * self.sets as usize + set].store(value, Ordering::Relaxed);
        self.publish(rank, PUT, call);
        self.wait(rank, PUT, call);
        let got = self.given[(1 - rank) * self.sets as usize + set].load(Ordering::Relaxed);
        self.publish(rank, DONE, call);
        got
    }
}

#[test]
fn each_gets_what_the_other_gave_in_this_call() {
    for sets in [1, 2] {
        every_order(move || {
            let memory = Memory::new(sets);
            let calls = move |memory: &Memory, rank: usize| {
                for call in 1..=sets + 1 {
                    let got = memory.exchange(rank, call, 10 * call + rank as u64);
                    assert_eq!(got, 10 * call + 1 - rank as u64, "call {call}");
                }
            };
            let other = Arc::clone(&memory);
            let thread = thread::spawn(move || calls(&other, 1));
            calls(&memory, 0);
            thread.join().unwrap();
            for rank in 0..2 {
                let [wakes, sleeps] = [&memory.wakes, &memory.sleeps].map(|of| of[rank].load(Ordering::Relaxed));
                assert!(wakes <= sleeps, "rung once out of each sleep at most");
            }
        });
    }
}
