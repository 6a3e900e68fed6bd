use super::super::contract::{ConnId, Input, Liveness};
use super::super::testing::{host, named, rules, Bench};
use super::super::{Closed, Rules};
use super::WITHOUT_TOKEN;
use crate::error::Status;
use crate::types::{Epoch, JobInstance, Token, TokenHash};
use crate::wire::{Formed, Heartbeat, InEpoch, Message, NotYet, Recover, Reentry, Register};
use std::time::Duration;

pub(super) fn with_recovery(number: u32) -> Rules {
    Rules { recovery: true, ..rules(number, 0) }
}

/// The life with this number of the worker of this rank; its token is made of both.
pub(super) fn life(rank: u32, number: u32, life: u8, place: &str) -> Register {
    let serial = rank + 100 * u32::from(life);
    let token = |life: u8| Token([life * 16 + rank as u8; 32]);
    let tokens = if life == 0 { Vec::new() } else { vec![token(life - 1)] };
    let reentry = Some(Box::new(Reentry { tokens, next: TokenHash::of(&token(life)) }));
    Register { host: host(place), recovery: true, reentry, ..named(serial, number, &rank.to_string()) }
}

/// A complete cluster with recovery; connection i is rank i's.
fn formed(hosts: &[&str]) -> Bench {
    let number = hosts.len() as u32;
    let mut bench = Bench::new(with_recovery(number));
    for (rank, place) in (0u32..).zip(hosts) {
        bench.join(u64::from(rank), life(rank, number, 0, place));
    }
    bench.sent.clear();
    bench.lines.clear();
    bench
}

/// The process of this connection dies.
fn dies(bench: &mut Bench, conn: u64, register: &Register) {
    bench.feed(Input::Closed(ConnId(conn), Closed::Ended, "reset by peer".into()));
    bench.feed(Input::Probed(register.process, Liveness::Gone));
}

fn inside(bench: &mut Bench, conn: u64, epoch: u64) {
    bench.say(conn, Message::Recover(Recover { epoch: Epoch(epoch), inside: true }));
}

/// Time passes, in which these connections are heard.
pub(super) fn pass(bench: &mut Bench, span: Duration, heard: &[u64]) {
    bench.pass_with(span, |bench| heard.iter().for_each(|conn| bench.feed(Input::Heard(ConnId(*conn)))));
}

pub(super) fn told_formed(bench: &mut Bench) -> Vec<(u64, Formed)> {
    let sent = std::mem::take(&mut bench.sent);
    let formed = sent.into_iter().filter_map(|(conn, message)| match message {
        Message::Formed(formed) => Some((conn.0, formed)),
        _ => None,
    });
    formed.collect()
}

pub(super) fn not_yet(bench: &mut Bench, conn: u64) -> Option<NotYet> {
    let found = bench.sent.iter().rev().find_map(|(to, message)| match message {
        Message::NotYet(word) if to.0 == conn => Some(word.clone()),
        _ => None,
    });
    assert_eq!(found.is_some(), bench.closed.contains(&ConnId(conn)), "a node that has to wait is let go");
    found
}

pub(super) fn rejected(bench: &Bench, conn: u64) -> Option<(Status, String)> {
    bench.sent.iter().rev().find_map(|(to, message)| match message {
        Message::Rejected(word) if to.0 == conn => Some((word.status, word.reason.clone())),
        _ => None,
    })
}

pub(super) fn lost_nodes(bench: &Bench, conn: u64) -> Option<Vec<u32>> {
    bench.sent.iter().rev().find_map(|(to, message)| match message {
        Message::LostNodes(lost) if to.0 == conn => Some(lost.nodes.clone()),
        _ => None,
    })
}

