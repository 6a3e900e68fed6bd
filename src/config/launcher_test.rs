use crate::config::{Assignment, Config, Key, Settings};
use crate::types::Role;

const TORCHRUN: [(&str, &str); 5] =
    [("RANK", "3"), ("WORLD_SIZE", "8"), ("LOCAL_RANK", "1"), ("MASTER_ADDR", "node-a"), ("MASTER_PORT", "29500")];
const OPEN_MPI: [(&str, &str); 4] = [
    ("OMPI_COMM_WORLD_RANK", "1"),
    ("OMPI_COMM_WORLD_SIZE", "2"),
    ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
    ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
];

fn with(base: &[(&str, &str)], changes: &[(&str, &str)]) -> Config {
    let kept = base.iter().filter(|(name, _)| changes.iter().all(|(changed, _)| changed != name));
    let mut config = Config::new();
    config.load_env(kept.chain(changes).copied());
    config
}

fn settings(base: &[(&str, &str)], changes: &[(&str, &str)]) -> Settings {
    with(base, changes).settings().expect("these settings are right")
}

fn message(base: &[(&str, &str)], changes: &[(&str, &str)]) -> String {
    with(base, changes).settings().expect_err("these settings are an error").message().to_string()
}

fn worker(rank: u32, host: &str, port: u16) -> Assignment {
    let host = host.to_string();
    Assignment::Node {
        role: Role::Worker,
        host,
        ports: vec![port],
        node_id: None,
        rank: Some(rank),
        hosts_scheduler: rank == 0,
    }
}

#[test]
fn torchrun_says_it_all() {
    let found = settings(&TORCHRUN, &[]);
    assert_eq!(found.assignment, worker(3, "node-a", 29502));
    assert_eq!((found.worker_num, found.server_num, found.device_id), (8, 0, Some(1)));
    assert!(found.warnings.is_empty());
    assert_eq!(settings(&TORCHRUN, &[("RANK", "0")]).assignment, worker(0, "node-a", 29502));
    assert_eq!(settings(&TORCHRUN, &[("MASTER_PORT", "")]).assignment, worker(3, "node-a", 8118));
}

#[test]
fn open_mpi_on_one_host_meets_on_loopback() {
    let found = settings(&OPEN_MPI, &[]);
    assert_eq!(found.assignment, worker(1, "127.0.0.1", 8118));
    assert_eq!((found.worker_num, found.device_id), (2, Some(1)));
    assert_eq!(settings(&OPEN_MPI, &[("MASTER_ADDR", "h"), ("MASTER_PORT", "5000")]).assignment, worker(1, "h", 5002));
}

#[test]
fn several_hosts_need_to_be_told_where_the_scheduler_is() {
    let spread = [("OMPI_COMM_WORLD_LOCAL_RANK", "0"), ("OMPI_COMM_WORLD_LOCAL_SIZE", "1")];
    assert_eq!(
        message(&OPEN_MPI, &spread),
        "Open MPI started this process as one of 2, but nothing says where the scheduler is: set MUSTER_SCHED_HOST (or \
         MASTER_ADDR) to the address of the host of rank 0"
    );
    let told: Vec<_> = spread.into_iter().chain([("MUSTER_SCHED_HOST", "a")]).collect();
    assert_eq!(settings(&OPEN_MPI, &told).assignment, worker(1, "a", 8118));
}

#[test]
fn mpich_has_its_row() {
    let mpich = [("PMI_RANK", "0"), ("PMI_SIZE", "3"), ("MPI_LOCALRANKID", "0"), ("MPI_LOCALNRANKS", "3")];
    assert_eq!(settings(&mpich, &[]).assignment, worker(0, "127.0.0.1", 8118));
}

#[test]
fn the_innermost_launcher_wins_and_the_others_are_not_looked_at() {
    let both: Vec<_> = TORCHRUN.iter().chain(&OPEN_MPI).copied().collect();
    assert_eq!(settings(&both, &[("OMPI_COMM_WORLD_RANK", "77")]).assignment, worker(3, "node-a", 29502));
    assert_eq!(settings(&both, &[("RANK", "")]).assignment, worker(1, "node-a", 29502));
}

