//! What the log says of strangers and of refusals: for each kind the first few lines, then a count, once in a while.
//!
//! Anybody who reaches a port can make such lines. So no kind has more than its number of lines in a [`WINDOW`], and one more
//! that says how many were left out. A kind that has rested for a window is told in full again: a port scan silences
//! nothing that comes later, and no address is remembered.
//!
//! Deliberately absent: the log itself, and escaping (`types::shown`, which the log does).

use crate::types::Time;
use std::collections::BTreeMap;
use std::time::Duration;

/// For how long lines are left out and counted before the count is told.
pub const WINDOW: Duration = Duration::from_secs(60);

/// A kind of nuisance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    /// Its name, which follows a count: `connections that said nothing`.
    pub name: &'static str,
    /// How many lines it may have before the rest is counted.
    pub lines: u32,
}

/// What was told recently.
#[derive(Debug, Default)]
pub struct Nuisances {
    kinds: BTreeMap<Kind, Told>,
    /// When the present window ends. None while nothing was told.
    ends: Option<Time>,
}

#[derive(Debug, Default)]
struct Told {
    lines: u32,
    left_out: u64,
    /// Where the last stranger came from that was left out.
    last: String,
}

impl Nuisances {
    /// Notes one more of this kind, from this address. Returns the line for the log, unless it is only counted.
    pub fn mention(&mut self, kind: Kind, from: &str, line: &str) -> Option<String> {
        let told = self.kinds.entry(kind).or_default();
        if told.lines >= kind.lines {
            told.left_out += 1;
            told.last.clear();
            told.last.push_str(from);
            return None;
        }
        told.lines += 1;
        let is_last = told.lines == kind.lines;
        let rest = if is_last { "; others like it are counted, and told once a minute" } else { "" };
        Some(format!("{line}{rest}"))
    }

    /// When [`due`](Nuisances::due) must be called again at the latest.
    pub fn ends(&self) -> Time {
        self.ends.unwrap_or(Time::NEVER)
    }

    /// Begins a window if there is something to count, and tells what was left out once it is over.
    pub fn due(&mut self, now: Time) -> Vec<String> {
        match self.ends {
            None if self.kinds.is_empty() => {}
            None => self.ends = Some(now + WINDOW),
            Some(ends) if now < ends => {}
            Some(_) => {
                let lines = self.left_out();
                self.ends = (!self.kinds.is_empty()).then(|| now + WINDOW);
                return lines;
            }
        }
        Vec::new()
    }

    /// Returns what was left out since it was last told. A kind of which nothing was left out is told in full when it
    /// comes again.
    pub fn left_out(&mut self) -> Vec<String> {
        self.kinds.retain(|_, told| told.left_out > 0);
        let line = |(kind, told): (&Kind, &mut Told)| {
            let (name, count, last) = (kind.name, std::mem::take(&mut told.left_out), &told.last);
            format!("{count} more {name}, the last from {last}")
        };
        self.kinds.iter_mut().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SILENT: Kind = Kind { name: "connections that said nothing", lines: 1 };
    const REFUSED: Kind = Kind { name: "registrations that were refused", lines: 3 };

    fn at(seconds: u64) -> Time {
        Time(0) + Duration::from_secs(seconds)
    }

    #[test]
    fn of_each_kind_the_first_are_told_and_the_rest_is_counted() {
        let mut told = Nuisances::default();
        assert_eq!((told.due(at(1)), told.ends()), (Vec::new(), Time::NEVER));
        let first = told.mention(SILENT, "a", "one was silent").unwrap();
        assert_eq!(first, "one was silent; others like it are counted, and told once a minute");
        assert_eq!(told.mention(REFUSED, "a", "refused").unwrap(), "refused", "each kind has its own number");
        for number in 0..1000 {
            assert_eq!(told.mention(SILENT, &format!("b{number}"), "one was silent"), None);
        }
        assert_eq!((told.due(at(2)), told.ends()), (Vec::new(), at(62)));
        assert_eq!(told.due(at(61)), Vec::<String>::new());
        assert_eq!(told.due(at(62)), ["1000 more connections that said nothing, the last from b999"]);
        assert_eq!(told.mention(SILENT, "c", "again"), None, "it has not rested");
        assert!(told.mention(REFUSED, "c", "refused").is_some(), "it has");
        assert_eq!(told.due(told.ends()), ["1 more connections that said nothing, the last from c"]);
        assert_eq!((told.due(told.ends()), told.ends()), (Vec::new(), Time::NEVER), "nothing is kept");
        assert!(told.mention(SILENT, "d", "one was silent").is_some());
    }

    #[test]
    fn a_million_of_each_kind_are_kept_as_numbers() {
        let mut told = Nuisances::default();
        let lines = (0..1_000_000).filter_map(|_| told.mention(REFUSED, "a", "refused")).count();
        assert_eq!((lines, told.kinds.len()), (3, 1));
        assert_eq!(told.left_out(), ["999997 more registrations that were refused, the last from a"]);
    }
}
