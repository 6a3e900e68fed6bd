use crate::membership::testing::{host, named, Bench};
use crate::membership::Closed;
use crate::types::{Call, CallKind, GroupId, JobInstance};
use crate::wire::{Absent, GroupProgress, Heartbeat, Message, MessageWait, Register, StragglerState, WhereAre};
use std::time::Duration;

const BARRIER: Call = Call { kind: CallKind::Barrier, dtype: None, op: None, root: None, count: 0, layout: 0 };
const MS: Duration = Duration::from_millis(1);

fn is_at(bench: &mut Bench, conn: u64, entered: u64, finished: u64, age_ms: u64) {
    let progress = vec![GroupProgress { group: GroupId::WORLD, entered, finished, call: Some(BARRIER), age_ms }];
    bench.say(conn, Message::Heartbeat(Heartbeat { sequence: 1, echoed: 1, progress, ..Heartbeat::default() }));
    bench.told(conn);
}

fn ask(bench: &mut Bench, conn: u64, query: u64) {
    bench.say(conn, Message::WhereAre(WhereAre { query, group: GroupId::WORLD, sequence: 5, about: None }));
}

#[test]
fn where_one_node_is_can_be_asked_whatever_it_has_entered() {
    let mut bench = Bench::formed(&["here", "a", "b"]);
    let about =
        |about| Message::WhereAre(WhereAre { query: 4, group: GroupId::WORLD, sequence: u64::MAX, about: Some(about) });
    let wait = MessageWait { group: GroupId::WORLD, sends: false, peer: Some(0), tag: None, age_ms: 4000 };
    let progress =
        vec![GroupProgress { group: GroupId::WORLD, entered: 9, finished: 9, call: Some(BARRIER), age_ms: 1 }];
    let beat = |waits| Heartbeat { sequence: 1, echoed: 1, progress: progress.clone(), waits, ..Heartbeat::default() };
    bench.say(0, about(1));
    assert_eq!(answer(&mut bench, 0), None, "it is asked first");
    bench.say(1, Message::Heartbeat(beat(vec![wait.clone()])));
    let told = answer(&mut bench, 0).expect("it has said where it is");
    assert_eq!((told.total, told.members.len()), (1, 1), "not of others");
    assert_eq!((told.members[0].sequence, told.members[0].wait.as_ref()), (9, Some(&wait)));
    bench.say(0, about(7));
    assert_eq!(answer(&mut bench, 0).map(|told| told.total), Some(0), "no member of the group");
}

fn answer(bench: &mut Bench, conn: u64) -> Option<Absent> {
    bench.told(conn).into_iter().find_map(|message| match message {
        Message::Absent(absent) => Some(absent),
        _ => None,
    })
}

#[test]
fn those_who_have_not_entered_are_asked_where_they_are() {
    let mut bench = Bench::formed(&["here", "a", "b", "c", "d", "e", "f"]);
    is_at(&mut bench, 0, 5, 4, 0);
    is_at(&mut bench, 1, 4, 3, 0);
    is_at(&mut bench, 2, 4, 4, 0);
    is_at(&mut bench, 3, 4, 4, 0);
    bench.say(5, Message::Leave);
    bench.sent.clear();
    bench.pass(MS * 500);
    ask(&mut bench, 0, 70);
    assert_eq!(answer(&mut bench, 0), None);
    for conn in [1, 2, 3, 4, 6] {
        assert_eq!(bench.told(conn), [Message::Report], "{conn}");
    }
    is_at(&mut bench, 1, 4, 3, 12_000);
    is_at(&mut bench, 2, 4, 4, 900);
    is_at(&mut bench, 3, 5, 4, 0); // just entered
    bench.say(4, Message::Heartbeat(Heartbeat { sequence: 1, echoed: 1, ..Heartbeat::default() }));
    bench.pass(MS * 99);
    assert_eq!(answer(&mut bench, 0), None);
    bench.pass(MS);
    let absent = answer(&mut bench, 0).expect("answered");
    assert_eq!((absent.query, absent.total), (70, 5));
    let told: Vec<_> = absent
        .members
        .iter()
        .map(|member| (member.culprit.rank, member.state, member.sequence, member.age_ms))
        .collect();
    assert_eq!(
        told,
        [
            (Some(1), StragglerState::Inside, 4, 12_100),
            (Some(2), StragglerState::Outside, 4, 1_000),
            (Some(4), StragglerState::Never, 0, 0),
            (Some(5), StragglerState::Left, 0, 0),
            (Some(6), StragglerState::Silent, 0, 0),
        ]
    );
    assert_eq!(absent.members[0].call, Some(BARRIER));
}

