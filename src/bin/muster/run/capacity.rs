//! What this host's processors can carry: warnings, before anything is started, where workers will wait for each other.
//!
//! A container's quota limits how much time its processes compute, not on which cores. Programs see all cores, start a thread for
//! each, and are held back together. The smallest quota of the process's cgroup and those above it counts.

use std::path::{Path, PathBuf};

/// How much a cgroup lets its processes compute.
#[derive(Clone, Debug, PartialEq)]
pub struct Quota {
    /// As many cores' worth of time.
    cores: f64,
    /// The file that says so.
    file: PathBuf,
}

/// What a user should know before so many workers start, which may use so many cores.
pub fn warnings(workers: u32, cores: usize) -> Vec<String> {
    said(workers, cores, quota(Path::new("/")))
}

fn said(workers: u32, cores: usize, quota: Option<Quota>) -> Vec<String> {
    let mut said = Vec::new();
    if workers as usize > cores {
        let noun = if cores == 1 { "core" } else { "cores" };
        said.push(format!(
            "{workers} workers outnumber the {cores} {noun} that they may use: they take turns, and those that wait for each other \
             are slow"
        ));
    }
    if let Some(Quota { cores: allowed, file }) = quota.filter(|quota| quota.cores < cores as f64) {
        said.push(format!(
            "this container's quota is {allowed:.2} cores ({}), but {cores} cores are seen here: programs that start a thread for \
             each core are held back (OMP_NUM_THREADS sets how many they start)",
            file.display()
        ));
    }
    said
}

/// The smallest quota that holds for this process, of cgroups of both versions, as the files below `root` tell.
fn quota(root: &Path) -> Option<Quota> {
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_default();
    let (groups, mounts) = (read("proc/self/cgroup"), read("proc/self/mountinfo"));
    let quotas = mounts.lines().filter_map(Mount::read).flat_map(|mount| {
        let group = groups.lines().find_map(|line| mount.group(line)).unwrap_or("/");
        mount.quotas(root, group)
    });
    quotas.min_by(|one, other| one.cores.total_cmp(&other.cores))
}

/// A hierarchy of cgroups that can have quotas.
#[derive(Clone, Copy)]
enum Version {
    One,
    Two,
}

/// Where such a hierarchy can be read.
struct Mount<'a> {
    version: Version,
    /// The group that is mounted.
    top: &'a str,
    at: &'a str,
}

impl<'a> Mount<'a> {
    /// A line of mountinfo, if it is one.
    fn read(line: &'a str) -> Option<Mount<'a>> {
        let (place, kind) = line.split_once(" - ")?;
        let (mut place, mut kind) = (place.split(' ').skip(3), kind.split(' '));
        let (top, at) = (place.next()?, place.next()?);
        let version = match kind.next()? {
            "cgroup2" => Version::Two,
            "cgroup" if kind.nth(1)?.split(',').any(|option| option == "cpu") => Version::One,
            _ => return None,
        };
        Some(Mount { version, top, at })
    }

    /// The process's group in this hierarchy, if that is what this line of /proc/self/cgroup tells.
    fn group<'b>(&self, line: &'b str) -> Option<&'b str> {
        let mut parts = line.splitn(3, ':');
        let (number, controllers, group) = (parts.next()?, parts.next()?, parts.next()?);
        let is_it = match self.version {
            Version::One => controllers.split(',').any(|controller| controller == "cpu"),
            Version::Two => number == "0" && controllers.is_empty(),
        };
        is_it.then_some(group)
    }

    /// The quotas of this group and of those above it, as far as they are mounted.
    fn quotas(&self, root: &Path, group: &str) -> Vec<Quota> {
        // A container may be told its group by the host's name, and see no more than that group.
        let inside = Path::new(group).strip_prefix(self.top).unwrap_or(Path::new(""));
        let at = Path::new(self.at);
        let folders = inside.ancestors().map(|folder| at.join(folder));
        folders.filter_map(|folder| self.version.quota(root, &folder)).collect()
    }
}

