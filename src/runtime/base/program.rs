//! What goes between a node and the program that uses it, beside its calls.

use super::interrupts::Interrupts;
use super::notices::Notices;
use crate::types::Hook;

/// One node's program.
#[derive(Default)]
pub(crate) struct Program {
    /// What ends the waits of its calls.
    pub interrupts: Interrupts,
    /// What calls its functions once operations have ended.
    pub notices: Notices,
}

impl Program {
    /// One that is asked by this hook.
    pub(crate) fn asked_by(hook: Hook) -> Program {
        Program { interrupts: Interrupts::new(hook), notices: Notices::default() }
    }
}
