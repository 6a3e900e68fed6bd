use super::super::contract::{Closed, Input, Rules};
use super::super::testing::{host, named, rules, Bench};
use crate::error::{Culprit, Failure, Status};
use crate::types::{Call, CallKind, DType, Epoch, GroupId, Secret};
use crate::wire::{
    Abort, Formed, GroupProgress, GroupWish, Heartbeat, InEpoch, MakeGroup, Message, Recover, Register, Revoke,
    Suspect, WhereAre,
};
use std::time::Duration;

fn inside(bench: &mut Bench, conn: u64, epoch: u64) {
    bench.say(conn, Message::Recover(Recover { epoch: Epoch(epoch), inside: true }));
}

fn waits_no_more(bench: &mut Bench, conn: u64, epoch: u64) {
    bench.say(conn, Message::Recover(Recover { epoch: Epoch(epoch), inside: false }));
}

fn takes_up(bench: &mut Bench, conn: u64, epoch: u64) {
    bench.say(conn, Message::InEpoch(InEpoch { epoch: Epoch(epoch) }));
}

/// The nodes that were sent a `Formed`, and what is in it.
fn formed(bench: &mut Bench) -> Vec<(u64, Formed)> {
    let sent = std::mem::take(&mut bench.sent);
    sent.into_iter()
        .filter_map(|(conn, message)| match message {
            Message::Formed(formed) => Some((conn.0, formed)),
            _ => None,
        })
        .collect()
}

fn not_recovered(bench: &mut Bench) -> Vec<(u64, Failure)> {
    let sent = std::mem::take(&mut bench.sent);
    sent.into_iter()
        .filter_map(|(conn, message)| match message {
            Message::NotRecovered(word) => Some((conn.0, word.failure)),
            _ => None,
        })
        .collect()
}

/// The groups that these connections were told are revoked, and the first sentence.
fn revoked(bench: &mut Bench, conn: u64) -> Vec<(GroupId, Status, String)> {
    let mut told = Vec::new();
    for (to, message) in &bench.sent {
        if let (true, Message::Revoked(word)) = (to.0 == conn, message) {
            told.push((word.failure.group.expect("of a group"), word.failure.status, word.failure.to_string()));
        }
    }
    told
}

#[test]
fn a_rank_that_wants_an_epoch_in_vain_gives_its_groups_up_all_the_same() {
    let mut bench = Bench::formed(&["here", "here", "here"]);
    bench.say(2, Message::Leave);
    inside(&mut bench, 0, 1);
    let told = revoked(&mut bench, 1);
    assert!(!told.is_empty(), "somebody may wait for it in a collective");
    assert!(told.contains(&(GroupId::WORLD, Status::Revoked, told[0].2.clone())), "nobody waits for it: {told:?}");
    assert!(told[0].2.contains("rank 0") && told[0].2.contains("called muster_recover"), "{told:?}");
    assert_eq!(not_recovered(&mut bench)[0].1.status, Status::PeerLeft);
}

/// A cluster with recovery whose nodes are all on another host.
fn recovering(size: u32) -> Bench {
    let mut bench = Bench::new(Rules { recovery: true, ..rules(size, 0) });
    let register = |id: u32| Register { recovery: true, host: host("there"), ..named(id, size, &id.to_string()) };
    (0..size).for_each(|id| bench.join(id.into(), register(id)));
    bench.sent.clear();
    bench
}

fn is_killed(bench: &mut Bench, conn: u64) {
    bench.close(conn, Closed::Ended);
    bench.pass(Duration::from_millis(101));
}