#[test]
fn a_lost_node_with_its_token_takes_its_place_again() {
    let mut bench = formed(&["here", "here", "there"]);
    dies(&mut bench, 1, &life(1, 3, 0, "here"));
    assert_eq!(lost_nodes(&bench, 0), Some(vec![1]));
    assert!(bench.ended.is_none());
    pass(&mut bench, Duration::from_secs(20), &[0, 2]); // longer than the survivors of a broken job have
    assert!(bench.ended.is_none(), "{:?}", bench.ended);
    inside(&mut bench, 0, 1);
    bench.join(11, life(1, 3, 1, "elsewhere"));
    assert_eq!(told_formed(&mut bench), Vec::new(), "rank 2 is still awaited");
    inside(&mut bench, 2, 1);
    let told = told_formed(&mut bench);
    let conns: Vec<u64> = told.iter().map(|(conn, _)| *conn).collect();
    assert_eq!(conns, [0, 11, 2]);
    for (conn, formed) in &told {
        assert_eq!(formed.epoch, Epoch(2));
        assert_eq!(formed.restarts, u32::from(*conn == 11));
        assert_eq!((formed.members[1].process.pid, &formed.members[1].host.name[..]), (1101, "elsewhere"));
    }
    assert_eq!((told[1].1.rank, told[1].1.local_rank, told[1].1.local_size), (1, 0, 1));
    assert_eq!((told[0].1.rank, told[0].1.local_size), (0, 1));
    // The next loss is one of the new epoch, and the third life of the same node comes back with the second's token.
    for conn in [0, 2] {
        bench.say(conn, Message::InEpoch(InEpoch { epoch: Epoch(2) }));
    }
    bench.feed(Input::Closed(ConnId(11), Closed::Ended, "reset by peer".into()));
    bench.pass(Duration::from_millis(150));
    assert_eq!(lost_nodes(&bench, 2), Some(vec![1]));
    bench.join(12, life(1, 3, 2, "here"));
    inside(&mut bench, 0, 2);
    inside(&mut bench, 2, 2);
    let told = told_formed(&mut bench);
    assert_eq!(told.iter().map(|(_, formed)| formed.restarts).collect::<Vec<_>>(), [0, 2, 0]);
}

#[test]
fn without_its_token_a_node_waits_for_half_a_minute_after_the_loss() {
    let mut bench = formed(&["here", "here"]);
    dies(&mut bench, 1, &life(1, 2, 0, "here"));
    let stranger = |serial: u8| Register {
        reentry: Some(Box::new(Reentry { tokens: vec![Token([10; 32])], next: TokenHash::of(&Token([11; 32])) })),
        ..life(1, 2, serial, "here")
    };
    pass(&mut bench, Duration::from_secs(4), &[0]);
    bench.join(10, stranger(3));
    let word = not_yet(&mut bench, 10).expect("it has to wait");
    assert!(word.long && word.wait_ms == 26_000, "{word:?}");
    assert!(word.reason.contains("does not have the token of rank 1") && word.reason.contains("30 s"), "{word:?}");
    inside(&mut bench, 0, 1);
    pass(&mut bench, WITHOUT_TOKEN - Duration::from_millis(4_100), &[0]);
    bench.join(11, stranger(4)); // a node may ask again sooner than it was told to
    assert_eq!(not_yet(&mut bench, 11).map(|word| word.wait_ms), Some(100));
    pass(&mut bench, Duration::from_millis(100), &[0]);
    bench.join(12, stranger(5));
    assert_eq!(told_formed(&mut bench).len(), 2);
}

#[test]
fn a_node_that_claims_a_known_life_must_have_its_token() {
    let mut bench = formed(&["here", "here"]);
    let instance = Some(JobInstance([9; 16]));
    let same = Register { instance, ..life(1, 2, 0, "here") };
    let none = Register { reentry: None, ..same.clone() };
    let another = Register { reentry: life(1, 2, 1, "here").reentry, ..same.clone() };
    for (conn, thief) in [(10, none), (11, another)] {
        bench.join(conn, thief);
        let (status, reason) = rejected(&bench, conn).expect("it is refused");
        assert_eq!(status, Status::Rejected);
        assert!(reason.contains("rank 1") && reason.contains("without the token"), "{reason}");
    }
    bench.sent.clear();
    bench.beat(1, 1);
    assert!(matches!(bench.told(1)[..], [Message::HeartbeatEcho(_)]), "its own connection stands");
    bench.join(12, same);
    assert!(matches!(bench.told(12)[..], [Message::Formed(_)]) && bench.closed.contains(&ConnId(1)));
}

