//! The store, as callers see it: each call is one request to the scheduler, and a wait for its answer.

use super::cluster::{limit_ms, Cluster};
use crate::agent::Command;
use crate::error::{memory, Error, Failure, Result, Status};
use crate::runtime::base::interrupts::in_call;
use crate::runtime::base::patience::VERDICT_WAIT;
use crate::runtime::base::polling::{Idle, Polls};
use crate::runtime::state::node_state::AgentCommand;
use crate::types::Time;
use crate::wire::{Blob, StoreOperation};
use std::time::Duration;

/// How long an operation that need not wait for anybody may take.
const ANSWER_WAIT: Duration = Duration::from_secs(300);

/// So many of the keys that were waited for in vain are named.
const MISSING_NAMED_MAX: usize = 3;

struct StoreCall<'a> {
    operation: StoreOperation,
    keys: Vec<Blob>,
    delta: i64,
    expected_bytes: u64,
    value: Blob,
    /// What a sentence calls it: `store get of "a"`.
    title: &'a str,
}

impl Cluster {
    /// Sets a key.
    pub fn store_set(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.simple(StoreOperation::Set, key, "set", 0, value).map(|_| ())
    }

    /// The value of a key, waiting for it; `timeout_ms`: -1 the default, 0 try once, `i64::MAX` no limit.
    pub fn store_get(&self, key: &[u8], timeout_ms: i64) -> Result<Vec<u8>> {
        let operation = if timeout_ms == 0 { StoreOperation::TryGet } else { StoreOperation::Get };
        let keys = vec![self.key(key)?];
        let title = &format!("store get of {}", show(key));
        let request = StoreCall { operation, keys, delta: 0, expected_bytes: 0, value: Blob::new([]), title };
        let limit = if timeout_ms == 0 { Some(ANSWER_WAIT) } else { self.limit(timeout_ms)? };
        self.store(request, limit).map(|(_, value)| value)
    }

    /// Adds to the number in a key; the sum.
    pub fn store_add(&self, key: &[u8], delta: i64) -> Result<i64> {
        self.simple(StoreOperation::Add, key, "add", delta, &[]).map(|(sum, _)| sum)
    }

    /// Sets a key to `desired` if it is `expected`; what it is afterwards.
    pub fn store_compare_set(&self, key: &[u8], expected: &[u8], desired: &[u8]) -> Result<Vec<u8>> {
        self.value_fits(expected.len(), "the expected value")?;
        self.value_fits(desired.len(), "the desired value")?;
        room_for(expected.len() + desired.len())?;
        let keys = vec![self.key(key)?];
        let title = &format!("store compare_set of {}", show(key));
        let expected_bytes = expected.len() as u64;
        let value = Blob::new([expected, desired].concat());
        let request = StoreCall { operation: StoreOperation::CompareSet, keys, delta: 0, expected_bytes, value, title };
        self.store(request, Some(ANSWER_WAIT)).map(|(_, value)| value)
    }

    /// Deletes a key; whether it existed.
    pub fn store_delete(&self, key: &[u8]) -> Result<bool> {
        self.simple(StoreOperation::Delete, key, "delete", 0, &[]).map(|(existed, _)| existed != 0)
    }

    /// Waits until every key exists.
    pub fn store_wait(&self, keys: &[&[u8]], timeout_ms: i64) -> Result<()> {
        let title = &match keys {
            [key] => format!("store wait for {}", show(key)),
            keys => format!("store wait for {} keys", keys.len()),
        };
        // Each is copied, and stands in a list.
        let bytes = keys.iter().fold(0usize, |bytes, key| bytes.saturating_add(key.len() + 256));
        memory::room(bytes, "the keys that are waited for")?;
        let wanted = keys.iter().map(|key| self.key(key)).collect::<Result<Vec<Blob>>>()?;
        if keys.is_empty() {
            return Ok(());
        }
        if timeout_ms == 0 {
            // Nothing to wait for: the first that is not there is the answer.
            return keys.iter().try_for_each(|key| self.try_get(key, ANSWER_WAIT));
        }
        let (operation, value) = (StoreOperation::Wait, Blob::new([]));
        let request = StoreCall { operation, keys: wanted, delta: 0, expected_bytes: 0, value, title };
        let limit = self.limit(timeout_ms)?;
        let error = match self.store(request, limit) {
            Err(error) if error.status() == Status::Timeout && keys.len() > 1 => error,
            outcome => return outcome.map(drop),
        };
        let missing = self.missing_of(keys);
        let named: Vec<String> = missing.iter().map(|key| show(key)).collect();
        let named = if named.is_empty() { "all of them".to_owned() } else { named.join(", ") };
        let within = limit.unwrap_or_default().as_secs_f64();
        Err(Error::new(error.status(), format!("{title}: nobody has set {named} within {within} s")))
    }

