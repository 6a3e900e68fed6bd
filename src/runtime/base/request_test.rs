//! Requests, their records, and what is told of their end.

use super::super::program::Program;
use super::super::request_record::SPARE_MAX;
use super::*;
use crate::types::DType;
use std::sync::atomic::{AtomicU32, Ordering};

#[test]
fn a_request_ends_once_and_says_so_again_and_again() {
    let (request, completer) = request();
    assert_eq!(request.test(), None);
    assert_eq!(request.wait(Some(Duration::ZERO)), None);
    let received = Received { source: 1, tag: 2, count: 3, dtype: DType::Int8 };
    completer.complete(Ok(Some(received)));
    for _ in 0..2 {
        assert_eq!(request.test(), Some(Ok(Some(received))));
        assert_eq!(request.wait(None), Some(Ok(Some(received))));
    }
}

#[test]
fn a_test_gives_way_to_the_thread_that_does_the_work() {
    let (request, completer) = request();
    assert_eq!(request.test_by(&mut Tester::tired()), None, "it sleeps for a short time only");
    let working = std::thread::spawn(|| completer.complete(Ok(None)));
    // Repeats as often as it takes, for each of these tests sleeps: it is this thread that hears of the end.
    let ended = std::iter::repeat_with(|| request.test_by(&mut Tester::tired())).find(Option::is_some);
    assert_eq!(ended, Some(Some(Ok(None))));
    working.join().unwrap();
    assert_eq!(request.test_by(&mut Tester::new()), Some(Ok(None)));
}

#[test]
fn an_operation_that_is_dropped_has_failed() {
    let (request, completer) = request();
    drop(completer);
    assert_eq!(request.wait(None).map(|outcome| outcome.map_err(|error| error.status())), Some(Err(Status::Internal)));
}

#[test]
fn cancelling_is_told_once_and_not_too_late() {
    static TOLD: AtomicU32 = AtomicU32::new(0);
    let counter = std::sync::Arc::new(Told(|| _ = TOLD.fetch_add(1, Ordering::SeqCst)));
    let told = || TOLD.load(Ordering::SeqCst);
    let made = || {
        let (request, completer) = request();
        (request.of(counter.clone(), RequestedOperation::Messages(3..5)), completer)
    };
    let (one, completer) = made();
    one.cancel();
    one.cancel();
    assert!(completer.is_cancelled());
    assert_eq!(told(), 1);
    let (done, completer) = made();
    completer.complete(Ok(None));
    done.cancel();
    assert_eq!(told(), 1, "it was too late");
}

#[test]
fn two_halves_end_together_with_what_came_or_the_first_error_of_either() {
    let received = Received { source: 1, tag: 2, count: 3, dtype: DType::Int8 };
    let (both, completer) = request();
    let [one, other] = completer.halves();
    one.complete(Ok(Some(received)));
    assert_eq!(both.test(), None);
    other.complete(Ok(None));
    assert_eq!(both.test(), Some(Ok(Some(received))));
    let late = || Err(Error::new(Status::Timeout, "too late"));
    let (both, completer) = request();
    let [one, other] = completer.halves();
    one.complete(late());
    assert_eq!(both.test(), None);
    drop(other);
    assert_eq!(both.test(), Some(late()));
}

#[test]
fn a_record_is_used_again_when_its_last_end_is_gone_and_remembers_nothing_but_its_shell() {
    let requests = Requests::default();
    let spare = || requests.spare();
    let (first, completer) = requests.make();
    first.cancel();
    let [one, other] = completer.halves();
    one.complete(Err(Error::new(Status::Timeout, "too late")));
    first.leave_shell(Box::new(5));
    assert_eq!(spare(), 0, "the other half goes on");
    other.complete(Ok(None));
    assert_eq!(spare(), 1);
    let (second, completer) = requests.make();
    assert_eq!((spare(), second.test(), completer.is_cancelled()), (0, None, false));
    let shell = second.take_shell().and_then(|shell| shell.downcast::<i32>().ok());
    assert_eq!((shell.as_deref(), second.take_shell().is_none()), (Some(&5), true));
    completer.complete(Ok(None));
    assert_eq!((second.test(), spare()), (Some(Ok(None)), 0));
    drop(second);
    assert_eq!(spare(), 1);
}

#[test]
fn of_very_many_requests_some_records_are_kept_and_a_request_outlives_its_group() {
    let requests = Requests::default();
    let many: Vec<_> = (0..SPARE_MAX + 10).map(|_| requests.make()).collect();
    drop(many);
    assert_eq!(requests.spare(), SPARE_MAX);
    let (request, completer) = requests.make();
    drop(requests);
    completer.complete(Ok(None));
    assert_eq!(request.wait(None), Some(Ok(None)));
}

/// Requests that belong to a node of their own.
fn of_a_node() -> (Requests, std::sync::Arc<Program>) {
    let program = std::sync::Arc::default();
    (Requests::new(&program), program)
}

