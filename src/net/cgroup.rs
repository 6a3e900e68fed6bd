//! How much memory this process may still take: of the host's, and of each control group that it is in.
//!
//! A process that takes more than its group may have is killed. The kernel says so to nobody before. So who takes much at once
//! asks here. Both versions of control groups are read, and all groups above a process's own. What cannot be read does not count:
//! in a container the names of the groups outside often lead nowhere, and the mount's root is then the container's own group.

use std::path::{Path, PathBuf};

/// More than a file of these has that is of use.
const FILE_BYTES: u64 = 64 << 10;

/// How many bytes this process may still take, as far as the kernel says; none where it says nothing.
pub fn free_memory() -> Option<u64> {
    free_below(Path::new("/"))
}

fn free_below(root: &Path) -> Option<u64> {
    let of_host = text(&root.join("proc/meminfo")).and_then(|told| number_behind(&told, "MemAvailable:"));
    let of_host = of_host.map(|kib| kib.saturating_mul(1024));
    let own = text(&root.join("proc/self/cgroup")).unwrap_or_default();
    of_host.into_iter().chain(own.lines().filter_map(|line| free_of_line(root, line))).min()
}

/// What one line of /proc/self/cgroup leads to: `0::/own/group`, or `4:memory:/own/group`.
fn free_of_line(root: &Path, line: &str) -> Option<u64> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (controllers, path) = (parts.next()?, parts.next()?);
    let mount = root.join("sys/fs/cgroup");
    let mounts = match controllers {
        "" => vec![mount.join("unified"), mount],
        _ if controllers.split(',').any(|one| one == "memory") => vec![mount.join("memory"), mount.join(controllers)],
        _ => return None,
    };
    let groups = mounts.iter().flat_map(|mount| groups(mount, path));
    groups.filter_map(|group| free_of(&group)).min()
}

/// A group and all above it.
fn groups(mount: &Path, path: &str) -> Vec<PathBuf> {
    let own = Path::new(path.trim_start_matches('/'));
    own.ancestors().map(|group| mount.join(group)).collect()
}

fn free_of(group: &Path) -> Option<u64> {
    let number = |name: &str| text(&group.join(name)).and_then(|told| told.trim().parse::<u64>().ok());
    let limits = ["memory.max", "memory.high", "memory.limit_in_bytes"];
    let limit = limits.into_iter().filter_map(number).min()?;
    let used = number("memory.current").or_else(|| number("memory.usage_in_bytes"))?;
    // What lies there of files that nobody has used of late gives way.
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

    const HOST: (&str, &str) = ("proc/meminfo", "MemTotal: 2000 kB\nMemAvailable:  1000 kB\n");

    #[test]
    fn the_host_counts_where_there_is_no_group() {
        assert_eq!(free(&[("proc/other", "")]), None);
        assert_eq!(free(&[HOST]), Some(1_024_000));
        assert_eq!(free(&[HOST, ("proc/self/cgroup", "0::/a/b\n")]), Some(1_024_000), "its files are not there");
    }

    #[test]
    fn the_tightest_of_all_groups_above_counts_in_either_version() {
        let own = ("proc/self/cgroup", "0::/a/b\n");
        let (limit, used) = (("sys/fs/cgroup/a/b/memory.max", "max\n"), ("sys/fs/cgroup/a/b/memory.current", "10\n"));
        assert_eq!(free(&[HOST, own, limit, used]), Some(1_024_000), "no limit");
        let (above, its) = (("sys/fs/cgroup/a/memory.max", "5000\n"), ("sys/fs/cgroup/a/memory.current", "3000\n"));
        assert_eq!(free(&[HOST, own, limit, used, above, its]), Some(2000));
        let files = ("sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 500\n");
        assert_eq!(free(&[HOST, own, limit, used, above, its, files]), Some(2500));
        let own = ("proc/self/cgroup", "5:cpu:/x\n4:memory:/docker/1234\n0::/\n");
        let (limit, used) = (
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "700000"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "800000"),
        );
        assert_eq!(free(&[HOST, own, limit, used]), Some(0), "a container's own group is the mount's root");
        let files = ("sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 300000\n");
        assert_eq!(free(&[HOST, own, limit, used, files]), Some(200_000));
    }
}
