//! `--sim_level`: says what would be started, as lines that a shell takes, and starts nothing.

use super::binding::Bound;
use super::parse::{DryRun, RunOptions, SchedulerAt};
use super::part::Part;
use std::ffi::OsString;
use std::path::PathBuf;

/// A process that would be started.
pub struct Preview {
    /// What it would be.
    pub part: Part,
    /// Its program and arguments.
    pub words: Vec<OsString>,
    /// What it would find in its environment beside the launcher's.
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

/// The text for the user about one process.
pub fn shown(preview: &Preview) -> String {
    let bound = if preview.bound.any() { format!(", bound to {}", preview.bound) } else { String::new() };
    let mut text = format!("# {}{bound}\n", preview.part);
    for (name, value) in &preview.told {
        text += &format!("{name}={} \\\n", quoted(value));
    }
    let words: Vec<String> = preview.words.iter().map(|word| quoted(&word.to_string_lossy())).collect();
    text + &format!("    {} > {} 2>&1 &\n", words.join(" "), quoted(&preview.log.to_string_lossy()))
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
    use super::*;

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
            told: vec![("RANK_ID".to_owned(), "3".to_owned()), ("X".to_owned(), "y z".to_owned())],
            bound: Bound { cores: (0..2).collect(), ..Bound::default() },
            log: PathBuf::from("logs/worker_3.log"),
        };
        assert_eq!(
            shown(&preview),
            "# worker 3, bound to cores 0-1\nRANK_ID=3 \\\nX='y z' \\\n    python3 'a b.py' > logs/worker_3.log 2>&1 &\n"
        );
    }
}
