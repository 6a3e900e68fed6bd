//! The rows of the table beyond torchrun and `mpirun`, where the scheduler's host comes from, and what is said where no row counts.

use crate::config::{Assignment, Config, Key, Settings};
use std::path::Path;

const SLURM: [(&str, &str); 8] = [
    ("SLURM_JOB_ID", "71"),
    ("SLURM_STEP_ID", "2"),
    ("SLURM_PROCID", "3"),
    ("SLURM_LOCALID", "1"),
    ("SLURM_STEP_NUM_TASKS", "4"),
    ("SLURM_STEP_NODELIST", "gpu[07,09]"),
    ("SLURM_JOB_NODELIST", "gpu[05-09]"),
    ("SLURM_NTASKS", "4"),
];
const TRAINER: [(&str, &str); 5] = [
    ("PET_NODE_RANK", "1"),
    ("PET_NNODES", "2"),
    ("PET_NPROC_PER_NODE", "1"),
    ("PET_MASTER_ADDR", "job-node-0-0.job"),
    ("PET_MASTER_PORT", "29400"),
];
const LWS: [(&str, &str); 3] =
    [("LWS_WORKER_INDEX", "2"), ("LWS_GROUP_SIZE", "4"), ("LWS_LEADER_ADDRESS", "lws-0.lws.default")];
const VOLCANO: [(&str, &str); 3] =
    [("VC_TASK_INDEX", "1"), ("VC_WORKER_NUM", "2"), ("VC_WORKER_HOSTS", "job-worker-0.job,job-worker-1.job")];
const INDEXED: [(&str, &str); 3] =
    [("JOB_COMPLETION_INDEX", "1"), ("MUSTER_WORKER_NUM", "4"), ("MUSTER_SCHED_HOST", "train-0.train")];
const OPEN_MPI: [(&str, &str); 4] = [
    ("OMPI_COMM_WORLD_RANK", "1"),
    ("OMPI_COMM_WORLD_SIZE", "4"),
    ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
    ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
];

fn config(base: &[(&str, &str)], changes: &[(&str, &str)]) -> Config {
    let kept = base.iter().filter(|(name, _)| changes.iter().all(|(changed, _)| changed != name));
    let mut config = Config::new();
    config.load_env(kept.chain(changes).copied());
    config
}

fn settings(base: &[(&str, &str)], changes: &[(&str, &str)]) -> Settings {
    config(base, changes).settings().unwrap_or_else(|error| panic!("{base:?} {changes:?}: {error}"))
}

fn message(base: &[(&str, &str)], changes: &[(&str, &str)]) -> String {
    config(base, changes).settings().expect_err("these settings are an error").message().to_string()
}

/// Rank, workers, where the scheduler is, its ports, and whether it is here.
fn place(settings: &Settings) -> (u32, u32, &str, &[u16], bool) {
    match &settings.assignment {
        Assignment::Node { host, ports, rank: Some(rank), hosts_scheduler, .. } => {
            (*rank, settings.worker_num, host, ports, *hosts_scheduler)
        }
        other => panic!("expected a rank of a launcher, found {other:?}"),
    }
}

fn host(base: &[(&str, &str)], changes: &[(&str, &str)]) -> String {
    place(&settings(base, changes)).2.to_owned()
}

fn is_alone(settings: &Settings) -> bool {
    matches!(settings.assignment, Assignment::Alone { .. })
}

#[test]
fn a_name_with_a_placeholder_stands_for_those_of_all_tasks() {
    let names = super::Names::gather();
    assert!(names.have("VC_WORKER_HOSTS") && names.have("SLURM_PROCID") && !names.have("VC__HOSTS"));
}

