use super::*;
use crate::cli::words::Asked;

fn planned(line: &str) -> Result<Option<Plan>, String> {
    of_words(&line.split_whitespace().collect::<Vec<_>>())
}

fn of_words(words: &[&str]) -> Result<Option<Plan>, String> {
    let variables = [
        ("MS_ENABLE_RECOVERY", "1"),
        ("MUSTER_LOG", "info"),
        ("MS_WORKER_IP", "10.0.0.1"),
        ("HOME", "/root"),
        ("A", "a b"),
    ];
    let variables: Vec<(OsString, OsString)> = variables.map(|(name, value)| (name.into(), value.into())).to_vec();
    match parse::split(words.iter().map(OsString::from).collect())? {
        Asked::With(words) => plan(&words, &variables),
        Asked::Help => Err("help".to_owned()),
    }
}

fn some(line: &str) -> Plan {
    planned(line).unwrap_or_else(|error| panic!("{line}: {error}")).expect("hosts are named")
}

/// For each host: its name, how many workers it starts, and the rank of the first.
fn shares(line: &str) -> Vec<(String, u32, u32)> {
    some(line).places.iter().map(|place| (place.host.name.clone(), place.workers, place.first_rank)).collect()
}

#[test]
fn workers_fill_the_slots_of_one_host_after_another() {
    for (line, expected) in [
        ("-H one:4,two:4 a", &[("one", 4, 0), ("two", 4, 4)][..]),
        ("-H one:4,two:4 -n 6 a", &[("one", 4, 0), ("two", 2, 4)]),
        ("-H one:4,two:4 -np 3 a", &[("one", 3, 0)]),
        ("-H one:1,two:3,one:1 --worker_num=5 a", &[("one", 2, 0), ("two", 3, 2)]),
        ("-H one,two a", &[("one", 1, 0), ("two", 1, 1)]),
        ("-H one,two:3 a", &[("one", 1, 0), ("two", 3, 1)]),
        ("-H one,two -n 5 a", &[("one", 3, 0), ("two", 2, 3)]),
        ("-H one,two,three -n 2 a", &[("one", 1, 0), ("two", 1, 1)]),
        ("-H one,two --local_worker_num=4 a", &[("one", 4, 0), ("two", 4, 4)]),
        ("-H one:4 -H two:4 a", &[("one", 4, 0), ("two", 4, 4)]),
        ("-H one,two --host=three:2 -H one -n 5 a", &[("one", 2, 0), ("two", 1, 2), ("three", 2, 3)]),
    ] {
        let expected: Vec<(String, u32, u32)> =
            expected.iter().map(|(name, n, rank)| ((*name).to_owned(), *n, *rank)).collect();
        assert_eq!(shares(line), expected, "{line}");
    }
}

#[test]
fn a_host_that_is_named_twice_takes_what_it_takes_in_both_places() {
    for (line, expected) in [
        ("-H one:3,one:2 a", &[("one", 5, 0)][..]),
        ("-H one,two,one a", &[("one", 2, 0), ("two", 1, 2)]),
        ("-H one,one --local_worker_num=2 a", &[("one", 4, 0)]),
        ("-H one,two:1,one:3 --local_worker_num=2 a", &[("one", 5, 0), ("two", 1, 5)]),
        ("-H one,one -n 4 a", &[("one", 4, 0)]),
        ("-H one,two,one -n 6 a", &[("one", 4, 0), ("two", 2, 4)]),
        ("-H one,one,two,two -n 2 a", &[("one", 2, 0)]),
        ("-H one -H one -n 4 a", &[("one", 4, 0)]),
    ] {
        let expected: Vec<(String, u32, u32)> =
            expected.iter().map(|(name, n, rank)| ((*name).to_owned(), *n, *rank)).collect();
        assert_eq!(shares(line), expected, "{line}");
    }
}

#[test]
fn the_schedulers_host_chooses_the_port_unless_one_is_given() {
    for (words, port) in [("", 0), ("--master_port=0", 0), ("--master_port 00", 0), ("--master_port=9000", 9000)] {
        assert_eq!(some(&format!("-H one,two {words} a")).port, port, "{words}");
    }
}

#[test]
fn a_host_is_told_its_share_and_all_other_options() {
    let plan = some("-H me@one:4,two:2 --max_restarts=3 --log_dir logs -x B=c -x A -x NONE a.out -x --join");
    let spec = plan.launch_spec(1, Path::new("/data"), 1234, Some("secret"), true);
    assert_eq!((spec.folder.to_str(), spec.first_rank, spec.has_scheduler), (Some("/data"), 4, false));
    let words: Vec<&str> = spec.words.iter().map(|word| word.to_str().unwrap()).collect();
    assert_eq!(
        words.join(" "),
        "--max_restarts=3 --log_dir=logs --worker_num=6 --local_worker_num=2 --master_addr=one --master_port=1234 --join=True \
         -- a.out -x --join"
    );
    let environment: Vec<String> = spec
        .environment
        .iter()
        .map(|(name, value)| format!("{}={}", name.to_str().unwrap(), value.to_str().unwrap()))
        .collect();
    assert_eq!(environment, ["MS_ENABLE_RECOVERY=1", "MUSTER_LOG=info", "B=c", "A=a b", "MUSTER_JOB_SECRET=secret"]);
    assert!(plan.warnings.len() == 1 && plan.warnings[0].contains("NONE"), "{:?}", plan.warnings);
    assert!(plan.launch_spec(0, Path::new("/"), 0, None, false).has_scheduler);
}

