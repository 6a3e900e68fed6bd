//! The options of `muster run`. A new option is one line here and one field in [`super::parse::RunOptions`].

use crate::cli::table::{option, Command, Operands, Opt, Takes};

/// `muster run`.
pub const COMMAND: Command = Command {
    name: "muster run",
    operands: Operands::Program,
    summary: "start a scheduler and workers here",
    about:
        "Starts a scheduler and workers on this host, each with its log. `x.py` runs under python3, any other program \
            as it is. Without --join their process ids are printed and they outlive the launcher.",
    options: &OPTIONS,
    notes: "",
    exit_codes: &[
        ("0", "all ended well"),
        ("2", "usage"),
        ("124", "forming timed out"),
        ("127", "the program was not found"),
        ("128+n", "signal n ended a worker or the launcher"),
        ("other", "that of the first worker that failed; with --max_restarts only the last life of each counts"),
    ],
    not_yet: &NOT_YET,
};

/// All of them, in the order of the help.
const OPTIONS: [Opt; 10] = [
    option("worker_num", Takes::Value("N"), "8", "workers in total, on all hosts"),
    option("local_worker_num", Takes::Value("N"), "8, or worker_num when that is less", "workers started on this host"),
    option(
        "master_addr",
        Takes::Value("ADDRESS"),
        "127.0.0.1",
        "the scheduler's address or host name; the launcher whose host has it starts the scheduler",
    ),
    option("master_port", Takes::Value("PORT"), "8118", "the scheduler's port, 1024 to 65535; 0 lets the system choose"),
    option(
        "node_rank",
        Takes::Value("N"),
        "-1",
        "index of this host: rank = node_rank x local_worker_num + i; -1: ranks are assigned",
    ),
    option("log_dir", Takes::Directory, ".", "where scheduler.log and worker_<rank>.log go; made if missing"),
    option("join", Takes::Flag, "False", "wait for all, and exit with the first failure's code"),
    option(
        "max_restarts",
        Takes::Value("N"),
        "0",
        "with --join and recovery (MS_ENABLE_RECOVERY=1, MS_RECOVERY_PATH): how often each process of this host, worker or \
         scheduler, is started again when it is killed or fails (a scheduler only when its journal failed while it served)",
    ),
    option("cluster_time_out", Takes::Value("SECONDS"), "600", "how long forming the cluster may take; negative: no limit"),
    option(
        "tail_worker_log",
        Takes::Value("RANKS"),
        "-1",
        "with --join: ranks, separated by commas, whose output is shown here as it comes, line by line after `[rank N]` \
         if there are several; -1: all of this host",
    ),
];

/// What other launchers of this kind take and this version does not: a different answer from "unknown".
const NOT_YET: [&str; 11] = [
    "--bind_core",
    "--sim_level",
    "--sim_rank_id",
    "--rank_table_file",
    "--worker_log_name",
    "--hostfile",
    "--ssh",
    "--host",
    "-n",
    "-H",
    "-x",
];