#[test]
fn a_step_of_slurm_says_it_all() {
    let found = settings(&SLURM, &[]);
    let (rank, size, host, ports, is_here) = place(&found);
    assert_eq!((rank, size, host, is_here, found.device_id), (3, 4, "gpu07", false, Some(1)));
    assert_eq!(found.derived_job.as_ref().map(super::super::DerivedJob::mark), Some("Slurm 71/2"));
    assert_eq!(ports.len(), 8, "those of the step");
    assert_eq!(found.origin(Key::SchedHost), "the first host of SLURM_STEP_NODELIST");
    assert!(found.host_is_listed());
    assert!(found.warnings.is_empty(), "{:?}", found.warnings);
    assert!(place(&settings(&SLURM, &[("SLURM_PROCID", "0")])).4);
    let other = settings(&SLURM, &[("SLURM_STEP_ID", "3")]);
    assert_ne!(place(&other).3, place(&found).3, "a step beside it has ports of its own");
}

#[test]
fn outside_of_a_step_a_process_of_slurms_is_alone() {
    // A batch script's own process has a rank, and Slurm's numbers for its own steps are no steps of srun's.
    for changes in [
        &[("SLURM_STEP_ID", ""), ("SLURM_STEP_NUM_TASKS", ""), ("SLURM_PROCID", "0")][..],
        &[("SLURM_STEP_ID", "4294967291"), ("SLURM_STEP_NUM_TASKS", ""), ("SLURM_PROCID", "0")],
        &[("SLURM_STEP_ID", "4294967290"), ("SLURM_STEP_NUM_TASKS", "1"), ("SLURM_PROCID", "0")],
        &[("SLURM_STEP_NUM_TASKS", "1"), ("SLURM_PROCID", "0")],
    ] {
        let found = settings(&SLURM, changes);
        assert!(is_alone(&found) && found.warnings.is_empty(), "{changes:?}: {:?}", found.warnings);
    }
}

#[test]
fn srun_knows_more_than_its_pmi_says() {
    let pmi2 = [("PMI_RANK", "3"), ("PMI_SIZE", "4"), ("PMI_JOBID", "71.2")];
    let found = settings(&SLURM, &pmi2);
    assert_eq!((place(&found).2, found.device_id), ("gpu07", Some(1)));
    assert_eq!(found.derived_job.map(|job| job.mark().to_owned()).as_deref(), Some("Slurm 71/2"));
    // Hydra's proxies are a step of Slurm's, too. Its ranks are told from others by what only Hydra sets.
    let hydra = [("PMI_RANK", "3"), ("PMI_SIZE", "8"), ("MPI_LOCALRANKID", "1"), ("MPI_LOCALNRANKS", "4")];
    let found = settings(&SLURM, &hydra);
    assert_eq!((place(&found).0, place(&found).1, place(&found).2), (3, 8, "gpu05"));
}

#[test]
fn under_slurm_the_host_is_found_whoever_gives_the_rank() {
    assert_eq!(host(&SLURM, &OPEN_MPI), "gpu05", "a proxy's step does not have the first node");
    let torch = [("RANK", "1"), ("WORLD_SIZE", "2")];
    assert_eq!(host(&SLURM, &torch), "gpu05", "torchrun's steps differ on each node");
    assert_eq!(host(&SLURM, &[torch[0], torch[1], ("MASTER_ADDR", "m")]), "m");
    assert_eq!(host(&SLURM, &[("MASTER_ADDR", "m")]), "m");
    assert_eq!(host(&SLURM, &[("MS_SCHED_HOST", "s"), ("MASTER_ADDR", "m")]), "s");
    assert_eq!(host(&SLURM, &[("SLURM_STEP_NODELIST", "")]), "gpu05");
    assert_eq!(host(&SLURM, &[("SLURM_STEP_NODELIST", "gpu07")]), "127.0.0.1", "all ranks are there");
    let local = [("OMPI_COMM_WORLD_LOCAL_SIZE", "4")];
    let mpi: Vec<_> = SLURM.into_iter().chain(OPEN_MPI).collect();
    assert_eq!(host(&mpi, &local), "127.0.0.1");
    assert!(message(&SLURM, &[("SLURM_STEP_NODELIST", "gpu[")]).starts_with("the first host of SLURM_STEP_NODELIST is"));
    let nowhere = message(&SLURM, &[("SLURM_STEP_NODELIST", ""), ("SLURM_JOB_NODELIST", "")]);
    assert!(nowhere.starts_with("Slurm started this process as one of 4, but nothing says where"), "{nowhere}");
}

