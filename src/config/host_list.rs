//! The first of several hosts, as launchers write them down: it has rank 0.

use super::host_slots::without_mark;

/// The longest hostfile that is read, in bytes: the first line with a host is near its beginning.
pub const HOST_FILE_BYTES: u64 = 1 << 20;

/// Several hosts, of which only the first counts.
#[derive(Debug, PartialEq, Eq)]
pub struct Hosts {
    /// The first one.
    pub first: String,
    /// Whether there is no other.
    pub is_only: bool,
}

/// Reads a list with commas between the hosts, in which brackets stand for several numbers: `gpu[07-09,12],login1`.
/// Slurm writes such lists. Other programs' lists have no brackets.
pub fn of_list(text: &str) -> Option<Hosts> {
    let mut first = String::new();
    let mut is_only = true;
    let mut rest = text.trim();
    while let Some(at) = rest.find(['[', ',']) {
        first.push_str(&rest[..at]);
        let inside = &rest[at + 1..];
        if rest[at..].starts_with(',') {
            is_only &= inside.is_empty();
            rest = "";
            break;
        }
        let (numbers, after) = inside.split_once(']')?;
        let number = numbers.split(['-', ',']).next().unwrap_or_default();
        is_only &= number.len() == numbers.len();
        first.push_str(number);
        rest = after;
    }
    first.push_str(rest);
    let first = first.trim().to_owned();
    // Brackets within brackets stand for nothing.
    (!first.is_empty() && !first.contains(['[', ']'])).then_some(Hosts { first, is_only })
}

/// Reads a hostfile of Open MPI's kind (`host slots=2`) or of Hydra's (`host:2`). The host is the first word of the
/// first line that has one, without the user before it. What follows a `#` is a comment.
pub fn of_file(text: &str) -> Option<String> {
    let lines = without_mark(text).lines().map(|line| line.split('#').next().unwrap_or_default());
    let word = lines.filter_map(|line| line.split_whitespace().next()).next()?;
    let word = word.rsplit_once('@').map_or(word, |(_, host)| host);
    let host = match word.rsplit_once(':') {
        // An IPv6 address has more than one colon. A count of slots can follow it only if it stands in brackets.
        Some((host, slots)) if slots.bytes().all(|byte| byte.is_ascii_digit()) && !host.contains(':') => host,
        Some((host, _)) if host.starts_with('[') && host.ends_with(']') => host,
        _ => word,
    };
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    (!host.is_empty()).then(|| host.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_slurms_hosts() {
        for (list, first, is_only) in [
            ("node1", "node1", true),
            ("node1,node2", "node1", false),
            ("node[1-4]", "node1", false),
            ("node[07,09-12],login", "node07", false),
            ("rack[3]-node[5]", "rack3-node5", true),
            ("rack[3-4]-node[5-6].cluster", "rack3-node5.cluster", false),
            ("node[3],", "node3", true),
            (" a , b ", "a", false),
            ("trainer-worker-0.trainer,trainer-worker-1.trainer", "trainer-worker-0.trainer", false),
        ] {
            assert_eq!(of_list(list), Some(Hosts { first: first.into(), is_only }), "{list}");
        }
        for odd in ["", ",", "node[", "node[1-4", "[", " ", "rack[0a[07-09],login", "rack]1[2]"] {
            assert_eq!(of_list(odd), None, "{odd:?}");
        }
    }

    #[test]
    fn the_first_of_a_hostfiles_hosts() {
        for (text, first) in [
            ("a slots=2\nb slots=2\n", "a"),
            ("# of the job\n\n  job-worker-0.job:2\njob-worker-1.job:2", "job-worker-0.job"),
            ("10.1.2.3 # first", "10.1.2.3"),
            ("fe80::1\n", "fe80::1"),
            ("[fd00::7]:4", "fd00::7"),
            ("[fd00::7]", "fd00::7"),
            ("a:8 max_slots=9", "a"),
            ("me@a slots=2", "a"),
            ("me@[fd00::7]:4", "fd00::7"),
            ("\u{feff}a:2\nb:2", "a"),
        ] {
            assert_eq!(of_file(text).as_deref(), Some(first), "{text:?}");
        }
        for odd in ["", "\n\n", "# nothing", ":3", "me@"] {
            assert_eq!(of_file(odd), None, "{odd:?}");
        }
    }
}