#[test]
fn that_the_cluster_cannot_be_whole_again_is_told_before_anybody_asks() {
    for left_first in [true, false] {
        let mut bench = recovering(4);
        if left_first {
            bench.say(0, Message::Leave);
        }
        is_killed(&mut bench, 2);
        if !left_first {
            assert_eq!(not_recovered(&mut bench), [], "it may be started again");
            bench.say(0, Message::Leave);
        }
        let told = not_recovered(&mut bench);
        let words = told.iter().map(|(conn, word)| (*conn, word.status, word.epoch)).collect::<Vec<_>>();
        let status = Status::PeerLeft;
        assert_eq!(words, [(1, status, Epoch(1)), (3, status, Epoch(1))], "when they ask the scheduler may be gone");
        assert!(told[0].1.to_string().contains("rank 0"), "{told:?}");
        // A node whose connection was broken meanwhile is told, too. Nobody is told twice over one connection.
        bench.close(3, Closed::Broken);
        let instance = Some(bench.scheduler.conductor.cluster.identity.instance);
        bench.join(13, Register { instance, recovery: true, host: host("there"), ..named(3, 4, "3") });
        let told = not_recovered(&mut bench);
        assert_eq!(told.iter().map(|(conn, word)| (*conn, word.status)).collect::<Vec<_>>(), [(13, status)]);
        bench.say(13, Message::Leave);
        assert_eq!(not_recovered(&mut bench), []);
    }
}

#[test]
fn nobody_is_told_so_of_a_cluster_that_can_be_whole_again_or_of_an_abort() {
    let mut bench = recovering(3);
    is_killed(&mut bench, 2);
    assert_eq!(not_recovered(&mut bench), []);
    let mut bench = recovering(3);
    bench.say(2, Message::Leave);
    assert_eq!(not_recovered(&mut bench), [], "nobody misses it");
    bench.say(1, Message::Abort(Abort { code: 1, reason: "enough".to_owned() }));
    assert_eq!(not_recovered(&mut bench), [], "the verdict says it");
    let mut bench = Bench::formed(&["there", "there", "there"]);
    is_killed(&mut bench, 2);
    assert_eq!(not_recovered(&mut bench), [], "without recovery everybody knows");
}

fn mismatch(group: GroupId, epoch: u64) -> Message {
    let cause = "they disagree".to_owned();
    let epoch = Epoch(epoch);
    let failure = Failure { status: Status::Mismatch, culprit: None, cause, epoch, group: Some(group), sequence: 0 };
    Message::Revoke(Revoke { failure })
}

#[test]
fn the_next_epoch_begins_when_every_node_is_inside() {
    let mut bench = Bench::formed(&["here", "here", "there"]);
    bench.say(2, mismatch(GroupId::WORLD, 1));
    bench.sent.clear();
    for conn in [2, 0] {
        inside(&mut bench, conn, 1);
        assert_eq!(formed(&mut bench), Vec::new());
    }
    inside(&mut bench, 1, 1);
    let told = formed(&mut bench);
    let members: Vec<u32> = told.iter().map(|(_, formed)| formed.index).collect();
    assert_eq!(members, [0, 1, 2]);
    for (conn, formed) in &told {
        assert_eq!((formed.epoch, formed.index, u64::from(formed.rank)), (Epoch(2), *conn as u32, *conn));
        assert_eq!(formed.secret, Secret([1; 32]), "each epoch has a secret of its own");
    }
    assert!(bench.lines.last().is_some_and(|line| line.contains("epoch 2 has begun")), "{:?}", bench.lines);
    for epoch in 2..5 {
        for conn in 0..3 {
            takes_up(&mut bench, conn, epoch);
            inside(&mut bench, conn, epoch);
        }
        let epochs: Vec<Epoch> = formed(&mut bench).into_iter().map(|(_, formed)| formed.epoch).collect();
        assert_eq!(epochs, [Epoch(epoch + 1); 3]);
    }
}