#[test]
fn what_launchers_say_of_other_hosts() {
    let spans = |base: &[(&str, &str)], changes: &[(&str, &str)]| settings(base, changes).spans_hosts;
    let torch = [("RANK", "1"), ("WORLD_SIZE", "4"), ("LOCAL_RANK", "1"), ("MASTER_ADDR", "m")];
    for (local, expected) in [("2", true), ("4", false), ("", false)] {
        assert_eq!(spans(&torch, &[("LOCAL_WORLD_SIZE", local)]), expected, "{local:?}");
    }
    let said = message(&torch, &[("LOCAL_WORLD_SIZE", "x")]);
    assert!(said.starts_with("LOCAL_WORLD_SIZE is \"x\": expected a whole number"), "{said}");
    assert!(spans(&SLURM, &[]));
    assert!(!spans(&SLURM, &[("SLURM_STEP_NODELIST", "gpu07")]));
    assert!(!spans(&SLURM, &[("SLURM_STEP_NODELIST", "")]), "it does not say");
    assert!(spans(&torch, &[("LOCAL_WORLD_SIZE", "2"), ("MUSTER_SCHED_HOST", "s")]), "wherever the name comes from");
    let role = [("MS_ROLE", "MS_WORKER"), ("MS_SCHED_PORT", "8118"), ("MS_WORKER_NUM", "4"), ("MS_SCHED_HOST", "s")];
    assert!(!spans(&torch, &[&[("LOCAL_WORLD_SIZE", "2")][..], &role].concat()), "no launcher counts");
}

#[test]
fn torchruns_runs_are_one_job_on_all_steps_of_slurms() {
    let torch = [("RANK", "1"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "m"), ("TORCHELASTIC_RUN_ID", "r")];
    let mark = |step| {
        let found = settings(&SLURM, &[&torch[..], &[("SLURM_STEP_ID", step)]].concat());
        (found.derived_job, place(&settings(&SLURM, &torch)).3.to_vec())
    };
    assert_eq!(mark("0"), mark("1"));
}

#[test]
fn a_pod_is_a_rank() {
    let found = settings(&TRAINER, &[]);
    assert_eq!(place(&found), (1, 2, "job-node-0-0.job", &[29402][..], false));
    assert_eq!(found.origin(Key::SchedPort), "PET_MASTER_PORT + 2");
    assert!(!found.host_is_listed());
    assert_eq!(place(&settings(&TRAINER, &[("PET_NPROC_PER_NODE", "")])).1, 2);
    assert_eq!(place(&settings(&LWS, &[])), (2, 4, "lws-0.lws.default", &[8118][..], false));
    assert_eq!(place(&settings(&VOLCANO, &[])), (1, 2, "job-worker-0.job", &[8118][..], false));
    assert_eq!(place(&settings(&INDEXED, &[])), (1, 4, "train-0.train", &[8118][..], false));
    assert_eq!(place(&settings(&INDEXED, &[("JOB_NAME", "train")])).3.len(), 8);
    for (base, rank) in [
        (&TRAINER[..], "PET_NODE_RANK"),
        (&LWS, "LWS_WORKER_INDEX"),
        (&VOLCANO, "VC_TASK_INDEX"),
        (&INDEXED, "JOB_COMPLETION_INDEX"),
    ] {
        assert!(place(&settings(base, &[(rank, "0")])).4, "{rank}: rank 0 has the scheduler");
        assert_eq!(host(base, &[("MASTER_ADDR", "m"), ("MUSTER_SCHED_HOST", "")]), "m");
        let beyond = message(base, &[(rank, "9")]);
        assert!(beyond.starts_with(&format!("{rank} is \"9\" and ")), "{beyond}");
    }
    let nowhere = message(&INDEXED, &[("MUSTER_SCHED_HOST", "")]);
    assert!(nowhere.starts_with("Kubernetes started this process as one of 4, but nothing says where"), "{nowhere}");
}

