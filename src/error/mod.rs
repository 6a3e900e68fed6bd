//! `Error`, and the one table from it to status code and text.
//!
//! An error carries a status, a full sentence, and what it is about: the [`Failure`] that broke a cluster or a group, or the
//! message that did not fit its receive.

mod failure;
pub mod memory;
mod status;

pub use failure::{Culprit, Failure, LastCall};
pub use status::Status;

use crate::types::Received;
use std::fmt;
use std::sync::Arc;

/// What every fallible function of the crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A status and the sentence that goes with it. Clones of an error share its text. A group that breaks with many
/// requests pending ends all of them with one error, and there may be no memory left for more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(Arc<Said>);

#[derive(Debug, PartialEq, Eq)]
struct Said {
    status: Status,
    message: String,
    about: About,
}

/// What an error is about, beside its sentence.
#[derive(Debug, PartialEq, Eq)]
enum About {
    Nothing,
    /// The first cause of a break.
    Failure(Failure),
    /// A message that did not fit its receive.
    Message(Received),
}

impl Error {
    /// An error with this sentence. The sentence says which input, what it was, and what would be right.
    pub fn new(status: Status, message: impl Into<String>) -> Error {
        Error::about(status, message.into(), About::Nothing)
    }

    fn about(status: Status, message: String, about: About) -> Error {
        Error(Arc::new(Said { status, message, about }))
    }

    /// A bad argument.
    pub fn invalid(message: impl Into<String>) -> Error {
        Error::new(Status::Invalid, message)
    }

    /// A bad setting.
    pub fn config(message: impl Into<String>) -> Error {
        Error::new(Status::Config, message)
    }

    /// The operating system refused something: `what` says what was tried.
    pub fn system(what: impl fmt::Display, error: &std::io::Error) -> Error {
        let advice = match error.raw_os_error() {
            Some(libc::EMFILE) => {
                ": raise this process's limit of descriptors (ulimit -n), or have the program close some"
            }
            Some(libc::ENFILE) => ": raise the system's limit of open files (fs.file-max)",
            _ => "",
        };
        Error::new(Status::System, format!("{what}: {error}{advice}"))
    }

    /// What went wrong, as the C ABI counts it.
    pub fn status(&self) -> Status {
        self.0.status
    }

    /// The full sentence.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The first cause, where a group or the cluster broke.
    pub fn failure(&self) -> Option<&Failure> {
        match &self.0.about {
            About::Failure(failure) => Some(failure),
            About::Nothing | About::Message(_) => None,
        }
    }

    /// A receive that this message did not fit.
    pub fn misfit(sentence: String, message: Received) -> Error {
        Error::about(Status::Mismatch, sentence, About::Message(message))
    }

    /// The message that did not fit, if that is the error.
    pub fn message_that_did_not_fit(&self) -> Option<Received> {
        match &self.0.about {
            About::Message(message) => Some(*message),
            About::Nothing | About::Failure(_) => None,
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        Error::about(failure.status, failure.to_string(), About::Failure(failure))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_what_they_say() {
        let error = Error::new(Status::Timeout, "barrier #1 has taken 2 s");
        let another = error.clone();
        assert_eq!(error, another);
        assert!(std::ptr::eq(error.message(), another.message()), "no memory is taken");
    }
}
