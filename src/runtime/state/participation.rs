//! Whether this process takes part in its cluster, and all that changes it.

use crate::error::{Error, Status};

/// How this process stands to its cluster.
#[derive(Default)]
pub enum Participation {
    /// It is about to join, or is a node.
    #[default]
    Ongoing,
    /// It could not join, or cannot go on, for this reason.
    Failed(Error),
    /// The node has left (with a warning, perhaps).
    Left(Option<String>),
    /// The agent thread has ended without either.
    Ended,
}

impl Participation {
    /// Whether it takes part no more.
    pub fn is_over(&self) -> bool {
        !matches!(self, Participation::Ongoing)
    }

    /// It cannot go on. A node that has left before stays one that has left.
    pub fn fail(&mut self, error: Error) {
        if !matches!(self, Participation::Left(_)) {
            *self = Participation::Failed(error);
        }
    }

    /// The node has left (with a warning, perhaps).
    pub fn leave(&mut self, warning: Option<String>) {
        *self = Participation::Left(warning);
    }

    /// The agent thread ends. Why it does stays known.
    pub fn end(&mut self) {
        if !self.is_over() {
            *self = Participation::Ended;
        }
    }
}

/// The error of a call that needs the cluster which this process has left.
pub fn left_error() -> Error {
    Error::new(Status::State, "this process has left its cluster")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_later_hides_no_reason() {
        let mut own = Participation::default();
        assert!(!own.is_over());
        own.end();
        assert!(own.is_over() && matches!(own, Participation::Ended));
        own.fail(Error::config("a reason"));
        own.end();
        assert!(matches!(&own, Participation::Failed(error) if error.message() == "a reason"));
        own.leave(Some("a warning".into()));
        own.fail(Error::config("a reason"));
        own.end();
        assert!(matches!(own, Participation::Left(Some(warning)) if warning == "a warning"));
    }
}
