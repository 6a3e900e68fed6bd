use super::*;
use crate::cli::table::Takes;

fn asked(line: &str) -> Result<Asked<RunOptions>, String> {
    parse(line.split_whitespace().map(OsString::from).collect())
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
    assert_eq!((run.node_rank, run.join, run.cluster_time_out), (None, false, 600));
    assert_eq!(run.max_restarts, 0);
    assert_eq!((run.log_dir, run.tail), (PathBuf::from("."), Tail::All));
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
fn ranks_are_known_here_or_by_node_rank() {
    let here = options("--worker_num=4 a.out");
    assert_eq!((0..4).map(|i| here.rank(i)).collect::<Vec<_>>(), [Some(0), Some(1), Some(2), Some(3)]);
    let second = options("--worker_num=4 --local_worker_num=2 --node_rank=1 a.out");
    assert_eq!((second.rank(0), second.rank(1)), (Some(2), Some(3)));
    assert_eq!(options("--worker_num=4 --local_worker_num=2 --node_rank=-1 a.out").rank(1), None);
    // Alone on one host the index of the host is of no consequence.
    assert_eq!(options("--worker_num=4 --node_rank=7 a.out").rank(1), Some(1));
}

#[test]
fn tail() {
    assert_eq!(options("--tail_worker_log=-1 a.out").tail, Tail::All);
    assert_eq!(options("--tail_worker_log -1 a.out").tail, Tail::All);
    assert_eq!(options("--tail_worker_log=0,3 a.out").tail, Tail::Ranks(vec![0, 3]));
}

#[test]
fn addresses() {
    assert_eq!(options("--master_addr=[::1] a.out").master_addr, "::1");
    assert_eq!(options("--master_addr=node-1.example a.out").master_addr, "node-1.example");
}

#[test]
fn help_wins_over_what_comes_after_it() {
    assert_eq!(asked("--worker_num=4 --help"), Ok(Asked::Help));
    assert_eq!(asked("-h --bogus"), Ok(Asked::Help));
    assert_eq!(options("a.out --help").task, ["a.out", "--help"]);
}

#[test]
fn complaints_name_option_value_and_what_would_be_right() {
    for (line, said) in [
        ("", "no program to run"),
        ("--join", "no program to run"),
        ("--worker_num", "--worker_num needs a value: --worker_num=N"),
        ("--worker_num=0 a", "--worker_num is \"0\"; it must be a whole number from 1 to 1048576"),
        ("--worker_num=4x a", "--worker_num is \"4x\""),
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
        ("--node_rank=-2 a", "--node_rank is \"-2\""),
        ("--worker_num=4 --local_worker_num=2 --node_rank=2 a", "--node_rank is 2"),
        ("--worker_num=4294967295 --node_rank=4294967295 a", "must be"),
        ("--cluster_time_out=soon a", "--cluster_time_out is \"soon\"; it must be a whole number of seconds"),
        ("--cluster_time_out=0 a", "negative for no limit"),
        ("--join=maybe a", "--join is \"maybe\"; it must be True or False"),
        ("--tail_worker_log=0,x a", "--tail_worker_log is \"0,x\"; it must be ranks"),
        ("--tail_worker_log=-2 a", "-1 for all"),
        ("--worker_nun=4 a", "there is no option --worker_nun; did you mean --worker_num?"),
        ("--log-dri=x a", "did you mean --log_dir?"),
        ("-z a", "there is no option -z"),
        ("--bind_core=True a", "this version does not have --bind_core"),
        ("--bind-core a", "this version does not have --bind_core"),
        ("-n 4 a", "this version does not have -n"),
        ("-np 4 a", "this version does not have -n"),
        ("--max_restarts=-1 --join a", "--max_restarts is \"-1\"; it must be how often"),
        ("--max_restarts=some --join a", "--max_restarts is \"some\""),
        ("--max_restarts=99999999999 --join a", "0 or more"),
        ("--max_restarts=1 a", "--max_restarts is \"1\", but without --join"),
        ("--max-restarts 1 --join=False a", "without --join"),
    ] {
        let error = asked(line).unwrap_err();
        assert!(error.contains(said), "{line}: {error}");
    }
}
