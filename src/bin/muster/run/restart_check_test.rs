use super::super::question::LOOKS;
use super::*;
use crate::status::told::testing;
use muster::error::Failure;
use muster::types::Epoch;
use muster::wire::{encode_frame, Message, StatusPart};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

const START: Duration = Duration::from_secs(7);

/// A scheduler that says nothing by itself, and the one that asks it.
fn asked() -> (TcpListener, RestartCheck) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = ("127.0.0.1".to_owned(), listener.local_addr().unwrap().port());
    (listener, RestartCheck::new(address, false))
}

/// The next question's connection.
fn question(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    let mut stream = loop {
        match listener.accept() {
            Ok((stream, _)) => break stream,
            Err(_) => assert!(Instant::now() < until, "nobody asks"),
        }
        std::thread::sleep(LOOKS[0]);
    };
    stream.set_nonblocking(false).unwrap();
    stream.read_exact(&mut [0; 24 + 4 + 4]).unwrap();
    stream
}

fn tell(mut stream: TcpStream, status: Option<Status>) {
    let failure = status.map(|status| {
        let cause = "did\x1b[2J it".to_owned();
        Failure { status, culprit: Some(testing::who(1)), cause, epoch: Epoch(3), group: None, sequence: 0 }
    });
    let mut job = testing::told().job;
    job.failure = failure;
    let part = Message::StatusPart(StatusPart { job: Some(job), last: true, ..StatusPart::default() });
    let mut frame = Vec::new();
    encode_frame(part.kind(), 0, &part.encode(), &mut frame);
    stream.write_all(&frame).unwrap();
}

/// Looks until there is an answer, and gives that with the workers that it is about.
fn answer(check: &mut RestartCheck, due: &[usize]) -> (Vec<usize>, Answer) {
    let until = Instant::now() + Duration::from_secs(20);
    while Instant::now() < until {
        let (about, answer) = check.look(due, START);
        if !about.is_empty() {
            return (about, answer);
        }
        std::thread::sleep(LOOKS[0]);
    }
    panic!("it answers, or it does not");
}

#[test]
fn the_scheduler_says_whether_the_job_goes_on() {
    for status in [None, Some(Status::PeerLost), Some(Status::Aborted)] {
        let (listener, mut check) = asked();
        assert_eq!(check.look(&[2, 3], START), (vec![], Answer::Silence));
        assert_eq!(check.looks_at(), START + LOOKS[0]);
        tell(question(&listener), status);
        let expected = match status {
            Some(Status::Aborted) => {
                Answer::Aborted("rank 1 (node id \"1\", host a, pid 801) did\\u{1b}[2J it".to_owned())
            }
            _ => Answer::GoesOn,
        };
        assert_eq!(answer(&mut check, &[2, 3]), (vec![2, 3], expected));
    }
}

#[test]
fn one_that_ends_while_it_is_asked_needs_an_answer_of_its_own() {
    let (listener, mut check) = asked();
    check.look(&[1], START);
    let first = question(&listener);
    assert!(check.look(&[2], START).0.is_empty());
    tell(first, None);
    assert_eq!(answer(&mut check, &[1, 2, 3]), (vec![1], Answer::GoesOn), "the others may have ended after that");
    tell(question(&listener), Some(Status::Aborted));
    let (about, said) = answer(&mut check, &[2, 3]);
    assert_eq!(about, [2, 3]);
    assert!(matches!(said, Answer::Aborted(_)));
}

#[test]
fn an_answer_that_nobody_waits_for_any_more_is_not_taken_for_anothers() {
    let (listener, mut check) = asked();
    check.look(&[1], START);
    tell(question(&listener), None);
    assert_eq!(answer(&mut check, &[2]).0, [1]);
    tell(question(&listener), None);
    assert_eq!(answer(&mut check, &[2]), (vec![2], Answer::GoesOn));
}

#[test]
fn a_connection_that_ends_says_nothing_and_a_port_that_refuses_does() {
    let (listener, mut check) = asked();
    check.look(&[1], START);
    drop(question(&listener));
    drop(question(&listener));
    tell(question(&listener), Some(Status::Aborted));
    assert!(matches!(answer(&mut check, &[1]), (_, Answer::Aborted(_))), "it was asked again");
    check.look(&[1], START);
    drop((question(&listener), listener));
    assert_eq!(answer(&mut check, &[1]).1, Answer::Refused);
}

#[test]
fn one_that_stands_still_is_waited_for_in_vain_and_not_for_long() {
    let (_listener, mut check) = asked();
    let began = Instant::now();
    check.look(&[1], START);
    let mut pauses = vec![check.looks_at() - START];
    while check.look(&[1], START).0.is_empty() {
        assert!(began.elapsed() < Duration::from_secs(20));
        pauses.push(check.looks_at() - START);
        std::thread::sleep(LOOKS[0]);
    }
    assert!(began.elapsed() >= PATIENCE);
    let pauses: Vec<u128> = pauses.iter().map(Duration::as_millis).take(8).collect();
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 50, 50]);
}

#[test]
fn a_port_on_another_host_that_refuses_for_long_is_gone() {
    let ms = Duration::from_millis;
    for is_remote in [true, false] {
        let mut check = RestartCheck::new(("127.0.0.1".to_owned(), 1), is_remote);
        let gone = if is_remote { Answer::Gone } else { Answer::Refused };
        for (answer, now, told) in [
            (Answer::Refused, 1000, Answer::Refused),
            (Answer::Refused, 5999, Answer::Refused),
            (Answer::Silence, 6000, Answer::Silence),
            (Answer::Refused, 7000, Answer::Refused), // the time begins anew
            (Answer::Refused, 12_000, gone),
        ] {
            assert_eq!(check.weigh(answer, ms(now)), told, "at {now} ms");
        }
    }
}

#[test]
fn a_name_that_leads_nowhere_says_nothing() {
    assert_eq!(how_is_it("no such host", 1), Answer::Silence);
}