#[test]
fn of_several_tasks_of_volcanos_the_host_name_says_which() {
    let second = [("VC_MASTER_NUM", "2"), ("VC_MASTER_HOSTS", "job-master-0.job,job-master-1.job")];
    let as_host = |name| config(&VOLCANO, &[second[0], second[1], ("HOSTNAME", name)]).settings().unwrap();
    assert_eq!(place(&as_host("job-worker-1")).2, "job-worker-0.job");
    assert_eq!(place(&as_host("job-master-1")).2, "job-master-0.job");
    for unknown in ["", "elsewhere", "job-worker-0"] {
        let found = as_host(unknown);
        assert!(is_alone(&found));
        assert_eq!(
            found.warnings,
            ["VC_TASK_INDEX is set, but VC_*_NUM is not, or more than one is and HOSTNAME does not say which: this process is \
              not taken for one that Volcano started"]
        );
    }
}

#[test]
fn the_innermost_launcher_wins() {
    let all = [&TRAINER[..], &LWS, &VOLCANO, &SLURM, &INDEXED[..1]].concat();
    for (inner, gone, rank) in [
        ("Slurm", &[][..], 3),
        ("Kubeflow Trainer", &["SLURM_PROCID"][..], 1),
        ("LeaderWorkerSet", &["SLURM_PROCID", "PET_NNODES"], 2),
        ("Volcano", &["SLURM_PROCID", "PET_NNODES", "LWS_GROUP_SIZE"], 1),
    ] {
        let gone: Vec<_> = gone.iter().map(|name| (*name, "")).collect();
        let config = config(&all, &gone);
        assert_eq!(config.placement().map(|placement| placement.launcher.name), Some(inner));
        assert_eq!(place(&config.settings().unwrap()).0, rank);
    }
    assert_eq!(place(&settings(&SLURM, &OPEN_MPI)).0, 1);
    assert_eq!(place(&settings(&INDEXED, &[("RANK", "0"), ("WORLD_SIZE", "4")])).0, 0);
}

#[test]
fn a_file_of_hosts_is_read_where_nothing_else_says_the_host() {
    let file = [("HYDRA_HOST_FILE", "/etc/mpi/hostfile")];
    let learn = |changes: &[(&str, &str)], read: Result<&str, &str>| {
        let mut config = config(&OPEN_MPI, &[&file[..], changes].concat());
        config.learn_host_file(|path, _| {
            assert_eq!(path, Path::new("/etc/mpi/hostfile"));
            read.map(|text| text.as_bytes().to_vec()).map_err(str::to_owned)
        });
        config.settings()
    };
    let found = learn(&[], Ok("# of the job\nw-0.job slots=2\nw-1.job slots=2\n")).unwrap();
    assert_eq!(place(&found).2, "w-0.job");
    assert_eq!(found.origin(Key::SchedHost), "the first host of \"/etc/mpi/hostfile\" (HYDRA_HOST_FILE)");
    assert!(found.host_is_listed());
    let missing = learn(&[], Err("can't be read: no such file")).unwrap_err();
    let end =
        "(or MASTER_ADDR) to the address of the host of rank 0; HYDRA_HOST_FILE names \"/etc/mpi/hostfile\", but that \
               can't be read: no such file";
    assert!(missing.message().ends_with(end), "{missing}");
    assert!(learn(&[], Ok("\n")).unwrap_err().message().ends_with("but that has no host in it"));
    for told in [
        ("MASTER_ADDR", "m"),
        ("MS_SCHED_HOST", "m"),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "4"),
        ("OMPI_COMM_WORLD_RANK", ""),
    ] {
        config(&OPEN_MPI, &[file[0], told]).learn_host_file(|_, _| panic!("{told:?}: it need not be read"));
    }
}

