//! The question and its answer, over one connection that ends with them. If there is no answer, the reason for that.

use super::told::Told;
use crate::voice::Voice;
use muster::config::Config;
use muster::net::resolve;
use muster::secret::blocking::{Asker, Stream};
use muster::wire::{
    encode_frame, peek_frame, JobNews, Message, PassBy, Rejected, StatusJob, StatusPart, StatusQuery, Watch,
    CONTROL_PAYLOAD_MAX, PROTOCOL_HIGHEST, PROTOCOL_LOWEST,
};
use socket2::{SockRef, TcpKeepalive};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

const READ_BYTES: usize = 64 << 10;

/// Why there is no answer.
#[derive(Debug)]
pub struct NoAnswer {
    /// In words.
    pub words: String,
    /// Whether nobody listens there: each address refuses connections.
    pub is_refused: bool,
}

impl From<String> for NoAnswer {
    fn from(words: String) -> NoAnswer {
        NoAnswer { words, is_refused: false }
    }
}

/// Asks, and returns the whole answer, or only its first part if the job is such that the rest is not wanted.
pub fn ask(host: &str, port: u16, timeout: Duration, wanted: impl Fn(&StatusJob) -> bool) -> Result<Told, NoAnswer> {
    let deadline = Instant::now() + timeout;
    let (stream, address) = connect(host, port, deadline)?;
    let mut line = Line { stream, address, deadline, timeout, inbound: Vec::new() };
    let (mut job, mut nodes, mut groups, mut carriers) = (None, Vec::new(), Vec::new(), Vec::new());
    loop {
        let part = line.next_part()?;
        if part.job.is_some() {
            // What was told before does not hold any more.
            (job, nodes, groups, carriers) = (part.job, Vec::new(), Vec::new(), Vec::new());
        }
        nodes.extend(part.nodes);
        groups.extend(part.groups);
        carriers.extend(part.carriers.0);
        if part.last || job.as_ref().is_some_and(|job| !wanted(job)) {
            let job = job.ok_or_else(|| format!("the scheduler at {address} tells nothing of its job"))?;
            return Ok(Told { address, job, nodes, groups, carriers });
        }
    }
}

/// How long a connection may be silent on which a scheduler tells how the job goes. It ends sooner if the scheduler's
/// host is gone.
const WATCHED: Duration = Duration::from_secs(24 * 3600);
/// When the kernel first asks whether the scheduler's host is still there; how often it asks then; and after how many
/// unanswered questions the host counts as gone.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(10), Duration::from_secs(5), 4);

/// A connection on which the scheduler tells how the job goes, now and whenever that has changed.
pub struct Watching(Line);

impl Watching {
    /// Asks for such a connection. The first news must come within the time, too.
    pub fn begin(host: &str, port: u16, timeout: Duration) -> Result<Watching, NoAnswer> {
        let deadline = Instant::now() + timeout;
        let (stream, address) = connect(host, port, deadline)?;
        let (idle, pause, count) = KEEPALIVE;
        let keepalive = TcpKeepalive::new().with_time(idle).with_interval(pause).with_retries(count);
        let set = SockRef::from(stream.connection()).set_tcp_keepalive(&keepalive);
        set.map_err(|error| format!("the connection to {address} cannot be watched: {error}"))?;
        let mut line = Line { stream, address, deadline, timeout, inbound: Vec::new() };
        line.say(&Message::Watch(Watch { protocol_lowest: PROTOCOL_LOWEST, protocol_highest: PROTOCOL_HIGHEST }))?;
        Ok(Watching(line))
    }

    /// Waits for what it tells next.
    pub fn next(&mut self) -> Result<JobNews, Unheard> {
        let message = self.0.message().map_err(Unheard::Ended);
        self.0.deadline = Instant::now() + WATCHED;
        match message? {
            Message::JobNews(news) => Ok(news),
            Message::Rejected(_) | Message::PassBy(_) => Err(Unheard::Rejected),
            other => Err(Unheard::Ended(self.0.not_told(&other))),
        }
    }
}

/// Why there is no news on a connection, and none will be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unheard {
    /// The scheduler gives no news, or no more news; it may do so later.
    Rejected,
    /// The connection has ended, in words.
    Ended(String),
}

/// What this command shows a scheduler, by the environment's settings. A launcher may ask for a long time: so the files
/// of TLS are read again when they have changed.
static ASKER: OnceLock<Asker> = OnceLock::new();

fn asker() -> Result<&'static Asker, String> {
    if let Some(asker) = ASKER.get() {
        return Ok(asker);
    }
    let mut config = Config::new();
    config.load_env(std::env::vars_os());
    let opened = config.tls_settings().and_then(|tls| {
        let recovery = config.recovery_directory().unwrap_or_default(); // the processes that need it report errors
        Asker::open(tls.as_ref(), &config.job_secret()?, recovery.as_deref())
    });
    let opened = opened.map_err(|error| error.to_string())?;
    Ok(ASKER.get_or_init(|| opened))
}

