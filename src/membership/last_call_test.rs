//! The call in which a lost node was heard last.

use crate::membership::testing::{host, worker, Bench};
use crate::membership::Closed;
use crate::types::{Call, CallKind, GroupId};
use crate::wire::{ChildEnded, GroupProgress, Heartbeat, HowEnded, Message, Suspect};
use std::time::Duration;

/// Each case: the progress in the last heartbeat of a rank that is then lost, and what its loss says of that.
#[test]
fn a_loss_says_in_which_call_its_victim_was_heard_last() {
    let call = Call { kind: CallKind::Barrier, dtype: None, op: None, root: None, count: 0, layout: 0 };
    let progress =
        |group, entered, finished, age_ms| GroupProgress { group, entered, finished, call: Some(call), age_ms };
    let world = |entered, finished| progress(GroupId::WORLD, entered, finished, 50);
    let universe = |entered, finished| progress(GroupId::UNIVERSE, entered, finished, 10);
    // A call that it is in counts before one that it has finished; of two such calls the one that it entered last.
    for (told, last, words) in [
        (vec![world(7, 6)], Some((GroupId::WORLD, 7)), "last heard in barrier #7 on world, 0.4 s before"),
        (
            vec![world(7, 6), universe(3, 3)],
            Some((GroupId::WORLD, 7)),
            "last heard in barrier #7 on world, 0.4 s before",
        ),
        (
            vec![world(7, 6), universe(3, 2)],
            Some((GroupId::UNIVERSE, 3)),
            "last heard in barrier #3 on universe, 0.4 s before",
        ),
        (vec![world(7, 7)], Some((GroupId::WORLD, 7)), "last heard after barrier #7 on world, 0.4 s before"),
        (vec![], None, "last heard 400 ms ago"),
    ] {
        for witness in ["its connection", "a peer", "its launcher", "itself"] {
            let mut bench = Bench::formed(&["here", "there", "elsewhere"]);
            let beat = Heartbeat { sequence: 1, echoed: 0, progress: told.clone(), ..Heartbeat::default() };
            bench.say(1, Message::Heartbeat(beat));
            bench.pass(Duration::from_millis(if witness == "its connection" { 300 } else { 400 }));
            match witness {
                "a peer" => {
                    let evidence = "connection reset".to_owned();
                    bench.say(2, Message::Suspect(Suspect { peer: 1, evidence }));
                    bench.close(1, Closed::Ended);
                }
                "its launcher" => {
                    let (host, process) = (host("there"), worker(1, 3).process);
                    bench.open(9);
                    let word = ChildEnded { host, process, how: HowEnded::Killed, number: 9, launch: None };
                    bench.say(9, Message::ChildEnded(word));
                    bench.close(1, Closed::Ended);
                }
                "itself" => bench.say(1, Message::Gone),
                _ => bench.close(1, Closed::Ended),
            }
            bench.pass(Duration::from_millis(100));
            let failure = bench.verdict(0).unwrap_or_else(|| panic!("{witness}: {told:?}"));
            let culprit = failure.culprit.as_ref().expect("it is named");
            assert_eq!(culprit.last_call.map(|last| (last.group, last.sequence)), last, "{witness}");
            assert!(failure.cause.contains(words) || (last.is_none() && witness == "itself"), "{witness}: {failure}");
            assert_eq!(failure.group, None, "it is the whole cluster that is broken");
            assert!(bench.scheduler.conductor.cluster.is_culprit(1));
        }
    }
}
