//! A group's calls, those that wait and those that do not, in every order of their threads: each has its turn, and is done once.

use super::turns::Turns;
use crate::runtime::base::interrupts::Attention;
use crate::runtime::base::queue::Queue;
use crate::runtime::base::request::{request, Completer, Request};
use crate::runtime::base::sync::{lock, Arc, Mutex, Ordering};
use crate::runtime::loom_test::{every_order, SHORT};
use loom::sync::atomic::AtomicUsize;
use loom::thread;
use std::cell::RefCell;
use std::time::Duration;

/// The turns, one after another; loom sees to it that they are never two at once.
#[derive(Default)]
struct Ran {
    inside: AtomicUsize,
    order: Mutex<Vec<u64>>,
}

impl Ran {
    fn run(&self, number: u64) {
        assert_eq!(self.inside.swap(1, Ordering::Relaxed), 0, "one at a time");
        lock(&self.order).push(number);
        self.inside.store(0, Ordering::Relaxed);
    }
}

#[test]
fn turns_come_in_order_and_nobody_is_forgotten() {
    every_order(|| {
        let group = Arc::new((Turns::default(), Ran::default()));
        let call = |limit: Option<Duration>| {
            let group = Arc::clone(&group);
            move || {
                let left = RefCell::new(limit);
                let turn = group.0.take(None);
                // The second time that it asks, its time is up.
                let come = turn
                    .wait(
                        || left.borrow_mut().as_mut().map(|left| std::mem::replace(left, Duration::ZERO)),
                        &Attention::none(),
                    )
                    .unwrap();
                if come {
                    group.1.run(turn.number());
                }
                come
            }
        };
        let others = [thread::spawn(call(None)), thread::spawn(call(Some(SHORT)))];
        assert!(call(None)());
        let [patient, hasty] = others.map(|other| other.join().unwrap());
        assert!(patient, "a wait without limit ends when the turn has come");
        let order = lock(&group.1.order);
        assert_eq!(order.len(), 2 + usize::from(hasty));
        assert!(order.is_sorted(), "{order:?}");
        let next = group.0.take(None);
        assert!(
            next.number() == 4 && next.wait(|| Some(Duration::ZERO), &Attention::none()).unwrap(),
            "nobody holds it up"
        );
    });
}

struct Group {
    turns: Turns,
    ran: Ran,
    queue: Queue<(u64, Completer), thread::JoinHandle<()>>,
}

impl Group {
    fn new() -> Arc<Group> {
        Arc::new(Group { turns: Turns::default(), ran: Ran::default(), queue: Queue::default() })
    }

    fn run(&self) {
        let turn = self.turns.take(None);
        assert!(turn.wait(|| None, &Attention::none()).unwrap());
        self.ran.run(turn.number());
    }
}

/// Does what `carry_out` of `work` does: a waiter carries out all calls up to this one, or leaves the first in its
/// middle.
fn borrow(from: &Group, last: u64, leaves: bool) {
    while let Some((number, completer)) = from.queue.borrow(|queued| queued.0 <= last && from.turns.has_come(queued.0))
    {
        let turn = from.turns.hold(number, None);
        assert!(turn.wait(|| None, &Attention::none()).unwrap());
        if leaves {
            assert!(turn.pass_on());
            drop(turn);
            return from.queue.give_back(Some((number, completer)));
        }
        from.ran.run(number);
        completer.complete(Ok(None));
        drop(turn);
        from.queue.give_back(None);
    }
}

/// Does what `start` of the group does in `work`.
fn start(on: &Arc<Group>) -> Option<Request> {
    let progress = || {
        let group = Arc::clone(on);
        Ok(thread::spawn(move || {
            while let Some((number, completer)) = group.queue.next() {
                let turn = group.turns.hold(number, None);
                assert!(turn.wait(|| None, &Attention::none()).unwrap());
                group.ran.run(number);
                completer.complete(Ok(None));
                drop(turn);
            }
        }))
    };
    let put = on.queue.put(progress, || {
        let (request, completer) = request();
        ((on.turns.take_number().0, completer), request)
    });
    put.unwrap()
}

#[test]
fn calls_that_wait_and_calls_that_do_not_take_turns() {
    every_order(|| {
        let group = Group::new();
        let other = {
            let group = Arc::clone(&group);
            thread::spawn(move || group.run())
        };
        let started = start(&group).expect("nothing has ended");
        assert_eq!(started.wait(None), Some(Ok(None)));
        let again = start(&group).expect("nothing has ended"); // the thread may sleep by now
        group.run();
        assert_eq!(again.wait(None), Some(Ok(None)));
        other.join().unwrap();
        group.queue.end().expect("it was started").join().unwrap();
        assert_eq!(*lock(&group.ran.order), [1, 2, 3, 4]);
    });
}

#[test]
fn a_call_is_refused_or_done_when_its_group_ends() {
    every_order(|| {
        let group = Group::new();
        let callers = [1, 2].map(|_| {
            let group = Arc::clone(&group);
            thread::spawn(move || {
                let request = start(&group)?;
                assert_eq!(request.wait(None), Some(Ok(None)));
                Some(())
            })
        });
        let ended = group.queue.end().map(|thread| thread.join().unwrap());
        let done = callers.map(|caller| caller.join().unwrap()).iter().flatten().count();
        assert!(ended.is_some() || done == 0, "no thread, no work");
        assert_eq!(lock(&group.ran.order).len(), done);
        assert!(start(&group).is_none(), "it has ended");
        group.run(); // a turn that nobody ends would be waited for
    });
}

#[test]
fn what_a_waiter_borrows_is_done_once_and_in_its_turn() {
    for leaves in [false, true] {
        every_order(move || {
            let group = Group::new();
            let requests = [1, 2].map(|number| {
                let request = start(&group).expect("nothing has ended");
                borrow(&group, number, leaves);
                request
            });
            requests.iter().for_each(|request| assert_eq!(request.wait(None), Some(Ok(None))));
            group.queue.end().expect("it was started").join().unwrap();
            assert_eq!(*lock(&group.ran.order), [1, 2]);
        });
    }
}

#[test]
fn the_thread_outlives_a_call_that_is_lent() {
    for leaves in [false, true] {
        every_order(move || {
            let group = Group::new();
            let request = start(&group).expect("nothing has ended");
            let waiter = {
                let group = Arc::clone(&group);
                thread::spawn(move || borrow(&group, 1, leaves))
            };
            group.queue.end().expect("it was started").join().unwrap();
            assert_eq!(request.test(), Some(Ok(None)), "no other thread has it any more");
            waiter.join().unwrap();
        });
    }
}
