//! Messages in whole clusters in this process: over real sockets, over the test link, which uses every freedom that a
//! transport has, and over links that damage what passes, or break.

use super::super::cluster_test::{hard, one_cause, plain, run};
use super::super::damage_test::{told_by, Trouble};
use super::{Direction, Post};
use crate::error::{Error, Failure, Result, Status};
use crate::runtime::base::request::{request, Received, Request};
use crate::runtime::base::sync::lock;
use crate::runtime::collectives::failure::tests::Bench;
use crate::runtime::groups::group::Group;
use crate::runtime::links::link::LinkEnd;
use crate::runtime::links::peers::Mail;
use crate::runtime::memory::buffer::CallBuffers;
use crate::schedules::{Buffer, Span};
use crate::types::{DType, GroupId, Time};
use crate::wire::Channel;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(20);

fn start(
    group: &Arc<Group>,
    direction: Direction,
    (buffers, length): (CallBuffers<'static>, usize),
) -> Result<Request> {
    group.start_messages(Post::new(direction, DType::Uint8, length as u64, buffers), None)
}

/// What a rank sends; the memory is given up, for an operation may outlive the test that fails.
#[inline(never)] // ctests/asan/lsan.supp names it
fn message(from: u32, to: u32, length: usize) -> &'static mut [u8] {
    (0..length).map(|i| (i * 7 + (i >> 8) * 3 + from as usize * 50 + to as usize * 20) as u8).collect::<Vec<_>>().leak()
}

#[inline(never)] // ctests/asan/lsan.supp names it
fn room(length: usize) -> CallBuffers<'static> {
    CallBuffers::of(&[], vec![0xee; length].leak())
}

fn ended(request: &Request) -> Result<Option<Received>> {
    request.wait(Some(4 * SOON)).expect("an operation ends with its time-out, which is 60 s, if not before")
}

/// Everyone sends everyone a message of each of these lengths, itself included.
pub(crate) fn all_to_all(group: &Arc<Group>, lengths: &[usize]) {
    let (own, size) = (group.rank().unwrap(), group.size());
    let places = || (0..size).flat_map(|peer| lengths.iter().map(move |length| (peer, *length)));
    let receives: Vec<_> = places()
        .map(|(from, length)| {
            let (out, direction) =
                (room(length + 3), Direction::Receive { from: Some(from), tag: Some(length as i32) });
            (from, length, out, start(group, direction, (out, length + 3)).unwrap())
        })
        .collect();
    let sends: Vec<_> = places()
        .map(|(to, length)| {
            let bytes = CallBuffers::of(message(own, to, length), &mut []);
            start(group, Direction::Send { to, tag: length as i32 }, (bytes, length)).unwrap()
        })
        .collect();
    for send in &sends {
        assert_eq!(ended(send), Ok(None));
    }
    for (source, length, out, receive) in receives {
        let (tag, count, dtype) = (length as i32, length as u64, DType::Uint8);
        assert_eq!(ended(&receive), Ok(Some(Received { source, tag, count, dtype })));
        let memory = out.memory();
        let out = memory.bytes(Span::new(Buffer::Output, 0, length + 3));
        assert!(out[..length] == *message(source, own, length) && out[length..] == [0xee; 3]);
    }
}

#[test]
fn whatever_a_transport_does_every_message_arrives_whole() {
    for wrap in [plain(), hard(1 << 20), hard(3000), hard(61)] {
        run(3, &wrap, |cluster, _| {
            all_to_all(&cluster.group(GroupId::WORLD), &[0, 1, 500, 65_536, 65_537, 600_000]);
        });
    }
    run(2, &hard(1), |cluster, _| all_to_all(&cluster.group(GroupId::WORLD), &[0, 2, 3000, 66_000]));
}

/// What every rank is told when one of them has this trouble in the middle of messages.
fn troubled(trouble: Trouble) -> Vec<Option<Error>> {
    told_by(trouble, |cluster| loop {
        let group = cluster.group(GroupId::WORLD);
        let (own, size) = (group.rank().unwrap(), group.size());
        let (from, to) = ((own + size - 1) % size, (own + 1) % size);
        let receive = start(&group, Direction::Receive { from: Some(from), tag: None }, (room(200_000), 200_000));
        let bytes = CallBuffers::of(message(own, to, 200_000), &mut []);
        let send = start(&group, Direction::Send { to, tag: 1 }, (bytes, 200_000));
        let outcomes = [send, receive].map(|started| started.and_then(|request| ended(&request)));
        if let Some(Err(error)) = outcomes.into_iter().find(Result::is_err) {
            break error;
        }
    })
}

#[test]
fn damage_and_breaks_revoke_the_group_with_their_name() {
    let sentence = one_cause(troubled(Trouble::Flip), Status::Corrupt);
    assert!(sentence.contains("messages on world: on the link to rank "), "{sentence}");
    assert!(sentence.contains("a payload with a wrong checksum"), "{sentence}");
    let sentence = one_cause(troubled(Trouble::Break), Status::Link);
    assert!(sentence.contains("cannot reach each other although both live"), "{sentence}");
}

#[test]
fn a_bug_of_ours_ends_the_group_for_all_and_nobody_waits_for_ever() {
    let sentence = one_cause(troubled(Trouble::Panic), Status::Internal);
    assert!(sentence.contains("messages on world: a bug in this library"), "{sentence}");
}

