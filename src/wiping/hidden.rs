//! Bytes that are needed later: in pages of their own, in no core dump, and overwritten before the pages go back.

use std::alloc::{handle_alloc_error, Layout};
use std::ptr::NonNull;
use zeroize::Zeroize;

/// A page, and more where the bytes are more. The kernel rounds up by itself.
const MAPPED_LEAST: usize = 1;

/// The one place of some bytes.
pub struct Hidden {
    at: NonNull<u8>,
    length: usize,
}

// SAFETY: the pages are its own, and are only read once it is made.
unsafe impl Send for Hidden {}
// SAFETY: as above.
unsafe impl Sync for Hidden {}

impl Hidden {
    /// Copies them there. The caller wipes its own.
    pub fn new(bytes: &[u8]) -> Hidden {
        let length = bytes.len();
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let mapped = length.max(MAPPED_LEAST);
        // SAFETY: asks for new memory at any place.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), mapped, access, kind, -1, 0) };
        let at = NonNull::new(at.cast::<u8>()).filter(|_| at != libc::MAP_FAILED);
        let at = at.unwrap_or_else(|| handle_alloc_error(Layout::for_value(bytes)));
        // SAFETY: the pages are ours. Where the kernel knows no such advice they are as other memory.
        let _ = unsafe { libc::madvise(at.as_ptr().cast(), mapped, libc::MADV_DONTDUMP) };
        // SAFETY: there is room for so many, and nobody else knows the place.
        unsafe { at.copy_from_nonoverlapping(NonNull::from(bytes).cast(), length) };
        Hidden { at, length }
    }

    /// All of them.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: so many were copied there, and they stay until the drop.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.length) }
    }

    fn wipe(&mut self) {
        // SAFETY: as for reading; nobody else has it while it is borrowed to be changed.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.length) }.zeroize();
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        self.wipe();
        // SAFETY: it was mapped with this length, and nobody uses it any more.
        let _ = unsafe { libc::munmap(self.at.as_ptr().cast(), self.length.max(MAPPED_LEAST)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The flags of the mapping with this address, as the kernel tells them.
    fn flags(address: usize) -> String {
        let all = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut is_here = false;
        for line in all.lines() {
            let first = line.split(' ').next().unwrap();
            let ends = first.split_once('-').map(|(from, to)| [from, to].map(|end| usize::from_str_radix(end, 16)));
            match ends {
                Some([Ok(from), Ok(to)]) => is_here = (from..to).contains(&address),
                _ if is_here && line.starts_with("VmFlags:") => return format!("{line} "),
                _ => {}
            }
        }
        panic!("{address:x} is in no mapping");
    }

    #[test]
    fn its_pages_are_in_no_core_dump() {
        let hidden = Hidden::new(b"hunter2");
        assert_eq!(hidden.bytes(), b"hunter2");
        let flags = flags(hidden.bytes().as_ptr() as usize);
        assert!(flags.contains(" dd "), "{flags}");
        assert_eq!(Hidden::new(b"").bytes(), b"");
    }

    #[test]
    fn it_is_overwritten_before_its_pages_go_back() {
        let mut hidden = Hidden::new(b"hunter2");
        hidden.wipe();
        assert_eq!(hidden.bytes(), [0; 7]);
    }
}
