//! Raw pointers and integers into Rust values, checked; and Rust values out into the caller's memory.

use crate::error::{Error, Result, Status};
use std::ffi::{c_char, CStr};

/// A handle that must not be NULL.
///
/// # Safety
/// `pointer` must be NULL or a live handle of this type.
pub(super) unsafe fn handle<'a, T>(pointer: *const T, name: &str) -> Result<&'a T> {
    // SAFETY: the caller vouches for the pointer; NULL is answered with an error.
    unsafe { pointer.as_ref() }.ok_or_else(|| null(name))
}

/// Where a result goes; must not be NULL.
pub(super) fn out<T>(pointer: *mut T, name: &str) -> Result<*mut T> {
    if pointer.is_null() {
        return Err(null(name));
    }
    Ok(pointer)
}

/// A C string that must be there and be UTF-8.
///
/// # Safety
/// `pointer` must be NULL or a string that ends with a zero byte.
pub(super) unsafe fn text<'a>(pointer: *const c_char, name: &str) -> Result<&'a str> {
    // SAFETY: as promised by the caller.
    let bytes = unsafe { c_bytes(pointer, name) }?;
    std::str::from_utf8(bytes).map_err(|_| {
        Error::invalid(format!(
            "{name} is {:?}, which is not UTF-8: expected UTF-8 text",
            String::from_utf8_lossy(bytes)
        ))
    })
}

/// A C string's bytes.
///
/// # Safety
/// `pointer` must be NULL or a string that ends with a zero byte.
pub(super) unsafe fn c_bytes<'a>(pointer: *const c_char, name: &str) -> Result<&'a [u8]> {
    if pointer.is_null() {
        return Err(null(name));
    }
    // SAFETY: as promised by the caller.
    Ok(unsafe { CStr::from_ptr(pointer) }.to_bytes())
}

/// The `count` values at a pointer, which may be NULL if `count` is 0.
///
/// # Safety
/// `pointer` must be readable for `count` things, or be NULL.
pub(super) unsafe fn slice<'a, T>(pointer: *const T, count: usize, name: &str) -> Result<&'a [T]> {
    fits::<T>(count, name)?;
    if count == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return Err(null(name));
    }
    if !pointer.is_aligned() {
        return Err(Error::invalid(format!("{name} is not aligned for what it points to")));
    }
    // SAFETY: not NULL, aligned, within the address space, and readable as the caller promised.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// Refuses a `count` of values that no memory can hold.
pub(super) fn fits<T>(count: usize, name: &str) -> Result<()> {
    let bytes = count.checked_mul(std::mem::size_of::<T>()).filter(|bytes| isize::try_from(*bytes).is_ok());
    match bytes {
        Some(_) => Ok(()),
        None => Err(Error::invalid(format!("{name}: {count} is more than any memory holds"))),
    }
}

/// Gives a string out: its length in `needed` (with the zero byte), and itself in `buf` if `cap` allows.
///
/// # Safety
/// `buf` must be writable for `cap` bytes or be NULL; `needed` must be writable or NULL.
pub(super) unsafe fn give_text(
    value: &str,
    buf: *mut c_char,
    cap: usize,
    needed: *mut usize,
    name: &str,
) -> Result<Status> {
    let with_zero = value.len() + 1;
    if !needed.is_null() {
        // SAFETY: not NULL, and writable as the caller promised.
        unsafe { needed.write(with_zero) };
    }
    if buf.is_null() && cap == 0 {
        if needed.is_null() {
            return Err(Error::invalid("buf and needed are both NULL: expected memory for the text or for its length"));
        }
        return Ok(Status::Ok);
    }
    if buf.is_null() {
        return Err(null("buf"));
    }
    if cap < with_zero {
        return Err(Error::new(Status::Limit, format!("{name} needs {with_zero} bytes, the buffer has {cap}")));
    }
    // SAFETY: `buf` is writable for `cap` bytes, which is at least `with_zero`; the two do not overlap.
    unsafe {
        std::ptr::copy_nonoverlapping(value.as_ptr(), buf.cast(), value.len());
        buf.add(value.len()).write(0);
    }
    Ok(Status::Ok)
}

/// Writes a structure into the caller's `size` bytes: the part that the caller knows, so that later versions can add fields.
///
/// # Safety
/// `out` must be NULL or writable for `size` bytes.
pub(super) unsafe fn give_struct<T>(value: &T, out: *mut T, size: usize, least: usize) -> Result<Status> {
    let out = check_struct(out, size, least)?;
    let known = std::mem::size_of::<T>();
    // SAFETY: `out` is writable for `size` bytes; what this library does not know is zeroed.
    unsafe {
        std::ptr::copy_nonoverlapping(std::ptr::from_ref(value).cast::<u8>(), out.cast(), known.min(size));
        out.cast::<u8>().add(known.min(size)).write_bytes(0, size - known.min(size));
    }
    Ok(Status::Ok)
}

/// The caller's memory for a structure, which must have room for at least `least` bytes.
pub(super) fn check_struct<T>(out: *mut T, size: usize, least: usize) -> Result<*mut T> {
    let out = self::out(out, "out")?;
    if size < least {
        return Err(Error::invalid(format!("size is {size}: at least {least} is expected, best sizeof *out")));
    }
    Ok(out)
}

/// Copies a string into a fixed array, cut at a character's border, with a zero byte behind it.
pub(super) fn fixed<const N: usize>(value: &str) -> [c_char; N] {
    let mut array = [0; N];
    let mut end = value.len().min(N - 1);
    while !value.is_char_boundary(end) {
        end -= 1;
    }
    for (to, from) in array.iter_mut().zip(&value.as_bytes()[..end]) {
        *to = *from as c_char;
    }
    array
}

pub(super) fn null(name: &str) -> Error {
    Error::invalid(format!("{name} is NULL: expected a pointer to something"))
}
