//! `muster status`: how the job of a live scheduler is, as that scheduler tells it.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`options`] | words and environment become validated options |
//! | [`ask`] | the question, and the answer or why there is none |
//! | [`text`], [`json`] | how it is shown |
//!
//! Tested beside each module, and with real processes by `tests/python/test_status.py`.

pub mod ask;
mod json;
pub mod options;
pub mod text;

use crate::cli::help;
use crate::cli::words::Asked;
use crate::code;
use crate::voice::Voice;
use muster::wire::{StatusGroup, StatusJob, StatusNode};
use options::Format;
use std::ffi::OsString;
use std::io::Write;
use std::net::SocketAddr;

/// All that was told.
pub struct Told {
    /// The address that gave the answer.
    address: SocketAddr,
    /// The job as a whole.
    pub job: StatusJob,
    /// Its nodes.
    pub nodes: Vec<StatusNode>,
    groups: Vec<StatusGroup>,
}

/// Runs it with the words after `status`. Returns the exit code.
pub fn command(words: Vec<OsString>) -> i32 {
    let options = match options::parse(words, std::env::vars_os()) {
        Ok(Asked::With(options)) => options,
        Ok(Asked::Help) => {
            Voice::output().say(help::page(&options::COMMAND, options::COMMAND.name));
            return 0;
        }
        Err(why) => {
            eprintln!("muster status: {why}\nmuster status --help lists the options");
            return code::USAGE;
        }
    };
    match ask::ask(&options.host, options.port, options.timeout, |_| true) {
        Ok(told) => {
            let shown = match options.format {
                Format::Text => text::shown(&told),
                Format::Json => json::shown(&told),
            };
            let mut out = std::io::stdout().lock();
            // A reader that has closed the output does not want to hear.
            let _ = out.write_all(shown.as_bytes()).and_then(|()| out.flush());
            0
        }
        Err(why) => {
            eprintln!("muster status: {}", text::plain(&why.words));
            code::UNABLE
        }
    }
}

/// Something told of a cluster, for the tests.
#[cfg(test)]
pub mod testing {
    use super::*;
    use muster::error::Culprit;
    use muster::types::{Call, CallKind, Epoch, GroupId, JobInstance, Role};
    use muster::wire::{Absence, AbsenceState, GroupProgress, JobPhase, MessageWait, NodeState};

    const BARRIER: Call = Call { kind: CallKind::Barrier, dtype: None, op: None, root: None, count: 0, layout: 0 };

    pub fn who(rank: u32) -> Culprit {
        Culprit {
            role: Role::Worker,
            rank: Some(rank),
            node_id: rank.to_string(),
            host: "a".to_owned(),
            pid: 800 + rank,
            last_call: None,
        }
    }

    /// Rank 0 waits for rank 1, which is in the barrier before.
    pub fn told() -> Told {
        let job = StatusJob {
            instance: JobInstance([0xab; 16]),
            job_id: Some("train".to_owned()),
            version: "0.1.0".to_owned(),
            recovery: true,
            worker_num: 2,
            server_num: 0,
            generation: 2,
            age_ms: 61_500,
            epoch: Epoch(3),
            phase: JobPhase::Running,
            words: "2 workers".to_owned(),
            failure: None,
        };
        let call = |entered, age_ms| {
            let (group, finished, call) = (GroupId::WORLD, entered - 1, Some(BARRIER));
            vec![GroupProgress { group, entered, finished, call, age_ms }]
        };
        let node = |rank, calls| {
            let (who, state) = (who(rank), NodeState::Member);
            StatusNode { who, state, heard_ms: Some(250), restarts: rank, calls, more: 0, waits: Vec::new() }
        };
        let absence = Absence {
            culprit: who(1),
            state: AbsenceState::Inside,
            sequence: 6,
            call: Some(BARRIER),
            age_ms: 12_000,
            wait: None,
        };
        let group = StatusGroup {
            group: GroupId::WORLD,
            failure: None,
            sequence: 7,
            call: Some(Call { kind: CallKind::Allreduce, count: 4, ..BARRIER }),
            inside: 1,
            age_ms: 11_000,
            absent: 1,
            members: vec![absence],
        };
        let mut nodes = vec![node(0, call(7, 11_000)), node(1, call(6, 12_000))];
        let (group_id, tag) = (GroupId::WORLD, Some(7));
        nodes[1].waits = vec![MessageWait { group: group_id, sends: false, peer: None, tag, age_ms: 3000 }];
        Told { address: ([127, 0, 0, 1], 8118).into(), job, nodes, groups: vec![group] }
    }
}
