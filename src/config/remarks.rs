//! What is to be said of settings that are valid: what is odd about them, and what this version cannot honour.

use super::environment::Environment;
use super::launcher;
use super::nearest;
use super::reader::{misread, Reader};
use super::show;
use super::table::{Key, TABLE};
use super::value::Value;
use crate::error::Result;

impl Reader<'_> {
    /// What this version cannot honour. A flag that is off asks for nothing.
    pub(super) fn unsupported(&self) -> Result<Vec<String>> {
        let mut sentences = Vec::new();
        for setting in TABLE.iter().filter(|setting| setting.refused) {
            if self.set_by(setting.key).is_none() {
                continue;
            }
            let shown = match self.value(setting.key)? {
                Some(Value::Flag(false)) | None => continue,
                _ if setting.secret => "set".to_string(),
                Some(Value::Flag(true)) => "\"1\"".to_string(),
                Some(Value::Text(text)) => show(&text),
                Some(other) => misread(setting.key, &other),
            };
            sentences.push(format!(
                "{} is {shown}, which this version of muster does not support: expected it to be unset",
                self.name(setting.key)
            ));
        }
        Ok(sentences)
    }

    /// What is odd though not wrong, one sentence each.
    pub(super) fn warnings(&self, is_alone: bool) -> Vec<String> {
        let environment = &self.config.environment;
        let mut warnings = misspelt(environment);
        if self.placement.is_none() && self.set_by(Key::Role).is_none() {
            warnings.extend(launcher::halves(environment));
            warnings.extend(launcher::strangers(environment));
            let hints = [Key::SchedHost, Key::SchedPort, Key::WorkerNum, Key::RankId];
            let set: Vec<String> =
                hints.into_iter().filter(|key| self.set_by(*key).is_some()).map(|key| self.name(key)).collect();
            if is_alone && !set.is_empty() {
                warnings.push(format!(
                    "MS_ROLE is not set, so this process is a cluster of one and nothing comes of {}",
                    set.join(", ")
                ));
            }
        }
        warnings
    }
}

/// A `MUSTER_` variable that no setting has is one that was meant for us. Of the `MS_` variables most are another
/// program's, so that only a slip of the pen is told.
fn misspelt(environment: &Environment) -> Vec<String> {
    let of_original = environment.like_the_originals().iter();
    let slips = of_original.filter_map(|name| Some(nearest::slip(name, nearest::original(name)?)));
    environment.unknown().iter().map(|name| nearest::unknown(name)).chain(slips).collect()
}
