//! The store, as callers see it: each call is one request to the scheduler, and a wait for its answer.

use super::cluster::{limit_ms, Cluster};
use crate::agent::Command;
use crate::error::{memory, Error, Failure, Result, Status};
use crate::runtime::base::interrupts::in_call;
use crate::runtime::base::patience::VERDICT_WAIT;
use crate::runtime::base::polling::{Idle, Polls};
use crate::runtime::state::node_state::AgentCommand;
use crate::runtime::state::participation::left_error;
use crate::types::Time;
use crate::wire::{Blob, Parts, StoreOperation};
use std::time::Duration;

/// How long an operation may take that need not wait for another node.
const ANSWER_WAIT: Duration = Duration::from_secs(300);

/// How many of the keys that were waited for in vain are named.
const MISSING_NAMED_MAX: usize = 3;

struct StoreCall<'a> {
    operation: StoreOperation,
    keys: Vec<Blob>,
    delta: i64,
    expected_bytes: u64,
    value: Blob,
    /// The call's name in sentences: `store get of "a"`.
    title: &'a str,
}

impl<'a> StoreCall<'a> {
    /// A call with keys only.
    fn new(operation: StoreOperation, keys: Vec<Blob>, title: &'a str) -> StoreCall<'a> {
        StoreCall { operation, keys, delta: 0, expected_bytes: 0, value: Blob::new([]), title }
    }
}

/// The result of a compare-and-set.
pub struct Compared {
    /// The value of the key afterwards; empty if the key is absent.
    pub current: Vec<u8>,
    /// Whether the key is absent although a value was expected.
    pub is_absent: bool,
}

/// The store of a node's cluster.
#[derive(Clone, Copy)]
pub struct Store<'a> {
    cluster: &'a Cluster,
}

impl Cluster {
    /// The cluster's store.
    pub fn store(&self) -> Store<'_> {
        Store { cluster: self }
    }
}