/// A connection to the first address of this host that accepts one; with TLS if the environment says so.
pub fn connect(host: &str, port: u16, deadline: Instant) -> Result<(Stream, SocketAddr), NoAnswer> {
    let asker = asker()?;
    let timeout = deadline.saturating_duration_since(Instant::now());
    let addresses = resolve::resolve(host, port, timeout).map_err(|error| error.to_string())?;
    let (connection, address) = connect_to_any(&addresses, deadline)?;
    let stream = asker.over(connection, host).map_err(|error| error.to_string())?;
    asker.remarks().iter().for_each(|remark| Voice::error().say(format!("muster: warning: {remark}\n")));
    Ok((stream, address))
}

fn connect_to_any(addresses: &[SocketAddr], deadline: Instant) -> Result<(TcpStream, SocketAddr), NoAnswer> {
    let (mut refusals, mut is_refused) = (Vec::new(), !addresses.is_empty());
    for (tried, address) in addresses.iter().enumerate() {
        // No address may use up the time of those after it.
        let left = deadline.saturating_duration_since(Instant::now()) / (addresses.len() - tried) as u32;
        match connect_to(*address, left.max(Duration::from_millis(1))) {
            Ok(stream) => return Ok((stream, *address)),
            Err(error) => {
                is_refused &= error.kind() == ErrorKind::ConnectionRefused;
                refusals.push(format!("{address}: {error}"));
            }
        }
    }
    Err(NoAnswer { words: format!("no scheduler answers: {}", refusals.join("; ")), is_refused })
}

fn connect_to(address: SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, timeout)?;
    if stream.local_addr()? == stream.peer_addr()? {
        // If nobody listens there, the kernel may choose the destination's port as ours, and join the socket to itself.
        return Err(io::Error::new(
            ErrorKind::ConnectionRefused,
            "nobody listens there: the kernel connected the socket to itself",
        ));
    }
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// The connection.
struct Line {
    stream: Stream,
    address: SocketAddr,
    deadline: Instant,
    timeout: Duration,
    /// Bytes that came in and do not make a message yet.
    inbound: Vec<u8>,
}

impl Line {
    fn next_part(&mut self) -> Result<StatusPart, String> {
        let question = StatusQuery { protocol_lowest: PROTOCOL_LOWEST, protocol_highest: PROTOCOL_HIGHEST };
        self.say(&Message::StatusQuery(question))?;
        match self.message()? {
            Message::StatusPart(part) => Ok(part),
            other => Err(self.not_told(&other)),
        }
    }

    fn say(&mut self, message: &Message) -> Result<(), String> {
        let mut frame = Vec::new();
        encode_frame(message.kind(), 0, &message.encode(), &mut frame);
        self.stream.until(self.deadline);
        self.stream.write_all(&frame).map_err(|error| self.failed(&error))
    }

    fn not_told(&self, answer: &Message) -> String {
        match answer {
            Message::Rejected(Rejected { reason, .. }) | Message::PassBy(PassBy { reason }) => {
                format!("the scheduler at {} gave no status: {reason}", self.address)
            }
            other => self.no_scheduler(&format!("it answers with a message of kind {}", other.kind())),
        }
    }

    fn message(&mut self) -> Result<Message, String> {
        loop {
            match peek_frame(&self.inbound, CONTROL_PAYLOAD_MAX) {
                Ok(Some((frame, taken))) => {
                    let message = Message::decode(frame.header.kind, &frame.payload);
                    self.inbound.drain(..taken);
                    return message.map_err(|error| self.another_protocol(&error.0));
                }
                Ok(None) => self.read()?,
                Err(error) if self.inbound.starts_with(b"MUST") => return Err(self.another_protocol(&error.0)),
                Err(error) if error.is_tls() => {
                    return Err(format!("what listens at {} cannot be asked: {}", self.address, error.0));
                }
                Err(error) => return Err(self.no_scheduler(&error.0)),
            }
        }
    }

    fn read(&mut self) -> Result<(), String> {
        self.stream.until(self.deadline);
        let mut through = vec![0; READ_BYTES];
        match self.stream.read(&mut through) {
            Ok(0) => Err(self.ended("it closes the connection")),
            Ok(count) => {
                self.inbound.extend_from_slice(&through[..count]);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(self.failed(&error)),
        }
    }

    fn failed(&self, error: &io::Error) -> String {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => self.silent(),
            ErrorKind::InvalidData | ErrorKind::PermissionDenied => {
                format!("the scheduler at {} cannot be asked: {error}", self.address)
            }
            _ => self.ended(&error.to_string()),
        }
    }

    fn no_scheduler(&self, why: &str) -> String {
        format!("what listens at {} is not a muster scheduler: {why}", self.address)
    }

    fn another_protocol(&self, why: &str) -> String {
        format!(
            "what listens at {} speaks another protocol than this command (muster {}): {why}",
            self.address,
            env!("CARGO_PKG_VERSION")
        )
    }

    fn silent(&self) -> String {
        let Line { address, timeout, .. } = self;
        let what = "it is not a muster scheduler, or one that stands still or whose job has just ended";
        format!("{address} takes connections, but did not answer within {} s: {what}", timeout.as_secs_f64())
    }

    fn ended(&self, how: &str) -> String {
        let what =
            "it is not a muster scheduler, or one of a version that cannot be asked, or one whose job has just ended";
        format!("no answer from {}: {how}: {what}", self.address)
    }
}

#[cfg(test)]
#[path = "ask_test.rs"]
mod tests;
