//! The secret of a run. It is made here if everything that the launcher starts is on this host and nobody has set one.
//! With it, other users of the host cannot pass for one of the run's processes.
//!
//! It reaches the children, and what this process asks the scheduler, only by the environment. Other processes of the
//! same user find it in a file (`muster::secret::kept`).

use super::parse::{RunOptions, SchedulerAt};
use super::recovery::unfit;
use crate::voice::Voice;
use muster::config::Key;
use muster::net::host;
use muster::runtime;
use muster::secret::kept;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const VARIABLE: &str = "MUSTER_JOB_SECRET";
const VARIABLE_OF_FILE: &str = "MUSTER_JOB_SECRET_FILE";
/// The settings of descriptors, which only one process can read.
const DESCRIPTORS: [Key; 3] = [Key::JobSecretFd, Key::ClientPasswordFd, Key::ServerPasswordFd];

/// Refuses a secret or password that is to come by a descriptor: all processes that this command starts would share it,
/// and the first would read it.
pub fn check(command: &str) -> Result<(), String> {
    for setting in DESCRIPTORS.map(Key::setting) {
        let variable = setting.variable();
        if let Some(value) = std::env::var_os(&variable).filter(|value| !value.is_empty()) {
            let file = variable.replace("_FD", "_FILE");
            return Err(format!(
                "{variable} is {value:?}, which one process alone can read: expected {file} under {command}"
            ));
        }
    }
    Ok(())
}

/// The secret's file of a live run. It is removed when this is dropped.
pub struct RunSecret {
    secret: String,
    /// Where it is shown, and what the file says.
    file: Option<(PathBuf, String)>,
}

impl RunSecret {
    /// Makes a secret, or takes that of the job that goes on, and sets it in the environment. Makes none if the user
    /// has set one, or has set none (`MUSTER_JOB_SECRET=`), or if it would not reach all: other hosts take part,
    /// or the scheduler runs elsewhere (not `has_scheduler`). In a
    /// run that one command leads, the launcher that has the scheduler makes it for all hosts. The error is a sentence.
    pub fn make(
        options: &RunOptions,
        has_scheduler: bool,
        recovery: Option<&Path>,
    ) -> Result<Option<RunSecret>, String> {
        // An empty secret means that there is none. A file that has no name is not set.
        let is_set = |name| std::env::var_os(name).is_some_and(|value| name == VARIABLE || !value.is_empty());
        let reaches_all = has_scheduler && (options.all_here() || options.placement.scheduler == SchedulerAt::Here);
        if !reaches_all || is_set(VARIABLE) || is_set(VARIABLE_OF_FILE) {
            return Ok(None);
        }
        let secret = match recovery.and_then(kept::of_recovery) {
            Some(secret) => secret.reveal().to_owned(),
            None => draw().map_err(|error| format!("can't make the run's secret: {error}"))?,
        };
        if let Some(directory) = recovery {
            runtime::prepare_recovery(directory).map_err(|error| unfit(directory, error.message()))?;
            put(&kept::file_of_recovery(directory), &format!("{secret}\n")).map_err(|error| unfit(directory, error))?;
        }
        std::env::set_var(VARIABLE, OsString::from(&secret));
        Ok(Some(RunSecret { secret, file: None }))
    }

    /// The secret itself.
    pub fn reveal(&self) -> &str {
        &self.secret
    }

    /// From now on other processes find the secret, as long as the process with this id lives: the launcher, or its
    /// scheduler.
    pub fn show(&mut self, scheduler: SocketAddr, pid: u32, voice: &Voice) {
        let (file, text) = (kept::file_of_port(scheduler.port()), kept::text(&self.secret, pid, scheduler.ip()));
        match own_folder(&kept::folder()).and_then(|()| put(&file, &text)) {
            Ok(()) => self.file = Some((file, text)).filter(|_| pid == std::process::id()),
            Err(error) => voice.say(format!(
                "muster: the run's secret can't be kept in {}, so that muster status does not find it: {error}\n",
                file.display()
            )),
        }
    }
}

impl Drop for RunSecret {
    fn drop(&mut self) {
        if let Some((file, text)) = &self.file {
            // Another run on this port may have begun since, and put its own there.
            let is_own = fs::read_to_string(file).is_ok_and(|found| found == *text);
            if is_own {
                let _ = fs::remove_file(file); // else it says of a process that has ended
            }
        }
    }
}

/// 256 bits, in hexadecimal.
fn draw() -> io::Result<String> {
    let bytes: [u8; 32] = host::random_bytes().map_err(|error| io::Error::other(error.message().to_owned()))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Checks or makes a folder that only this user can read.
fn own_folder(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    let metadata = fs::symlink_metadata(folder)?;
    match metadata.is_dir() && metadata.uid() == host::user() && metadata.mode() & 0o077 == 0 {
        true => Ok(()),
        false => Err(io::Error::other("its folder belongs to another user, or others may use it: expected mode 700")),
    }
}

/// Puts a file that only this user can read in the place of what was there.
fn put(path: &Path, text: &str) -> io::Result<()> {
    let new = path.with_extension(format!("new-{}", std::process::id()));
    let _ = fs::remove_file(&new); // of a process that had this number
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    let put = file.write_all(text.as_bytes()).and_then(|()| fs::rename(&new, path)); // it need not outlive the host's end: no process does
    put.inspect_err(|_| {
        let _ = fs::remove_file(&new); // part of a secret
    })
}

#[cfg(test)]
mod tests {
    use super::super::parse::{parse, Placement};
    use super::*;
    use crate::cli::words::Asked;

    #[test]
    fn a_recovery_path_that_is_no_directory_is_named_once_with_what_would_be_right() {
        let Ok(Asked::With(options)) = parse(vec!["a".into()], Placement::default(), false) else {
            panic!("it is good")
        };
        let why =
            RunSecret::make(&options, true, Some(Path::new("/dev/null"))).err().expect("nothing can be kept there");
        assert!(why.starts_with("MS_RECOVERY_PATH is \"/dev/null\", where nothing can be kept: "), "{why}");
        assert!(why.ends_with("expected the recovery path (MS_RECOVERY_PATH) to be a directory"), "{why}");
        assert_eq!(why.matches("expected").count(), 1, "{why}");
    }
}
