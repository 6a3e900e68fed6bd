//! Models of whatever makes threads wait for each other: each is run in every order in which its threads can run (`make
//! loom`). A thread that waits in vain is found by loom, which calls it a deadlock.
//!
//! Models have no sockets and no poller: a sleeper sleeps in its bell. What stands in for locks, clock and waker is in
//! `loom_stand_in_test.rs`; the models of messages lie beside them. A model that fails mostly ends the whole run, for what
//! it leaves behind cannot be dropped any more; what it says first is what counts.

use crate::agent::{Ask, Command, Event};
use crate::config::LogLevel;
use crate::error::{Error, Status};
use crate::runtime::base::clock::Clock;
use crate::runtime::base::interrupts::Interrupts;
use crate::runtime::base::log::Logger;
use crate::runtime::base::mailbox::{Mailbox, Signal};
use crate::runtime::base::program::Program;
use crate::runtime::base::request::{request, Completer, Outcome, Received, RequestedOperation, Requests, Told};
use crate::runtime::base::sync::{lock, wait, Arc, AtomicBool, Bell, Condvar, Mutex, Ordering};
use crate::runtime::collectives::turns::Turns;
use crate::runtime::state::node_state::{AgentCommand, NodeState};
use crate::types::{DType, GroupId, Time};
use crate::wire::Absent;
use loom::thread;
use std::time::Duration;

/// Unless the environment says otherwise: more than that loom tries in minutes, not in seconds.
const PREEMPTIONS: usize = 3;
pub(crate) const SHORT: Duration = Duration::from_millis(1);

/// Runs a model in every order in which its threads can run, if no thread is stopped more often than so, where it could
/// run on.
pub(crate) fn every_order(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(PREEMPTIONS));
    builder.check(model);
}

// ---- the mailbox ----

fn mailbox() -> (Arc<Mailbox<u32>>, Bell) {
    let bell = Bell::new().unwrap();
    (Arc::new(Mailbox::new(Signal::new(bell.clone()))), bell)
}

/// What a sleeper does until it has found what it looks for: as in `drive` and in `messages/progress_thread`.
fn sleep_until(mailbox: &Mailbox<u32>, bell: &Bell, mut found: impl FnMut(Vec<u32>) -> bool) {
    loop {
        if !mailbox.take_signal() {
            bell.sleep();
        } else if found(mailbox.take()) {
            return;
        }
    }
}

#[test]
fn nothing_that_is_delivered_is_slept_through() {
    every_order(|| {
        let (mailbox, bell) = mailbox();
        let senders = [(1, 2), (3, 4)].map(|(first, second)| {
            let mailbox = Arc::clone(&mailbox);
            thread::spawn(move || {
                mailbox.deliver(first).unwrap();
                mailbox.deliver(second).unwrap();
            })
        });
        let mut all = Vec::new();
        sleep_until(&mailbox, &bell, |mail| {
            all.extend(mail);
            all.len() == 4
        });
        let place = |wanted| all.iter().position(|found| *found == wanted).expect("each comes once");
        assert!(place(1) < place(2) && place(3) < place(4), "{all:?}");
        senders.into_iter().for_each(|sender| sender.join().unwrap());
    });
}

#[test]
fn what_is_set_before_an_interruption_is_seen() {
    every_order(|| {
        let (mailbox, bell) = mailbox();
        let broken = Arc::new(AtomicBool::new(false));
        let breaker = {
            let (mailbox, broken) = (Arc::clone(&mailbox), Arc::clone(&broken));
            thread::spawn(move || {
                broken.store(true, Ordering::Relaxed);
                mailbox.interrupt();
            })
        };
        let sender = {
            let mailbox = Arc::clone(&mailbox);
            thread::spawn(move || mailbox.deliver(1).unwrap())
        };
        let mut looks = 0;
        sleep_until(&mailbox, &bell, |_| {
            looks += 1;
            assert!(looks <= 2, "each signal is told once");
            broken.load(Ordering::Relaxed)
        });
        breaker.join().unwrap();
        sender.join().unwrap();
    });
}