#[test]
fn the_first_who_is_inside_revokes_every_group_that_still_holds() {
    let mut bench = Bench::formed(&["here", "here"]);
    bench.say(1, mismatch(GroupId::WORLD, 1));
    bench.sent.clear();
    inside(&mut bench, 1, 1);
    let told = revoked(&mut bench, 0);
    assert_eq!(
        told.iter().map(|(group, status, _)| (*group, *status)).collect::<Vec<_>>(),
        [(GroupId::UNIVERSE, Status::Revoked)]
    );
    assert!(told[0].2.contains("called muster_recover, which ends epoch 1"), "{told:?}");
    assert!(told[0].2.contains("rank 1"), "{told:?}");
    // An earlier cause stays what it was, and is told again to every node that asks.
    bench.sent.clear();
    bench.say(0, mismatch(GroupId::WORLD, 1));
    assert_eq!(revoked(&mut bench, 0)[0].1, Status::Mismatch);
}

#[test]
fn nothing_of_the_epoch_before_is_acted_on() {
    let mut bench = Bench::formed(&["here", "here"]);
    for conn in 0..2 {
        inside(&mut bench, conn, 1);
    }
    bench.sent.clear();
    let call = Call { kind: CallKind::Barrier, dtype: None, op: None, root: None, count: 0, layout: 0 };
    let progress = |sequence, call| {
        vec![GroupProgress { group: GroupId::WORLD, entered: sequence, finished: 0, age_ms: 0, call: Some(call) }]
    };
    let wish = GroupWish::Ranks(vec![0, 1]);
    let old = [
        mismatch(GroupId::WORLD, 1),
        mismatch(GroupId::WORLD, 2), // it says so, but has not taken epoch 2 up
        Message::Suspect(Suspect { peer: 1, evidence: "its link ended".to_owned() }),
        Message::WhereAre(WhereAre { query: 1, group: GroupId::WORLD, sequence: 1, about: None }),
        Message::MakeGroup(MakeGroup { parent: GroupId::WORLD, nth: 1, sequence: 1, digest: 0, wish }),
    ];
    for message in old {
        bench.say(0, message);
    }
    let other = Call { kind: CallKind::Allreduce, dtype: Some(DType::Float32), count: 1, ..call };
    takes_up(&mut bench, 1, 2);
    for (conn, call) in [(0, other), (1, call)] {
        bench.say(
            conn,
            Message::Heartbeat(Heartbeat {
                sequence: 1,
                echoed: 0,
                progress: progress(1, call),
                ..Heartbeat::default()
            }),
        );
    }
    bench.sent.retain(|(_, message)| !matches!(message, Message::HeartbeatEcho(_)));
    assert_eq!(bench.sent, Vec::new(), "not even a mismatch is seen: the two speak of different epochs");
    assert_eq!(bench.probes, Vec::new());
    takes_up(&mut bench, 0, 2);
    bench.say(0, mismatch(GroupId::WORLD, 1));
    assert_eq!(bench.sent, Vec::new());
    bench.say(0, mismatch(GroupId::WORLD, 2));
    assert_eq!(revoked(&mut bench, 1)[0].0, GroupId::WORLD);
}

#[test]
fn a_wish_of_another_epoch_is_none() {
    let mut bench = Bench::formed(&["here", "here"]);
    inside(&mut bench, 0, 2);
    inside(&mut bench, 0, 0);
    inside(&mut bench, 1, 1);
    assert_eq!(formed(&mut bench), Vec::new());
    inside(&mut bench, 0, 1);
    assert_eq!(formed(&mut bench).len(), 2);
}

#[test]
fn a_rank_that_stops_waiting_hears_which_ranks_were_awaited() {
    let mut bench = Bench::formed(&["here", "here", "there", "there", "there", "there"]);
    inside(&mut bench, 0, 1);
    bench.sent.clear();
    waits_no_more(&mut bench, 0, 1);
    let told = not_recovered(&mut bench);
    assert_eq!(told.len(), 1);
    let (conn, failure) = &told[0];
    assert_eq!((*conn, failure.status), (0, Status::Timeout));
    assert_eq!(failure.culprit.as_ref().and_then(|culprit| culprit.rank), Some(1));
    let words = failure.to_string();
    assert!(words.contains("has not called muster_recover in time; awaited: rank 1"), "{words}");
    assert!(words.contains("rank 3") && words.ends_with("and 2 more"), "{words}");
    // Rank 0, which has stopped waiting, does not count as inside any more.
    for conn in 1..6 {
        inside(&mut bench, conn, 1);
    }
    assert_eq!(formed(&mut bench), Vec::new());
    inside(&mut bench, 0, 1);
    assert_eq!(formed(&mut bench).len(), 6);
}

