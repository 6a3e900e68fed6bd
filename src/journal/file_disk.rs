//! The recovery directory on a real disk.
//!
//! Invariants:
//! - A missing directory is made with mode 0700, and durable in its parent.
//! - Every file has mode 0600, and one that is laxer is mended when it is opened.
//! - Symbolic links are not followed. A file that has a second name, or is another user's, is neither read nor written.
//! - A directory in which others may rename and remove files, or that is another user's, is refused.
//! - A file that stays open is opened through the [`Keep`] that the caller gives.
//!
//! Tested in `file_disk_test.rs`.

use super::disk::{refused, Appender, Disk, Lock, Locked};
use crate::error::{Error, Result, Status};
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::ops::Deref;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
const SUPERUSER: u32 = 0;
/// How much of a lock's file is read.
const OWNER_MAX_BYTES: usize = 64;
/// How long to wait until an owner has written who it is.
const OWNER_WAIT: Duration = Duration::from_millis(100);

/// A file that stays open.
pub type Kept = Box<dyn Deref<Target = File> + Send>;

/// Opens a file that stays open, so that it is among the descriptors that a forked child closes. Otherwise a child
/// that lives longer than this process would keep its lock.
pub type Keep = fn(&mut dyn FnMut() -> io::Result<File>) -> io::Result<Kept>;

/// A directory of the file system.
pub struct FileDisk {
    path: PathBuf,
    keep: Keep,
    /// The users whose files are taken for this process's own.
    users: Users,
}

/// The user of this process, the superuser, and, for a process of the superuser, the directory's owner.
#[derive(Clone, Copy)]
struct Users {
    own: u32,
    directory: u32,
}

impl Users {
    fn has(self, user: u32) -> bool {
        [self.own, SUPERUSER, self.directory].contains(&user)
    }
}

impl FileDisk {
    /// Opens the directory at `path`, for a process of this (effective) user. If it is missing it is made, parents included.
    pub fn open(path: impl Into<PathBuf>, keep: Keep, user: u32) -> Result<FileDisk> {
        let path = path.into();
        let owner = FileDisk::prepare(&path, user)?;
        Ok(FileDisk { path, keep, users: Users { own: user, directory: owner } })
    }

    /// Makes the directory if it is missing, durably and for this user alone. Refuses one that another user may change. Returns its
    /// owner.
    pub fn prepare(path: &Path, user: u32) -> Result<u32> {
        make_directory(path).map_err(|error| refused("make the directory", path, &error))?;
        let about = fs::metadata(path).map_err(|error| refused("look at the directory", path, &error))?;
        check_directory(path, about.mode(), about.uid(), user)?;
        Ok(about.uid())
    }

    /// Opens or makes a file. The directory is made anew if somebody has removed it.
    fn keep(&self, options: &OpenOptions, name: &str) -> io::Result<Kept> {
        let path = self.path.join(name);
        let open = || (self.keep)(&mut || options.open(&path));
        match open() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                FileDisk::prepare(&self.path, self.users.own)
                    .map_err(|error| io::Error::other(error.message().to_owned()))?;
                open()
            }
            opened => opened,
        }
    }
}

/// Makes a directory, and the parents that are missing. Each is made durable in its parent.
fn make_directory(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Err(ErrorKind::NotFound.into()),
    };
    make_directory(parent)?;
    match DirBuilder::new().mode(DIRECTORY_MODE).create(path) {
        // Several nodes of one host may begin at once.
        Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            return Err(io::Error::from_raw_os_error(libc::ENOTDIR))
        }
        made => made?,
    }
    File::open(parent)?.sync_all()
}

/// Refuses a directory in which another user may put a journal in the place of ours: that user could say what the job is.
fn check_directory(path: &Path, mode: u32, owner: u32, user: u32) -> Result<()> {
    let is_open = mode & libc::S_IWOTH != 0 && mode & libc::S_ISVTX == 0;
    let is_foreign = ![user, SUPERUSER].contains(&owner) && user != SUPERUSER;
    let (what, expected) = match (is_open, is_foreign) {
        (true, _) => {
            ("every user of this host may change what is in it", "a directory that others cannot write to (chmod o-w)")
        }
        (_, true) => ("it is another user's", "a directory that this process's user owns (chown)"),
        _ => return Ok(()),
    };
    let path = path.display();
    Err(Error::new(
        Status::Journal,
        format!("{path} cannot be trusted: {what}: expected {expected}, or one below it, which is made"),
    ))
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    // If a pipe has the name, the call does not wait for the pipe's other end.
    options.mode(FILE_MODE).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    options
}

