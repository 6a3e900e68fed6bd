//! `muster certs`: makes a CA and certificates for TLS, shows what a file holds, checks a configuration.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`options`] | the words of the five commands become options |
//! | [`make`] | new, node and revoke: the files of a CA and of nodes |
//! | [`authority`] | what a CA signs: certificates and revocation lists |
//! | [`sealed`] | PKCS#12 files, written |
//! | [`contents`], [`show`] | what a file holds, and how that is shown |
//! | [`names`] | folders' names, and node ids in certificates |
//! | [`passwords`], [`folder`], [`moment`] | where passwords come from; private files; times in words |
//!
//! The library says what is right and wrong about a configuration (`muster::tls::open`), as it does for every node.
//! Tested beside each module, and with OpenSSL and real clusters by `tests/python/test_certs.py`.

mod authority;
mod contents;
mod folder;
mod make;
mod moment;
mod names;
pub mod options;
mod passwords;
mod sealed;
mod show;
#[cfg(test)]
#[path = "testing_test.rs"]
mod testing;

use crate::cli::help;
use crate::cli::table::Command;
use crate::cli::words::{read, Asked, Words};
use crate::code;
use crate::status::text::plain;
use crate::voice::{answer, complain, print};
use muster::config::{Config, Key, Setting};
use std::ffi::OsString;

/// Why nothing was done.
enum Refused {
    /// The command line is wrong.
    Usage(String),
    /// It could not be done.
    Failed(String),
}

impl From<String> for Refused {
    fn from(why: String) -> Refused {
        Refused::Failed(why)
    }
}

type Action = fn(&Words) -> Result<String, Refused>;

const ACTIONS: [(&Command, Action); 5] = [
    (&options::NEW, new),
    (&options::NODE, node),
    (&options::REVOKE, revoke),
    (&options::SHOW, show),
    (&options::CHECK, check),
];

/// Runs it with the words after `certs`. Returns the exit code.
pub fn command(mut words: Vec<OsString>) -> i32 {
    if words.is_empty() {
        complain(pages());
        return code::USAGE;
    }
    let name = words.remove(0);
    let found = name
        .to_str()
        .and_then(|name| ACTIONS.iter().find(|(command, _)| command.name.strip_prefix("muster certs ") == Some(name)));
    let Some((command, action)) = found else {
        if ["--help", "-h", "help"].iter().any(|help| name == *help) {
            return answer(options::COMMAND.name, &pages());
        }
        let what = "the actions are new, node, revoke, show and check";
        complain(format!("muster certs: there is no action {name:?}: {what}\n"));
        return code::USAGE;
    };
    let outcome = match read(command, words) {
        Ok(Asked::Help) => Ok(help::page(command, command.name)),
        Ok(Asked::With(words)) => action(&words),
        Err(why) => Err(Refused::Usage(why)),
    };
    match outcome {
        Ok(text) => print(&text).map_or_else(
            |why| {
                complain(format!("{}: {why}\n", command.name));
                code::FAILED
            },
            |()| 0,
        ),
        Err(Refused::Usage(why)) => {
            complain(format!("{name}: {why}\n{name} --help lists the options\n", name = command.name));
            code::USAGE
        }
        Err(Refused::Failed(why)) => {
            complain(format!("{}: {}\n", command.name, plain(&why)));
            code::FAILED
        }
    }
}

fn pages() -> String {
    let actions = ACTIONS.map(|(command, _)| command);
    let lines = actions.map(|action| format!("  {}\n        {}\n", action.usage(action.name), action.summary));
    format!("{}\nActions:\n{}", help::page(&options::COMMAND, options::COMMAND.name), lines.concat())
}

fn new(words: &Words) -> Result<String, Refused> {
    let what = options::new(words).map_err(Refused::Usage)?;
    Ok(make::new(&what, passwords_for(&what)?)?)
}

