//! A small file that a user has named, read as a whole.

use super::fork::beyond_standard;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Whether any user of this host can read this file.
pub fn is_public(path: &Path) -> std::io::Result<bool> {
    Ok(std::fs::metadata(path)?.permissions().mode() & 0o004 != 0)
}

/// The bytes of a file, `most` at the most. What is wrong is said in words that follow its name.
pub fn read(path: &Path, most: u64) -> Result<Vec<u8>, String> {
    let unreadable = |error: io::Error| format!("can't be read: {error}");
    // Asked first, for opening a pipe would wait for its writer.
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err("is no file".to_owned());
    }
    let mut bytes = Vec::new();
    let mut read = || File::open(path)?.take(most + 1).read_to_end(&mut bytes);
    beyond_standard(&mut read).and_then(|read| read).map_err(unreadable)?;
    match bytes.len() as u64 > most {
        true => Err(format!("is too long: expected at most {most} bytes")),
        false => Ok(bytes),
    }
}
