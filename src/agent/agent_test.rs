//! The node's brain against a scheduler that the test plays by hand.

use super::bench::{failure, formed, profile, Bench, MS};
use super::*;
use crate::error::Status;
use crate::types::{Epoch, GroupId, JobInstance};
use crate::wire::{self, HeartbeatEcho, PeerState, Rejected, Revoked, Verdict};
use std::time::Duration;

#[test]
fn it_registers_and_joins() {
    let mut bench = Bench::new();
    assert!(matches!(bench.outputs[..], [Output::Connect { .. }, Output::Arm(_)]), "{:?}", bench.outputs);
    let address = "10.0.0.2:4000".parse().unwrap();
    bench.feed(Input::Connected(vec![address]));
    let [Message::Register(register)] = &bench.sent()[..] else { panic!("{:?}", bench.sent()) };
    assert_eq!((register.addresses.as_slice(), register.instance), (&[address][..], None));
    bench.receive(Message::Formed(formed(1, 1)));
    assert!(matches!(bench.last_event(), Event::Formed(formed) if formed.rank == 0));
}

#[test]
fn it_retries_soon_then_patiently_and_complains_from_the_third_second() {
    let mut bench = Bench::new();
    bench.pass_unreachable(100);
    assert!((4..=7).contains(&bench.attempts()), "{} attempts in 100 ms", bench.attempts());
    bench.pass_unreachable(2800);
    assert!(!bench.outputs.iter().any(|output| matches!(output, Output::Log { .. })));
    bench.pass_unreachable(6600);
    let lines = bench.warnings();
    assert_eq!(lines.len(), 3, "after 3, 4 and 6 s: {lines:?}");
    assert!(lines[0].contains("10.0.0.1:8118") && lines[0].contains("connection refused"), "{lines:?}");
    assert!(bench.attempts() < 60, "{} attempts in 9.5 s", bench.attempts());
}

#[test]
fn it_fails_as_unreachable_when_the_time_is_up() {
    let mut bench = Bench::new();
    bench.pass_unreachable(9_900);
    assert!(bench.told().is_empty());
    bench.pass_unreachable(200);
    let Event::Failed(error) = bench.last_event() else { panic!("{:?}", bench.told()) };
    assert_eq!(error.status(), Status::Unreachable);
    for part in ["10.0.0.1:8118", "connection refused", "10 s"] {
        assert!(error.message().contains(part), "{error}");
    }
    bench.outputs.clear();
    bench.feed(Input::Timer);
    assert!(bench.outputs.is_empty());
}

#[test]
fn without_a_time_limit_it_goes_on_trying() {
    let mut endless = profile();
    endless.forming_timeout = None;
    let mut bench = Bench { agent: Agent::new(endless, Time(0)), ..Bench::new() };
    bench.outputs.clear();
    bench.drain();
    bench.pass_unreachable(3_600_000);
    assert!(bench.told().is_empty());
    assert!(matches!(bench.outputs[0], Output::Connect { within, .. } if within == Duration::from_secs(5)));
}

#[test]
fn the_schedulers_sentence_ends_forming() {
    let mut bench = Bench::new();
    bench.feed(Input::Connected(Vec::new()));
    bench.receive(Message::Rejected(Rejected { status: Status::Rejected, reason: "rank 0 is held by X".to_owned() }));
    let Event::Failed(error) = bench.last_event() else { panic!() };
    assert_eq!((error.status(), error.message()), (Status::Rejected, "rank 0 is held by X"));
    assert_eq!(bench.disconnects(), 1);
}

#[test]
fn when_its_time_is_up_it_asks_the_scheduler_first() {
    let mut bench = Bench::new();
    bench.feed(Input::Connected(Vec::new()));
    bench.pass(10_500, true);
    assert!(bench.sent().contains(&Message::TimeUp) && bench.told().is_empty());
    bench.receive(Message::Rejected(Rejected { status: Status::Timeout, reason: "1 of 2 came".to_owned() }));
    assert!(matches!(bench.last_event(), Event::Failed(error) if error.message() == "1 of 2 came"));

    let mut bench = Bench::new();
    bench.feed(Input::Connected(Vec::new()));
    bench.pass(11_100, true);
    assert!(matches!(bench.last_event(), Event::Failed(error) if error.status() == Status::Timeout));

    // A cluster that is complete in the last moment is complete.
    let mut bench = Bench::new();
    bench.feed(Input::Connected(Vec::new()));
    bench.pass(10_500, true);
    bench.receive(Message::Formed(formed(1, 1)));
    bench.pass(5_000, true);
    assert!(matches!(bench.last_event(), Event::Formed(_)));
}