#[test]
fn once_all_have_said_it_the_answer_goes_out() {
    let mut bench = Bench::formed(&["here", "there", "there"]);
    is_at(&mut bench, 0, 5, 4, 0);
    is_at(&mut bench, 2, 5, 4, 0);
    ask(&mut bench, 0, 1);
    ask(&mut bench, 2, 9);
    assert_eq!(bench.told(1), [Message::Report], "asked once for both");
    is_at(&mut bench, 1, 4, 4, 3);
    for (conn, query) in [(0, 1), (2, 9)] {
        let absent = answer(&mut bench, conn).expect("at once");
        assert_eq!((absent.query, absent.total, absent.members.len()), (query, 1, 1));
    }
    is_at(&mut bench, 1, 5, 4, 3);
    ask(&mut bench, 0, 2);
    assert_eq!(answer(&mut bench, 0).map(|absent| absent.total), Some(0));
}

#[test]
fn a_node_that_attaches_during_a_question_has_said_nothing_yet() {
    let mut bench = Bench::formed(&["here", "there", "there"]);
    is_at(&mut bench, 0, 5, 4, 0);
    is_at(&mut bench, 1, 4, 3, 0);
    let again = Register { host: host("there"), instance: Some(JobInstance([9; 16])), ..named(1, 3, "1") };
    bench.close(1, Closed::Broken);
    ask(&mut bench, 0, 1);
    bench.join(10, again);
    bench.pass(MS * 100);
    let absent = answer(&mut bench, 0).expect("answered");
    let told: Vec<_> = absent.members.iter().map(|it| (it.culprit.rank, it.state, it.sequence)).collect();
    assert_eq!(told, [(Some(1), StragglerState::Silent, 4), (Some(2), StragglerState::Silent, 0)]);
    is_at(&mut bench, 10, 4, 3, 200);
    ask(&mut bench, 0, 2);
    is_at(&mut bench, 10, 4, 3, 200);
    bench.pass(MS * 100);
    assert_eq!(answer(&mut bench, 0).expect("answered").members[0].state, StragglerState::Inside);
}

#[test]
fn a_node_that_is_found_lost_during_a_question_has_not_answered() {
    let mut bench = Bench::formed(&["here", "there", "there"]);
    is_at(&mut bench, 1, 4, 3, 0);
    for _ in 0..49 {
        bench.pass(MS * 100);
        is_at(&mut bench, 0, 5, 4, 0);
        is_at(&mut bench, 2, 5, 4, 0);
    }
    bench.pass(MS * 50);
    ask(&mut bench, 0, 1);
    bench.pass(MS * 60);
    let told = bench.told(0);
    let [Message::Absent(absent), Message::LostNodes(_), Message::Verdict(_)] = &told[..] else {
        panic!("{told:?}");
    };
    assert_eq!((absent.total, absent.members[0].state), (1, StragglerState::Silent));
}

#[test]
fn long_lists_are_cut() {
    let hosts = vec!["there"; 30];
    let mut bench = Bench::formed(&hosts);
    is_at(&mut bench, 29, 5, 4, 0);
    ask(&mut bench, 29, 1);
    bench.pass(MS * 100);
    let absent = answer(&mut bench, 29).expect("answered");
    assert_eq!((absent.total, absent.members.len()), (29, 8));
}

#[test]
fn groups_of_which_one_is_no_member() {
    let mut bench = Bench::formed(&["here"]);
    bench.say(0, Message::WhereAre(WhereAre { query: 3, group: GroupId::SERVERS, sequence: 1, about: None }));
    assert_eq!(answer(&mut bench, 0), Some(Absent { query: 3, total: 0, members: Vec::new() }));
}