#[test]
fn what_comes_when_a_mailbox_is_shut_is_taken_or_given_back() {
    every_order(|| {
        let (mailbox, _) = mailbox();
        let sender = {
            let mailbox = Arc::clone(&mailbox);
            thread::spawn(move || [1, 2].map(|mail| mailbox.deliver(mail)))
        };
        let shut = mailbox.shut();
        let delivered = sender.join().unwrap();
        match shut.as_slice() {
            [] => assert_eq!(delivered, [Err(1), Err(2)]),
            [1] => assert_eq!(delivered, [Ok(()), Err(2)]),
            [1, 2] => assert_eq!(delivered, [Ok(()), Ok(())]),
            other => panic!("{other:?} was never delivered so"),
        }
        assert!(mailbox.take().is_empty(), "a shut mailbox has nothing");
    });
}

// ---- callers and agent thread ----

fn state() -> std::sync::Arc<NodeState> {
    std::sync::Arc::new(NodeState::new(Logger::new(LogLevel::Off, "model"), Clock::start(), Bell::new().unwrap()))
}

/// The agent thread: it answers whoever asks who is absent, and ends when it is told to.
fn obey(state: &NodeState) {
    let mut quit = false;
    while !quit {
        state.waker.sleep();
        state.waker.drain();
        while let Some(command) = state.next_command() {
            match command {
                AgentCommand::Brain(Command::WhereAre(ask, ..)) => _ = state.file(Event::Absent(ask, absent(ask))),
                AgentCommand::Quit => quit = true,
                other => panic!("nobody asks for {other:?}"),
            }
        }
    }
    state.end();
}

fn absent(ask: Ask) -> Absent {
    Absent { query: ask, total: 0, members: Vec::new() }
}

fn ask(state: &NodeState, limit: impl Fn() -> Time) -> Option<Absent> {
    let ask = state.next_ask();
    state.view().absent.insert(ask, None);
    state.ask(AgentCommand::Brain(Command::WhereAre(ask, GroupId::WORLD, 1, None)));
    let answer = state.wait(limit(), |view| view.absent.get_mut(&ask)?.take());
    state.view().absent.remove(&ask);
    assert!(answer.iter().all(|answer| *answer == absent(ask)));
    answer
}

#[test]
fn a_thread_that_asks_the_agent_thread_is_answered_and_its_end_is_heard() {
    every_order(|| {
        let state = state();
        let spawn = |body: fn(&NodeState)| {
            let state = std::sync::Arc::clone(&state);
            thread::spawn(move || body(&state))
        };
        let agent = spawn(obey);
        let other = spawn(|state| drop(ask(state, || Time::NEVER).expect("without limit there is an answer")));
        ask(&state, || Time::NEVER).expect("without limit there is an answer");
        other.join().unwrap();
        state.ask(AgentCommand::Quit);
        state.wait(Time::NEVER, |view| view.participation.is_over().then_some(())).expect("it ends");
        agent.join().unwrap();
        state.ask(AgentCommand::Quit);
        assert!(state.next_command().is_none(), "nothing is kept that nobody takes");
    });
}

#[test]
fn a_deadline_ends_a_wait_for_an_agent_thread_that_may_have_ended() {
    every_order(|| {
        let state = state();
        let agent = {
            let state = std::sync::Arc::clone(&state);
            thread::spawn(move || obey(&state))
        };
        let other = {
            let state = std::sync::Arc::clone(&state);
            thread::spawn(move || state.ask(AgentCommand::Quit))
        };
        let _ = ask(&state, || state.clock.now() + SHORT); // in time or not
        other.join().unwrap();
        agent.join().unwrap();
    });
}

// ---- requests ----

const HERE: Received = Received { source: 1, tag: 2, count: 3, dtype: DType::Int8 };

fn aborted() -> Outcome {
    Err(Error::new(Status::Aborted, "cancelled"))
}

