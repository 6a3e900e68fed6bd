//! `Error`, and the one table from it to status code and text.
//!
//! An error carries a status, a full sentence, and, where a cluster or a group broke, the [`Failure`] that broke it.

mod failure;
pub mod memory;
mod status;

pub use failure::{Culprit, Failure, LastCall};
pub use status::Status;

use std::fmt;

/// What every fallible function of the crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A status and the sentence that goes with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    status: Status,
    message: String,
    failure: Option<Box<Failure>>,
}

impl Error {
    /// An error with this sentence. The sentence says which input, what it was, and what would be right.
    pub fn new(status: Status, message: impl Into<String>) -> Error {
        Error { status, message: message.into(), failure: None }
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
        self.status
    }

    /// The full sentence.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The first cause, where a group or the cluster broke.
    pub fn failure(&self) -> Option<&Failure> {
        self.failure.as_deref()
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        Error { status: failure.status, message: failure.to_string(), failure: Some(Box::new(failure)) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
