//! Memory for what grows by a count or a size from a caller or the wire. It is tried first, and refused if there is
//! none.
//!
//! Small things of a fixed size are not tried one by one: an allocation that fails ends the process. So code that is
//! about to make a few of them first tries whether there is room for them and for a reserve ([`with_reserve`]). The
//! words of the error are made from that reserve where all other memory is used up.

use super::{Error, Result, Status};
use std::collections::TryReserveError;

/// Enough for the small things of any one call, and for the words of an error.
const RESERVE_BYTES: usize = 64 << 10;

fn refused(bytes: usize, what: &str) -> Error {
    Error::new(Status::Memory, format!("no memory for {bytes} bytes: {what}"))
}

/// Whether there is room for so many bytes now, and for the reserve.
pub fn room(bytes: usize, what: &str) -> Result<()> {
    with_reserve(what, || Vec::<u8>::new().try_reserve_exact(bytes)).map_err(|_| refused(bytes, what))
}

/// Runs `grow`, and tries before and after it whether there is room for the reserve. (A reserve that was held meanwhile
/// would lie above the heap's end, and what grows could not grow in its place.)
pub fn with_reserve<T>(what: &str, grow: impl FnOnce() -> Result<T, TryReserveError>) -> Result<T> {
    try_reserve(what)?;
    let grown = grow().map_err(|_| Error::new(Status::Memory, format!("no memory for {what}")))?;
    try_reserve(what)?;
    Ok(grown)
}

fn try_reserve(what: &str) -> Result<()> {
    let mut reserve = Vec::<u8>::new();
    reserve.try_reserve_exact(RESERVE_BYTES).map_err(|_| refused(RESERVE_BYTES, what))?;
    std::hint::black_box(&reserve); // else an optimizer may leave it out
    Ok(())
}

/// Makes room for so many more in a list.
pub fn more<T>(list: &mut Vec<T>, count: usize, what: &str) -> Result<()> {
    if list.capacity() - list.len() >= count {
        return Ok(());
    }
    with_reserve(what, || list.try_reserve(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_machine_has_is_refused_and_what_it_has_is_not() {
        let error = room(1 << 62, "a test").unwrap_err();
        assert_eq!(error.status(), Status::Memory);
        assert!(error.message().contains("a test") && error.message().contains(&(1u64 << 62).to_string()), "{error:?}");
        room(1 << 20, "a test").unwrap();
        let mut list = vec![0u64];
        assert_eq!(more(&mut list, 1 << 60, "a list").unwrap_err().status(), Status::Memory);
        more(&mut list, 100, "a list").unwrap();
        assert!(list.capacity() >= 101 && list == [0]);
    }
}