#[test]
fn every_waiter_of_a_request_returns_with_its_one_outcome() {
    every_order(|| {
        let (request, completer) = request();
        let request = Arc::new(request);
        let operation = thread::spawn(move || completer.complete(Ok(Some(HERE))));
        let others = [None, Some(SHORT)].map(|limit| {
            let request = Arc::clone(&request);
            thread::spawn(move || request.wait(limit))
        });
        if let Some(outcome) = request.test() {
            assert_eq!(outcome, Ok(Some(HERE)));
        }
        assert_eq!(request.wait(None), Some(Ok(Some(HERE))));
        let [without, with] = others.map(|other| other.join().unwrap());
        assert_eq!(without, Some(Ok(Some(HERE))));
        assert!(with.is_none() || with == Some(Ok(Some(HERE))), "{with:?}");
        operation.join().unwrap();
    });
}

#[test]
fn an_operation_that_is_dropped_ends_its_waiters() {
    every_order(|| {
        let (request, completer) = request();
        let operation = thread::spawn(move || drop(completer));
        let outcome = request.wait(None).expect("a wait without limit has an outcome");
        assert_eq!(outcome.map_err(|error| error.status()), Err(Status::Internal));
        operation.join().unwrap();
    });
}

/// One that carries out an operation that goes on until it is cancelled.
struct Endless {
    cancelled: Mutex<usize>,
    changed: Condvar,
}

fn carry_out(endless: &Arc<Endless>, completer: Completer) {
    let mut cancelled = lock(&endless.cancelled);
    while *cancelled == 0 {
        cancelled = wait(&endless.changed, cancelled, None);
    }
    drop(cancelled);
    completer.complete(aborted());
}

#[test]
fn a_cancellation_is_told_once_before_the_start_and_under_way() {
    every_order(|| {
        let (request, completer) = request();
        let endless = Arc::new(Endless { cancelled: Mutex::new(0), changed: Condvar::new() });
        let theirs = Arc::clone(&endless);
        let told = Told(move || {
            *lock(&theirs.cancelled) += 1;
            theirs.changed.notify_all();
        });
        let request = Arc::new(request.of(std::sync::Arc::new(told), RequestedOperation::Messages(0..1)));
        let operation = {
            let endless = Arc::clone(&endless);
            thread::spawn(move || carry_out(&endless, completer))
        };
        let other = {
            let request = Arc::clone(&request);
            thread::spawn(move || request.cancel())
        };
        request.cancel();
        assert_eq!(request.wait(None), Some(aborted()));
        other.join().unwrap();
        operation.join().unwrap();
        assert_eq!(*lock(&endless.cancelled), 1);
    });
}

/// An operation that ends by itself, while its caller cancels, waits and frees: ended by whoever comes first.
fn end(completer: &Mutex<Option<Completer>>, outcome: Outcome) {
    let completer = lock(completer).take();
    if let Some(completer) = completer {
        completer.complete(outcome);
    }
}

#[test]
fn a_cancellation_about_the_end_leaves_one_outcome_and_nothing_behind() {
    every_order(|| {
        let (request, completer) = request();
        let completer = Arc::new(Mutex::new(Some(completer)));
        let theirs = Arc::clone(&completer);
        let told = Told(move || end(&theirs, aborted()));
        let request = Arc::new(request.of(std::sync::Arc::new(told), RequestedOperation::Messages(0..1)));
        let operation = {
            let completer = Arc::clone(&completer);
            thread::spawn(move || end(&completer, Ok(None)))
        };
        let waiter = {
            let request = Arc::clone(&request);
            thread::spawn(move || request.wait(None))
        };
        let before = request.test();
        request.cancel();
        let outcome = request.wait(None);
        assert!(outcome == Some(Ok(None)) || outcome == Some(aborted()), "{outcome:?}");
        assert!(
            before.is_none() || before == Some(Ok(None)),
            "a request that has ended cannot be cancelled: {before:?}"
        );
        assert!(before.is_none() || before == outcome, "{before:?}, then {outcome:?}");
        assert_eq!(waiter.join().unwrap(), outcome);
        operation.join().unwrap();
        assert_eq!(request.test(), outcome);
    });
}

