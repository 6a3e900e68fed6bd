//! The process's environment as this library sees it: the variables that mean something to it, and the `MUSTER_` names
//! that mean nothing. It is passed in; this room never asks the system.
//!
//! An empty variable counts as unset. A value that is not UTF-8 is kept as such, so that the error can name the
//! variable when, and only when, the value is needed.

use std::collections::BTreeMap;
use std::ffi::OsString;

use super::launchers;
use super::table::{Key, Setting};

/// Variables with our prefix that are no settings, and that others read: the Python package (which library to load, and
/// which process has joined as the one that the environment names), and this project's own tests.
const BESIDE: [&str; 6] =
    ["MUSTER_LIBRARY", "MUSTER_JOINED_BY", "MUSTER_BLESS", "MUSTER_SOAK", "MUSTER_SIM_SEED", "MUSTER_SIM_SEEDS"];

/// What a variable holds.
#[derive(Clone)]
pub enum Text {
    /// UTF-8.
    Valid(String),
    /// Something else, made readable.
    Garbled(String),
}

/// The variables that count.
#[derive(Clone, Default)]
pub struct Environment {
    known: BTreeMap<String, Text>,
    /// The settings whose own variables are set.
    own: BTreeMap<Key, String>,
    unknown: Vec<String>,
    like_the_originals: Vec<String>,
}

impl Environment {
    /// Keeps those of these variables that count.
    pub fn new<K: Into<OsString>, V: Into<OsString>>(variables: impl IntoIterator<Item = (K, V)>) -> Environment {
        let mut environment = Environment::default();
        let of_launchers = launchers::Names::gather();
        for (name, value) in variables {
            // A name that is not UTF-8 is none of ours.
            let Ok(name) = name.into().into_string() else { continue };
            let value = match value.into().into_string() {
                Ok(value) => Text::Valid(value),
                Err(value) => Text::Garbled(value.to_string_lossy().into_owned()),
            };
            if matches!(&value, Text::Valid(text) if text.is_empty()) {
                continue;
            }
            let setting = Setting::of_variable(&name);
            if setting.is_some() || of_launchers.have(&name) {
                if let Some(setting) = setting.filter(|setting| setting.is_own_variable(&name)) {
                    environment.own.insert(setting.key, name.clone());
                }
                environment.known.insert(name, value);
            } else if name.starts_with("MUSTER_") && !BESIDE.contains(&name.as_str()) {
                environment.unknown.push(name);
            } else if name.starts_with("MS_") {
                environment.like_the_originals.push(name);
            }
        }
        environment.unknown.sort_unstable();
        environment.like_the_originals.sort_unstable();
        environment
    }

    /// What this variable holds, if it is set and counts.
    pub fn get(&self, variable: &str) -> Option<&Text> {
        self.known.get(variable)
    }

    /// The names of all that count.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.known.keys().map(String::as_str)
    }

    /// This setting's own variable, if it is set.
    pub fn own(&self, setting: &Setting) -> Option<&str> {
        self.own.get(&setting.key).map(String::as_str)
    }

    /// The `MUSTER_` variables that no setting has, in order.
    pub fn unknown(&self) -> &[String] {
        &self.unknown
    }

    /// The `MS_` variables that no setting has, in order. Most mean something to others.
    pub fn like_the_originals(&self) -> &[String] {
        &self.like_the_originals
    }
}