#[test]
fn our_own_settings_beat_the_launchers() {
    let host = [("MUSTER_SCHED_HOST", "m"), ("MS_SCHED_HOST", "n"), ("MS_SCHED_PORT", "7000")];
    assert_eq!(settings(&TORCHRUN, &host).assignment, worker(3, "m", 7000));
    assert_eq!(settings(&TORCHRUN, &host[1..]).assignment, worker(3, "n", 7000));
    assert_eq!(settings(&TORCHRUN, &[("MUSTER_RANK_ID", "0")]).assignment, worker(0, "node-a", 29502));
    assert_eq!(settings(&TORCHRUN, &[("RANK_ID", "5")]).assignment, worker(3, "node-a", 29502));
    assert_eq!(settings(&TORCHRUN, &[("MS_WORKER_NUM", "16")]).worker_num, 16);
}

#[test]
fn with_a_role_only_rank_id_counts() {
    let role = [
        ("MS_ROLE", "MS_WORKER"),
        ("MS_SCHED_HOST", "s"),
        ("MS_SCHED_PORT", "8118"),
        ("MS_WORKER_NUM", "4"),
        ("RANK", "99"),
        ("MASTER_PORT", "rubbish"),
        ("RANK_ID", "2"),
    ];
    let found = settings(&TORCHRUN, &role);
    assert_eq!((found.assignment, found.device_id, found.worker_num), (worker(2, "s", 8118), None, 4));
    let mut in_code = with(&TORCHRUN, &role[1..6]);
    in_code.set("role", "MS_WORKER").unwrap();
    assert!(matches!(
        in_code.settings().unwrap().assignment,
        Assignment::Node { rank: None, hosts_scheduler: false, .. }
    ));
    assert!(message(&TORCHRUN, &[("MS_ROLE", "MS_WORKER")]).contains("is not set, but MS_WORKER needs it"));
}

#[test]
fn contradictions_within_one_launcher_name_both() {
    assert_eq!(
        message(&TORCHRUN, &[("RANK", "8")]),
        "RANK is \"8\" and WORLD_SIZE is \"8\": expected RANK to be less than WORLD_SIZE"
    );
    assert_eq!(
        message(&TORCHRUN, &[("LOCAL_RANK", "2"), ("LOCAL_WORLD_SIZE", "2")]),
        "LOCAL_RANK is \"2\" and LOCAL_WORLD_SIZE is \"2\": expected LOCAL_RANK to be less than LOCAL_WORLD_SIZE"
    );
    assert_eq!(
        message(&OPEN_MPI, &[("OMPI_COMM_WORLD_LOCAL_SIZE", "3")]),
        "OMPI_COMM_WORLD_LOCAL_SIZE is \"3\" and OMPI_COMM_WORLD_SIZE is \"2\": expected no more processes on this \
         host than in all"
    );
    assert_eq!(
        message(&TORCHRUN, &[("MS_NODE_ID", "5")]),
        "MS_NODE_ID is \"5\", but RANK is \"3\": expected the same rank from both, or a node id that is no number"
    );
}