#[test]
fn what_one_request_leaves_is_the_next_ones_and_tells_it_nothing() {
    every_order(|| {
        let requests = Requests::default();
        let (first, completer) = requests.make();
        let operation = thread::spawn(move || completer.complete(Ok(Some(HERE))));
        assert_eq!(first.wait(None), Some(Ok(Some(HERE))));
        drop(first);
        assert_eq!(requests.spare(), 1, "the thread that heard of the end is the last to let it go");
        let (second, completer) = requests.make();
        assert_eq!((requests.spare(), second.test()), (0, None));
        let [one, other] = completer.halves();
        let halves = [thread::spawn(move || one.complete(Ok(None))), thread::spawn(move || drop(other))];
        let outcome = second.wait(None).expect("a wait without limit has an outcome");
        assert_eq!(outcome.map_err(|error| error.status()), Err(Status::Internal));
        operation.join().unwrap();
        halves.into_iter().for_each(|half| half.join().unwrap());
        drop(second);
        assert_eq!(requests.spare(), 1);
    });
}

#[test]
fn a_request_that_is_dropped_under_way_leaves_its_record_once() {
    every_order(|| {
        let requests = Requests::default();
        let (request, completer) = requests.make();
        let operation = thread::spawn(move || completer.complete(Ok(None)));
        drop(request);
        operation.join().unwrap();
        assert_eq!(requests.spare(), 1);
    });
}

// ---- interruptions ----

/// A thread that interrupts, while this one begins a wait that nothing else ends.
fn interrupted<T: Send + Sync + 'static>(
    of: T,
    interrupt: impl Fn(&T) + Send + 'static,
    wait: impl FnOnce(&T) -> Result<(), Error>,
) {
    let of = std::sync::Arc::new(of);
    let theirs = std::sync::Arc::clone(&of);
    let other = thread::spawn(move || interrupt(&theirs));
    assert_eq!(wait(&of).map_err(|error| error.status()), Err(Status::Interrupted));
    other.join().unwrap();
}

#[test]
fn nobody_sleeps_through_an_interruption_in_the_nodes_state() {
    every_order(|| {
        let state = state();
        let program = std::sync::Arc::clone(&state.program);
        let attention = program.interrupts.attention();
        interrupted(
            state,
            |state| {
                state.program.interrupts.interrupt();
                state.nudge();
            },
            |state| state.wait_attentively(Time::NEVER, &attention, |_| None::<()>).map(drop),
        );
    });
}

#[test]
fn nobody_sleeps_through_an_interruption_in_a_request_which_goes_on() {
    every_order(|| {
        let program = std::sync::Arc::new(Program::default());
        let requests = Requests::new(&program);
        let (request, completer) = requests.make();
        let attention = program.interrupts.attention();
        interrupted(
            (std::sync::Arc::clone(&program), requests),
            |(program, requests)| {
                program.interrupts.interrupt();
                requests.nudge();
            },
            |(_, requests)| requests.wait_in(&request, None, &attention).map(drop),
        );
        completer.complete(Ok(None));
        assert_eq!(request.wait_attentively(None), Ok(Some(Ok(None))));
    });
}

#[test]
fn nobody_sleeps_through_an_interruption_before_its_turn() {
    every_order(|| {
        let interrupts = std::sync::Arc::new(Interrupts::default());
        let attention = interrupts.attention();
        interrupted(
            (std::sync::Arc::clone(&interrupts), Turns::default()),
            |(interrupts, turns)| {
                interrupts.interrupt();
                turns.nudge();
            },
            |(_, turns)| {
                let first = turns.take(None);
                let second = turns.take(None);
                let outcome = second.wait(|| None, &attention).map(drop);
                drop(first);
                outcome
            },
        );
    });
}
