//! What a scheduler has told of its job.

use muster::wire::{GroupCarrier, StatusGroup, StatusJob, StatusNode};
use std::net::SocketAddr;

/// All that was told.
pub struct Told {
    /// The address that gave the answer.
    pub address: SocketAddr,
    /// The job as a whole.
    pub job: StatusJob,
    /// Its nodes.
    pub nodes: Vec<StatusNode>,
    /// Its groups that have something to tell.
    pub groups: Vec<StatusGroup>,
    /// What carries its groups' collectives, as far as that is known.
    pub carriers: Vec<GroupCarrier>,
}

/// Something told of a cluster, for the tests.
#[cfg(test)]
pub mod testing {
    use super::*;
    use muster::error::Culprit;
    use muster::types::{Call, CallKind, Device, Epoch, GroupId, JobInstance, Role};
    use muster::wire::{
        Carrier, GroupProgress, JobPhase, MessageWait, NodeStanding, StatusPlace, Straggler, StragglerState,
    };

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
            let (who, state) = (who(rank), NodeStanding::Member);
            let place = StatusPlace {
                host_key: "a/boot".to_owned(),
                local_rank: rank,
                address: Some(([10, 0, 0, 1], 4000).into()),
                device: Device { id: Some(7 - rank), ip: None },
            };
            let (heard_ms, waits, place) = (Some(250), Vec::new(), Some(place));
            StatusNode { who, state, heard_ms, restarts: rank, calls, more: 0, waits, place }
        };
        let straggler = Straggler {
            culprit: who(1),
            state: StragglerState::Inside,
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
            members: vec![straggler],
        };
        let mut nodes = vec![node(0, call(7, 11_000)), node(1, call(6, 12_000))];
        let (group_id, tag) = (GroupId::WORLD, Some(7));
        nodes[1].waits = vec![MessageWait { group: group_id, sends: false, peer: None, tag, age_ms: 3000 }];
        let words = "2 ranks on host a, 2.6 MiB".to_owned();
        let carriers = vec![GroupCarrier { group: GroupId::WORLD, carrier: Carrier::Memory, words }];
        Told { address: ([127, 0, 0, 1], 8118).into(), job, nodes, groups: vec![group], carriers }
    }
}