/// The sentence, and the rank that it names first, that a node is told when its time inside is up.
fn gives_up(bench: &mut Bench, conn: u64) -> (Option<u32>, String) {
    bench.sent.clear();
    waits_no_more(bench, conn, 1);
    let told = not_recovered(bench);
    assert_eq!((told.len(), told[0].0, told[0].1.status), (1, conn, Status::Timeout));
    (told[0].1.culprit.as_ref().and_then(|culprit| culprit.rank), told[0].1.to_string())
}

#[test]
fn a_rank_that_never_called_is_named_before_those_that_gave_up_a_moment_sooner() {
    let mut bench = Bench::formed(&["here", "there", "there"]);
    [0, 2].into_iter().for_each(|conn| inside(&mut bench, conn, 1));
    let (first, words) = gives_up(&mut bench, 0);
    assert!(first == Some(1) && !words.contains("gave up"), "{words}");
    let (first, words) = gives_up(&mut bench, 2);
    assert_eq!(first, Some(1), "{words}");
    let name = |rank: u32| format!("rank {rank} (");
    let [before, after] = words.split("; called muster_recover and gave up: ").collect::<Vec<_>>()[..] else {
        panic!("{words}")
    };
    assert!(before.starts_with(&name(1)) && before.contains("has not called muster_recover in time"), "{words}");
    assert!(!before.contains(&name(0)) && after.starts_with(&name(0)), "{words}");
    // Where all have called it, nobody is said not to have called.
    [1, 2].into_iter().for_each(|conn| inside(&mut bench, conn, 1));
    let (first, words) = gives_up(&mut bench, 1);
    assert_eq!(first, Some(0));
    assert!(words.starts_with(&name(0)) && words.contains("did not wait long enough for epoch 2"), "{words}");
    assert!(!words.contains("has not called") && !words.contains(&name(2)), "{words}");
}

#[test]
fn that_a_node_gave_up_is_forgotten_when_it_calls_again_and_in_the_next_epoch() {
    let mut bench = Bench::formed(&["here", "there"]);
    inside(&mut bench, 0, 1);
    gives_up(&mut bench, 0);
    (0..2).for_each(|conn| inside(&mut bench, conn, 1));
    assert_eq!(formed(&mut bench).len(), 2);
    (0..2).for_each(|conn| takes_up(&mut bench, conn, 2));
    inside(&mut bench, 1, 2);
    bench.sent.clear();
    waits_no_more(&mut bench, 1, 2);
    let words = not_recovered(&mut bench)[0].1.to_string();
    assert!(words.starts_with("rank 0 (") && words.contains("has not called muster_recover in time"), "{words}");
}

#[test]
fn a_node_that_gave_up_and_is_lost_since_has_not_called() {
    let mut bench = recovering(3);
    [1, 2].into_iter().for_each(|conn| inside(&mut bench, conn, 1));
    gives_up(&mut bench, 1);
    is_killed(&mut bench, 1);
    let (first, words) = gives_up(&mut bench, 2);
    assert_eq!(first, Some(0), "{words}");
    assert!(words.contains("rank 1 (") && !words.contains("gave up"), "{words}");
}

