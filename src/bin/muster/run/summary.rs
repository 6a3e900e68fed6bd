//! What is said when a run has failed: the first failure first, with what its log has to say, then the others.

use super::children::{Child, NEXT_LIFE};
use super::part::Part;
use super::supervise::{exit_code, Verdict};
use crate::code;
use crate::scheduler::LAST_WORDS;
use crate::sys::Ending;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// How much of the end of a log is searched.
const SEARCHED: u64 = 64 * 1024;
/// Lines shown of the first failure's log.
const LINES_OF_FIRST: usize = 10;
/// Lines shown when none looks like an error.
const LINES_OTHERWISE: usize = 3;
/// How much of a line is shown.
const LINE_CHARS: usize = 1000;
/// Other failures that are told of one by one.
const OTHERS: usize = 16;
/// What makes a line look like an error, in lower case.
const TELLING: [&str; 8] =
    ["error", "exception", "traceback", "fatal", "critical", "panicked", "abort", "segmentation"];

/// The text for standard error, and the exit code.
pub fn summary(verdict: &Verdict, children: &[Child], endings: &[Ending]) -> (String, i32) {
    match verdict {
        Verdict::Success => (String::new(), 0),
        Verdict::Interrupted(signal) => {
            let text = format!("muster: stopped by {}; all processes have ended\n", signal_name(*signal));
            (text, exit_code(Ending::Signal(*signal)))
        }
        Verdict::Failed { first, gives_code, then } => {
            let code = match exit_code(endings[*gives_code]) {
                0 => code::FAILED, // to end well without leaving is a failure all the same
                code => code,
            };
            (failed(*first, then, children, endings), code)
        }
    }
}

/// A warning about a run that went well, although its workers never were a cluster.
pub fn never_formed(workers: u32) -> String {
    let who = if workers == 1 { "the worker".to_owned() } else { format!("all {workers} workers") };
    format!(
        "muster: warning: {who} ended with code 0, but no cluster ever formed: a program joins it with muster_init\n"
    )
}

fn failed(first: usize, then: &[usize], children: &[Child], endings: &[Ending]) -> String {
    let child = &children[first];
    let restarts = match child.restarts {
        0 => String::new(),
        1 => " after 1 restart".to_owned(),
        several => format!(" after {several} restarts"),
    };
    let how_first = how(child, endings[first]);
    let mut text = format!("muster: first failure: {how_first}{restarts}, log {}\n", child.log.display());
    if endings[first] == Ending::Exit(0) {
        text.push_str("    it ended without leaving the cluster (muster_finalize)\n");
    }
    for line in telling_lines(&tail_of(&child.log), LINES_OF_FIRST) {
        text.push_str(&format!("    {line}\n"));
    }
    let words = scheduler_says(children);
    if let Some(words) = words.as_ref().filter(|_| child.part != Part::Scheduler) {
        text.push_str(&format!("muster: the scheduler says: {words}\n"));
    }
    for other in then.iter().take(OTHERS) {
        let child = &children[*other];
        let said = match child.part {
            Part::Scheduler => None,
            Part::Worker { .. } => telling_lines(&tail_of(&child.log), 1).pop().map(|line| line.trim().to_owned()),
        };
        // Everybody is told the first cause in the same words; to read them once is enough.
        let news = said.filter(|said| words.as_ref().is_none_or(|words| !said.contains(words)));
        let news = news.map(|news| format!(": {news}")).unwrap_or_default();
        text.push_str(&format!("muster: then {}{news}\n", how(child, endings[*other])));
    }
    if then.len() > OTHERS {
        text.push_str(&format!("muster: and {} more\n", then.len() - OTHERS));
    }
    text
}

/// Why the scheduler of these children says that the job failed.
pub fn scheduler_says(children: &[Child]) -> Option<String> {
    last_words(&tail_of(&scheduler_of(children)?.log)).map(str::to_owned)
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

fn signal_name(signal: i32) -> String {
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
        let mut file = File::open(log)?;
        let length = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::Start(length.saturating_sub(SEARCHED)))?;
        let mut bytes = Vec::new();
        file.take(SEARCHED).read_to_end(&mut bytes)?;
        Ok::<_, std::io::Error>(String::from_utf8_lossy(&bytes).into_owned())
    };
    read().unwrap_or_default()
}

