//! `muster run`: starts a scheduler and workers on this host.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`options`] | the options, once |
//! | [`parse`] | words become validated options |
//! | [`bind_values`] | what --bind_core and --bind_numa say |
//! | [`part`] | what a child is in the job |
//! | [`program`] | which file a task names |
//! | [`master`] | whether the scheduler belongs here, and its listener |
//! | [`hccl`] | what the environment says for HCCL |
//! | [`recovery`] | whether lost processes may return |
//! | [`secret`] | the run's secret, where nobody has set one |
//! | [`rank_table`] | the table that --rank_table_file names |
//! | [`topology`] | the cores and NUMA nodes of this host |
//! | [`number_set`] | a set of cores or of nodes |
//! | [`binding`] | which process has which of them: pure |
//! | [`capacity`] | warns where the host is too small |
//! | [`log_names`] | what the logs are called |
//! | [`dry_run`] | shows what would be started |
//! | [`thresholds`] | whether the scheduler can read them |
//! | [`folder`] | which run the logs of a folder belong to |
//! | [`children`] | environment, logs and start of each child |
//! | [`restarts`] | how often and how soon a child is started again: pure |
//! | [`child_state`] | how far a child's present life is, and what follows it: pure |
//! | [`supervise`] | when to stop which child, which comes back, and which failed first: pure |
//! | [`action`] | what is to be done to which of them |
//! | [`stop`] | how long each child is left alone when a run is stopped |
//! | [`restart_check`] | asks the scheduler whether the job goes on, before a child is started again |
//! | [`job_check`] | hears from the scheduler whether the job is over, if other launchers see what this one does not |
//! | [`question`] | a thread that asks the scheduler, for these modules and the next |
//! | [`unclean_exits`] | children that ended with 0 without leaving, and are awaited |
//! | [`family`] | which processes came of a run |
//! | [`keeper`] | kills all of them when the launcher is killed |
//! | [`signals`] | the signals that a launcher receives |
//! | [`join`] | the loop of signals and deadlines around all that |
//! | [`exit_report`] | tells the scheduler which children have ended |
//! | [`hosts`] | many hosts from one command |
//! | [`progress`] | shows how far the cluster is while it forms |
//! | [`tail`] | shows output while it comes |
//! | [`summary`] | what is said in the end |
//!
//! Invariants: nothing is started before every option, the program and the scheduler's port are known to be good. A run
//! with --join leaves no process behind, unless it ended well, or the process cannot be killed. Standard output carries the shown output, or, without
//! --join, the process ids, and nothing else. A reader that does not read holds up only the end, for 2 s at most for
//! each stream. Tested beside each module, and with real processes by `tests/python/test_run.py`, `test_run_logs.py`,
//! `test_restarts.py`, `test_hosts.py` and `test_many_hosts.py`.

mod action;
mod bind_values;
mod binding;
mod capacity;
mod child_state;
mod children;
mod dry_run;
mod exit_report;
pub mod family;
pub mod folder;
mod hccl;
pub mod hosts;
mod job_check;
mod join;
pub mod keeper;
mod log_names;
mod master;
mod node_variables;
mod number_set;
pub mod options;
mod parse;
mod part;
mod program;
mod progress;
mod question;
mod rank_table;
mod recovery;
mod restart_check;
mod restarts;
pub mod secret;
mod signals;
mod stop;
mod summary;
pub mod supervise;
mod tail;
mod thresholds;
mod topology;
#[cfg(test)]
mod tree_test;
mod unclean_exits;

use crate::cli::help;
use crate::cli::words::Asked;
use crate::voice::{self, answer, Voice, PATIENCE};
use crate::{code, sys};
use binding::Binding;
use children::{Child, Launch, Meeting};
use hosts::report::{Fault, Report, Summary};
use log_names::LogNames;
use muster::config::Key;
use muster::net::host;
use number_set::NumberSet;
use parse::{DryRun, Export, Placement, RunOptions, Tail};
use part::Part;
use signals::Signals;
use std::ffi::OsString;
use std::io;
use std::net::TcpListener;
use std::path::Path;
use supervise::Verdict;
use topology::Topology;

