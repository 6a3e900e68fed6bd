//! Finds the runs that live, and the processes that each has on this host.

use crate::run::family::RunId;
use crate::run::folder::{dangling, identity, outputs, tenants, Tenant, RUNS};
use crate::sys;
use muster::net::host;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};

/// One launcher's part of a run that lives.
pub struct Found {
    /// Where its logs are.
    pub folder: PathBuf,
    /// What that folder says of it.
    pub tenant: Tenant,
}

/// The processes of a run on this host.
pub struct Processes {
    /// For each log: its name, and the processes that write it.
    pub logs: Vec<(String, BTreeSet<i32>)>,
    /// The processes that came of the run and write elsewhere.
    pub others: BTreeSet<i32>,
}

impl Found {
    /// Whether its processes run on this host.
    pub fn is_here(&self) -> bool {
        host::name().is_ok_and(|name| name == self.tenant.host())
    }

    /// Its processes on this host.
    pub fn processes(&self) -> Processes {
        let names: Vec<String> = self.tenant.logs().collect();
        let numbered = names.iter().enumerate();
        let files: HashMap<(u64, u64), usize> =
            numbered.filter_map(|(at, name)| Some((identity(&self.folder.join(name))?, at))).collect();
        let log_of = |pid: i32| outputs(pid).find_map(|file| files.get(&file).copied());
        let mut logs: Vec<(String, BTreeSet<i32>)> = names.into_iter().map(|name| (name, BTreeSet::new())).collect();
        let mut others = BTreeSet::new();
        let this = std::process::id() as i32;
        let members = self.tenant.run().members();
        let all: BTreeSet<i32> = sys::processes().into_iter().chain(members.iter().copied()).collect();
        for pid in all.into_iter().filter(|pid| *pid != this) {
            match log_of(pid) {
                Some(at) => drop(logs[at].1.insert(pid)),
                None if members.contains(&pid) => drop(others.insert(pid)),
                None => {}
            }
        }
        // Some may have ended since they were found, even if their parents have not heard of it yet.
        others.retain(|pid| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok());
        Processes { logs, others }
    }

    /// All these processes in one set.
    pub fn members(&self) -> BTreeSet<i32> {
        let Processes { logs, others } = self.processes();
        logs.into_iter().flat_map(|(_, writers)| writers).chain(others).collect()
    }

    /// The launcher of a run with --join, if this process is really it.
    pub fn launcher(&self) -> Option<i32> {
        let pid = i32::try_from(self.tenant.pid()).ok().filter(|_| self.tenant.joins())?;
        let first = identity(&self.folder.join(self.tenant.logs().next()?))?;
        let open = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
        open.flatten().any(|entry| identity(&entry.path()) == Some(first)).then_some(pid)
    }
}

/// The runs whose logs are in this folder. The error is a sentence.
pub fn in_folder(folder: &Path) -> Result<Vec<Found>, String> {
    let unread = |error: io::Error| format!("--log_dir is {folder:?}, which can't be read: {error}");
    dangling(folder).map_or(Ok(()), |error| Err(unread(error)))?;
    // The folder's full name, which does not depend on this process's own directory.
    let whole = folder.canonicalize().map_err(unread)?;
    let tenants = tenants(&whole).map_err(|error| match whole.is_dir() {
        true => format!("{:?}, which lists the runs of --log_dir, can't be read: {error}", folder.join(RUNS)),
        false => unread(error),
    })?;
    Ok(tenants.into_iter().map(|tenant| Found { folder: whole.clone(), tenant }).collect())
}

/// The runs that have processes on this host. Each child of a launcher writes its log, which tells the folder.
pub fn on_this_host() -> Vec<Found> {
    let marked = sys::processes().into_iter().filter(|pid| RunId::of_process(*pid).is_some());
    let folders: BTreeSet<PathBuf> = marked.flat_map(folders_of_outputs).collect();
    let found = folders.iter().filter_map(|folder| in_folder(folder).ok()).flatten();
    found.filter(Found::is_here).collect()
}

/// The folders of the files that a process has as its standard output and error: a program may have turned one of the
/// two elsewhere.
fn folders_of_outputs(pid: i32) -> impl Iterator<Item = PathBuf> {
    let files =
        [1, 2].into_iter().filter_map(move |number| std::fs::read_link(format!("/proc/{pid}/fd/{number}")).ok());
    files.filter_map(|file| file.parent().map(Path::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::process::{Command, Stdio};

    #[test]
    fn what_cannot_be_read_is_named_the_folder_or_the_list_in_it() {
        let folder = std::env::temp_dir().join(format!("muster-unread-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("file"), "").unwrap();
        std::os::unix::fs::symlink("nowhere", folder.join("link")).unwrap();
        std::os::unix::fs::symlink("nowhere", folder.join(RUNS)).unwrap();
        let why = |path: &Path| in_folder(path).err().expect("nothing can be read there");
        let list = why(&folder);
        assert!(list.starts_with(&format!("{:?}, which lists the runs", folder.join(RUNS))), "{list}");
        for (name, error) in [("file", "Not a dir"), ("none", "No such file"), ("link", "it is a symbolic link to ")] {
            let path = folder.join(name);
            let said = why(&path);
            assert!(said.starts_with(&format!("--log_dir is {path:?}, which can't be read: {error}")), "{said}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_process_that_has_turned_one_of_its_outputs_elsewhere_is_found_by_the_other() {
        let folder = std::env::temp_dir().join(format!("muster-find-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let folder = folder.canonicalize().unwrap();
        for is_error in [false, true] {
            let log = File::create(folder.join("worker_0.log")).unwrap();
            let (output, error) = match is_error {
                false => (Stdio::from(log), Stdio::null()),
                true => (Stdio::null(), Stdio::from(log)),
            };
            let mut child = Command::new("sleep").arg("600").stdout(output).stderr(error).spawn().unwrap();
            let found = folders_of_outputs(child.id() as i32).any(|found| found == folder);
            child.kill().unwrap();
            child.wait().unwrap();
            assert!(found, "{is_error}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
