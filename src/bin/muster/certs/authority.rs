//! A CA: what it signs, in DER.
//!
//! x509-cert has the parts of a certificate, and rustls signs (its signatures are those of TLS, which are those of
//! X.509). So a CA's key may be of any kind that TLS accepts. Deliberately not here: files. Tested in
//! `authority_test.rs`, and against OpenSSL by `tests/python/test_certs.py`.

use super::moment::{self, DAY};
use der::asn1::{Any, BitString, Ia5String, Null, ObjectIdentifier, OctetString, SetOfVec, Uint};
use der::oid::AssociatedOid;
use der::{Decode, Encode, Tag};
use muster::tls::names;
use muster::tls::parts::{is_a_ca, useless_key, Use};
use ring::digest::{digest, SHA256};
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{EcdsaKeyPair, ECDSA_P256_SHA256_ASN1_SIGNING};
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::SigningKey;
use rustls::SignatureScheme;
use std::sync::Arc;
use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::certificate::{Certificate, TbsCertificate, Version};
use x509_cert::crl::{CertificateList, RevokedCert, TbsCertList};
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::{
    AuthorityKeyIdentifier, BasicConstraints, CrlNumber, ExtendedKeyUsage, KeyUsage, KeyUsages, SubjectAltName,
    SubjectKeyIdentifier,
};
use x509_cert::ext::Extension;
use x509_cert::name::{Name, RdnSequence, RelativeDistinguishedName};
use x509_cert::serial_number::SerialNumber;
use x509_cert::spki::{AlgorithmIdentifierOwned, SubjectPublicKeyInfoOwned};
use x509_cert::time::Validity;
use zeroize::Zeroizing;

const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
const FOR_SERVERS: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.1");
const FOR_CLIENTS: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.2");