/// Variables of an environment, with their values.
type Variables = [(OsString, OsString)];

/// Runs it, called by `name`, with the words after that. Returns the exit code.
pub fn run(name: &str, words: Vec<OsString>) -> i32 {
    let voice = Voice::error();
    let variables: Vec<(OsString, OsString)> = std::env::vars_os().collect();
    let words = match node_variables::extended(words, |name| std::env::var_os(name)) {
        Ok(words) => words,
        Err(error) => return refuse(name, &error, &voice),
    };
    let asked = parse::split(words.clone());
    match asked.and_then(|asked| asked.then(|words| Ok((hosts::plan(&words, &variables)?, parse::exports(&words)?)))) {
        Ok(Asked::With((Some(plan), _))) => hosts::lead(&plan, &voice).unwrap_or_else(|words| {
            voice.say(format!("muster: {words}\n"));
            code::FAILED
        }),
        Ok(Asked::With((None, exports))) => {
            export(&exports, &voice);
            run_here(name, words, &variables, &voice, Placement::default(), &Report::default())
        }
        Ok(Asked::Help) => run_here(name, words, &variables, &voice, Placement::default(), &Report::default()),
        Err(error) => refuse(name, &error, &voice),
    }
}

/// Runs a host's part of a run that another launcher leads.
pub fn run_led(words: Vec<OsString>, placement: Placement, report: &Report) -> i32 {
    let variables: Vec<(OsString, OsString)> = std::env::vars_os().collect();
    run_here("muster run", words, &variables, &Voice::error(), placement, report)
}

/// Runs what is to be run on this host. `variables` are those with which this process began.
fn run_here(
    name: &str,
    words: Vec<OsString>,
    variables: &Variables,
    voice: &Voice,
    placement: Placement,
    report: &Report,
) -> i32 {
    let mut options = match parse::parse(words, placement, hccl::has_rank_table()) {
        Ok(Asked::With(options)) => options,
        Ok(Asked::Help) => {
            return answer(name, &help::page(&options::COMMAND, name));
        }
        Err(error) => return refuse(name, &error, voice),
    };
    master::leave_loopback(&mut options);
    launch(&options, variables, voice, report).unwrap_or_else(|refusal| {
        voice.say(format!("muster: {}\n", refusal.words));
        refusal.code
    })
}

fn refuse(name: &str, error: &str, voice: &Voice) -> i32 {
    voice.say(format!("{name}: {error}\n{name} --help lists the options\n"));
    code::USAGE
}

/// Why nothing was run.
struct Refusal {
    code: i32,
    words: String,
}

impl Refusal {
    fn new(code: i32, words: impl Into<String>) -> Refusal {
        Refusal { code, words: words.into() }
    }
}

