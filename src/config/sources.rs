//! Settings as text, each from where it was written: code, environment, another launcher; and which of them counts.

use super::environment::{Environment, Text};
use super::host_list;
use super::launcher::{self, HostFile, Placement, Surroundings};
use super::nearest;
use super::origin::Origin;
use super::shown::{not_text, show, wrong};
use super::table::{Key, Setting, TABLE};
use crate::error::{Error, Result};
use crate::types::Hook;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::Path;

/// Settings as somebody wrote them: text, from code and from the environment.
#[derive(Clone, Default)]
pub struct Config {
    code: BTreeMap<Key, String>,
    pub(super) environment: Environment,
    /// What the environment does not say.
    surroundings: Surroundings,
    /// What the program is asked while a call waits.
    pub(super) interrupt: Hook,
}

/// A value that won.
pub(super) struct Found {
    pub(super) text: Result<Text>,
    pub(super) origin: Origin,
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

    /// Sets one setting as [`Config::set`] does, from bytes that may not be UTF-8.
    pub fn set_bytes(&mut self, key: &str, value: &[u8]) -> Result<()> {
        let setting = known(key)?;
        let garbled = |_| not_text(setting, setting.name, &String::from_utf8_lossy(value));
        self.set(key, std::str::from_utf8(value).map_err(garbled)?)
    }

    /// Takes the environment's variables, in place of those taken before; what was set in code stays and wins. A bad
    /// value is an error when the settings are made, and only if it would count.
    pub fn load_env<K: Into<OsString>, V: Into<OsString>>(&mut self, variables: impl IntoIterator<Item = (K, V)>) {
        self.environment = Environment::new(variables);
        self.surroundings = Surroundings::default();
    }

    /// To be called after `load_env`: learns from which processes this one descends, if only that can tell a launcher's
    /// job. `read` gives the command line of each, as the kernel tells it (arguments end with a zero byte), the nearest
    /// first.
    pub fn learn_ancestors(&mut self, read: impl FnOnce() -> Vec<Vec<u8>>) {
        if launcher::asks_for_ancestors(&self.environment) {
            self.surroundings.ancestors = read();
        }
    }

    /// To be called after `load_env`: reads the launcher's file of hosts, if nothing else says where rank 0 is. `read`
    /// is given the file, and the most bytes to read of it. It says what is wrong in words that follow the file's name.
    pub fn learn_host_file(&mut self, read: impl FnOnce(&Path, u64) -> std::result::Result<Vec<u8>, String>) {
        if self.find(Key::Role, None).is_some() || self.find(Key::SchedHost, None).is_some() {
            return;
        }
        let Some((variable, path)) = launcher::asks_for_host_file(&self.environment) else { return };
        let first = read(Path::new(&path), host_list::HOST_FILE_BYTES).and_then(|bytes| {
            let text = String::from_utf8_lossy(&bytes);
            host_list::of_file(&text).ok_or_else(|| "has no host in it".to_owned())
        });
        self.surroundings.host_file = Some(HostFile { variable, path, first });
    }

    /// Sets what the program is asked while a call waits. It replaces what was set before.
    pub fn set_interrupt(&mut self, hook: Hook) {
        self.interrupt = hook;
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

    /// What another launcher says; nothing if a role is set.
    pub(super) fn placement(&self) -> Option<Placement> {
        let has_role = self.find(Key::Role, None).is_some();
        if has_role {
            return None;
        }
        let mut placement = launcher::placement(&self.environment, &self.surroundings)?;
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
    pub(super) fn find(&self, key: Key, placement: Option<&Placement>) -> Option<Found> {
        let setting = key.setting();
        if let Some(text) = self.code.get(&key) {
            return Some(Found { text: Ok(Text::Valid(text.clone())), origin: Origin::Code });
        }
        let own = self.environment.own(setting);
        if let Some(found) = self.find_variable(own.into_iter().chain(setting.ms.iter().copied())) {
            return Some(found);
        }
        if let Some(given) = placement.and_then(|placement| placement.given.get(&key)) {
            return Some(Found { text: given.text.clone(), origin: given.origin.clone() });
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

fn known(key: &str) -> Result<&'static Setting> {
    Setting::named(key).ok_or_else(|| {
        let hint = nearest::key(key).map_or_else(
            || "expected one of the names in docs/settings.md".to_string(),
            |near| format!("did you mean \"{near}\"?"),
        );
        Error::config(format!("there is no setting {}: {hint}", show(key)))
    })
}

#[cfg(test)]
#[path = "sources_test.rs"]
mod tests;
