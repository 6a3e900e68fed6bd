//! Passwords, and the job's secret, which is set in the same way: from a setting, a file or a descriptor.
//!
//! Invariant: what came by a descriptor is kept. It can be read only once, and it is needed when the files are read
//! again, or when another cluster is opened in this process. A descriptor's number is never read twice: by then it may
//! belong to something else.

use crate::config::{Lock, Password, PasswordSource};
use crate::error::Result;
use crate::net::{file, inherited::Inherited};
use crate::wiping::wiping;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The longest password, without the newline behind it.
const MAX_BYTES: usize = 1024;
/// How long the writer of a descriptor may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// What descriptors have said, or why they have not.
static TAKEN: Mutex<BTreeMap<i32, Said>> = Mutex::new(BTreeMap::new());

/// The text, or what is wrong, in words that follow the name of where it comes from.
type Said = std::result::Result<Password, String>;

/// The password that opens a file, or the secret that is set in the same way, if there is any.
pub fn password(lock: &Lock) -> Result<Option<Password>> {
    let said = match &lock.source {
        PasswordSource::None => return Ok(None),
        PasswordSource::Given(password) => Ok(password.clone()),
        PasswordSource::File(file) => wiping(|| of_file(&file.path)),
        PasswordSource::Descriptor(number) => of_descriptor(*number),
    };
    said.map(Some).map_err(|why| lock.error(&why))
}

fn of_file(path: &Path) -> Said {
    text(file::read_password(path, MAX_BYTES as u64)?)
}

fn of_descriptor(number: i32) -> Said {
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(said) = taken.get(&number) {
        return said.clone();
    }
    let descriptor = Inherited::take(number)?; // nothing is read yet: this can be tried again
    let said = wiping(|| descriptor.read(MAX_BYTES, PATIENCE).and_then(text));
    taken.insert(number, said.clone());
    said
}

/// The password in these bytes.
fn text(bytes: Vec<u8>) -> Said {
    String::from_utf8(bytes).map(Password::new).map_err(|_| "is not text in UTF-8".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Status;
    use std::io::{self, Write};
    use std::os::fd::IntoRawFd;
    use std::os::unix::fs::PermissionsExt;

    /// A descriptor with this text in it, as a process inherits it.
    fn saying(text: &[u8]) -> Lock {
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(text).unwrap();
        socket2::SockRef::from(&reader).set_cloexec(false).unwrap();
        Lock { source: PasswordSource::Descriptor(reader.into_raw_fd()), setting: "client_password_fd".to_owned() }
    }

    #[test]
    fn the_newline_does_not_count_to_the_longest_password() {
        let path = std::env::temp_dir().join(format!("muster-password-{}", std::process::id()));
        for end in ["", "\n"] {
            for (length, fits) in [(1024, true), (1025, false), (1026, false), (5000, false)] {
                std::fs::write(&path, format!("{}{end}", "x".repeat(length))).unwrap();
                std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
                match of_file(&path) {
                    Ok(password) => assert!(fits && password.reveal().len() == length, "{length}"),
                    Err(why) => assert!(!fits && why == "is too long: expected at most 1024 bytes", "{length}: {why}"),
                }
            }
        }
        std::fs::remove_file(&path).unwrap();
    }

    /// All in one test, because the number of a descriptor that has been read soon belongs to another.
    #[test]
    fn a_descriptor_is_read_once_and_what_was_right_or_wrong_stays_so() {
        let (right, wrong) = (saying(b"hunter2\n"), saying(b"\xff"));
        let first = password(&right).unwrap().unwrap();
        assert_eq!(first.reveal(), "hunter2");
        let again = password(&right).unwrap().unwrap();
        assert_eq!(first.reveal().as_ptr(), again.reveal().as_ptr(), "it is there once");
        for _ in 0..2 {
            let error = password(&wrong).unwrap_err();
            assert_eq!(error.status(), Status::Config);
            let PasswordSource::Descriptor(number) = wrong.source else { unreachable!() };
            assert_eq!(error.message(), format!("client_password_fd is \"{number}\", which is not text in UTF-8"));
        }
    }
}