fn launch(options: &RunOptions, variables: &Variables, voice: &Voice, report: &Report) -> Result<i32, Refusal> {
    let failed = |words: String| Refusal::new(code::FAILED, words);
    rank_table::take(options).map_err(|words| Refusal::new(code::USAGE, words))?;
    recovery::check(options).map_err(|words| Refusal::new(code::USAGE, words))?;
    secret::check("muster run").map_err(|words| Refusal::new(code::USAGE, words))?;
    let search = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    let program = program::find(&options.task, &search).map_err(|words| Refusal::new(code::NOT_FOUND, words))?;
    let binding = binding(options, voice)?;
    let listener = listener(options, voice)?;
    let port = port(options, listener.as_ref(), report)?;
    let hccl = hccl::variables(options, listener.as_ref(), port).map_err(failed)?;
    let ranks_by_table = hccl::has_rank_table().then(|| rank_table::ranks(options));
    let meeting = Meeting { port, hccl, ranks_by_table };
    let names = log_names(options, listener.as_ref(), port)?;
    if let Some(dry_run) = options.dry_run {
        let launch = Launch::new(options, &program, listener, meeting, names, binding);
        let launch = launch.map_err(|error| failed(error.to_string()))?;
        return show(dry_run, options, &program.path, &launch, variables);
    }
    folder::make(&options.log_dir).map_err(failed)?;
    let recovery = recovery::directory();
    let scheduler_at = listener.as_ref().and_then(|listener| listener.local_addr().ok());
    let secret = secret::RunSecret::make(options, listener.is_some(), recovery.as_deref());
    let mut secret = secret.map_err(failed)?;
    let signals = if report.is_led() { Signals::begin_led() } else { Signals::begin() };
    let signals = signals.map_err(|error| failed(format!("can't receive signals: {error}")))?;
    if options.join {
        sys::adopt_orphans();
    }
    let launch = Launch::new(options, &program, listener, meeting, names, binding);
    let mut launch = launch.map_err(|error| failed(error.to_string()))?;
    if let Some(older) = launch.claim().map_err(failed)? {
        voice.say(format!("muster: {older}\n"));
    }
    let children = launch.start_all().map_err(|error| {
        if error.kind() != io::ErrorKind::NotFound {
            return failed(error.to_string());
        }
        // The system says of a script "No such file" where the interpreter that it names is missing.
        let why = dry_run::check_interpreter(&program.path).err().map_or_else(String::new, |why| format!(": {why}"));
        Refusal::new(code::NOT_FOUND, format!("{error}{why}"))
    })?;
    if options.join {
        keep(&mut launch, &children, voice);
    }
    if let (Some(secret), Some(scheduler_at)) = (&mut secret, scheduler_at) {
        let scheduler = children.iter().find(|child| child.part == Part::Scheduler);
        let lives_as_long = scheduler.filter(|_| !options.join).map_or_else(std::process::id, |child| child.pid as u32);
        secret.show(scheduler_at, lives_as_long, voice);
    }
    if children.iter().any(|child| child.part == Part::Scheduler) {
        report.port(port, secret.as_ref().map(secret::RunSecret::reveal));
    }
    announce(options, &launch, &children, voice);
    if options.max_restarts == 0 {
        // The scheduler alone has the listener now: when it dies its port must be closed.
        launch.close_port();
    }
    if options.join {
        return wait(options, &mut launch, children, &signals, voice, report).map_err(failed);
    }
    if let Some(signal) = signals.ending() {
        children::stop_now(&children);
        return Ok(code::SIGNAL + signal);
    }
    Ok(print_ids(&children, voice))
}

/// Prints the ids of the processes, which go on by themselves. Returns the exit code.
fn print_ids(children: &[Child], voice: &Voice) -> i32 {
    let ids: String = children.iter().map(|child| format!("{}\n", child.pid)).collect();
    match voice::print_soon(&ids) {
        Ok(()) => 0,
        Err(why) => {
            voice.say(format!("muster: {why}: the processes run all the same, and muster ps lists them\n"));
            code::FAILED
        }
    }
}

/// The scheduler's listener, if the scheduler is to be here.
fn listener(options: &RunOptions, voice: &Voice) -> Result<Option<TcpListener>, Refusal> {
    let wrong = |words: String| Refusal::new(code::USAGE, words);
    master::check_place(options).map_err(wrong)?;
    let listener = master::listener(options, hccl::of_environment(Key::SchedBind), voice);
    let listener = listener.map_err(|words| Refusal::new(code::FAILED, words))?;
    match listener {
        Some(_) => thresholds::check().map_err(wrong)?,
        None => master::check_node_rank(options).map_err(wrong)?,
    }
    Ok(listener)
}

/// Sets what -x asks for, for all that is started.
fn export(exports: &[Export], voice: &Voice) {
    for export in exports {
        match &export.value {
            Some(value) => std::env::set_var(&export.name, value),
            None if std::env::var_os(&export.name).is_none() => voice.say(format!("muster: {}\n", export.unset())),
            None => {}
        }
    }
}

