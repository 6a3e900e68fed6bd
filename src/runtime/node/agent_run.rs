//! Whether the agent thread runs, says its last words, or quits.

use super::connection::Connection;

/// How far the agent thread is from its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AgentRun {
    Runs,
    /// The brain has told how it ended. What it still has to say is written first.
    IsOver,
    /// It ends at once. `is_over`: the brain had told how it ended.
    Quits {
        is_over: bool,
    },
}

impl AgentRun {
    pub(super) fn is_over(self) -> bool {
        matches!(self, AgentRun::IsOver | AgentRun::Quits { is_over: true })
    }

    /// Whether the thread goes on, with this connection to the scheduler.
    pub(super) fn goes_on(self, connection: &Connection) -> bool {
        match self {
            AgentRun::Runs => true,
            AgentRun::IsOver => !connection.is_over(),
            AgentRun::Quits { .. } => false,
        }
    }

    /// The brain tells how it ended.
    pub(super) fn is_over_now(&mut self) {
        *self = match self {
            AgentRun::Runs | AgentRun::IsOver => AgentRun::IsOver,
            AgentRun::Quits { .. } => AgentRun::Quits { is_over: true },
        };
    }

    pub(super) fn quit(&mut self) {
        *self = AgentRun::Quits { is_over: self.is_over() };
    }
}
