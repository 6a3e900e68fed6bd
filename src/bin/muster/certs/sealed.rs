//! Writes PKCS#12 files (RFC 7292) as OpenSSL 3 does: PBES2 with AES-256 and PBKDF2 for certificate and key, HMAC-SHA-256 over both.
//!
//! pkcs12 and cms have the parts, pkcs8 encrypts. `muster::tls::pkcs12` reads such files, and so does OpenSSL
//! (`tests/python/test_certs.py`).

use super::authority::{der, random, Made};
use cms::content_info::{CmsVersion, ContentInfo};
use cms::encrypted_data::EncryptedData;
use cms::enveloped_data::EncryptedContentInfo;
use der::asn1::{Any, ObjectIdentifier, OctetString, SetOfVec};
use der::{Decode, Encode};
use hmac::{Mac, SimpleHmac};
use muster::tls::pkcs12::{spelled, CERT_BAG, DATA, ENCRYPTED_DATA, LOCAL_KEY_ID, SHA256, SHROUDED_KEY_BAG};
use pkcs12::cert_type::CertBag;
use pkcs12::digest_info::DigestInfo;
use pkcs12::kdf::{derive_key, Pkcs12KeyType};
use pkcs12::mac_data::MacData;
use pkcs12::pbe_params::EncryptedPrivateKeyInfo;
use pkcs12::pfx::{Pfx, Version};
use pkcs12::safe_bag::SafeBag;
use pkcs8::pkcs5::{pbes2, EncryptionScheme};
use pkcs8::spki::AlgorithmIdentifierOwned;
use sha2::{Digest, Sha256};
use x509_cert::attr::{Attribute, Attributes};

const X509: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.22.1");

/// How many rounds the key's derivation takes: as many as OpenSSL 3 uses. Each process pays for them when it starts.
const ROUNDS: u16 = 2048;

/// The file with a certificate and its key (PKCS#8), both in DER.
pub fn seal(certificate: &[u8], key: &[u8], password: &str) -> Made<Vec<u8>> {
    let id = Sha256::digest(certificate); // by it a reader finds the key's own certificate
    let bag = CertBag { cert_id: X509, cert_value: der(OctetString::new(certificate))? };
    let bag = SafeBag { bag_id: CERT_BAG, bag_value: der(bag.to_der())?, bag_attributes: Some(attributes(&id)?) };
    let (algorithm, sealed) = encrypted(&der(vec![bag].to_der())?, password)?;
    let first = EncryptedData {
        version: CmsVersion::V0,
        enc_content_info: EncryptedContentInfo {
            content_type: DATA,
            content_enc_alg: algorithm,
            encrypted_content: Some(der(OctetString::new(sealed))?),
        },
        unprotected_attrs: None,
    };
    let (algorithm, sealed) = encrypted(key, password)?;
    let bag =
        EncryptedPrivateKeyInfo { encryption_algorithm: algorithm, encrypted_data: der(OctetString::new(sealed))? };
    let bag =
        SafeBag { bag_id: SHROUDED_KEY_BAG, bag_value: der(bag.to_der())?, bag_attributes: Some(attributes(&id)?) };
    let parts = vec![
        ContentInfo { content_type: ENCRYPTED_DATA, content: der(Any::encode_from(&first))? },
        data(der(vec![bag].to_der())?)?,
    ];
    let safe = der(parts.to_der())?;
    let mac = mac(&safe, password)?;
    der(Pfx { version: Version::V3, auth_safe: data(safe)?, mac_data: Some(mac) }.to_der())
}

fn data(bytes: Vec<u8>) -> Made<ContentInfo> {
    let content = der(OctetString::new(bytes).and_then(|bytes| Any::encode_from(&bytes)))?;
    Ok(ContentInfo { content_type: DATA, content })
}

fn attributes(id: &[u8]) -> Made<Attributes> {
    let value = der(OctetString::new(id).and_then(|id| Any::encode_from(&id)))?;
    let attribute = Attribute { oid: LOCAL_KEY_ID, values: der(SetOfVec::try_from(vec![value]))? };
    der(SetOfVec::try_from(vec![attribute]))
}

/// Encrypts these bytes. Returns how that was done, and the result.
fn encrypted(bytes: &[u8], password: &str) -> Made<(AlgorithmIdentifierOwned, Vec<u8>)> {
    let wrong = |error: pkcs8::pkcs5::Error| format!("this cannot be encrypted: {error}");
    let (salt, iv) = (random::<16>()?, random::<16>()?);
    let scheme = pbes2::Parameters::pbkdf2_sha256_aes256cbc(ROUNDS.into(), &salt, &iv).map_err(wrong)?;
    let sealed = scheme.encrypt(password, bytes).map_err(wrong)?;
    let encoded = der(EncryptionScheme::Pbes2(scheme).to_der())?;
    Ok((der(AlgorithmIdentifierOwned::from_der(&encoded))?, sealed))
}

fn mac(bytes: &[u8], password: &str) -> Made<MacData> {
    let (salt, rounds) = (random::<16>()?, i32::from(ROUNDS));
    let key = derive_key::<Sha256>(&spelled(password), &salt, Pkcs12KeyType::Mac, rounds, 32);
    let hmac = <SimpleHmac<Sha256> as Mac>::new_from_slice(&key).expect("any length is right");
    let digest = hmac.chain_update(bytes).finalize().into_bytes();
    let algorithm = AlgorithmIdentifierOwned { oid: SHA256, parameters: Some(Any::null()) };
    Ok(MacData {
        mac: DigestInfo { algorithm, digest: der(OctetString::new(digest.to_vec()))? },
        mac_salt: der(OctetString::new(salt.to_vec()))?,
        iterations: rounds,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster::tls::pkcs12::{open, Wrong};

    #[test]
    fn what_was_sealed_opens_with_its_password_only() {
        let (certificate, key) = ([0x30, 3, 2, 1, 7], [0x30, 3, 2, 1, 9]);
        for password in ["h\u{fc}nter", "h\u{1f511}nter"] {
            let bytes = seal(&certificate, &key, password).unwrap();
            let opened = open(&bytes, password).unwrap();
            assert_eq!((opened.certificates, opened.keys), (vec![certificate.to_vec()], vec![key.to_vec()]));
            assert!(matches!(open(&bytes, "hunter"), Err(Wrong::Password)));
            assert_ne!(bytes, seal(&certificate, &key, password).unwrap(), "salts are never the same");
        }
    }
}