#[test]
fn a_connection_is_made_again_at_once_unless_several_in_a_row_ended_soon() {
    let mut bench = Bench::new();
    bench.pass_unreachable(2_000);
    let mut is_connecting = false;
    for (stood_ms, at_once) in [(20, true), (20, false), (20, false), (150, true), (20, false)] {
        let failed = bench.attempts();
        while !is_connecting && bench.attempts() == failed {
            bench.now = bench.armed;
            bench.feed(Input::Timer);
        }
        bench.feed(Input::Connected(Vec::new()));
        let before = bench.attempts();
        bench.now = bench.now + Duration::from_millis(stood_ms);
        bench.feed(Input::Closed("reset".to_owned()));
        is_connecting = bench.attempts() > before;
        assert_eq!(is_connecting, at_once, "after {stood_ms} ms");
    }
}

#[test]
fn a_connection_lost_while_forming_is_made_again_with_the_same_incarnation() {
    let mut bench = Bench::new();
    bench.feed(Input::Connected(Vec::new()));
    bench.receive(Message::HeartbeatEcho(HeartbeatEcho { sequence: 0 }));
    bench.feed(Input::Closed("reset".to_owned()));
    assert_eq!(bench.attempts(), 2);
    bench.feed(Input::Connected(Vec::new()));
    let sent = bench.sent();
    assert_eq!(sent.len(), 2);
    assert_eq!(sent[0], sent[1]);
    assert!(bench.told().is_empty());
}

#[test]
fn a_scheduler_that_drops_every_connection_is_not_stormed() {
    let mut bench = Bench::new();
    let mut rounds = 0;
    while bench.now < Time(5_000 * MS) {
        if matches!(bench.outputs.iter().rev().find(|o| !matches!(o, Output::Arm(_))), Some(Output::Connect { .. })) {
            bench.feed(Input::Connected(Vec::new()));
            bench.feed(Input::Closed("end".to_owned()));
            rounds += 1;
        }
        bench.now = bench.now.max(bench.armed);
        bench.armed = Time::NEVER;
        bench.feed(Input::Timer);
    }
    assert!(rounds < 40, "{rounds} connections in 5 s");
}

#[test]
fn heartbeats_come_five_times_per_time_out_and_carry_the_newest_echo() {
    let mut bench = Bench::joined();
    bench.pass(1_050, true);
    assert_eq!(bench.beats(), [(1, 0), (2, 1), (3, 2), (4, 3), (5, 4)]);
    bench.receive(Message::Report);
    assert_eq!(bench.beats().last(), Some(&(6, 5)));
}

/// By this heartbeat the scheduler knows that this node hears.
#[test]
fn a_heartbeat_is_not_put_off_by_the_beginning_of_an_epoch() {
    let mut bench = Bench::new();
    bench.feed(Input::Connected(Vec::new()));
    bench.pass(950, false);
    bench.receive(Message::Formed(formed(1, 1)));
    assert_eq!(bench.beats(), []);
    bench.pass(60, true);
    assert_eq!(bench.beats(), [(1, 0)], "a second after the connection began, as it was to come");
    bench.pass(150, true);
    bench.receive(Message::Formed(formed(1, 2)));
    bench.pass(45, true);
    assert_eq!(bench.beats(), [(1, 0), (2, 1)], "a fifth of the time-out that was agreed later");
}

#[test]
fn silence_breaks_the_connection_and_any_byte_is_a_sign_of_life() {
    let mut bench = Bench::joined();
    bench.pass(700, false);
    bench.feed(Input::Heard);
    bench.pass(700, false);
    assert!(bench.told().is_empty());
    bench.pass(200, false);
    assert!(matches!(&bench.told()[..], [Event::SchedulerAway(Some(reason))] if reason.contains("0.8 s")));
    let tail: Vec<_> =
        bench.outputs.iter().filter(|o| matches!(o, Output::Disconnect | Output::Connect { .. })).collect();
    assert!(matches!(tail[..], [Output::Disconnect, Output::Connect { .. }]), "{tail:?}");
}