#[test]
fn a_place_whose_holder_answers_is_refused_by_name() {
    let mut bench = formed(&["here", "here"]);
    bench.join(10, life(1, 2, 1, "here"));
    let word = not_yet(&mut bench, 10).expect("its last life is asked first");
    assert!(!word.long && word.wait_ms <= 100, "{word:?}");
    bench.pass(Duration::from_millis(20));
    bench.feed(Input::Heard(ConnId(1)));
    bench.pass(Duration::from_millis(30));
    bench.join(11, life(1, 2, 1, "here"));
    let (status, reason) = rejected(&bench, 11).expect("it is refused");
    assert_eq!(status, Status::Rejected);
    assert!(reason.contains("rank 1") && reason.contains("pid 1001") && reason.contains("lives"), "{reason}");
    assert!(lost_nodes(&bench, 0).is_none(), "nobody is lost because of it");
}

#[test]
fn the_present_life_is_asked_for_a_sign() {
    let mut bench = formed(&["here", "there"]);
    bench.join(10, life(0, 2, 1, "here"));
    assert_eq!(bench.probes, [life(0, 2, 0, "here").process], "on this host it is looked at");
    bench.join(11, life(1, 2, 1, "there"));
    assert!(matches!(bench.told(1)[..], [Message::Report]));
}

#[test]
fn the_place_of_one_that_has_left_is_not_free() {
    let mut bench = formed(&["here", "here"]);
    bench.say(1, Message::Leave);
    bench.join(10, life(1, 2, 1, "here"));
    let (status, reason) = rejected(&bench, 10).expect("it is refused");
    assert!(status == Status::Rejected && reason.contains("a node that has left does not come back"), "{reason}");
}

#[test]
fn a_place_whose_holder_is_silent_is_free_after_the_heartbeat_time_out() {
    let mut bench = formed(&["here", "there"]);
    bench.feed(Input::Heard(ConnId(1)));
    let mut conn = 10;
    let from = bench.now;
    loop {
        bench.join(conn, life(1, 2, 1, "there"));
        if not_yet(&mut bench, conn).is_none() {
            break;
        }
        conn += 1;
        pass(&mut bench, Duration::from_millis(500), &[0]);
    }
    assert_eq!(rejected(&bench, conn), None);
    let waited = bench.now.since(from);
    assert!(waited >= Duration::from_secs(5) && waited < Duration::from_secs(7), "{waited:?}");
    // The old life comes back.
    bench.join(99, life(1, 2, 0, "there"));
    let (status, reason) = rejected(&bench, 99).expect("it is fenced");
    assert_eq!(status, Status::Fenced);
    assert!(reason.contains("another process has its place"), "{reason}");
}

#[test]
fn all_may_be_lost_and_come_back() {
    let mut bench = formed(&["here", "here"]);
    for rank in [0, 1] {
        dies(&mut bench, rank, &life(rank as u32, 2, 0, "here"));
    }
    assert!(bench.ended.is_none());
    bench.pass(Duration::from_secs(60));
    bench.join(10, life(0, 2, 1, "here"));
    assert!(told_formed(&mut bench).is_empty());
    bench.join(11, life(1, 2, 1, "here"));
    let told = told_formed(&mut bench);
    assert_eq!(told.iter().map(|(_, formed)| (formed.epoch.0, formed.restarts)).collect::<Vec<_>>(), [(2, 1), (2, 1)]);
}

#[test]
fn a_job_that_everybody_has_abandoned_ends_in_the_time_for_forming() {
    let mut bench = formed(&["here", "here"]);
    for rank in [0, 1] {
        dies(&mut bench, rank, &life(rank as u32, 2, 0, "here"));
    }
    bench.pass(Duration::from_secs(500));
    bench.join(10, life(0, 2, 1, "here"));
    dies(&mut bench, 10, &life(0, 2, 1, "here"));
    bench.pass(Duration::from_secs(590));
    assert!(bench.ended.is_none(), "one was here not so long ago");
    bench.pass(Duration::from_secs(20));
    let ended = bench.ended.expect("it has ended").expect_err("with the loss");
    assert_eq!(ended.status(), Status::PeerLost);
    assert!(ended.message().contains("rank 0"), "{ended}");
}

