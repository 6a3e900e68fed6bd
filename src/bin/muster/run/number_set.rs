//! A set of cores, or of NUMA nodes, as Linux writes it: `0-3,8`.

use std::collections::BTreeSet;
use std::ffi::c_ulong;
use std::fmt;

/// A number above every number that Linux gives a core or a node.
const LIMIT: u32 = 1 << 14;
const WORD_BITS: u32 = c_ulong::BITS;

/// Numbers from 0 on.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NumberSet(BTreeSet<u32>);

impl NumberSet {
    /// Reads numbers and ranges with commas between them. An error's words follow the text.
    pub fn parse(text: &str) -> Result<NumberSet, String> {
        let mut numbers = BTreeSet::new();
        for part in text.split(',') {
            let part = part.trim();
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(format!("has the range {part}: expected its lower number first"));
            }
            numbers.extend(first..=last);
        }
        Ok(NumberSet(numbers))
    }

    /// All numbers of the set, the lowest first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this number is in the set.
    pub fn contains(&self, number: u32) -> bool {
        self.0.contains(&number)
    }

    /// The numbers that are in both.
    pub fn common(&self, other: &NumberSet) -> NumberSet {
        NumberSet(self.0.intersection(&other.0).copied().collect())
    }

    /// The numbers that are in either.
    pub fn joined(mut self, other: &NumberSet) -> NumberSet {
        self.0.extend(&other.0);
        self
    }

    /// The set as the kernel's calls take it: a bit for each number.
    pub fn bits(&self) -> Vec<c_ulong> {
        let words = self.0.last().map_or(0, |last| last / WORD_BITS + 1);
        let mut bits = vec![0; words as usize];
        self.0.iter().for_each(|number| bits[(number / WORD_BITS) as usize] |= 1 << (number % WORD_BITS));
        bits
    }

    /// The set that such bits mean.
    pub fn of_bits(bits: &[c_ulong]) -> NumberSet {
        let is_set = |number: &u32| bits[(number / WORD_BITS) as usize] >> (number % WORD_BITS) & 1 == 1;
        NumberSet((0..bits.len() as u32 * WORD_BITS).filter(is_set).collect())
    }
}

fn number(text: &str) -> Result<u32, String> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse::<u32>() {
        Ok(number) if is_plain && number < LIMIT => Ok(number),
        Ok(_) if is_plain => Err(format!("has the number {text}: Linux knows none above {}", LIMIT - 1)),
        _ if is_plain => Err(format!("has the number {text}, which is too large")),
        _ => Err(format!("has {text:?} where a number should be: expected numbers and ranges, as in \"0-3,8\"")),
    }
}

impl FromIterator<u32> for NumberSet {
    fn from_iter<T: IntoIterator<Item = u32>>(numbers: T) -> NumberSet {
        NumberSet(numbers.into_iter().collect())
    }
}

impl fmt::Display for NumberSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut numbers = self.iter().peekable();
        let mut comma = "";
        while let Some(first) = numbers.next() {
            let mut last = first;
            while let Some(next) = numbers.next_if(|next| *next == last + 1) {
                last = next;
            }
            write!(f, "{comma}{first}")?;
            if last > first {
                write!(f, "-{last}")?;
            }
            comma = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_written_as_the_shortest_text_that_means_it() {
        for (text, shown) in [
            ("0", "0"),
            ("0-3,8", "0-3,8"),
            ("8, 3,2 ,0-1", "0-3,8"),
            ("5-5", "5"),
            ("0,2,4", "0,2,4"),
            ("63-65", "63-65"),
        ] {
            let set = NumberSet::parse(text).unwrap();
            assert_eq!(set.to_string(), shown, "{text}");
            assert_eq!(NumberSet::of_bits(&set.bits()), set, "{text}");
        }
        assert_eq!(NumberSet::parse("0,64").unwrap().bits(), [1, 1]);
        assert_eq!(NumberSet::default().bits(), [0; 0]);
    }

    #[test]
    fn what_is_no_list_of_numbers_is_said() {
        for (text, said) in [
            ("", "has \"\" where a number should be"),
            ("0-", "has \"\" where"),
            ("a", "has \"a\" where a number should be: expected numbers and ranges, as in \"0-3,8\""),
            ("-1", "has \"\" where"),
            ("+1", "has \"+1\" where"),
            ("0-3-5", "has \"3-5\" where"),
            ("3-0", "has the range 3-0: expected its lower number first"),
            ("0-99999", "has the number 99999: Linux knows none above 16383"),
            ("99999999999", "has the number 99999999999, which is too large"),
        ] {
            let error = NumberSet::parse(text).unwrap_err();
            assert!(error.starts_with(said), "{text}: {error}");
        }
    }
}