#[test]
fn a_process_that_was_stopped_listens_once_more_before_it_judges() {
    let mut bench = Bench::joined();
    bench.now = Time(60_000 * MS);
    bench.feed(Input::Timer);
    assert!(bench.told().is_empty());
    assert_eq!(bench.beats().len(), 1);
    bench.receive(Message::HeartbeatEcho(HeartbeatEcho { sequence: 1 }));
    bench.pass(900, true);
    assert!(bench.told().is_empty());
}

#[test]
fn it_attaches_again_and_says_that_the_scheduler_was_away() {
    let mut bench = Bench::joined();
    bench.feed(Input::Closed("reset".to_owned()));
    assert!(matches!(bench.last_event(), Event::SchedulerAway(Some(reason)) if reason == "reset"));
    bench.pass_unreachable(20_000);
    bench.pass(1_000, false);
    assert_eq!(bench.told().len(), 1, "said once: {:?}", bench.told());
    let warned = bench.warnings();
    assert!(warned.len() == 1 && warned[0].contains("collectives go on"), "{warned:?}");
    bench.feed(Input::Connected(Vec::new()));
    let Some(Message::Register(register)) = bench.sent().pop() else { panic!() };
    assert_eq!(register.instance, Some(JobInstance([1; 16])));
    bench.receive(Message::Formed(formed(1, 1)));
    assert!(matches!(bench.last_event(), Event::SchedulerAway(None)));
    assert!(bench.warnings().last().is_some_and(|line| line.ends_with("is there again")), "{:?}", bench.warnings());
}

#[test]
fn another_jobs_scheduler_is_no_scheduler() {
    for other in [formed(2, 1), formed(2, 2), formed(1, 0)] {
        let mut bench = Bench::joined();
        bench.feed(Input::Closed("reset".to_owned()));
        bench.feed(Input::Connected(Vec::new()));
        bench.outputs.clear();
        bench.receive(Message::Formed(other));
        assert!(matches!(&bench.told()[..], [Event::SchedulerAway(Some(_))]), "still away: {:?}", bench.told());
        assert_eq!((bench.disconnects(), bench.attempts()), (1, 0), "not at once");
        bench.pass(600, false);
        assert_eq!(bench.attempts(), 1);
    }
}

#[test]
fn a_new_epoch_begins_with_nothing_asked() {
    for cut_off in [false, true] {
        let mut bench = Bench::joined();
        bench.command(Command::Suspect { peer: 0, evidence: "link ended".to_owned() });
        bench.command(Command::Revoke(failure(Status::Timeout, Some(GroupId::WORLD), "late")));
        bench.command(Command::WhereAre(5, GroupId::WORLD, 9, None));
        bench.command(Command::Recover(true));
        assert_eq!(bench.sent().last(), Some(&Message::Recover(wire::Recover { epoch: Epoch(1), inside: true })));
        if cut_off {
            bench.reattach();
            assert!(bench.sent().iter().any(|message| matches!(message, Message::Recover(_))), "it still waits");
            bench.feed(Input::Closed("reset".to_owned()));
            bench.feed(Input::Connected(Vec::new()));
        }
        bench.outputs.clear();
        bench.receive(Message::Formed(formed(1, 2)));
        assert_eq!(bench.sent(), [Message::InEpoch(wire::InEpoch { epoch: Epoch(2) })]);
        assert!(bench.told().iter().any(|told| matches!(told, Event::Formed(formed) if formed.epoch == Epoch(2))));
        bench.command(Command::Recover(true));
        assert_eq!(bench.sent().last(), Some(&Message::Recover(wire::Recover { epoch: Epoch(2), inside: true })));
    }
}

#[test]
fn one_that_is_put_out_does_not_wait_for_an_epoch() {
    let mut bench = Bench::joined();
    bench.command(Command::Recover(true));
    bench.reattach();
    bench.outputs.clear();
    let (status, reason) = (Status::Fenced, "another has its place".to_owned());
    bench.receive(Message::Rejected(wire::Rejected { status, reason }));
    let told = bench.told();
    assert!(
        matches!(&told[..], [Event::Broken(one), Event::NotRecovered(other)]
        if (one.status, other.status) == (Status::Fenced, Status::Fenced)),
        "{told:?}"
    );
    bench.outputs.clear();
    bench.command(Command::Recover(true));
    assert!(matches!(&bench.told()[..], [Event::NotRecovered(again)] if again.status == Status::Fenced));
}

