//! Files that a command writes for others to read: a reader finds the old text or the new one, never a part.

use crate::sys;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{fchown, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The bits of a mode that say which users may read, write and execute.
const PERMISSIONS: u32 = 0o777;
/// Those of its group.
const GROUPS: u32 = 0o070;

/// Has a new text written, and replaces this file once that has gone well. The new file has the group and the permissions of the old one.
/// A link is followed. A device or a pipe is written to as it is, and must have a reader.
pub fn replace<E>(
    path: &Path,
    failed: impl Fn(io::Error) -> E,
    write: impl FnOnce(&mut BufWriter<File>) -> Result<(), E>,
) -> Result<(), E> {
    let filled = |file: File| {
        let mut out = BufWriter::new(file);
        write(&mut out)?;
        out.flush().map_err(&failed)
    };
    let Some((place, like)) = place(path) else { return filled(as_it_is(path).map_err(&failed)?) };
    let mut fresh = place.clone().into_os_string();
    fresh.push(format!(".{}", std::process::id()));
    let written = made_anew(Path::new(&fresh), like).map_err(&failed).and_then(filled);
    let placed = written.and_then(|()| fs::rename(&fresh, &place).map_err(&failed));
    if placed.is_err() {
        let _ = fs::remove_file(&fresh);
    }
    placed
}

/// Makes a file that is nobody else's: what a killed process of the same number has left goes, and a link is not followed.
/// It has the mode and the group of the file that it replaces; or, without one, those of a new file.
fn made_anew(path: &Path, like: Option<Access>) -> io::Result<File> {
    let mode = like.map_or(0o666, |like| like.mode & !GROUPS);
    // It is never open to more users than its mode says, not even while it is empty.
    let make = || OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let file = match make() {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(path)?;
            make()
        }
        made => made,
    }?;
    if let Some(Access { mode, group }) = like {
        // What its group may do is not for another group.
        let is_theirs = file.metadata()?.gid() == group || fchown(&file, None, Some(group)).is_ok();
        let mode = if is_theirs { mode } else { mode & !GROUPS };
        // The umask may have taken something away.
        if Access::of(&file.metadata()?).mode != mode {
            file.set_permissions(Permissions::from_mode(mode))?;
        }
    }
    Ok(file)
}

/// Which users may do what with a file.
#[derive(Clone, Copy)]
struct Access {
    mode: u32,
    group: u32,
}

impl Access {
    fn of(found: &fs::Metadata) -> Access {
        Access { mode: found.permissions().mode() & PERMISSIONS, group: found.gid() }
    }
}

/// Replaces a file by this text.
pub fn replace_text(path: &Path, text: &str) -> io::Result<()> {
    replace(path, |error| error, |out| out.write_all(text.as_bytes()))
}

/// The file that is to be replaced, and who may do what with it if it is there; none if what is there cannot be replaced.
fn place(path: &Path) -> Option<(PathBuf, Option<Access>)> {
    match (fs::metadata(path), fs::canonicalize(path)) {
        (Ok(found), Ok(place)) if found.is_file() || found.is_dir() => Some((place, Some(Access::of(&found)))),
        (Err(_), _) if fs::symlink_metadata(path).is_err() => Some((path.to_owned(), None)),
        _ => None,
    }
}

fn as_it_is(path: &Path) -> io::Result<File> {
    // To open a pipe that nobody reads would wait for a reader; to write to one that is read may wait.
    let file = OpenOptions::new().write(true).create(true).truncate(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    sys::let_wait(&file)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_file_is_replaced_as_a_whole_and_links_devices_and_pipes_stay_what_they_are() {
        let folder = std::env::temp_dir().join(format!("muster-whole-{}", std::process::id()));
        fs::create_dir_all(folder.join("taken")).unwrap();
        let (file, link, loose) = (folder.join("file"), folder.join("link"), folder.join("loose"));
        assert!(replace_text(&folder.join("taken"), "text").is_err(), "it is a folder");
        replace_text(&file, "old").unwrap();
        symlink("taken/elsewhere", folder.join(format!("file.{}", std::process::id()))).unwrap();
        replace_text(&file, "old").unwrap();
        assert!(!folder.join("taken/elsewhere").exists(), "a link that was planted is not followed");
        let half =
            replace(&file, |error| error, |out| out.write_all(b"half").and_then(|()| Err(io::ErrorKind::Other.into())));
        assert!(half.is_err() && fs::read_to_string(&file).unwrap() == "old");
        symlink("file", &link).unwrap();
        symlink("nothing yet", &loose).unwrap();
        replace_text(&link, "new").unwrap();
        replace_text(&loose, "newest").unwrap();
        assert!([&link, &loose].iter().all(|path| fs::symlink_metadata(path).unwrap().is_symlink()));
        assert_eq!(fs::read_to_string(&file).unwrap() + &fs::read_to_string(&loose).unwrap(), "newnewest");
        let pipe = folder.join("pipe");
        let name = std::ffi::CString::new(pipe.to_str().unwrap()).unwrap();
        // SAFETY: the name ends with a zero byte.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        assert!(replace_text(&pipe, "unread").is_err());
        let mut reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&pipe).unwrap();
        replace_text(&pipe, "through").unwrap();
        let mut heard = String::new();
        io::Read::read_to_string(&mut reader, &mut heard).unwrap();
        assert_eq!(heard, "through");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 6);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_mode_and_a_group_that_were_set_stay() {
        let folder = std::env::temp_dir().join(format!("muster-mode-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (file, link) = (folder.join("file"), folder.join("link"));
        symlink("file", &link).unwrap();
        replace_text(&file, "first").unwrap();
        let access = || Access::of(&fs::metadata(&file).unwrap());
        let first = access();
        // A group that this process may give it: any, if it is root's.
        let group = if fchown(File::open(&file).unwrap(), None, Some(4321)).is_ok() { 4321 } else { first.group };
        for (mode, path) in [(first.mode, &file), (0o600, &file), (0o666, &file), (0o444, &file), (0o640, &link)] {
            fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
            replace_text(path, &format!("{mode:o}")).unwrap();
            assert_eq!((access().mode, access().group), (mode, group), "of {path:?}");
            assert_eq!(fs::read_to_string(&file).unwrap(), format!("{mode:o}"));
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
