//! `--sim_level`: says what would be started, as lines that a shell takes, and starts nothing.
//!
//! What a run would find out by starting is looked for here, as far as that makes no file and no process.

use super::binding::Bound;
use super::folder;
use super::parse::{DryRun, RunOptions, SchedulerAt};
use super::part::Part;
use super::recovery::unfit;
use crate::sys;
use muster::runtime;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// How much of a program's first line the kernel reads.
const FIRST_LINE_BYTES: usize = 256;

/// A process that would be started.
pub struct Preview {
    /// What it would be.
    pub part: Part,
    /// Its program and arguments.
    pub words: Vec<OsString>,
    /// The variables of the shell's environment that it would not find in its own.
    pub removed: Vec<String>,
    /// What it would find there beside the others.
    pub told: Vec<(String, String)>,
    /// What it would be bound to.
    pub bound: Bound,
    /// Where its output would go.
    pub log: PathBuf,
}

/// Which processes are previewed: all of this host, or the worker of one rank. That may be another host's worker: its
/// launcher would start it as this one would, with its own `--node_rank`.
pub fn chosen(dry_run: DryRun, options: &RunOptions, all: Vec<Part>) -> Vec<Part> {
    match dry_run {
        DryRun::All => all,
        DryRun::Rank(rank) if options.all_here() => vec![Part::Worker { index: rank, rank: Some(rank) }],
        // One command for many hosts shows each worker on its own host.
        DryRun::Rank(rank) if options.placement.scheduler != SchedulerAt::Address => {
            all.into_iter().filter(|part| part.rank() == Some(rank)).collect()
        }
        DryRun::Rank(rank) => vec![Part::Worker { index: rank % options.local_worker_num, rank: Some(rank) }],
    }
}

/// Checks that the scheduler can have its journal in this directory. The error is a sentence.
pub fn check_recovery(directory: &Path) -> Result<(), String> {
    folder::takes_files(directory).map_err(|error| unfit(directory, error))?;
    if directory.is_dir() {
        // So nothing is made, and its owner and mode are looked at.
        runtime::prepare_recovery(directory).map_err(|error| unfit(directory, error.message()))?;
    }
    Ok(())
}

/// Checks the interpreter that the program's first line names, if it names one. The error is a sentence.
pub fn check_interpreter(program: &Path) -> Result<(), String> {
    let mut head = Vec::new();
    let read = File::open(program).and_then(|file| file.take(FIRST_LINE_BYTES as u64).read_to_end(&mut head));
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let name = line.strip_prefix(b"#!").filter(|_| read.is_ok() && line.len() < FIRST_LINE_BYTES);
    let mut words = name.unwrap_or_default().split(|byte| b" \t".contains(byte));
    let Some(name) = words.find(|word| !word.is_empty()) else { return Ok(()) };
    let interpreter = Path::new(OsStr::from_bytes(name));
    match interpreter.is_file() && sys::executable(interpreter) {
        true => Ok(()),
        false => Err(format!("{program:?} needs {interpreter:?}, which is no program: its first line names it")),
    }
}

/// The line that makes the folder of the logs, if it is missing.
pub fn folder_shown(folder: &Path) -> String {
    format!("mkdir -p -- {}\n", quoted(&folder.to_string_lossy()))
}