/// What each process is bound to. Says so if this host is too small for its workers.
fn binding(options: &RunOptions, voice: &Voice) -> Result<Binding, Refusal> {
    let workers = options.local_worker_num;
    let usable = sys::usable_cores().map(|bits| NumberSet::of_bits(&bits));
    let mut warnings = usable.as_ref().map_or_else(|_| Vec::new(), |usable| capacity::warnings(workers, usable.len()));
    let mut binding = Binding::default();
    if options.binds.any() {
        let untold =
            |error| Refusal::new(code::FAILED, format!("can't tell which cores this process may use: {error}"));
        let usable = usable.map_err(untold)?;
        let visible = std::env::var("ASCEND_RT_VISIBLE_DEVICES").ok();
        let devices = binding::devices(workers, visible.as_deref());
        let host = Topology::read(std::path::Path::new("/"), usable);
        let planned = Binding::plan(&options.binds, &devices, &host);
        binding = planned.map_err(|words| Refusal::new(code::USAGE, words))?;
        warnings.extend(binding.warning(&options.binds, &devices));
    }
    if !options.join && options.tail != Tail::All {
        warnings.push("--tail_worker_log has no effect without --join".to_owned());
    }
    warnings.iter().for_each(|words| voice.say(format!("muster: warning: {words}\n")));
    Ok(binding)
}

/// What the logs are called.
fn log_names(options: &RunOptions, listener: Option<&TcpListener>, port: u16) -> Result<LogNames, Refusal> {
    let host = || host::name().map_err(|error| error.message().to_owned());
    let names =
        LogNames::of_template(&options.worker_log_name, host, || hccl::address_of_host(options, listener, port));
    let names = names.map_err(|words| Refusal::new(code::FAILED, words))?;
    names.check_length(&options.worker_log_name).map_err(|words| Refusal::new(code::USAGE, words))?;
    Ok(names)
}

/// Shows what would be started, to a shell that has these variables.
fn show(
    dry_run: DryRun,
    options: &RunOptions,
    program: &Path,
    launch: &Launch<'_>,
    variables: &Variables,
) -> Result<i32, Refusal> {
    let failed = |words: String| Refusal::new(code::FAILED, words);
    launch.is_in_the_way().map_or(Ok(()), |words| Err(failed(words)))?;
    let parts = launch.parts();
    if let Some(directory) = recovery::directory().filter(|_| parts.contains(&Part::Scheduler)) {
        dry_run::check_recovery(&directory).map_err(failed)?;
    }
    dry_run::check_interpreter(program).map_err(|words| Refusal::new(code::NOT_FOUND, words))?;
    let chosen = dry_run::chosen(dry_run, options, parts);
    let folder = (!chosen.is_empty()).then(|| dry_run::folder_shown(&options.log_dir));
    let shown = chosen.into_iter().map(|part| dry_run::shown(&launch.preview(part, variables)));
    let lines: String = folder.into_iter().chain(shown).collect();
    voice::print(&lines).map_err(failed)?;
    Ok(0)
}

/// Lets nothing outlive this process, even if that is killed.
fn keep(launch: &mut Launch<'_>, children: &[Child], voice: &Voice) {
    let left = "if this process is killed, what its workers have started may be left";
    launch.keep(children).unwrap_or_else(|error| voice.say(format!("muster: warning: no keeper, {error}: {left}\n")));
}

/// The port that is told to the workers.
fn port(options: &RunOptions, listener: Option<&TcpListener>, report: &Report) -> Result<u16, Refusal> {
    match listener {
        Some(listener) => {
            let address = listener.local_addr();
            let failed = |error| Refusal::new(code::FAILED, format!("can't tell the scheduler's port: {error}"));
            let port = address.map_err(failed)?.port();
            if options.dry_run.is_some() {
                // The other hosts of this command show it, too. That they are done is told by a signal.
                signals::never_end_by_others_done()
                    .map_err(|error| Refusal::new(code::FAILED, format!("can't receive signals: {error}")))?;
                report.port(port, None);
            }
            Ok(port)
        }
        None if options.master_port == 0 => Err(Refusal::new(
            code::USAGE,
            format!(
                "--master_port is 0, but {} is not an address of this host: nobody here chooses the port",
                options.master_addr
            ),
        )),
        None => Ok(options.master_port),
    }
}

