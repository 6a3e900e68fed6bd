//! A small file that a user has named, read as a whole.

use super::fork::beyond_standard;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Returns the bytes of a file, `most` of them at the most. An error's words follow the file's name in a sentence.
pub fn read(path: &Path, most: u64) -> Result<Vec<u8>, String> {
    fitting(read_if(path, most + 1, |_| Ok(()))?, most)
}

/// Reads a file as [`read`] does, but refuses it if every user of this host can read it.
pub fn read_private(path: &Path, most: u64) -> Result<Vec<u8>, String> {
    fitting(read_if(path, most + 1, is_private)?, most)
}

/// Reads a password, or a secret, as [`read_private`] does. One newline at its end is not part of it.
pub fn read_password(path: &Path, most: u64) -> Result<Vec<u8>, String> {
    fitting(without_newline(read_if(path, most + 2, is_private)?), most)
}

/// The same text without one newline at its end.
pub(super) fn without_newline(mut text: Vec<u8>) -> Vec<u8> {
    if text.last() == Some(&b'\n') {
        text.pop();
    }
    text
}

/// These bytes, if there are no more than so many.
pub(super) fn fitting(bytes: Vec<u8>, most: u64) -> Result<Vec<u8>, String> {
    match bytes.len() as u64 > most {
        true => Err(format!("is too long: expected at most {most} bytes")),
        false => Ok(bytes),
    }
}

fn is_private(file: &File) -> Result<(), String> {
    match file.metadata().map(|it| it.permissions().mode()) {
        Ok(mode) if mode & 0o004 == 0 => Ok(()),
        Ok(_) => Err("any user of this host can read: expected a file that only its owner can (chmod 600)".to_owned()),
        Err(error) => Err(format!("can't be read: {error}")),
    }
}

/// The first bytes of a file that is right: so many at the most.
fn read_if(path: &Path, first: u64, is_right: impl FnOnce(&File) -> Result<(), String>) -> Result<Vec<u8>, String> {
    let unreadable = |error: io::Error| format!("can't be read: {error}");
    // This is asked first, because to open a pipe would wait for its writer.
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err("is no file".to_owned());
    }
    let file = beyond_standard(|| File::open(path)).and_then(|opened| opened).map_err(unreadable)?;
    is_right(&file)?; // checks the file that was opened, not what the name stands for by now
    let mut bytes = Vec::new();
    file.take(first).read_to_end(&mut bytes).map_err(unreadable)?;
    Ok(bytes)
}
