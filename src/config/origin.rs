//! Where the value of a setting is from.

use super::table::Setting;

/// Where a value is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Code,
    Variable(String),
    Launcher(String),
    /// A launcher's list of hosts, of which it is the first.
    FirstOf(String),
    Default,
}

impl Origin {
    /// The name of what the user has to mend to change this setting.
    pub(super) fn name(&self, setting: &Setting) -> String {
        match self {
            Origin::Code => setting.name.to_string(),
            Origin::Variable(name) | Origin::Launcher(name) => name.clone(),
            Origin::FirstOf(list) => format!("the first host of {list}"),
            Origin::Default => setting.usual_variable(),
        }
    }
}
