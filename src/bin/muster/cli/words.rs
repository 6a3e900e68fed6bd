//! The parser of all commands: words become options with their values, and operands. Each command says itself what a
//! value means.
//!
//! lexopt splits the words. Here is what it leaves open: names with `-` for `_`, flags with a value behind them, and
//! the error for an unknown word.

use super::table::{Command, Operands, Opt, Takes};
use lexopt::{Arg, Parser};
use muster::config::closest;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// What the words ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked<T> {
    /// The help text.
    Help,
    /// What the command does, with these.
    With(T),
}

impl<T> Asked<T> {
    /// Passes the words on to `make`, which gives what the command makes of them.
    pub fn then<U>(self, make: impl FnOnce(T) -> Result<U, String>) -> Result<Asked<U>, String> {
        match self {
            Asked::Help => Ok(Asked::Help),
            Asked::With(these) => make(these).map(Asked::With),
        }
    }
}

/// The words of a command line.
#[derive(Debug)]
pub struct Words {
    /// What the command takes beside options.
    pub operands: Vec<OsString>,
    options: &'static [Opt],
    given: Vec<Given>,
}

/// An option with its value.
#[derive(Clone, Debug)]
pub struct Given {
    /// The option.
    pub option: &'static Opt,
    /// The option as it was written: a name or a letter, with its dashes.
    pub written: String,
    /// Its value.
    pub value: String,
}

impl Words {
    /// What was given for this option. If it was given more than once, the last counts.
    pub fn get(&self, name: &str) -> Option<&Given> {
        assert!(self.options.iter().any(|option| option.name == name), "{name} is not in the table");
        self.given.iter().rev().find(|given| given.option.name == name)
    }

    /// Its value.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.get(name).map(|given| given.value.as_str())
    }

    /// The file that this option names, if it was given.
    pub fn file(&self, name: &str) -> Result<Option<PathBuf>, String> {
        match self.value(name) {
            Some("") => Err(format!("--{name} is empty: expected a file")),
            named => Ok(named.map(PathBuf::from)),
        }
    }

    /// Whether a flag is set. A flag that was not given is not set.
    pub fn truth(&self, name: &str) -> Result<bool, String> {
        let Some(text) = self.value(name) else { return Ok(false) };
        boolean(OsStr::new(text))
            .ok_or_else(|| format!("--{name} is {text:?}; it must be True or False, or stand alone"))
    }

    /// All options, in the order in which they were given.
    pub fn given(&self) -> &[Given] {
        &self.given
    }
}

/// Reads the words behind a command's name. The error is a sentence for the user.
pub fn read(command: &'static Command, words: Vec<OsString>) -> Result<Asked<Words>, String> {
    let mut parser = Parser::from_args(words);
    let mut found = Words { operands: Vec::new(), options: command.options, given: Vec::new() };
    while let Some(word) = parser.next().map_err(|error| error.to_string())? {
        let written = match word {
            Arg::Short('h') | Arg::Long("help") => return Ok(Asked::Help),
            Arg::Short(letter) => format!("-{letter}"),
            Arg::Long(name) => format!("--{name}"),
            Arg::Value(operand) => {
                take_operand(command, &mut found.operands, operand)?;
                if matches!(command.operands, Operands::Program) {
                    found.operands.extend(parser.raw_args().map_err(|error| error.to_string())?);
                }
                continue;
            }
        };
        let option = find(command, &written).map_err(|why| one_dash(command, &written, &mut parser).unwrap_or(why))?;
        let value = match option.takes.may_stand_alone() {
            true => flag(command, option, &mut parser)?,
            false => value(command, option, &written, &mut parser)?,
        };
        if value == "--help" || value == "-h" {
            return Ok(Asked::Help);
        }
        let value = value.into_string().map_err(|value| format!("--{}: {value:?} is not valid UTF-8", option.name))?;
        found.given.push(Given { option, written, value });
    }
    Ok(Asked::With(found))
}

/// The value of an option that must have one. Another option in its place is a value that was forgotten.
fn value(command: &'static Command, option: &Opt, written: &str, parser: &mut Parser) -> Result<OsString, String> {
    let joint = if written.starts_with("--") { "=" } else { " " };
    let missing = format!("{written} needs a value: {written}{joint}{}", option.takes.called());
    if let Some(value) = parser.optional_value().filter(|value| !is_rest_of_name(option, written, value)) {
        let joined = value.to_str().and_then(|value| value.split_once('='));
        return match joined.filter(|(rest, _)| is_rest_of_name(option, written, OsStr::new(rest))) {
            Some((_, value)) => Ok(value.into()),
            None => Ok(value),
        };
    }
    let value = parser.value().map_err(|_| missing.clone())?;
    let name = value.to_str().filter(|word| word.starts_with("--")).and_then(|word| word.split('=').next());
    match name.filter(|name| find(command, name).is_ok()) {
        Some(name) => Err(format!("{missing}, but {name} follows")),
        None => Ok(value),
    }
}

