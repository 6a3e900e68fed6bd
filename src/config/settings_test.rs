use super::*;
use crate::config::{Password, PasswordSource, SetFile};
use crate::error::Status;

/// A worker's settings, complete, with these changes; an empty value takes one away.
fn worker(changes: &[(&str, &str)]) -> Config {
    let base =
        [("MS_ROLE", "MS_WORKER"), ("MS_SCHED_HOST", "10.0.0.1"), ("MS_SCHED_PORT", "8118"), ("MS_WORKER_NUM", "4")];
    let kept = base.into_iter().filter(|(name, _)| changes.iter().all(|(changed, _)| changed != name));
    with(&kept.chain(changes.iter().copied()).collect::<Vec<_>>())
}

fn with(variables: &[(&str, &str)]) -> Config {
    let mut config = Config::new();
    config.load_env(variables.iter().copied());
    config
}

fn message(config: &Config) -> String {
    let error = config.settings().expect_err("these settings are an error");
    assert_eq!(error.status(), Status::Config);
    error.message().to_string()
}

fn node(config: &Config) -> (Role, String, u16, Option<String>, Option<u32>, bool) {
    match config.settings().expect("these settings are right").assignment {
        Assignment::Node { role, host, ports, node_id, rank, hosts_scheduler } => {
            assert_eq!(ports.len(), 1, "a node that was given a port knows it");
            (role, host, ports[0], node_id, rank, hosts_scheduler)
        }
        other => panic!("expected a node, found {other:?}"),
    }
}

fn rank(config: &Config) -> Option<u32> {
    node(config).4
}

#[test]
fn nothing_set_is_a_cluster_of_one_with_the_documented_times() {
    let settings = Config::new().settings().unwrap();
    assert_eq!(settings.assignment, Assignment::Alone { node_id: None });
    assert_eq!((settings.worker_num, settings.server_num), (1, 0));
    assert_eq!(settings.forming_timeout, Some(Duration::from_secs(600)));
    assert_eq!(settings.operation_timeout, Some(Duration::from_secs(1800)));
    assert_eq!(settings.store_timeout, Some(Duration::from_secs(300)));
    assert_eq!(settings.finalize_timeout, Duration::from_secs(30));
    assert_eq!(settings.heartbeat_timeout, Duration::from_secs(5));
    assert_eq!(settings.store_limits, StoreLimits { key: 4 << 10, value: 16 << 20, total: 256 << 20 });
    assert_eq!((settings.checksums, settings.log_level, settings.poll), (ChecksumScope::Network, LogLevel::Warn, None));
    assert!(!settings.hccl_cm_init && !settings.enable_recovery && settings.tls.is_none());
    assert!(settings.warnings.is_empty());
    assert_eq!((settings.sched_fd, settings.device_id, settings.job_id), (None, None, None));
    assert!(settings.worker_addresses.is_empty());
}

#[test]
fn roles_find_their_places() {
    assert_eq!(node(&worker(&[])), (Role::Worker, "10.0.0.1".into(), 8118, None, None, false));
    let scheduler = worker(&[("MS_ROLE", "MS_SCHED"), ("MS_NODE_ID", "ignored"), ("RANK_ID", "9")]).settings().unwrap();
    assert_eq!(scheduler.assignment, Assignment::Scheduler { host: "10.0.0.1".into(), ports: vec![8118] });
    assert_eq!(scheduler.worker_num, 4);
    let server = worker(&[("MS_ROLE", "MS_PSERVER"), ("MS_SERVER_NUM", "2"), ("MS_NODE_ID", "1")]);
    assert_eq!(node(&server), (Role::Server, "10.0.0.1".into(), 8118, Some("1".into()), Some(1), false));
    assert_eq!(server.settings().unwrap().server_num, 2);
}

