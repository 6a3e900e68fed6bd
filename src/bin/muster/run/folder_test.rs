use super::super::log_names;
use super::*;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder of this test's own.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("muster-folder-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

fn tenant(pid: u32, port: u16, scheduler: bool, workers: (u32, u32)) -> Tenant {
    let (names, run) = (LogNames::new(log_names::WORKER), RunId::read(&format!("{pid:016x}")).unwrap());
    Tenant { pid, join: true, port, scheduler, names, workers, run, host: format!("host{pid}") }
}

#[test]
fn a_line_is_read_as_it_was_written_and_another_versions_is_passed_by() {
    for own in [tenant(7, 8118, true, (0, 4)), Tenant { join: false, ..tenant(1, 65535, false, (4, 1)) }] {
        assert_eq!(Tenant::read(own.line().trim_end()), Some(own));
    }
    for line in [
        "",
        "7",
        "7 1 8118 1 worker 0 4 host",
        "x 1 8118 1 worker 0 4 0123456789abcdef host",
        "7 1 8118 1 worker 0 4 0123456789abcdef host more",
        "7 1 8118 1 worker 0 1048577 0123456789abcdef host",
        "7 1 8118 1 ../worker 0 4 0123456789abcdef host",
    ] {
        assert_eq!(Tenant::read(line), None, "{line}");
    }
}

#[test]
fn each_run_has_its_own_logs() {
    let names = |tenant: Tenant| tenant.logs().collect::<Vec<_>>().join(" ");
    assert_eq!(names(tenant(1, 1, true, (0, 2))), "scheduler.log worker_0.log worker_1.log");
    assert_eq!(names(tenant(1, 1, false, (4, 1))), "worker_4.log");
    let first = tenant(1, 8118, true, (0, 4));
    let other_names = Tenant { names: LogNames::new("x"), ..tenant(2, 8118, false, (0, 2)) };
    assert_eq!(names(other_names.clone()), "x_0.log x_1.log");
    assert!(!first.is_in_the_way_of(&other_names), "their logs are called otherwise");
    // Two launchers of one run have other workers and the same port.
    assert!(!first.is_in_the_way_of(&tenant(2, 8118, false, (4, 4))));
    assert!(first.is_in_the_way_of(&tenant(2, 8118, false, (3, 4))));
    assert!(first.is_in_the_way_of(&tenant(2, 8118, true, (4, 4))));
    assert!(first.is_in_the_way_of(&tenant(2, 8119, false, (4, 4))));
}

#[test]
fn a_second_run_is_refused_while_the_first_one_lives_and_told_which_that_is() {
    let folder = Folder::new();
    let held = claim(&folder.0, &tenant(11, 8118, true, (0, 4))).unwrap();
    for second in [tenant(12, 8200, true, (0, 4)), tenant(12, 8200, false, (9, 1))] {
        let error = claim(&folder.0, &second).err().expect("another run lives here");
        for word in
            ["--log_dir is", "launcher 11 on host11", "port 8118", "scheduler.log to worker_3.log", "another --log_dir"]
        {
            assert!(error.contains(word), "{word:?} in {error}");
        }
        assert!(!error.contains("--node_rank"), "{error}");
    }
    // Another host's part of the same run comes in, but not under the same names.
    let beside = claim(&folder.0, &tenant(13, 8118, false, (4, 4))).unwrap();
    let error = claim(&folder.0, &tenant(14, 8118, false, (4, 4))).err().expect("those logs are taken");
    // With a rank table the launchers know no ranks, whatever --node_rank says.
    for word in ["launcher 13 on host13", "--node_rank", "rank table", "--worker_log_name worker_{hostname}"] {
        assert!(error.contains(word), "{word:?} in {error}");
    }
    // One part of the first run is enough to keep others out.
    drop(held);
    assert!(claim(&folder.0, &tenant(12, 8200, true, (0, 4))).err().expect("a part lives").contains("host13"));
    drop(beside);
    claim(&folder.0, &tenant(12, 8200, true, (0, 4))).unwrap();
    let runs = std::fs::read_to_string(folder.0.join(RUNS)).unwrap();
    assert_eq!(runs, tenant(12, 8200, true, (0, 4)).line(), "lines of the dead are gone");
}

#[test]
fn logs_of_the_runs_other_hosts_are_not_of_an_older_run() {
    let folder = Folder::new();
    for name in ["scheduler.log", "worker_1.log", "worker_2.log", "worker_3.log", "worker_4.log", "worker_12.log"] {
        std::fs::write(folder.0.join(name), "").unwrap();
    }
    let own = tenant(11, 8118, false, (2, 2));
    let claim = claim(&folder.0, &own).unwrap();
    let older = |worker_num| claim.older(&own, worker_num).unwrap_or_default();
    assert_eq!(older(4), "worker_4.log and 1 more in the folder of the logs are of an older run");
    assert_eq!(older(5), "worker_12.log in the folder of the logs is of an older run");
    assert_eq!(older(13), "");
}

