//! What is made from the table: `docs/settings.md` and the command's help.

use std::fmt::Write;

use super::launchers::LAUNCHERS;
use super::table::{Setting, TABLE};
use super::value::Kind;

const HEAD: &str = "\
# Settings

<!-- Made from the table in src/config; `MUSTER_BLESS=1 cargo test --test settings_doc` writes it anew. -->

A setting has a name in code, for `muster_config_set`, and a variable: `MUSTER_` and the name in upper case. Many have
a second variable, `MS_...`, for scripts that exist. An empty variable counts as unset. Without any setting a process is a
cluster of one.

Where a setting is given twice, the first of these counts:

1. what is set in code;
2. a `MUSTER_` variable;
3. an `MS_` variable;
4. a variable of another launcher;
5. the default.

A wrong value is an error that names the variable, the value, and what would be right. (Settings of TLS are checked only with `enable_ssl`,
and `thresholds` only by the process that has the scheduler.) An unknown name is an error in code. An unknown `MUSTER_` name in the
environment is a warning that names the nearest known one. `MUSTER_LIBRARY` and `MUSTER_JOINED_BY` are no settings: the Python package alone
reads them ([python.md](python.md)).

";

const LAUNCHERS_HEAD: &str = "
## Other launchers

With a role set, other launchers' variables are ignored, except `RANK_ID`, `RANK_SIZE`, `DEVICE_ID` and `RANK_TABLE_FILE`. Without one, muster
looks for the launchers below, in this order. The first counts whose rank and workers are set: as a rule it is the innermost. It gives rank,
number of workers and local index, and rank 0 runs the scheduler in its own process. A launcher's only process is a cluster of one. If
another launcher below says that there are several, or that this process is not the first, variables of an outer launcher may be left
over: a warning names both.

| launcher | rank | workers | local rank | local workers |
| --- | --- | --- | --- | --- |
";

const LAUNCHERS_TAIL: &str = "
- **Slurm** counts in a step that `srun` has started with more than one task. A program that a batch script runs without `srun` is a
  cluster of one. `srun --mpi=pmi2` sets `PMI_RANK`, too; Slurm's row counts then.
- **Kubeflow Trainer** counts where `PET_NPROC_PER_NODE` is 1 or unset. Else run the program by `muster run`, which reads these
  variables, or by torchrun.
- **Volcano**: `*` is the name of the process's task. With several tasks it is the one whose `VC_*_HOSTS` have `HOSTNAME` at this index.

The scheduler's host is the first of these that there is:

1. `MUSTER_SCHED_HOST`, `MS_SCHED_HOST`, `MASTER_ADDR`;
2. `PET_MASTER_ADDR`, `LWS_LEADER_ADDRESS`, the first of `VC_*_HOSTS`, each with its launcher;
3. the loopback address, if the launcher says that all ranks are on this host;
4. the first node of Slurm: of `SLURM_STEP_NODELIST` for Slurm's own ranks, of `SLURM_JOB_NODELIST` for ranks of a launcher in a job;
5. the first host of the file that `I_MPI_HYDRA_HOST_FILE`, `HYDRA_HOST_FILE`, `OMPI_MCA_orte_default_hostfile` or
   `PRTE_MCA_prte_default_hostfile` names.

