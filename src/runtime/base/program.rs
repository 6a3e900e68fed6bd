//! What passes between a node and the program that uses it, beside the program's calls.

use super::interrupts::Interrupts;
use super::notices::Notices;
use crate::types::Hook;

/// The program that uses one node.
#[derive(Default)]
pub(crate) struct Program {
    /// The interruptions that end the waits of its calls.
    pub interrupts: Interrupts,
    /// The notices that call its functions once operations have ended.
    pub notices: Notices,
}

impl Program {
    /// A program whose hook this is: it is asked whether to interrupt.
    pub(crate) fn asked_by(hook: Hook) -> Program {
        Program { interrupts: Interrupts::new(hook), notices: Notices::default() }
    }
}
