//! Every setting once: where it comes from, which value wins, and what it becomes.
//!
//! Owns the one table of settings ([`Setting`], `table.rs`), their sources (code, environment, other launchers), and
//! the way from raw text ([`Config`]) to validated [`Settings`]. After that nobody checks a setting again.
//! Documentation, help and suggestions are made from the same table.
//!
//! Invariants: what was set in code beats `MUSTER_` variables, which beat `MS_` variables, which beat those of another
//! launcher, which beat the default. Every stored value remembers its source, so that an error names the variable that
//! somebody has to mend. A secret is never shown, neither by `get` nor in an error nor by `Debug`.
//!
//! Deliberately not here: the environment and the rank table's bytes (they are passed in), name resolution and any other
//! question to the system, the agreement between nodes (membership).
//!
//! Tested in `config_test.rs`, `settings_test.rs`, and beside each file; `tests/settings_doc.rs` holds the documentation
//! to the table.

mod derived;
mod docs;
mod environment;
mod hccl;
mod json;
mod launcher;
mod launchers;
mod nearest;
mod rank_entry;
mod rank_table;
mod rank_table_text;
mod reach;
mod reader;
mod remarks;
mod settings;
mod table;
mod tls;
mod value;

pub use derived::DerivedJob;
pub use docs::{settings_help, settings_markdown};
pub use hccl::hccl_chief_port;
pub use launcher::DEFAULT_PORT;
pub use nearest::closest;
pub use rank_entry::Host;
pub use rank_table_text::{text as rank_table_text, DeviceEntry};
pub use reach::{is_of_many, Endpoint, Interfaces, Reach};
pub use settings::{Assignment, Settings, StoreLimits};
pub use table::{Key, Setting, NODES_LIMIT, TABLE};
pub use tls::{Lock, NameChecks, NamedFile, Password, PasswordSource, TlsFile, TlsSettings};
pub use value::{Kind, LogLevel, Value};

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;

use crate::error::{Error, Result};
use environment::{Environment, Text};
use launcher::Placement;
use reader::Reader;

/// Settings as somebody wrote them: text, from code and from the environment.
#[derive(Clone, Default)]
pub struct Config {
    code: BTreeMap<Key, String>,
    environment: Environment,
    /// The command lines of the process that started this one, of the one that started that, and so on.
    ancestors: Vec<Vec<u8>>,
}

/// Where a value is from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Origin {
    Code,
    Variable(String),
    Launcher(String),
    Default,
}

/// A value that won.
struct Found {
    text: Result<Text>,
    origin: Origin,
}

impl Config {
    /// Nothing set; the defaults hold.
    pub fn new() -> Config {
        Config::default()
    }

    /// Sets one setting, which then beats every other source. The value is checked at once.
    pub fn set(&mut self, key: &str, value: &str) -> Result<()> {
        let setting = known(key)?;
        if setting.kind.parse(value).is_none() {
            return Err(wrong(setting, setting.name, value));
        }
        self.code.insert(setting.key, value.to_string());
        Ok(())
    }

    /// Takes the environment's variables, in place of those taken before; what was set in code stays and wins. A bad
    /// value is an error when the settings are made, and only if it would count.
    pub fn load_env<K: Into<OsString>, V: Into<OsString>>(&mut self, variables: impl IntoIterator<Item = (K, V)>) {
        self.environment = Environment::new(variables);
        self.ancestors.clear();
    }

    /// After that: learns which processes this one descends from, where a launcher's job may be known by nothing else. The
    /// command line of each as the kernel tells it (arguments end with a zero byte), the nearest first.
    pub fn learn_ancestors(&mut self, read: impl FnOnce() -> Vec<Vec<u8>>) {
        if launcher::asks_for_ancestors(&self.environment) {
            self.ancestors = read();
        }
    }

    /// The value that counts, as it was written; `None` where nothing is set and there is no default. Never a secret.
    pub fn get(&self, key: &str) -> Result<Option<String>> {
        let setting = known(key)?;
        if setting.secret {
            return Err(Error::config(format!("{key} is a secret: it can be set, but not read")));
        }
        let Some(found) = self.find(setting.key, self.placement().as_ref()) else { return Ok(None) };
        match found.text? {
            Text::Valid(text) => Ok(Some(text)),
            Text::Garbled(text) => Err(not_text(setting, &found.origin.name(setting), &text)),
        }
    }

    /// The validated settings of a process that joins its cluster (or is it, or is its scheduler) as they say.
    pub fn settings(&self) -> Result<Settings> {
        settings::of_process(self)
    }

    /// The validated settings of a scheduler inside a program. The role does not count. The host is this one unless
    /// another is set. The port may be 0, and is 0 unless another is set, for the caller can ask for it.
    pub fn scheduler_settings(&self) -> Result<Settings> {
        settings::of_scheduler(self)
    }

