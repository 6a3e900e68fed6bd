//! What the control groups of a process leave it: how much memory it may still take, and how much it may compute.
//!
//! A process that takes more memory than its group may have is killed, and the kernel does not warn it. So code that takes
//! much memory at once asks here first. A quota of time limits how much a group computes, but not on which processors: its
//! processes see all processors, and the kernel holds them back together.
//!
//! Both versions of control groups are read, and all groups above a process's own, as far as they are mounted. What cannot be read
//! does not count.

use std::path::{Path, PathBuf};

/// How much of a file is read: more than these files have. A host with many containers has thousands of mounts.
const FILE_BYTES: u64 = 16 << 20;

/// How many bytes this process may still take, as far as the kernel says. None if it says nothing.
pub fn free_memory() -> Option<u64> {
    free_below(Path::new("/"))
}

fn free_below(root: &Path) -> Option<u64> {
    let of_host = text(&root.join("proc/meminfo")).and_then(|told| number_behind(&told, "MemAvailable:"));
    let of_host = of_host.map(|kib| kib.saturating_mul(1024));
    let of_groups = folders(root, "memory").into_iter().filter_map(|(_, folder)| free_of(&below(root, &folder)));
    of_host.into_iter().chain(of_groups).min()
}

/// How much a control group lets its processes compute.
#[derive(Clone, Debug, PartialEq)]
pub struct Quota {
    /// The time of so many processors.
    pub cores: f64,
    /// The file that says so.
    pub file: PathBuf,
}

/// The smallest quota that holds for this process, if there is one.
pub fn quota() -> Option<Quota> {
    quota_below(Path::new("/"))
}

fn quota_below(root: &Path) -> Option<Quota> {
    let quotas = folders(root, "cpu").into_iter().filter_map(|(version, folder)| version.quota(root, &folder));
    quotas.min_by(|one, other| one.cores.total_cmp(&other.cores))
}

/// The folders of the process's group and of those above it, in the hierarchies that have this controller.
fn folders(root: &Path, controller: &str) -> Vec<(Version, PathBuf)> {
    let read = |path: &str| text(&root.join(path)).unwrap_or_default();
    let (groups, mounts) = (read("proc/self/cgroup"), read("proc/self/mountinfo"));
    let mut folders = Vec::new();
    for version in [Version::One, Version::Two] {
        let group = Path::new(groups.lines().find_map(|line| version.group(line, controller)).unwrap_or("/"));
        let mounts = mounts.lines().filter_map(|line| Mount::read(line, controller));
        let mounts: Vec<Mount<'_>> = mounts.filter(|mount| mount.version == version).collect();
        let knows_group = mounts.iter().any(|mount| group.starts_with(mount.top));
        for mount in mounts {
            let inside = match group.strip_prefix(mount.top) {
                Ok(inside) => inside,
                Err(_) if knows_group => continue, // a mount of another group
                // A container may be told its group by the host's name, and see no more than that group.
                Err(_) => Path::new(""),
            };
            folders.extend(inside.ancestors().map(|folder| (version, Path::new(mount.at).join(folder))));
        }
    }
    folders
}

/// The version of control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// Where a hierarchy of control groups can be read.
struct Mount<'a> {
    version: Version,
    /// The group that is mounted.
    top: &'a str,
    at: &'a str,
}

impl<'a> Mount<'a> {
    /// The mount in this line of mountinfo, if it is a hierarchy that has this controller.
    fn read(line: &'a str, controller: &str) -> Option<Mount<'a>> {
        let (place, kind) = line.split_once(" - ")?;
        let (mut place, mut kind) = (place.split(' ').skip(3), kind.split(' '));
        let (top, at) = (place.next()?, place.next()?);
        let version = match kind.next()? {
            "cgroup2" => Version::Two,
            "cgroup" if kind.nth(1)?.split(',').any(|option| option == controller) => Version::One,
            _ => return None,
        };
        Some(Mount { version, top, at })
    }
}

impl Version {
    /// The process's group, if this line of /proc/self/cgroup tells it for this version and controller.
    fn group<'a>(self, line: &'a str, controller: &str) -> Option<&'a str> {
        let mut parts = line.splitn(3, ':');
        let (number, controllers, group) = (parts.next()?, parts.next()?, parts.next()?);
        let is_it = match self {
            Version::One => controllers.split(',').any(|one| one == controller),
            Version::Two => number == "0" && controllers.is_empty(),
        };
        is_it.then_some(group)
    }

    fn quota(self, root: &Path, folder: &Path) -> Option<Quota> {
        let read = |name: &str| text(&below(root, &folder.join(name)));
        let (name, time, period) = match self {
            Version::One => ("cpu.cfs_quota_us", read("cpu.cfs_quota_us")?, read("cpu.cfs_period_us")?),
            Version::Two => {
                let text = read("cpu.max")?;
                let (time, period) = text.trim().split_once(' ')?;
                ("cpu.max", time.to_owned(), period.to_owned())
            }
        };
        // "No quota" is -1 in version 1, and "max" in version 2.
        let (time, period) = (time.trim().parse::<f64>().ok()?, period.trim().parse::<f64>().ok()?);
        (time > 0.0 && period > 0.0).then(|| Quota { cores: time / period, file: folder.join(name) })
    }
}

/// A path of the system, below another root.
fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