impl Store<'_> {
    /// Sets a key.
    pub fn set(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.simple(StoreOperation::Set, key, "set", 0, value).map(|_| ())
    }

    /// Waits for a key, and returns its value; `timeout_ms`: -1 the default, 0 try once, `i64::MAX` no limit.
    pub fn get(&self, key: &[u8], timeout_ms: i64) -> Result<Vec<u8>> {
        let operation = if timeout_ms == 0 { StoreOperation::TryGet } else { StoreOperation::Get };
        let title = &format!("store get of {}", show(key));
        let request = StoreCall::new(operation, vec![self.key(key, "key")?], title);
        self.ask(request, self.limit_or_answer(timeout_ms)?).map(|(_, value)| value)
    }

    /// Adds to the number in a key. Returns the sum.
    pub fn add(&self, key: &[u8], delta: i64) -> Result<i64> {
        self.simple(StoreOperation::Add, key, "add", delta, &[]).map(|(sum, _)| sum)
    }

    /// Puts bytes behind what is in a key. Returns how long the value is then.
    pub fn append(&self, key: &[u8], value: &[u8]) -> Result<usize> {
        self.simple(StoreOperation::Append, key, "append", 0, value).map(|(length, _)| length as usize)
    }

    /// Sets a key to `desired` if its value is `expected`. Returns what the value is afterwards.
    pub fn compare_set(&self, key: &[u8], expected: &[u8], desired: &[u8]) -> Result<Compared> {
        self.value_fits(expected.len(), "the expected value")?;
        self.value_fits(desired.len(), "the desired value")?;
        room_for(expected.len() + desired.len())?;
        let title = &format!("store compare_set of {}", show(key));
        let request = StoreCall {
            expected_bytes: expected.len() as u64,
            value: Blob::new([expected, desired].concat()),
            ..StoreCall::new(StoreOperation::CompareSet, vec![self.key(key, "key")?], title)
        };
        let (number, current) = self.ask(request, Some(ANSWER_WAIT))?;
        Ok(Compared { current, is_absent: number < 0 })
    }

    /// Deletes a key. Returns whether it existed.
    pub fn delete(&self, key: &[u8]) -> Result<bool> {
        self.simple(StoreOperation::Delete, key, "delete", 0, &[]).map(|(existed, _)| existed != 0)
    }

    /// Waits until all of these keys exist.
    pub fn wait(&self, keys: &[&[u8]], timeout_ms: i64) -> Result<()> {
        let title = &title_of("wait for", keys);
        let (wanted, limit) = (self.keys(keys)?, self.limit(timeout_ms)?);
        if keys.is_empty() {
            return Ok(());
        }
        if timeout_ms == 0 {
            // Nothing is waited for: the first key that is not there is the answer.
            let there = self.which_exist(wanted, title, ANSWER_WAIT)?;
            let missing = keys.iter().zip(there).find(|(_, there)| !there);
            return missing.map_or(Ok(()), |(key, _)| {
                Err(Error::new(Status::NotFound, format!("{title}: no key {} in the store", show(key))))
            });
        }
        let waited = self.ask(StoreCall::new(StoreOperation::Wait, wanted, title), limit);
        waited.map(drop).map_err(|error| self.naming_missing(error, keys, title, limit))
    }

    /// Which of these keys exist.
    pub fn check(&self, keys: &[&[u8]]) -> Result<Vec<bool>> {
        let wanted = self.keys(keys)?;
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        self.which_exist(wanted, &title_of("check of", keys), ANSWER_WAIT)
    }

    /// How many keys there are.
    pub fn count(&self) -> Result<u64> {
        let request = StoreCall::new(StoreOperation::Count, Vec::new(), "store count");
        self.ask(request, Some(ANSWER_WAIT)).map(|(count, _)| count as u64)
    }

    /// The keys with this prefix, in the order of their bytes. They are fetched piece by piece, so that no other call
    /// waits for long.
    pub fn list(&self, prefix: &[u8]) -> Result<Vec<Vec<u8>>> {
        let max = self.cluster.formed().agreed.store_key_max;
        if prefix.len() as u64 > max {
            return Err(too_long("prefix", prefix.len(), max));
        }
        let title = &format!("store list of {}", show(prefix));
        let (prefix, mut all) = (Blob::new(prefix), Vec::<Vec<u8>>::new());
        loop {
            let after = Blob::new(all.last().map_or(&[][..], Vec::as_slice));
            let request = StoreCall::new(StoreOperation::List, vec![prefix.clone(), after], title);
            let (more, value) = self.ask(request, Some(ANSWER_WAIT))?;
            let found = parts(&value, title)?;
            let bytes = value.len() + found.len() * std::mem::size_of::<Vec<u8>>();
            memory::room(2 * bytes, "a list of the store's keys")?;
            memory::more(&mut all, found.len(), "a list of the store's keys")?;
            let is_last = more == 0 || found.is_empty();
            all.extend(found.into_iter().map(<[u8]>::to_vec));
            if is_last {
                return Ok(all);
            }
        }
    }

    /// Sets all of these keys, or none.
    pub fn multi_set(&self, pairs: &[(&[u8], &[u8])]) -> Result<()> {
        let keys: Vec<&[u8]> = pairs.iter().map(|(key, _)| *key).collect();
        let wanted = self.keys(&keys)?;
        if pairs.is_empty() {
            return Ok(());
        }
        let bytes = pairs.iter().fold(0usize, |bytes, (_, value)| bytes.saturating_add(value.len()));
        self.value_fits(bytes, &format!("what {} values have together", pairs.len()))?;
        room_for(Parts::length(pairs.len(), bytes))?;
        let mut value = Parts::default();
        pairs.iter().for_each(|(_, part)| value.push(part));
        let title = &title_of("multi_set of", &keys);
        let value = Blob::new(value.bytes);
        let request = StoreCall { value, ..StoreCall::new(StoreOperation::MultiSet, wanted, title) };
        self.ask(request, Some(ANSWER_WAIT)).map(drop)
    }

    /// Waits until all of these keys exist, and passes their values to `take`; time-outs as in `get`.
    pub fn multi_get<T>(&self, keys: &[&[u8]], timeout_ms: i64, take: impl FnOnce(&[&[u8]]) -> Result<T>) -> Result<T> {
        let title = &title_of("multi_get of", keys);
        let (wanted, limit) = (self.keys(keys)?, self.limit_or_answer(timeout_ms)?);
        if keys.is_empty() {
            return take(&[]);
        }
        let operation = if timeout_ms == 0 { StoreOperation::TryMultiGet } else { StoreOperation::MultiGet };
        let answer = self.ask(StoreCall::new(operation, wanted, title), limit);
        let (_, value) = answer.map_err(|error| self.naming_missing(error, keys, title, limit))?;
        let values = parts(&value, title)?;
        match values.len() == keys.len() {
            true => take(&values),
            false => Err(odd(title, "it does not have as many values as keys")),
        }
    }

    fn which_exist(&self, keys: Vec<Blob>, title: &str, wait: Duration) -> Result<Vec<bool>> {
        let count = keys.len();
        let (_, there) = self.ask(StoreCall::new(StoreOperation::Check, keys, title), Some(wait))?;
        match there.len() == count {
            true => Ok(there.into_iter().map(|there| there != 0).collect()),
            false => Err(odd(title, "it does not answer for each key")),
        }
    }

    /// Adds to a time-out for several keys which of them are missing, if the scheduler says so in a moment.
    fn naming_missing(&self, error: Error, keys: &[&[u8]], title: &str, limit: Option<Duration>) -> Error {
        if error.status() != Status::Timeout || keys.len() == 1 {
            return error;
        }
        let there = self.keys(keys).and_then(|keys| self.which_exist(keys, title, VERDICT_WAIT)).ok();
        let words = missing_in_words(keys, there.as_deref(), limit.unwrap_or_default());
        Error::new(error.status(), format!("{title}: {words}"))
    }

    fn simple(
        &self,
        operation: StoreOperation,
        key: &[u8],
        verb: &str,
        delta: i64,
        value: &[u8],
    ) -> Result<(i64, Vec<u8>)> {
        self.value_fits(value.len(), "the value")?;
        let title = &format!("store {verb} of {}", show(key));
        room_for(value.len())?;
        let keys = vec![self.key(key, "key")?];
        let request = StoreCall { delta, value: Blob::new(value), ..StoreCall::new(operation, keys, title) };
        self.ask(request, Some(ANSWER_WAIT))
    }

    fn key(&self, key: &[u8], name: &str) -> Result<Blob> {
        let max = self.cluster.formed().agreed.store_key_max;
        if key.is_empty() {
            let what = format!("{name} is empty: a key of the store has 1 to {max} bytes (setting store_key_limit)");
            return Err(Error::invalid(what));
        }
        if key.len() as u64 > max {
            return Err(too_long(name, key.len(), max));
        }
        Ok(Blob::new(key))
    }

    /// Copies several keys into a list.
    fn keys(&self, keys: &[&[u8]]) -> Result<Vec<Blob>> {
        let bytes = keys.iter().fold(0usize, |bytes, key| bytes.saturating_add(key.len() + 256));
        memory::room(bytes, "the keys of a call to the store")?;
        keys.iter().enumerate().map(|(at, key)| self.key(key, &format!("keys[{at}]"))).collect()
    }

    fn value_fits(&self, bytes: usize, what: &str) -> Result<()> {
        let max = self.cluster.formed().agreed.store_value_max;
        if bytes as u64 > max {
            let sentence =
                format!("{what} has {bytes} bytes: the store takes {max} at most (setting store_value_limit)");
            return Err(Error::new(Status::Limit, sentence));
        }
        Ok(())
    }

    /// How long to wait; `None`: without limit. A call that tries once waits for its answer.
    fn limit_or_answer(&self, timeout_ms: i64) -> Result<Option<Duration>> {
        if timeout_ms == 0 {
            Ok(Some(ANSWER_WAIT))
        } else {
            self.limit(timeout_ms)
        }
    }

    /// How long to wait; `None`: without limit.
    fn limit(&self, timeout_ms: i64) -> Result<Option<Duration>> {
        match timeout_ms {
            -1 => Ok(Some(limit_ms(self.cluster.settings().store_timeout))
                .filter(|ms| *ms != i64::MAX)
                .map(|ms| Duration::from_millis(ms as u64))),
            i64::MAX => Ok(None),
            0.. => Ok(Some(Duration::from_millis(timeout_ms as u64))),
            _ => {
                let what = format!(
                    "timeout_ms is {timeout_ms}: -1 is the default, 0 tries once, a positive number waits so long"
                );
                Err(Error::invalid(what))
            }
        }
    }

    fn ask(&self, request: StoreCall<'_>, limit: Option<Duration>) -> Result<(i64, Vec<u8>)> {
        let StoreCall { operation, keys, delta, expected_bytes, value, title } = request;
        let state = &self.cluster.state;
        {
            let view = state.view();
            if let Some(failure) = &view.epoch.broken {
                return Err(view.epoch.causes.of_call(failure).into());
            }
        }
        let (ask, attention) = (state.next_ask(), state.program.interrupts.attention());
        let waits = matches!(operation, StoreOperation::Get | StoreOperation::Wait | StoreOperation::MultiGet);
        state.view().store.insert(ask, None);
        state.ask(AgentCommand::Brain(Command::Store { ask, operation, keys, delta, expected_bytes, value }));
        let polls = Polls::new(1, 1, state.polling.set);
        let deadline = limit.map_or(Time::NEVER, |limit| state.clock.now() + limit);
        // If the job goes on after a loss, it must be known what became of a change: else it would be made once more.
        let is_answered = state.recovery && !waits;
        let ends = |first: &Failure| !is_answered || matches!(first.status, Status::Aborted | Status::Fenced);
        let mut idle = Idle::default();
        let is_answered_soon = || state.view().store.get(&ask).is_some_and(Option::is_some);
        while !is_answered_soon() && state.polling.poll(&mut idle, &polls, &state.clock) {}
        let mut is_open = true;
        let answer = state.wait_attentively(deadline, &attention, |view| {
            if let Some(answer) = view.store.get_mut(&ask).and_then(Option::take) {
                is_open = false;
                return Some(answer);
            }
            if let Some(failure) = view.epoch.broken.iter().chain(&view.epoch.aborted).find(|failure| ends(failure)) {
                return Some(Err(view.epoch.causes.of_call(failure).into()));
            }
            view.participation.is_over().then(|| Err(left_error()))
        });
        let mut view = state.view();
        view.store.remove(&ask);
        let (away, causes) = (view.away.clone(), view.epoch.causes.clone());
        drop(view);
        if is_open {
            state.ask(AgentCommand::Brain(Command::StoreCancel(ask)));
        }
        let Some(answer) = answer.map_err(|why| in_call(title, &why))? else {
            let limit = limit.unwrap_or_default().as_secs_f64();
            return Err(match away {
                Some(reason) => {
                    let what = format!("{title}: the scheduler could not be reached for {limit} s: {reason}");
                    Error::new(Status::Unreachable, what)
                }
                None if waits => {
                    // Nothing tells whether the scheduler has the request: it may stand still.
                    let what = format!("{title}: nobody has set it within {limit} s, as far as this node has heard");
                    Error::new(Status::Timeout, what)
                }
                None => {
                    Error::new(Status::Timeout, format!("{title}: the scheduler has not answered within {limit} s"))
                }
            });
        };
        answer.map_err(|error| match error.failure() {
            Some(failure) => causes.of_call(failure).into(),
            None => Error::new(error.status(), format!("{title}: {}", error.message())),
        })
    }
}

