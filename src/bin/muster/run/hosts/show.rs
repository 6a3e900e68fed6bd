//! The workers' output, as it comes from all hosts, on standard output. Nobody may hold up the run by not reading. What
//! has piled up beyond [`WAITING_LIMIT`] is left out and counted, for the logs on the hosts have it.

use crate::voice::PATIENCE;
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Arc;
use std::time::Instant;

/// How many bytes wait for a reader at most.
const WAITING_LIMIT: usize = 16 << 20;

/// The thread that writes.
pub struct Show {
    to: Sender<Vec<u8>>,
    done: Receiver<()>,
    waiting: Arc<AtomicUsize>,
    left_out: usize,
}

impl Show {
    /// Begins to show.
    pub fn start(mut out: impl Write + Send + 'static) -> std::io::Result<Show> {
        let ((to, from), (finished, done)) = (channel::<Vec<u8>>(), channel());
        let waiting = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&waiting);
        std::thread::Builder::new().name("muster-show".to_owned()).spawn(move || {
            for bytes in from {
                // An error means that the reader has gone away. The run itself goes on.
                let _ = out.write_all(&bytes).and_then(|()| out.flush());
                count.fetch_sub(bytes.len(), Ordering::Relaxed);
            }
            let _ = finished.send(()); // nobody may wait for it any more
        })?;
        Ok(Show { to, done, waiting, left_out: 0 })
    }

    /// Shows this, unless too much waits.
    pub fn put(&mut self, bytes: Vec<u8>) {
        let length = bytes.len();
        if self.waiting.load(Ordering::Relaxed) + length > WAITING_LIMIT {
            self.left_out += length;
            return;
        }
        self.waiting.fetch_add(length, Ordering::Relaxed);
        if self.to.send(bytes).is_err() {
            self.waiting.fetch_sub(length, Ordering::Relaxed);
        }
    }

    /// Waits as long as somebody reads what is left, without a pause of [`PATIENCE`]. Returns the words for the user,
    /// if not all was read.
    pub fn finish(self) -> Option<String> {
        let Show { to, done, waiting, mut left_out } = self;
        drop(to);
        let (mut since, mut left) = (Instant::now(), waiting.load(Ordering::Relaxed));
        while let Err(std::sync::mpsc::RecvTimeoutError::Timeout) = done.recv_timeout(PATIENCE / 20) {
            let now = waiting.load(Ordering::Relaxed);
            if now != left {
                (since, left) = (Instant::now(), now);
            } else if since.elapsed() >= PATIENCE {
                left_out += now;
                break;
            }
        }
        let words = "of the workers' output were not shown, for nobody took them: the logs have them";
        (left_out > 0).then(|| format!("muster: {left_out} bytes {words}\n"))
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
        let mut show = Show::start(shared.clone()).unwrap();
        (0..100).for_each(|number| show.put(format!("{number}\n").into_bytes()));
        assert_eq!(show.finish(), None);
        let expected: String = (0..100).map(|number| format!("{number}\n")).collect();
        assert_eq!(*shared.0.lock().unwrap(), expected.into_bytes());
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
        let mut show = Show::start(Held(held)).unwrap();
        (0..20).for_each(|_| show.put(vec![b'x'; 1 << 20]));
        let words = show.finish().unwrap();
        assert!(words.starts_with(&format!("muster: {} bytes of the workers' output", 20 << 20)), "{words}");
    }
}
