//! What the store holds, and what each operation does with it. Knows no node and no request.
//!
//! Invariants: `bytes` is what keys and values take together; an operation that is refused has changed nothing. Tested through
//! `store_test.rs`.

use crate::error::{memory, Error, Status};
use crate::wire::{Blob, Parts, StoreBegin, StoreOperation, STORE_PIECE_BYTES};
use std::collections::BTreeMap;
use std::ops::Bound;

/// A refusal: status and sentence.
pub(super) type Refusal = (Status, String);

/// A key, and the value that it gets.
type Pair<'a> = (&'a [u8], &'a [u8]);

/// What came of an operation.
pub(super) enum Outcome {
    /// A number, a value, and whether the keys of the request were changed.
    Done(i64, Option<Blob>, bool),
    /// It must wait for this one of its keys.
    Missing(usize),
}

/// How much there may be.
#[derive(Clone, Copy)]
pub(super) struct Room {
    /// Bytes of all keys and values.
    pub total: usize,
    /// Bytes of one value, and of the values of one answer.
    pub value: usize,
}

/// Keys in the order of their bytes, and their values.
#[derive(Debug, Default)]
pub(super) struct Entries {
    map: BTreeMap<Vec<u8>, Blob>,
    bytes: usize,
}

impl Entries {
    /// What keys and values take together.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Vec<u8>, &Blob)> {
        self.map.iter()
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&Blob> {
        self.map.get(key)
    }

    /// What this key takes, with its value.
    pub(super) fn held_by(&self, key: &[u8]) -> usize {
        self.get(key).map_or(0, |value| key.len() + value.len())
    }

    /// Sets what a key holds from now on; with none, deletes the key. Returns whether it held something.
    pub(super) fn put(&mut self, key: &[u8], value: Option<Blob>) -> bool {
        let old = match value {
            Some(value) => {
                self.bytes += key.len() + value.len();
                self.map.insert(key.to_vec(), value)
            }
            None => self.map.remove(key),
        };
        self.bytes -= old.as_ref().map_or(0, |old| key.len() + old.len());
        old.is_some()
    }

    /// The first of these keys that is not there.
    pub(super) fn missing(&self, keys: &[Blob]) -> Option<usize> {
        keys.iter().position(|key| !self.map.contains_key(key.as_slice()))
    }

    /// Does what a request asks for. The request has as many keys as it must have.
    pub(super) fn carry_out(&mut self, begin: &StoreBegin, bytes: Vec<u8>, room: Room) -> Result<Outcome, Refusal> {
        use StoreOperation::*;
        let keys = &begin.keys;
        let first = || keys[0].as_slice();
        let missing = match begin.operation {
            Get | TryGet | Wait | MultiGet | TryMultiGet => self.missing(keys),
            _ => None,
        };
        if let Some(at) = missing {
            return match begin.operation {
                TryGet | TryMultiGet => {
                    let key = readable(keys[at].as_slice());
                    Err((Status::NotFound, format!("no key {key:?} in the store")))
                }
                _ => Ok(Outcome::Missing(at)),
            };
        }
        let is_there = |key: &Blob| self.map.contains_key(key.as_slice());
        Ok(match begin.operation {
            Wait => Outcome::Done(0, None, false),
            Get | TryGet => Outcome::Done(0, self.get(first()).cloned(), false),
            MultiGet | TryMultiGet => Outcome::Done(0, Some(self.values(keys, room)?), false),
            Check => {
                let there: Vec<u8> = keys.iter().map(|key| is_there(key).into()).collect();
                Outcome::Done(0, Some(Blob::new(there)), false)
            }
            Count => Outcome::Done(self.map.len() as i64, None, false),
            List => {
                let (keys, more) = self.list(first(), keys[1].as_slice());
                Outcome::Done(more.into(), Some(Blob::new(keys.bytes)), false)
            }
            Set => {
                self.insert(&[(first(), &bytes)], room)?;
                Outcome::Done(0, None, true)
            }
            MultiSet => {
                let values = Parts::of(&bytes).map_err(|error| (Status::Invalid, error.0))?;
                let pairs = pairs(keys, values, room)?;
                self.insert(&pairs, room)?;
                Outcome::Done(0, None, true)
            }
            Append => {
                let (before, behind) = (self.get(first()).map_or(&[][..], Blob::as_slice), &bytes);
                let length = before.len() + behind.len();
                fits(length, room)?;
                memory_for(2 * length)?;
                let whole = [before, behind].concat();
                self.insert(&[(first(), &whole)], room)?;
                Outcome::Done(length as i64, None, true)
            }
            Add => {
                let sum = add(first(), self.get(first()).map(Blob::as_slice), begin.delta)?;
                let text = sum.to_string();
                fits(text.len(), room)?;
                self.insert(&[(first(), text.as_bytes())], room)?;
                Outcome::Done(sum, None, true)
            }
            CompareSet => self.compare_set(first(), bytes.split_at(begin.expected_bytes as usize), room)?,
            Delete => {
                let existed = self.put(first(), None);
                Outcome::Done(existed.into(), None, existed)
            }
        })
    }

