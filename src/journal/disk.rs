//! What this room needs of a directory. Names are plain file names in it.
//!
//! Invariant: an implementation promises only what was synced: bytes by [`Appender::sync`], and names by [`Disk::sync`].
//! Tested through all that uses it.

use crate::error::{Error, Result, Status};
use std::io;
use std::path::{Path, PathBuf};

/// A directory.
pub trait Disk: Send {
    /// The directory's path, for messages.
    fn path(&self) -> &Path;
    /// Reads a whole file. None if there is no such file.
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>>;
    /// Makes a new, empty file in the place of whatever has that name.
    fn create(&self, name: &str) -> io::Result<Box<dyn Appender>>;
    /// Puts a file in the place of another, which may be missing.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file, which may be missing.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// The names of all files.
    fn names(&self) -> io::Result<Vec<String>>;
    /// Returns when the names are durable as they are.
    fn sync(&self) -> io::Result<()>;
    /// Takes a lock that no two processes, and no two disks, hold at once, and leaves a word about the owner in its file.
    fn lock(&self, name: &str, owner: &str) -> io::Result<Locked>;
}

/// A file that grows at its end. It stays the same file when it is renamed.
pub trait Appender: Send {
    /// Writes all of these bytes at the end; after an error any part of them may be there.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Returns when length and bytes are durable as they are.
    fn sync(&mut self) -> io::Result<()>;
    /// Whether this is the file that has this name: somebody else may have removed it, or put another in its place.
    fn is_called(&self, name: &str) -> io::Result<bool>;
}

/// A lock that is held.
pub trait Lock: Send {
    /// Whether others find its file by this name: somebody may have removed it, and then another process can lock a new one.
    fn is_called(&self, name: &str) -> io::Result<bool>;
}

/// What came of [`Disk::lock`].
pub enum Locked {
    /// The lock is held until this is dropped, or the process dies.
    Held(Box<dyn Lock>),
    /// Somebody else holds the lock. This is the word about the owner in its file.
    Taken(String),
}

/// The path of one file.
pub(super) fn path_of(disk: &dyn Disk, name: &str) -> PathBuf {
    disk.path().join(name)
}

/// If something was refused, says in words what was tried (such as `write to`) on which file of the disk.
pub(super) fn tried<T>(disk: &dyn Disk, what: &str, name: &str, result: io::Result<T>) -> Result<T> {
    result.map_err(|error| refused(what, &path_of(disk, name), &error))
}

/// If something was refused, says in words what was tried on the directory itself.
pub(super) fn tried_directory<T>(disk: &dyn Disk, what: &str, result: io::Result<T>) -> Result<T> {
    result.map_err(|error| refused(what, disk.path(), &error))
}

/// What was tried on this path, why it was refused, and what would be right.
pub(super) fn refused(what: &str, path: &Path, error: &io::Error) -> Error {
    let expected = expected(error).map(|expected| format!(": expected {expected}")).unwrap_or_default();
    Error::new(Status::Journal, format!("cannot {what} {}: {error}{expected}", path.display()))
}

fn expected(error: &io::Error) -> Option<&'static str> {
    Some(match error.raw_os_error()? {
        libc::ENOSPC => "free space on that file system, or another recovery path (MS_RECOVERY_PATH)",
        libc::EDQUOT => "room within this user's quota there, or another recovery path (MS_RECOVERY_PATH)",
        libc::EROFS => "a recovery path (MS_RECOVERY_PATH) on a file system that can be written to",
        libc::EACCES | libc::EPERM => {
            "a recovery path (MS_RECOVERY_PATH) that this process's user owns and may read and write"
        }
        libc::ENOENT | libc::ESTALE => "the recovery path (MS_RECOVERY_PATH) to stay where it is",
        libc::ENOTDIR => "the recovery path (MS_RECOVERY_PATH) to be a directory",
        libc::ELOOP => "a plain file there: symbolic links are not followed",
        libc::EIO => "a disk that works: what was written last may be lost",
        libc::ENOLCK | libc::ENOSYS | libc::EOPNOTSUPP => {
            "a recovery path (MS_RECOVERY_PATH) on a file system with file locks"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_was_tried_where_why_and_what_would_be_right() {
        for (code, right) in [
            (libc::ENOSPC, "free space"),
            (libc::EDQUOT, "quota"),
            (libc::EROFS, "can be written to"),
            (libc::EACCES, "may read and write"),
            (libc::ENOENT, "to stay where it is"),
            (libc::ENOTDIR, "to be a directory"),
            (libc::ENOLCK, "file locks"),
        ] {
            let reason = io::Error::from_raw_os_error(code);
            let error = refused("write to", Path::new("/r/scheduler.journal"), &reason);
            assert_eq!(error.status(), Status::Journal);
            let begin = format!("cannot write to /r/scheduler.journal: {reason}: expected ");
            assert!(error.message().starts_with(&begin), "{error}");
            assert!(error.message()[begin.len()..].contains(right), "{error}");
        }
        let other = refused("sync", Path::new("/r"), &io::Error::other("odd"));
        assert_eq!(other.message(), "cannot sync /r: odd");
    }
}
