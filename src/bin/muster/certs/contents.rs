//! What a file holds, whatever it is.

use super::authority::public_key;
use super::passwords::Given;
use ::pkcs12::pbe_params::EncryptedPrivateKeyInfo;
use der::asn1::AnyRef;
use der::Decode;
use muster::tls::names;
use muster::tls::pem::{encrypted_key, is_pem, parts};
use muster::tls::pkcs12;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::{PemObject, SectionKind};
use rustls::pki_types::PrivateKeyDer;
use x509_cert::certificate::Certificate;
use x509_cert::crl::CertificateList;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::SubjectAltName;
use zeroize::Zeroize;

/// What was found in a file, in its order.
#[derive(Default)]
pub struct Contents {
    pub certificates: Vec<Certificate>,
    pub lists: Vec<CertificateList>,
    pub keys: Vec<Key>,
}

/// A private key; wiped when it is dropped.
pub enum Key {
    Open(PrivateKeyDer<'static>),
    /// It is encrypted, and no password was given.
    Sealed,
}

impl Drop for Key {
    fn drop(&mut self) {
        if let Key::Open(key) = self {
            key.zeroize();
        }
    }
}

/// Reads what is in these bytes. An error's words follow the file's name.
pub fn of(bytes: &[u8], passwords: &[Given]) -> Result<Contents, String> {
    match is_pem(bytes) {
        true => of_pem(bytes, passwords),
        false => of_der(bytes, passwords),
    }
}

fn of_pem(bytes: &[u8], passwords: &[Given]) -> Result<Contents, String> {
    let mut found = Contents::default();
    for (kind, der) in parts(bytes)? {
        match kind {
            SectionKind::Certificate => found.certificates.push(certificate(&der)?),
            SectionKind::Crl => found.lists.push(list(&der)?),
            SectionKind::PrivateKey | SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey => {
                let key = PrivateKeyDer::from_pem(kind, der).ok_or("has a key that is not right")?;
                found.keys.push(Key::Open(key));
            }
            _ => {} // a request, or parameters of a curve
        }
    }
    if let Some(sealed) = encrypted_key(bytes)? {
        found.keys.push(sealed_key(&sealed, passwords)?);
    }
    match (found.certificates.len(), found.lists.len(), found.keys.len()) {
        (0, 0, 0) => Err("has PEM in it, but no certificate, key or revocation list".to_owned()),
        _ => Ok(found),
    }
}

fn of_der(bytes: &[u8], passwords: &[Given]) -> Result<Contents, String> {
    if let Ok(certificate) = Certificate::from_der(bytes) {
        return Ok(Contents { certificates: vec![certificate], ..Contents::default() });
    }
    if let Ok(list) = CertificateList::from_der(bytes) {
        return Ok(Contents { lists: vec![list], ..Contents::default() });
    }
    if !bytes.starts_with(&[0x30]) {
        return Err("is neither PEM, DER, PKCS#12 nor JSON".to_owned());
    }
    if let Some(key) = open_key(bytes) {
        return Ok(Contents { keys: vec![Key::Open(key)], ..Contents::default() });
    }
    if EncryptedPrivateKeyInfo::from_der(bytes).is_ok() {
        return Ok(Contents { keys: vec![sealed_key(bytes, passwords)?], ..Contents::default() });
    }
    let opened = unlocked(passwords, |password| pkcs12::open(bytes, password))?;
    let certificates = opened.certificates.iter().map(|der| certificate(der)).collect::<Result<_, _>>()?;
    let keys = opened.keys.into_iter().map(|der| key(der).map(Key::Open)).collect::<Result<_, _>>()?;
    Ok(Contents { certificates, keys, lists: Vec::new() })
}

/// The key that these bytes are: PKCS#8, PKCS#1 or SEC1. rustls looks at their beginning alone, and would take PKCS#12
/// for a key: its version is 3.
fn open_key(bytes: &[u8]) -> Option<PrivateKeyDer<'static>> {
    let whole = AnyRef::from_der(bytes).ok()?;
    let is_key = matches!(whole.value(), [2, 1, 0 | 1, ..]);
    PrivateKeyDer::try_from(bytes).ok().filter(|_| is_key).map(|key| key.clone_key())
}