#[test]
fn what_a_role_needs_is_demanded_by_name() {
    assert_eq!(
        message(&worker(&[("MS_SCHED_HOST", "")])),
        "MS_SCHED_HOST (in code: sched_host) is not set, but MS_WORKER needs it: expected a host name or an IP \
         address (not of multicast or broadcast), without a port"
    );
    assert!(message(&worker(&[("MS_SCHED_PORT", "")])).starts_with("MS_SCHED_PORT (in code: sched_port) is not set"));
    assert_eq!(
        message(&worker(&[("MS_WORKER_NUM", ""), ("MS_ROLE", "MS_SCHED")])),
        "MS_WORKER_NUM (in code: worker_num) is not set, but MS_SCHED needs it: expected a whole number from 1 to \
         1048576"
    );
    assert_eq!(worker(&[("MS_WORKER_NUM", ""), ("RANK_SIZE", "6")]).settings().unwrap().worker_num, 6);
    assert_eq!(
        message(&worker(&[("MS_ROLE", "MS_PSERVER")])),
        "MS_ROLE is \"MS_PSERVER\", but MS_SERVER_NUM is \"0\": expected at least one server"
    );
}

#[test]
fn a_number_of_nodes_without_a_role_is_an_error() {
    assert_eq!(
        message(&with(&[("MS_WORKER_NUM", "4")])),
        "MS_WORKER_NUM is \"4\", but MS_ROLE is not set: expected MS_ROLE to be MS_SCHED, MS_WORKER or MS_PSERVER, or \
         MS_WORKER_NUM to be unset for a cluster of one"
    );
    assert!(message(&with(&[("MUSTER_WORKER_NUM", "1")])).starts_with("MUSTER_WORKER_NUM is \"1\", but MS_ROLE"));
    assert!(message(&with(&[("MS_SERVER_NUM", "1")])).starts_with("MS_SERVER_NUM is \"1\", but MS_ROLE"));
    assert!(message(&with(&[("MS_WORKER_NUM", "four")])).starts_with("MS_WORKER_NUM is \"four\": expected a whole"));
    assert!(with(&[("MS_SERVER_NUM", "0")]).settings().is_ok());
    let mut config = Config::new();
    config.set("worker_num", "4").unwrap();
    assert!(message(&config).starts_with("worker_num is \"4\", but MS_ROLE is not set"));
}

#[test]
fn settings_that_come_to_nothing_without_a_role_are_warned_of() {
    let config = with(&[("MS_SCHED_HOST", "a"), ("MUSTER_SCHED_PORT", "9000"), ("RANK_ID", "3"), ("RANK_SIZE", "8")]);
    let settings = config.settings().unwrap();
    assert_eq!(settings.assignment, Assignment::Alone { node_id: None });
    assert_eq!(
        settings.warnings,
        ["MS_ROLE is not set, so this process is a cluster of one and ignores MS_SCHED_HOST, \
          MUSTER_SCHED_PORT, RANK_SIZE, RANK_ID"]
    );
    let named = with(&[("MUSTER_NODE_ID", "solo")]).settings().unwrap();
    assert_eq!(named.assignment, Assignment::Alone { node_id: Some("solo".into()) });
    assert!(named.warnings.is_empty());
}

