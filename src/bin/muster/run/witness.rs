//! Tells the scheduler of workers that have ended: of a process on another host it sees no more than a connection that ends.
//!
//! Contract: [`Witness::saw`] returns at once. A thread, which exists from the first word on, carries the words one by one,
//! each over a connection of its own and within [`PATIENCE`], the look-up of the scheduler's name included. What takes longer
//! is dropped, and so is what finds no scheduler: the end of the worker's connection tells the same, only later. The run's
//! end alone waits for what was said last, and no longer than that.
//!
//! Who ended with code 0 is not told of, for as a rule it has left. A worker that is the child of a script of the user's is
//! not the process that this launcher sees; the script's end, like that of any process that is no node, counts for nothing.
//! What the scheduler makes of a word stands in `membership/launcher.rs`. Tested below, and with real processes by
//! `tests/python/test_hosts.py`.

use crate::sys::Ending;
use muster::net::{host, resolve};
use muster::runtime;
use muster::types::Process;
use muster::wire::{encode_frame, ChildEnded, HowEnded, Message};
use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::time::{Duration, Instant};

/// How long one word may take on its way.
const PATIENCE: Duration = Duration::from_secs(1);

/// See the module.
pub struct Witness {
    host_id: Option<String>,
    scheduler: (String, u16),
    thread: Option<Thread>,
}

/// How the thread is reached.
struct Thread {
    words: Sender<ChildEnded>,
    /// Ends with it.
    end: Receiver<()>,
}

impl Witness {
    /// Of workers that found `host_id` in their environment, for the scheduler at this address. Has no thread yet.
    pub fn new(host_id: Option<String>, scheduler: (String, u16)) -> Witness {
        Witness { host_id, scheduler, thread: None }
    }

    /// This worker, which has not been reaped yet, has ended.
    pub fn saw(&mut self, pid: i32, ending: Ending) {
        let Some(word) = self.word(pid, ending) else { return };
        let thread = self.thread.get_or_insert_with(|| {
            let ((words, said), (ends, end)) = (channel(), channel::<()>());
            let (host, port) = self.scheduler.clone();
            // Without a thread nobody takes what is sent.
            let _ = std::thread::Builder::new().name("muster-witness".to_owned()).spawn(move || {
                carry(&said, &host, port);
                drop(ends);
            });
            Thread { words, end }
        });
        let _ = thread.words.send(word);
    }

    /// The run is over: whoever ended last is told of before this process ends, too.
    pub fn finish(self) {
        if let Some(Thread { words, end }) = self.thread {
            drop(words);
            let _ = end.recv_timeout(PATIENCE);
        }
    }

    fn word(&self, pid: i32, ending: Ending) -> Option<ChildEnded> {
        let (how, number) = match ending {
            Ending::Exit(0) => return None,
            Ending::Exit(code) => (HowEnded::Exited, code),
            Ending::Signal(signal) => (HowEnded::Killed, signal),
        };
        let pid = u32::try_from(pid).ok()?;
        let host = runtime::host_of(self.host_id.as_deref()).ok()?;
        let process = Process { pid, start_ticks: host::start_ticks(pid), pid_namespace: host::pid_namespace() };
        Some(ChildEnded { host, process, how, number })
    }
}

fn carry(words: &Receiver<ChildEnded>, host: &str, port: u16) {
    for word in words {
        // Where nobody hears it nobody misses it.
        let _ = tell(&Message::ChildEnded(word), host, port, Instant::now() + PATIENCE);
    }
}

fn tell(word: &Message, host: &str, port: u16, until: Instant) -> io::Result<()> {
    let left = || match until.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(io::Error::from(io::ErrorKind::TimedOut)),
        left => Ok(left),
    };
    let mut frame = Vec::new();
    encode_frame(word.kind(), 0, &word.encode(), &mut frame);
    let addresses = resolve::resolve(host, port, left()?).map_err(|error| io::Error::other(error.to_string()))?;
    for address in addresses {
        if let Ok(mut connection) = TcpStream::connect_timeout(&address, left()?) {
            connection.set_write_timeout(Some(left()?))?;
            return connection.write_all(&frame);
        }
    }
    Err(io::ErrorKind::ConnectionRefused.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster::wire::{peek_frame, UNREGISTERED_PAYLOAD_MAX};
    use std::io::Read;
    use std::net::TcpListener;

    fn here(port: u16) -> Witness {
        Witness::new(Some("rack-1".to_owned()), ("127.0.0.1".to_owned(), port))
    }

    /// The next word that comes, over a connection that then ends.
    fn heard(listener: &TcpListener) -> ChildEnded {
        let mut bytes = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut bytes).unwrap();
        let (frame, length) = peek_frame(&bytes, UNREGISTERED_PAYLOAD_MAX).unwrap().expect("a whole frame");
        assert_eq!(length, bytes.len(), "and nothing else");
        match Message::decode(frame.header.kind, &frame.payload) {
            Ok(Message::ChildEnded(word)) => word,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn it_names_the_process_as_that_registers() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut witness = here(listener.local_addr().unwrap().port());
        let this = std::process::id();
        witness.saw(this as i32, Ending::Exit(0)); // not told of
        witness.saw(this as i32, Ending::Signal(9));
        witness.saw(this as i32, Ending::Exit(3));
        witness.finish();
        let (killed, exited) = (heard(&listener), heard(&listener));
        let own = Process { pid: this, start_ticks: host::own_start_ticks(), pid_namespace: host::pid_namespace() };
        assert_ne!(own.start_ticks, 0);
        assert_eq!((killed.process, &killed.host.key[..]), (own, "rack-1"));
        assert_eq!((killed.how, killed.number), (HowEnded::Killed, 9));
        assert_eq!((exited.how, exited.number), (HowEnded::Exited, 3));
    }

    #[test]
    fn without_a_scheduler_the_next_word_finds_its_way_all_the_same() {
        let gone = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = gone.local_addr().unwrap().port();
        drop(gone);
        let word = here(port).word(1, Ending::Signal(9)).expect("it is told of");
        let word = Message::ChildEnded(word);
        assert!(tell(&word, "127.0.0.1", port, Instant::now() + PATIENCE).is_err());
        let late = tell(&word, "127.0.0.1", port, Instant::now()).unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::TimedOut, "its time is up");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        tell(&word, "127.0.0.1", address.port(), Instant::now() + PATIENCE).unwrap();
        assert_eq!(Message::ChildEnded(heard(&listener)), word);
    }
}