/// Whether `rest` is the end of a whole name that was written after one dash: `-np 4`, as mpirun's users know it, or `-np=4`.
fn is_rest_of_name(option: &Opt, written: &str, rest: &OsStr) -> bool {
    !written.starts_with("--") && rest.to_str().is_some_and(|rest| option.name == format!("{}{rest}", &written[1..]))
}

/// The sentence about a name that has one dash where it needs two.
fn one_dash(command: &'static Command, written: &str, parser: &mut Parser) -> Option<String> {
    let letter = written.strip_prefix('-').filter(|rest| !rest.starts_with('-'))?;
    let name = format!("{letter}{}", parser.optional_value()?.to_str()?.split('=').next()?);
    let option = find(command, &format!("--{name}")).ok()?;
    Some(format!("there is no option -{name}; did you mean --{}?", option.name))
}

fn take_operand(command: &Command, operands: &mut Vec<OsString>, operand: OsString) -> Result<(), String> {
    match command.operands {
        Operands::None => {
            let takes = if command.options.is_empty() { "takes no words" } else { "has options only" };
            return Err(format!("{operand:?} is not expected: {} {takes}", command.name));
        }
        Operands::One { called, .. } if !operands.is_empty() => {
            return Err(format!("{operand:?} is not expected: {} takes one {called}", command.name))
        }
        Operands::One { .. } | Operands::Program => operands.push(operand),
    }
    Ok(())
}

/// The option of this name or letter, dashes and all.
fn find(command: &'static Command, written: &str) -> Result<&'static Opt, String> {
    let name = written.strip_prefix("--").map(|name| name.replace('-', "_"));
    let letter = written.strip_prefix('-').and_then(|letter| letter.chars().next());
    let known = command.options.iter().find(|option| match &name {
        Some(name) => option.name == name,
        None => option.letter == letter,
    });
    if let Some(option) = known {
        return Ok(option);
    }
    let canonical = name.as_ref().map_or_else(|| written.to_owned(), |name| format!("--{name}"));
    let near = near(command, canonical.trim_start_matches('-'));
    let hint = if near.is_empty() { String::new() } else { format!("; did you mean --{}?", near.join(" or --")) };
    let note = match command.operands {
        Operands::Program => "options of the program come after its name".to_owned(),
        Operands::None | Operands::One { .. } => format!("{} --help lists them", command.name),
    };
    Err(format!("there is no option {written}{hint} ({note})"))
}

/// The options that somebody may have meant: the one that differs by some letters; or otherwise those that begin so; or
/// otherwise those that have all its words.
fn near(command: &Command, name: &str) -> Vec<&'static str> {
    let names = || command.options.iter().map(|option| option.name);
    let name = &name.to_lowercase();
    if let Some(near) = closest(name, names()) {
        return vec![near];
    }
    let begin: Vec<&str> = names().filter(|known| name.len() > 1 && known.starts_with(name)).collect();
    if !begin.is_empty() {
        return begin;
    }
    let has = |known: &str, word: &str| known.split('_').any(|own| own == word);
    names().filter(|known| name.split('_').all(|word| has(known, word))).collect()
}

/// The value of a flag: what stands behind `=`, or the next word if that is True or False; otherwise it is True. If the
/// flag may have a value of another kind, the next word is also its value when it begins as such a value does.
fn flag(command: &Command, option: &Opt, parser: &mut Parser) -> Result<OsString, String> {
    let name = option.name;
    if let Some(value) = parser.optional_value() {
        return Ok(value);
    }
    let Some(mut words) = parser.try_raw_args() else { return Ok("True".into()) };
    let next = words.peek().and_then(OsStr::to_str);
    if let Some((word, value)) = next.and_then(|word| Some((word, like_boolean(word)?))) {
        let program = match command.operands {
            Operands::Program => {
                format!(", and where it is the program --{name}=True ./{word} (or -- {word} for one in PATH)")
            }
            Operands::None | Operands::One { .. } => String::new(),
        };
        return Err(format!(
            "--{name} {word}: {word:?} is no value here; write --{name}={value} for what it may mean{program}"
        ));
    }
    // An empty word is no program: it is what a shell makes of a variable that is not set.
    let is_value = |word: &OsStr| match option.takes {
        _ if word.is_empty() => true,
        Takes::FlagOr(_) if begins_as_json(word) => true,
        _ => boolean(word).is_some(),
    };
    if let (Takes::FlagOr(called), Some(word)) = (option.takes, next.filter(|word| like_numbers(word))) {
        return Err(format!(
            "--{name} {word}: {word:?} is no value here; expected True, False or {called}, in single quotes where it has quotes \
             itself (where {word} is the program: --{name}=True {word})"
        ));
    }
    Ok(words.next_if(is_value).unwrap_or_else(|| "True".into()))
}

