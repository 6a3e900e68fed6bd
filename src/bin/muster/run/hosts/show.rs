//! The workers' output, as it comes from all hosts, on standard output. Nobody may hold up the run by not reading: a
//! thread writes. [`Show::is_full`] says when the hosts are to keep what they have in their logs, until a reader has
//! taken what is here. What is on its way by then is taken all the same, so that nothing is missing in the middle.

use crate::voice::{unshown, unwritten, PATIENCE};
use std::io::{ErrorKind, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender};
use std::sync::Arc;
use std::time::Instant;

/// How many bytes wait for a reader before the hosts are to hold theirs back; and how few before they may go on.
const FULL: [usize; 2] = [1 << 20, 1 << 19];
/// If so many bytes wait, not even a little more is asked for.
const MOST: usize = 64 << 20;

/// The thread that writes.
pub struct Show {
    to: Sender<Vec<u8>>,
    done: Receiver<Option<std::io::Error>>,
    waiting: Arc<AtomicUsize>,
    read: Arc<AtomicUsize>,
}

impl Show {
    /// Begins to show.
    pub fn start(mut out: impl Write + Send + 'static) -> std::io::Result<Show> {
        let ((to, from), (finished, done)) = (channel::<Vec<u8>>(), channel());
        let waiting = Arc::new(AtomicUsize::new(0));
        let read = Arc::new(AtomicUsize::new(0));
        let (count, taken) = (Arc::clone(&waiting), Arc::clone(&read));
        std::thread::Builder::new().name("muster-show".to_owned()).spawn(move || {
            let mut failed = None;
            for bytes in from {
                // The run itself goes on. A reader that has gone away wants no more.
                match out.write_all(&bytes).and_then(|()| out.flush()) {
                    Err(error) if error.kind() != ErrorKind::BrokenPipe => failed = Some(error),
                    _ => {}
                }
                count.fetch_sub(bytes.len(), Ordering::Relaxed);
                taken.fetch_add(bytes.len(), Ordering::Relaxed);
            }
            let _ = finished.send(failed); // nobody may wait for it any more
        })?;
        Ok(Show { to, done, waiting, read })
    }

    /// Whether enough waits for a reader. If it was so (`was_full`), it is until much less waits.
    pub fn is_full(&self, was_full: bool) -> bool {
        self.waiting.load(Ordering::Relaxed) > FULL[usize::from(was_full)]
    }

    /// How much has been read so far: another number shows that somebody reads.
    pub fn read(&self) -> usize {
        self.read.load(Ordering::Relaxed)
    }

    /// Whether a little more may come although it is full.
    pub fn has_room(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) < MOST
    }

    /// Shows this.
    pub fn put(&self, bytes: Vec<u8>) {
        let length = bytes.len();
        self.waiting.fetch_add(length, Ordering::Relaxed);
        if self.to.send(bytes).is_err() {
            self.waiting.fetch_sub(length, Ordering::Relaxed);
        }
    }

    /// Waits as long as somebody reads what is left, without a pause of [`PATIENCE`]. Returns the words for the user,
    /// if not all was read.
    pub fn finish(self) -> Option<String> {
        let Show { to, done, waiting, .. } = self;
        drop(to);
        let (mut since, mut left) = (Instant::now(), waiting.load(Ordering::Relaxed));
        loop {
            match done.recv_timeout(PATIENCE / 20) {
                Err(RecvTimeoutError::Timeout) => {}
                ended => {
                    let why = unwritten(&ended.ok()??);
                    return Some(unshown(&why));
                }
            }
            let now = waiting.load(Ordering::Relaxed);
            if now != left {
                (since, left) = (Instant::now(), now);
            } else if since.elapsed() >= PATIENCE {
                let words = "of the workers' output were not shown, for nobody took them: the logs have them";
                return (now > 0).then(|| format!("muster: {now} bytes {words}\n"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;
    use std::sync::Mutex;

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn all_is_shown_in_order() {
        let shared = Shared::default();
        let show = Show::start(shared.clone()).unwrap();
        (0..100).for_each(|number| show.put(format!("{number}\n").into_bytes()));
        assert_eq!(show.finish(), None);
        let expected: String = (0..100).map(|number| format!("{number}\n")).collect();
        assert_eq!(*shared.0.lock().unwrap(), expected.into_bytes());
    }

    #[test]
    fn an_output_that_cannot_be_written_is_told_of() {
        let show = Show::start(std::fs::File::options().write(true).open("/dev/full").unwrap()).unwrap();
        show.put(b"said\n".to_vec());
        let words = show.finish().unwrap();
        assert!(words.contains("was shown: standard output cannot be written: No space left"), "{words}");
    }

    /// Takes nothing until it is let go.
    struct Held(Receiver<()>);

    impl Write for Held {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let _ = self.0.recv();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_takes_nothing_is_told_how_much_was_left_out() {
        let (_let_go, held) = sync_channel(0);
        let show = Show::start(Held(held)).unwrap();
        (0..20).for_each(|_| show.put(vec![b'x'; 1 << 20]));
        let words = show.finish().unwrap();
        assert!(words.starts_with(&format!("muster: {} bytes of the workers' output", 20 << 20)), "{words}");
    }

    #[test]
    fn hosts_are_held_back_until_a_reader_has_taken_most_and_nothing_is_left_out() {
        let (let_go, held) = sync_channel(0);
        let show = Show::start(Held(held)).unwrap();
        assert!(!show.is_full(false));
        (0..20).for_each(|_| show.put(vec![b'x'; 1 << 20]));
        assert!(show.is_full(false) && show.is_full(true));
        (0..19).for_each(|_| let_go.send(()).unwrap());
        // That thread counts a little later what was taken.
        let until = Instant::now() + std::time::Duration::from_secs(60);
        while show.is_full(false) && Instant::now() < until {
            std::thread::yield_now();
        }
        assert!(!show.is_full(false) && show.is_full(true), "1 MiB is not enough to begin, but to go on");
        drop(let_go);
        assert_eq!(show.finish(), None);
    }
}