/// The name of each kind of signature, and whether the name has a parameter (RFC 4055, 5758, 8410).
const SIGNATURES: [(SignatureScheme, ObjectIdentifier, bool); 4] = [
    (SignatureScheme::ECDSA_NISTP256_SHA256, ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.2"), false),
    (SignatureScheme::ECDSA_NISTP384_SHA384, ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.3"), false),
    (SignatureScheme::RSA_PKCS1_SHA256, ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.11"), true),
    (SignatureScheme::ED25519, ObjectIdentifier::new_unwrap("1.3.101.112"), false),
];

/// How much earlier than now a certificate, or a list, begins: clocks of hosts differ.
const EARLIER: u64 = DAY;
const SERIAL_BYTES: usize = 16;

/// A result, or why there is none, in a sentence.
pub type Made<T> = Result<T, String>;

/// A private key in PKCS#8; wiped when it is dropped.
pub type Pkcs8 = Zeroizing<Vec<u8>>;

/// A certificate, and its key.
pub struct Issued {
    pub certificate: Certificate,
    pub key: Pkcs8,
}

/// A certificate of a CA, and the key with which it signs.
pub struct Authority {
    pub certificate: Certificate,
    key: Arc<dyn SigningKey>,
}

impl Authority {
    /// Makes a new CA, which signs its own certificate. Returns it with its key.
    pub fn new(days: u32) -> Made<(Authority, Pkcs8)> {
        let (key, pkcs8) = generate()?;
        // Two CAs with one name are hard to tell apart: then one could not even say what is wrong with a certificate.
        let subject = name(&format!("muster CA {}", hex(&random::<4>()?)))?;
        let extensions = [
            extension(&BasicConstraints { ca: true, path_len_constraint: Some(0) }, true)?,
            extension(&KeyUsage(KeyUsages::KeyCertSign | KeyUsages::CRLSign), true)?,
        ];
        let now = moment::now();
        let what = What {
            issuer: subject.clone(),
            subject,
            until: now + u64::from(days) * DAY,
            public_key: public_key(&*key)?,
            signed_by: None,
            extensions: extensions.into(),
        };
        let certificate = signed(what, &*key, now)?;
        Ok((Authority { certificate, key }, pkcs8))
    }

    /// The CA of this certificate, with this key. An error's words follow `the CA`.
    pub fn of(certificate: Certificate, key: &PrivateKeyDer<'_>) -> Made<Authority> {
        let key = any_supported_type(key).map_err(|error| {
            let bytes = certificate.to_der().map(CertificateDer::from).ok();
            match bytes.and_then(|bytes| useless_key(&bytes, Use::Ca)) {
                Some(kind) => format!("has a key ({kind}) that cannot be used: expected {}", Use::Ca.right_key()),
                None => format!("has a key that can't be used: {error}"),
            }
        })?;
        let own = &certificate.tbs_certificate;
        if public_key(&*key)?.subject_public_key != own.subject_public_key_info.subject_public_key {
            return Err("has a key that does not belong to its certificate".to_owned());
        }
        match is_a_ca(&certificate) {
            Some(true) => Ok(Authority { certificate, key }),
            _ => Err("has a certificate that is not a CA's (it lacks basicConstraints=CA:TRUE)".to_owned()),
        }
    }

    /// When its certificate ends.
    pub fn until(&self) -> u64 {
        moment::seconds(&self.certificate.tbs_certificate.validity.not_after)
    }

    /// A new key with a certificate of this name, with these names beside it, for both ends of a connection. The
    /// certificate ends with the CA at the latest.
    pub fn certify(&self, called: &str, names: &Names, days: u32) -> Made<Issued> {
        let now = moment::now();
        if self.until() <= now {
            let ended = moment::day(self.until());
            return Err(format!("the CA's certificate has ended on {ended}: make a new CA with muster certs new"));
        }
        let (key, pkcs8) = generate()?;
        let mut extensions = vec![
            extension(&BasicConstraints { ca: false, path_len_constraint: None }, true)?,
            extension(&KeyUsage(KeyUsages::DigitalSignature.into()), true)?,
            extension(&ExtendedKeyUsage(vec![FOR_SERVERS, FOR_CLIENTS]), false)?,
        ];
        let alternative = names.alternative()?;
        if !alternative.is_empty() {
            extensions.push(extension(&SubjectAltName(alternative), false)?);
        }
        let what = What {
            issuer: self.certificate.tbs_certificate.subject.clone(),
            subject: name(called)?,
            until: (now + u64::from(days) * DAY).min(self.until()),
            public_key: public_key(&*key)?,
            signed_by: self.key_identifier(),
            extensions,
        };
        Ok(Issued { certificate: signed(what, &*self.key, now)?, key: pkcs8 })
    }

    /// The revocation list with these entries. It ends with the CA: if a list has ended, no certificate is accepted any
    /// more.
    pub fn list(&self, number: &Uint, revoked: Vec<RevokedCert>) -> Made<CertificateList> {
        let (signer, signature) = signer(&*self.key)?;
        let mut extensions = vec![extension(&CrlNumber(number.clone()), false)?];
        if let Some(id) = self.key_identifier() {
            extensions.push(by_key(id)?);
        }
        let tbs_cert_list = TbsCertList {
            version: Version::V2,
            signature: signature.clone(),
            issuer: self.certificate.tbs_certificate.subject.clone(),
            this_update: der(moment::time(moment::now().saturating_sub(EARLIER)))?,
            next_update: Some(der(moment::time(self.until()))?),
            revoked_certificates: Some(revoked).filter(|revoked| !revoked.is_empty()),
            crl_extensions: Some(extensions),
        };
        let bytes = der(tbs_cert_list.to_der())?;
        let sealed =
            signer.sign(&bytes).map_err(|error| format!("nothing can be signed with the CA's key: {error}"))?;
        Ok(CertificateList {
            tbs_cert_list,
            signature_algorithm: signature,
            signature: der(BitString::from_bytes(&sealed))?,
        })
    }

    /// The identifier by which others name the CA's key.
    fn key_identifier(&self) -> Option<OctetString> {
        self.certificate.tbs_certificate.get::<SubjectKeyIdentifier>().ok().flatten().map(|(_, id)| id.0)
    }
}

/// What a certificate has beside its name.
#[derive(Default)]
pub struct Names {
    pub node_id: Option<String>,
    pub hosts: Vec<GeneralName>,
}

impl Names {
    fn alternative(&self) -> Made<Vec<GeneralName>> {
        let uri = self.node_id.as_ref().map(|id| der(Ia5String::new(&names::uri(id)))).transpose()?;
        Ok(uri.map(GeneralName::UniformResourceIdentifier).into_iter().chain(self.hosts.clone()).collect())
    }
}

/// What a certificate is to say.
struct What {
    issuer: Name,
    subject: Name,
    until: u64,
    public_key: SubjectPublicKeyInfoOwned,
    /// The identifier of the key that signs it.
    signed_by: Option<OctetString>,
    extensions: Vec<Extension>,
}

fn signed(what: What, key: &dyn SigningKey, now: u64) -> Made<Certificate> {
    let What { issuer, subject, until, public_key, signed_by, mut extensions } = what;
    let (signer, signature) = signer(key)?;
    let own = digest(&SHA256, public_key.subject_public_key.raw_bytes());
    extensions.push(extension(&SubjectKeyIdentifier(der(OctetString::new(&own.as_ref()[..20]))?), false)?);
    if let Some(id) = signed_by {
        extensions.push(by_key(id)?);
    }
    let tbs_certificate = TbsCertificate {
        version: Version::V3,
        serial_number: serial()?,
        signature: signature.clone(),
        issuer,
        validity: Validity {
            not_before: der(moment::time(now.saturating_sub(EARLIER)))?,
            not_after: der(moment::time(until))?,
        },
        subject,
        subject_public_key_info: public_key,
        issuer_unique_id: None,
        subject_unique_id: None,
        extensions: Some(extensions),
    };
    let bytes = der(tbs_certificate.to_der())?;
    let sealed = signer.sign(&bytes).map_err(|error| format!("nothing can be signed with the CA's key: {error}"))?;
    let sealed = der(BitString::from_bytes(&sealed))?;
    Ok(Certificate { tbs_certificate, signature_algorithm: signature, signature: sealed })
}

/// The signer that uses this key, and the name of its signatures.
fn signer(key: &dyn SigningKey) -> Made<(Box<dyn rustls::sign::Signer>, AlgorithmIdentifierOwned)> {
    let known = SIGNATURES.map(|(scheme, ..)| scheme);
    let signer = key.choose_scheme(&known).ok_or("the CA's key is of a kind with which nothing can be signed")?;
    let found = SIGNATURES.iter().find(|(scheme, ..)| *scheme == signer.scheme());
    let (_, oid, with_null) = found.ok_or("the CA's key makes a signature of an unknown kind")?;
    let parameters = with_null.then(|| Any::encode_from(&Null)).transpose();
    Ok((signer, AlgorithmIdentifierOwned { oid: *oid, parameters: der(parameters)? }))
}

/// The public half of a key.
pub fn public_key(key: &dyn SigningKey) -> Made<SubjectPublicKeyInfoOwned> {
    let public = key.public_key().ok_or("a key of this kind does not tell its public half")?;
    der(SubjectPublicKeyInfoOwned::from_der(public.as_ref()))
}

/// A new key, ECDSA P-256, and the same key in PKCS#8.
fn generate() -> Made<(Arc<dyn SigningKey>, Pkcs8)> {
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &SystemRandom::new());
    let pkcs8 = Zeroizing::new(pkcs8.map_err(|_| NO_RANDOMNESS)?.as_ref().to_vec());
    let key = PrivateKeyDer::try_from(&pkcs8[..]).map_err(str::to_owned)?;
    let key = any_supported_type(&key).map_err(|error| error.to_string())?;
    Ok((key, pkcs8))
}

const NO_RANDOMNESS: &str = "the system gives no random bytes";

/// Bytes that nobody can guess.
pub fn random<const N: usize>() -> Made<[u8; N]> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| NO_RANDOMNESS)?;
    Ok(bytes)
}