/// How much text one call says: far below what may wait to be written.
const SAID_AT_ONCE: usize = 32 << 10;

fn announce(options: &RunOptions, launch: &Launch<'_>, children: &[Child], voice: &Voice) {
    let mut said = String::new();
    for child in children {
        let bound = launch.bound(child.part);
        let bound = if bound.any() { format!(", bound to {bound}") } else { String::new() };
        said += &format!("muster: {} has pid {} and writes {}{bound}\n", child.part, child.pid, child.log.display());
        if said.len() >= SAID_AT_ONCE {
            voice.say(std::mem::take(&mut said));
        }
    }
    if options.all_here() && options.placement.first_rank.is_some_and(|rank| rank > 0) {
        said += "muster: --node_rank has no effect: all workers are on this host, and have the ranks from 0\n";
    }
    let here = if children.iter().any(|child| child.part == Part::Scheduler) { "here" } else { "on another host" };
    said += &format!("muster: the scheduler is {here}: {} port {}\n", options.master_addr, launch.port());
    voice.say(said);
}

fn wait(
    options: &RunOptions,
    launch: &mut Launch<'_>,
    children: Vec<Child>,
    signals: &Signals,
    voice: &Voice,
    report: &Report,
) -> Result<i32, String> {
    let shown: Vec<&Child> = children.iter().filter(|child| is_shown(&options.tail, child.part)).collect();
    let is_coloured = report.is_coloured() || tail::has_colours();
    let tail = match shown.is_empty() {
        true => None,
        false => tail::Tail::start(&shown, shown.len() > 1 || report.is_led(), is_coloured, voice.row())
            .inspect_err(|error| voice.say(format!("muster: the workers' output can't be shown here: {error}\n")))
            .ok(),
    };
    let outcome = join::join(launch, children, options, report, signals, voice)
        .map_err(|error| format!("can't wait for the children, and stopped them: {error}"))?;
    let limit = match outcome.verdict {
        Verdict::Interrupted(_) => Some(PATIENCE),
        // The launcher that leads waits only so long for this one.
        Verdict::Failed { .. } | Verdict::JobOver if report.is_led() => Some(3 * PATIENCE),
        Verdict::Success | Verdict::Failed { .. } | Verdict::JobOver => None,
    };
    if let Some(words) = tail.and_then(|tail| tail.finish(signals, limit)) {
        voice.say(words);
    }
    if sys::is_full(&options.log_dir) {
        voice.say(summary::full_disk(&options.log_dir));
    }
    let (text, code) = summary::summary(&outcome);
    match report.is_led() {
        true => report.summary(&told(&outcome, text)),
        false => voice.say(text),
    }
    if outcome.never_formed {
        voice.say(summary::never_formed(options.worker_num));
    }
    Ok(code)
}

/// The summary for the launcher that leads this one.
fn told(outcome: &summary::Outcome, text: String) -> Summary {
    // That of another host says it itself.
    let scheduler = summary::scheduler_says(&outcome.children).unwrap_or_default();
    let Verdict::Failed { first, .. } = outcome.verdict else {
        return Summary { scheduler, ..Summary::default() };
    };
    let (child, ending) = (&outcome.children[first], outcome.endings[first]);
    let fault = match outcome.had_left {
        true => Fault::HadLeft,
        false if summary::forming_timed_out(child, ending) => Fault::NotFormed,
        false if restarts::is_from_elsewhere(ending) => Fault::Killed,
        false => Fault::Unknown,
    };
    Summary { how: summary::how(child, ending), fault, text, scheduler }
}

fn is_shown(tail: &Tail, part: Part) -> bool {
    match (tail, part.number()) {
        (_, None) => false,
        (Tail::All, _) => true,
        (Tail::Ranks(ranks), Some(number)) => ranks.contains(&number),
    }
}
