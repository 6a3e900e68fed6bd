//! Values as errors show them.

use super::table::Setting;
use crate::error::Error;
use std::borrow::Cow;

/// A value that is not of its setting's kind.
pub(super) fn wrong(setting: &Setting, name: &str, value: &str) -> Error {
    let shown = if setting.secret { "a secret that is not valid".into() } else { show(value) };
    Error::config(format!("{name} is {shown}: expected {}", setting.kind.expectation_for(value)))
}

/// A value that is not UTF-8.
pub(super) fn not_text(setting: &Setting, name: &str, value: &str) -> Error {
    let shown = if setting.secret { "a secret that is not UTF-8".into() } else { show(value) };
    Error::config(format!("{name} is {shown}: expected UTF-8 text"))
}

/// Characters of a bad value that an error repeats, at most.
const SHOWN_CHARS: usize = 100;

/// A value as an error shows it: in quotes, on one line, not too long.
pub(super) fn show(value: &str) -> String {
    let cut = value.char_indices().nth(SHOWN_CHARS).map(|(at, _)| at);
    let shown: Cow<'_, str> = cut.map_or(value.into(), |at| format!("{}...", &value[..at]).into());
    format!("{shown:?}")
}
