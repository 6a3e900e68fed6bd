//! What is said when a run has failed: the first failure first, with what its log has to say, then the others. All of
//! it fits on a screen of [`ROWS`] rows, unless the scheduler's own sentence is longer than that. What is left out
//! stands in the logs.

use super::children::{Child, NEXT_LIFE};
use super::folder;
use super::part::Part;
use super::supervise::Verdict;
use super::unclean_exits::AtFirst;
use crate::code;
use crate::scheduler::LAST_WORDS;
use crate::sys::Ending;
use muster::net::host;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// How much of the end of a log is searched.
const SEARCHED: u64 = 64 * 1024;
/// The rows of the smallest terminal that is common, and how many characters a row has.
const ROWS: usize = 24;
const COLUMNS: usize = 80;
/// How many lines of the first failure's log are shown if there is room, and at least.
const LINES_OF_FIRST: [usize; 2] = [10, 2];
/// How many of them are the very last lines, whatever they look like, if there is room.
const LAST_LINES: usize = 3;
/// How much of a line is shown.
const LINE_CHARS: usize = 4 * COLUMNS;
/// How many other failures are told one by one, and how much of each one's words.
const OTHERS: usize = 3;
const OTHERS_CHARS: usize = 2 * COLUMNS;
/// Words that make a line look like an error, in lower case.
const TELLING: [&str; 8] =
    ["error", "exception", "traceback", "fatal", "critical", "panicked", "abort", "segmentation"];

/// What the scheduler says of a process that its launcher has asked to end, and reported.
const ENDED_BY_LAUNCHER: &str = "killed by signal 15 (its launcher)";

/// What it says of a rank that called `muster_abort`, before the code.
const ABORTED: &str = " aborted the job with code ";

/// What it says of a rank that left while others needed it, behind the rank.
const LEFT: &str = ") has left the cluster, ";

/// How a run ended.
pub struct Outcome {
    /// The child to blame.
    pub verdict: Verdict,
    /// The children: for each the life that counts.
    pub children: Vec<Child>,
    /// How each child's life that counts ended.
    pub endings: Vec<Ending>,
    /// Why the scheduler says that the job failed.
    pub scheduler: Option<String>,
    /// All ended well, and their cluster was never complete: the scheduler said so.
    pub never_formed: bool,
    /// Children that ended while others waited for them to join.
    pub never_joined: Vec<usize>,
    /// The child to blame had left a cluster that was whole: no other failure caused its own.
    pub had_left: bool,
    /// How many processes could not be killed.
    pub left: usize,
}

/// The text for standard error, and the exit code.
pub fn summary(outcome: &Outcome) -> (String, i32) {
    match &outcome.verdict {
        Verdict::Success => (String::new(), 0),
        Verdict::Interrupted(signal) => {
            let rest = if outcome.left == 0 { "; all processes have ended" } else { "" };
            let text = format!("muster: stopped by {}{rest}\n", signal_name(*signal));
            (text, Ending::Signal(*signal).code())
        }
        Verdict::Failed { first, then } => {
            let words = outcome.scheduler.as_deref();
            let cause = words.map(|words| cause(words, *first, outcome.endings[*first], &outcome.children));
            let ending = outcome.endings[*first].code();
            // If a child was told to end before it had ended by itself, or ended with code 0, its only code is that of its
            // abort.
            let has_none = match cause {
                Some(Cause::Another(_)) => true,
                Some(Cause::First) => ending == 0,
                Some(Cause::Elsewhere) | None => false,
            };
            let code = match words.filter(|_| has_none).and_then(aborted_with).unwrap_or(ending) {
                0 => code::FAILED, // an end with code 0 is a failure if the others still needed the child
                code => code,
            };
            (failed(*first, then, outcome, cause.as_ref()), code)
        }
        Verdict::JobOver => job_over(outcome),
    }
}

/// All children were told to end, and none had ended by itself.
fn job_over(outcome: &Outcome) -> (String, i32) {
    let Outcome { children, scheduler: words, .. } = outcome;
    let logs = children.first().map_or(String::new(), |child| all_logs(&child.log));
    let named = words.as_ref().and_then(|words| Some((words, &children[named_in(words, children)?])));
    match named {
        None => (format!("muster: nothing failed here: all were stopped, for the job is over\n{logs}"), code::FAILED),
        Some((words, child)) => {
            let head = has_not_ended(child, words);
            let lines = lines_that_fit(&tail_of(&child.log), ROWS.saturating_sub(rows(&head) + rows(&logs)));
            (head + &lines + &logs, aborted_with(words).unwrap_or(code::FAILED))
        }
    }
}