fn free_of(group: &Path) -> Option<u64> {
    let number = |name: &str| text(&group.join(name)).and_then(|told| told.trim().parse::<u64>().ok());
    let limits = ["memory.max", "memory.high", "memory.limit_in_bytes"];
    let limit = limits.into_iter().filter_map(number).min()?;
    let used = number("memory.current").or_else(|| number("memory.usage_in_bytes"))?;
    // The kernel drops cached pages of files that nobody has used recently: they do not count as used.
    let told = text(&group.join("memory.stat")).unwrap_or_default();
    let of_files = number_behind(&told, "total_inactive_file").or_else(|| number_behind(&told, "inactive_file"));
    Some(limit.saturating_sub(used.saturating_sub(of_files.unwrap_or(0))))
}

/// The number behind a word that begins a line.
fn number_behind(told: &str, word: &str) -> Option<u64> {
    let mut lines = told.lines().map(str::split_whitespace);
    lines.find_map(|mut words| (words.next() == Some(word)).then(|| words.next()?.parse().ok())?)
}

fn text(path: &Path) -> Option<String> {
    super::file::read(path, FILE_BYTES).ok().and_then(|bytes| String::from_utf8(bytes).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::host;
    use std::fs;

    /// A root with these files below it.
    struct Root(PathBuf);

    impl Root {
        fn of(files: &[(&str, &str)]) -> Root {
            let name = host::random_bytes::<8>().unwrap().map(|byte| format!("{byte:02x}")).concat();
            let root = std::env::temp_dir().join(format!("muster-cgroup-{name}"));
            for (path, text) in files {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            Root(root)
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn free(files: &[(&str, &str)]) -> Option<u64> {
        free_below(&Root::of(files).0)
    }

    /// The quota that these files tell.
    fn told(files: &[(&str, &str)]) -> Option<(f64, String)> {
        quota_below(&Root::of(files).0).map(|quota| (quota.cores, quota.file.display().to_string()))
    }

    const VERSION_TWO: (&str, &str) =
        ("proc/self/mountinfo", "30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n");

    const HOST: (&str, &str) = ("proc/meminfo", "MemTotal: 2000 kB\nMemAvailable:  1000 kB\n");

    #[test]
    fn the_host_counts_where_there_is_no_group() {
        assert_eq!(free(&[("proc/other", "")]), None);
        assert_eq!(free(&[HOST]), Some(1_024_000));
        assert_eq!(
            free(&[HOST, VERSION_TWO, ("proc/self/cgroup", "0::/a/b\n")]),
            Some(1_024_000),
            "its files are not there"
        );
    }

    #[test]
    fn the_tightest_of_all_groups_above_counts_in_either_version() {
        let (mounts, own) = (VERSION_TWO, ("proc/self/cgroup", "0::/a/b\n"));
        let (limit, used) = (("sys/fs/cgroup/a/b/memory.max", "max\n"), ("sys/fs/cgroup/a/b/memory.current", "10\n"));
        assert_eq!(free(&[HOST, mounts, own, limit, used]), Some(1_024_000), "no limit");
        let (above, its) = (("sys/fs/cgroup/a/memory.max", "5000\n"), ("sys/fs/cgroup/a/memory.current", "3000\n"));
        assert_eq!(free(&[HOST, mounts, own, limit, used, above, its]), Some(2000));
        let files = ("sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 500\n");
        assert_eq!(free(&[HOST, mounts, own, limit, used, above, its, files]), Some(2500));
        let own = ("proc/self/cgroup", "5:cpu:/x\n4:memory:/docker/1234\n0::/\n");
        let mounts =
            ("proc/self/mountinfo", "31 24 0:27 /docker/1234 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
        let (limit, used) = (
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "700000"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "800000"),
        );
        assert_eq!(free(&[HOST, mounts, own, limit, used]), Some(0), "a container's own group is the mount's root");
        let files = ("sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 300000\n");
        assert_eq!(free(&[HOST, mounts, own, limit, used, files]), Some(200_000));
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
        // The mount of another group does not concern this process, and there may be many mounts.
        let others = "29 24 0:26 /c /run/c rw - cgroup2 cgroup2 rw\n".repeat(10_000);
        let many = format!("{others}{}", version_two[1].1);
        let (told_above, others) = (told(&above), ("run/c/cpu.max", "1000 100000\n"));
        assert_eq!(told(&[&above[..1], &above[2..], &[("proc/self/mountinfo", &many), others]].concat()), told_above);
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
        // The process's group is outside of what is mounted: then what can be seen counts.
        let outside = [&[("proc/self/cgroup", "4:cpu:/../y\n")], &files[1..]].concat();
        assert_eq!(told(&outside).map(|(cores, _)| cores), Some(3.0));
        // Lines that make no sense are passed over, and hide no other line.
        let odd = ["", "4", "4:cpu", "0:::/", "1 2 3\n - \nx - cgroup2\n"];
        for odd in odd {
            let lines = files.map(|(name, text)| (name, format!("{odd}\n{text}")));
            let mut odd_files: Vec<_> = lines[..2].iter().map(|(name, text)| (*name, text.as_str())).collect();
            odd_files.extend(&files[2..]);
            assert_eq!(told(&odd_files).map(|(cores, _)| cores), Some(3.0), "{odd}");
        }
    }
}