#[test]
fn only_a_node_that_waits_for_an_epoch_hears_that_there_is_none() {
    let no = |status| Message::NotRecovered(wire::NotRecovered { failure: failure(status, None, "rank 1 is awaited") });
    let mut bench = Bench::joined();
    bench.outputs.clear();
    bench.receive(no(Status::Timeout));
    bench.command(Command::Recover(true));
    bench.receive(no(Status::Timeout)); // the answer to an earlier one, who did not wait any more
    assert!(bench.told().is_empty(), "{:?}", bench.told());
    bench.command(Command::Recover(false));
    bench.receive(no(Status::Timeout));
    bench.receive(no(Status::Timeout));
    bench.command(Command::Recover(true));
    bench.receive(no(Status::PeerLeft));
    let told = bench.told();
    assert!(
        matches!(&told[..], [Event::NotRecovered(late), Event::NotRecovered(left)]
        if (late.status, left.status) == (Status::Timeout, Status::PeerLeft)),
        "{told:?}"
    );
    bench.reattach();
    assert!(bench.sent().is_empty(), "{:?}", bench.sent());
}

#[test]
fn what_is_not_answered_is_asked_again() {
    let mut bench = Bench::joined();
    bench.command(Command::Suspect { peer: 0, evidence: "link ended".to_owned() });
    bench.command(Command::Revoke(failure(Status::Timeout, Some(GroupId::WORLD), "late")));
    bench.command(Command::WhereAre(5, GroupId::WORLD, 9, None));
    bench.command(Command::Locate(6, 0));
    bench.command(Command::Abort { code: 3, reason: "enough".to_owned() });
    let first = bench.sent();
    assert_eq!(first.len(), 5);
    bench.reattach();
    let again = bench.sent();
    assert_eq!(again.len(), 5);
    assert!(first.iter().all(|message| again.contains(message)), "{again:?}");

    let member = (*formed(1, 1).members[0]).clone();
    let culprit = member.culprit();
    bench.receive(Message::PeerReport(wire::PeerReport { peer: 0, state: PeerState::Alive, culprit }));
    bench.receive(Message::Revoked(Revoked { failure: failure(Status::PeerLost, Some(GroupId::WORLD), "first") }));
    bench.receive(Message::Absent(wire::Absent { query: 5, total: 0, members: Vec::new() }));
    bench.receive(Message::Located(wire::Located { member }));
    bench.receive(Message::Verdict(Verdict { failure: failure(Status::Aborted, None, "aborted") }));
    let told = bench.told();
    assert!(
        matches!(
            &told[..],
            [
                Event::SchedulerAway(None),
                Event::Peer(0, PeerState::Alive, _),
                Event::Revoked(_),
                Event::Absent(5, _),
                Event::Located(6, _),
                Event::Broken(_)
            ]
        ),
        "{told:?}"
    );
    bench.reattach();
    assert!(bench.sent().is_empty(), "{:?}", bench.sent());
}

#[test]
fn a_group_is_revoked_once_and_later_asks_learn_the_first_cause() {
    let mut bench = Bench::joined();
    let first = failure(Status::PeerLost, Some(GroupId::WORLD), "first");
    bench.receive(Message::Revoked(Revoked { failure: first.clone() }));
    bench.receive(Message::Revoked(Revoked { failure: first.clone() }));
    assert_eq!(bench.told().len(), 1);
    bench.command(Command::Revoke(failure(Status::Timeout, Some(GroupId::WORLD), "second")));
    assert!(bench.sent().is_empty());
    assert!(matches!(bench.last_event(), Event::Revoked(known) if known == first));
}

#[test]
fn a_broken_cluster_is_told_once() {
    let mut bench = Bench::joined();
    bench.receive(Message::Verdict(Verdict { failure: failure(Status::PeerLost, None, "rank 1 is lost") }));
    bench.receive(Message::Verdict(Verdict { failure: failure(Status::PeerLost, None, "rank 2 is lost") }));
    assert!(matches!(&bench.told()[..], [Event::Broken(failure)] if failure.cause == "rank 1 is lost"));
    bench.outputs.clear();
    bench.feed(Input::Closed("end".to_owned()));
    assert!(bench.told().is_empty(), "a broken cluster's scheduler may go");
}

