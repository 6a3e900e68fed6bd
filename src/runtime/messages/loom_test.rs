//! Models of messages: their operations end once, whichever thread ends them, and the waiting caller returns. Without
//! links: a rank that sends to itself.

use super::super::loom_test::every_order;
use super::engine::Engine;
use super::{Direction, Post};
use crate::error::{Error, Failure, Status};
use crate::runtime::base::request::{request, Outcome, Received, Request, RequestedOperation, Told};
use crate::runtime::base::sync::{lock, Arc, Mutex};
use crate::runtime::links::mesh::tests::formed;
use crate::runtime::memory::buffer::CallBuffers;
use crate::runtime::state::roster::Roster;
use crate::types::{DType, Epoch, GroupId, Time};
use loom::thread;

const OWN: u32 = 0;
const HERE: Received = Received { source: OWN, tag: 1, count: 0, dtype: DType::Uint8 };
const SEND: Direction = Direction::Send { to: OWN, tag: 1 };
const RECEIVE: Direction = Direction::Receive { from: Some(OWN), tag: Some(1) };

#[test]
fn a_send_and_a_receive_under_one_request_end_it_together() {
    every_order(|| {
        let (request, completer) = request();
        let [send, receive] = completer.halves();
        let failed = || Err(Error::new(Status::Timeout, "too late"));
        let sender = thread::spawn(move || send.complete(failed()));
        let receiver = thread::spawn(move || receive.complete(Ok(Some(HERE))));
        assert_eq!(request.wait(None), Some(failed()));
        sender.join().unwrap();
        receiver.join().unwrap();
    });
}

fn engine() -> Arc<Mutex<Engine>> {
    let nowhere = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
    let formed = std::sync::Arc::new(formed(OWN, [nowhere; 2]));
    let roster = Roster { id: GroupId::WORLD, members: vec![0, 1], rank: Some(OWN), formed };
    Arc::new(Mutex::new(Engine::new(&std::sync::Arc::new(roster))))
}

/// Posts an empty message, as `start_messages` does.
fn post(engine: &Arc<Mutex<Engine>>, direction: Direction) -> Request {
    let (request, completer) = request();
    let mut posting = lock(engine);
    let (op, own) = (posting.transfers.upcoming(), Arc::clone(engine));
    let told = Told(move || lock(&own).transfers.cancel(op));
    let request = request.of(std::sync::Arc::new(told), RequestedOperation::Messages(op..op + 1));
    let message = Post::new(direction, DType::Uint8, 0, CallBuffers::of(&[], &mut []));
    posting.check(&message, None).unwrap();
    posting.post(message, Time(0), 1000, Time::NEVER, completer);
    request
}

fn status(outcome: Option<Outcome>) -> Result<Option<Received>, Status> {
    outcome.expect("a wait without limit has an outcome").map_err(|error| error.status())
}

#[test]
fn a_receive_that_is_cancelled_while_its_message_comes_ends_once() {
    every_order(|| {
        let engine = engine();
        let receive = Arc::new(post(&engine, RECEIVE));
        let sender = {
            let engine = Arc::clone(&engine);
            thread::spawn(move || status(post(&engine, SEND).wait(None)))
        };
        let other = {
            let receive = Arc::clone(&receive);
            thread::spawn(move || receive.cancel())
        };
        let outcome = status(receive.wait(None));
        assert_eq!(sender.join().unwrap(), Ok(None));
        other.join().unwrap();
        assert_eq!(status(receive.test()), outcome);
        match outcome {
            Ok(received) => assert_eq!(received, Some(HERE)),
            // Then the message waits for the next receive.
            Err(Status::Aborted) => assert_eq!(status(post(&engine, RECEIVE).wait(None)), Ok(Some(HERE))),
            Err(other) => panic!("it ended with {other:?}"),
        }
        let engine = lock(&engine);
        assert!(engine.transfers.operations.is_empty() && !engine.needs_attention());
    });
}

/// One operation only: the order in which several end depends on the hash map, and differs from run to run.
fn end_messages(cancels: bool) {
    every_order(move || {
        let engine = engine();
        let over = Failure {
            status: Status::State,
            culprit: None,
            cause: "over".to_owned(),
            epoch: Epoch(1),
            group: Some(GroupId::WORLD),
            sequence: 0,
        };
        let receive = Arc::new(post(&engine, RECEIVE));
        let ender = {
            let engine = Arc::clone(&engine);
            thread::spawn(move || lock(&engine).fail(&over, &[]))
        };
        let other = {
            let receive = Arc::clone(&receive);
            thread::spawn(move || status(receive.wait(None)))
        };
        if cancels {
            receive.cancel();
        }
        let outcome = status(receive.wait(None));
        assert!(outcome == Err(Status::State) || (cancels && outcome == Err(Status::Aborted)), "{outcome:?}");
        assert_eq!(other.join().unwrap(), outcome);
        ender.join().unwrap();
    });
}

#[test]
fn a_thread_that_waits_when_messages_end_returns() {
    end_messages(false);
}

#[test]
fn a_receive_that_is_cancelled_when_messages_end_ends_once() {
    end_messages(true);
}