#[test]
fn what_is_half_there_or_tells_no_process_its_place_is_said_by_name() {
    let taken = |name| format!("this process is not taken for one that {name} started");
    for (base, gone, end) in [
        (
            &TRAINER[..],
            "PET_NODE_RANK",
            format!("PET_NNODES is set, but PET_NODE_RANK is not: {}", taken("Kubeflow Trainer")),
        ),
        (
            &LWS,
            "LWS_GROUP_SIZE",
            format!("LWS_WORKER_INDEX is set, but LWS_GROUP_SIZE is not: {}", taken("LeaderWorkerSet")),
        ),
        (&VOLCANO, "VC_TASK_INDEX", format!("VC_WORKER_NUM is set, but VC_TASK_INDEX is not: {}", taken("Volcano"))),
        (&SLURM, "SLURM_PROCID", format!("SLURM_STEP_NUM_TASKS is set, but SLURM_PROCID is not: {}", taken("Slurm"))),
        (
            &SLURM,
            "SLURM_STEP_NUM_TASKS",
            format!("SLURM_PROCID is set, but SLURM_STEP_NUM_TASKS is not: {}", taken("Slurm")),
        ),
    ] {
        let found = settings(base, &[(gone, "")]);
        assert!(is_alone(&found), "{base:?} without {gone}");
        assert_eq!(found.warnings, [end]);
    }
    let found = settings(&INDEXED[..1], &[]);
    let words = format!("JOB_COMPLETION_INDEX is set, but MUSTER_WORKER_NUM is not: {}", taken("Kubernetes"));
    assert_eq!((is_alone(&found), found.warnings), (true, vec![words]));
    for several in [("PET_NPROC_PER_NODE", "8"), ("PET_NPROC_PER_NODE", "auto"), ("PET_NNODES", "1:4")] {
        let found = settings(&TRAINER, &[several]);
        let words =
            "PET_NODE_RANK and PET_NNODES are set, but PET_NPROC_PER_NODE is not 1, or PET_NNODES is no number: ";
        assert!(
            is_alone(&found) && found.warnings.len() == 1 && found.warnings[0].starts_with(words),
            "{:?}",
            found.warnings
        );
    }
    let found = settings(&SLURM, &[("SLURM_STEP_ID", "")]);
    let words =
        "SLURM_PROCID and SLURM_STEP_NUM_TASKS are set, but SLURM_STEP_ID does not name a job step: this process is a";
    assert!(
        is_alone(&found) && found.warnings.len() == 1 && found.warnings[0].starts_with(words),
        "{:?}",
        found.warnings
    );
}

#[test]
fn a_launcher_that_is_known_by_its_mark_alone_is_no_reason_to_be_silent() {
    for (variables, name) in [
        (&[("PMIX_RANK", "0")][..], "a launcher that speaks PMIx"),
        (&[("FLUX_TASK_RANK", "1"), ("FLUX_JOB_SIZE", "4"), ("PMIX_RANK", "1")], "Flux"),
        (&[("PALS_RANKID", "0")], "PALS"),
        (&[("JSM_NAMESPACE_RANK", "0"), ("JSM_NAMESPACE_SIZE", "2")], "jsrun"),
        (&[("MV2_COMM_WORLD_RANK", "0"), ("MV2_COMM_WORLD_SIZE", "2")], "MVAPICH"),
        (&[("HOROVOD_RANK", "0"), ("HOROVOD_SIZE", "2")], "Horovod"),
        (&[("K_MPI_JOB_ROLE", "launcher")], "Kubeflow's MPIJob"),
        (&[("VK_TASK_INDEX", "1")], "Volcano"),
    ] {
        let found = settings(variables, &[]);
        let words =
            format!("{} is set, but this version does not take a rank from {name}: this process is", variables[0].0);
        assert!(found.warnings.len() == 1 && found.warnings[0].starts_with(&words), "{:?}", found.warnings);
        let role =
            [("MS_ROLE", "MS_WORKER"), ("MS_SCHED_HOST", "a"), ("MS_SCHED_PORT", "8118"), ("MS_WORKER_NUM", "4")];
        for known in [&role[..], &OPEN_MPI, &SLURM] {
            let host = [("MASTER_ADDR", "m")];
            assert_eq!(settings(known, &[variables, &host].concat()).warnings, [""; 0], "{known:?}");
        }
    }
    assert_eq!(settings(&[("FLUX_TASK_RANK", "0"), ("FLUX_JOB_SIZE", "1")], &[]).warnings, [""; 0], "one alone");
}

