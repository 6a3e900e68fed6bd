//! Nodes by hand, over real sockets, for tests of the scheduler's loop and of its writer.

use crate::membership::testing::{host, named};
use crate::runtime::base::control::tests::framed;
use crate::types::{Token, TokenHash};
use crate::wire::{
    peek_frame, Blob, Formed, Heartbeat, Message, Reentry, Register, StoreBegin, StoreOperation, StorePiece,
    StoreReply, CONTROL_PAYLOAD_MAX,
};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// What a worker on another host says of itself.
pub(crate) fn worker(index: u32, workers: u32) -> Register {
    Register { host: host("there"), ..named(index, workers, &index.to_string()) }
}

/// A worker: it says what it is told to, and keeps what it hears but echoes.
pub(crate) struct Node {
    pub(crate) stream: TcpStream,
    inbound: Vec<u8>,
    pub(crate) told: Vec<Message>,
    beats: u64,
}

impl Node {
    /// The only worker of a job with recovery.
    pub(crate) fn join(address: SocketAddr, before: Option<&Formed>) -> Node {
        let reentry = Some(Box::new(Reentry { tokens: Vec::new(), next: TokenHash::of(&Token([1; 32])) }));
        let instance = before.map(|before| before.instance);
        Node::register(address, Register { recovery: true, instance, reentry, ..worker(0, 1) })
    }

    /// One of several workers of a job without recovery.
    pub(crate) fn join_as(address: SocketAddr, index: u32, workers: u32) -> Node {
        Node::register(address, worker(index, workers))
    }

    fn register(address: SocketAddr, register: Register) -> Node {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut node = Node { stream, inbound: Vec::new(), told: Vec::new(), beats: 0 };
        node.say(&Message::Register(register));
        node
    }

    pub(crate) fn say(&mut self, message: &Message) {
        self.say_all(std::slice::from_ref(message));
    }

    /// Says all of them at once.
    pub(crate) fn say_all(&mut self, messages: &[Message]) {
        let bytes: Vec<u8> = messages.iter().flat_map(framed).collect();
        self.stream.write_all(&bytes).unwrap();
    }

    /// The next message; none: the connection has ended.
    pub(crate) fn hear(&mut self) -> Option<Message> {
        loop {
            if let Some((frame, taken)) = peek_frame(&self.inbound, CONTROL_PAYLOAD_MAX).unwrap() {
                let message = Message::decode(frame.header.kind, &frame.payload).unwrap();
                self.inbound.drain(..taken);
                return Some(message);
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) => return None,
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return None,
                read => self.inbound.extend_from_slice(&bytes[..read.expect("it answers in time")]),
            }
        }
    }

    /// Shows that the scheduler's loop has come to all that was said before.
    pub(crate) fn beat(&mut self) {
        self.beats += 1;
        let (sequence, echoed) = (self.beats, self.beats - 1);
        self.say(&Message::Heartbeat(Heartbeat { sequence, echoed, ..Heartbeat::default() }));
        loop {
            match self.hear().expect("the scheduler lives") {
                Message::HeartbeatEcho(echo) if echo.sequence == sequence => return,
                message => self.told.push(message),
            }
        }
    }

    pub(crate) fn next_told(&mut self) -> Message {
        if self.told.is_empty() {
            return self.hear().expect("the scheduler lives");
        }
        self.told.remove(0)
    }

    pub(crate) fn formed(&mut self) -> Formed {
        match self.next_told() {
            Message::Formed(formed) => formed,
            other => panic!("{other:?} is no answer to a registration"),
        }
    }

    pub(crate) fn ask(&mut self, request: u64, operation: StoreOperation, key: &str, value: &[u8]) {
        self.say(&Message::StoreBegin(StoreBegin {
            request,
            answered_below: 0,
            operation,
            keys: vec![Blob::new(key.as_bytes())],
            delta: 0,
            expected_bytes: 0,
            value_bytes: value.len() as u64,
        }));
        if !value.is_empty() {
            self.say(&Message::StorePiece(StorePiece { request, bytes: Blob::new(value) }));
        }
    }

    pub(crate) fn set(&mut self, request: u64) {
        self.ask(request, StoreOperation::Set, &format!("key {request}"), &request.to_le_bytes());
    }

    pub(crate) fn reply(&mut self) -> StoreReply {
        match self.next_told() {
            Message::StoreReply(reply) => reply,
            other => panic!("{other:?} is no answer of the store"),
        }
    }
}