#[test]
fn bad_numbers_of_a_launcher_name_its_variable() {
    assert_eq!(
        message(&TORCHRUN, &[("WORLD_SIZE", "x")]),
        "WORLD_SIZE is \"x\": expected a whole number from 1 to 1048576"
    );
    assert_eq!(
        message(&TORCHRUN, &[("WORLD_SIZE", "0")]),
        "RANK is \"3\" and WORLD_SIZE is \"0\": expected RANK to be less than WORLD_SIZE"
    );
    for (base, name, rank) in [
        (&OPEN_MPI[..], "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
        (&TORCHRUN, "LOCAL_WORLD_SIZE", "LOCAL_RANK"),
    ] {
        for number in ["two", "-1", "0", "1.5"] {
            let said = format!("{name} is \"{number}\": expected a whole number, 1 or more");
            assert_eq!(message(base, &[(name, number), (rank, "")]), said);
        }
    }
    assert_eq!(message(&TORCHRUN, &[("RANK", "-1")]), "RANK is \"-1\": expected a whole number from 0 to 1048575");
    assert!(message(&TORCHRUN, &[("MASTER_ADDR", "a b")]).starts_with("MASTER_ADDR is \"a b\": expected a host name"));
    for port in ["65534", "80", "29500x", "0"] {
        assert_eq!(
            message(&TORCHRUN, &[("MASTER_PORT", port)]),
            format!(
                "MASTER_PORT is \"{port}\": expected a whole number from 1024 to 65533, because the scheduler takes the \
                 port 2 above it; or set MUSTER_SCHED_PORT"
            )
        );
        assert!(with(&TORCHRUN, &[("MASTER_PORT", port), ("MUSTER_SCHED_PORT", "9000")]).settings().is_ok());
    }
}

#[test]
fn a_rank_without_a_size_is_no_launcher() {
    let found = settings(&[("RANK", "3")], &[]);
    assert_eq!(found.assignment, Assignment::Alone { node_id: None });
    assert_eq!(
        found.warnings,
        ["RANK is set, but WORLD_SIZE is not: this process is not taken for one that torchrun started"]
    );
    // Otherwise eight processes would each train alone, without a word.
    let found = settings(&[("WORLD_SIZE", "8"), ("MASTER_ADDR", "a")], &[]);
    assert_eq!(found.assignment, Assignment::Alone { node_id: None });
    assert_eq!(
        found.warnings,
        ["WORLD_SIZE is set, but RANK is not: this process is not taken for one that torchrun started"]
    );
}

#[test]
fn what_only_a_process_among_others_has_is_named_if_rank_and_size_are_missing() {
    for (there, names) in [
        (("LOCAL_RANK", "1"), "LOCAL_RANK is set, but RANK and WORLD_SIZE are not: "),
        (("OMPI_COMM_WORLD_LOCAL_SIZE", "2"), "OMPI_COMM_WORLD_LOCAL_SIZE is set, but OMPI_COMM_WORLD_RANK and "),
        (("PET_MASTER_ADDR", "a"), "PET_MASTER_ADDR is set, but PET_NODE_RANK and PET_NNODES are not: "),
        (("LWS_LEADER_ADDRESS", "a"), "LWS_LEADER_ADDRESS is set, but LWS_WORKER_INDEX and LWS_GROUP_SIZE are not: "),
        (("VC_WORKER_HOSTS", "a,b"), "VC_WORKER_HOSTS is set, but VC_TASK_INDEX and VC_*_NUM are not, or more "),
    ] {
        let warnings = settings(&[there], &[]).warnings;
        assert!(warnings.len() == 1 && warnings[0].starts_with(names), "{there:?}: {warnings:?}");
    }
    // A process alone on its host may be all there is.
    for there in [("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", "1"), ("SLURM_LOCALID", "0"), ("MASTER_ADDR", "a")] {
        assert_eq!(settings(&[there], &[]).warnings, [""; 0], "{there:?}");
    }
    // A batch script's own process has rank 0; another rank is that of a step that has not said how large it is.
    assert_eq!(settings(&[("SLURM_PROCID", "0")], &[]).warnings, [""; 0]);
    let of_step = settings(&[("SLURM_PROCID", "1")], &[]).warnings;
    assert!(of_step[0].starts_with("SLURM_PROCID is set, but SLURM_STEP_NUM_TASKS is not"), "{of_step:?}");
}

#[test]
fn the_only_process_of_a_launcher_is_a_cluster_of_one() {
    let one = [("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0")];
    let found = settings(&one, &[]);
    assert_eq!(
        (found.assignment, found.worker_num, found.device_id),
        (Assignment::Alone { node_id: None }, 1, Some(0))
    );
    assert!(found.warnings.is_empty(), "{:?}", found.warnings);
    assert!(matches!(
        settings(&one, &[("MS_SERVER_NUM", "1")]).assignment,
        Assignment::Node { hosts_scheduler: true, .. }
    ));
}

#[test]
fn a_launcher_does_not_place_a_scheduler_of_a_program_s_own() {
    let mut config = Config::new();
    config.load_env([("RANK", "1"), ("WORLD_SIZE", "8"), ("MASTER_ADDR", "job:80"), ("MASTER_PORT", "65534")]);
    let found = config.scheduler_settings().unwrap();
    let here = Assignment::Scheduler { host: "127.0.0.1".to_owned(), ports: vec![0] };
    assert_eq!((&found.assignment, found.worker_num, &found.warnings), (&here, 8, &Vec::new()));
    assert!(!found.origin(Key::SchedPort).contains("MASTER"), "{}", found.origin(Key::SchedPort));
}

#[test]
fn a_process_that_is_alone_by_one_launcher_and_not_by_another_is_told_so() {
    let one = [("RANK", "0"), ("WORLD_SIZE", "1")];
    for (others, words) in [
        (&[("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "2")][..], "OMPI_COMM_WORLD_SIZE is 2: if Open MPI"),
        (&[("PMI_RANK", "0"), ("PMI_SIZE", "3")], "PMI_SIZE is 3: if MPICH or Intel MPI"),
        (&[("VC_TASK_INDEX", "0"), ("VC_WORKER_NUM", "4")], "VC_WORKER_NUM is 4: if Volcano"),
        (&[("FLUX_TASK_RANK", "0"), ("FLUX_JOB_SIZE", "4")], "FLUX_JOB_SIZE is 4: if Flux"),
        (
            &[("PET_NODE_RANK", "0"), ("PET_NNODES", "2"), ("PET_NPROC_PER_NODE", "4")],
            "PET_NNODES is 2: if Kubeflow Trainer",
        ),
        (&[("JOB_COMPLETION_INDEX", "2")], "JOB_COMPLETION_INDEX is 2: if Kubernetes"),
        (&[("PALS_RANKID", "3")], "PALS_RANKID is 3: if PALS"),
    ] {
        let found = settings(&one, others);
        assert_eq!(found.assignment, Assignment::Alone { node_id: None });
        let end = " has started it to work with the others, unset RANK and WORLD_SIZE";
        assert_eq!(found.warnings, [format!("WORLD_SIZE is 1, so this process is a cluster of one, but {words}{end}")]);
    }
    for others in [
        [("PMI_RANK", "0"), ("PMI_SIZE", "1"), ("LOCAL_RANK", "0")], // alone there, too
        [("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "3"), ("LOCAL_RANK", "0")], // no step
        [("PMI_RANK", "1"), ("PMI_SIZE", "3"), ("LOCAL_RANK", "0")], // the first one says it
        [("JOB_COMPLETION_INDEX", "0"), ("PALS_RANKID", "0"), ("LOCAL_RANK", "0")], // perhaps alone there, too
        [("PMI_RANK", "0"), ("PMI_SIZE", "3"), ("MS_SERVER_NUM", "1")], // not alone
    ] {
        assert_eq!(settings(&one, &others).warnings, [""; 0], "{others:?}");
    }
}

#[test]
fn more_workers_than_the_launcher_has_started_are_named() {
    let warnings = |name, count, rank| settings(&OPEN_MPI, &[(name, count), ("OMPI_COMM_WORLD_RANK", rank)]).warnings;
    assert_eq!(
        warnings("MS_WORKER_NUM", "3", "0"),
        ["OMPI_COMM_WORLD_SIZE is 2, but MS_WORKER_NUM is 3: MS_WORKER_NUM counts"]
    );
    for (count, rank) in [("3", "1"), ("2", "0"), ("1", "0")] {
        assert_eq!(warnings("MS_WORKER_NUM", count, rank), [""; 0], "the first one says it; the others may be servers");
    }
    let indexed = [("JOB_COMPLETION_INDEX", "0"), ("MUSTER_WORKER_NUM", "4"), ("MUSTER_SCHED_HOST", "a")];
    assert_eq!(settings(&indexed, &[]).warnings, [""; 0]);
}

#[test]
fn what_a_launcher_says_can_be_read_back() {
    let config = with(&TORCHRUN, &[]);
    assert_eq!(config.get("sched_port").unwrap().as_deref(), Some("29502"));
    assert_eq!(config.get("rank_id").unwrap().as_deref(), Some("3"));
    let found = config.settings().unwrap();
    assert_eq!(found.origin(super::super::Key::SchedPort), "MASTER_PORT + 2");
    assert_eq!(found.origin(super::super::Key::WorkerNum), "WORLD_SIZE");
}