#[test]
fn a_member_goes_on_without_a_scheduler_that_is_not_its_own() {
    let mut bench = Bench::joined();
    for round in 0..3 {
        bench.feed(Input::Closed("reset".to_owned()));
        bench.pass(1_000, false);
        bench.outputs.clear();
        bench.feed(Input::Connected(Vec::new()));
        let status = [Status::Rejected, Status::Timeout, Status::Limit][round];
        bench.receive(Message::Rejected(Rejected { status, reason: "another run".to_owned() }));
        let told = bench.told();
        let is_why = |told: &[Event]| matches!(told, [Event::SchedulerAway(Some(why))] if why.contains("another run"));
        assert!(if round == 0 { is_why(&told) } else { told.is_empty() }, "why it is away, once: {told:?}");
        assert_eq!(bench.disconnects(), 1);
    }
    let said = |output: &Output| matches!(output, Output::Log { quiet: false, line } if line.contains("another run"));
    assert!(!bench.outputs.iter().any(said), "one line for each reason");
    bench.command(Command::Leave);
    bench.feed(Input::Closed("reset".to_owned()));
    bench.pass(1_000, false);
    bench.feed(Input::Connected(Vec::new()));
    bench.receive(Message::Rejected(Rejected { status: Status::Rejected, reason: "another run".to_owned() }));
    assert!(matches!(bench.last_event(), Event::Left(Some(_))));
}

#[test]
fn a_node_that_is_put_out_hears_why_and_asks_no_more() {
    let mut bench = Bench::joined();
    bench.feed(Input::Closed("reset".to_owned()));
    bench.feed(Input::Connected(Vec::new()));
    bench.receive(Message::Rejected(Rejected { status: Status::Fenced, reason: "a newer life is here".to_owned() }));
    assert!(matches!(bench.last_event(), Event::Broken(failure) if failure.status == Status::Fenced));
    bench.outputs.clear();
    bench.pass(60_000, false);
    assert!(bench.outputs.is_empty(), "{:?}", bench.outputs);
    bench.command(Command::Leave);
    assert!(matches!(bench.last_event(), Event::Left(Some(_))));
}

#[test]
fn it_leaves_with_the_schedulers_goodbye() {
    let mut bench = Bench::joined();
    bench.command(Command::Leave);
    assert_eq!(bench.sent(), [Message::Leave]);
    bench.pass(3_000, true);
    bench.receive(Message::Bye);
    assert!(matches!(bench.last_event(), Event::Left(None)));
    assert_eq!(bench.disconnects(), 1);
}

#[test]
fn leaving_is_said_again_on_a_new_connection() {
    let mut bench = Bench::joined();
    bench.command(Command::Leave);
    bench.reattach();
    assert_eq!(bench.sent(), [Message::Leave]);
    assert!(bench.told().is_empty());
}

#[test]
fn leaving_is_bounded() {
    // (broken before, scheduler away, how long)
    for (broken, away, ms) in [(false, false, 30_000), (false, true, 5_000), (true, false, 1_000), (true, true, 0)] {
        let mut bench = Bench::joined();
        if broken {
            bench.receive(Message::Verdict(Verdict { failure: failure(Status::PeerLost, None, "rank 1 is lost") }));
        }
        if away {
            bench.feed(Input::Closed("reset".to_owned()));
            bench.feed(Input::ConnectFailed("connection refused".to_owned()));
        }
        bench.outputs.clear();
        bench.command(Command::Leave);
        let pass = |bench: &mut Bench, ms| if away { bench.pass_unreachable(ms) } else { bench.pass(ms, true) };
        if ms > 0 {
            pass(&mut bench, ms - 50);
            assert!(bench.told().is_empty(), "{broken} {away}: {:?}", bench.told());
        }
        pass(&mut bench, 100);
        assert!(matches!(bench.last_event(), Event::Left(Some(_))), "{broken} {away}");
    }
}

#[test]
fn the_wish_to_leave_while_forming_is_granted_at_once() {
    let mut bench = Bench::new();
    bench.feed(Input::Connected(Vec::new()));
    bench.command(Command::Leave);
    assert!(matches!(bench.last_event(), Event::Left(None)));
    assert!(bench.sent().contains(&Message::Leave));
}

#[test]
fn what_no_scheduler_says_ends_the_connection() {
    for message in [Message::TimeUp, Message::Bye, Message::HeartbeatEcho(HeartbeatEcho { sequence: 99 })] {
        let mut bench = Bench::joined();
        let harmless = matches!(message, Message::HeartbeatEcho(_));
        bench.receive(message);
        assert_eq!(bench.disconnects(), usize::from(!harmless));
        bench.pass(500, false);
        assert_eq!(bench.attempts(), usize::from(!harmless));
    }
}