#[test]
fn one_that_is_lost_while_the_others_wait_is_awaited_too() {
    let mut bench = formed(&["here", "here", "here"]);
    dies(&mut bench, 2, &life(2, 3, 0, "here"));
    inside(&mut bench, 0, 1);
    inside(&mut bench, 1, 1);
    dies(&mut bench, 1, &life(1, 3, 0, "here"));
    assert_eq!(lost_nodes(&bench, 0), Some(vec![1, 2]));
    bench.join(12, life(2, 3, 1, "here"));
    assert!(told_formed(&mut bench).is_empty(), "rank 1 is awaited");
    // The second life of rank 2 does not last.
    bench.feed(Input::Closed(ConnId(12), Closed::Ended, "reset by peer".into()));
    bench.feed(Input::Probed(life(2, 3, 1, "here").process, Liveness::Gone));
    bench.join(11, life(1, 3, 1, "here"));
    assert!(told_formed(&mut bench).is_empty(), "rank 2 is awaited again");
    // Its third shows the token of the first, for the second's never came to hold.
    let third = Register { incarnation: life(2, 3, 2, "here").incarnation, ..life(2, 3, 1, "here") };
    bench.join(13, third);
    let told = told_formed(&mut bench);
    assert_eq!(
        told.iter().map(|(conn, formed)| (*conn, formed.restarts)).collect::<Vec<_>>(),
        [(0, 0), (11, 1), (13, 1)]
    );
}

#[test]
fn nobody_comes_back_to_a_job_that_a_member_has_left() {
    let mut bench = formed(&["here", "here", "here"]);
    dies(&mut bench, 2, &life(2, 3, 0, "here"));
    inside(&mut bench, 1, 1);
    bench.say(0, Message::Leave);
    bench.join(12, life(2, 3, 1, "here"));
    let (status, reason) = rejected(&bench, 12).expect("it is refused");
    assert_eq!(status, Status::PeerLeft);
    assert!(
        reason.contains("cannot come back") && reason.contains("rank 0") && reason.contains("has left"),
        "{reason}"
    );
    bench.pass(Duration::from_secs(6));
    assert!(bench.ended.is_some_and(|ended| ended.is_err()));
}

/// What a connection was told of its wish for the next epoch.
fn not_recovered(bench: &Bench, conn: u64) -> Option<Status> {
    bench.sent.iter().rev().find_map(|(to, message)| match message {
        Message::NotRecovered(word) if to.0 == conn => Some(word.failure.status),
        _ => None,
    })
}

#[test]
fn one_that_was_taken_for_lost_and_then_leaves_ends_nothing() {
    let mut bench = formed(&["here", "there", "here"]);
    pass(&mut bench, Duration::from_secs(7), &[0, 2]);
    assert_eq!(lost_nodes(&bench, 0), Some(vec![1]));
    bench.say(1, Message::Leave); // it was stopped, goes on, hears that it is fenced, and tidies up
    assert!(bench.sent.iter().any(|(to, message)| to.0 == 1 && matches!(message, Message::Bye)));
    inside(&mut bench, 0, 1);
    pass(&mut bench, Duration::from_secs(20), &[0, 2]);
    assert!(bench.ended.is_none(), "{:?}", bench.ended);
    assert_eq!(not_recovered(&bench, 0), None, "it is a lost node that left, not a member");
    inside(&mut bench, 2, 1);
    bench.join(11, life(1, 3, 1, "there"));
    assert_eq!(told_formed(&mut bench).len(), 3);
}

#[test]
fn one_that_is_lost_in_consequence_and_leaves_has_left_as_a_member() {
    let mut bench = formed(&["here", "there", "here"]);
    dies(&mut bench, 2, &life(2, 3, 0, "here"));
    inside(&mut bench, 0, 1);
    pass(&mut bench, Duration::from_secs(7), &[0]); // rank 1 is stopped meanwhile; its connection stands
    assert_eq!(lost_nodes(&bench, 0), Some(vec![1, 2]));
    assert_eq!(not_recovered(&bench, 0), None);
    bench.say(1, Message::Leave);
    assert!(bench.sent.iter().any(|(to, message)| to.0 == 1 && matches!(message, Message::Bye)));
    assert_eq!((not_recovered(&bench, 0), lost_nodes(&bench, 0)), (Some(Status::PeerLeft), Some(vec![2])));
}

