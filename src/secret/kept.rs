//! The secret that `muster run` has made for its job, where other processes of the same user find it: in the recovery directory, if the
//! job has one, and in a folder of the user's, by the scheduler's port, as long as the run lives.
//!
//! Invariant: nothing is believed that another user of this host could have put there. Deliberately absent: writing it, which is the
//! launcher's matter.

use crate::config::Password;
use crate::net::{file, host, interface};
use crate::wiping::wiping;
use std::fs::{self, Metadata};
use std::net::{IpAddr, SocketAddr};
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

/// What a run's file says: the run's secret, the process that lives as long as the run, and where its scheduler listens.
pub fn text(secret: &str, pid: u32, listens: IpAddr) -> String {
    format!("{secret}\n{pid} {}\n{listens}\n", host::start_ticks(pid))
}

/// The secret of a run that lives, for connections to its scheduler.
pub struct OfRun {
    /// The run's secret.
    pub secret: Password,
    listens: IpAddr,
}

impl OfRun {
    /// Whether what listens at this address is the run's scheduler. Another job's may have the same port at another address.
    pub fn is_at(&self, address: &SocketAddr) -> bool {
        let is_its_own = self.listens.is_unspecified() || self.listens.to_canonical() == address.ip().to_canonical();
        is_its_own && interface::is_local(*address)
    }
}

/// Whether a file belongs to this user, and no other user may use it.
fn is_own(metadata: &Metadata) -> bool {
    metadata.uid() == host::user() && metadata.mode() & 0o077 == 0
}

/// The secret of this user's run whose scheduler has this port, if there is such a run and it lives.
pub fn of_port(port: u16) -> Option<OfRun> {
    let is_right = fs::symlink_metadata(folder()).is_ok_and(|metadata| metadata.is_dir() && is_own(&metadata));
    let (secret, about) = read(&file_of_port(port)).filter(|_| is_right)?;
    let (process, listens) = about.split_once('\n')?;
    let (pid, ticks) = process.split_once(' ')?;
    let runs = host::alive(pid.parse().ok()?, ticks.parse().ok()?) == host::Liveness::Alive;
    let listens = listens.trim().parse().ok().filter(|_| runs)?;
    Some(OfRun { secret, listens })
}

/// The secret of the job whose recovery directory this is, if a run has made one.
pub fn of_recovery(directory: &Path) -> Option<Password> {
    read(&file_of_recovery(directory)).map(|(secret, _)| secret)
}

/// The first line of a file that is this user's alone, and the others. Most processes have no such file, and wipe nothing.
fn read(path: &Path) -> Option<(Password, String)> {
    fs::symlink_metadata(path).ok().filter(|metadata| metadata.is_file() && is_own(metadata))?;
    wiping(|| {
        let text = String::from_utf8(file::read_private(path, MAX_BYTES).ok()?).ok()?;
        let (secret, about) = text.split_once('\n').unwrap_or((&text, ""));
        (!secret.is_empty()).then(|| (Password::new(secret.to_owned()), about.to_owned()))
    })
}