/// These bytes as hexadecimal text.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A serial number. It is positive, and never the same again.
fn serial() -> Made<SerialNumber> {
    let mut bytes = random::<SERIAL_BYTES>()?;
    bytes[0] = bytes[0] & 0x7f | 0x40;
    der(SerialNumber::new(&bytes))
}

fn name(common: &str) -> Made<Name> {
    let value = der(Any::new(Tag::Utf8String, common.as_bytes()))?;
    let set = SetOfVec::try_from(vec![AttributeTypeAndValue { oid: COMMON_NAME, value }]);
    Ok(RdnSequence(vec![RelativeDistinguishedName(der(set)?)]))
}

fn by_key(id: OctetString) -> Made<Extension> {
    extension(&AuthorityKeyIdentifier { key_identifier: Some(id), ..AuthorityKeyIdentifier::default() }, false)
}

fn extension<T: Encode + AssociatedOid>(value: &T, critical: bool) -> Made<Extension> {
    let extn_value = der(value.to_der().and_then(OctetString::new))?;
    Ok(Extension { extn_id: T::OID, critical, extn_value })
}

/// The sentence for DER that cannot be made: only a name or a time from outside can cause that.
pub fn der<T>(made: der::Result<T>) -> Made<T> {
    made.map_err(|error| format!("this cannot be put into a certificate: {error}"))
}

#[cfg(test)]
#[path = "authority_test.rs"]
mod tests;