/// The last lines that look like errors, or, where there is none, simply the last lines.
fn telling_lines(text: &str, limit: usize) -> Vec<String> {
    let telling = |line: &&str| {
        let line = line.to_lowercase();
        TELLING.iter().any(|word| line.contains(word))
    };
    let lines = || text.lines().rev().filter(|line| !line.trim().is_empty() && !line.starts_with(NEXT_LIFE));
    let mut found: Vec<&str> = lines().filter(telling).take(limit).collect();
    if found.is_empty() {
        found = lines().take(limit.min(LINES_OTHERWISE)).collect();
    }
    found.into_iter().rev().map(|line| line.chars().take(LINE_CHARS).collect()).collect()
}

/// Why the scheduler says that the job failed.
fn last_words(log: &str) -> Option<&str> {
    log.lines().rev().find_map(|line| line.strip_prefix(LAST_WORDS))
}

/// Which of the children the scheduler's last words name, by process or, where ranks are known, by rank.
pub fn named(children: &[Child]) -> Option<usize> {
    named_in(last_words(&tail_of(&scheduler_of(children)?.log))?, children)
}

fn named_in(words: &str, children: &[Child]) -> Option<usize> {
    let worker =
        |test: &dyn Fn(&Child) -> bool| children.iter().position(|child| child.part != Part::Scheduler && test(child));
    worker(&|child| words.contains(&format!("pid {})", child.pid)))
        .or_else(|| worker(&|child| child.part.rank().is_some_and(|rank| words.starts_with(&format!("rank {rank} ")))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster::types::LaunchId;

    fn children() -> Vec<Child> {
        let worker = |index: u32| Child {
            part: Part::Worker { index, rank: Some(index) },
            pid: 100 + index as i32,
            pid_before: None,
            launch: LaunchId([0; 16]),
            restarts: index,
            log: format!("/nonexistent/worker_{index}.log").into(),
        };
        let scheduler = Child {
            part: Part::Scheduler,
            pid: 99,
            pid_before: None,
            launch: LaunchId([0; 16]),
            restarts: 0,
            log: "/nonexistent/scheduler.log".into(),
        };
        vec![scheduler, worker(0), worker(1), worker(12)]
    }

    #[test]
    fn the_first_failure_comes_first_and_gives_the_code() {
        let endings = [Ending::Exit(1), Ending::Exit(1), Ending::Signal(9), Ending::Exit(0)];
        let verdict = Verdict::Failed { first: 2, gives_code: 2, then: vec![1, 0] };
        let (text, code) = summary(&verdict, &children(), &endings);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(code, 137);
        assert!(
            lines[0].contains("first failure: worker 1 (pid 101) was ended by signal 9 (SIGKILL) after 1 restart,"),
            "{text}"
        );
        assert!(lines[0].ends_with("/nonexistent/worker_1.log"), "{text}");
        assert!(lines[1].contains("then worker 0 (pid 100) exited with code 1"), "{text}");
        assert!(lines[2].contains("then the scheduler (pid 99)"), "{text}");
    }

    #[test]
    fn an_end_with_code_0_can_be_the_first_failure() {
        let endings = [Ending::Exit(1), Ending::Exit(0), Ending::Exit(5), Ending::Exit(0)];
        let verdict = Verdict::Failed { first: 1, gives_code: 2, then: vec![2, 0] };
        let (text, code) = summary(&verdict, &children(), &endings);
        assert_eq!(code, 5);
        assert!(text.starts_with("muster: first failure: worker 0 (pid 100) exited with code 0"), "{text}");
        assert!(text.contains("without leaving the cluster"), "{text}");
    }

    #[test]
    fn lines_that_look_like_errors_are_preferred() {
        let log = "step 1\nTraceback (most recent call last):\n  File\nValueError: x\n\nbye\n";
        assert_eq!(telling_lines(log, 10), ["Traceback (most recent call last):", "ValueError: x"]);
        assert_eq!(telling_lines(log, 1), ["ValueError: x"]);
        assert_eq!(telling_lines("a\nb\nc\nd\n", 10), ["b", "c", "d"]);
        assert_eq!(telling_lines("a\n--- muster: worker 1 was ended by signal 6 (SIGABRT)\nb\n", 10), ["a", "b"]);
        assert!(telling_lines("", 10).is_empty());
    }

    #[test]
    fn the_schedulers_last_words_name_a_child() {
        let children = children();
        assert_eq!(last_words("x\nmuster scheduler: one\nmuster scheduler: two\ny"), Some("two"));
        assert_eq!(
            named_in("rank 0 (node id \"0\", host h, pid 101) was lost", &children),
            Some(2),
            "the pid counts more"
        );
        assert_eq!(named_in("rank 1 (node id \"1\", host h, pid 7) was lost", &children), Some(2));
        assert_eq!(named_in("rank 12 (node id \"12\", host h, pid 7) was lost", &children), Some(3));
        assert_eq!(named_in("2 of 4 came", &children), None);
    }
}
