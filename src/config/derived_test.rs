use crate::config::{Assignment, Config, Settings};

const OPEN_MPI: [(&str, &str); 6] = [
    ("OMPI_COMM_WORLD_RANK", "1"),
    ("OMPI_COMM_WORLD_SIZE", "2"),
    ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
    ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
    ("PMIX_NAMESPACE", "555089921"),
    ("OMPI_MCA_ess_base_jobid", "555089921"),
];
const HYDRA: [(&str, &str); 4] =
    [("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("MPI_LOCALRANKID", "1"), ("MPI_LOCALNRANKS", "2")];
const TORCHRUN: [(&str, &str); 6] = [
    ("RANK", "1"),
    ("WORLD_SIZE", "2"),
    ("LOCAL_RANK", "1"),
    ("LOCAL_WORLD_SIZE", "2"),
    ("MASTER_ADDR", "a"),
    ("TORCHELASTIC_RUN_ID", "run-7"),
];

fn config(base: &[(&str, &str)], changes: &[(&str, &str)]) -> Config {
    let kept = base.iter().filter(|(name, _)| changes.iter().all(|(changed, _)| changed != name));
    let mut config = Config::new();
    config.load_env(kept.chain(changes).copied());
    config
}

fn settings(base: &[(&str, &str)], changes: &[(&str, &str)]) -> Settings {
    config(base, changes).settings().expect("these settings are right")
}

fn mark(settings: &Settings) -> Option<&str> {
    settings.derived_job.as_ref().map(super::DerivedJob::mark)
}

fn ports(settings: &Settings) -> &[u16] {
    match &settings.assignment {
        Assignment::Node { ports, .. } => ports,
        other => panic!("expected a node, found {other:?}"),
    }
}

/// A command line as the kernel tells it.
fn line(words: &str) -> Vec<u8> {
    words.split(' ').flat_map(|word| word.bytes().chain([0])).collect()
}

/// What Hydra's ranks of one host know of their job, with these ancestors.
fn under_hydra(ancestors: &[&str], changes: &[(&str, &str)]) -> Option<String> {
    let mut config = config(&HYDRA, changes);
    config.learn_ancestors(|| ancestors.iter().map(|words| line(words)).collect());
    mark(&config.settings().unwrap()).map(str::to_owned)
}

const PROXY: &str = "/usr/bin/hydra_pmi_proxy --control-port vm:38515 --rmk user --launcher ssh --pgid 0 --proxy-id 1";

#[test]
fn each_launcher_tells_its_jobs_apart_in_its_own_way() {
    assert_eq!(mark(&settings(&OPEN_MPI, &[])), Some("Open MPI 555089921"));
    let newer = [("PMIX_NAMESPACE", "prterun-vm-7@1"), ("OMPI_MCA_ess_base_jobid", "")];
    assert_eq!(mark(&settings(&OPEN_MPI, &newer)), Some("Open MPI prterun-vm-7@1"));
    assert_eq!(mark(&settings(&OPEN_MPI, &[("PMIX_NAMESPACE", "")])), Some("Open MPI 555089921"));
    assert_eq!(mark(&settings(&TORCHRUN, &[])), Some("torchrun run-7"));
    let hydra = |changes: &[(&str, &str)]| under_hydra(&["sh run.sh", PROXY, "mpiexec -n 2 prog"], changes);
    assert_eq!(hydra(&[]).as_deref(), Some("MPICH or Intel MPI vm:38515/0"));
    assert_eq!(hydra(&[("PMI_JOBID", "123.0")]).as_deref(), Some("MPICH or Intel MPI 123.0"));
    let inherited = [("I_MPI_HYDRA_UUID", "9b540000-f2d0"), ("HYDRA_BSTRAP_PGID", "0")];
    assert_eq!(hydra(&inherited).as_deref(), Some("MPICH or Intel MPI vm:38515/0"), "the proxy is nearer");
    let intel =
        ["/opt/impi/bin//hydra_pmi_proxy --usize -1 --auto-cleanup 1 --abort-signal 9", "mpiexec.hydra -n 2 prog"];
    assert_eq!(under_hydra(&intel, &inherited).as_deref(), Some("MPICH or Intel MPI 9b540000-f2d0/0"));
}

#[test]
fn of_several_proxies_the_nearest_one_counts() {
    let inner = "hydra_pmi_proxy --control-port vm:4001 --pgid 2";
    assert_eq!(under_hydra(&["bash", inner, "mpiexec", PROXY], &[]).as_deref(), Some("MPICH or Intel MPI vm:4001/2"));
    let mentioned = "sh -c /usr/bin/hydra_pmi_proxy --control-port vm:4001";
    assert_eq!(under_hydra(&[mentioned, PROXY], &[]).as_deref(), Some("MPICH or Intel MPI vm:38515/0"));
    // A process that hides its arguments, or that has none, is no proof of anything.
    for silent in ["", "hydra_pmi_proxy", "hydra_pmi_proxy --control-port", "mpiexec -n 2 hydra_pmi_proxy"] {
        assert_eq!(under_hydra(&[silent], &[]), None, "{silent:?}");
    }
    assert_eq!(under_hydra(&[], &[]), None);
}

#[test]
fn nobody_is_asked_for_ancestors_where_the_environment_says_it_all() {
    for base in [&OPEN_MPI[..], &TORCHRUN[..], &[][..]] {
        config(base, &[]).learn_ancestors(|| panic!("{base:?} needs none"));
    }
    let mut with_role = config(
        &HYDRA,
        &[("MS_ROLE", "MS_WORKER"), ("MS_SCHED_HOST", "a"), ("MS_SCHED_PORT", "8118"), ("MS_WORKER_NUM", "2")],
    );
    with_role.learn_ancestors(|| vec![line(PROXY)]);
    assert_eq!(mark(&with_role.settings().unwrap()), None, "with a role the launcher does not count");
}

#[test]
fn a_job_has_ports_of_its_own_and_one_without_a_mark_the_default() {
    let first = settings(&OPEN_MPI, &[]);
    let known = [21_589, 25_507, 23_208, 25_277, 26_885, 24_104, 23_131, 24_650];
    assert_eq!(ports(&first), known, "the same by every library, on every host");
    assert_eq!(
        config(&OPEN_MPI, &[]).get("sched_port").unwrap(),
        None,
        "which one it is shows when rank 0 has bound it"
    );
    let zero = settings(&OPEN_MPI, &[("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_LOCAL_RANK", "0")]);
    assert_eq!((ports(&zero), mark(&zero)), (ports(&first), mark(&first)), "all ranks have the same");
    let other = settings(&OPEN_MPI, &[("PMIX_NAMESPACE", "555089922")]);
    assert!(ports(&other).iter().all(|port| !ports(&first).contains(port)), "of these two jobs");
    assert_eq!(mark(&settings(&HYDRA, &[])), None);
    assert_eq!(ports(&settings(&HYDRA, &[])), [8118]);
    let standalone = settings(&TORCHRUN, &[("TORCHELASTIC_RUN_ID", "none")]);
    assert_eq!((mark(&standalone), ports(&standalone)), (None, &[8118][..]));
}

#[test]
fn ports_differ_and_lie_where_the_system_chooses_none() {
    for job in 0..2_000 {
        let found = settings(&OPEN_MPI, &[("PMIX_NAMESPACE", &job.to_string())]);
        let mut ports = ports(&found).to_vec();
        assert!(ports.iter().all(|port| (20_000..30_000).contains(port)), "{ports:?}");
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 8);
    }
}

#[test]
fn settings_that_name_the_job_a_rank_or_a_port_are_believed() {
    for (own, expected) in
        [(("MUSTER_JOB_ID", "mine"), 8118), (("MUSTER_RANK_ID", "1"), 8118), (("MS_SCHED_PORT", "4711"), 4711)]
    {
        let found = settings(&OPEN_MPI, &[own]);
        assert_eq!((mark(&found), ports(&found)), (None, &[expected][..]), "{own:?}");
    }
    for (key, value, expected) in [("job_id", "mine", 8118), ("rank_id", "1", 8118), ("sched_port", "4711", 4711)] {
        let mut config = config(&OPEN_MPI, &[]);
        config.set(key, value).unwrap();
        let found = config.settings().unwrap();
        assert_eq!((mark(&found), ports(&found)), (None, &[expected][..]), "{key} in code");
    }
    // torchrun's port leads to one; its run is still told apart from another.
    let beside = settings(&TORCHRUN, &[("MASTER_PORT", "29500")]);
    assert_eq!((mark(&beside), ports(&beside)), (Some("torchrun run-7"), &[29502][..]));
    // RANK_ID counts less than the launcher that started this process.
    assert_eq!(mark(&settings(&OPEN_MPI, &[("RANK_ID", "0")])), Some("Open MPI 555089921"));
}

#[test]
fn a_scheduler_that_a_program_starts_has_no_launchers_job() {
    let inside = config(&OPEN_MPI, &[]).scheduler_settings().unwrap();
    assert_eq!(
        (mark(&inside), &inside.assignment),
        (None, &Assignment::Scheduler { host: "127.0.0.1".into(), ports: vec![0] })
    );
}

#[test]
fn the_innermost_launchers_job_counts() {
    let both: Vec<_> = OPEN_MPI.into_iter().chain(TORCHRUN).collect();
    assert_eq!(mark(&settings(&both, &[])), Some("torchrun run-7"));
    assert_eq!(
        mark(&settings(&both, &[("TORCHELASTIC_RUN_ID", "none")])),
        None,
        "the outer one may have started several"
    );
}

#[test]
fn a_mark_that_is_too_long_for_the_wire_keeps_its_beginning_and_stays_one_of_its_kind() {
    let long = |end: &str| settings(&OPEN_MPI, &[("PMIX_NAMESPACE", &format!("{}{end}", "\u{e9}".repeat(500)))]);
    let (one, other) = (long("1"), long("2"));
    for mark in [mark(&one).unwrap(), mark(&other).unwrap()] {
        assert!(mark.len() <= 200 && mark.starts_with("Open MPI \u{e9}\u{e9}"), "{mark}");
    }
    assert_ne!(mark(&one), mark(&other));
}
