//! Finds the file that a task names, before anything is started.

use crate::sys;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A program that can be executed.
#[derive(Debug)]
pub struct Program {
    /// The file.
    pub path: PathBuf,
    /// The name that it is told to have, then its arguments.
    pub words: Vec<OsString>,
}

/// Finds what `task` means: a Python file is run by python3, anything else is looked up as a shell does.
/// `search` is the value of PATH. The error is a sentence for the user.
pub fn find(task: &[OsString], search: &OsStr) -> Result<Program, String> {
    let name = task.first().ok_or("there is no program to run")?;
    if Path::new(name).extension() != Some(OsStr::new("py")) {
        return Ok(Program { path: look_up(name, search)?, words: task.to_vec() });
    }
    match Path::new(name) {
        path if path.is_file() => {}
        path if path.is_dir() => return Err(is_folder(name)),
        _ => return Err(format!("{name:?}: there is no such file")),
    }
    let python = OsStr::new("python3");
    let words = std::iter::once(python.to_owned()).chain(task.iter().cloned()).collect();
    Ok(Program {
        path: look_up(python, search).map_err(|error| format!("{name:?} needs python3, but {error}"))?,
        words,
    })
}

fn is_folder(name: &OsStr) -> String {
    format!("{name:?} is a folder: expected a program")
}

fn look_up(name: &OsStr, search: &OsStr) -> Result<PathBuf, String> {
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return match (path.is_file(), sys::executable(&path)) {
            (true, true) => Ok(path),
            (true, false) => Err(format!("{name:?} is not executable")),
            (false, _) if path.is_dir() => Err(is_folder(name)),
            (false, _) => Err(format!("{name:?}: there is no such program")),
        };
    }
    std::env::split_paths(search)
        .map(|folder| if folder.as_os_str().is_empty() { Path::new(".").join(name) } else { folder.join(name) })
        .find(|path| path.is_file() && sys::executable(path))
        .ok_or_else(|| {
            let here =
                if Path::new(name).is_file() { " (a file of that name is here: write ./ before it)" } else { "" };
            format!("{name:?} was not found in PATH{here}")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn a_program_is_found_as_a_shell_finds_it() {
        let found = find(&words("sh -c true"), OsStr::new("/nowhere:/usr/bin:/bin")).unwrap();
        assert!(found.path.ends_with("bin/sh"), "{found:?}");
        assert_eq!(found.words, words("sh -c true"));
        assert!(find(&words("/bin/sh"), OsStr::new("")).is_ok());
    }

    #[test]
    fn what_cannot_run_is_said_beforehand() {
        let search = OsStr::new("/usr/bin:/bin");
        for (task, said) in [
            ("no-such-program", "not found in PATH"),
            ("./no-such-program", "no such program"),
            ("Cargo.toml", "write ./ before it"),
            ("./Cargo.toml", "not executable"),
            ("no-such.py", "no such file"),
            ("/", "is a folder: expected a program"),
        ] {
            let error = find(&words(task), search).unwrap_err();
            assert!(error.contains(said), "{task}: {error}");
        }
    }
}