/// The first line about a child that the scheduler blames in these words, and that had not ended by itself.
fn has_not_ended(child: &Child, words: &str) -> String {
    let Child { part, pid, log, .. } = child;
    format!("muster: the first failure was that of {part} (pid {pid}), log {}: {words}\n", log.display())
}

/// A warning about a run that went well, although its workers never were a cluster.
pub fn never_formed(workers: u32) -> String {
    let who = if workers == 1 { "the worker".to_owned() } else { format!("all {workers} workers") };
    format!(
        "muster: warning: {who} ended with code 0, but no cluster ever formed: a program joins it with muster_init\n"
    )
}

fn failed(first: usize, then: &[usize], outcome: &Outcome, cause: Option<&Cause>) -> String {
    let Outcome { children, endings, scheduler: words, .. } = outcome;
    let child = &children[first];
    let mut log = tail_of(&child.log);
    let cause = words.as_ref().zip(cause);
    let of_first = cause.filter(|(_, cause)| **cause == Cause::First).map(|(words, _)| words.as_str());
    let line = |what: &str| first_line(what, first, outcome, of_first);
    let (head, mut says) = match cause {
        None => (line("first failure"), String::new()),
        Some((words, Cause::First)) => (line("first failure"), format!("muster: the scheduler says: {words}\n")),
        Some((words, Cause::Elsewhere)) => {
            let elsewhere =
                format!("muster: the first failure was on another host: {words}\n{}", of_its_launcher(words));
            (elsewhere + &line("first failure here"), String::new())
        }
        Some((words, Cause::Another(named))) => {
            log = tail_of(&children[*named].log);
            (has_not_ended(&children[*named], words), line("first to end"))
        }
    };
    if let Some((words, _)) = cause.filter(|(_, cause)| **cause != Cause::First || child.part == Part::Scheduler) {
        // If the log says it, too, it is left out there: reading it once is enough.
        log = log.lines().filter(|line| !line.contains(words)).map(|line| format!("{line}\n")).collect();
    }
    for other in then.iter().take(OTHERS) {
        let child = &children[*other];
        let said = match child.part {
            Part::Scheduler => None,
            Part::Worker { .. } => telling_lines(&tail_of(&child.log), 1).pop().map(|line| line.trim().to_owned()),
        };
        // Everybody is told the first cause in the same words: reading them once is enough.
        let news = said.filter(|said| words.as_ref().is_none_or(|words| !said.contains(words.as_str())));
        let news = news.map(|news| format!(": {}", cut(&news, OTHERS_CHARS))).unwrap_or_default();
        let unstarted = unstarted(child).map(|words| format!("; {words}")).unwrap_or_default();
        says.push_str(&format!("muster: then {}{unstarted}{news}\n", how(child, endings[*other])));
    }
    if then.len() > OTHERS {
        says.push_str(&format!("muster: and {} more\n", then.len() - OTHERS));
    }
    says.push_str(&all_logs(&child.log));
    let lines = lines_that_fit(&log, ROWS.saturating_sub(rows(&head) + rows(&says)));
    head + &lines + &says
}

/// Where to look if a launcher elsewhere has ended the process that the scheduler names.
fn of_its_launcher(words: &str) -> &'static str {
    match words.contains(ENDED_BY_LAUNCHER) {
        true => "    its launcher may have ended it: if the launcher on that host names another failure, that one came first\n",
        false => "",
    }
}

/// Why logs may end early.
pub fn full_disk(folder: &Path) -> String {
    format!(
        "muster: warning: the disk with the logs ({}) is full: what workers wrote last may be lost\n",
        folder.display()
    )
}

/// The folder of the logs, of which this is one.
fn all_logs(log: &Path) -> String {
    let folder = log.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    format!("muster: all logs are in {}\n", folder.display())
}

/// The line about the first failure that was noticed: which process it was, where it ran, how it ended, and where its log is.
/// `what` begins it; `words` are the scheduler's if they are about this process.
fn first_line(what: &str, first: usize, outcome: &Outcome, words: Option<&str>) -> String {
    let child = &outcome.children[first];
    let restarts = match child.restarts {
        0 => String::new(),
        1 => " after 1 restart".to_owned(),
        several => format!(" after {several} restarts"),
    };
    let host = host::name().unwrap_or_else(|_| "?".to_owned());
    let (how, log) = (how(child, outcome.endings[first]), child.log.display());
    let mut text = format!("muster: {what}: {how}{restarts}, log {log}, on host {host}\n");
    if outcome.never_joined.contains(&first) {
        text.push_str("    it ended without joining the cluster (muster_init), for which others waited\n");
    } else if outcome.endings[first] == Ending::Exit(0) {
        text.push_str(&format!("    {}\n", with_code_0(words)));
    }
    text.extend(unstarted(child).map(|words| format!("    {words}\n")));
    text
}

