//! The answer for people: a few lines about the job, a table of its nodes, what carries each group, and a sentence for
//! each group that has something to tell.

use super::told::Told;
use muster::runtime::{absent_in_words, wait_in_words};
use muster::types::GroupId;
use muster::wire::{GroupProgress, JobPhase, NodeStanding, StatusGroup, StatusJob, StatusNode, WAITS_AFTER};
use std::fmt::Write;

const HEAD: [&str; 9] = ["ROLE", "RANK", "NODE ID", "HOST", "PID", "STATE", "HEARD", "RESTARTS", "IS IN"];

/// The whole answer.
pub fn shown(told: &Told) -> String {
    let mut text = about(told);
    if !told.nodes.is_empty() {
        text += "\n";
        text += &table(&told.nodes);
    }
    if !(told.groups.is_empty() && told.carriers.is_empty()) {
        text += "\n";
        told.carriers.iter().for_each(|carried| text += &line(&carried.to_string()));
        told.groups.iter().for_each(|group| text += &line(&sentence(group)));
    }
    text
}

fn about(told: &Told) -> String {
    let StatusJob { job_id, version, generation, age_ms, epoch, phase, words, failure, .. } = &told.job;
    let id = job_id.as_ref().map_or_else(String::new, |id| format!(" {id:?}"));
    let mut text = line(&format!("job {}{id}: {}: {words}", short(&told.job), name_of_phase(*phase)));
    if let Some(failure) = failure {
        text += &line(&format!("first cause: {failure}"));
    }
    let epoch = if epoch.0 == 0 { "no epoch yet".to_owned() } else { format!("epoch {}", epoch.0) };
    let recovery = if told.job.recovery { "on" } else { "off" };
    let (address, age) = (told.address, seconds(*age_ms));
    text += &line(&format!(
        "{epoch}, generation {generation}, recovery {recovery}; scheduler {address} (muster {version}) serves for {age}"
    ));
    text
}

fn table(nodes: &[StatusNode]) -> String {
    let rows: Vec<[String; 9]> = std::iter::once(HEAD.map(str::to_owned)).chain(nodes.iter().map(row)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 9] = std::array::from_fn(width);
    let mut text = String::new();
    for row in &rows {
        let mut words = String::new();
        for (cell, width) in row.iter().zip(widths) {
            let _ = write!(words, "{cell:width$}  ");
        }
        text += &line(words.trim_end());
    }
    text
}

fn row(node: &StatusNode) -> [String; 9] {
    let who = &node.who;
    let mut calls: Vec<String> = node.calls.iter().map(|call| was_in(call, node.heard_ms.unwrap_or(0))).collect();
    if node.more > 0 {
        calls.push(format!("{} more", node.more));
    }
    calls.extend(node.waits.iter().map(wait_in_words));
    [
        who.role.to_string(),
        who.rank.map_or_else(|| "-".to_owned(), |rank| rank.to_string()),
        plain(&who.node_id),
        plain(&who.host),
        who.pid.to_string(),
        name_of_state(node.state).to_owned(),
        node.heard_ms.map_or_else(|| "not yet".to_owned(), |ms| format!("{} ago", seconds(ms))),
        node.restarts.to_string(),
        if calls.is_empty() { "-".to_owned() } else { calls.join(", ") },
    ]
}

/// The collective in which a node was when it was heard, and when it had entered that, if it has waited there. If the
/// node runs from one collective to the next, the time is mostly just the age of its last heartbeat: it is not told,
/// for it would only frighten.
fn was_in(progress: &GroupProgress, heard_ms: u64) -> String {
    let call = progress.call.map_or("a collective".to_owned(), |call| call.kind.to_string());
    let mut text = format!("{call} #{} on {}", progress.entered, progress.group);
    if progress.age_ms >= heard_ms.saturating_add(WAITS_AFTER.as_millis() as u64) {
        text += &format!(" since {}", seconds(progress.age_ms));
    }
    text
}

fn sentence(told: &StatusGroup) -> String {
    if let Some(failure) = &told.failure {
        return format!("{} is revoked: {failure}", told.group);
    }
    let absent = absent_in_words(&told.members, told.absent, 0, told.group);
    let (inside, waiting) = (told.inside, if told.inside == 1 { "rank waits" } else { "ranks wait" });
    format!("{}: {inside} {waiting} since {}{absent}", title(told, told.group), seconds(told.age_ms))
}

/// `allreduce #1042 on world`
fn title(told: &StatusGroup, group: GroupId) -> String {
    let call = told.call.map_or("a collective".to_owned(), |call| call.kind.to_string());
    format!("{call} #{} on {group}", told.sequence)
}