#[test]
fn a_variable_of_the_command_line_counts_in_place_of_this_hosts_and_the_last_of_several() {
    for (words, expected) in [("-x MUSTER_LOG=debug", "debug"), ("-x MUSTER_LOG=debug -x MUSTER_LOG=", "")] {
        let spec = some(&format!("-H one,two {words} a")).launch_spec(1, Path::new("/"), 1234, None, false);
        let values: Vec<&OsString> =
            spec.environment.iter().filter(|(name, _)| name == "MUSTER_LOG").map(|(_, value)| value).collect();
        assert_eq!(values, [expected], "{words}");
    }
}

#[test]
fn the_port_is_the_first_hosts_to_choose_unless_it_was_given() {
    assert_eq!(some("-H one,two a").port, 0);
    assert_eq!(some("-H one,two --master_port 9000 a").port, 9000);
    assert_eq!(some("-H one:2 --ssh=ssh a").ssh, Some(vec!["ssh".into()]));
    assert_eq!(of_words(&["-H", "one", "--ssh=ssh -p 22", "a"]).unwrap().unwrap().ssh.unwrap(), ["ssh", "-p", "22"]);
}

#[test]
fn ranks_of_all_hosts_may_be_named() {
    assert!(planned("-H one:2,two:2 --tail_worker_log=3 a").is_ok());
    assert!(planned("-H one:2,two:2 --sim_level=1 --sim_rank_id=3 a").is_ok());
    let error = planned("-H one:2,two:2 --tail_worker_log=4 a").unwrap_err();
    assert!(error.contains("--tail_worker_log has rank 4; the ranks are 0 to 3"), "{error}");
}

#[test]
fn what_cannot_be_is_said_before_anything_starts() {
    for (line, said) in [
        ("-H one:4,two:4 -n 9 a", "9 workers are more than the 8 that the hosts take: one 4, two 4"),
        ("-H one,one:1 -n 9 a", "9 workers are more than the 2 that the hosts take: one 2"),
        ("-H one --hostfile=h a", "-H and --hostfile both name the hosts"),
        ("--hostfile=h --hostfile g a", "--hostfile is \"h\" and \"g\"; it must be one file: write all hosts into it"),
        ("-H one -H two:0 a", "-H is \"two:0\"; \"two:0\" must be HOST or HOST:N"),
        ("-H one:4:2 a", "-H is \"one:4:2\"; \"one:4:2\" must be HOST or HOST:N"),
        ("-H me@fe80::1,two a", "runs on the first host, which is \"fe80::1\": expected its interface, too"),
        ("-H one,two --node_rank=1 a", "--node_rank is for one command on each host"),
        ("-H one,two --join=False a", "--join is \"False\", but with -H"),
        ("-H localhost,two a", "\"two\" can't reach it by that name; give --master_addr"),
        ("-H one,two", "there is no program to run"),
        ("-H one --master_port=80 a", "--master_port is \"80\""),
        ("-H one --ssh= a", "--ssh is \"\""),
        ("-H one --worker_num +2 a", "--worker_num is \"+2\"; it must be a whole number from 1 to 1048576"),
        ("-H one -n 0 a", "--np is \"0\"; it must be a whole number from 1"),
        ("-H one -n 2 --worker_num 3 a", "-n is \"2\", but --worker_num is \"3\""),
        ("-H one --worker_num 0 a", "--worker_num is \"0\""),
        ("-H one -x =b a", "-x is \"=b\"; it must be NAME or NAME=VALUE"),
        ("--ssh=ssh a", "--ssh starts workers on other hosts: name them with -H"),
        ("--hostfile=/no/such/file a", "--hostfile is \"/no/such/file\": "),
        (
            "--hostfile=/dev/zero a",
            "--hostfile is \"/dev/zero\": it is too long: expected a line for each host, 67108864 ",
        ),
    ] {
        let error = planned(line).unwrap_err();
        assert!(error.contains(said), "{line}: {error}");
    }
    assert_eq!(planned("-n 4 a"), Ok(None));
    assert!(planned("-H localhost,two --master_addr=one a").is_ok());
    assert!(planned("-H 127.0.0.1,127.0.0.2 a").is_ok());
}

#[test]
fn a_hostfile_may_be_a_pipe() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    std::io::Write::write_all(&mut writer, b"a:2\nb\n").unwrap();
    drop(writer);
    let hosts = of_file(Path::new(&format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader)))).unwrap();
    assert_eq!(hosts.iter().map(|host| &*host.name).collect::<Vec<_>>(), ["a", "b"]);
}
