//! Hosts and their slots, as the launcher's user names them: `-H one:4,two:4`, and the lines of a hostfile as Open MPI and MPICH have
//! them. A host may be named more than once. The launcher decides what that means for its workers.

use super::table::NODES_LIMIT;
use super::value::whole;
use std::net::Ipv6Addr;

/// A host as it is named in one place, and how many workers it is to take for that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSlots {
    /// The host as ssh is told: a name or an address, with or without a user before it.
    pub name: String,
    /// The number of workers; none if it was not given.
    pub slots: Option<u32>,
}

impl HostSlots {
    /// The address at which others reach it: without the user.
    pub fn address(&self) -> &str {
        self.name.rsplit_once('@').map_or(&self.name, |(_, address)| address)
    }
}

/// The hosts of `-H`, as often as they are named there.
pub fn hosts_of_words(text: &str) -> Result<Vec<HostSlots>, String> {
    let hosts = text.split(',').map(|word| {
        let right = || format!("HOST or HOST:N, with N from 1 to {NODES_LIMIT}");
        host(word.trim()).ok_or_else(|| format!("-H is {text:?}; {word:?} must be {}", right()))
    });
    hosts.collect()
}

/// The hosts of a hostfile, as often as they are named there. An error comes with the number of its line, from 1.
pub fn hosts_of_lines(text: &str) -> Result<Vec<HostSlots>, (usize, String)> {
    let mut hosts = Vec::new();
    for (index, line) in without_mark(text).lines().enumerate() {
        // Open MPI allows spaces around the sign of `slots = 8`.
        let line = line.split('#').next().unwrap_or_default().split('=').map(str::trim).collect::<Vec<_>>().join("=");
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else { continue };
        let complain = |words: String| (index + 1, words);
        let wrong = |word: &str| {
            let number = format!("a number from 1 to {NODES_LIMIT}");
            complain(format!("{word:?}; a line is `host`, `host slots=8` or `host:8`, with {number}"))
        };
        let mut found = host(first).ok_or_else(|| wrong(first))?;
        for word in words {
            match word.split_once('=') {
                Some(("slots", number)) if found.slots.is_none() => {
                    found.slots = Some(slots(number).ok_or_else(|| wrong(word))?);
                }
                // More workers than `slots` are never started, so this limit has no effect.
                Some(("max_slots" | "max-slots", number)) if slots(number).is_some() => {}
                _ => return Err(wrong(word)),
            }
        }
        hosts.push(found);
    }
    Ok(hosts)
}

/// A file's text without the mark that some editors put at its beginning (U+FEFF).
pub fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// `host`, `host:8`, `[fd77::1]:8` or `fd77::1`.
fn host(word: &str) -> Option<HostSlots> {
    let plain = |name: &str| {
        let (user, host) = name.rsplit_once('@').map_or(("", name), |(user, host)| (&name[..=user.len()], host));
        if user == "@" {
            return None; // a user is missing, such as one whose variable is not set
        }
        let in_brackets = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = in_brackets.filter(|host| host.contains(':')).unwrap_or(host);
        let address = host.split('%').next().unwrap_or(host);
        let is_host = !host.is_empty() && (!host.contains(':') || address.parse::<Ipv6Addr>().is_ok());
        // ssh would read a dash as an option. A word with `=` describes a host that is missing. Other programs' lists
        // have brackets.
        let is_odd = |c: char| c.is_whitespace() || ['=', '[', ']'].contains(&c);
        let name = format!("{user}{host}");
        (is_host && !name.starts_with('-') && !name.contains(is_odd)).then_some(name)
    };
    let is_bare_address = word.matches(':').count() > 1 && !word.contains("]:");
    match word.rsplit_once(':') {
        Some((name, number)) if !is_bare_address => Some(HostSlots { name: plain(name)?, slots: Some(slots(number)?) }),
        _ => Some(HostSlots { name: plain(word)?, slots: None }),
    }
}

fn slots(text: &str) -> Option<u32> {
    whole(text).filter(|slots| (1..=NODES_LIMIT).contains(slots)).map(|slots| slots as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(hosts: Vec<HostSlots>) -> Vec<(String, Option<u32>)> {
        hosts.into_iter().map(|host| (host.name, host.slots)).collect()
    }

    fn known(hosts: &[(&str, Option<u32>)]) -> Vec<(String, Option<u32>)> {
        hosts.iter().map(|(name, slots)| ((*name).to_owned(), *slots)).collect()
    }

    #[test]
    fn words_name_hosts_and_slots() {
        for (text, hosts) in [
            ("one", &[("one", None)][..]),
            ("one:4,two:8", &[("one", Some(4)), ("two", Some(8))]),
            ("me@one:4, 10.0.0.2", &[("me@one", Some(4)), ("10.0.0.2", None)]),
            ("fd77::1,[fd77::2]:3,[fd77::3]", &[("fd77::1", None), ("fd77::2", Some(3)), ("fd77::3", None)]),
            ("me@[fd77::1]:2", &[("me@fd77::1", Some(2))]),
            ("me@fe80::1%eth0,[fe80::2%eth0]:2", &[("me@fe80::1%eth0", None), ("fe80::2%eth0", Some(2))]),
            ("one,two:2,one", &[("one", None), ("two", Some(2)), ("one", None)]),
        ] {
            assert_eq!(told(hosts_of_words(text).unwrap()), known(hosts), "{text}");
        }
        assert_eq!(hosts_of_words("me@one").unwrap()[0].address(), "one");
    }

    #[test]
    fn what_is_no_host_is_named() {
        for text in [
            "",
            "one,,two",
            "one:",
            "one:0",
            "one:x",
            "one:+4",
            "one:4:2",
            "me@one:4:2",
            "[one:4]:2",
            "fd77::1::2",
            "me@",
            "me@:4",
            "-oProxyCommand=x",
            "[::1]:x",
            ":4",
            "gpu[01-02]:4",
            "gpu[01,02]",
            "one:1048577",
            "@one",
            "@one:4",
            "@[fd77::1]:4",
        ] {
            let error = hosts_of_words(text).unwrap_err();
            assert!(
                error.starts_with("-H is ") && error.ends_with("HOST:N, with N from 1 to 1048576"),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn lines_are_open_mpis_or_mpichs() {
        let text = "# all of them\none slots=4\n  two:8  # the big one\n\nthree slots=2 max_slots=4\nfour\nme@five max-slots=1\nsix slots = 3 max_slots =4\n";
        let three = [("one", Some(4)), ("two", Some(8)), ("three", Some(2))];
        let all = [&three[..], &[("four", None), ("me@five", None), ("six", Some(3))]].concat();
        assert_eq!(told(hosts_of_lines(text).unwrap()), known(&all));
        assert_eq!(told(hosts_of_lines("\u{feff}one:4\n").unwrap()), known(&three[..1]), "an editor's mark");
    }

    #[test]
    fn a_line_that_is_wrong_is_named_by_its_number() {
        for (text, number) in [
            ("one\ntwo slots=x", 2),
            ("one binding=user:4", 1),
            ("\n\none two", 3),
            ("one:4x", 1),
            ("one:4:2", 1),
            ("one\nme@ slots=4", 2),
            ("one slots=+4", 1),
            ("slots=4", 1),
            ("one slots=1 slots=2", 1),
            ("one slots=1048577", 1),
            ("@one slots=4", 1),
        ] {
            let (line, words) = hosts_of_lines(text).unwrap_err();
            assert!(line == number && words.ends_with("with a number from 1 to 1048576"), "{text}: {line}: {words}");
        }
    }
}