#[test]
fn what_is_no_number_is_an_error_that_names_its_variable() {
    for (base, variable) in [
        (&SLURM[..], "SLURM_PROCID"),
        (&SLURM, "SLURM_STEP_NUM_TASKS"),
        (&SLURM, "SLURM_LOCALID"),
        (&TRAINER, "PET_NODE_RANK"),
        (&LWS, "LWS_WORKER_INDEX"),
        (&LWS, "LWS_GROUP_SIZE"),
        (&VOLCANO, "VC_TASK_INDEX"),
        (&VOLCANO, "VC_WORKER_NUM"),
        (&INDEXED, "JOB_COMPLETION_INDEX"),
    ] {
        let words = message(base, &[(variable, "2x")]);
        assert!(words.starts_with(&format!("{variable} is \"2x\": expected a whole number")), "{words}");
    }
    let words = message(&SLURM, &[("SLURM_LOCALID", "4")]);
    assert_eq!(
        words,
        "SLURM_LOCALID is \"4\" and SLURM_STEP_NUM_TASKS is \"4\": expected SLURM_LOCALID to be less than SLURM_STEP_NUM_TASKS"
    );
}

#[test]
fn no_launchers_variables_are_too_odd() {
    let values = [
        "",
        "0",
        "1",
        "2",
        "-1",
        "4",
        "65535",
        "18446744073709551616",
        "a,b",
        "n[1-2]",
        "[",
        "]",
        ",",
        "1:4",
        "\u{202e}",
        "a b",
    ];
    let volcano =
        ["VC_A_NUM", "VC_A_HOSTS", "VC_B_C_NUM", "VC_B_C_HOSTS", "VC__NUM", "VC_NUM", "VC_TASK_INDEX", "HOSTNAME"];
    let own =
        ["MUSTER_WORKER_NUM", "MUSTER_SCHED_HOST", "MUSTER_RANK_ID", "MASTER_ADDR", "MASTER_PORT", "HYDRA_HOST_FILE"];
    let pmi = ["PMI_RANK", "PMI_SIZE", "PMIX_RANK", "RANK", "WORLD_SIZE", "JOB_COMPLETION_INDEX", "FLUX_TASK_RANK"];
    let rows = [&[][..], &SLURM, &TRAINER, &LWS, &VOLCANO, &INDEXED, &OPEN_MPI];
    let names: Vec<&str> = rows.concat().iter().map(|(name, _)| *name).chain(volcano).chain(own).chain(pmi).collect();
    // A fixed sequence, so that a failure is the same again.
    let mut state = 1u64;
    let mut draw = |below: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % below
    };
    let (mut placed, mut alone, mut wrong) = (0, 0, 0);
    for _ in 0..5_000 {
        let base = rows[draw(rows.len())];
        let variables: Vec<_> = (0..draw(8)).map(|_| (names[draw(names.len())], values[draw(values.len())])).collect();
        let mut config = config(base, &variables);
        config.learn_host_file(|_, _| Ok(values[draw(values.len())].as_bytes().to_vec()));
        match config.settings() {
            Ok(found) if is_alone(&found) => alone += 1,
            Ok(found) => {
                assert!(place(&found).0 < place(&found).1, "{variables:?}");
                placed += 1;
            }
            Err(error) => {
                assert!(
                    error.message().contains("expected") || error.message().contains("set MUSTER_SCHED_HOST"),
                    "{error}"
                );
                wrong += 1;
            }
        }
    }
    assert!(placed > 100 && alone > 100 && wrong > 100, "{placed} {alone} {wrong}");
}
