//! The answer for programs: one JSON object on one line. Times are in milliseconds, and say how long ago.

use super::text::{name_of_phase, name_of_state, short};
use super::told::Told;
use muster::error::{Culprit, Failure};
use muster::runtime::place_in_words;
use muster::wire::{GroupCarrier, GroupProgress, MessageWait, StatusGroup, StatusNode, Straggler, StragglerState};
use serde_json::{json, Value};

/// The whole answer.
pub fn shown(told: &Told) -> String {
    let job = &told.job;
    let value = json!({
        "job": short(job),
        "job_id": job.job_id,
        "scheduler": told.address.to_string(),
        "version": job.version,
        "phase": name_of_phase(job.phase),
        "words": job.words,
        "failure": job.failure.as_ref().map(failure),
        "epoch": job.epoch.0,
        "generation": job.generation,
        "age_ms": job.age_ms,
        "recovery": job.recovery,
        "worker_num": job.worker_num,
        "server_num": job.server_num,
        "nodes": told.nodes.iter().map(node).collect::<Vec<_>>(),
        "groups": told.groups.iter().map(group).collect::<Vec<_>>(),
        "carriers": told.carriers.iter().map(carried).collect::<Vec<_>>(),
    });
    format!("{value}\n")
}

fn who(who: &Culprit) -> Value {
    json!({
        "role": who.role.to_string(),
        "rank": who.rank,
        "node_id": who.node_id,
        "host": who.host,
        "pid": who.pid,
    })
}

fn failure(failure: &Failure) -> Value {
    let status = failure.status.text().to_string_lossy();
    json!({
        "status": status.split(':').next(),
        "culprit": failure.culprit.as_ref().map(who),
        "cause": failure.cause,
        "sentence": failure.to_string(),
    })
}

fn node(node: &StatusNode) -> Value {
    let mut value = who(&node.who);
    value["state"] = name_of_state(node.state).into();
    value["heard_ms"] = node.heard_ms.into();
    value["restarts"] = node.restarts.into();
    value["calls"] = node.calls.iter().map(call).collect();
    value["more_calls"] = node.more.into();
    value["messages"] = node.waits.iter().map(message).collect();
    value["address"] = node.place.as_ref().and_then(|place| place.address).map(|address| address.to_string()).into();
    value
}

fn call(progress: &GroupProgress) -> Value {
    json!({
        "group": progress.group.to_string(),
        "collective": progress.call.map(|call| call.kind.name()),
        "call": progress.call.map(|call| call.to_string()),
        "sequence": progress.entered,
        "age_ms": progress.age_ms,
    })
}

fn message(wait: &MessageWait) -> Value {
    json!({
        "group": wait.group.to_string(),
        "operation": if wait.sends { "send" } else { "recv" },
        "peer": wait.peer,
        "tag": wait.tag,
        "age_ms": wait.age_ms,
    })
}

fn carried(told: &GroupCarrier) -> Value {
    json!({ "group": told.group.to_string(), "carrier": told.carrier.name(), "words": told.words })
}

fn group(told: &StatusGroup) -> Value {
    if let Some(cause) = &told.failure {
        return json!({ "group": told.group.to_string(), "revoked": failure(cause) });
    }
    let straggler = |straggler: &Straggler| {
        let mut value = who(&straggler.culprit);
        value["state"] = match straggler.state {
            StragglerState::Inside => "inside",
            StragglerState::Outside => "outside",
            StragglerState::Never => "never",
            StragglerState::Silent => "silent",
            StragglerState::Left => "left",
        }
        .into();
        value["sequence"] = straggler.sequence.into();
        value["collective"] = straggler.call.map(|call| call.kind.name()).into();
        // One that was in no collective has no such time.
        value["age_ms"] = (straggler.sequence > 0).then_some(straggler.age_ms).into();
        value["words"] = place_in_words(straggler, told.group).into();
        value
    };
    json!({
        "group": told.group.to_string(),
        "collective": told.call.map(|call| call.kind.name()),
        "call": told.call.map(|call| call.to_string()),
        "sequence": told.sequence,
        "inside": told.inside,
        "age_ms": told.age_ms,
        "absent": told.absent,
        "members": told.members.iter().map(straggler).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::told::testing::{told, who};
    use super::*;
    use muster::error::Status;
    use muster::types::Epoch;

    #[test]
    fn what_was_told_is_there_by_name() {
        let mut told = told();
        let (status, cause, epoch) = (Status::PeerLost, "is lost".to_owned(), Epoch(3));
        told.job.failure = Some(Failure { status, culprit: Some(who(1)), cause, epoch, group: None, sequence: 0 });
        let text = shown(&told);
        assert_eq!(text.lines().count(), 1);
        let value: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!((&value["job"], &value["phase"]), (&json!("abababab"), &json!("running")));
        assert_eq!((&value["epoch"], &value["generation"]), (&json!(3), &json!(2)));
        assert_eq!(value["failure"]["status"], "ERR_PEER_LOST");
        assert_eq!(value["failure"]["culprit"]["rank"], 1);
        assert_eq!(value["nodes"][1]["state"], "member");
        assert_eq!(value["nodes"][1]["heard_ms"], 250);
        assert_eq!(value["nodes"][1]["address"], "10.0.0.1:4000");
        assert_eq!(value["nodes"][1]["calls"][0]["collective"], "barrier");
        assert_eq!(value["nodes"][1]["calls"][0]["sequence"], 6);
        let carried = json!({ "group": "world", "carrier": "memory", "words": "2 ranks on host a, 2.6 MiB" });
        assert_eq!(value["carriers"], json!([carried]));
        let group = &value["groups"][0];
        assert_eq!((&group["collective"], &group["absent"]), (&json!("allreduce"), &json!(1)));
        assert_eq!(group["members"][0]["words"], "it is in barrier #6 since 12.0 s");
        assert_eq!((&group["members"][0]["rank"], &group["members"][0]["state"]), (&json!(1), &json!("inside")));
        assert_eq!(group["members"][0]["age_ms"], 12_000);
        let member = &mut told.groups[0].members[0];
        (member.state, member.sequence, member.call, member.age_ms) = (StragglerState::Never, 0, None, 0);
        let value: Value = serde_json::from_str(&shown(&told)).expect("JSON");
        let member = &value["groups"][0]["members"][0];
        assert_eq!((&member["state"], &member["age_ms"]), (&json!("never"), &Value::Null));
        told.groups[0].failure = told.job.failure.clone();
        let value: Value = serde_json::from_str(&shown(&told)).expect("JSON");
        assert_eq!(value["groups"][0]["revoked"]["cause"], "is lost");
    }
}