/// Why a child did not come back, if it was to and could not be started.
fn unstarted(child: &Child) -> Option<String> {
    let why = child.unstarted.as_ref()?;
    Some(format!("it could not be started again: {why}"))
}

/// Why an end with code 0 is the first failure, by the scheduler's words.
pub fn with_code_0(words: Option<&str>) -> &'static str {
    match words {
        Some(words) if aborted_with(words).is_some() => "it aborted the job (muster_abort), and ended with code 0",
        Some(words) if words.contains(LEFT) => "it left the cluster (muster_finalize) while others still needed it",
        _ => "it ended with code 0, without leaving the cluster (muster_finalize)",
    }
}

/// Why the job failed: what the scheduler said when the first failure was noticed here, or otherwise what it `said` in the end.
/// If the job was whole at that time, a child that this launcher told to end later is not the cause. If the child that failed
/// had left a whole cluster, it is the cause, and later losses follow from its failure.
pub fn why(
    at_first: &AtFirst,
    said: Option<String>,
    children: &[Child],
    was_told: impl Fn(usize) -> bool,
) -> Option<String> {
    match at_first {
        AtFirst::Unknown => said,
        AtFirst::Broken(why) => Some(why.clone()),
        AtFirst::Left(_) => None,
        AtFirst::Whole => said.filter(|words| !named_in(words, children).is_some_and(was_told)),
    }
}

/// Why the scheduler of these children says that the job failed.
pub fn scheduler_says(children: &[Child]) -> Option<String> {
    last_words(&tail_of(&scheduler_of(children)?.log)).map(str::to_owned)
}

/// The last lines of a log, and lines before them that look like errors, as many as there is room for.
fn lines_that_fit(log: &str, room: usize) -> String {
    let [most, least] = LINES_OF_FIRST;
    let shown = |limit| -> String {
        telling_lines(log, limit).iter().map(|line| format!("    {}\n", cut(line, LINE_CHARS))).collect()
    };
    (least..=most).rev().map(shown).find(|text| rows(text) <= room).unwrap_or_else(|| shown(least))
}

/// How many rows of a terminal this text takes.
fn rows(text: &str) -> usize {
    text.lines().map(|line| line.chars().count().div_ceil(COLUMNS).max(1)).sum()
}

fn cut(line: &str, chars: usize) -> String {
    match line.char_indices().nth(chars) {
        Some((end, _)) => format!("{}..", &line[..end]),
        None => line.to_owned(),
    }
}

fn scheduler_of(children: &[Child]) -> Option<&Child> {
    children.iter().find(|child| child.part == Part::Scheduler)
}

/// `worker 2 (pid 812) was killed by signal 9 (SIGKILL)`
pub fn how(child: &Child, ending: Ending) -> String {
    let Child { part, pid, .. } = child;
    match ending {
        Ending::Exit(code) => format!("{part} (pid {pid}) exited with code {code}"),
        Ending::Signal(signal) => format!("{part} (pid {pid}) was ended by {}", signal_name(signal)),
    }
}

/// `signal 2 (SIGINT)`
pub fn signal_name(signal: i32) -> String {
    let name = match signal {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGILL => "SIGILL",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGKILL => "SIGKILL",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGALRM => "SIGALRM",
        libc::SIGTERM => "SIGTERM",
        libc::SIGXCPU => "SIGXCPU",
        libc::SIGXFSZ => "SIGXFSZ",
        libc::SIGSYS => "SIGSYS",
        _ => return format!("signal {signal}"),
    };
    format!("signal {signal} ({name})")
}

/// The end of a log; empty when it can't be read.
pub fn tail_of(log: &Path) -> String {
    let read = || {
        let mut file = folder::open_to_look(log)?;
        let length = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::Start(length.saturating_sub(SEARCHED)))?;
        let mut bytes = Vec::new();
        file.take(SEARCHED).read_to_end(&mut bytes)?;
        Ok::<_, std::io::Error>(String::from_utf8_lossy(&bytes).into_owned())
    };
    read().unwrap_or_default()
}

