//! The options of `muster run`: one table, from which the parser and the help are made.
//!
//! A new option is one line here and one field in [`super::parse::RunOptions`].

/// What an option takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A value, always.
    Value,
    /// True or False, and True when nothing follows.
    Flag,
}

/// One option.
pub struct Spec {
    /// Its name with underscores, without the dashes before it.
    pub name: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// How the help calls its value.
    pub value: &'static str,
    /// What holds without it, in words.
    pub default: &'static str,
    /// What it is for.
    pub doc: &'static str,
}

const fn value(name: &'static str, value: &'static str, default: &'static str, doc: &'static str) -> Spec {
    Spec { name, kind: Kind::Value, value, default, doc }
}

const fn flag(name: &'static str, default: &'static str, doc: &'static str) -> Spec {
    Spec { name, kind: Kind::Flag, value: "True|False", default, doc }
}

/// All of them, in the order of the help.
pub const OPTIONS: [Spec; 10] = [
    value("worker_num", "N", "8", "workers in total, on all hosts"),
    value("local_worker_num", "N", "8, or worker_num when that is less", "workers started on this host"),
    value(
        "master_addr",
        "ADDRESS",
        "127.0.0.1",
        "the scheduler's address or host name; the launcher whose host has it starts the scheduler",
    ),
    value("master_port", "PORT", "8118", "the scheduler's port, 1024 to 65535; 0 lets the system choose"),
    value(
        "node_rank",
        "N",
        "-1",
        "index of this host: rank = node_rank x local_worker_num + i; -1: ranks are assigned",
    ),
    value("log_dir", "DIR", ".", "where scheduler.log and worker_<rank>.log go; made if missing"),
    flag("join", "False", "wait for all, and exit with the first failure's code"),
    value(
        "max_restarts",
        "N",
        "0",
        "with --join and recovery (MS_ENABLE_RECOVERY=1, MS_RECOVERY_PATH): how often each process of this host, worker or \
         scheduler, is started again when it is killed or fails (a scheduler only when its journal failed while it served)",
    ),
    value("cluster_time_out", "SECONDS", "600", "how long forming the cluster may take; negative: no limit"),
    value(
        "tail_worker_log",
        "RANKS",
        "-1",
        "with --join: ranks, separated by commas, whose output is shown here as it comes, line by line after `[rank N]` \
         if there are several; -1: all of this host",
    ),
];

/// What other launchers of this kind take and this version does not: a different answer from "unknown".
pub const NOT_YET: [&str; 12] = [
    "--bind_core",
    "--sim_level",
    "--sim_rank_id",
    "--rank_table_file",
    "--worker_log_name",
    "--hostfile",
    "--ssh",
    "--host",
    "-n",
    "-np",
    "-H",
    "-x",
];

/// The text of `--help` for a command called `name`.
pub fn help(name: &str) -> String {
    let mut text = format!(
        "Usage: {name} [options] program [arguments]\n\n\
         Starts a scheduler and workers on this host, each with its log. `x.py` runs under python3, any other program as\n\
         it is. Without --join their process ids are printed and they outlive the launcher.\n\nOptions:\n"
    );
    for option in &OPTIONS {
        text.push_str(&format!(
            "  --{}={}\n        {} (default: {})\n",
            option.name, option.value, option.doc, option.default
        ));
    }
    text.push_str(
        "  --help\n        this text\n\n\
         `--name value` works too, and `-` for `_` in names. `--` ends the options.\n\n\
         Exit code: 0; 2 usage; 127 program not found; 124 forming timed out; 128+n when signal n ended a worker or the\n\
         launcher; otherwise that of the first worker that failed. With --max_restarts only the last life of each counts.\n",
    );
    text
}
