//! The answer for Prometheus, in its text format (version 0.0.4). Times are in seconds, and say how long ago.
//!
//! Names follow its conventions: a unit at the end, `_total` for what only grows, `_info` for what has labels and no value.

use super::text::{name_of_phase, name_of_state, short};
use super::told::Told;
use muster::error::{Culprit, Failure};
use muster::types::Role;
use muster::wire::{GroupCarrier, JobPhase, NodeStanding, StatusGroup, StatusNode, StragglerState};
use std::collections::BTreeMap;
use std::fmt::{Display, Write};

/// A label and its value, which may be any text.
type Label<'a> = (&'static str, String);

const PHASES: [JobPhase; 5] =
    [JobPhase::Forming, JobPhase::Running, JobPhase::Broken, JobPhase::Recovering, JobPhase::Ending];
const STATES: [NodeStanding; 6] = [
    NodeStanding::Member,
    NodeStanding::Away,
    NodeStanding::Recovering,
    NodeStanding::Back,
    NodeStanding::Lost,
    NodeStanding::Left,
];

/// The whole answer.
pub fn shown(told: &Told) -> String {
    let mut page = up(1);
    about(&mut page, told);
    nodes(&mut page, told);
    carriers(&mut page, &told.carriers);
    groups(&mut page, &told.groups);
    page.text
}

/// The answer if no scheduler has answered.
pub fn silent() -> String {
    up(0).text
}

fn up(value: u8) -> Page {
    let mut page = Page { text: String::new() };
    page.gauge("muster_scheduler_up", "Whether the scheduler has answered.", [(Vec::new(), value)]);
    page
}

fn about(page: &mut Page, told: &Told) {
    let job = &told.job;
    let labels = vec![
        ("job", short(job)),
        ("job_id", job.job_id.clone().unwrap_or_default()),
        ("scheduler", told.address.to_string()),
        ("version", job.version.clone()),
    ];
    page.gauge("muster_job_info", "Which job this is; always 1.", [(labels, 1)]);
    let phases = PHASES.map(|phase| (vec![("phase", name_of_phase(phase).to_owned())], u8::from(phase == job.phase)));
    page.gauge("muster_job_phase", "How far the job is: 1 for the phase that it is in.", phases);
    page.one("muster_job_workers", "How many workers the job is made of.", job.worker_num);
    page.one("muster_job_servers", "How many parameter servers the job is made of.", job.server_num);
    page.one("muster_job_epoch", "The newest complete membership, counted from 1; 0: none yet.", job.epoch.0);
    page.one("muster_job_recovery", "Whether lost nodes may come back.", u8::from(job.recovery));
    let help = "Whether the cluster is broken. Then muster_job_failure_info says why.";
    page.one("muster_job_failed", help, u8::from(job.failure.is_some()));
    let causes = job.failure.iter().map(|failure| (caused(failure), 1));
    page.gauge("muster_job_failure_info", "The first cause, and the node that it names; always 1.", causes);
    let help = "How often the scheduler was started in this job.";
    page.one("muster_scheduler_generation", help, job.generation);
    let help = "For how long this scheduler serves.";
    page.one("muster_scheduler_uptime_seconds", help, seconds(job.age_ms));
}

fn nodes(page: &mut Page, told: &Told) {
    let nodes = &told.nodes;
    let roles = [(Role::Worker, told.job.worker_num), (Role::Server, told.job.server_num)];
    let counts = roles.into_iter().filter(|(_, wanted)| *wanted > 0).flat_map(|(role, _)| {
        STATES.map(|state| {
            let count = nodes.iter().filter(|node| node.who.role == role && node.state == state).count();
            (vec![("role", role.to_string()), ("state", name_of_state(state).to_owned())], count)
        })
    });
    page.gauge("muster_nodes", "How many nodes are in which state.", counts);
    let states = nodes.iter().map(|node| {
        let more = [("state", name_of_state(node.state).to_owned()), ("pid", node.who.pid.to_string())];
        (with(&node.who, more), 1)
    });
    page.gauge("muster_node_info", "Each node, with its state and its process; always 1.", states);
    // Nothing is to be heard any more of a node that has left.
    let heard = nodes.iter().filter(|node| node.state != NodeStanding::Left);
    let heard = heard.filter_map(|node| Some((with(&node.who, []), seconds(node.heard_ms?))));
    page.gauge("muster_node_heard_seconds", "How long ago the node was heard.", heard);
    let restarts = nodes.iter().map(|node| (with(&node.who, []), node.restarts));
    page.family("counter", "muster_node_restarts_total", "How often the node was lost and came back.", restarts);
    let calls = nodes.iter().flat_map(|node| {
        node.calls.iter().map(|call| {
            let name = call.call.map_or_else(String::new, |call| call.kind.name().to_owned());
            (with(&node.who, [("group", call.group.to_string()), ("collective", name)]), seconds(call.age_ms))
        })
    });
    let help = "How long ago the node entered the collective in which it was at its last heartbeat.";
    page.gauge("muster_node_collective_seconds", help, calls);
    let help = "For how long the node waits for a message; the longest of its waits on the group.";
    page.gauge("muster_node_message_seconds", help, nodes.iter().flat_map(waits));
}

