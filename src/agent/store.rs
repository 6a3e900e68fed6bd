//! The node's side of the store: requests on their way, and replies as they come in piece by piece.
//!
//! A request lives here until it is answered or cancelled, and is sent again, whole and with the same number, on every
//! new connection; the scheduler recognises the number and acts once.

use super::contract::{Ask, Event};
use crate::error::{memory, Error, Status};
use crate::wire::{
    Agreed, Blob, Message, Parts, StoreBegin, StoreCancel, StoreOperation, StorePiece, StoreReply, CONTROL_PAYLOAD_MAX,
    STORE_PIECE_BYTES,
};
use std::collections::{BTreeMap, VecDeque};

/// How many cancellations are said again on a new connection. One that is forgotten costs the scheduler a waiting
/// request until a later request's `answered_below` passes it.
const CANCELLED_MAX: usize = 1024;
/// The keys of one request together: a frame's limit, less what else stands in it.
const KEYS_BYTES_MAX: usize = CONTROL_PAYLOAD_MAX as usize - 1024;

#[derive(Clone, Debug)]
pub(super) struct StoreRequest {
    pub(super) operation: StoreOperation,
    pub(super) keys: Vec<Blob>,
    pub(super) delta: i64,
    pub(super) expected_bytes: u64,
    pub(super) value: Blob,
}

#[derive(Debug)]
struct Pending {
    request: StoreRequest,
    reply: Option<(StoreReply, Vec<u8>)>,
}

#[derive(Debug, Default)]
pub(super) struct StoreRequests {
    pending: BTreeMap<Ask, Pending>,
    cancelled: VecDeque<Ask>,
    value_max: u64,
    key_max: u64,
    /// The last change that was acknowledged, as the scheduler counts this life's changes.
    change: u64,
}

impl StoreRequests {
    /// Sets the limits that the scheduler keeps. Before they are known no request is compared with them.
    pub(super) fn set_limits(&mut self, agreed: &Agreed) {
        self.value_max = agreed.store_value_max;
        self.key_max = agreed.store_key_max;
    }

    /// Takes a request on, or says why not.
    pub(super) fn begin(&mut self, ask: Ask, request: StoreRequest) -> Result<(), Error> {
        self.check(&request)?;
        if self.pending.contains_key(&ask) {
            return Err(Error::invalid(format!(
                "store request {ask} is still under way: its number can't be used again"
            )));
        }
        self.pending.insert(ask, Pending { request, reply: None });
        Ok(())
    }

    /// Checks the limits, before a long value travels in vain.
    fn check(&self, request: &StoreRequest) -> Result<(), Error> {
        let key_max =
            if self.key_max == 0 { STORE_PIECE_BYTES } else { self.key_max.min(STORE_PIECE_BYTES as u64) as usize };
        if let Some(key) = request.keys.iter().find(|key| key.len() > key_max) {
            let found = key.len();
            return Err(Error::new(Status::Limit, format!("a store key of {found} bytes: at most {key_max} are kept")));
        }
        let bytes: usize = request.keys.iter().map(|key| key.len() + 4).sum();
        if bytes > KEYS_BYTES_MAX {
            let count = request.keys.len();
            return Err(Error::new(
                Status::Limit,
                format!("{count} store keys of {bytes} bytes in one request: at most {KEYS_BYTES_MAX} bytes fit"),
            ));
        }
        if request.expected_bytes > request.value.len() as u64 {
            let (expected, length) = (request.expected_bytes, request.value.len());
            return Err(Error::invalid(format!("an expected value of {expected} bytes in a value of {length}")));
        }
        let heads =
            if request.operation == StoreOperation::MultiSet { Parts::length(request.keys.len(), 0) } else { 0 };
        let value_bytes = request.value.len().saturating_sub(heads) as u64;
        let longest = request.expected_bytes.max(value_bytes.saturating_sub(request.expected_bytes));
        if self.value_max != 0 && longest > self.value_max {
            let max = self.value_max;
            return Err(Error::new(Status::Limit, format!("a store value of {longest} bytes: at most {max} are kept")));
        }
        Ok(())
    }

    /// The messages of one request.
    pub(super) fn messages(&self, ask: Ask) -> Vec<Message> {
        let Some(Pending { request, .. }) = self.pending.get(&ask) else { return Vec::new() };
        let begin = StoreBegin {
            request: ask,
            answered_below: self.pending.keys().next().copied().unwrap_or(ask),
            operation: request.operation,
            keys: request.keys.clone(),
            delta: request.delta,
            expected_bytes: request.expected_bytes,
            value_bytes: request.value.len() as u64,
        };
        let pieces = request.value.pieces().map(|bytes| Message::StorePiece(StorePiece { request: ask, bytes }));
        std::iter::once(Message::StoreBegin(begin)).chain(pieces).collect()
    }