/// The key of encrypted PKCS#8.
fn sealed_key(sealed: &[u8], passwords: &[Given]) -> Result<Key, String> {
    match passwords.is_empty() {
        true => Ok(Key::Sealed),
        false => key(unlocked(passwords, |password| pkcs12::open_key(sealed, password))?).map(Key::Open),
    }
}

/// Opens with the first password that fits; if there is none, with the empty one.
fn unlocked<T>(passwords: &[Given], open: impl Fn(&str) -> Result<T, pkcs12::Wrong>) -> Result<T, String> {
    let Some(last) = passwords.last() else {
        return open("").map_err(|wrong| wrong.told(false, "--password_file"));
    };
    for given in passwords {
        match open(given.password.reveal()) {
            Err(pkcs12::Wrong::Password) => {}
            other => return other.map_err(|wrong| wrong.told(true, &given.setting)),
        }
    }
    Err(pkcs12::Wrong::Password.told(true, &last.setting))
}

/// The certificate of this DER.
pub fn certificate(der: &[u8]) -> Result<Certificate, String> {
    Certificate::from_der(der).map_err(|error| format!("has a certificate that is not right: {error}"))
}

/// The revocation list of this DER.
pub fn list(der: &[u8]) -> Result<CertificateList, String> {
    CertificateList::from_der(der).map_err(|error| format!("has a revocation list that is not right: {error}"))
}

fn key(der: Vec<u8>) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::try_from(der).map_err(|why| format!("has a key that is not right: {why}"))
}

/// The node id in a certificate, if it has one.
pub fn node_id(certificate: &Certificate) -> Option<String> {
    alternative_names(certificate).iter().find_map(|name| match name {
        GeneralName::UniformResourceIdentifier(uri) => names::id_of(uri.as_str()),
        _ => None,
    })
}

/// The subject alternative names of a certificate.
pub fn alternative_names(certificate: &Certificate) -> Vec<GeneralName> {
    let found = certificate.tbs_certificate.get::<SubjectAltName>().ok().flatten();
    found.map(|(_, names)| names.0).unwrap_or_default()
}

/// Whether the key belongs to the certificate; none if that cannot be known.
pub fn belongs(key: &PrivateKeyDer<'_>, certificate: &Certificate) -> Option<bool> {
    let public = public_key(&*any_supported_type(key).ok()?).ok()?;
    Some(public.subject_public_key == certificate.tbs_certificate.subject_public_key_info.subject_public_key)
}

#[cfg(test)]
mod tests {
    use super::super::testing::TestFolder;
    use super::*;
    use muster::config::Password;
    use std::process::Command;

    #[test]
    fn keys_in_der_are_found() {
        let folder = TestFolder::new();
        for line in [
            "ecparam -name prime256v1 -genkey -noout -outform DER -out sec1",
            "pkcs8 -topk8 -inform DER -in sec1 -outform DER -nocrypt -out pkcs8",
            "pkcs8 -topk8 -inform DER -in sec1 -outform DER -passout pass:word -out sealed",
            "genrsa -out rsa 2048",
            "rsa -in rsa -traditional -outform DER -out pkcs1",
        ] {
            let run = Command::new("openssl").args(line.split(' ')).current_dir(&folder.path).output();
            let run = run.expect("the tests need the command openssl");
            assert!(run.status.success(), "{line}: {}", String::from_utf8_lossy(&run.stderr));
        }
        let read = |file: &str| std::fs::read(folder.path.join(file)).unwrap();
        let key = |file: &str, given: &[Given]| of(&read(file), given).unwrap().keys.pop().unwrap();
        for file in ["sec1", "pkcs8", "pkcs1"] {
            let Key::Open(found) = &key(file, &[]) else { panic!("{file} is not encrypted") };
            assert_eq!(found.secret_der(), read(file));
            let bytes = read(file);
            assert!(of(&bytes[..bytes.len() - 1], &[]).is_err(), "half of {file}");
        }
        assert!(matches!(key("sealed", &[]), Key::Sealed));
        let given =
            |word: &str| [Given { password: Password::new(word.to_owned()), setting: "--password_file".to_owned() }];
        let Key::Open(found) = &key("sealed", &given("word")) else { panic!("it is opened") };
        assert_eq!(found.secret_der(), read("pkcs8"));
        let why = of(&read("sealed"), &given("other")).err().unwrap();
        assert!(why.starts_with("does not open with the password of --password_file"), "{why}");
    }
}
