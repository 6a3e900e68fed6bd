//! A TCP connection that blocks, whose reads and writes are all over by one deadline.
//!
//! The kernel's own time-outs hold for one read. A reader that reads many times, as TLS does, would wait once more for each byte that
//! comes.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// The connection. Without a deadline it waits without limit.
#[derive(Debug)]
pub struct Timed {
    connection: TcpStream,
    deadline: Option<Instant>,
}

impl Timed {
    /// This connection, without a deadline.
    pub fn new(connection: TcpStream) -> Timed {
        Timed { connection, deadline: None }
    }

    /// The connection itself, for its options.
    pub fn connection(&self) -> &TcpStream {
        &self.connection
    }

    /// From now on reads and writes fail once this moment has come.
    pub fn until(&mut self, deadline: Instant) {
        self.deadline = Some(deadline);
    }

    /// Ends this direction.
    pub fn shutdown_write(&self) -> io::Result<()> {
        self.connection.shutdown(Shutdown::Write)
    }

    fn left(&self) -> io::Result<Option<Duration>> {
        match self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
            Some(Duration::ZERO) => Err(io::ErrorKind::TimedOut.into()),
            left => Ok(left),
        }
    }
}

impl Read for Timed {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.connection.set_read_timeout(self.left()?)?;
        self.connection.read(into)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.connection.set_write_timeout(self.left()?)?;
        self.connection.write(bytes)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.connection.set_write_timeout(self.left()?)?;
        self.connection.write_vectored(parts)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Reads until it fails; each byte would begin the kernel's time-out anew.
    #[test]
    fn bytes_that_drip_do_not_lengthen_the_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut timed = Timed::new(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        let (mut far, _) = listener.accept().unwrap();
        let drips = std::thread::spawn(move || {
            while far.write_all(b".").is_ok() {
                std::thread::sleep(Duration::from_millis(5)); // a drip now and then; it ends when the other end is dropped
            }
        });
        timed.until(Instant::now() + Duration::from_millis(100));
        let mut byte = [0];
        let error = loop {
            match timed.read(&mut byte) {
                Ok(count) => assert_eq!(count, 1),
                Err(error) => break error,
            }
        };
        assert!(matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock), "{error}");
        drop(timed);
        drips.join().unwrap();
    }
}
