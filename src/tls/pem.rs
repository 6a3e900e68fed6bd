//! PEM: certificates, revocation lists and keys, in text.
//!
//! Invariant: no part of a file is passed over because of how its lines are written. So a part must end with its line,
//! and the mark of UTF-8 that some editors write before a line counts for nothing. Between the parts there may be
//! text of any encoding. Deliberately not here: whether the parts are of use.

use super::parts::NEW_LIST;
use rustls::pki_types::pem::{PemObject, SectionKind};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use zeroize::Zeroizing;

/// The byte order mark, as UTF-8 has it.
const MARK: &[u8] = b"\xef\xbb\xbf";
/// What ends the first and the last line of a part.
const DASHES: &str = "-----";
/// Before PKCS#8, OpenSSL wrote this into each encrypted key.
const LEGACY: &[u8] = b"Proc-Type: 4,ENCRYPTED";

/// What is wrong, in words that follow the file's name.
type Said<T> = Result<T, String>;

/// The kind of a part, and what it holds.
pub type Part = (SectionKind, Vec<u8>);

/// Whether these bytes are text with PEM in it.
pub fn is_pem(bytes: &[u8]) -> bool {
    find(bytes, b"-----BEGIN").is_some()
}

/// The parts of a file, in their order. An encrypted key is not among them: see [`encrypted_key`].
pub fn parts(bytes: &[u8]) -> Said<Vec<Part>> {
    let text = without_marks(bytes);
    lines(&text).try_for_each(judged)?;
    let parts: Result<Vec<Part>, _> = PemObject::pem_slice_iter(&text).collect();
    parts.map_err(|error| wrong(&error))
}

/// All parts that are of one kind.
pub fn all<T: PemObject>(bytes: &[u8]) -> Said<impl Iterator<Item = T>> {
    Ok(parts(bytes)?.into_iter().filter_map(|(kind, bytes)| T::from_pem(kind, bytes)))
}

/// The certificates of a file; there is at least one.
pub fn certificates(bytes: &[u8]) -> Said<Vec<CertificateDer<'static>>> {
    match all(bytes)?.collect::<Vec<_>>() {
        none if none.is_empty() => Err("has no certificate in PEM in it".to_owned()),
        found => Ok(found),
    }
}

/// The revocation lists of a file, which may be one in DER; there is at least one.
pub fn lists(bytes: &[u8]) -> Said<Vec<CertificateRevocationListDer<'static>>> {
    if bytes.trim_ascii().is_empty() {
        return Err(format!("is empty: expected a revocation list in PEM or DER ({NEW_LIST})"));
    }
    if !is_pem(bytes) {
        return Ok(vec![CertificateRevocationListDer::from(bytes.to_vec())]);
    }
    match all(bytes)?.collect::<Vec<_>>() {
        none if none.is_empty() => Err("has no revocation list (X509 CRL) in it".to_owned()),
        found => Ok(found),
    }
}

/// The bytes of an encrypted key, if there is one.
pub fn encrypted_key(bytes: &[u8]) -> Said<Option<Vec<u8>>> {
    const FIRST: &str = "-----BEGIN ENCRYPTED PRIVATE KEY-----";
    const LAST: &str = "-----END ENCRYPTED PRIVATE KEY-----";
    let Some(start) = find(bytes, FIRST.as_bytes()) else { return Ok(None) };
    let Some(length) = find(&bytes[start..], LAST.as_bytes()) else {
        return Err(wrong(&format!("it has no \"{LAST}\"")));
    };
    let block = std::str::from_utf8(&bytes[start..start + length + LAST.len()]).map_err(|error| wrong(&error))?;
    let (_, sealed) = der::Document::from_pem(block).map_err(|error| wrong(&error))?;
    Ok(Some(sealed.as_bytes().to_vec()))
}

fn wrong(why: &dyn std::fmt::Display) -> String {
    format!("is not PEM as expected: {why}")
}

/// Where this begins for the first time.
fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split_inclusive(|byte| matches!(byte, b'\n' | b'\r'))
}

/// The text without the marks before its lines. It may have a key in it.
fn without_marks(text: &[u8]) -> Zeroizing<Vec<u8>> {
    let plain: Vec<&[u8]> = lines(text).map(|line| line.strip_prefix(MARK).unwrap_or(line)).collect();
    Zeroizing::new(plain.concat())
}

/// Better words where rustls says too little of a line, or misleads.
fn judged(line: &[u8]) -> Said<()> {
    if line.starts_with(LEGACY) {
        let command = "openssl pkcs8 -topk8 -in OLD -out NEW";
        return Err(format!(
            "has a key that is encrypted as OpenSSL did before PKCS#8: expected PKCS#8 (make it with: {command})"
        ));
    }
    let Some(rest) = line.strip_prefix(b"-----END ") else {
        return match find(line, b"-----BEGIN ") {
            Some(1..) => Err(wrong(&"nothing may stand before -----BEGIN on its line")),
            _ => Ok(()),
        };
    };
    let Some(length) = find(rest, DASHES.as_bytes()) else { return Ok(()) };
    match rest[length + DASHES.len()..].trim_ascii().is_empty() {
        true => Ok(()),
        false => {
            let kind = String::from_utf8_lossy(&rest[..length]);
            Err(wrong(&format!("nothing may follow -----END {kind}----- on its line")))
        }
    }
}

#[cfg(test)]
#[path = "pem_test.rs"]
mod tests;
