//! Folders and files that only their owner can read: 0700 and 0600. Nothing that is there is overwritten, except by [`replace`].
//!
//! Commands that change one folder take turns ([`turn`]): what one of them has read is still there when it writes. What is not
//! finished has a name that only the command with the turn uses. If it is there, a command was killed.

use crate::sys;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The largest file that is read: a revocation list with a hundred thousand entries fits.
const FILE_MAX_BYTES: u64 = 16 << 20;
/// The file whose lock (flock) is the turn. It stays when the turn ends: a process that has it open must not lock a file that
/// nobody else finds any more.
const TURNS: &str = ".muster_certs";
/// How long to wait for another command's end.
const PATIENCE: Duration = Duration::from_secs(10);

/// A result, or why there is none, in a sentence that names the file.
pub type Done<T> = Result<T, String>;

fn wrong(path: &Path, what: &str, error: &io::Error) -> String {
    format!("{path:?} can't be {what}: {error}")
}

/// The bytes of a file.
pub fn read(path: &Path) -> Done<Vec<u8>> {
    muster::net::file::read(path, FILE_MAX_BYTES).map_err(|why| format!("{path:?} {why}"))
}

/// The bytes of a file that not every user of this host can read.
pub fn read_private(path: &Path) -> Done<Vec<u8>> {
    muster::net::file::read_private(path, FILE_MAX_BYTES).map_err(|why| format!("{path:?}, which {why}"))
}

/// Whether something is there, whatever it is.
pub fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// Makes this folder and those above it, if they are not there.
pub fn make(path: &Path) -> Done<()> {
    if path.as_os_str().is_empty() || path.is_dir() {
        return Ok(());
    }
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700).create(path).map_err(|error| wrong(path, "made", &error))
}

/// A command's turn to change a folder. It ends when this is dropped, or when the process ends, however that is.
#[must_use]
pub struct Turn {
    _locked: File,
}

/// Waits until no other command changes this folder.
pub fn turn(folder: &Path) -> Done<Turn> {
    turn_within(folder, PATIENCE)
}

fn turn_within(folder: &Path, patience: Duration) -> Done<Turn> {
    let path = folder.join(TURNS);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = options.open(&path).map_err(|error| wrong(&path, "opened", &error))?;
    let locked = sys::lock_within(patience, || file.try_lock()).map_err(|error| {
        let why = wrong(&path, "locked", &error);
        format!("{why}: expected {folder:?} to be on a file system with file locks")
    })?;
    match locked {
        true => Ok(Turn { _locked: file }),
        false => Err(format!(
            "another muster certs works on {folder:?}, and has not ended within {} s: run this again when it has ended",
            patience.as_secs()
        )),
    }
}

/// The names of what is in a folder, in order; none if there is no such folder.
pub fn names(path: &Path) -> Done<Vec<String>> {
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|error| wrong(path, "read", &error))?,
    };
    let names = entries.map(|entry| entry.map(|entry| entry.file_name().into_string().ok()));
    let names: io::Result<Vec<Option<String>>> = names.collect();
    let mut names: Vec<String> = names.map_err(|error| wrong(path, "read", &error))?.into_iter().flatten().collect();
    names.sort();
    Ok(names)
}

/// When a file was written last.
pub fn written(path: &Path) -> Done<SystemTime> {
    let about = fs::metadata(path).and_then(|about| about.modified());
    about.map_err(|error| wrong(path, "read", &error))
}

/// Makes a file that is not there yet.
pub fn create(path: &Path, bytes: &[u8]) -> Done<()> {
    let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let file = opened.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => format!("{path:?} is there already"),
        _ => wrong(path, "made", &error),
    })?;
    fill(&file, bytes).map_err(|error| {
        let _ = fs::remove_file(path);
        wrong(path, "written", &error)
    })
}

/// Puts a file in place of another, or where there is none. The old one or the new one is there at every moment. Needs the
/// turn.
pub fn replace(path: &Path, bytes: &[u8]) -> Done<()> {
    let fresh = beside(path)?;
    create(&fresh, bytes)?;
    fs::rename(&fresh, path).map_err(|error| {
        let _ = fs::remove_file(&fresh);
        wrong(path, "replaced", &error)
    })
}

fn fill(mut file: &File, bytes: &[u8]) -> io::Result<()> {
    file.write_all(bytes)?;
    file.sync_all()
}

/// A name for what is not finished. Removes what a killed command with this process's number has left there: in a container every
/// command may have the same one.
fn beside(path: &Path) -> Done<PathBuf> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let free = path.with_file_name(format!(".{name}.{}", std::process::id()));
    // A link is removed, and not what it leads to.
    let removed = match fs::symlink_metadata(&free) {
        Ok(about) if about.is_dir() => fs::remove_dir_all(&free),
        Ok(_) => fs::remove_file(&free),
        Err(_) => Ok(()), // nothing is there, or its maker says what is wrong
    };
    removed.map_err(|error| wrong(&free, "removed", &error))?;
    Ok(free)
}

/// A folder that appears with all that is in it, or not at all.
pub struct Fresh {
    path: PathBuf,
    temporary: PathBuf,
}