    fn compare_set(&mut self, key: &[u8], (expected, desired): (&[u8], &[u8]), room: Room) -> Result<Outcome, Refusal> {
        let found = self.get(key).cloned();
        if found.as_ref().map_or(&[][..], Blob::as_slice) != expected {
            let number = if found.is_none() { -1 } else { 0 };
            return Ok(Outcome::Done(number, found, false));
        }
        self.insert(&[(key, desired)], room)?;
        Ok(Outcome::Done(1, self.get(key).cloned(), true))
    }

    /// The values of keys that are there, joined in one value.
    fn values(&self, keys: &[Blob], room: Room) -> Result<Blob, Refusal> {
        let values = || keys.iter().filter_map(|key| self.get(key.as_slice()));
        let bytes: usize = values().map(Blob::len).sum();
        if bytes > room.value {
            let (count, most) = (keys.len(), room.value);
            let words = format!("{count} values of {bytes} bytes in all: the limit of one answer is {most}");
            return Err((Status::Limit, words));
        }
        memory_for(2 * Parts::length(keys.len(), bytes))?;
        let mut parts = Parts::default();
        values().for_each(|value| parts.push(value.as_slice()));
        Ok(Blob::new(parts.bytes))
    }

    /// The first keys behind `after` that begin with `prefix`, as many as go into one message, and whether there are
    /// more.
    fn list(&self, prefix: &[u8], after: &[u8]) -> (Parts, bool) {
        let from = if after < prefix { Bound::Included(prefix) } else { Bound::Excluded(after) };
        // Every key has at least one byte, so nothing is lost where both are empty.
        let found = self.map.range::<[u8], _>((from, Bound::Unbounded)).map(|(key, _)| key);
        let mut parts = Parts::default();
        for key in found.take_while(|key| key.starts_with(prefix)) {
            if !parts.bytes.is_empty() && parts.bytes.len() + Parts::length(1, key.len()) > STORE_PIECE_BYTES {
                return (parts, true);
            }
            parts.push(key);
        }
        (parts, false)
    }

    /// Sets these keys, all or none. If a key stands there twice, its later value counts.
    fn insert(&mut self, pairs: &[Pair<'_>], room: Room) -> Result<(), Refusal> {
        let new: BTreeMap<&[u8], &[u8]> = pairs.iter().copied().collect();
        let more: usize = new.iter().map(|(key, value)| key.len() + value.len()).sum();
        let less: usize = new.keys().map(|key| self.held_by(key)).sum();
        check_total("the store", more, self.bytes - less, room)?;
        for (key, value) in new {
            self.put(key, Some(Blob::new(value)));
        }
        Ok(())
    }
}

/// Keys and their values. Each value keeps the limit.
fn pairs<'a>(keys: &'a [Blob], values: Vec<&'a [u8]>, room: Room) -> Result<Vec<Pair<'a>>, Refusal> {
    if keys.len() != values.len() {
        return Err((Status::Invalid, format!("{} values for {} keys in a store request", values.len(), keys.len())));
    }
    values.iter().try_for_each(|value| fits(value.len(), room))?;
    memory_for(values.iter().map(|value| value.len()).sum())?;
    Ok(keys.iter().map(Blob::as_slice).zip(values).collect())
}

/// Whether a value may be so long.
pub(super) fn fits(bytes: usize, room: Room) -> Result<(), Refusal> {
    match bytes <= room.value {
        true => Ok(()),
        false => Err((Status::Limit, format!("a store value of {bytes} bytes: the limit is {}", room.value))),
    }
}

/// Whether `what` may have so many bytes more beside those that it has.
pub(super) fn check_total(what: &str, more: usize, has: usize, room: Room) -> Result<(), Refusal> {
    let total = room.total;
    match has + more <= total {
        true => Ok(()),
        false => {
            let words = format!(
                "{more} bytes more in {what} beside {has}: the limit is {total} in total (setting store_total_limit)"
            );
            Err((Status::Limit, words))
        }
    }
}

/// Whether there is memory for so many bytes of value.
pub(super) fn memory_for(bytes: usize) -> Result<(), Refusal> {
    match bytes {
        0 => Ok(()),
        _ => memory::room(bytes, "a value in the store").map_err(refused),
    }
}

pub(super) fn refused(error: Error) -> Refusal {
    (error.status(), format!("the scheduler has {}", error.message()))
}

/// The sum of a number in decimal text and `delta`.
fn add(key: &[u8], value: Option<&[u8]>, delta: i64) -> Result<i64, Refusal> {
    let text = value.map_or(Some("0"), |value| std::str::from_utf8(value).ok());
    let number: i64 = text.and_then(|text| text.parse().ok()).ok_or_else(|| {
        let (key, value) = (readable(key), readable(value.unwrap_or_default()));
        (Status::Invalid, format!("store key {key:?} holds {value:?}: add needs a decimal number of 64 bits there"))
    })?;
    number.checked_add(delta).ok_or_else(|| {
        let key = readable(key);
        (Status::Invalid, format!("store key {key:?} holds {number}: adding {delta} does not fit into 64 bits"))
    })
}

/// The beginning of some bytes, for a sentence.
fn readable(bytes: &[u8]) -> String {
    const SHOWN: usize = 64;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN)]).into_owned();
    if bytes.len() > SHOWN {
        text + "..."
    } else {
        text
    }
}