#[test]
fn bad_values_name_the_variable_that_they_came_from() {
    let port = "expected a whole number from 1024 to 65535, or 0 where the caller can ask for the address \
                (muster_scheduler_start, muster run --master_port 0)";
    for value in ["80x", "70000", "80", "-1", " ", "8118,8119"] {
        for name in ["MS_SCHED_PORT", "MUSTER_SCHED_PORT"] {
            assert_eq!(message(&worker(&[(name, value)])), format!("{name} is {value:?}: {port}"));
        }
    }
    for (name, value, right) in [
        ("MS_ROLE", "worker", "MS_SCHED, MS_WORKER or MS_PSERVER"),
        ("MS_WORKER_NUM", "0", "a whole number from 1 to 1048576"),
        ("MS_WORKER_NUM", "4.0", "a whole number from 1 to 1048576"),
        ("MS_SERVER_NUM", "-1", "a whole number from 0 to 1048576"),
        (
            "MS_SCHED_HOST",
            "10.0.0.1:8118",
            "a host name or an IP address (not of multicast or broadcast), without a port",
        ),
        ("MS_NODE_ID", "tab\there", "1 to 255 bytes of printable text that neither begin nor end with a blank"),
        ("RANK_ID", "first", "a whole number from 0 to 1048575"),
        ("MS_WORKER_IP", "0.0.0.0", "1 to 8 IP addresses of this host, separated by commas"),
        ("MS_CLUSTER_TIMEOUT", "10m", "seconds from 0.001 to 1000000000, or a negative number for no limit"),
        ("MS_NODE_TIMEOUT", "-1", "seconds from 0.5 to 1000000000"),
        ("MS_ENABLE_RECOVERY", "yes", "0 or 1"),
        ("MUSTER_LOG", "loud", "off, error, warn, info, debug, trace"),
        ("MUSTER_STORE_KEY_LIMIT", "4k", "a whole number from 1 to 65536"),
    ] {
        assert_eq!(message(&worker(&[(name, value)])), format!("{name} is {value:?}: expected {right}"));
    }
}

#[test]
fn port_zero_is_for_those_who_can_ask() {
    let zero = [("MS_SCHED_PORT", "0")];
    for role in ["MS_WORKER", "MS_SCHED"] {
        let text = message(&worker(&[("MS_SCHED_PORT", "0"), ("MS_ROLE", role)]));
        assert!(text.starts_with("MS_SCHED_PORT is \"0\": expected a whole number from 1024 to 65535, or 0 where"));
    }
    let inside = worker(&zero).scheduler_settings().unwrap();
    assert_eq!(inside.assignment, Assignment::Scheduler { host: "10.0.0.1".into(), ports: vec![0] });
    let inherited = worker(&[("MS_ROLE", "MS_SCHED"), ("MS_SCHED_PORT", "0"), ("MUSTER_SCHED_FD", "5")]);
    let inherited = inherited.settings().unwrap();
    assert_eq!(
        (inherited.sched_fd, inherited.assignment),
        (Some(5), Assignment::Scheduler { host: "10.0.0.1".into(), ports: vec![0] })
    );
    assert_eq!(worker(&[("MUSTER_SCHED_FD", "5")]).settings().unwrap().sched_fd, None, "it is the scheduler's");
}

#[test]
fn a_scheduler_inside_a_program_needs_only_the_number_of_workers() {
    let mut config = Config::new();
    let text = config.scheduler_settings().unwrap_err().message().to_string();
    assert!(text.starts_with("MS_WORKER_NUM (in code: worker_num) is not set, but a scheduler needs it"), "{text}");
    config.set("worker_num", "3").unwrap();
    let settings = config.scheduler_settings().unwrap();
    assert_eq!(settings.assignment, Assignment::Scheduler { host: "127.0.0.1".into(), ports: vec![0] });
    assert_eq!(settings.worker_num, 3);
    assert!(worker(&[]).scheduler_settings().is_ok(), "the role is that of the process, not of this scheduler");
}

#[test]
fn a_plain_number_below_the_number_of_nodes_is_the_rank() {
    for (id, expected) in [
        ("0", Some(0)),
        ("3", Some(3)),
        ("4", None),
        ("00", None),
        ("03", None),
        ("+1", None),
        ("1.0", None),
        ("worker_2", None),
        ("99999999999999999999999", None),
    ] {
        let (_, _, _, node_id, rank, _) = node(&worker(&[("MS_NODE_ID", id)]));
        assert_eq!((node_id.as_deref(), rank), (Some(id), expected));
    }
    let server = [("MS_ROLE", "MS_PSERVER"), ("MS_SERVER_NUM", "2"), ("MS_NODE_ID", "3")];
    assert_eq!(rank(&worker(&server)), None, "3 is a worker's rank, and no server's");
}

