//! Keys that sign without leaving anything of themselves behind.
//!
//! ring copies the primes of an RSA key to the place where it computes: the stack of the thread that shakes hands, and
//! memory that it frees. Tested in a process that lives, in `tests/python/test_wiping.py`.

use crate::wiping::wiping;
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::sign::{Signer, SigningKey};
use rustls::{Error, SignatureAlgorithm, SignatureScheme};
use std::sync::Arc;

/// A key. The memory that it uses to sign is overwritten each time.
#[derive(Debug)]
pub struct WipingKey(pub Arc<dyn SigningKey>);

#[derive(Debug)]
struct WipingSigner(Box<dyn Signer>);

impl SigningKey for WipingKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        self.0.choose_scheme(offered).map(|signer| Box::new(WipingSigner(signer)) as Box<dyn Signer>)
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        self.0.public_key()
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        self.0.algorithm()
    }
}

impl Signer for WipingSigner {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        wiping(|| self.0.sign(message))
    }

    fn scheme(&self) -> SignatureScheme {
        self.0.scheme()
    }
}
