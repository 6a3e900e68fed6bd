use super::super::bind_values::Bind;
use super::*;
use crate::cli::table::Takes;

fn asked(line: &str) -> Result<Asked<RunOptions>, String> {
    parse(line.split_whitespace().map(OsString::from).collect(), Placement::default(), false)
}

fn options(line: &str) -> RunOptions {
    match asked(line) {
        Ok(Asked::With(options)) => options,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn defaults() {
    let run = options("a.out");
    assert_eq!((run.worker_num, run.local_worker_num), (8, 8));
    assert_eq!((run.master_addr.as_str(), run.master_port), ("127.0.0.1", 8118));
    assert_eq!((run.placement.first_rank, run.join, run.cluster_time_out), (None, false, 600));
    assert_eq!(run.max_restarts, 0);
    assert_eq!((run.log_dir, run.tail), (PathBuf::from("."), Tail::All));
    assert_eq!((run.worker_log_name.as_str(), run.rank_table, run.dry_run), ("worker", RankTable::Absent, None));
    assert!(!run.binds.any());
    assert_eq!(options("--worker_log_name= --rank_table_file= a.out"), options("a.out"));
    assert_eq!(run.task, ["a.out"]);
}

#[test]
fn both_spellings_of_names_and_values() {
    let expected = options("--worker_num=4 --local_worker_num=2 --master_port=0 --log_dir=logs a.out -x --join");
    assert_eq!(expected, options("--worker-num 4 --local-worker_num 2 --master-port 0 --log_dir logs a.out -x --join"));
    assert_eq!(
        expected,
        options("--worker_num=4 --local_worker_num=2 --master_port=0 --log_dir=logs -- a.out -x --join")
    );
    assert_eq!(expected.task, ["a.out", "-x", "--join"]);
    assert!(!expected.join);
}

#[test]
fn local_worker_num_follows_a_smaller_worker_num() {
    assert_eq!(options("--worker_num=3 a.out").local_worker_num, 3);
    assert_eq!(options("--worker_num=30 a.out").local_worker_num, 8);
}

#[test]
fn booleans() {
    let lines = [
        "--join a.out",
        "--join True a.out",
        "--join=true a.out",
        "--join=False --join a.out",
        "--join TRUE a.out",
        "--join=tRuE a.out",
    ];
    for line in lines {
        assert!(options(line).join, "{line}");
        assert_eq!(options(line).task, ["a.out"], "{line}");
    }
    for line in ["--join False a.out", "--join=false a.out", "--join FALSE a.out", "--join=fAlse a.out"] {
        assert!(!options(line).join, "{line}");
    }
    for (line, program) in
        [("--join -- True", "True"), ("--join -- yes", "yes"), ("--join=True yes", "yes"), ("--join ./no", "./no")]
    {
        assert_eq!((options(line).join, options(line).task), (true, vec![OsString::from(program)]), "{line}");
    }
}

#[test]
fn after_a_flag_what_only_elsewhere_is_a_boolean_is_no_program() {
    let flags = COMMAND.options.iter().filter(|option| option.takes == Takes::Flag);
    for (flag, word, value) in flags.flat_map(|flag| {
        let words = [("yes", "True"), ("ON", "True"), ("1", "True"), ("No", "False"), ("off", "False"), ("0", "False")];
        words.map(|(word, value)| (flag.name, word, value))
    }) {
        let error = asked(&format!("--{flag} {word} ./hello")).unwrap_err();
        for said in [format!("--{flag}={value} "), format!("--{flag}=True ./{word} ")] {
            assert!(error.contains(&said), "{said:?} in {error}");
        }
    }
}

#[test]
fn restarts() {
    assert_eq!(options("--join --max_restarts 3 a.out").max_restarts, 3);
    assert_eq!(options("--max-restarts=0 a.out").max_restarts, 0);
}

#[test]
fn a_value_behind_a_flag_that_may_have_one() {
    let by_hand = options(r#"--bind_core={"device0":"0"} a.out"#);
    assert_ne!(by_hand.binds, Binds::default());
    assert_eq!(by_hand, options(r#"--bind-core {"device0":"0"} a.out"#));
    let shared = options("--bind_core a.out");
    assert_eq!((&shared.binds.cores, &shared.task[..]), (&Bind::Shared, &["a.out".into()][..]));
    assert_eq!(shared, options("--bind_core True a.out"));
    assert_eq!(shared, options("--bind_core -- a.out"));
    assert_eq!(options("--bind_core=False --bind_numa false a.out"), options("a.out"));
    assert!(asked("--bind_numa no-such.json a.out").unwrap_err().contains("can't be read"));
}

#[test]
fn a_dry_run_is_of_all_or_of_one_rank() {
    assert_eq!(options("--sim_level=-1 a.out").dry_run, None);
    assert_eq!(options("--sim_level 0 a.out").dry_run, Some(DryRun::All));
    assert_eq!(options("--sim_level=3 --sim_rank_id=-1 a.out").dry_run, Some(DryRun::All));
    assert_eq!(options("--sim_level=1 --sim_rank_id=7 a.out").dry_run, Some(DryRun::Rank(7)));
    let elsewhere = "--worker_num=8 --local_worker_num=4 --node_rank=0 --sim_level=1 --sim_rank_id=5 a.out";
    assert_eq!(options(elsewhere).dry_run, Some(DryRun::Rank(5)));
}

#[test]
fn ranks_are_known_here_or_by_node_rank() {
    let here = options("--worker_num=4 a.out");
    assert_eq!((0..4).map(|i| here.rank(i)).collect::<Vec<_>>(), [Some(0), Some(1), Some(2), Some(3)]);
    let second = options("--worker_num=4 --local_worker_num=2 --node_rank=1 a.out");
    assert_eq!((second.rank(0), second.rank(1)), (Some(2), Some(3)));
    assert_eq!(options("--worker_num=4 --local_worker_num=2 --node_rank=-1 a.out").rank(1), None);
    // If there is only one host, its index has no effect.
    assert_eq!(options("--worker_num=4 --node_rank=7 a.out").rank(1), Some(1));
}

#[test]
fn mpiruns_number_of_workers_is_all_of_them_here() {
    for line in ["-n 16 a.out", "-np 16 a.out", "--np=16 a.out", "-n 16 --worker_num=16 a.out"] {
        let run = options(line);
        assert_eq!((run.worker_num, run.local_worker_num), (16, 16), "{line}");
    }
    let run = options("-n 4 --local_worker_num 2 a.out");
    assert_eq!((run.worker_num, run.local_worker_num), (4, 2));
}

#[test]
fn variables_are_named_with_their_values_or_without() {
    let exported = |line: &str| {
        let asked = split(line.split_whitespace().map(OsString::from).collect());
        let Ok(Asked::With(words)) = asked else { panic!("{line}") };
        exports(&words)
    };
    let export = |name: &str, value: Option<&str>| Export { name: name.to_owned(), value: value.map(str::to_owned) };
    let expected = vec![export("A", Some("b=c")), export("D", None), export("E", Some(""))];
    assert_eq!(exported("-x A=b=c -x D --export=E= a.out -x F"), Ok(expected));
    assert_eq!(exported("-x =1 a.out").unwrap_err(), "-x is \"=1\"; it must be NAME or NAME=VALUE");
}

#[test]
fn tail() {
    assert_eq!(options("--tail_worker_log=-1 a.out").tail, Tail::All);
    assert_eq!(options("--tail_worker_log -1 a.out").tail, Tail::All);
    assert_eq!(options("--tail_worker_log=0,3 a.out").tail, Tail::Ranks(vec![0, 3]));
    assert_eq!(options("--tail_worker_log=none a.out").tail, Tail::Ranks(vec![]));
    // A rank of another host: each host may be given the same list.
    let elsewhere = "--worker_num=8 --local_worker_num=4 --node_rank=1 --tail_worker_log=0 a.out";
    assert_eq!(options(elsewhere).tail, Tail::Ranks(vec![0]));
}

#[test]
fn addresses() {
    assert_eq!(options("--master_addr=[::1] a.out").master_addr, "::1");
    assert_eq!(options("--master_addr=node-1.example a.out").master_addr, "node-1.example");
    assert_eq!(options("--master_addr=fe80::1%eth0 a.out").master_addr, "fe80::1%eth0");
}

#[test]
fn times_for_forming_are_those_that_the_scheduler_takes() {
    for time in [1, 1_000_000_000, -1, i64::MIN] {
        assert_eq!(options(&format!("--cluster_time_out={time} a.out")).cluster_time_out, time);
    }
}

#[test]
fn a_rank_table_counts_wherever_it_is_named() {
    let with = |line: &str, has_table: bool| -> Result<RunOptions, String> {
        let words = line.split_whitespace().map(OsString::from).collect();
        match parse(words, Placement::default(), has_table)? {
            Asked::With(options) => Ok(options),
            other => panic!("{line}: {other:?}"),
        }
    };
    let second_host = "--worker_num=8 --local_worker_num=4 --node_rank=1";
    for (option, has_table, table) in
        [("", true, "RANK_TABLE_FILE"), ("--rank_table_file=t", false, "--rank_table_file")]
    {
        let error = with(&format!("{second_host} {option} --tail_worker_log=4 a"), has_table).unwrap_err();
        assert!(error.contains("--tail_worker_log has 4; ranks are not known yet"), "{error}");
        assert!(with(&format!("{second_host} {option} --tail_worker_log=3 a"), has_table).is_ok());
        let error = with(&format!("--sim_level=1 --sim_rank_id=5 {option} a"), has_table).unwrap_err();
        assert!(error.contains(&format!("but with {table} each worker finds its rank")), "{error}");
        assert!(
            with(&format!("--sim_level=1 {option} a"), has_table).is_ok_and(|run| run.rank_table != RankTable::Absent)
        );
    }
    assert!(with(&format!("{second_host} --tail_worker_log=4 a"), false)
        .is_ok_and(|run| run.rank_table == RankTable::Absent));
}

#[test]
fn help_wins_over_what_comes_after_it() {
    assert_eq!(asked("--worker_num=4 --help"), Ok(Asked::Help));
    assert_eq!(asked("-h --bogus"), Ok(Asked::Help));
    assert_eq!(options("a.out --help").task, ["a.out", "--help"]);
}

/// Each of these lines is refused, in these words.
fn complain(lines: &[(&str, &str)]) {
    for (line, said) in lines {
        let error = asked(line).unwrap_err();
        assert!(error.contains(said), "{line}: {error}");
    }
}

#[test]
fn complaints_name_option_value_and_what_would_be_right() {
    complain(&[
        ("", "no program to run"),
        ("--join", "no program to run"),
        ("--worker_num", "--worker_num needs a value: --worker_num=N"),
        ("--worker_num=0 a", "--worker_num is \"0\"; it must be a whole number from 1 to 1048576"),
        ("--worker_num=4x a", "--worker_num is \"4x\""),
        ("--worker_num=+4 a", "--worker_num is \"+4\"; it must be a whole number"),
        ("--node_rank=--1 a", "--node_rank is \"--1\""),
        ("--node_rank=-+1 a", "--node_rank is \"-+1\""),
        ("--worker_num= a", "--worker_num is \"\""),
        ("--worker_num=-2 a", "--worker_num is \"-2\""),
        ("--worker_num=99999999999999999999 a", "from 1 to"),
        (
            "--worker_num=2 --local_worker_num=3 a",
            "--local_worker_num is 3; it must be at most --worker_num, which is 2",
        ),
        ("--master_port=80 a", "--master_port is \"80\"; it must be 0 (the system chooses) or 1024 to 65535"),
        ("--master_port=80x a", "--master_port is \"80x\""),
        ("--master_port=65536 a", "1024 to 65535"),
        ("--master_addr= a", "--master_addr is \"\""),
        ("--master_addr=0.0.0.0 a", "workers can connect to"),
        ("--master_addr=[::] a", "workers can connect to"),
        (
            "--master_addr=127.0.0.1:8118 a",
            "--master_addr is \"127.0.0.1:8118\": expected a host name or an IP address (not of multicast or broadcast), without a port",
        ),
        ("--master_addr=fe80::1 a", "--master_addr is \"fe80::1\": expected its interface, too, as in fe80::1%eth0"),
        ("--master_addr=node/1 a", "expected a host name or an IP address"),
        ("--master_addr=[node] a", "expected a host name or an IP address"),
        ("--master_addr=224.0.0.1 a", "expected a host name or an IP address"),
        ("--node_rank=-2 a", "--node_rank is \"-2\""),
        ("--worker_num=4 --local_worker_num=2 --node_rank=2 a", "--node_rank is 2"),
        ("--worker_num=4294967295 --node_rank=4294967295 a", "must be"),
        ("--cluster_time_out=soon a", "--cluster_time_out is \"soon\"; it must be a whole number of seconds"),
        ("--cluster_time_out=0.5 a", "--cluster_time_out is \"0.5\"; it must be a whole number of seconds"),
        (
            "--cluster_time_out=0 a",
            "--cluster_time_out is \"0\"; it must be a whole number of seconds from 1 to 1000000000, or a negative one for no limit",
        ),
        ("--cluster_time_out=1000000001 a", "--cluster_time_out is \"1000000001\"; it must be a whole number of seconds"),
        ("--join=maybe a", "--join is \"maybe\"; it must be True or False"),
        ("--tail_worker_log=0,x a", "--tail_worker_log is \"0,x\"; it must be ranks"),
        ("--tail_worker_log=+1 a", "--tail_worker_log is \"+1\"; it must be ranks"),
        ("--tail_worker_log=-2 a", "-1 for all, or none"),
        ("--tail_worker_log=0,8 a", "--tail_worker_log has rank 8; the ranks are 0 to 7"),
        ("--worker_num=8 --local_worker_num=4 --node_rank=1 --tail_worker_log=8 a", "the ranks are 0 to 7"),
        (
            "--worker_num=8 --local_worker_num=4 --tail_worker_log=4 a",
            "--tail_worker_log has 4; ranks are not known yet when workers start, so those of this host are counted: 0 to 3",
        ),
        ("--tail_worker_log= a", "--tail_worker_log is \"\""),
        ("--worker_nun=4 a", "there is no option --worker_nun; did you mean --worker_num?"),
        ("--log-dri=x a", "did you mean --log_dir?"),
        ("-z a", "there is no option -z"),
        ("-np 0 a", "--np is \"0\"; it must be a whole number from 1"),
        ("-n 4 --worker_num 8 a", "-n is \"4\", but --worker_num is \"8\""),
    ]);
}

#[test]
fn complaints_about_a_process_s_place_name_them_too() {
    complain(&[
        ("--bind_core=maybe a", "--bind_core is \"maybe\", which is not JSON"),
        ("--bind-core yes ./a", "write --bind_core=True for what it may mean"),
        ("--bind_core={device0:0-3} a", "in single quotes"),
        (
            "--bind_core 0-3 a",
            "--bind_core 0-3: \"0-3\" is no value here; expected True, False or JSON, in single quotes",
        ),
        ("--bind_core device0:0-3 device1:4-7 a", "--bind_core device0:0-3: \"device0:0-3\" is no value here"),
        ("--bind_core [] a", "\"[]\" is no value here"),
        ("--bind_numa 1 a", "write --bind_numa=True for what it may mean"),
        ("--worker_log_name --join a", "--worker_log_name needs a value: --worker_log_name=NAME, but --join follows"),
        ("-worker_num=2 a", "there is no option -worker_num; did you mean --worker_num?"),
        ("--bindcore a", "did you mean --bind_core?"),
        ("--bind_num=True a", "did you mean --bind_numa?"),
        ("--bind_numa=/no/such.json a", "--bind_numa is \"/no/such.json\", which can't be read"),
        ("--sim_level=4 a", "--sim_level is \"4\"; it must be 0 to 3, or -1 for no dry run"),
        ("--sim_level a b", "--sim_level is \"a\""),
        ("--sim_rank_id=0 a", "--sim_rank_id is \"0\", but without --sim_level"),
        ("--sim_level=1 --sim_rank_id=8 a", "--sim_rank_id is \"8\"; it must be a rank, 0 to 7, or -1"),
        ("--sim_level=1 --sim_rank_id=5 --rank_table_file=t a", "with --rank_table_file each worker finds its rank"),
        ("--worker_log_name=a/b a", "--worker_log_name is \"a/b\", which has a slash"),
        ("--worker_log_name={rank} a", "{rank} stands for nothing"),
        ("--worker-log-nam=a a", "did you mean --worker_log_name?"),
        ("--max_restarts=-1 --join a", "--max_restarts is \"-1\"; it must be how often"),
        ("--max_restarts=some --join a", "--max_restarts is \"some\""),
        ("--max_restarts=99999999999 --join a", "may be started again, 0 to 4294967295"),
        ("--max_restarts=1 a", "--max_restarts is \"1\", but without --join"),
        ("--max-restarts 1 --join=False a", "without --join"),
    ]);
}

#[test]
fn an_empty_word_behind_a_flag_is_its_value_and_no_program() {
    for (flag, said) in [("--join", "--join is \"\"; it must be True or False"), ("--bind_core", "--bind_core is \"\"")]
    {
        let words = [flag, "", "a.out"].map(OsString::from).to_vec();
        let error = parse(words, Placement::default(), false).unwrap_err();
        assert!(error.starts_with(said), "{error}");
    }
}