impl Fresh {
    /// Begins a folder that is not there yet. Needs the turn.
    pub fn begin(path: &Path) -> Done<Fresh> {
        if is_there(path) {
            return Err(format!("{path:?} is there already"));
        }
        let temporary = beside(path)?;
        DirBuilder::new().mode(0o700).create(&temporary).map_err(|error| wrong(path, "made", &error))?;
        Ok(Fresh { path: path.to_owned(), temporary })
    }

    /// Puts a file into it.
    pub fn put(&self, name: &str, bytes: &[u8]) -> Done<()> {
        create(&self.temporary.join(name), bytes)
    }

    /// Gives the folder its name, so that others see it.
    pub fn finish(self) -> Done<()> {
        fs::rename(&self.temporary, &self.path).map_err(|error| wrong(&self.path, "made", &error))
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        // If the folder has got its name, there is nothing under the temporary one.
        let _ = fs::remove_dir_all(&self.temporary);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::TestFolder;
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_folder_appears_whole_or_not_at_all() {
        let place = TestFolder::new();
        let path = place.path.join("deep/er");
        make(path.parent().unwrap()).unwrap();
        let fresh = Fresh::begin(&path).unwrap();
        fresh.put("key", b"secret").unwrap();
        assert!(!is_there(&path));
        fresh.finish().unwrap();
        assert_eq!((mode(&path), mode(&path.join("key"))), (0o700, 0o600));
        assert!(Fresh::begin(&path).is_err_and(|why| why.ends_with("er\" is there already")));
        drop(Fresh::begin(&place.path.join("given up")).unwrap());
        assert_eq!(names(&place.path).unwrap(), ["deep"]);
        assert_eq!(names(path.parent().unwrap()).unwrap(), ["er"]);
    }

    #[test]
    fn only_replacing_overwrites() {
        let place = TestFolder::new();
        let path = place.path.join("file");
        create(&path, b"1").unwrap();
        assert!(create(&path, b"2").is_err_and(|why| why.ends_with("file\" is there already")));
        assert_eq!(read(&path).unwrap(), b"1");
        replace(&path, b"3").unwrap();
        assert_eq!((read(&path).unwrap(), mode(&path)), (b"3".to_vec(), 0o600));
        assert_eq!(names(&place.path).unwrap(), ["file"]);
        let lost = place.path.join("none/file");
        assert!(replace(&lost, b"4").is_err_and(|why| why.contains("can't be made: No such file")));
        assert_eq!(names(&place.path.join("none")).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn what_a_killed_command_has_left_is_in_nobodys_way() {
        let place = TestFolder::new();
        let (file, folder) = (place.path.join("file"), place.path.join("folder"));
        let keep = place.path.join("keep");
        fs::create_dir(&keep).unwrap();
        let leave: [fn(&Path, &Path); 4] = [
            |left, _| fs::write(left, "half").unwrap(),
            |left, _| fs::create_dir(left).and_then(|()| fs::write(left.join("key"), "half")).unwrap(),
            |left, keep| std::os::unix::fs::symlink(keep, left).unwrap(),
            |left, keep| fs::create_dir(left).and_then(|()| std::os::unix::fs::symlink(keep, left.join("a"))).unwrap(),
        ];
        for leave in leave {
            fs::write(keep.join("whole"), "of another").unwrap();
            leave(&beside(&file).unwrap(), &keep);
            replace(&file, b"whole").unwrap();
            assert_eq!((read(&file).unwrap(), mode(&file)), (b"whole".to_vec(), 0o600));
            leave(&beside(&folder).unwrap(), &keep);
            let fresh = Fresh::begin(&folder).unwrap();
            fresh.put("key", b"whole").unwrap();
            fresh.finish().unwrap();
            assert_eq!((names(&folder).unwrap(), mode(&folder)), (vec!["key".to_owned()], 0o700));
            fs::remove_dir_all(&folder).unwrap();
            assert_eq!(names(&place.path).unwrap(), ["file", "keep"]);
            assert_eq!(read(&keep.join("whole")).unwrap(), b"of another", "links are not followed");
        }
    }

    #[test]
    fn a_turn_is_waited_for_and_one_that_does_not_end_is_named() {
        let place = TestFolder::new();
        let own = turn(&place.path).unwrap();
        assert_eq!(mode(&place.path.join(TURNS)), 0o600);
        let why = turn_within(&place.path, Duration::ZERO).err().unwrap();
        let expected = format!("another muster certs works on {:?}, and has not ended within 0 s: run", place.path);
        assert!(why.starts_with(&expected), "{why}");
        std::thread::scope(|scope| {
            let next = scope.spawn(|| turn(&place.path).map(drop));
            drop(own);
            next.join().unwrap().unwrap();
        });
        let lost = place.path.join("none");
        assert!(turn(&lost).is_err_and(|why| why.contains(".muster_certs\" can't be opened: No such file")));
        make(&lost).unwrap();
        std::os::unix::fs::symlink("elsewhere", lost.join(TURNS)).unwrap();
        assert!(turn(&lost).is_err(), "links are not followed");
        assert!(!is_there(&lost.join("elsewhere")));
    }
}