#[test]
fn without_join_the_lock_lives_as_long_as_a_copy_of_the_descriptor_and_its_holders_are_named() {
    let folder = Folder::new();
    let own = Tenant { join: false, ..tenant(11, 8118, true, (0, 1)) };
    let held = claim(&folder.0, &own).unwrap();
    let output = held.descriptor().unwrap().expect("this file system has locks");
    drop(held);
    let mut child = std::process::Command::new("sleep").arg("600").stdout(output).spawn().unwrap();
    let error = claim(&folder.0, &tenant(12, 8200, true, (0, 1))).err();
    child.kill().unwrap();
    child.wait().unwrap();
    let error = error.expect("the child lives");
    assert!(error.contains(&format!("started without --join, alive in {}", child.id())), "{error}");
    claim(&folder.0, &tenant(12, 8200, true, (0, 1))).unwrap();
}

#[test]
fn a_list_of_runs_that_is_a_pipe_or_a_link_is_an_error_and_nobody_waits_for_it() {
    let folder = Folder::new();
    std::os::unix::fs::symlink("/dev/null", folder.0.join(RUNS)).unwrap();
    assert!(tenants(&folder.0).is_err(), "a link");
    std::fs::remove_file(folder.0.join(RUNS)).unwrap();
    let name = std::ffi::CString::new(folder.0.join(RUNS).to_str().unwrap()).unwrap();
    // SAFETY: the name ends with a zero byte.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    // It has no writer, so it is empty.
    assert_eq!(tenants(&folder.0).unwrap_or_default(), []);
}

#[test]
fn a_lock_of_which_nothing_is_written_counts_too() {
    let folder = Folder::new();
    let _held = claim(&folder.0, &tenant(11, 8118, true, (0, 1))).unwrap();
    std::fs::remove_file(folder.0.join(RUNS)).unwrap();
    let error = claim(&folder.0, &tenant(12, 8200, true, (0, 1))).err().expect("its log is locked");
    assert!(error.contains("scheduler.log") && error.contains("--log_dir"), "{error}");
}

#[test]
fn a_folder_takes_files_if_it_or_the_nearest_above_it_does_and_nothing_is_made() {
    let folder = Folder::new();
    let own = tenant(11, 8118, true, (0, 1));
    let path = |name: &str| folder.0.join(name);
    std::fs::write(path("file"), "").unwrap();
    std::os::unix::fs::symlink(path("nowhere"), path("link")).unwrap();
    for right in [folder.0.clone(), path("a/b/c"), path("a/../b"), PathBuf::from("."), PathBuf::from("no-such-folder")]
    {
        assert!(takes_files(&right).is_ok(), "{right:?}");
    }
    let wrong = [path("file"), path("file/logs"), path("link"), path("link/logs")];
    for wrong in wrong.into_iter().chain(["/dev/null", "/proc/nope", "/proc/self/nope"].map(PathBuf::from)) {
        let words = would_refuse(&wrong, &own).unwrap_or_else(|| panic!("{wrong:?}"));
        assert!(words.starts_with(&format!("--log_dir is {wrong:?}, where no log can be made: ")), "{words}");
    }
    for (path, link) in [(path("link"), "it".to_owned()), (path("link/logs"), format!("{:?}", path("link")))] {
        let why = format!("{link} is a symbolic link to {:?}, which is not there", folder.0.join("nowhere"));
        assert_eq!(make(&path), Err(format!("--log_dir is {path:?}, which can't be made: {why}")));
        assert!(would_refuse(&path, &own).is_some_and(|words| words.ends_with(&why)), "{path:?}");
    }
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 2);
    std::fs::create_dir(path("shut")).unwrap();
    std::fs::set_permissions(path("shut"), std::fs::Permissions::from_mode(0o555)).unwrap();
    let is_superuser = host::user() == 0;
    for shut in [path("shut"), path("shut/logs")] {
        assert_eq!(would_refuse(&shut, &own).is_none(), is_superuser, "{shut:?}");
    }
}

#[test]
fn where_that_file_cannot_be_made_the_run_goes_on() {
    let folder = Folder::new();
    std::fs::create_dir(folder.0.join(RUNS)).unwrap();
    assert!(claim(&folder.0, &tenant(11, 8118, true, (0, 1))).unwrap().descriptor().unwrap().is_none());
}

#[test]
fn logs_follow_no_link_that_somebody_has_planted() {
    let folder = Folder::new();
    let precious = folder.0.join("precious");
    std::fs::write(&precious, "what somebody needs").unwrap();
    for (name, words) in [("symbolic", "a symbolic link"), ("hard", "a hard link")] {
        let log = folder.0.join(format!("{name}.log"));
        match name {
            "symbolic" => std::os::unix::fs::symlink(&precious, &log).unwrap(),
            _ => std::fs::hard_link(&precious, &log).unwrap(),
        }
        let error = open_log(&log).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        std::fs::remove_file(&log).unwrap();
    }
    std::fs::hard_link(&precious, folder.0.join(RUNS)).unwrap();
    assert!(open_runs(&folder.0).unwrap_err().to_string().contains("a hard link"));
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "what somebody needs");
}