#[test]
fn a_launchers_rank_counts_and_must_agree_with_the_node_id() {
    assert_eq!(rank(&worker(&[("RANK_ID", "2")])), Some(2));
    assert_eq!(rank(&worker(&[("RANK_ID", "2"), ("MS_NODE_ID", "2")])), Some(2));
    assert_eq!(rank(&worker(&[("RANK_ID", "2"), ("MS_NODE_ID", "pod-7")])), Some(2));
    assert_eq!(rank(&worker(&[("RANK_ID", "2"), ("MUSTER_RANK_ID", "1")])), Some(1));
    assert_eq!(
        message(&worker(&[("RANK_ID", "2"), ("MS_NODE_ID", "1")])),
        "MS_NODE_ID is \"1\", but RANK_ID is \"2\": expected the same rank from both, or a node id that is no number"
    );
    assert_eq!(
        message(&worker(&[("RANK_ID", "4")])),
        "RANK_ID is \"4\", but MS_WORKER_NUM is \"4\": expected a rank from 0 to 3"
    );
}

#[test]
fn forming_takes_the_smaller_time_that_is_set() {
    // An empty variable is an unset one.
    for (cluster, topo, expected, said) in [
        ("", "", Some(600.0), "MS_CLUSTER_TIMEOUT is 600 where it is not set"),
        ("1200", "", Some(1200.0), "MS_CLUSTER_TIMEOUT is 1200"),
        ("", "1200", Some(1200.0), "MS_TOPO_TIMEOUT is 1200"),
        ("30", "20.5", Some(20.5), "MS_TOPO_TIMEOUT is 20.5"),
        ("30", "40", Some(30.0), "MS_CLUSTER_TIMEOUT is 30"),
        ("-1", "", None, "MS_CLUSTER_TIMEOUT is no limit"),
        ("", "-1", None, "MS_TOPO_TIMEOUT is no limit"),
        ("-1", "40", Some(40.0), "MS_TOPO_TIMEOUT is 40"),
        ("-1", "-5", None, "MS_CLUSTER_TIMEOUT is no limit"),
    ] {
        let config = worker(&[("MS_CLUSTER_TIMEOUT", cluster), ("MS_TOPO_TIMEOUT", topo)]);
        let found = config.settings().unwrap();
        assert_eq!(found.forming_timeout.map(|span| span.as_secs_f64()), expected, "{cluster:?} and {topo:?}");
        assert_eq!(found.forming_setting, said);
    }
}

#[test]
fn the_rest_arrives_as_it_was_said() {
    let settings = worker(&[
        ("MUSTER_JOB_ID", "night run"),
        ("MUSTER_TIMEOUT", "-1"),
        ("MUSTER_STORE_TIMEOUT", "2"),
        ("MUSTER_FINALIZE_TIMEOUT", "0.5"),
        ("MS_NODE_TIMEOUT", "2.5"),
        ("MUSTER_HOST_ID", "rack-1"),
        ("MS_WORKER_IP", "10.1.0.2, fd00::2"),
        ("DEVICE_ID", "3"),
        ("MUSTER_STORE_VALUE_LIMIT", "100"),
        ("MUSTER_POLL_US", "7"),
        ("MUSTER_CHECKSUMS", "0"),
        ("MUSTER_LOG", "Debug"),
        ("MS_HCCL_CM_INIT", "1"),
        ("MS_RECOVERY_PATH", "/var/muster"),
        ("RANK_TABLE_FILE", "/tmp/table.json"),
    ]);
    let settings = settings.settings().unwrap();
    assert_eq!(settings.job_id.as_deref(), Some("night run"));
    assert_eq!(settings.operation_timeout, None);
    assert_eq!(settings.store_timeout, Some(Duration::from_secs(2)));
    assert_eq!(settings.finalize_timeout, Duration::from_millis(500));
    assert_eq!(settings.heartbeat_timeout, Duration::from_millis(2500));
    assert_eq!(settings.host_id.as_deref(), Some("rack-1"));
    assert_eq!(settings.worker_addresses, ["10.1.0.2", "fd00::2"].map(|text| text.parse::<IpAddr>().unwrap()));
    assert_eq!((settings.device_id, settings.store_limits.value), (Some(3), 100));
    assert_eq!(settings.poll, Some(Duration::from_micros(7)));
    assert_eq!(
        (settings.checksums, settings.log_level, settings.hccl_cm_init),
        (ChecksumScope::Nothing, LogLevel::Debug, true)
    );
    assert_eq!(settings.recovery_path, Some(PathBuf::from("/var/muster")));
    assert_eq!(settings.rank_table_file, Some(PathBuf::from("/tmp/table.json")));
    assert!(settings.warnings.is_empty());
}

