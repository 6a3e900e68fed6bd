//! Tells the scheduler of workers that have ended: all that it sees of a process on another host is a connection that
//! ends. It also tells the scheduler that a place is abandoned, once this launcher has no restarts left: otherwise the
//! others would wait for that place.
//!
//! Contract: [`ExitReport::saw`] and [`ExitReport::abandons`] return at once. A thread, which exists from the first
//! word on, carries the words one by one. Each takes a connection of its own, and [`PATIENCE`] at most, the look-up of
//! the scheduler's name included. A report that takes longer is dropped, and so is one that finds no scheduler: the
//! scheduler also learns of the loss when the worker's connection ends, only later. Only the run's end waits for the
//! last words, and no longer than that.
//!
//! An end with code 0 is not told, for as a rule such a worker has left. Which process of a place the scheduler knows
//! depends on how far each life came. So a place is abandoned by the names of all its lives. If the user starts a
//! script, the worker is its child, and not the process that this launcher sees. So a word also names what stood in the
//! script's environment, which its children inherit. If no node ran in the place of a process, its end counts for
//! nothing. `membership/launcher.rs` says what the scheduler makes of a word. Tested below, and with real processes by
//! `tests/python/test_hosts.py`.

use crate::status::ask::connect;
use crate::sys::Ending;
use muster::net::host;
use muster::runtime;
use muster::types::{HostName, LaunchId, Process};
use muster::wire::{encode_frame, Abandoned, ChildEnded, HowEnded, Message, ABANDONED_MAX};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::time::{Duration, Instant};

/// How long one word may take on its way.
const PATIENCE: Duration = Duration::from_secs(1);

/// Tells the scheduler which workers have ended.
pub struct ExitReport {
    host_id: Option<String>,
    scheduler: (String, u16),
    thread: Option<Thread>,
    /// The lives of each child that have ended, the newest of them.
    lives: BTreeMap<usize, Vec<Process>>,
    launches: BTreeMap<usize, Vec<LaunchId>>,
    /// The children whose places were abandoned.
    abandoned: BTreeSet<usize>,
}

/// How the thread is reached.
struct Thread {
    words: Sender<Message>,
    /// Ends with the thread.
    end: Receiver<()>,
}

impl ExitReport {
    /// A report on workers that found `host_id` in their environment, for the scheduler at this address. It has no
    /// thread yet.
    pub fn new(host_id: Option<String>, scheduler: (String, u16)) -> ExitReport {
        let (lives, launches, abandoned) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        ExitReport { host_id, scheduler, thread: None, lives, launches, abandoned }
    }

    /// This worker's process, which has not been reaped yet, has ended. It knew itself by `launch`.
    pub fn saw(&mut self, child: usize, pid: i32, launch: LaunchId, ending: Ending) {
        let Ok(pid) = u32::try_from(pid) else { return };
        let process = Process { pid, start_ticks: host::start_ticks(pid), pid_namespace: host::pid_namespace() };
        push_newest(self.lives.entry(child).or_default(), process);
        push_newest(self.launches.entry(child).or_default(), launch);
        if let Some(word) = self.word(process, launch, ending) {
            self.say(Message::ChildEnded(word));
        }
    }

    /// The processes that this child has been, as far as they have ended.
    pub fn lives(&self, child: usize) -> &[Process] {
        self.lives.get(&child).map_or(&[], |lives| lives)
    }

    /// Nobody is started in the places of these children any more. It is told once for each.
    pub fn abandons(&mut self, children: impl IntoIterator<Item = usize>) {
        let fresh: Vec<usize> = children.into_iter().filter(|child| self.abandoned.insert(*child)).collect();
        let processes: Vec<Process> = fresh.iter().flat_map(|child| self.lives(*child)).copied().collect();
        let launches: Vec<LaunchId> =
            fresh.iter().flat_map(|child| self.launches.get(child)).flatten().copied().collect();
        let Some(host) = self.host().filter(|_| !processes.is_empty()) else { return };
        for (processes, launches) in processes.chunks(ABANDONED_MAX).zip(launches.chunks(ABANDONED_MAX)) {
            let (host, processes, launches) = (host.clone(), processes.to_vec(), launches.to_vec());
            self.say(Message::Abandoned(Abandoned { host, processes, launches }));
        }
    }

    fn say(&mut self, word: Message) {
        let thread = self.thread.get_or_insert_with(|| {
            let ((words, said), (ends, end)) = (channel(), channel::<()>());
            let (host, port) = self.scheduler.clone();
            // If there is no thread, nobody takes what is sent.
            let _ = std::thread::Builder::new().name("muster-report".to_owned()).spawn(move || {
                carry(&said, &host, port);
                drop(ends);
            });
            Thread { words, end }
        });
        let _ = thread.words.send(word);
    }

    /// The run is over. The process that ended last is reported before this one ends, too.
    pub fn finish(self) {
        if let Some(Thread { words, end }) = self.thread {
            drop(words);
            let _ = end.recv_timeout(PATIENCE);
        }
    }

    fn host(&self) -> Option<HostName> {
        runtime::host_of(self.host_id.as_deref()).ok()
    }

    fn word(&self, process: Process, launch: LaunchId, ending: Ending) -> Option<ChildEnded> {
        let (how, number) = match ending {
            Ending::Exit(0) => return None,
            Ending::Exit(code) => (HowEnded::Exited, code),
            Ending::Signal(signal) => (HowEnded::Killed, signal),
        };
        Some(ChildEnded { host: self.host()?, process, how, number, launch: Some(launch) })
    }
}

