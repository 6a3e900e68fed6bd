//! Tested over pipes of this process. Their reading end loses its close-on-exec flag, since an inherited one has none.

use super::Inherited;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, IntoRawFd, RawFd};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(30);

/// A number to read from, and the end to write to.
fn pipe() -> (RawFd, io::PipeWriter) {
    let (reader, writer) = io::pipe().unwrap();
    socket2::SockRef::from(&reader).set_cloexec(false).unwrap();
    (reader.into_raw_fd(), writer)
}

fn read(number: RawFd, most: usize, within: Duration) -> Result<Vec<u8>, String> {
    Inherited::take(number)?.read(most, within)
}

#[test]
fn all_of_it_is_read_and_it_is_closed() {
    let (number, mut writer) = pipe();
    let reading = std::thread::spawn(move || read(number, 7, LONG));
    writer.write_all(b"hun").unwrap();
    writer.write_all(b"ter2").unwrap();
    drop(writer);
    assert_eq!(reading.join().unwrap(), Ok(b"hunter2".to_vec()));
    for (text, said) in [("hunter2\n", Ok("hunter2")), ("hunter2\n\n", Err("is too long: expected at most 7 bytes"))] {
        let (number, mut writer) = pipe();
        writer.write_all(text.as_bytes()).unwrap();
        drop(writer);
        assert_eq!(read(number, 7, LONG), said.map(|text| text.as_bytes().to_vec()).map_err(str::to_owned));
    }
}

#[test]
fn what_is_wrong_with_it() {
    let wrong = |number, within| read(number, 4, within).unwrap_err();
    let (number, writer) = pipe();
    drop(writer);
    assert_eq!(wrong(number, LONG), "is empty: expected the text, and then its end");
    let (number, mut writer) = pipe();
    writer.write_all(b"12345").unwrap();
    assert_eq!(wrong(number, LONG), "is too long: expected at most 4 bytes");
    // A child of another test, which has just been forked, may have the reading end for a moment, too.
    let deadline = std::time::Instant::now() + LONG;
    while writer.write(b"6").map_err(|error| error.kind()) != Err(io::ErrorKind::BrokenPipe) {
        assert!(std::time::Instant::now() < deadline, "it is closed");
        std::thread::sleep(Duration::from_millis(1)); // only a write shows that a pipe's last reader has gone
    }
    let (number, mut writer) = pipe();
    writer.write_all(b"1").unwrap();
    assert_eq!(wrong(number, Duration::ZERO), "has not come to its end in 0 s: expected its writer to close it");
    assert_eq!(wrong(i32::MAX, LONG), "is not open: expected a pipe or a file that it inherits");
    let (number, writer) = pipe();
    socket2::SockRef::from(&writer).set_cloexec(false).unwrap();
    assert!(wrong(writer.into_raw_fd(), LONG).starts_with("can't be read: Bad file descriptor"));
    drop(Inherited::take(number));
}

#[test]
fn what_was_not_inherited_is_neither_read_nor_closed() {
    let (mut reader, mut writer) = io::pipe().unwrap();
    writer.write_all(b"1").unwrap();
    let why = read(reader.as_raw_fd(), 4, LONG).unwrap_err();
    assert_eq!(why, "this process was not started with: expected a pipe or a file that it inherits");
    let mut byte = [0];
    reader.read_exact(&mut byte).unwrap();
    assert_eq!(byte, *b"1");
    assert!(File::open("/dev/null").is_ok());
}

#[test]
fn a_terminal_is_refused_and_stays_open() {
    let terminal = File::options().read(true).write(true).open("/dev/ptmx").expect("a terminal can be made");
    socket2::SockRef::from(&terminal).set_cloexec(false).unwrap();
    let why = Inherited::take(terminal.as_raw_fd()).err().unwrap();
    assert_eq!(why, "is a terminal: expected a pipe or a file that it inherits");
    assert!(terminal.metadata().is_ok());
}