/// Checks that this is a plain file of this process's user, with no other name. What else was put in its place is left as it is.
fn check_own(file: &File, users: Users) -> io::Result<()> {
    let about = file.metadata()?;
    let wrong = match () {
        () if !about.is_file() => "it is not a regular file: remove it",
        () if about.nlink() > 1 => "it is a hard link, the same file as one of another name: remove it",
        () if !users.has(about.uid()) => "it is another user's: remove it, or make it this user's (chown)",
        () => return Ok(()),
    };
    Err(io::Error::new(ErrorKind::InvalidInput, wrong))
}

fn mend_mode(file: &File) -> io::Result<()> {
    match file.metadata()?.permissions().mode() & 0o7777 & !FILE_MODE {
        0 => Ok(()),
        _ => file.set_permissions(Permissions::from_mode(FILE_MODE)),
    }
}

impl Disk for FileDisk {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let mut file = match options().read(true).open(self.path.join(name)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        check_own(&file, self.users)?;
        mend_mode(&file)?;
        // This reserves the memory beforehand, and returns an error if there is not enough.
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn Appender>> {
        self.remove(name)?;
        let file = self.keep(options().append(true).create_new(true), name)?;
        mend_mode(&file)?;
        Ok(Box::new(OpenFile { file, directory: self.path.clone() }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.path.join(name)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let names = fs::read_dir(&self.path)?.map(|entry| Ok(entry?.file_name().into_string().ok()));
        names.filter_map(io::Result::transpose).collect()
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    fn lock(&self, name: &str, owner: &str) -> io::Result<Locked> {
        let file = self.keep(options().read(true).write(true).create(true).truncate(false), name)?;
        check_own(&file, self.users)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(Locked::Taken(owner_of(&file, OWNER_WAIT)?)),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let held = FileLock { file, directory: self.path.clone(), pid: std::process::id() };
        mend_mode(&held.file)?;
        held.file.set_len(0)?;
        (&**held.file).write_all(owner.as_bytes())?;
        Ok(Locked::Held(Box::new(held)))
    }
}

/// What a lock's owner has written into its file. An owner that has just taken the lock may not have written yet.
fn owner_of(file: &File, wait: Duration) -> io::Result<String> {
    let deadline = Instant::now() + wait;
    loop {
        let mut owner = [0; OWNER_MAX_BYTES];
        let length = file.read_at(&mut owner, 0)?;
        if owner[..length].ends_with(b"\n") || Instant::now() >= deadline {
            return Ok(String::from_utf8_lossy(&owner[..length]).into_owned());
        }
        thread::sleep(Duration::from_millis(1));
    }
}

struct OpenFile {
    file: Kept,
    directory: PathBuf,
}

impl Appender for OpenFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        (&**self.file).write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        // This syncs a changed length, but not the file's times.
        self.file.sync_data()
    }

    fn is_called(&self, name: &str) -> io::Result<bool> {
        is_at(&self.file, &self.directory.join(name))
    }
}

/// Whether this is the file that has this path.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let own = file.metadata()?;
    match fs::symlink_metadata(path) {
        Ok(there) => Ok((own.dev(), own.ino()) == (there.dev(), there.ino())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The lock's file stays when the lock goes: a process that has it open must not lock a file that nobody else finds
/// any more.
struct FileLock {
    file: Kept,
    directory: PathBuf,
    pid: u32,
}

impl Lock for FileLock {
    fn is_called(&self, name: &str) -> io::Result<bool> {
        is_at(&self.file, &self.directory.join(name))
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // If the file were only closed, a child that is just being started would keep the lock until its exec. A forked
        // child that drops its copy must not take the lock from its parent.
        if self.pid == std::process::id() {
            let _ = self.file.set_len(0); // the next owner is not to be taken for this one
            let _ = self.file.unlock();
        }
    }
}

#[cfg(test)]
#[path = "file_disk_test.rs"]
mod tests;