/// The first bytes of the job's name: enough to tell it from another.
pub fn short(job: &StatusJob) -> String {
    job.instance.0[..4].iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn name_of_phase(phase: JobPhase) -> &'static str {
    match phase {
        JobPhase::Forming => "forming",
        JobPhase::Running => "running",
        JobPhase::Broken => "broken",
        JobPhase::Recovering => "recovering",
        JobPhase::Ending => "ending",
    }
}

pub fn name_of_state(state: NodeStanding) -> &'static str {
    match state {
        NodeStanding::Member => "member",
        NodeStanding::Away => "away",
        NodeStanding::Recovering => "recovering",
        NodeStanding::Back => "back",
        NodeStanding::Lost => "lost",
        NodeStanding::Left => "left",
    }
}

fn seconds(ms: u64) -> String {
    format!("{:.1} s", ms as f64 / 1000.0)
}

fn line(words: &str) -> String {
    plain(words) + "\n"
}

/// The words without what a terminal would take for a command: names come from any node that registered.
pub fn plain(words: &str) -> String {
    muster::types::shown(words).into_owned()
}

#[cfg(test)]
mod tests {
    use super::super::told::testing::{told, who};
    use super::*;
    use muster::error::{Failure, Status};
    use muster::types::Epoch;

    #[test]
    fn a_running_job_in_which_one_is_absent() {
        let text = shown(&told());
        let expected = "\
job abababab \"train\": running: 2 workers
epoch 3, generation 2, recovery on; scheduler 127.0.0.1:8118 (muster 0.1.0) serves for 61.5 s

ROLE    RANK  NODE ID  HOST  PID  STATE   HEARD      RESTARTS  IS IN
worker  0     0        a     800  member  0.2 s ago  0         barrier #7 on world since 11.0 s
worker  1     1        a     801  member  0.2 s ago  1         barrier #6 on world since 12.0 s, recv from any rank, tag 7, on world since 3.0 s

world: memory (2 ranks on host a, 2.6 MiB)
allreduce #7 on world: 1 rank waits since 11.0 s; rank 1 (node id \"1\", host a, pid 801) never entered it: it is in \
barrier #6 since 12.0 s
";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_job_that_is_broken_and_one_that_has_only_begun() {
        let mut told = told();
        let cause = "is lost: its process has ended".to_owned();
        let (status, epoch) = (Status::PeerLost, Epoch(3));
        let failure = Failure { status, culprit: Some(who(1)), cause, epoch, group: None, sequence: 0 };
        told.job.failure = Some(failure.clone());
        told.job.phase = JobPhase::Broken;
        told.nodes[1].state = NodeStanding::Lost;
        (told.nodes[1].heard_ms, told.nodes[0].more) = (None, 3);
        told.groups[0].failure = Some(failure);
        let text = shown(&told);
        for part in [
            "\nfirst cause: rank 1 (node id \"1\", host a, pid 801) is lost: its process has ended\n",
            "  lost    not yet  ",
            "since 11.0 s, 3 more\n",
            "\nworld is revoked: rank 1 (node id",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        told.job.epoch = Epoch(0);
        (told.nodes, told.groups, told.carriers) = (Vec::new(), Vec::new(), Vec::new());
        assert_eq!(shown(&told).lines().count(), 3);
        assert!(shown(&told).contains("no epoch yet, "));
    }

    /// Its last heartbeat is 0.9 s old, and told of a call that had begun so many milliseconds before.
    fn was_in_since(before_ms: u64) -> String {
        let mut told = told();
        told.nodes[0].heard_ms = Some(900);
        told.nodes[0].calls[0].age_ms = 900 + before_ms;
        shown(&told).lines().find(|line| line.contains("  0.9 s ago  ")).expect("it has a row").to_owned()
    }

    #[test]
    fn a_call_that_had_just_begun_when_its_rank_was_heard_is_not_said_to_last() {
        for (before_ms, shown) in
            [(0, "  barrier #7 on world"), (299, "  barrier #7 on world"), (300, "  barrier #7 on world since 1.2 s")]
        {
            let row = was_in_since(before_ms);
            assert!(row.ends_with(shown), "{before_ms} ms: {row}");
        }
    }

    #[test]
    fn what_a_terminal_would_obey_is_shown_as_text() {
        let mut told = told();
        told.nodes[0].who.host = "a\x1b[2Jb".to_owned();
        told.job.words = "one\ntwo\x07".to_owned();
        told.carriers[0].words = "\x1b[3J".to_owned();
        let text = shown(&told);
        assert!(text.contains("a\\u{1b}[2Jb") && text.contains("one\\u{a}two\\u{7}"), "{text}");
        assert!(!text.contains('\x1b') && !text.contains('\x07'));
    }
}
