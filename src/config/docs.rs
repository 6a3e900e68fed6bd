//! What is made from the table: `docs/settings.md` and the command's help.

use std::fmt::Write;

use super::launchers::LAUNCHERS;
use super::table::{Setting, TABLE};

const HEAD: &str = "\
# Settings

<!-- Made from the table in src/config; `MUSTER_BLESS=1 cargo test --test settings_doc` writes it anew. -->

A setting has a name in code, for `muster_config_set`, and a variable: `MUSTER_` and the name in upper case. Many have
a second variable, `MS_...`, for scripts that exist. What is set in code beats `MUSTER_` variables, which beat `MS_`
variables, which beat those of another launcher, which beat the default. An empty variable counts as unset. A value that
is not as it should be is an error that names the variable, the value, and what would be right. An unknown name is an
error in code; an unknown `MUSTER_` name in the environment is a warning that names the nearest known one.

Without any of these a process is a cluster of one.

";

const LAUNCHERS_HEAD: &str = "
## Other launchers

With a role set, other launchers' variables are ignored, except `RANK_ID`, `RANK_SIZE` and `DEVICE_ID`. Without one, the
first of these launchers whose first two variables are set gives rank, number of workers and local index, and rank 0
runs the scheduler in its own process. Its host is `MUSTER_SCHED_HOST`, `MS_SCHED_HOST` or `MASTER_ADDR`, or this one
when all ranks share it; its port `MUSTER_SCHED_PORT`, `MS_SCHED_PORT`, `MASTER_PORT` + 2, or else one of the job's own. A
launcher's only process is a cluster of one.

| launcher | rank | workers | local rank | local workers |
| --- | --- | --- | --- | --- |
";

const LAUNCHERS_TAIL: &str = "
Two jobs of a launcher may run side by side on one host. They are told apart by what the launcher says. Of torchrun that is
`TORCHELASTIC_RUN_ID` (but for `none`, its default), of Open MPI `PMIX_NAMESPACE` or `OMPI_MCA_ess_base_jobid`. MPICH and Intel MPI
are known by `PMI_JOBID`, else by the control port of the nearest `hydra_pmi_proxy` among the process's ancestors, else by `I_MPI_HYDRA_UUID`.
A job so known has eight ports between 20000 and 29999: rank 0 takes the first that is free and says at `MUSTER_LOG=info` which that
is; the others try them in turn, and pass by the scheduler of another such job. A process that was given `MUSTER_JOB_ID`, `MUSTER_RANK_ID` or the
port goes by that alone, and where the job is not known the port is 8118. Between hosts the ports must not be filtered, or
`MUSTER_SCHED_PORT` must name one that is not. A process that only `SLURM_PROCID` or `PMIX_RANK` knows is a cluster of one, with a warning.
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
                setting.kind.expectation(),
                meaning(setting)
            ),
        );
    }
    text.push_str(LAUNCHERS_HEAD);
    for launcher in &LAUNCHERS {
        line(
            &mut text,
            format_args!(
                "| {} | `{}` | `{}` | `{}` | `{}` |",
                launcher.name, launcher.rank, launcher.size, launcher.local_rank, launcher.local_size
            ),
        );
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
        line(&mut text, format_args!("      Value: {}.", setting.kind.expectation()));
    }
    text
}

/// All its variables, the one that counts most first.
fn variables(setting: &Setting) -> Vec<String> {
    let rest = setting.ms.iter().chain(setting.others).map(|name| name.to_string());
    std::iter::once(setting.variable()).chain(rest).collect()
}

/// The table's sentence and what its marks add to it.
fn meaning(setting: &Setting) -> String {
    let marks = [
        (setting.agree, " The same on all nodes."),
        (setting.secret, " Never shown."),
        (setting.refused, " Known, but refused by this version."),
    ];
    let added = marks.into_iter().filter(|(holds, _)| *holds).map(|(_, sentence)| sentence);
    std::iter::once(setting.doc).chain(added).collect()
}

fn line(text: &mut String, content: std::fmt::Arguments<'_>) {
    writeln!(text, "{content}").expect("writing to a string does not fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_and_every_name_is_documented() {
        for text in [settings_markdown(), settings_help()] {
            for setting in &TABLE {
                for name in variables(setting) {
                    assert!(text.contains(&name), "{name}");
                }
                assert!(text.contains(setting.doc), "{}", setting.name);
            }
        }
    }

    #[test]
    fn the_table_is_a_table() {
        let markdown = settings_markdown();
        let rows: Vec<&str> = markdown.lines().filter(|row| row.starts_with('|')).collect();
        assert_eq!(rows.len(), TABLE.len() + LAUNCHERS.len() + 4);
        assert!(rows.iter().all(|row| row.matches('|').count() == 6), "{rows:#?}");
    }
}
