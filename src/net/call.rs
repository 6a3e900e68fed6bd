//! What every libc call of this room goes through. Tested below.

use std::ffi::c_int;
use std::io;

/// Returns what a libc call returned. -1 stands for the thread's `errno`.
pub(super) fn check(result: c_int) -> io::Result<c_int> {
    if result == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Repeats a call for as long as signals interrupt it.
pub(super) fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_call_is_repeated_and_any_other_result_is_not() {
        let mut calls = 0;
        let result = uninterrupted(|| {
            calls += 1;
            if calls < 4 {
                return Err(io::Error::from_raw_os_error(libc::EINTR));
            }
            Err::<(), _>(io::ErrorKind::WouldBlock.into())
        });
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(calls, 4);
    }
}