#[test]
fn messages_that_begin_when_their_group_is_broken_end_all_the_same() {
    run(1, &plain(), |cluster, _| {
        let group = cluster.group(GroupId::WORLD);
        let (cause, epoch) = ("broken between the look at that and the first message".to_owned(), group.epoch());
        group.context.break_with(Failure {
            status: Status::Revoked,
            culprit: None,
            cause,
            epoch,
            group: None,
            sequence: 0,
        });
        let handle = group.messages.handle().unwrap();
        let (request, completer) = request();
        let direction = Direction::Receive { from: None, tag: None };
        let post = Post::new(direction, DType::Uint8, 0, room(0));
        {
            let mut engine = lock(&handle.engine);
            match engine.check(&post, None) {
                Ok(()) => engine.post(post, Time(0), 0, Time::NEVER, completer),
                Err(error) => completer.complete(Err(error)), // the progress thread was here before
            }
        }
        let outcome = request.wait(Some(SOON)).expect("the progress thread looks up");
        assert_eq!(outcome.unwrap_err().status(), Status::Revoked);
    });
}

/// The thread's bell rang once for the end of the group. If the thread rang it itself by looking, it would never sleep
/// again.
#[test]
fn a_progress_thread_whose_group_is_over_sleeps_until_it_is_ended() {
    run(1, &plain(), |cluster, _| {
        let group = cluster.group(GroupId::WORLD);
        let receive = start(&group, Direction::Receive { from: None, tag: None }, (room(0), 0)).unwrap();
        let (cause, epoch, group_id) = ("over".to_owned(), group.epoch(), Some(group.id()));
        let over = Failure { status: Status::Revoked, culprit: None, cause, epoch, group: group_id, sequence: 0 };
        group.context.break_with(over.clone());
        assert_eq!(ended(&receive).unwrap_err().status(), Status::Revoked);
        let turns = || group.messages.handle().unwrap().turns.load(std::sync::atomic::Ordering::Relaxed);
        let before = turns();
        for _ in 0..10 {
            std::thread::sleep(Duration::from_millis(10)); // a thread that does not sleep shows within that
            group.context.break_with(over.clone()); // no news
        }
        assert!(turns() - before <= 3, "{} turns", turns() - before);
        group.end_progress(over);
    });
}

/// The scheduler says nothing of a peer that is silent, for longer than another message may take.
#[test]
fn a_question_about_one_peer_holds_up_no_message_of_another() {
    let bench = Bench::with_time_out(20_000, false);
    let receive = |from| Post::new(Direction::Receive { from: Some(from), tag: None }, DType::Uint8, 8, room(8));
    let of_silent = bench.group.start_messages(receive(1), None).unwrap();
    let silent = LinkEnd::Silent("nothing is heard".to_owned());
    bench.group.deliver(Channel::Messages, Mail::Failed(1, silent));
    let begin = Instant::now();
    bench.group.set_timeout_ms(300).unwrap();
    let short = bench.group.start_messages(receive(2), None).unwrap();
    assert_eq!(ended(&short).unwrap_err().status(), Status::Timeout);
    assert!(begin.elapsed() < bench.group.context.bounds.most(), "{:?}", begin.elapsed());
    assert!(of_silent.test().is_none(), "it is still asked about");
    let over = Failure {
        status: Status::Revoked,
        culprit: None,
        cause: "over".to_owned(),
        epoch: bench.group.epoch(),
        group: None,
        sequence: 0,
    };
    bench.group.context.break_with(over.clone());
    assert_eq!(ended(&of_silent).unwrap_err().status(), Status::Revoked);
    bench.group.end_progress(over);
}

#[test]
fn a_refused_half_takes_the_other_with_it_before_anything_has_begun() {
    run(2, &plain(), |cluster, _| {
        const LONG: usize = 4 << 20;
        let group = cluster.group(GroupId::WORLD);
        if group.rank() == Some(1) {
            let long = CallBuffers::of(message(1, 0, LONG), &mut []);
            let sent = start(&group, Direction::Send { to: 0, tag: 5 }, (long, LONG)).unwrap();
            let short = start(&group, Direction::Send { to: 0, tag: 6 }, (room(0), 0)).unwrap();
            assert_eq!([ended(&sent), ended(&short)], [Ok(None), Ok(None)]);
            return;
        }
        let (from, dtype) = (Some(1), DType::Uint8);
        let behind = start(&group, Direction::Receive { from, tag: Some(6) }, (room(0), 0)).unwrap();
        assert!(ended(&behind).is_ok(), "the RTS before it is here, too");
        let posts = |from, out| {
            let direction = Direction::Receive { from: Some(from), tag: Some(5) };
            let buffers = CallBuffers::of(message(0, 0, LONG), &mut []);
            let send = Post::new(Direction::Send { to: 0, tag: 5 }, dtype, LONG as u64, buffers);
            (Post::new(direction, dtype, LONG as u64, out), Some(send))
        };
        let out = room(LONG);
        let (receive, send) = posts(1, out);
        let refused = group.start_messages(receive, send).map(|_| ()).unwrap_err();
        assert_eq!(refused.status(), Status::State, "{}", refused.message());
        // Any later receive still finds the message of rank 1; and a receive beside it makes the send possible.
        let again = start(&group, Direction::Receive { from, tag: Some(5) }, (out, LONG)).unwrap();
        assert_eq!(ended(&again), Ok(Some(Received { source: 1, tag: 5, count: LONG as u64, dtype })));
        let (receive, send) = posts(0, out);
        let own = group.run_messages(receive, send);
        assert_eq!(own, Ok(Some(Received { source: 0, tag: 5, count: LONG as u64, dtype })));
    });
}