If that is a name that leads to the loopback, and the launcher says that other hosts have ranks, too, an address takes its place
([networking.md](networking.md#names)).

Its port is `MUSTER_SCHED_PORT`, `MS_SCHED_PORT`, or `MASTER_PORT` + 2 (`PET_MASTER_PORT` + 2). If none is set, the job has ports of
its own.

**Ports of a job's own.** Two jobs of a launcher may run side by side on one host. What the launcher says of a job tells it
from others:

- torchrun: `TORCHELASTIC_RUN_ID`, except its default, `none`;
- Open MPI: `PMIX_NAMESPACE` or `OMPI_MCA_ess_base_jobid`;
- MPICH and Intel MPI: `PMI_JOBID`, else the control port of the nearest `hydra_pmi_proxy` among the process's ancestors, else
  `I_MPI_HYDRA_UUID` and `HYDRA_BSTRAP_PGID`;
- Slurm: `SLURM_JOB_ID` and `SLURM_STEP_ID`;
- Kubernetes: `JOB_NAME`, if the pod has it from the label `batch.kubernetes.io/job-name` (downward API).

Such a job has eight ports between 20000 and 29999. Rank 0 takes the first that is free, and says at `MUSTER_LOG=info` which
that is. The others try them in turn, and pass by the scheduler of another such job. Between hosts no filter may stand before these
ports, or `MUSTER_SCHED_PORT` must name one that is open.

If a process was given `MUSTER_JOB_ID`, `MUSTER_RANK_ID` or the port, only that counts. Where the job is not known the port is 8118.

**What does not count is said.** If no launcher counts, a process warns of each whose variables are only half there, or do not tell
the place of a process. If there is none, it warns of the first of those that it knows by their mark alone: Flux (`FLUX_TASK_RANK`), PALS (`PALS_RANKID`), jsrun
(`JSM_NAMESPACE_RANK`), MVAPICH (`MV2_COMM_WORLD_RANK`), Horovod (`HOROVOD_RANK`), PMIx (`PMIX_RANK`), an old Volcano
(`VK_TASK_INDEX`), and an MPIJob's pod outside of `mpirun` (`K_MPI_JOB_ROLE`). Then it is a cluster of one.
";

const VALUES: &str = "
Values:

- *1 to 8*, for instance: a whole number, these two included.
- *Seconds*: a number that may have a fraction, at least 0.001 and at most 1000000000. A negative number, where it is allowed, is no limit.
- *Text*: printable, without a blank at its beginning or end. The table says how long it may be.
";

/// The kinds of values that need more words than the table has room for.
const KINDS: [Kind; 10] = [
    Kind::Role,
    Kind::Host,
    Kind::Port,
    Kind::Path,
    Kind::Addresses,
    Kind::Binds,
    Kind::Endpoints,
    Kind::Ports,
    Kind::Interfaces,
    Kind::Level,
];

const MORE: &str = "
## More about some of them

";

/// The text of `docs/settings.md`.
pub fn settings_markdown() -> String {
    let mut text = HEAD.to_string();
    text.push_str("| name | variables | value | default | meaning |\n| --- | --- | --- | --- | --- |\n");
    for setting in &TABLE {
        let default = setting.default.map_or_else(|| "unset".to_string(), |default| format!("`{default}`"));
        let variables: Vec<String> = variables(setting).iter().map(|name| format!("`{name}`")).collect();
        line(
            &mut text,
            format_args!(
                "| `{}` | {} | {} | {default} | {} |",
                setting.name,
                variables.join(", "),
                setting.kind.brief(),
                meaning(setting)
            ),
        );
    }
    text.push_str(VALUES);
    for kind in KINDS {
        line(&mut text, format_args!("- *{}*: {}.", kind.brief(), kind.expectation()));
    }
    text.push_str(MORE);
    for setting in TABLE.iter().filter(|setting| !setting.more.is_empty()) {
        line(&mut text, format_args!("- **`{}`**: {}", setting.name, setting.more));
    }
    text.push_str(LAUNCHERS_HEAD);
    for launcher in &LAUNCHERS {
        let [rank, size] = [launcher.rank, launcher.size].map(|name| format!("`{name}`"));
        let locals = [launcher.local_rank, launcher.local_size];
        let [local_rank, local_size] = locals.map(|name| name.map_or_else(String::new, |name| format!("`{name}`")));
        line(&mut text, format_args!("| {} | {rank} | {size} | {local_rank} | {local_size} |", launcher.name));
    }
    text.push_str(LAUNCHERS_TAIL);
    text
}

/// The settings as the command's help shows them.
pub fn settings_help() -> String {
    let mut text = String::new();
    for setting in &TABLE {
        let default = setting.default.map_or_else(String::new, |default| format!(" (default {default})"));
        line(&mut text, format_args!("  {}{default}", variables(setting).join(", ")));
        line(&mut text, format_args!("      {}", meaning(setting)));
        if !setting.more.is_empty() {
            line(&mut text, format_args!("      {}", setting.more));
        }
        line(&mut text, format_args!("      Value: {}.", setting.kind.expectation()));
    }
    text
}

/// All variables of a setting, the one that counts most first.
fn variables(setting: &Setting) -> Vec<String> {
    let rest = setting.ms.iter().chain(setting.others).map(|name| name.to_string());
    std::iter::once(setting.variable()).chain(rest).collect()
}

/// The table's sentence and what its marks add to it.
fn meaning(setting: &Setting) -> String {
    let marks = [(setting.agree, " The same on all nodes."), (setting.secret, " Never shown.")];
    let added = marks.into_iter().filter(|(holds, _)| *holds).map(|(_, sentence)| sentence);
    std::iter::once(setting.doc).chain(added).collect()
}

fn line(text: &mut String, content: std::fmt::Arguments<'_>) {
    writeln!(text, "{content}").expect("writing to a string does not fail");
}

#[cfg(test)]
mod tests {
    use super::super::launchers::Mark;
    use super::*;

    #[test]
    fn every_setting_and_every_name_is_documented() {
        for text in [settings_markdown(), settings_help()] {
            for setting in &TABLE {
                for name in variables(setting) {
                    assert!(text.contains(&name), "{name}");
                }
                assert!(text.contains(setting.doc) && text.contains(setting.more), "{}", setting.name);
            }
        }
    }

    #[test]
    fn what_only_the_package_reads_and_what_tells_jobs_apart_is_documented() {
        let markdown = settings_markdown();
        for name in ["`MUSTER_LIBRARY`", "`MUSTER_JOINED_BY`"] {
            assert!(markdown.contains(name), "{name}");
        }
        for name in LAUNCHERS.iter().flat_map(|launcher| launcher.marks).flat_map(Mark::variables) {
            assert!(markdown.contains(&format!("`{name}`")), "{name}");
        }
    }

    #[test]
    fn the_table_is_a_table() {
        let markdown = settings_markdown();
        assert!(TABLE.iter().all(|setting| meaning(setting).len() <= 130), "a cell of two lines");
        let rows: Vec<&str> = markdown.lines().filter(|row| row.starts_with('|')).collect();
        assert_eq!(rows.len(), TABLE.len() + LAUNCHERS.len() + 4);
        assert!(rows.iter().all(|row| row.matches('|').count() == 6), "{rows:#?}");
    }
}