#[test]
fn settings_know_where_they_came_from() {
    let mut config = worker(&[("MUSTER_SCHED_PORT", "9000")]);
    config.set("worker_ip", "127.0.0.1").unwrap();
    let settings = config.settings().unwrap();
    assert_eq!(settings.origin(Key::SchedPort), "MUSTER_SCHED_PORT");
    assert_eq!(settings.origin(Key::SchedHost), "MS_SCHED_HOST");
    assert_eq!(settings.origin(Key::WorkerIp), "worker_ip");
    assert_eq!(settings.origin(Key::NodeTimeout), "MS_NODE_TIMEOUT");
    assert_eq!(settings.origin(Key::JobId), "MUSTER_JOB_ID");
}

#[test]
fn a_job_secret_comes_from_one_place() {
    let settings = worker(&[("MUSTER_JOB_SECRET", "s")]).settings().unwrap();
    assert_eq!(settings.job_secret.source, PasswordSource::Given(Password::new("s".to_owned())));
    let both = worker(&[("MUSTER_JOB_SECRET", "s"), ("MUSTER_JOB_SECRET_FILE", "/f")]).settings().unwrap_err();
    assert_eq!(both.message(), "MUSTER_JOB_SECRET and MUSTER_JOB_SECRET_FILE are both set: expected one of them");
    // What is set in code beats the environment, where it is another of the three, too.
    let mut config = worker(&[("MUSTER_JOB_SECRET", "s"), ("MUSTER_JOB_SECRET_FD", "7")]);
    config.set("job_secret_file", "/f").unwrap();
    assert!(matches!(config.settings().unwrap().job_secret.source, PasswordSource::File(_)));
    config.set("job_secret", "t").unwrap();
    let both = config.settings().unwrap_err();
    assert_eq!(both.message(), "job_secret and job_secret_file are both set: expected one of them");
}

#[test]
fn names_in_certificates_are_demanded_with_tls_only() {
    let tls = [("MUSTER_ENABLE_SSL", "1"), ("MUSTER_CONFIG_FILE_PATH", "tls.json")];
    let names = worker(&tls).settings().unwrap().tls.expect("it is on").names;
    assert_eq!((names.node_ids, names.host), (None, None));
    for name in ["MUSTER_VERIFY_NODE_ID", "MUSTER_VERIFY_HOST"] {
        let error = worker(&[(name, "1")]).settings().unwrap_err();
        let sentence = "is on, but MUSTER_ENABLE_SSL is off: expected both, for without TLS nobody shows a certificate";
        assert_eq!(error.message(), format!("{name} {sentence}"));
        assert!(worker(&[(name, "0")]).settings().is_ok());
        let names = worker(&[tls[0], tls[1], (name, "1")]).settings().unwrap().tls.expect("it is on").names;
        let is_on = |which: &str| (name == which).then(|| which.to_owned());
        assert_eq!((names.node_ids, names.host), (is_on("MUSTER_VERIFY_NODE_ID"), is_on("MUSTER_VERIFY_HOST")));
    }
}

