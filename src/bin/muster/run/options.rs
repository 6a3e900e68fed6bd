//! The options of `muster run`. A new option is one line here and one field in [`super::parse::RunOptions`].

use crate::cli::table::{option, Command, Operands, Opt, Takes};

/// `muster run`.
pub const COMMAND: Command = Command {
    name: "muster run",
    operands: Operands::Program,
    summary: "start a scheduler and workers here",
    about:
        "Starts a scheduler and workers on this host, each with its log. `x.py` runs under python3, any other program \
            as it is. Without --join their process ids are printed and they outlive the launcher. With -H or --hostfile one command \
            starts them on many hosts, over ssh, and waits for them.",
    options: OPTIONS,
    notes: "With --join, a signal (Ctrl-C is SIGINT; SIGTERM, SIGHUP, SIGQUIT) asks all processes to end, by SIGTERM. What has not ended \
            5 s later is killed, and what was killed is said. A second signal kills at once; the same one within 0.3 s does not count. The first failure of a worker \
            stops the others within a second. If the launcher is killed (kill -9), all that came of it is killed.\n\nWithout \
            --join, `muster ps` lists what runs, and `muster stop` ends it.",
    examples: EXAMPLES,
    exit_codes: &[
        ("0", "all ended well"),
        (
            "1",
            "the launcher itself failed, standard output did not take the process ids, a host was lost, the job ended elsewhere, \
             or a worker ended with 0 without muster_finalize",
        ),
        ("2", "usage"),
        ("124", "forming timed out (where the scheduler is)"),
        ("127", "the program was not found"),
        ("128+n", "signal n ended a worker, the scheduler or the launcher (130: Ctrl-C, 143: SIGTERM)"),
        (
            "other",
            "that of the first worker that failed, or of the scheduler (3, 4, 5) if only that did; with --max_restarts only the \
             last life of each counts",
        ),
    ],
};

const EXAMPLES: &[(&str, &str)] = &[
    ("--worker_num 4 --join train.py --epochs 3", "four workers here; waits for them, and shows what they write"),
    (
        "--worker_num 16 --local_worker_num 8 --master_addr 10.0.0.1 --node_rank 0 --join train.py",
        "on the first of two hosts, whose address that is; on the second the same with --node_rank 1",
    ),
    (
        "-H host1:8,host2:8 -x OMP_NUM_THREADS=1 train.py",
        "eight workers on each of two hosts, all started from here over ssh",
    ),
    (
        "--worker_num 4 --join --log_dir logs --tail_worker_log 0,2 ./a.out",
        "logs in a folder of their own, and the output of two ranks here",
    ),
    ("--worker_num 4 --bind_core --join ./a.out", "each worker has a part of the cores for itself"),
    (
        r#"--worker_num 2 --bind_core '{"device0":"0-3","device1":"4-7"}' --join ./a.out"#,
        "each worker has the cores that are named",
    ),
    ("--worker_num 4 --sim_level 0 ./a.out", "shows what would be started, and starts nothing"),
];

const RANKS: &str = "Workers and their ranks";
const HOSTS: &str = "Many hosts from one command, and options of mpirun";
const SCHEDULER: &str = "The scheduler, and forming";
const WAITING: &str = "Waiting";
const OUTPUT: &str = "Logs and output";
const BINDING: &str = "Cores and memory";
const DRY_RUN: &str = "Dry run";