    /// Where the secret of a job comes from, for one that asks its scheduler.
    pub fn job_secret(&self) -> Result<Lock> {
        Reader { config: self, placement: None }.lock(tls::JOB_SECRET)
    }

    /// What is set about TLS, whatever else is set; none where it is off.
    pub fn tls_settings(&self) -> Result<Option<TlsSettings>> {
        Reader { config: self, placement: None }.tls()
    }

    /// What another launcher says; nothing where a role is set.
    fn placement(&self) -> Option<Placement> {
        let has_role = self.find(Key::Role, None).is_some();
        if has_role {
            return None;
        }
        let mut placement = launcher::placement(&self.environment, &self.ancestors)?;
        let is_own = |key| {
            let found = self.find(key, Some(&placement));
            found.is_some_and(|found| matches!(found.origin, Origin::Code | Origin::Variable(_)))
        };
        if [Key::JobId, Key::RankId, Key::SchedPort].into_iter().any(is_own) {
            placement.forget_job();
        }
        placement.settle_port();
        Some(placement)
    }

    /// The value of the source that wins.
    fn find(&self, key: Key, placement: Option<&Placement>) -> Option<Found> {
        let setting = key.setting();
        if let Some(text) = self.code.get(&key) {
            return Some(Found { text: Ok(Text::Valid(text.clone())), origin: Origin::Code });
        }
        let own = self.environment.own(setting);
        if let Some(found) = self.find_variable(own.into_iter().chain(setting.ms.iter().copied())) {
            return Some(found);
        }
        if let Some(given) = placement.and_then(|placement| placement.given.get(&key)) {
            return Some(Found { text: given.text.clone(), origin: Origin::Launcher(given.origin.clone()) });
        }
        self.find_variable(setting.others.iter().copied()).or_else(|| {
            let default = setting.default?;
            Some(Found { text: Ok(Text::Valid(default.to_string())), origin: Origin::Default })
        })
    }

    /// The first of these variables that is set.
    fn find_variable<'a>(&self, mut variables: impl Iterator<Item = &'a str>) -> Option<Found> {
        variables.find_map(|variable| {
            let text = self.environment.get(variable)?.clone();
            Some(Found { text: Ok(text), origin: Origin::Variable(variable.to_string()) })
        })
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let placement = self.placement();
        let mut map = f.debug_map();
        for setting in &TABLE {
            let Some(found) = self.find(setting.key, placement.as_ref()) else { continue };
            let shown = match found.text {
                _ if setting.secret => "(secret)".to_string(),
                Ok(Text::Valid(text) | Text::Garbled(text)) => text,
                Err(error) => error.to_string(),
            };
            map.entry(&setting.name, &shown);
        }
        map.finish()
    }
}

impl Origin {
    /// What the user has to mend to change it.
    fn name(&self, setting: &Setting) -> String {
        match self {
            Origin::Code => setting.name.to_string(),
            Origin::Variable(name) | Origin::Launcher(name) => name.clone(),
            Origin::Default => setting.usual_variable(),
        }
    }
}

fn known(key: &str) -> Result<&'static Setting> {
    Setting::named(key).ok_or_else(|| {
        let hint = nearest::key(key).map_or_else(
            || "expected one of those in docs/settings.md".to_string(),
            |near| format!("did you mean \"{near}\"?"),
        );
        Error::config(format!("there is no setting {}: {hint}", show(key)))
    })
}

/// A value that is not of its setting's kind.
fn wrong(setting: &Setting, name: &str, value: &str) -> Error {
    let shown = if setting.secret { "a secret that is not valid".into() } else { show(value) };
    Error::config(format!("{name} is {shown}: expected {}", setting.kind.expectation()))
}

/// A value that is not UTF-8.
fn not_text(setting: &Setting, name: &str, value: &str) -> Error {
    let shown = if setting.secret { "a secret that is not UTF-8".into() } else { show(value) };
    Error::config(format!("{name} is {shown}: expected UTF-8 text"))
}

/// Characters of a bad value that an error repeats, at most.
const SHOWN_CHARS: usize = 100;

/// A value as an error shows it: in quotes, on one line, not too long.
fn show(value: &str) -> String {
    let cut = value.char_indices().nth(SHOWN_CHARS).map(|(at, _)| at);
    let shown: Cow<'_, str> = cut.map_or(value.into(), |at| format!("{}...", &value[..at]).into());
    format!("{shown:?}")
}

/// The rank table's decoder, as a function of bytes.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz_rank_table(bytes: &[u8]) {
    let _ = rank_table::RankTable::parse(bytes);
}

#[cfg(test)]
#[path = "config_test.rs"]
mod tests;
