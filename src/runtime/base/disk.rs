//! The recovery directory, made safe for a program without standard streams: no descriptor that its calls open, for a
//! moment or for long, is one of 0 to 2. What stays open is also closed in a forked child.

use crate::config::{Key, Settings};
use crate::error::{Error, Result};
use crate::journal::{Appender, Disk, FileDisk, Kept, Locked};
use crate::net::fork::{beyond_standard, Guarded};
use crate::net::host;
use std::fs::File;
use std::io;
use std::path::Path;

/// Makes a recovery directory if it is missing, durably and for this user alone. Refuses one that another user may change.
pub fn prepare_recovery(path: &Path) -> Result<()> {
    FileDisk::prepare(path, host::user()).map(drop)
}

/// A directory of the file system.
pub(crate) struct OwnDisk(FileDisk);

impl OwnDisk {
    /// The recovery directory of these settings. A relative path is taken from the present folder for good: the program may go to
    /// another one.
    pub(crate) fn of(settings: &Settings) -> Result<OwnDisk> {
        let path = settings.recovery_path.as_ref();
        let path = path.ok_or_else(|| Error::config("recovery is on: expected a recovery path (MS_RECOVERY_PATH)"))?;
        let whole = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        let opened = beyond_standard(|| FileDisk::open(whole, keep, host::user()));
        let opened = opened.map_err(|error| Error::system("cannot open a directory", &error))?;
        opened.map(OwnDisk).map_err(|error| {
            let setting = settings.origin(Key::RecoveryPath);
            Error::new(error.status(), format!("{setting} is {:?}: {}", path.display().to_string(), error.message()))
        })
    }

    fn with<T>(&self, call: impl FnOnce(&FileDisk) -> io::Result<T>) -> io::Result<T> {
        beyond_standard(|| call(&self.0))?
    }
}

/// Keeps a file open; a forked child closes it.
fn keep(open: &mut dyn FnMut() -> io::Result<File>) -> io::Result<Kept> {
    Ok(Box::new(Guarded::create(open)?))
}

impl Disk for OwnDisk {
    fn path(&self) -> &Path {
        self.0.path()
    }

    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.with(|disk| disk.read(name))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn Appender>> {
        self.with(|disk| disk.create(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }

    fn names(&self) -> io::Result<Vec<String>> {
        self.with(FileDisk::names)
    }

    fn sync(&self) -> io::Result<()> {
        self.with(FileDisk::sync)
    }

    fn lock(&self, name: &str, owner: &str) -> io::Result<Locked> {
        self.with(|disk| disk.lock(name, owner))
    }
}