#[test]
fn tls_wants_a_configuration_file_and_shows_no_password() {
    let error = worker(&[("MUSTER_ENABLE_SSL", "1")]).settings().unwrap_err();
    let rest = "expected the path of a JSON file that names certificates";
    let sentence = format!("MUSTER_ENABLE_SSL is on, but MUSTER_CONFIG_FILE_PATH is not set: {rest}");
    assert_eq!((error.status(), error.message()), (Status::Config, &sentence[..]));
    let set =
        [("MUSTER_ENABLE_SSL", "1"), ("MUSTER_CONFIG_FILE_PATH", "tls.json"), ("MUSTER_CLIENT_PASSWORD", "hunter2")];
    let settings = worker(&set).settings().unwrap();
    assert!(!format!("{settings:?}").contains("hunter2"));
    let tls = settings.tls.expect("it is on");
    assert_eq!(tls.config_file, SetFile::new("tls.json".to_owned()));
    assert_eq!(tls.client_lock.source, PasswordSource::Given(Password::new("hunter2".to_owned())));
    assert_eq!(
        (tls.server_lock.source, &tls.server_lock.setting[..]),
        (PasswordSource::None, "MUSTER_SERVER_PASSWORD")
    );
    let both = [set[0], set[1], set[2], ("MUSTER_CLIENT_PASSWORD_FILE", "word")];
    let sentence = "MUSTER_CLIENT_PASSWORD and MUSTER_CLIENT_PASSWORD_FILE are both set: expected one of them";
    assert_eq!(worker(&both).settings().unwrap_err().message(), sentence);
    let off = [("MUSTER_ENABLE_SSL", "0"), ("MUSTER_CONFIG_FILE_PATH", "tls.json")];
    assert!(worker(&off).settings().unwrap().tls.is_none());
}

#[test]
fn unknown_variables_are_one_warning_each() {
    let config = worker(&[
        ("MUSTER_WORKR_NUM", "4"),
        ("MUSTER_SOMETHING_ELSE", "1"),
        ("MS_BUILD_PROCESSES_NUM", "8"),
        ("MS_CLUSTER_TIMOUT", "5"),
    ]);
    assert_eq!(
        config.settings().unwrap().warnings,
        [
            "MUSTER_SOMETHING_ELSE is set, but there is no such setting",
            "MUSTER_WORKR_NUM is set, but there is no such setting; did you mean MUSTER_WORKER_NUM?",
            "MS_CLUSTER_TIMOUT is set, but has no effect here; did you mean MS_CLUSTER_TIMEOUT?",
        ]
    );
    let beside = [("MUSTER_LIBRARY", "libmuster.so"), ("MUSTER_JOINED_BY", "4711 MS_WORKER")];
    assert!(worker(&beside).settings().unwrap().warnings.is_empty());
}

#[test]
fn no_environment_is_too_odd() {
    let values = [
        "",
        "0",
        "1",
        "2",
        "-1",
        "4",
        "00",
        "8118",
        "65535",
        "18446744073709551616",
        "MS_WORKER",
        "MS_SCHED",
        "MS_PSERVER",
        "true",
        "0.5",
        "127.0.0.1",
        "::1",
        "a,b",
        "\u{202e}\0\n",
        "/",
        " ",
    ];
    let launchers = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "PMI_RANK", "PMI_SIZE"];
    let names = TABLE.iter().flat_map(|setting| {
        setting.ms.iter().chain(setting.others).map(|name| name.to_string()).chain([setting.variable()])
    });
    let names: Vec<String> = names.chain(launchers.map(String::from)).collect();
    // A fixed sequence, so that a failure is the same again.
    let mut state = 1u64;
    let mut draw = |below: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % below
    };
    let (mut right, mut wrong) = (0, 0);
    for _ in 0..20_000 {
        let count = draw(10);
        let variables: Vec<(&str, &str)> =
            (0..count).map(|_| (names[draw(names.len())].as_str(), values[draw(values.len())])).collect();
        let config = with(&variables);
        for found in [config.settings(), config.scheduler_settings()] {
            match found {
                Ok(settings) => {
                    right += 1;
                    assert!(settings.worker_num > 0);
                }
                Err(error) => {
                    wrong += 1;
                    assert!(error.message().contains("expected") || error.message().contains(": set "), "{error}");
                    assert!(!error.message().contains('\n'), "{error}");
                }
            }
        }
    }
    assert!(right > 1000 && wrong > 1000, "{right} right, {wrong} wrong: the sequence must reach both");
}