/// Puts one process behind the others. The oldest go if there are too many for one word.
fn push_newest<T>(list: &mut Vec<T>, one: T) {
    list.push(one);
    let surplus = list.len().saturating_sub(ABANDONED_MAX);
    list.drain(..surplus);
}

fn carry(words: &Receiver<Message>, host: &str, port: u16) {
    for word in words {
        // If nobody hears the word, nobody misses it.
        let _ = tell(&word, host, port, Instant::now() + PATIENCE);
    }
}

fn tell(word: &Message, host: &str, port: u16, until: Instant) -> io::Result<()> {
    let mut frame = Vec::new();
    encode_frame(word.kind(), 0, &word.encode(), &mut frame);
    if until <= Instant::now() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let (mut connection, _) = connect(host, port, until).map_err(|why| io::Error::other(why.words))?;
    connection.until(until);
    connection.write_all(&frame)?;
    connection.end()
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster::wire::{peek_frame, UNREGISTERED_PAYLOAD_MAX};
    use std::io::Read;
    use std::net::TcpListener;

    fn here(port: u16) -> ExitReport {
        ExitReport::new(Some("rack-1".to_owned()), ("127.0.0.1".to_owned(), port))
    }

    /// The next word that comes, over a connection that then ends.
    fn heard(listener: &TcpListener) -> Message {
        let mut bytes = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut bytes).unwrap();
        let (frame, length) = peek_frame(&bytes, UNREGISTERED_PAYLOAD_MAX).unwrap().expect("a whole frame");
        assert_eq!(length, bytes.len(), "and nothing else");
        Message::decode(frame.header.kind, &frame.payload).unwrap()
    }

    fn end_heard(listener: &TcpListener) -> ChildEnded {
        match heard(listener) {
            Message::ChildEnded(word) => word,
            other => panic!("{other:?}"),
        }
    }

    fn known_by(life: u8) -> LaunchId {
        LaunchId([life; 16])
    }

    fn of(pid: u32) -> Process {
        Process { pid, start_ticks: host::start_ticks(pid), pid_namespace: host::pid_namespace() }
    }

    #[test]
    fn it_names_the_process_as_that_registers() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut exit_report = here(listener.local_addr().unwrap().port());
        let this = std::process::id();
        exit_report.saw(0, this as i32, known_by(1), Ending::Exit(0)); // not told of
        exit_report.saw(0, this as i32, known_by(2), Ending::Signal(9));
        exit_report.saw(0, this as i32, known_by(3), Ending::Exit(3));
        exit_report.finish();
        let (killed, exited) = (end_heard(&listener), end_heard(&listener));
        let own = Process { pid: this, start_ticks: host::own_start_ticks(), pid_namespace: host::pid_namespace() };
        assert_ne!(own.start_ticks, 0);
        assert_eq!((killed.process, &killed.host.key[..]), (own, "rack-1"));
        assert_eq!((killed.how, killed.number), (HowEnded::Killed, 9));
        assert_eq!((exited.how, exited.number), (HowEnded::Exited, 3));
        assert_eq!((killed.launch, exited.launch), (Some(known_by(2)), Some(known_by(3))));
    }

    #[test]
    fn without_a_scheduler_the_next_word_finds_its_way_all_the_same() {
        let gone = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = gone.local_addr().unwrap().port();
        drop(gone);
        let word = here(port).word(of(1), known_by(1), Ending::Signal(9)).expect("it is told of");
        let word = Message::ChildEnded(word);
        assert!(tell(&word, "127.0.0.1", port, Instant::now() + PATIENCE).is_err());
        let late = tell(&word, "127.0.0.1", port, Instant::now()).unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::TimedOut, "its time is up");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        tell(&word, "127.0.0.1", address.port(), Instant::now() + PATIENCE).unwrap();
        assert_eq!(heard(&listener), word);
    }

    #[test]
    fn a_place_is_abandoned_once_and_by_all_its_lives() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut exit_report = here(listener.local_addr().unwrap().port());
        let pids = [std::process::id(), std::os::unix::process::parent_id()];
        for (life, pid) in (1..).zip(pids) {
            exit_report.saw(2, pid as i32, known_by(life), Ending::Exit(0));
        }
        exit_report.abandons([1, 2]); // of the other no process has ended
        exit_report.saw(3, pids[0] as i32, known_by(3), Ending::Exit(0));
        exit_report.abandons([1, 2, 3]);
        exit_report.finish();
        let lives = [known_by(1), known_by(2)];
        for (processes, launches) in [(pids.map(of).to_vec(), lives.to_vec()), (vec![of(pids[0])], vec![known_by(3)])] {
            match heard(&listener) {
                Message::Abandoned(Abandoned { host, processes: named, launches: known }) => {
                    assert_eq!((&host.key[..], named, known), ("rack-1", processes, launches));
                }
                other => panic!("{other:?}"),
            }
        }
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_err(), "nothing more was said");
    }

    #[test]
    fn of_a_place_with_many_lives_the_newest_are_kept() {
        let mut exit_report = here(1);
        for pid in 0..ABANDONED_MAX + 5 {
            exit_report.saw(0, 2_000_000_000 + pid as i32, known_by(1), Ending::Exit(0));
        }
        let pids: Vec<u32> = exit_report.lives(0).iter().map(|process| process.pid).collect();
        assert_eq!((pids.len(), pids[0]), (ABANDONED_MAX, 2_000_000_005));
    }
}
