//! The secret that `muster run` has made for its job, where other processes of the same user find it: in the recovery directory, if the
//! job has one, and in a folder of the user's, by the scheduler's port, as long as the run lives.
//!
//! Invariant: nothing is believed that another user of this host could have put there. Deliberately absent: writing it, which is the
//! launcher's matter.

use crate::config::Password;
use crate::net::{file, host};
use crate::wiping::wiping;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The file's name in a recovery directory.
const IN_RECOVERY: &str = "job-secret";
/// The longest such file.
const MAX_BYTES: u64 = 4096;

/// This user's folder in which runs keep their secrets: below `$XDG_RUNTIME_DIR`, or else in /tmp.
pub fn folder() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|path| Path::new(path).is_absolute()) {
        Some(path) => PathBuf::from(path).join("muster"),
        None => PathBuf::from(format!("/tmp/muster-{}", host::user())),
    }
}

/// The file of the run whose scheduler has this port, in that folder.
pub fn file_of_port(port: u16) -> PathBuf {
    folder().join(format!("secret-{port}"))
}

/// The file in a recovery directory.
pub fn file_of_recovery(directory: &Path) -> PathBuf {
    directory.join(IN_RECOVERY)
}

/// What a run's file says: the run's secret, and the process that lives as long as the run.
pub fn text(secret: &str, pid: u32) -> String {
    format!("{secret}\n{pid} {}\n", host::start_ticks(pid))
}

/// Whether a file belongs to this user, and no other user may use it.
fn is_own(metadata: &Metadata) -> bool {
    metadata.uid() == host::user() && metadata.mode() & 0o077 == 0
}

/// The secret of this user's run whose scheduler has this port, if there is such a run and it lives.
pub fn of_port(port: u16) -> Option<Password> {
    let is_right = fs::symlink_metadata(folder()).is_ok_and(|metadata| metadata.is_dir() && is_own(&metadata));
    let (secret, process) = read(&file_of_port(port)).filter(|_| is_right)?;
    let (pid, ticks) = process.split_once(' ')?;
    let runs = host::alive(pid.parse().ok()?, ticks.trim().parse().ok()?) == host::Liveness::Alive;
    runs.then_some(secret)
}

/// The secret of the job whose recovery directory this is, if a run has made one.
pub fn of_recovery(directory: &Path) -> Option<Password> {
    read(&file_of_recovery(directory)).map(|(secret, _)| secret)
}

/// The first and the second line of a file that is this user's alone. Most processes have no such file, and wipe nothing.
fn read(path: &Path) -> Option<(Password, String)> {
    fs::symlink_metadata(path).ok().filter(|metadata| metadata.is_file() && is_own(metadata))?;
    wiping(|| {
        let text = String::from_utf8(file::read_private(path, MAX_BYTES).ok()?).ok()?;
        let mut lines = text.lines();
        let secret = lines.next().filter(|secret| !secret.is_empty())?;
        Some((Password::new(secret.to_owned()), lines.next().unwrap_or_default().to_owned()))
    })
}