#[test]
fn a_line_a_second_says_who_is_awaited_until_nobody_waits() {
    let mut bench = Bench::formed(&["here", "here", "there"]);
    inside(&mut bench, 2, 1);
    bench.lines.clear();
    for _ in 0..3 {
        bench.pass(Duration::from_secs(1));
        (0..3).for_each(|conn| bench.beat(conn, bench.now.0 / 1_000_000_000));
    }
    let lines: Vec<&String> = bench.lines.iter().filter(|line| line.contains("recovering since")).collect();
    assert_eq!(lines.len(), 3, "{:?}", bench.lines);
    assert!(lines[1].contains("1 of 3 nodes have called muster_recover; awaited: rank 0"), "{lines:?}");
    assert!(!lines[1].contains("rank 2"), "{lines:?}");
    waits_no_more(&mut bench, 2, 1);
    bench.lines.clear();
    bench.pass(Duration::from_secs(2));
    assert!(!bench.lines.iter().any(|line| line.contains("recovering since")), "{:?}", bench.lines);
}

#[test]
fn nobody_waits_for_one_who_has_left() {
    let mut bench = Bench::formed(&["here", "here", "there"]);
    inside(&mut bench, 0, 1);
    bench.sent.clear();
    bench.say(2, Message::Leave);
    let told = not_recovered(&mut bench);
    assert_eq!((told.len(), told[0].0, told[0].1.status), (1, 0, Status::PeerLeft));
    assert!(told[0].1.to_string().contains("rank 2"), "{:?}", told[0].1);
    inside(&mut bench, 1, 1);
    let told = not_recovered(&mut bench);
    assert_eq!((told[0].0, told[0].1.status), (1, Status::PeerLeft));
    bench.say(0, Message::Leave);
    inside(&mut bench, 1, 1);
    assert!(not_recovered(&mut bench)[0].1.to_string().contains("rank 2"), "the first that left stays the reason");
}

#[test]
fn a_loss_meanwhile_is_the_first_cause() {
    let mut bench = Bench::formed(&["here", "here"]);
    inside(&mut bench, 1, 1);
    bench.sent.clear();
    bench.say(1, Message::Gone);
    let verdict = bench.sent.iter().find_map(|(conn, message)| match message {
        Message::Verdict(verdict) if conn.0 == 0 => Some(verdict.failure.clone()),
        _ => None,
    });
    let failure = verdict.expect("the job is broken");
    assert_eq!(failure.status, Status::PeerLost, "not the revocation by muster_recover: {failure}");
    assert_eq!(failure.culprit.and_then(|culprit: Culprit| culprit.rank), Some(1));
    bench.sent.clear();
    inside(&mut bench, 0, 1);
    assert_eq!(formed(&mut bench), Vec::new());
}

#[test]
fn a_node_that_is_cut_off_meanwhile_is_waited_for() {
    let mut bench = Bench::new(rules(2, 0));
    let register = |rank: u32| Register { host: host("here"), ..named(rank, 2, &rank.to_string()) };
    (0..2).for_each(|rank| bench.join(u64::from(rank), register(rank)));
    let instance = formed(&mut bench)[0].1.instance;
    inside(&mut bench, 0, 1);
    bench.close(0, super::super::contract::Closed::Broken);
    inside(&mut bench, 1, 1);
    assert_eq!(formed(&mut bench), Vec::new(), "it may be lost");
    bench.join(7, Register { instance: Some(instance), ..register(0) });
    let told: Vec<(u64, Epoch)> = formed(&mut bench).into_iter().map(|(conn, formed)| (conn, formed.epoch)).collect();
    assert_eq!(told, [(7, Epoch(2)), (1, Epoch(2))]);
    // A node that the word of the new epoch did not reach hears of it when it is back.
    bench.close(7, super::super::contract::Closed::Broken);
    bench.join(8, Register { instance: Some(instance), ..register(0) });
    assert_eq!(formed(&mut bench).into_iter().map(|(_, formed)| formed.epoch).collect::<Vec<_>>(), [Epoch(2)]);
}

#[test]
fn without_a_secret_nothing_begins() {
    let mut bench = Bench::formed(&["here"]);
    bench.secrets = false;
    inside(&mut bench, 0, 1);
    assert_eq!(formed(&mut bench), Vec::new());
    bench.feed(Input::Secret(Secret([8; 32])));
    assert_eq!(formed(&mut bench)[0].1.secret, Secret([8; 32]));
}