/// A node's longest wait for a message, by group and direction.
fn waits(node: &StatusNode) -> Vec<(Vec<Label<'static>>, String)> {
    let mut longest = BTreeMap::new();
    for wait in &node.waits {
        let operation = if wait.sends { "send" } else { "recv" };
        let age = longest.entry((wait.group.to_string(), operation)).or_insert(0);
        *age = wait.age_ms.max(*age);
    }
    let labelled = |((group, operation), age): ((String, &str), u64)| {
        (with(&node.who, [("group", group), ("operation", operation.to_owned())]), seconds(age))
    };
    longest.into_iter().map(labelled).collect()
}

fn carriers(page: &mut Page, carriers: &[GroupCarrier]) {
    let samples = carriers.iter().map(|told| {
        let words = ("words", told.words.clone());
        (vec![("group", told.group.to_string()), ("carrier", told.carrier.name().to_owned()), words], 1)
    });
    page.gauge("muster_group_carrier_info", "What carries a group's collectives: memory or links; always 1.", samples);
}

fn groups(page: &mut Page, groups: &[StatusGroup]) {
    let revoked = groups.iter().filter_map(|group| {
        let failure = group.failure.as_ref()?;
        Some(([vec![("group", group.group.to_string())], caused(failure)].concat(), 1))
    });
    page.gauge("muster_group_revoked_info", "A group that is over, and why; always 1.", revoked);
    let waiting: Vec<&StatusGroup> = groups.iter().filter(|group| group.failure.is_none()).collect();
    let call = |group: &StatusGroup| {
        let name = group.call.map_or_else(String::new, |call| call.kind.name().to_owned());
        vec![("group", group.group.to_string()), ("collective", name)]
    };
    let inside = waiting.iter().map(|group| (call(group), group.inside));
    page.gauge("muster_group_waiting_members", "How many members wait in a collective for others.", inside);
    let absent = waiting.iter().map(|group| (call(group), group.absent));
    page.gauge("muster_group_absent_members", "How many members have not entered that collective.", absent);
    let ages = waiting.iter().map(|group| (call(group), seconds(group.age_ms)));
    page.gauge("muster_group_waiting_seconds", "For how long the first of them waits.", ages);
    let members = waiting.iter().flat_map(|group| {
        // One that was in no collective has no such time.
        group.members.iter().filter(|member| member.sequence > 0).map(|member| {
            let state = match member.state {
                StragglerState::Inside => "inside",
                StragglerState::Outside => "outside",
                StragglerState::Never => "never",
                StragglerState::Silent => "silent",
                StragglerState::Left => "left",
            };
            (
                with(&member.culprit, [("group", group.group.to_string()), ("state", state.to_owned())]),
                seconds(member.age_ms),
            )
        })
    });
    let help = "A member that has not entered: how long ago it entered, or left, its last collective.";
    page.gauge("muster_group_absent_seconds", help, members);
}

/// A node's labels, and these beside them.
fn with<const N: usize>(who: &Culprit, more: [Label<'static>; N]) -> Vec<Label<'static>> {
    let rank = who.rank.map_or_else(String::new, |rank| rank.to_string());
    let own =
        [("role", who.role.to_string()), ("rank", rank), ("node_id", who.node_id.clone()), ("host", who.host.clone())];
    own.into_iter().chain(more).collect()
}

/// A failure's labels. If no node caused it, the labels of the node are empty, which is as if they were not there.
fn caused(failure: &Failure) -> Vec<Label<'static>> {
    let text = failure.status.text().to_string_lossy();
    let status = ("status", text.split(':').next().unwrap_or_default().to_owned());
    [vec![status], failure.culprit.as_ref().map_or_else(Vec::new, |who| with(who, []))].concat()
}

fn seconds(ms: u64) -> String {
    format!("{}.{:03}", ms / 1000, ms % 1000)
}

/// What is written so far.
struct Page {
    text: String,
}

impl Page {
    fn one(&mut self, name: &str, help: &str, value: impl Display) {
        self.gauge(name, help, [(Vec::new(), value)]);
    }

    fn gauge<V: Display>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Vec<Label<'static>>, V)>,
    ) {
        self.family("gauge", name, help, samples);
    }

    /// All samples of one name. If there are none, nothing is written.
    fn family<V: Display>(
        &mut self,
        kind: &str,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Vec<Label<'static>>, V)>,
    ) {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_some() {
            let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        }
        for (labels, value) in samples {
            let labels: Vec<String> = labels.iter().map(|(label, of)| format!("{label}=\"{}\"", escaped(of))).collect();
            let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
            let _ = writeln!(self.text, "{name}{labels} {value}");
        }
    }
}

