//! The secret of a job, and what is derived of it.
//!
//! Invariant: what is derived for one use is of no use for another: each has its own text.

use crate::config::{Lock, Password};
use crate::error::Result;
use crate::tls;
use crate::types::{Epoch, Incarnation, JobInstance, Secret, Token};
use crate::wiping::{keeping, wiping};
use crate::wire::LinkHello;
use ring::hmac;
use std::sync::Arc;

/// The secret of a job. The key is in no core dump, and overwritten in the end.
pub struct JobSecret {
    key: Arc<hmac::Key>,
}

/// A key of these bytes, to be kept.
fn kept(bytes: &[u8]) -> Arc<hmac::Key> {
    wiping(|| keeping(|| Arc::new(hmac::Key::new(hmac::HMAC_SHA256, bytes))))
}

impl JobSecret {
    /// Of these bytes.
    pub fn new(bytes: &[u8]) -> JobSecret {
        JobSecret { key: kept(bytes) }
    }

    /// Of this text.
    pub fn of(text: &Password) -> Arc<JobSecret> {
        Arc::new(JobSecret::new(text.reveal().as_bytes()))
    }

    /// The secret that the settings name, if any.
    pub fn read(lock: &Lock) -> Result<Option<Arc<JobSecret>>> {
        Ok(tls::password(lock)?.as_ref().map(JobSecret::of))
    }

    fn derive(&self, parts: [&[u8]; 3]) -> [u8; 32] {
        let mut context = hmac::Context::with_key(&self.key);
        parts.iter().for_each(|part| context.update(part));
        context.sign().as_ref().try_into().expect("SHA-256 gives 32 bytes")
    }

    /// The epoch's mark, which stands in its secret's place: all members make it themselves. Links show it. It opens none.
    pub fn of_epoch(&self, instance: JobInstance, epoch: Epoch) -> Secret {
        Secret(self.derive([b"muster job secret, version 1: epoch", &instance.0, &epoch.0.to_le_bytes()]))
    }

    /// Under what a connection to the scheduler is proved.
    pub fn of_connection(&self) -> Arc<hmac::Key> {
        Arc::clone(&self.key)
    }

    /// Under what a link is proved: derived of the epoch, and of the part of its mark that tells the job instance.
    pub fn of_link(&self, hello: &LinkHello) -> Arc<hmac::Key> {
        let LinkHello { epoch, proof, .. } = hello;
        kept(&self.derive([b"muster job secret, version 1: link", proof, &epoch.0.to_le_bytes()]))
    }

    /// Hides tokens from those that do not know the secret, for the way to the scheduler; done twice, it shows them again. A life
    /// shows the same tokens each time, so what hides them hides nothing else.
    pub fn mask(&self, life: Incarnation, tokens: &mut [Token]) {
        for (nth, token) in (0u64..).zip(tokens) {
            let pad = self.derive([b"muster job secret, version 1: token", &life.0, &nth.to_le_bytes()]);
            token.0.iter_mut().zip(pad).for_each(|(byte, pad)| *byte ^= pad);
        }
    }
}