/// All options, in the order of the help.
const OPTIONS: &[Opt] = &[
    option("worker_num", Takes::Value("N"), "8", "workers in total, on all hosts").under(RANKS),
    option("local_worker_num", Takes::Value("N"), "8, or worker_num when that is less", "workers started on this host")
        .under(RANKS),
    option(
        "node_rank",
        Takes::Value("N"),
        "-1",
        "index of this host: rank = node_rank x local_worker_num + i; -1: ranks are assigned",
    )
    .under(RANKS),
    option(
        "rank_table_file",
        Takes::Value("FILE"),
        "",
        "an HCCL rank table (JSON, version 1.0) that gives the ranks; the same as RANK_TABLE_FILE in the environment. If not all \
         workers are on this host, a worker's log, --tail_worker_log and `[local N]` then count the workers of this host",
    )
    .under(RANKS),
    option(
        "np",
        Takes::Value("N"),
        "",
        "as mpirun has it: workers in total, here or on the hosts of -H; in place of worker_num and local_worker_num",
    )
    .letter('n')
    .under(HOSTS),
    option(
        "host",
        Takes::Value("HOST[:N],..."),
        "",
        "starts the workers on these hosts, N on each (without N: local_worker_num, or 1; without any N: -n divided evenly), over \
         ssh; with --join. It may be given more than once: the lists are joined. Other defaults hold with it: worker_num is the \
         sum, master_addr the first host, master_port the system's choice",
    )
    .letter('H')
    .under(HOSTS),
    option(
        "hostfile",
        Takes::Value("FILE"),
        "",
        "the same, a host on each line: `host slots=N` or `host:N`; `#` begins a comment",
    )
    .under(HOSTS),
    option(
        "export",
        Takes::Value("NAME[=VALUE]"),
        "",
        "a variable for the workers, on other hosts with its value here; may be given more than once",
    )
    .letter('x')
    .under(HOSTS),
    option(
        "ssh",
        Takes::Value("PROGRAM"),
        "ssh, and none for this host",
        "what runs a command on another host: PROGRAM HOST COMMAND; it may have words of its own: --ssh='ssh -p 2222'",
    )
    .under(HOSTS),
    option(
        "master_addr",
        Takes::Value("ADDRESS"),
        "127.0.0.1",
        "the scheduler's address or host name; the launcher whose host has it starts the scheduler",
    )
    .under(SCHEDULER),
    option("master_port", Takes::Value("PORT"), "8118", "the scheduler's port, 1024 to 65535; 0 lets the system choose")
        .under(SCHEDULER),
    option("cluster_time_out", Takes::Value("SECONDS"), "600", "how long forming the cluster may take; negative: no limit")
        .under(SCHEDULER),
    option("join", Takes::Flag, "False", "wait for all, and exit with the first failure's code").under(WAITING),
    option(
        "max_restarts",
        Takes::Value("N"),
        "0",
        "with --join and recovery (MS_ENABLE_RECOVERY=1, MS_RECOVERY_PATH): how often each process of this host, worker or \
         scheduler, is started again when it is killed or fails (a scheduler that ends by itself only when its journal \
         failed while it served)",
    )
    .under(WAITING),
    option("log_dir", Takes::Directory, ".", "where scheduler.log and worker_<rank>.log go; made if missing").under(OUTPUT),
    option(
        "worker_log_name",
        Takes::Value("NAME"),
        "worker",
        "what workers' logs are called: NAME_<rank>.log; {ip} and {hostname} in it stand for this host's address and name",
    )
    .under(OUTPUT),
    option(
        "tail_worker_log",
        Takes::Value("RANKS"),
        "-1",
        "with --join: ranks, separated by commas, whose output is shown here as it comes, line by line after `[rank N]` \
         if there are several; -1: all of this host; none: nobody's",
    )
    .under(OUTPUT),
    option(
        "bind_core",
        Takes::FlagOr("JSON"),
        "False",
        "bind processes to cores. True: the workers share the cores of this host, those of one NUMA node first. JSON: device and \
         cores, as in '{\"device0\":\"0-3,8\",\"scheduler\":[\"9\"]}'; what is not named is not bound",
    )
    .under(BINDING),
    option(
        "bind_numa",
        Takes::FlagOr("JSON|FILE.json"),
        "False",
        "bind processes to the memory of NUMA nodes, and, without --bind_core, to their cores. True: the workers share the nodes. \
         JSON: device and nodes, as in '{\"device0\":\"0\",\"device1\":\"1\"}'. FILE.json: both in a file, as msrun has it",
    )
    .under(BINDING),
    option(
        "sim_level",
        Takes::Value("N"),
        "-1",
        "0 to 3: show what would be started, with its environment, and start nothing; -1: no dry run",
    )
    .under(DRY_RUN),
    option("sim_rank_id", Takes::Value("RANK"), "-1", "with --sim_level: show the worker of this rank alone; -1: all of this host")
        .under(DRY_RUN),
];