impl Version {
    fn quota(self, root: &Path, folder: &Path) -> Option<Quota> {
        let read = |name: &str| {
            let path = folder.join(name);
            std::fs::read_to_string(root.join(path.strip_prefix("/").ok()?)).ok()
        };
        let (name, time, period) = match self {
            Version::One => ("cpu.cfs_quota_us", read("cpu.cfs_quota_us")?, read("cpu.cfs_period_us")?),
            Version::Two => {
                let text = read("cpu.max")?;
                let (time, period) = text.trim().split_once(' ')?;
                ("cpu.max", time.to_owned(), period.to_owned())
            }
        };
        // No quota is -1 there, and "max" here.
        let (time, period) = (time.trim().parse::<f64>().ok()?, period.trim().parse::<f64>().ok()?);
        (time > 0.0 && period > 0.0).then(|| Quota { cores: time / period, file: folder.join(name) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::tree_test::Tree;

    /// The quota, as told by these files.
    fn told(files: &[(&str, &str)]) -> Option<(f64, String)> {
        quota(Tree::new(files).path()).map(|quota| (quota.cores, quota.file.display().to_string()))
    }

    #[test]
    fn the_smallest_quota_of_a_group_and_those_above_it_counts() {
        let version_two = [
            ("proc/self/cgroup", "0::/a/b\n"),
            ("proc/self/mountinfo", "30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"),
            ("sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
        ];
        assert_eq!(told(&version_two), None);
        let above = [&version_two[..], &[("sys/fs/cgroup/a/cpu.max", "150000 100000\n")]].concat();
        assert_eq!(told(&above), Some((1.5, "/sys/fs/cgroup/a/cpu.max".to_owned())));
        let both = [&above[..], &[("sys/fs/cgroup/a/b/cpu.max", "50000 100000\n")]].concat();
        assert_eq!(told(&both), Some((0.5, "/sys/fs/cgroup/a/b/cpu.max".to_owned())));
    }

    #[test]
    fn the_first_version_has_two_files_and_a_container_sees_its_own_group_alone() {
        let files = [
            ("proc/self/cgroup", "5:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n0::/\n"),
            (
                "proc/self/mountinfo",
                "31 24 0:27 /docker/x /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n\
                 32 24 0:28 /docker/x /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu,cpuacct\n\
                 33 24 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
            ),
            ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "300000\n"),
            ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
        ];
        assert_eq!(told(&files), Some((3.0, "/sys/fs/cgroup/cpu/cpu.cfs_quota_us".to_owned())));
        let unlimited = [&files[..2], &[("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"), files[3]]].concat();
        assert_eq!(told(&unlimited), None);
        // A group outside of what is mounted: what can be seen counts.
        let outside = [&[("proc/self/cgroup", "4:cpu:/../y\n")], &files[1..]].concat();
        assert_eq!(told(&outside).map(|(cores, _)| cores), Some(3.0));
        for odd in ["", "4", "4:cpu", "0:::/"] {
            assert_eq!(told(&[("proc/self/cgroup", odd), ("proc/self/mountinfo", "1 2 3\n - \nx - cgroup2")]), None);
        }
    }

    #[test]
    fn a_warning_says_what_is_too_little() {
        let quota = |cores| Some(Quota { cores, file: PathBuf::from("/q/cpu.max") });
        assert_eq!(said(2, 2, None), [""; 0]);
        assert_eq!(said(2, 2, quota(2.0)), [""; 0]);
        let both = said(3, 2, quota(1.5));
        assert!(both[0].starts_with("3 workers outnumber the 2 cores that they may use: "), "{both:?}");
        assert!(
            both[1].starts_with("this container's quota is 1.50 cores (/q/cpu.max), but 2 cores are seen"),
            "{both:?}"
        );
        assert!(said(2, 1, None)[0].contains("the 1 core that"));
    }
}
