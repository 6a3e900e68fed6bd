//! Writing to a descriptor that is the program's, such as its standard error. Every wait has an end, and the
//! descriptor's flags stay as they are: they belong to the code that opened it.
//!
//! A pipe and a socket take what fits, or say that they are full: each call asks for that. (To poll first would not be
//! enough, because several processes may share one pipe.) A terminal and a file are polled before. A call may still
//! hang there, if the terminal is stopped meanwhile, or the file's disk does not answer. So only a thread that can be
//! left behind may use this. It must also have SIGPIPE blocked, as the threads of [`super::thread`] have: if the reader has
//! gone, this returns an error.

use super::call::check;
use std::io;
use std::mem::zeroed;
use std::os::fd::RawFd;
use std::time::Duration;

/// The most that is written at once: a pipe takes so much as a whole, or not at all.
const PIECE: usize = libc::PIPE_BUF;

/// Writes what the descriptor takes at once of these bytes. Returns how many, or `WouldBlock` if it takes none.
pub fn pour(fd: RawFd, bytes: &[u8]) -> io::Result<usize> {
    let piece = &bytes[..bytes.len().min(PIECE)];
    match kind(fd)? {
        libc::S_IFSOCK => {
            let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            // SAFETY: pointer and length are those of the piece.
            count(unsafe { libc::send(fd, piece.as_ptr().cast(), piece.len(), flags) })
        }
        libc::S_IFIFO => match pour_into_pipe(fd, piece) {
            // A kernel before 6.4 does not know this way to write.
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => pour_if_ready(fd, piece),
            result => result,
        },
        _ => pour_if_ready(fd, piece),
    }
}

/// Whether the descriptor takes something, or gives an error, within this time.
pub fn takes(fd: RawFd, within: Duration) -> bool {
    let mut polled = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
    let millis = libc::c_int::try_from(within.as_millis()).unwrap_or(libc::c_int::MAX);
    // SAFETY: the pointer is to one such entry, which outlives the call.
    unsafe { libc::poll(&raw mut polled, 1, millis) > 0 }
}

fn kind(fd: RawFd) -> io::Result<libc::mode_t> {
    // SAFETY: it is made of integers, and all-zero is a valid one.
    let mut stat: libc::stat = unsafe { zeroed() };
    // SAFETY: `stat` is valid for writing during the call.
    check(unsafe { libc::fstat(fd, &raw mut stat) })?;
    Ok(stat.st_mode & libc::S_IFMT)
}

#[cfg(target_env = "gnu")]
fn pour_into_pipe(fd: RawFd, piece: &[u8]) -> io::Result<usize> {
    let piece = libc::iovec { iov_base: piece.as_ptr().cast_mut().cast(), iov_len: piece.len() };
    // SAFETY: `piece` describes bytes that outlive the call, which only reads them. -1: at the present place, as a pipe demands.
    count(unsafe { libc::pwritev2(fd, &raw const piece, 1, -1, libc::RWF_NOWAIT) })
}

#[cfg(not(target_env = "gnu"))]
fn pour_into_pipe(_fd: RawFd, _piece: &[u8]) -> io::Result<usize> {
    Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
}

fn pour_if_ready(fd: RawFd, piece: &[u8]) -> io::Result<usize> {
    if !takes(fd, Duration::ZERO) {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    // SAFETY: pointer and length are those of the piece.
    count(unsafe { libc::write(fd, piece.as_ptr().cast(), piece.len()) })
}

fn count(written: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(written).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{pipe, Read};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    fn flags(fd: RawFd) -> libc::c_int {
        // SAFETY: takes integers.
        check(unsafe { libc::fcntl(fd, libc::F_GETFL) }).unwrap()
    }

    /// Fills what is behind the descriptor. Returns how many bytes that took.
    fn fill(fd: RawFd) -> usize {
        let mut all = 0;
        loop {
            match pour(fd, &[b'x'; 10_000]) {
                Ok(written) => all += written,
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}");
                    return all;
                }
            }
        }
    }

    #[test]
    fn a_full_pipe_and_a_full_socket_say_so_and_keep_their_flags() {
        let (mut reader, writer) = pipe().unwrap();
        let (mut there, here) = UnixStream::pair().unwrap();
        for (fd, from) in
            [(writer.as_raw_fd(), &mut reader as &mut dyn Read), (here.as_raw_fd(), &mut there as &mut dyn Read)]
        {
            let before = flags(fd);
            let all = fill(fd);
            assert!(all >= PIECE && !takes(fd, Duration::ZERO));
            from.read_exact(&mut vec![0; all]).unwrap();
            assert!(takes(fd, Duration::ZERO));
            assert_eq!(pour(fd, b"again").unwrap(), 5);
            assert_eq!(flags(fd), before);
        }
    }

    #[test]
    fn a_pipe_is_polled_where_the_kernel_cannot_be_asked() {
        let (_reader, writer) = pipe().unwrap();
        fill(writer.as_raw_fd());
        assert_eq!(pour_if_ready(writer.as_raw_fd(), b"x").unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn what_nobody_reads_and_what_is_closed_are_errors() {
        let thread = crate::net::thread::spawn("muster-test", || {
            let (reader, writer) = pipe().unwrap();
            drop(reader);
            let unread = pour(writer.as_raw_fd(), b"x").unwrap_err();
            let (there, here) = UnixStream::pair().unwrap();
            drop(there);
            [unread, pour(here.as_raw_fd(), b"x").unwrap_err(), pour(-1, b"x").unwrap_err()]
                .map(|error| error.raw_os_error())
        });
        assert_eq!(thread.unwrap().join().unwrap(), [libc::EPIPE, libc::EPIPE, libc::EBADF].map(Some));
    }
}