#[test]
fn one_that_comes_back_and_is_silent_for_a_while_still_waits_for_the_next_epoch() {
    let mut bench = formed(&["here", "there", "here"]);
    bench.close(1, Closed::Ended);
    pass(&mut bench, Duration::from_secs(1), &[0, 2]);
    bench.join(11, life(1, 3, 1, "there"));
    inside(&mut bench, 0, 1);
    pass(&mut bench, Duration::from_secs(7), &[0, 2]);
    bench.sent.clear();
    bench.join(12, life(1, 3, 1, "there")); // the same life
    assert_eq!(told_formed(&mut bench), Vec::new(), "it is no member of the epoch that it never was in");
    assert_eq!(rejected(&bench, 12), None);
    inside(&mut bench, 2, 1);
    let told: Vec<(u64, u64, u32)> =
        told_formed(&mut bench).iter().map(|(conn, formed)| (*conn, formed.epoch.0, formed.restarts)).collect();
    assert_eq!(told, [(0, 2, 0), (12, 2, 1), (2, 2, 0)]);
}

/// It has not taken part in an epoch since; and it is not a node that was last heard by a scheduler before this one.
#[test]
fn one_that_comes_back_and_is_lost_once_more_is_said_to_have_been_heard() {
    let mut bench = formed(&["here", "there", "here"]);
    dies(&mut bench, 1, &life(1, 3, 0, "there"));
    pass(&mut bench, Duration::from_millis(150), &[0, 2]);
    bench.join(11, life(1, 3, 1, "there"));
    bench.lines.clear();
    bench.close(11, Closed::Ended);
    pass(&mut bench, Duration::from_millis(150), &[0, 2]);
    let is_so = |line: &String| line.starts_with("also gone: rank 1 ") && line.ends_with("; last heard 100 ms ago");
    assert!(bench.lines.iter().any(is_so), "{:?}", bench.lines);
}

#[test]
fn one_that_is_taken_for_lost_while_it_waits_for_an_epoch_hears_so() {
    let mut bench = formed(&["here", "there", "there", "here"]);
    inside(&mut bench, 1, 1);
    inside(&mut bench, 2, 1);
    pass(&mut bench, Duration::from_secs(7), &[0, 3]);
    assert_eq!(lost_nodes(&bench, 0), Some(vec![1, 2]));
    assert_eq!((not_recovered(&bench, 1), not_recovered(&bench, 2)), (Some(Status::Fenced), None));
    inside(&mut bench, 0, 1);
    assert_eq!(not_recovered(&bench, 0), None);
}

/// A node that was silent for too long while it waited, or before, and is then heard over the connection that it had.
#[test]
fn one_that_was_lost_after_another_and_lives_goes_on() {
    for waited in [true, false] {
        let mut bench = formed(&["here", "there", "there", "here"]);
        dies(&mut bench, 1, &life(1, 4, 0, "there"));
        bench.pass(Duration::from_millis(150));
        if waited {
            inside(&mut bench, 2, 1);
        }
        pass(&mut bench, Duration::from_secs(7), &[0, 3]);
        assert_eq!(lost_nodes(&bench, 0), Some(vec![1, 2]));
        // What it says first does not matter: it is to learn what it has missed.
        inside(&mut bench, 2, 1);
        assert_eq!(not_recovered(&bench, 2), None);
        assert!(bench.closed.contains(&ConnId(2)));
        bench.join(12, Register { instance: Some(JobInstance([9; 16])), ..life(2, 4, 0, "there") });
        assert_eq!(lost_nodes(&bench, 0), Some(vec![1]));
        [0, 12, 3].into_iter().for_each(|conn| inside(&mut bench, conn, 1));
        told_formed(&mut bench);
        bench.join(11, life(1, 4, 1, "there"));
        let mut conns: Vec<u64> = told_formed(&mut bench).iter().map(|(conn, _)| *conn).collect();
        conns.sort_unstable();
        assert_eq!(conns, [0, 3, 11, 12]);
    }
}

#[test]
fn a_scheduler_that_is_stopped_tells_those_who_wait_for_an_epoch() {
    for is_lost in [false, true] {
        let mut bench = formed(&["here", "here", "here"]);
        if is_lost {
            dies(&mut bench, 2, &life(2, 3, 0, "here"));
        }
        inside(&mut bench, 0, 1);
        bench.feed(Input::Stop);
        assert_eq!(not_recovered(&bench, 0), Some(Status::Aborted), "{is_lost}");
        assert_eq!(bench.verdict(1).map(|first| first.status), Some(Status::Aborted), "{is_lost}");
        assert!(bench.ended.is_some_and(|ended| ended.is_err()));
    }
}

