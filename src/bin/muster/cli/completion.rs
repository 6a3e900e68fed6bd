//! What a shell completes: commands, operands, options, and values where the table lists them. Where it has nothing to
//! offer, and behind the program of `muster run`, the shell offers files.
//!
//! The shell runs this command for each word (`complete -C`, bash(1)). The line so far is in COMP_LINE and COMP_POINT.
//! Each line of the answer is one word that would do. The scripts for zsh and fish ask in the same way. With them, the
//! word that is completed has the option's name before its `=`, as these shells want it.

use super::table::{Command, Operands, Opt, Takes};
use super::words::{begins_as_json, boolean};
use std::ffi::OsStr;

/// The word behind `muster completion` by which the shell asks.
pub const ANSWER: &str = "--answer";

/// The shells for which there is a script.
pub const SHELLS: &[&str] = &["bash", "zsh", "fish"];

const BASH: &str = "complete -o bashdefault -o default -C 'muster completion ANSWER' muster msrun\n";

/// The script for zsh. If it is a file in zsh's search path, it is the function, and is called at once.
const ZSH: &str = r#"#compdef muster msrun
_muster() {
    local line="${(j: :)words[1,CURRENT-1]} $PREFIX"
    local -a offered=("${(@f)$(COMP_LINE=$line COMP_POINT= muster completion ANSWER)}")
    compset -P '--*='
    compadd -- ${offered:#} || _files
}
if [[ $funcstack[1] == _muster ]]; then _muster "$@"; else compdef _muster muster msrun; fi
"#;

const FISH: &str = r#"function __muster_offers
    set -l offered (COMP_LINE=(commandline -cp | string collect) COMP_POINT= muster completion ANSWER)
    set -l name (string match -r -- '^--[^=]*=' (commandline -ct))
    test -n "$offered"; and printf '%s\n' "$name"$offered; or __fish_complete_path (commandline -ct)
end
complete -c muster -f -a '(__muster_offers)'
complete -c msrun -f -a '(__muster_offers)'
"#;

/// The script that makes this shell ask.
pub fn script(shell: &OsStr) -> Option<String> {
    let script = match shell.to_str()? {
        "bash" => BASH,
        "zsh" => ZSH,
        "fish" => FISH,
        _ => return None,
    };
    Some(script.replace("ANSWER", ANSWER))
}

/// The answer to what bash asks in the environment: the words that may stand where the cursor is.
pub fn answer(commands: &[&'static Command]) -> String {
    let variable = |name| std::env::var(name).unwrap_or_default();
    let line = variable("COMP_LINE");
    let point = variable("COMP_POINT").parse().unwrap_or(line.len());
    let offered = offered(commands, line.get(..point).unwrap_or(&line));
    offered.iter().map(|word| format!("{word}\n")).collect()
}

/// The words that may stand at the end of this line.
fn offered(commands: &[&'static Command], line: &str) -> Vec<String> {
    let mut words: Vec<&str> = line.split_whitespace().collect();
    let begun = if line.ends_with(char::is_whitespace) { "" } else { words.pop().unwrap_or_default() };
    if words.is_empty() {
        return Vec::new(); // the name of the command itself
    }
    if words[0].rsplit('/').next() == Some("msrun") {
        words.insert(1, "run");
    }
    let mut path = words[1..].iter().take_while(|word| !word.starts_with('-')).copied().collect::<Vec<_>>();
    if path.is_empty() {
        return matching(&first_words(commands), begun);
    }
    let command = loop {
        let name = ["muster"].iter().chain(&path).copied().collect::<Vec<_>>().join(" ");
        match commands.iter().find(|command| command.name == name) {
            Some(command) => break command,
            None if path.pop().is_none() => return Vec::new(),
            None => {}
        }
    };
    of_command(command, &words[1 + path.len()..], begun)
}

/// The names of all commands, and what else may stand first.
fn first_words(commands: &[&Command]) -> Vec<&'static str> {
    let mut names: Vec<&str> = commands.iter().filter_map(|command| command.name.split(' ').nth(1)).collect();
    names.dedup();
    names.extend(["--help", "--version"]);
    names
}

/// The words that may follow `words` of this command.
fn of_command(command: &'static Command, words: &[&str], begun: &str) -> Vec<String> {
    let called = |word: &str| command.options.iter().find(|option| is_called(option, word));
    let mut words = words.iter();
    let mut operand = false;
    while let Some(word) = words.next() {
        let next = words.as_slice().first();
        match called(word) {
            Some(option) if option.takes.may_stand_alone() => {
                if next.is_some_and(|next| is_value_of_flag(option, next)) {
                    words.next();
                }
            }
            Some(option) if next.is_none() => return matching(option.takes.words(), begun),
            Some(_) => drop(words.next()),
            None => operand |= *word == "--" || !word.starts_with('-'),
        }
    }
    // The shell treats what stands behind `=` as a word of its own.
    if let Some((name, value)) = begun.split_once('=') {
        return called(name).map_or_else(Vec::new, |option| matching(option.takes.words(), value));
    }
    match command.operands {
        Operands::Program if operand => return Vec::new(),
        Operands::One { among, .. } if !operand && !begun.starts_with('-') => return matching(among, begun),
        _ if !begun.starts_with('-') => return Vec::new(),
        _ => {}
    }
    let names: Vec<String> = command.options.iter().map(|option| format!("--{}", option.name)).collect();
    let begun =
        begun.strip_prefix("--").map_or_else(|| begun.to_owned(), |name| format!("--{}", name.replace('-', "_")));
    matching(&names.iter().map(String::as_str).chain(["--help"]).collect::<Vec<_>>(), &begun)
}

/// Whether the word that follows this flag is its value, as the parser sees it.
fn is_value_of_flag(option: &Opt, word: &str) -> bool {
    let bare = OsStr::new(word.trim_matches('\''));
    boolean(bare).is_some() || (matches!(option.takes, Takes::FlagOr(_)) && begins_as_json(bare))
}

fn is_called(option: &Opt, word: &str) -> bool {
    match word.strip_prefix("--") {
        Some(name) => name.replace('-', "_") == option.name,
        None => option.letter.is_some_and(|letter| word == format!("-{letter}")),
    }
}

fn matching(words: &[&str], begun: &str) -> Vec<String> {
    words.iter().filter(|word| word.starts_with(begun)).map(|word| (*word).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::COMMANDS;

    #[test]
    fn what_is_offered_fits_the_line() {
        for (line, expected) in [
            ("muster be", &["bench"][..]),
            ("muster bench all", &["allgather", "allreduce", "alltoall"]),
            ("muster bench allreduce --ite", &["--iters"]),
            ("muster bench allreduce -o ", &["sum", "min", "max", "avg", "sum_exact"]),
            ("muster bench allreduce --op=m", &["min", "max"]),
            ("muster bench bootstrap --w", &["--worker_num"]),
            ("muster bench bootstrap --worker-n", &["--worker_num"]),
            ("muster bench bootstrap --s", &[]),
            ("muster run --jo", &["--join"]),
            ("msrun --jo", &["--join"]),
            ("/usr/bin/msrun --join=", &["True", "False"]),
            ("muster run --join True --log", &["--log_dir"]),
            ("muster run --log_dir ", &[]),
            ("muster run --bind", &["--bind_core", "--bind_numa"]),
            ("msrun --bind-core=", &["True", "False"]),
            ("muster run --bind_core true --sim_r", &["--sim_rank_id"]),
            ("muster run --bind_core '{\"device0\":\"0\"}' --jo", &["--join"]),
            ("muster run --bind_numa bind.json --jo", &["--join"]),
            ("muster run a.out --jo", &[]),
            ("muster run true --jo", &[]),
            ("muster run --join false true --lo", &[]),
            ("muster run --join bind.json --lo", &[]),
            ("muster run --join false --log", &["--log_dir"]),
            ("muster stop --g", &["--grace"]),
            ("muster ps --log", &["--log_dir"]),
            ("muster run --worker_num 4 a.out --jo", &[]),
            ("muster status --format=j", &["json"]),
            ("muster status ", &[]),
            ("muster certs re", &["revoke"]),
            ("muster certs node certs --ren", &["--renew"]),
            ("muster certs new certs --format=p", &["pem", "p12"]),
            ("muster completion ", SHELLS),
            ("mus", &[]),
            ("muster nosuch ", &[]),
        ] {
            let expected: Vec<String> = expected.iter().map(|word| (*word).to_owned()).collect();
            assert_eq!(offered(&COMMANDS, line), expected, "{line}");
        }
        let all = offered(&COMMANDS, "muster ");
        let commands = [
            "run",
            "ps",
            "stop",
            "bench",
            "scheduler",
            "status",
            "ranktable",
            "trace",
            "certs",
            "man",
            "completion",
            "--help",
            "--version",
        ];
        assert_eq!(all, commands);
        for option in COMMANDS.iter().find(|command| command.name == "muster run").unwrap().options {
            assert!(offered(&COMMANDS, "muster run --").contains(&format!("--{}", option.name)), "{}", option.name);
        }
    }
}