    /// Everything not yet answered, to send on a new connection.
    pub(super) fn again(&self) -> Vec<Message> {
        let cancels = self.cancelled.iter().map(|ask| Message::StoreCancel(StoreCancel { request: *ask }));
        cancels.chain(self.pending.keys().flat_map(|ask| self.messages(*ask))).collect()
    }

    /// The caller no longer waits. Returns whether there was such a request.
    pub(super) fn cancel(&mut self, ask: Ask) -> bool {
        if self.pending.remove(&ask).is_none() {
            return false;
        }
        if self.cancelled.len() == CANCELLED_MAX {
            self.cancelled.pop_front();
        }
        self.cancelled.push_back(ask);
        true
    }

    /// The last change that was acknowledged.
    pub(super) fn change(&self) -> u64 {
        self.change
    }

    /// The connection ended: replies that were coming in are lost, and come again.
    pub(super) fn disconnected(&mut self) {
        self.pending.values_mut().for_each(|pending| pending.reply = None);
    }

    /// A reply begins. An answer to what nobody waits for is no error: it was cancelled meanwhile.
    pub(super) fn replied(&mut self, reply: StoreReply) -> Result<Option<Event>, String> {
        let ask = reply.request;
        self.change = self.change.max(reply.change);
        let Some(pending) = self.pending.get_mut(&ask) else { return Ok(None) };
        if pending.reply.is_some() {
            return Err(format!("a second reply to store request {ask} before the first was whole"));
        }
        // If there are several values, each has its length before it. A list of keys is a piece, or one key.
        let heads = Parts::length(pending.request.keys.len(), 0) as u64;
        let max = self.value_max.max(STORE_PIECE_BYTES as u64) + heads;
        if reply.value_bytes > max {
            return Err(format!("a reply of {} bytes to store request {ask}: the limit is {max}", reply.value_bytes));
        }
        // Memory for the answer, and for the caller's copy of it.
        if reply.value_bytes > 0 {
            if let Err(error) = memory::room(2 * reply.value_bytes as usize, "a value from the store") {
                self.pending.remove(&ask);
                return Ok(Some(Event::Stored(ask, Err(error))));
            }
        }
        pending.reply = Some((reply, Vec::new()));
        Ok(self.finish(ask))
    }

    /// A part of a reply's value.
    pub(super) fn piece(&mut self, piece: &StorePiece) -> Result<Option<Event>, String> {
        let ask = piece.request;
        let Some(pending) = self.pending.get_mut(&ask) else { return Ok(None) };
        let Some((reply, value)) = &mut pending.reply else {
            return Err(format!("a piece of a reply to store request {ask} before the reply"));
        };
        if value.len() as u64 + piece.bytes.len() as u64 > reply.value_bytes {
            return Err(format!("more than the announced {} bytes for store request {ask}", reply.value_bytes));
        }
        if let Err(error) = memory::more(value, piece.bytes.len(), "a value from the store") {
            self.pending.remove(&ask);
            return Ok(Some(Event::Stored(ask, Err(error))));
        }
        value.extend_from_slice(piece.bytes.as_slice());
        Ok(self.finish(ask))
    }

    /// The answer, if it is whole.
    fn finish(&mut self, ask: Ask) -> Option<Event> {
        let whole = self
            .pending
            .get(&ask)?
            .reply
            .as_ref()
            .is_some_and(|(reply, value)| value.len() as u64 == reply.value_bytes);
        if !whole {
            return None;
        }
        let (reply, value) = self.pending.remove(&ask)?.reply?;
        let answer = match Status::from_code(reply.status) {
            Some(Status::Ok) => Ok((reply.number, value)),
            Some(status) => Err(Error::new(status, reply.reason)),
            None => Err(Error::new(Status::Internal, format!("unknown status {}: {}", reply.status, reply.reason))),
        };
        Some(Event::Stored(ask, answer))
    }

    /// Whether something waits for an answer.
    pub(super) fn is_asked(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Nobody answers: each request fails with this error. If the scheduler is heard again, it is told that nobody
    /// waits.
    pub(super) fn give_up_all(&mut self, error: &Error) -> Vec<Event> {
        let asks: Vec<Ask> = self.pending.keys().copied().collect();
        asks.into_iter().filter(|ask| self.cancel(*ask)).map(|ask| Event::Stored(ask, Err(error.clone()))).collect()
    }

    /// Nothing will be answered any more: each request fails with this error.
    pub(super) fn fail_all(&mut self, error: &Error) -> Vec<Event> {
        std::mem::take(&mut self.pending).into_keys().map(|ask| Event::Stored(ask, Err(error.clone()))).collect()
    }
}
