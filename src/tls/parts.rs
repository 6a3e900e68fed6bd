//! What certificates and revocation lists say of themselves: the kind of key, and when they begin and end.
//!
//! rustls does not look at a CA's own times, nor at when a list begins. It says little of a key that it does not
//! accept.

use der::asn1::UintRef;
use der::oid::ObjectIdentifier;
use der::{DateTime, Decode, Reader, SliceReader};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use std::ops::RangeInclusive;
use std::time::Duration;
use x509_cert::crl::CertificateList;
use x509_cert::ext::pkix::{BasicConstraints, KeyUsage};
use x509_cert::name::Name;
use x509_cert::spki::SubjectPublicKeyInfoOwned;
use x509_cert::{Certificate, Version};

const DAY_SECONDS: u64 = 24 * 60 * 60;
const RSA: &str = "1.2.840.113549.1.1.1";
const ECDSA: &str = "1.2.840.10045.2.1";
const ED25519: &str = "1.3.101.112";

/// What a key is for: ring signs and verifies with different ones.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// A process's own key, which signs.
    Own,
    /// A CA's key, with which signatures are verified.
    Ca,
}

impl Use {
    /// How long an RSA key may be.
    fn rsa_bits(self) -> RangeInclusive<u32> {
        match self {
            Use::Own => 2048..=4096,
            Use::Ca => 2048..=8192,
        }
    }

    /// The right kind of key in the place of a wrong one, and the command that makes it.
    pub fn right_key(self) -> String {
        let bits = self.rsa_bits();
        let command = match self {
            Use::Own => {
                "openssl req -newkey rsa:3072 -nodes -keyout KEY -out REQUEST -subj /CN=NAME, for the CA to sign"
            }
            Use::Ca => "openssl req -x509 -newkey rsa:3072 -nodes -keyout ca.key -out ca.pem -days 3650 -subj /CN=NAME",
        };
        format!(
            "ECDSA P-256 or P-384, Ed25519, or RSA of {} to {} bits (make it with: {command})",
            bits.start(),
            bits.end()
        )
    }
}

/// The kind of this key in words, if it cannot be used. Other code says what is wrong with a key that cannot be read.
pub fn useless_key(certificate: &CertificateDer<'_>, used: Use) -> Option<String> {
    let certificate = Certificate::from_der(certificate).ok()?;
    let public = &certificate.tbs_certificate.subject_public_key_info;
    let is_right = match public.algorithm.oid.to_string().as_str() {
        ECDSA => curve(public).is_some_and(|curve| curve.1),
        RSA => bits(public).is_some_and(|bits| used.rsa_bits().contains(&bits)),
        kind => kind == ED25519,
    };
    (!is_right).then(|| kind_of_key(public))
}

/// What kind of key a certificate has, in words.
pub fn kind_of(certificate: &CertificateDer<'_>) -> Option<String> {
    let certificate = Certificate::from_der(certificate).ok()?.tbs_certificate;
    Some(kind_of_key(&certificate.subject_public_key_info))
}

/// What kind of key this is, in words.
pub fn kind_of_key(public: &SubjectPublicKeyInfoOwned) -> String {
    match public.algorithm.oid.to_string().as_str() {
        ECDSA => curve(public).map_or_else(|| "ECDSA".to_owned(), |(name, _)| format!("ECDSA {name}")),
        RSA => bits(public).map_or_else(|| "RSA".to_owned(), |bits| format!("RSA, {bits} bits")),
        ED25519 => "Ed25519".to_owned(),
        other => format!("of the kind {other}"),
    }
}

/// The curve of a key, and whether that curve is accepted.
fn curve(public: &SubjectPublicKeyInfoOwned) -> Option<(String, bool)> {
    let curve = public.algorithm.parameters.as_ref()?.decode_as::<ObjectIdentifier>().ok()?.to_string();
    let known =
        [("1.2.840.10045.3.1.7", "P-256", true), ("1.3.132.0.34", "P-384", true), ("1.3.132.0.35", "P-521", false)];
    let found = known.into_iter().find(|(oid, ..)| *oid == curve);
    Some(found.map_or_else(|| (format!("on the curve {curve}"), false), |(_, name, taken)| (name.to_owned(), taken)))
}