/// A node that has come back and waits. Its echoes are lost with their connections, one after the other: it comes back at
/// once.
#[test]
fn one_that_waits_while_its_connections_break_is_not_called_deaf() {
    // Its answer may come right before the scheduler looks at all nodes, or right after.
    for (hears, back_after) in [(true, 150), (true, 950), (false, 150), (false, 950)] {
        let mut bench = formed(&["here", "there", "there"]);
        let beat = |bench: &mut Bench, conn, sequence, echoed| {
            bench.say(conn, Message::Heartbeat(Heartbeat { sequence, echoed, ..Heartbeat::default() }));
        };
        dies(&mut bench, 1, &life(1, 3, 0, "there"));
        pass(&mut bench, Duration::from_millis(back_after), &[0, 2]);
        let (interval, mut conn) = (Duration::from_secs(1), 11);
        bench.join(conn, life(1, 3, 1, "there"));
        for sequence in 1..8 {
            pass(&mut bench, interval, &[0, 2]);
            beat(&mut bench, conn, sequence, 0);
            bench.feed(Input::Closed(ConnId(conn), Closed::Broken, "reset by peer".into()));
            conn += 1;
            bench.join(conn, life(1, 3, 1, "there"));
        }
        pass(&mut bench, interval, &[0, 2]);
        beat(&mut bench, conn, 8, 0);
        pass(&mut bench, interval * 7 / 8, &[0, 2]);
        inside(&mut bench, 0, 1);
        inside(&mut bench, 2, 1);
        assert!(!told_formed(&mut bench).is_empty(), "it is there");
        bench.say(0, Message::InEpoch(InEpoch { epoch: Epoch(2) }));
        bench.say(2, Message::InEpoch(InEpoch { epoch: Epoch(2) }));
        pass(&mut bench, interval / 4, &[0, 2]);
        beat(&mut bench, conn, 9, if hears { 8 } else { 0 });
        pass(&mut bench, interval * 2, &[0, 2, conn]);
        let failure = bench.verdict(0);
        assert_eq!(
            failure.as_ref().is_none_or(|failure| !failure.cause.contains("has not heard")),
            hears,
            "{back_after}: {failure:?}"
        );
    }
}

#[test]
fn the_time_of_a_job_without_nodes_counts_from_the_last_loss() {
    let mut bench = formed(&["here", "here"]);
    for rank in [0, 1] {
        dies(&mut bench, rank, &life(rank as u32, 2, 0, "here"));
    }
    bench.pass(Duration::from_secs(590));
    bench.join(10, life(0, 2, 1, "here"));
    dies(&mut bench, 10, &life(0, 2, 1, "here"));
    bench.pass(Duration::from_secs(500));
    assert!(bench.ended.is_none(), "{:?}", bench.ended);
    bench.pass(Duration::from_secs(101));
    assert!(bench.ended.is_some_and(|ended| ended.is_err()));
}

#[test]
fn a_node_that_came_back_and_was_away_again_is_not_told_of_the_epoch_before() {
    let mut bench = formed(&["here", "there", "here"]);
    dies(&mut bench, 1, &life(1, 3, 0, "there"));
    pass(&mut bench, Duration::from_millis(150), &[0, 2]);
    bench.join(11, life(1, 3, 1, "there"));
    bench.feed(Input::Closed(ConnId(11), Closed::Ended, "reset by peer".into()));
    pass(&mut bench, Duration::from_millis(150), &[0, 2]);
    assert!(bench.lines.iter().any(|line| line.starts_with("also gone: rank 1")), "{:?}", bench.lines);
    told_formed(&mut bench);
    bench.join(12, life(1, 3, 1, "there"));
    assert_eq!(told_formed(&mut bench), Vec::new(), "it was never in epoch 1");
    inside(&mut bench, 0, 1);
    inside(&mut bench, 2, 1);
    let told = told_formed(&mut bench);
    assert_eq!(
        told.iter().map(|(conn, formed)| (*conn, formed.epoch)).collect::<Vec<_>>(),
        [(0, 2), (12, 2), (2, 2)].map(|(conn, epoch)| (conn, Epoch(epoch)))
    );
}