/// The parts of an answer's value.
fn parts<'a>(value: &'a [u8], title: &str) -> Result<Vec<&'a [u8]>> {
    Parts::of(value).map_err(|error| odd(title, &error.0))
}

/// An answer that no scheduler gives.
fn odd(title: &str, why: &str) -> Error {
    Error::new(Status::Internal, format!("{title}: the scheduler's answer makes no sense: {why}"))
}

fn too_long(name: &str, bytes: usize, max: u64) -> Error {
    Error::new(
        Status::Limit,
        format!("{name} has {bytes} bytes: a key of the store has {max} at most (setting store_key_limit)"),
    )
}

/// The name in sentences of a call with these keys.
fn title_of(verb: &str, keys: &[&[u8]]) -> String {
    match keys {
        [key] => format!("store {verb} {}", show(key)),
        keys => format!("store {verb} {} keys", keys.len()),
    }
}

/// What is said of several keys that were waited for in vain: the first few that are missing. `there`: which of them the
/// scheduler has, if it has said so.
fn missing_in_words(keys: &[&[u8]], there: Option<&[bool]>, limit: Duration) -> String {
    let limit = limit.as_secs_f64();
    let Some(there) = there else {
        return format!("the scheduler has not answered within {limit} s, so the missing keys are unknown");
    };
    let missing = keys.iter().zip(there).filter(|(_, there)| !**there).map(|(key, _)| show(key));
    let named: Vec<String> = missing.take(MISSING_NAMED_MAX).collect();
    match named.is_empty() {
        true => format!("the {limit} s were over before the scheduler answered"),
        false => format!("nobody has set {} within {limit} s", named.join(", ")),
    }
}

/// Makes sure of memory for a value twice: here, and in the frames that go out.
fn room_for(bytes: usize) -> Result<()> {
    memory::room(2 * bytes, "a value on its way to the store")
}

/// A key, as a sentence shows it.
fn show(key: &[u8]) -> String {
    let text = String::from_utf8_lossy(&key[..key.len().min(64)]);
    if key.len() > 64 {
        format!("{text:?}...")
    } else {
        format!("{text:?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_in_vain_names_keys_only_where_the_scheduler_says_that_they_are_missing() {
        let keys: [&[u8]; 5] = [b"a", b"b", b"c", b"d", b"e"];
        for (there, words) in [
            (None, "the scheduler has not answered within 0.3 s, so the missing keys are unknown"),
            (Some([true; 5]), "the 0.3 s were over before the scheduler answered"),
            (Some([true, true, false, true, true]), "nobody has set \"c\" within 0.3 s"),
            (Some([false; 5]), "nobody has set \"a\", \"b\", \"c\" within 0.3 s"),
        ] {
            let there = there.as_ref().map(<[bool; 5]>::as_slice);
            assert_eq!(missing_in_words(&keys, there, Duration::from_millis(300)), words);
        }
    }
}