/// The very last lines, and before them the last lines that look like errors. If there is only room for one line, it is
/// one of the latter, if there is any.
fn telling_lines(text: &str, limit: usize) -> Vec<String> {
    let is_telling = |line: &str| {
        let line = line.to_lowercase();
        TELLING.iter().any(|word| line.contains(word))
    };
    let is_said = |line: &&str| !line.trim().is_empty() && !line.starts_with(NEXT_LIFE);
    let lines: Vec<&str> = text.lines().rev().filter(is_said).collect();
    let last = if lines.iter().any(|line| is_telling(line)) { (limit / 2).min(LAST_LINES) } else { LAST_LINES };
    let shown = lines.iter().enumerate().filter(|(back, line)| *back < last || is_telling(line)).take(limit);
    let mut shown: Vec<String> = shown.map(|(_, line)| plain(line)).collect();
    shown.reverse();
    shown
}

/// The line without what a terminal takes for a command, such as a colour: what would end the colour may not be shown.
fn plain(line: &str) -> String {
    let (mut left, mut text) = (line.chars(), String::new());
    while let Some(one) = left.next() {
        if one == '\x1b' && left.as_str().starts_with('[') {
            left.next();
            left.find(|last| ('@'..='~').contains(last));
        } else if one == '\t' || !one.is_control() {
            text.push(one);
        }
    }
    text
}

/// Why the scheduler says that the job failed.
fn last_words(log: &str) -> Option<&str> {
    let of_last_life = log.lines().rev().take_while(|line| !line.starts_with(NEXT_LIFE));
    of_last_life.into_iter().find_map(|line| line.strip_prefix(LAST_WORDS))
}

/// Which process the scheduler's words blame.
#[derive(Debug, PartialEq)]
enum Cause {
    /// The one whose failure was noticed first, or none.
    First,
    /// Another child. It had not ended: it was stopped or did not answer, say.
    Another(usize),
    /// A rank that is none of the children.
    Elsewhere,
}

/// The code with which a rank aborted the job, if these words of the scheduler's say that one did.
pub fn aborted_with(words: &str) -> Option<i32> {
    let (_, code) = words.split_once(ABORTED)?;
    let code = code.split([':', ',']).next()?.parse::<i32>().ok()?;
    Some(if (1..=255).contains(&code) { code } else { code::FAILED })
}

/// Whether this child's end says that the cluster did not form in time. A worker may end with the same code for a reason of
/// its own.
pub fn forming_timed_out(child: &Child, ending: Ending) -> bool {
    child.part == Part::Scheduler && ending == Ending::Exit(code::FORMING)
}

/// What these words blame, where the failure of the child `first` was noticed first, which ended so.
fn cause(words: &str, first: usize, ending: Ending, children: &[Child]) -> Cause {
    match named_in(words, children) {
        _ if forming_timed_out(&children[first], ending) => Cause::First,
        Some(named) if named != first => Cause::Another(named),
        None if first_rank(words).is_some() => Cause::Elsewhere,
        _ => Cause::First,
    }
}

/// The part of a sentence of the scheduler's that tells whom it blames: up to the first process. Others may follow, such as one that
/// saw the loss. None if it blames nobody: two have called different things.
fn blames(words: &str) -> Option<&str> {
    let ends = words.match_indices("pid ").filter_map(|(at, pid)| {
        let (from, digits) = (at + pid.len(), words[at + pid.len()..].bytes().take_while(u8::is_ascii_digit).count());
        (digits > 0 && words[from + digits..].starts_with(')')).then_some(from + digits + 1)
    });
    let (who, rest) = words.split_at(ends.min().unwrap_or(words.len()));
    let is_one_of_two = who.starts_with("rank ") && rest.starts_with(" called ");
    (!is_one_of_two).then_some(who)
}

/// The child that these words of the scheduler's name: by rank, or by host and process if ranks are not known.
pub fn named_in(words: &str, children: &[Child]) -> Option<usize> {
    let words = blames(words)?;
    let (host, rank) = (host::name().unwrap_or_default(), first_rank(words));
    // Processes of two hosts may have one number. In pods they have as a rule: the launcher is process 1 in each. So the
    // number counts together with the host, which sentences put in one of these two ways.
    let by_process =
        |child: &Child| [", ", " ("].iter().any(|gap| words.contains(&format!("host {host}{gap}pid {})", child.pid)));
    let by_rank = |child: &Child| rank.is_some() && child.part.rank() == rank;
    let found = |is_named: &dyn Fn(&Child) -> bool| {
        children.iter().position(|child| child.part != Part::Scheduler && is_named(child))
    };
    found(&by_process).or_else(|| found(&by_rank))
}

/// The rank with which the scheduler's sentence about a loss begins.
pub fn first_rank(words: &str) -> Option<u32> {
    blames(words)?.strip_prefix("rank ")?.split(' ').next()?.parse().ok()
}

#[cfg(test)]
#[path = "summary_test.rs"]
mod tests;
