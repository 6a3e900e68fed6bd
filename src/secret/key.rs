//! The secret of a job, and what is derived from it.
//!
//! Invariant: a key that is derived for one purpose does not work for another, because each purpose has its own text.

use crate::config::{Lock, Password};
use crate::error::Result;
use crate::tls;
use crate::types::{Epoch, Incarnation, JobInstance, Secret, Token};
use crate::wiping::{keeping, wiping_stack};
use crate::wire::LinkHello;
use ring::hmac;
use std::sync::Arc;

/// The secret of a job. The key is in no core dump, and overwritten in the end.
pub struct JobSecret {
    key: Arc<hmac::Key>,
}

/// How many bytes of the stack it takes at most to make a key: SHA-256 with its blocks (measured: less than a quarter of this).
const STACK_BYTES: usize = 8 << 10;

/// Makes a key of these bytes, which is to be kept.
fn kept(bytes: &[u8]) -> Arc<hmac::Key> {
    wiping_stack::<STACK_BYTES, _>(|| keeping(|| Arc::new(hmac::Key::new(hmac::HMAC_SHA256, bytes))))
}

impl JobSecret {
    /// The secret that is made of these bytes.
    pub fn new(bytes: &[u8]) -> JobSecret {
        JobSecret { key: kept(bytes) }
    }

    /// The secret that is made of this text.
    pub fn of(text: &Password) -> Arc<JobSecret> {
        Arc::new(JobSecret::new(text.reveal().as_bytes()))
    }

    /// The secret that the settings name, if any.
    pub fn read(lock: &Lock) -> Result<Option<Arc<JobSecret>>> {
        match tls::password(lock)? {
            // An empty one would be a secret that everybody has.
            Some(text) if text.reveal().is_empty() => {
                Err(lock.error("has no secret in it: expected a long random text"))
            }
            text => Ok(text.as_ref().map(JobSecret::of)),
        }
    }

    fn derive(&self, parts: [&[u8]; 3]) -> [u8; 32] {
        let mut context = hmac::Context::with_key(&self.key);
        parts.iter().for_each(|part| context.update(part));
        context.sign().as_ref().try_into().expect("SHA-256 gives 32 bytes")
    }

    /// The epoch's mark, which takes the place of the epoch's secret: all members make it themselves. Links show it, but
    /// it opens none.
    pub fn of_epoch(&self, instance: JobInstance, epoch: Epoch) -> Secret {
        Secret(self.derive([b"muster job secret, version 1: epoch", &instance.0, &epoch.0.to_le_bytes()]))
    }

    /// The key by which the secret is proved on a connection to the scheduler.
    pub fn of_connection(&self) -> Arc<hmac::Key> {
        Arc::clone(&self.key)
    }

    /// The key by which the secret is proved on a link. It is derived from the epoch, and from the first half of the
    /// epoch's mark, which depends on the job instance.
    pub fn of_link(&self, hello: &LinkHello) -> Arc<hmac::Key> {
        let LinkHello { epoch, proof, .. } = hello;
        kept(&self.derive([b"muster job secret, version 1: link", proof, &epoch.0.to_le_bytes()]))
    }

    /// Hides tokens on the way to the scheduler from readers that do not know the secret. A second call makes them readable
    /// again. A life shows the same tokens each time, so the bytes that hide them never hide anything else.
    pub fn mask(&self, life: Incarnation, tokens: &mut [Token]) {
        for (nth, token) in (0u64..).zip(tokens) {
            let pad = self.derive([b"muster job secret, version 1: token", &life.0, &nth.to_le_bytes()]);
            token.0.iter_mut().zip(pad).for_each(|(byte, pad)| *byte ^= pad);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::hint::black_box;
    use std::os::unix::fs::FileExt;

    const DEEP: usize = 64 << 10;

    /// Fills the stack below the caller's frame.
    #[inline(never)]
    fn paint() -> usize {
        let mut stack = [0xa5_u8; DEEP];
        black_box(&mut stack).as_ptr() as usize
    }

    fn stack_at(address: usize) -> Vec<u8> {
        let mut bytes = vec![0; DEEP];
        File::open("/proc/self/mem").unwrap().read_exact_at(&mut bytes, address as u64).unwrap();
        bytes
    }

    #[inline(never)]
    fn unwiped(bytes: &[u8]) {
        black_box(hmac::Key::new(hmac::HMAC_SHA256, bytes));
    }

    /// Some slack is left for a compiler that optimizes nothing, or in another way.
    #[test]
    fn a_key_leaves_nothing_of_its_bytes_on_the_stack() {
        let secret = *b"what a key is made of, and no more";
        let at = paint();
        unwiped(&secret);
        let used = stack_at(at).iter().position(|byte| *byte != 0xa5).map_or(0, |first| DEEP - first);
        assert!(used > 0 && used <= STACK_BYTES / 2, "{used} bytes");
        paint();
        black_box(kept(&secret));
        let stack = stack_at(at);
        for pad in [0x00, 0x36, 0x5c] {
            let part: Vec<u8> = secret[..8].iter().map(|byte| byte ^ pad).collect();
            let found = stack.windows(part.len()).rposition(|window| window == part);
            assert_eq!(found.map(|place| DEEP - place), None, "pad {pad:x}: so far below the frame");
        }
    }
}