/// The text for the user about one process.
pub fn shown(preview: &Preview) -> String {
    let bound = if preview.bound.any() { format!(", bound to {}", preview.bound) } else { String::new() };
    let removed: String = preview.removed.iter().map(|name| format!(" -u {}", quoted(name))).collect();
    let mut text = format!("# {}{bound}\nenv{removed} \\\n", preview.part);
    for (name, value) in &preview.told {
        text += &format!("{}={} \\\n", quoted(name), quoted(value));
    }
    let cores = &preview.bound.cores;
    let bind = match cores.is_empty() {
        false => format!("taskset -c {cores} "),
        // env would take such a program for one more variable.
        true if preview.words[0].to_string_lossy().contains('=') => "nice -n 0 ".to_owned(),
        true => String::new(),
    };
    let words: Vec<String> = preview.words.iter().map(|word| quoted(&word.to_string_lossy())).collect();
    text + &format!("    {bind}{} > {} 2>&1 &\n", words.join(" "), quoted(&preview.log.to_string_lossy()))
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-./:=,+@%".contains(letter);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse::{parse, Placement};
    use super::*;
    use crate::cli::words::Asked;
    use crate::run::tree_test::Tree;

    #[test]
    fn a_shell_takes_what_is_shown() {
        for (word, shown) in
            [("a-b/c.py", "a-b/c.py"), ("", "''"), ("a b", "'a b'"), ("it's", r"'it'\''s'"), ("$HOME", "'$HOME'")]
        {
            assert_eq!(quoted(word), shown);
        }
        let preview = Preview {
            part: Part::Worker { index: 0, rank: Some(3) },
            words: ["python3", "a b.py"].map(OsString::from).to_vec(),
            removed: vec!["RANK_TABLE_FILE".to_owned()],
            told: vec![("RANK_ID".to_owned(), "3".to_owned()), ("X".to_owned(), "y z".to_owned())],
            bound: Bound { cores: [0, 1, 4].into_iter().collect(), ..Bound::default() },
            log: PathBuf::from("logs/worker_3.log"),
        };
        assert_eq!(
            shown(&preview),
            "# worker 3, bound to cores 0-1,4\nenv -u RANK_TABLE_FILE \\\nRANK_ID=3 \\\nX='y z' \\\n    \
             taskset -c 0-1,4 python3 'a b.py' > logs/worker_3.log 2>&1 &\n"
        );
        let free = Preview { removed: Vec::new(), told: Vec::new(), bound: Bound::default(), ..preview };
        assert_eq!(shown(&free), "# worker 3\nenv \\\n    python3 'a b.py' > logs/worker_3.log 2>&1 &\n");
        let odd = Preview { words: vec![OsString::from("./a=b")], ..free };
        assert!(shown(&odd).ends_with("\n    nice -n 0 ./a=b > logs/worker_3.log 2>&1 &\n"));
        assert_eq!(folder_shown(Path::new("my logs")), "mkdir -p -- 'my logs'\n");
    }

    #[test]
    fn one_rank_is_shown_whichever_host_starts_it() {
        let shown = |words: &str, scheduler: SchedulerAt| {
            let words = format!("--worker_num=8 --local_worker_num=4 {words} --sim_level=0 --sim_rank_id=6 a");
            let placement = Placement { first_rank: None, scheduler };
            let words = words.split_whitespace().map(OsString::from).collect();
            let Ok(Asked::With(options)) = parse(words, placement, false) else { panic!("a good command line") };
            let all = (0..4).map(|index| Part::Worker { index, rank: options.rank(index) });
            chosen(DryRun::Rank(6), &options, all.collect())
        };
        let sixth = vec![Part::Worker { index: 2, rank: Some(6) }];
        for words in ["", "--node_rank=0", "--node_rank=1"] {
            assert_eq!(shown(words, SchedulerAt::Address), sixth, "{words}");
        }
        // One command for many hosts has each launcher show its own.
        assert_eq!(shown("--node_rank=1", SchedulerAt::Remote), sixth);
        assert_eq!(shown("--node_rank=0", SchedulerAt::Here), []);
    }

    #[test]
    fn an_interpreter_that_cannot_run_the_program_is_said() {
        let long = format!("#!{}\n", "/x".repeat(FIRST_LINE_BYTES));
        let programs = [
            ("good", "#!/bin/sh\n"),
            ("words", "#! /bin/sh -e"),
            ("none", "#! \n/no/such"),
            ("bare", "echo #!/no/such\n"),
            ("long", &long),
            ("empty", ""),
            ("gone", "#!/no/such/interpreter -x\n"),
            ("returns", "#!/bin/sh\r\n"),
            ("data", "#!/etc/passwd\n"),
            ("folder", "#!/tmp\n"),
        ];
        let tree = Tree::new(&programs);
        for (name, text) in programs {
            let checked = check_interpreter(&tree.path().join(name));
            let is_wrong = ["gone", "returns", "data", "folder"].contains(&name);
            assert_eq!(checked.is_err(), is_wrong, "{text:?}: {checked:?}");
        }
        let error = check_interpreter(&tree.path().join("gone")).unwrap_err();
        assert!(error.contains("needs \"/no/such/interpreter\", which is no program"), "{error}");
        assert_eq!(check_interpreter(Path::new("/no/such/program")), Ok(()));
    }

    #[test]
    fn a_recovery_directory_is_looked_at_and_not_made() {
        let tree = Tree::new(&[("file", "")]);
        let missing = tree.path().join("a/b");
        assert_eq!(check_recovery(&missing), Ok(()));
        assert!(!tree.path().join("a").exists());
        for wrong in [tree.path().join("file"), tree.path().join("file/below"), PathBuf::from("/proc/nope")] {
            let error = check_recovery(&wrong).unwrap_err();
            assert!(
                error.starts_with(&format!("MS_RECOVERY_PATH is {wrong:?}, where nothing can be kept: ")),
                "{error}"
            );
        }
    }
}