    /// Which of these are missing, as far as the scheduler says so in a moment: the first few.
    fn missing_of<'a>(&self, keys: &[&'a [u8]]) -> Vec<&'a [u8]> {
        let until = self.state.clock.now() + VERDICT_WAIT;
        let mut missing = Vec::new();
        for key in keys {
            let left = self.state.clock.until(until).unwrap_or_default();
            if left.is_zero() || missing.len() == MISSING_NAMED_MAX {
                break;
            }
            let outcome = self.try_get(key, left);
            missing.extend(outcome.is_err_and(|error| error.status() == Status::NotFound).then_some(*key));
        }
        missing
    }

    /// Whether a key is there; the answer is waited for so long.
    fn try_get(&self, key: &[u8], wait: Duration) -> Result<()> {
        let (title, keys) = (&format!("store wait for {}", show(key)), vec![self.key(key)?]);
        let (operation, value) = (StoreOperation::TryGet, Blob::new([]));
        self.store(StoreCall { operation, keys, delta: 0, expected_bytes: 0, value, title }, Some(wait)).map(drop)
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
        let keys = vec![self.key(key)?];
        let request = StoreCall { operation, keys, delta, expected_bytes: 0, value: Blob::new(value), title };
        self.store(request, Some(ANSWER_WAIT))
    }

    fn key(&self, key: &[u8]) -> Result<Blob> {
        let max = self.formed().agreed.store_key_max;
        if key.is_empty() || key.len() as u64 > max {
            let what =
                format!("a store key of {} bytes: from 1 to {max} are allowed (setting store_key_limit)", key.len());
            return Err(Error::new(if key.is_empty() { Status::Invalid } else { Status::Limit }, what));
        }
        Ok(Blob::new(key.to_vec()))
    }

    fn value_fits(&self, bytes: usize, what: &str) -> Result<()> {
        let max = self.formed().agreed.store_value_max;
        if bytes as u64 > max {
            let sentence =
                format!("{what} has {bytes} bytes: the store takes {max} at most (setting store_value_limit)");
            return Err(Error::new(Status::Limit, sentence));
        }
        Ok(())
    }

    /// How long to wait; `None`: without limit.
    fn limit(&self, timeout_ms: i64) -> Result<Option<Duration>> {
        match timeout_ms {
            -1 => Ok(Some(limit_ms(self.settings().store_timeout))
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

    fn store(&self, request: StoreCall<'_>, limit: Option<Duration>) -> Result<(i64, Vec<u8>)> {
        let StoreCall { operation, keys, delta, expected_bytes, value, title } = request;
        {
            let view = self.state.view();
            if let Some(failure) = &view.epoch.broken {
                return Err(view.epoch.causes.of_call(failure).into());
            }
        }
        let (ask, attention) = (self.state.next_ask(), self.state.interrupts.attention());
        let waits = matches!(operation, StoreOperation::Get | StoreOperation::Wait);
        self.state.view().store.insert(ask, None);
        self.state.ask(AgentCommand::Brain(Command::Store { ask, operation, keys, delta, expected_bytes, value }));
        let polls = Polls::new(1, 1, self.state.polling.set);
        let deadline = limit.map_or(Time::NEVER, |limit| self.state.clock.now() + limit);
        // Where the job goes on after a loss, what became of a change must be known: else it would be made once more.
        let is_answered = self.state.recovery && !waits;
        let ends = |first: &Failure| !is_answered || matches!(first.status, Status::Aborted | Status::Fenced);
        let mut idle = Idle::default();
        let is_answered_soon = || self.state.view().store.get(&ask).is_some_and(Option::is_some);
        while !is_answered_soon() && self.state.polling.poll(&mut idle, &polls, &self.state.clock) {}
        let mut is_open = true;
        let answer = self.state.wait_attentively(deadline, &attention, |view| {
            if let Some(answer) = view.store.get_mut(&ask).and_then(Option::take) {
                is_open = false;
                return Some(answer);
            }
            if let Some(failure) = view.epoch.broken.iter().chain(&view.epoch.aborted).find(|failure| ends(failure)) {
                return Some(Err(view.epoch.causes.of_call(failure).into()));
            }
            let over = view.left.is_some() || view.over;
            over.then(|| Err(Error::new(Status::State, "this process has left its cluster")))
        });
        let mut view = self.state.view();
        view.store.remove(&ask);
        let (away, causes) = (view.away.clone(), view.epoch.causes.clone());
        drop(view);
        if is_open {
            self.state.ask(AgentCommand::Brain(Command::StoreCancel(ask)));
        }
        let Some(answer) = answer.map_err(|why| in_call(title, &why))? else {
            let limit = limit.unwrap_or_default().as_secs_f64();
            return Err(match away {
                Some(reason) => {
                    let what = format!("{title}: the scheduler could not be reached for {limit} s: {reason}");
                    Error::new(Status::Unreachable, what)
                }
                None if waits => Error::new(Status::Timeout, format!("{title}: nobody has set it within {limit} s")),
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

/// Room for a value twice: here, and in the frames that go out.
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