/// Escapes the three characters that would end a label's value, or its line. Everything else that a node has put into a
/// name stays as it is.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::super::told::testing::{told, who};
    use super::*;
    use muster::error::Status;
    use muster::types::Epoch;

    fn has(page: &str, lines: &[&str]) {
        for line in lines {
            assert!(page.lines().any(|found| found == *line), "{line:?} is not in\n{page}");
        }
    }

    #[test]
    fn a_running_job_in_which_one_is_absent() {
        let page = shown(&told());
        has(
            &page,
            &[
                "# TYPE muster_scheduler_up gauge",
                "muster_scheduler_up 1",
                "muster_job_info{job=\"abababab\",job_id=\"train\",scheduler=\"127.0.0.1:8118\",version=\"0.1.0\"} 1",
                "muster_job_phase{phase=\"forming\"} 0",
                "muster_job_phase{phase=\"running\"} 1",
                "muster_job_failed 0",
                "muster_scheduler_uptime_seconds 61.500",
                "muster_nodes{role=\"worker\",state=\"member\"} 2",
                "muster_nodes{role=\"worker\",state=\"lost\"} 0",
                "# TYPE muster_node_restarts_total counter",
                "muster_node_restarts_total{role=\"worker\",rank=\"1\",node_id=\"1\",host=\"a\"} 1",
                "muster_group_carrier_info{group=\"world\",carrier=\"memory\",words=\"2 ranks on host a, 2.6 MiB\"} 1",
                "muster_group_absent_members{group=\"world\",collective=\"allreduce\"} 1",
                "muster_group_waiting_seconds{group=\"world\",collective=\"allreduce\"} 11.000",
                "muster_group_absent_seconds{role=\"worker\",rank=\"1\",node_id=\"1\",host=\"a\",group=\"world\",\
                 state=\"inside\"} 12.000",
            ],
        );
        assert!(
            !page.contains("failure_info{") && !page.contains("revoked") && !page.contains("role=\"server\""),
            "{page}"
        );
    }

    #[test]
    fn a_member_that_was_in_no_collective_has_no_time_since_its_last() {
        let mut told = told();
        let member = &mut told.groups[0].members[0];
        (member.state, member.sequence, member.call, member.age_ms) = (StragglerState::Never, 0, None, 0);
        let page = shown(&told);
        has(&page, &["muster_group_absent_members{group=\"world\",collective=\"allreduce\"} 1"]);
        assert!(!page.contains("muster_group_absent_seconds"), "{page}");
    }

    #[test]
    fn of_several_waits_on_a_group_the_longest_is_told() {
        let mut told = told();
        let mut longer = told.nodes[1].waits[0].clone();
        longer.age_ms = 4000;
        told.nodes[1].waits.push(longer);
        let line = "muster_node_message_seconds{role=\"worker\",rank=\"1\",node_id=\"1\",host=\"a\",\
                    group=\"world\",operation=\"recv\"} 4.000";
        has(&shown(&told), &[line]);
        assert_eq!(shown(&told).matches("muster_node_message_seconds{").count(), 1);
    }

    #[test]
    fn a_failure_has_its_labels_and_no_name_can_break_a_line() {
        let mut told = told();
        let (status, cause, epoch) = (Status::PeerLost, "is lost".to_owned(), Epoch(3));
        let mut lost = who(1);
        lost.host = "a\\b\"c\nd".to_owned();
        let failure = Failure { status, culprit: Some(lost), cause, epoch, group: None, sequence: 0 };
        (told.job.failure, told.groups[0].failure) = (Some(failure.clone()), Some(failure));
        let labels = "status=\"ERR_PEER_LOST\",role=\"worker\",rank=\"1\",node_id=\"1\",host=\"a\\\\b\\\"c\\nd\"";
        let (of_job, of_group) = (
            format!("muster_job_failure_info{{{labels}}} 1"),
            format!("muster_group_revoked_info{{group=\"world\",{labels}}} 1"),
        );
        has(&shown(&told), &["muster_job_failed 1", &of_job, &of_group]);
    }

    #[test]
    fn where_nobody_answers_that_is_all() {
        assert_eq!(silent().lines().last(), Some("muster_scheduler_up 0"));
        assert_eq!(silent().lines().count(), 3);
    }
}