fn node(words: &Words) -> Result<String, Refused> {
    let what = options::node(words).map_err(Refused::Usage)?;
    // A renewal may need no password, so wrong ones must not stop it.
    let now = if what.renew { None } else { Some(passwords_for(&what)?) };
    let given = || now.map_or_else(|| passwords::given(what.password_file.as_deref(), std::env::vars_os()), Ok);
    let mut said = String::new();
    match make::node(&what, given, &mut said) {
        Ok(()) => Ok(said),
        Err(why) => {
            print(&said)?;
            Err(Refused::Failed(why))
        }
    }
}

/// The passwords for what is to be made. They count if something is sealed with them.
fn passwords_for(what: &options::Make) -> Result<Vec<passwords::Given>, Refused> {
    match what.form == Some(options::Form::Pkcs12) {
        true => Ok(passwords::given(what.password_file.as_deref(), std::env::vars_os())?),
        false if what.password_file.is_some() => {
            let why = "--password_file seals PKCS#12 files, and PEM files are made: expected --format=p12 with it";
            Err(Refused::Usage(why.to_owned()))
        }
        false => Ok(Vec::new()),
    }
}

fn revoke(words: &Words) -> Result<String, Refused> {
    let what = options::revoke(words).map_err(Refused::Usage)?;
    let given = match what.files.is_empty() {
        true if words.value("password_file").is_some() => {
            let why = "--password_file opens the files of --file, and there is none: expected --file with it";
            return Err(Refused::Usage(why.to_owned()));
        }
        true => Vec::new(),
        false => passwords::given(words.value("password_file"), std::env::vars_os())?,
    };
    Ok(make::revoke(&what, &given)?)
}

fn show(words: &Words) -> Result<String, Refused> {
    let path = options::path(words, "FILE").map_err(Refused::Usage)?;
    match passwords::given(words.value("password_file"), std::env::vars_os()) {
        Ok(given) => Ok(show::file(&path, &given)?),
        // If a file needs no password, it is shown even if the environment's passwords are wrong.
        Err(why) if words.value("password_file").is_none() => {
            Ok(show::file(&path, &[]).map_err(|own| format!("{own} ({why})"))?)
        }
        Err(why) => Err(Refused::Failed(why)),
    }
}

/// The library's judgement, in its words.
fn check(words: &Words) -> Result<String, Refused> {
    let path = options::path(words, "FILE").map_err(Refused::Usage)?;
    let path = path.to_str().ok_or_else(|| Refused::Usage(format!("{path:?} is not valid UTF-8")))?;
    let is_other = |name: &OsString| {
        let setting = name.to_str().and_then(Setting::of_variable);
        setting.is_none_or(|setting| !matches!(setting.key, Key::EnableSsl | Key::ConfigFilePath))
    };
    let judged = || -> muster::error::Result<Vec<String>> {
        let mut config = Config::new();
        // Set as if by the environment: so the sentences are the same as a node's, to the letter.
        let own = [("MUSTER_ENABLE_SSL", "1"), ("MUSTER_CONFIG_FILE_PATH", path)];
        let own = own.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        config.load_env(std::env::vars_os().filter(|(name, _)| is_other(name)).chain(own));
        let mut tls = config.tls_settings()?;
        if let Some(tls) = &mut tls {
            tls.names.own_id = config.get(Key::NodeId.setting().name)?;
        }
        Ok(muster::tls::open(tls.as_ref(), None)?.warnings)
    };
    let warnings = judged().map_err(|error| Refused::Failed(error.to_string()))?;
    Ok(right(path, &warnings))
}

/// What is said of a configuration that is right, each warning in a line of its own, whatever the file has in it.
fn right(path: &str, warnings: &[String]) -> String {
    let first = format!("{path} is right: a node starts with it");
    let warnings = warnings.iter().map(|warning| format!("warning: {warning}"));
    std::iter::once(first).chain(warnings).map(|line| plain(&line) + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_one_line_without_commands_to_a_terminal() {
        let said = right("a\u{7}", &["of \u{1b}[31mred\nwarning: blue".to_owned(), "of Größe".to_owned()]);
        let expected = "a\\u{7} is right: a node starts with it\n\
                        warning: of \\u{1b}[31mred\\u{a}warning: blue\n\
                        warning: of Größe\n";
        assert_eq!(said, expected);
    }
}