/// How long an RSA key is.
fn bits(public: &SubjectPublicKeyInfoOwned) -> Option<u32> {
    let mut reader = SliceReader::new(public.subject_public_key.raw_bytes()).ok()?;
    let read = reader.sequence(|inside| {
        let modulus = UintRef::decode(inside)?;
        UintRef::decode(inside)?;
        let first = modulus.as_bytes().first().copied().unwrap_or(0);
        Ok((modulus.as_bytes().len() as u32 * 8).saturating_sub(first.leading_zeros()))
    });
    read.ok()
}

/// Whether a certificate says of itself that it is a CA's. One of version 1 cannot say so. As in OpenSSL, one without basic
/// constraints says so by a key usage that lets it sign certificates.
pub fn is_ca(certificate: &CertificateDer<'_>) -> Option<bool> {
    is_a_ca(&Certificate::from_der(certificate).ok()?)
}

/// Whether a certificate that is parsed already says of itself that it is a CA's.
pub fn is_a_ca(certificate: &Certificate) -> Option<bool> {
    let certificate = &certificate.tbs_certificate;
    if certificate.version == Version::V1 {
        return None;
    }
    let says_so = || {
        let (constraints, usage) = (certificate.get::<BasicConstraints>()?, certificate.get::<KeyUsage>()?);
        let may_sign = usage.is_some_and(|(_, usage)| usage.key_cert_sign());
        Ok::<_, x509_cert::der::Error>(constraints.map_or(may_sign, |(_, constraints)| constraints.ca))
    };
    Some(says_so().unwrap_or(false)) // what cannot be read says nothing
}

/// The name of a certificate's subject.
pub fn subject(certificate: &CertificateDer<'_>) -> Option<Name> {
    Certificate::from_der(certificate).ok().map(|certificate| certificate.tbs_certificate.subject)
}

/// Says that a certificate has ended or not begun, in words that follow `a CA certificate that`.
pub fn out_of_time(certificate: &CertificateDer<'_>, now: u64) -> Option<String> {
    let times = Certificate::from_der(certificate).ok()?.tbs_certificate.validity;
    let (from, until) = (times.not_before.to_unix_duration().as_secs(), times.not_after.to_unix_duration().as_secs());
    match (now < from, now > until) {
        (true, _) => Some(format!("is not valid before {}", moment(from))),
        (false, true) => Some(format!("has ended on {}", moment(until))),
        (false, false) => None,
    }
}

/// When a certificate ends, in seconds since 1970.
pub fn end(certificate: &CertificateDer<'_>) -> Option<u64> {
    let certificate = Certificate::from_der(certificate).ok()?.tbs_certificate;
    Some(certificate.validity.not_after.to_unix_duration().as_secs())
}

/// When a revocation list ends, in seconds since 1970.
pub fn end_of_list(list: &CertificateRevocationListDer<'_>) -> Option<u64> {
    let list = CertificateList::from_der(list).ok()?.tbs_cert_list;
    list.next_update.map(|until| until.to_unix_duration().as_secs())
}

/// Says that a revocation list is not in effect, in words that follow the file's name.
pub fn not_in_effect(list: &CertificateRevocationListDer<'_>, now: u64) -> Option<String> {
    let list = CertificateList::from_der(list).ok()?.tbs_cert_list;
    let (from, until) = (list.this_update, list.next_update);
    let (from, until) = (from.to_unix_duration().as_secs(), until.map(|until| until.to_unix_duration().as_secs()));
    if now < from {
        let begins = moment(from);
        return Some(format!("is not in effect yet: it begins on {begins} (is this host's clock right?)"));
    }
    let ended = until.filter(|until| now >= *until).map(moment)?;
    Some(format!("is not in effect any more: it has ended on {ended}: expected a newer one ({NEW_LIST})"))
}

/// The command that makes a revocation list.
pub const NEW_LIST: &str = "openssl ca -gencrl -md sha256 -crldays 365 -out crl.pem";

/// The day of this moment alone.
pub fn day(seconds: u64) -> String {
    match DateTime::from_unix_duration(Duration::from_secs(seconds)) {
        Ok(date) => format!("{}-{:02}-{:02}", date.year(), date.month(), date.day()),
        Err(_) => "a time after the year 9999".to_owned(),
    }
}

/// This moment, to the second.
pub fn moment(seconds: u64) -> String {
    let of_day = seconds % DAY_SECONDS;
    format!("{} {:02}:{:02}:{:02} UTC", day(seconds), of_day / 3600, of_day / 60 % 60, of_day % 60)
}