#[test]
fn a_function_is_called_once_by_a_thread_of_its_own_before_and_after_the_end() {
    let (requests, program) = of_a_node();
    let (heard, hears) = std::sync::mpsc::channel();
    let notify = |request: &Request, name: &'static str| {
        let heard = heard.clone();
        request.notify(move |status| heard.send((name, status, std::thread::current().name().is_some())).unwrap())
    };
    let ((before, completer), (failing, giver)) = (requests.make(), requests.make());
    notify(&before, "before").unwrap();
    notify(&failing, "failing").unwrap();
    let again = notify(&before, "again").expect_err("one for each request");
    assert_eq!(again.status(), Status::State);
    assert!(hears.try_recv().is_err(), "it has not ended");
    completer.complete(Ok(None));
    assert_eq!(hears.recv().unwrap(), ("before", Status::Ok, true));
    giver.complete(Err(Error::new(Status::Timeout, "too late")));
    assert_eq!(hears.recv().unwrap(), ("failing", Status::Timeout, true));
    let (after, completer) = requests.make();
    completer.complete(Ok(None));
    notify(&after, "after").unwrap();
    assert_eq!(hears.recv().unwrap(), ("after", Status::Ok, true));
    for request in [&before, &failing, &after] {
        request.await_notice();
    }
    program.notices.end();
    let (late, _completer) = requests.make();
    assert_eq!(notify(&late, "late").expect_err("nobody would call it").status(), Status::State);
    assert!(hears.try_recv().is_err());
}

#[test]
fn a_record_is_not_used_again_before_its_function_has_returned() {
    let (requests, program) = of_a_node();
    let (request, completer) = requests.make();
    let (go, goes) = std::sync::mpsc::channel::<()>();
    request.notify(move |_| goes.recv().unwrap()).unwrap();
    completer.complete(Ok(None));
    assert_eq!(request.wait(None), Some(Ok(None)));
    drop(request);
    assert_eq!(requests.spare(), 0);
    go.send(()).unwrap();
    program.notices.end();
    assert_eq!(requests.spare(), 1);
}

fn can_be_read(descriptor: std::os::fd::RawFd) -> bool {
    let mut watch = crate::net::Watch::default();
    watch.add(crate::net::Token(1), descriptor, true, false);
    watch.wait(Some(Duration::ZERO));
    let is_ready = watch.ready().count() == 1;
    is_ready
}

#[test]
fn a_descriptor_can_be_read_once_the_request_has_ended() {
    let (request, completer) = request();
    let descriptor = request.descriptor().unwrap();
    assert!(!can_be_read(descriptor));
    completer.complete(Ok(None));
    assert!(can_be_read(descriptor) && can_be_read(descriptor), "as long as it is there");
    assert_eq!(request.descriptor(), Ok(descriptor));
    let (late, completer) = super::request();
    completer.complete(Ok(None));
    assert!(can_be_read(late.descriptor().unwrap()));
}

#[test]
fn what_interrupts_a_wait_for_several_reaches_it_through_each_group_that_is_left() {
    let program = std::sync::Arc::new(Program::default());
    let [freed, left] = [(); 2].map(|()| Requests::new(&program));
    let ((first, end_of_first), (second, _end_of_second)) = (freed.make(), left.make());
    let until = std::time::Instant::now() + Duration::from_secs(60);
    std::thread::scope(|scope| {
        let wait = scope.spawn(|| Request::wait_all(&[&first, &second], Some(Duration::from_secs(120))));
        while lock(&freed.0.slept_in).is_empty() || lock(&left.0.slept_in).is_empty() {
            assert!(!wait.is_finished() && std::time::Instant::now() < until, "it sleeps");
            std::thread::yield_now();
        }
        end_of_first.complete(Ok(None));
        program.interrupts.interrupt();
        left.nudge(); // nobody nudges a group that has been freed
        assert_eq!(wait.join().unwrap().map_err(|error| error.status()), Err(Status::Interrupted));
    });
}

#[test]
fn a_wait_for_several_ends_with_the_first_or_with_all_and_leaves_nothing_behind() {
    let requests = Requests::default();
    let made: Vec<_> = (0..3).map(|_| requests.make()).collect();
    let (waited, completers): (Vec<Request>, Vec<Completer>) = made.into_iter().unzip();
    let all: Vec<&Request> = waited.iter().collect();
    assert_eq!(Request::wait_any(&all, Some(Duration::ZERO)), Ok(None));
    assert_eq!(Request::wait_all(&all, Some(Duration::ZERO)), Ok(false));
    assert!(all.iter().all(|request| lock(&request.record.state).several.is_empty()));
    let mut completers = completers.into_iter();
    let mut end = || completers.next().expect("there are three").complete(Ok(None));
    std::thread::scope(|scope| {
        let any = scope.spawn(|| Request::wait_any(&all, None));
        end();
        assert_eq!(any.join().unwrap(), Ok(Some((0, Ok(None)))));
        let both = scope.spawn(|| Request::wait_all(&all, None));
        end();
        end();
        assert_eq!(both.join().unwrap(), Ok(true));
    });
    assert_eq!(Request::wait_all(&[], None), Ok(true));
}

#[test]
fn a_wait_for_requests_of_two_nodes_is_interrupted_at_either() {
    let (one, other) = (of_a_node(), of_a_node());
    let ((first, _one), (second, _other)) = (one.0.make(), other.0.make());
    for (requests, program) in [&one, &other] {
        std::thread::scope(|scope| {
            let wait = scope.spawn(|| Request::wait_any(&[&first, &second], None));
            while lock(&one.0 .0.slept_in).is_empty() || lock(&other.0 .0.slept_in).is_empty() {
                std::thread::yield_now(); // until it sleeps, or is about to
            }
            program.interrupts.interrupt();
            requests.nudge();
            assert_eq!(wait.join().unwrap().map_err(|error| error.status()), Err(Status::Interrupted));
        });
    }
    assert!(lock(&one.0 .0.slept_in).is_empty() && lock(&other.0 .0.slept_in).is_empty());
}