#[test]
fn a_report_that_the_caller_asks_for_is_a_heartbeat_at_once() {
    let mut bench = Bench::joined();
    bench.command(Command::Report);
    assert_eq!(bench.beats(), [(1, 0)]);
    bench.feed(Input::Closed("reset".to_owned()));
    bench.command(Command::Report);
    assert_eq!(bench.beats().len(), 1, "nobody would hear it");
}

#[test]
fn with_recovery_a_job_that_lacks_a_node_can_be_aborted() {
    let mut bench = Bench::joined_with_recovery();
    bench.receive(Message::Verdict(Verdict { failure: failure(Status::PeerLost, None, "rank 1 is lost") }));
    bench.command(Command::Recover(true));
    bench.outputs.clear();
    bench.command(Command::Abort { code: 3, reason: "enough".to_owned() });
    assert_eq!(bench.sent(), [Message::Abort(wire::Abort { code: 3, reason: "enough".to_owned() })]);
    bench.outputs.clear();
    for _ in 0..2 {
        bench.receive(Message::Verdict(Verdict { failure: failure(Status::Aborted, None, "aborted") }));
    }
    let told = bench.told();
    assert!(
        matches!(&told[..], [Event::Broken(one), Event::NotRecovered(other)]
        if (one.status, other.status) == (Status::Aborted, Status::Aborted)),
        "{told:?}"
    );
    // Nobody waits for what will never be, even if no scheduler is left to say so.
    bench.feed(Input::Closed("end".to_owned()));
    bench.outputs.clear();
    bench.command(Command::Recover(true));
    assert!(matches!(&bench.told()[..], [Event::NotRecovered(again)] if again.status == Status::Aborted));
    bench.command(Command::Abort { code: 4, reason: "again".to_owned() });
    assert!(bench.sent().is_empty());
}

#[test]
fn with_recovery_one_that_is_taken_for_lost_says_nothing_more() {
    let culprit = formed(1, 1).members[0].culprit();
    let on_itself = Failure { culprit: Some(culprit), ..failure(Status::PeerLost, None, "was silent") };
    let refused = failure(Status::Fenced, None, "was given up");
    let words = [
        Message::Verdict(Verdict { failure: on_itself }),
        Message::NotRecovered(wire::NotRecovered { failure: refused }),
    ];
    for word in words {
        let mut bench = Bench::joined_with_recovery();
        bench.command(Command::Recover(true));
        bench.outputs.clear();
        bench.receive(word);
        let told = bench.told();
        let is_fenced = |event: &Event| match event {
            Event::NotRecovered(failure) | Event::Broken(failure) => failure.status == Status::Fenced,
            _ => false,
        };
        assert!(told.len() == 2 && told.iter().all(is_fenced), "{told:?}");
        assert_eq!(bench.disconnects(), 1);
        bench.outputs.clear();
        bench.pass(60_000, false);
        assert!(bench.outputs.is_empty(), "{:?}", bench.outputs);
        bench.command(Command::Leave);
        assert!(bench.sent().is_empty(), "it is no member that could leave");
        assert!(matches!(bench.last_event(), Event::Left(Some(_))));
    }
}

#[test]
fn nothing_of_another_epoch_is_acted_on() {
    let mut bench = Bench::joined_with_recovery();
    let of_before = |status, group| Failure { epoch: Epoch(0), ..failure(status, group, "before") };
    bench.receive(Message::Verdict(Verdict { failure: of_before(Status::PeerLost, None) }));
    bench.receive(Message::Revoked(Revoked { failure: of_before(Status::Timeout, Some(GroupId::WORLD)) }));
    assert!(bench.told().is_empty(), "{:?}", bench.told());
    // What was said before this node was a member does not count either.
    let mut bench = Bench::new();
    bench.feed(Input::Connected(Vec::new()));
    bench.receive(Message::Revoked(Revoked { failure: of_before(Status::Timeout, Some(GroupId::WORLD)) }));
    bench.receive(Message::Formed(formed(1, 1)));
    bench.outputs.clear();
    bench.command(Command::Revoke(failure(Status::Timeout, Some(GroupId::WORLD), "late")));
    assert!(matches!(&bench.sent()[..], [Message::Revoke(_)]), "{:?}", bench.outputs);
}
