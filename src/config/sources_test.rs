use super::*;
use crate::error::Status;

fn with(variables: &[(&str, &str)]) -> Config {
    let mut config = Config::new();
    config.load_env(variables.iter().copied());
    config
}

fn message(result: Result<impl Sized>) -> String {
    let error = result.err().expect("this is an error");
    assert_eq!(error.status(), Status::Config);
    error.message().to_string()
}

#[test]
fn defaults_are_visible() {
    let config = Config::new();
    assert_eq!(config.get("node_timeout").unwrap().as_deref(), Some("5"));
    assert_eq!(config.get("cluster_timeout").unwrap().as_deref(), Some("600"));
    assert_eq!(config.get("sched_host").unwrap(), None);
}

#[test]
fn every_source_beats_those_below_it() {
    // From the strongest to the weakest; each line leaves out one source more.
    let sources: [&[(&str, &str)]; 4] = [
        &[("MUSTER_WORKER_NUM", "4")],
        &[("MS_WORKER_NUM", "3")],
        &[("WORLD_SIZE", "2"), ("RANK", "0")],
        &[("RANK_SIZE", "1")],
    ];
    for (weaker, expected) in [(0, "4"), (1, "3"), (2, "2"), (3, "1")] {
        let mut config = with(&sources[weaker..].concat());
        assert_eq!(config.get("worker_num").unwrap().as_deref(), Some(expected));
        config.set("worker_num", "5").unwrap();
        assert_eq!(config.get("worker_num").unwrap().as_deref(), Some("5"));
    }
    assert_eq!(with(&[]).get("worker_num").unwrap(), None);
}

#[test]
fn the_environment_never_overwrites_what_was_set_in_code() {
    let mut config = Config::new();
    config.set("sched_port", "9000").unwrap();
    config.load_env([("MUSTER_SCHED_PORT", "9001"), ("MS_SCHED_HOST", "a")]);
    assert_eq!(config.get("sched_port").unwrap().as_deref(), Some("9000"));
    assert_eq!(config.get("sched_host").unwrap().as_deref(), Some("a"));
    config.load_env([("MS_SCHED_HOST", "b")]);
    assert_eq!(config.get("sched_port").unwrap().as_deref(), Some("9000"));
    assert_eq!(config.get("sched_host").unwrap().as_deref(), Some("b"));
}

#[test]
fn an_empty_variable_counts_as_unset() {
    let config = with(&[("MUSTER_JOB_ID", ""), ("MUSTER_NODE_TIMEOUT", ""), ("MS_NODE_TIMEOUT", "7")]);
    assert_eq!(config.get("job_id").unwrap(), None);
    assert_eq!(config.get("node_timeout").unwrap().as_deref(), Some("7"));
    assert!(message(Config::new().set("job_id", "")).starts_with("job_id is \"\": expected 1 to 255 bytes"));
}

#[test]
fn bad_values_in_code_are_refused_at_once() {
    let port = "a whole number from 1024 to 65535, or 0 where the caller can ask for the address \
                (muster_scheduler_start, muster run --master_port 0)";
    for value in ["80x", "70000", "80", "-1", "", " 8118", "8118 ", "0x1fb6", "+8118", "8118.0", "99999999999999999999"]
    {
        let mut config = Config::new();
        assert_eq!(message(config.set("sched_port", value)), format!("sched_port is {value:?}: expected {port}"));
        assert_eq!(config.get("sched_port").unwrap(), None);
    }
    assert_eq!(
        message(Config::new().set("role", "MS_BOSS")),
        "role is \"MS_BOSS\": expected MS_SCHED, MS_WORKER or MS_PSERVER"
    );
    assert_eq!(
        message(Config::new().set("worker_num", "0")),
        "worker_num is \"0\": expected a whole number from 1 to 1048576"
    );
    assert_eq!(
        message(Config::new().set("node_timeout", "0.4")),
        "node_timeout is \"0.4\": expected seconds from 0.5 to 1000000000"
    );
}

#[test]
fn an_unknown_key_leads_to_the_nearest() {
    let mut config = Config::new();
    for (key, near) in [("sched_prot", "sched_port"), ("MS_ROLE", "role"), ("MUSTER_JOB_ID", "job_id")] {
        let expected = format!("there is no setting \"{key}\": did you mean \"{near}\"?");
        assert_eq!(message(config.set(key, "1")), expected);
        assert_eq!(message(config.get(key)), expected);
    }
    let far = message(config.set("frobnicate", "1"));
    assert_eq!(far, "there is no setting \"frobnicate\": expected one of the names in docs/settings.md");
}

#[test]
fn a_secret_is_never_shown() {
    let mut config = with(&[("MUSTER_JOB_SECRET", "open sesame")]);
    config.set("client_password", "hunter2").unwrap();
    for key in ["job_secret", "client_password", "server_password"] {
        assert_eq!(message(config.get(key)), format!("{key} is a secret: it can be set, but not read"));
    }
    let bad = message(config.set("server_password", "bad\0secret"));
    assert!(bad.starts_with("server_password is a secret that is not valid: expected"), "{bad}");
    let debug = format!("{config:?}");
    assert!(debug.contains("\"job_secret\": \"(secret)\""), "{debug}");
    let settings = config.settings().unwrap();
    let all = format!("{debug}{bad}{settings:?}");
    assert!(!all.contains("sesame") && !all.contains("hunter2") && !all.contains("bad\\0secret"), "{all}");
}

#[cfg(unix)]
#[test]
fn a_value_that_is_not_utf8_is_named_and_never_panics() {
    use std::os::unix::ffi::OsStringExt;
    let garbled = || OsString::from_vec(b"a\xffb".to_vec());
    let mut config = Config::new();
    config.load_env([
        (OsString::from("MUSTER_NODE_ID"), garbled()),
        (OsString::from("PATH"), garbled()),
        (garbled(), OsString::from("x")),
    ]);
    let expected = "MUSTER_NODE_ID is \"a\u{fffd}b\": expected UTF-8 text";
    assert_eq!(message(config.get("node_id")), expected);
    assert_eq!(message(config.settings()), expected);
    config.set("node_id", "fine").unwrap();
    assert!(config.settings().is_ok(), "a bad value that does not count is no error");

    let mut secret = Config::new();
    secret.load_env([(OsString::from("MUSTER_JOB_SECRET"), garbled())]);
    assert_eq!(message(secret.settings()), "MUSTER_JOB_SECRET is a secret that is not UTF-8: expected UTF-8 text");
}

#[test]
fn long_and_odd_values_are_shown_on_one_short_line() {
    let text = message(Config::new().set("sched_port", &format!("9\n{}", "é".repeat(500))));
    assert!(!text.contains('\n') && text.contains("9\\n") && text.contains("..."), "{text}");
    assert!(text.chars().count() < 300, "{text}");
}