/// A word that is more like a value in which something is missing than like a program: `0-3`, or what a shell makes of
/// `{"device0":"0-3","device1":"4-7"}` without quotes around it.
fn like_numbers(word: &str) -> bool {
    let is_numbers = |text: &str| {
        let fits = text.bytes().all(|byte| byte.is_ascii_digit() || b",-[]\"".contains(&byte));
        fits && text.bytes().any(|byte| byte != b'-')
    };
    is_numbers(word) || word.split_once(':').is_some_and(|(_, numbers)| is_numbers(numbers))
}

/// Whether this is JSON, or the name of a file of it.
pub fn begins_as_json(word: &OsStr) -> bool {
    let bytes = word.as_encoded_bytes();
    bytes.trim_ascii_start().starts_with(b"{") || bytes.ends_with(b".json")
}

/// What a flag's value means.
pub fn boolean(word: &OsStr) -> Option<bool> {
    let is = |name| word.eq_ignore_ascii_case(name);
    is("true").then_some(true).or(is("false").then_some(false))
}

/// A word that is no value of a flag here, but often is one elsewhere, and what it would be here.
fn like_boolean(word: &str) -> Option<&'static str> {
    let is = |names: [&str; 5]| names.iter().any(|name| word.eq_ignore_ascii_case(name));
    is(["yes", "y", "t", "on", "1"]).then_some("True").or(is(["no", "n", "f", "off", "0"]).then_some("False"))
}

#[cfg(test)]
mod tests {
    use super::super::table::option;
    use super::*;

    const PLAIN: Command = Command {
        name: "muster plain",
        operands: Operands::One { called: "thing", among: &["a", "b"] },
        options: &[option("long_name", Takes::Value("N"), "1", "a number").letter('n')],
        ..Command::BLANK
    };

    const MPI: Command = Command {
        operands: Operands::Program,
        options: &[option("np", Takes::Value("N"), "", "a number").letter('n')],
        ..Command::BLANK
    };

    fn words(line: &str) -> Result<Words, String> {
        match read(&PLAIN, line.split_whitespace().map(OsString::from).collect())? {
            Asked::With(words) => Ok(words),
            Asked::Help => Err("help".to_owned()),
        }
    }

    #[test]
    fn every_spelling_of_an_option_means_the_same() {
        for line in ["a --long_name 7", "--long-name=7 a", "-n 7 a", "a -n7", "a -n=7", "a --long_name 1 -n 7"] {
            let words = words(line).unwrap();
            assert_eq!((words.value("long_name"), &words.operands[..]), (Some("7"), &["a".into()][..]), "{line}");
        }
        assert_eq!(words("-n --other").unwrap().value("long_name"), Some("--other"));
        assert_eq!(words("-n -1").unwrap().value("long_name"), Some("-1"));
        assert_eq!(words("-- -n").unwrap().operands, ["-n"]);
        assert_eq!(words("a").unwrap().value("long_name"), None);
    }

    #[test]
    fn a_whole_name_may_stand_after_one_dash() {
        for line in ["-np 4 a", "-n 4 a", "--np=4 a", "-n4 a", "-np=4 a"] {
            let read = read(&MPI, line.split_whitespace().map(OsString::from).collect());
            let Ok(Asked::With(words)) = read else { panic!("{line}: {read:?}") };
            assert_eq!((words.value("np"), &words.operands[..]), (Some("4"), &["a".into()][..]), "{line}");
        }
    }

    #[test]
    fn help_is_given_wherever_it_is_asked_for() {
        for line in ["-h", "a --help", "--long_name --help", "-n -h", "--long_name 1 -h a"] {
            assert_eq!(words(line).unwrap_err(), "help", "{line}");
        }
    }

    #[test]
    fn an_unknown_option_is_answered_with_what_may_be_meant() {
        let near = |name| near(&crate::run::options::COMMAND, name);
        assert_eq!(near("wroker_num"), ["worker_num"]);
        assert_eq!(near("log"), ["log_dir"]);
        assert_eq!(near("sim"), ["sim_level", "sim_rank_id"]);
        assert_eq!(near("tail_log"), ["tail_worker_log"]);
        assert_eq!(near("BIND_CORE"), ["bind_core"]);
        assert_eq!(near("gpus"), [""; 0]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, said) in [
            ("-x", "there is no option -x (muster plain --help lists them)"),
            ("--lomg-name", "there is no option --lomg-name; did you mean --long_name? (muster plain --help"),
            ("--long-name", "--long-name needs a value: --long-name=N"),
            ("-n", "-n needs a value: -n N"),
            ("--long_name --long-name", "--long_name needs a value: --long_name=N, but --long-name follows"),
            ("-n --long_name=1", "-n needs a value: -n N, but --long_name follows"),
            ("-long-name 1", "there is no option -long-name; did you mean --long_name?"),
            ("-long_name=1", "there is no option -long_name; did you mean --long_name?"),
            ("a b", "\"b\" is not expected: muster plain takes one thing"),
        ] {
            let error = words(line).unwrap_err();
            assert!(error.starts_with(said), "{line}: {error}");
        }
    }
}
