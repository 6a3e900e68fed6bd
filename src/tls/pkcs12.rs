//! A certificate and its key out of a PKCS#12 file (RFC 7292), and a key out of encrypted PKCS#8.
//!
//! Both kinds of files that OpenSSL makes are read: RC2 or triple DES with SHA-1, as version 1.1 makes them, and AES
//! with PBKDF2 (PBES2). Deliberately not here: which certificate belongs to which key. rustls compares them.

use cbc::cipher::{block_padding::Pkcs7, BlockCipher, BlockDecryptMut, InnerIvInit, KeyInit};
use der::asn1::{ContextSpecific, ObjectIdentifier, OctetString};
use der::{Any, Decode, Encode, Tag, Tagged};
use hmac::{Mac, SimpleHmac};
use pkcs12::cert_type::CertBag;
use pkcs12::kdf::{derive_key, Pkcs12KeyType};
use pkcs12::mac_data::MacData;
use pkcs12::pbe_params::{EncryptedPrivateKeyInfo, Pkcs12PbeParams};
use pkcs12::pfx::Pfx;
use pkcs12::safe_bag::{SafeBag, SafeContents};
use pkcs8::pkcs5::{EncryptionScheme, Error as SchemeError};
use pkcs8::spki::AlgorithmIdentifierOwned;
use sha1::Sha1;
use sha2::{Sha256, Sha384, Sha512};
use zeroize::Zeroizing;

/// Content that is not encrypted.
pub const DATA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.7.1");
/// Content that is encrypted.
pub const ENCRYPTED_DATA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.7.6");
const KEY_BAG: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.12.10.1.1");
/// A bag with an encrypted key.
pub const SHROUDED_KEY_BAG: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.12.10.1.2");
/// A bag with a certificate.
pub const CERT_BAG: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.12.10.1.3");
/// An attribute: by it a key finds its certificate.
pub const LOCAL_KEY_ID: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.21");
const PBE_SHA1_3DES: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.12.1.3");
const PBE_SHA1_RC2_128: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.12.1.5");
const PBE_SHA1_RC2_40: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.12.1.6");
const SHA1: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.14.3.2.26");
/// The hash.
pub const SHA256: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.1");
const SHA384: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.2");
const SHA512: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.3");

/// More rounds of a key's derivation would take minutes.
const ROUNDS_MAX: i32 = 10_000_000;

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// It is encrypted with another password, or damaged.
    Password,
    /// It is not what it should be; the words follow the file's name.
    Content(String),
}

impl Wrong {
    /// What is wrong, in words that follow the file's name. `is_given`: this setting has given a password.
    pub fn told(self, is_given: bool, setting: &str) -> String {
        match self {
            Wrong::Content(why) => why,
            Wrong::Password if is_given => {
                format!("does not open with the password of {setting}: it is wrong, or the file is damaged")
            }
            Wrong::Password => format!("is encrypted, and {setting} is not set: expected its password"),
        }
    }
}

/// What a file holds, in DER.
#[derive(Default)]
pub struct Opened {
    /// The certificates; the key's own comes first, if the file tells which that is.
    pub certificates: Vec<Vec<u8>>,
    /// The keys, in PKCS#8.
    pub keys: Vec<Vec<u8>>,
    /// The ids by which keys find their certificates.
    key_ids: Vec<Vec<u8>>,
    certificate_ids: Vec<Option<Vec<u8>>>,
}

fn content(what: &str) -> Wrong {
    Wrong::Content(format!("is no PKCS#12 file as expected: {what}"))
}

fn der<T>(decoded: der::Result<T>) -> Result<T, Wrong> {
    decoded.map_err(|error| content(&error.to_string()))
}

/// Opens a file.
pub fn open(bytes: &[u8], password: &str) -> Result<Opened, Wrong> {
    let file = der(Pfx::from_der(bytes))?;
    if file.auth_safe.content_type != DATA {
        return Err(content("it is signed with a key, and not with a password"));
    }
    let safe = der(file.auth_safe.content.decode_as::<OctetString>())?;
    let Some(mac) = &file.mac_data else { return opened(safe.as_bytes(), password) };
    verify(mac, safe.as_bytes(), password)?;
    opened(safe.as_bytes(), password).map_err(|wrong| match wrong {
        Wrong::Password => {
            content("what is encrypted in it does not open with the password of the whole, or is damaged")
        }
        other => other,
    })
}

/// What the parts of a file hold.
fn opened(parts: &[u8], password: &str) -> Result<Opened, Wrong> {
    let mut opened = Opened::default();
    for part in der(Vec::<cms::content_info::ContentInfo>::from_der(parts))? {
        let plain = match part.content_type {
            DATA => der(part.content.decode_as::<OctetString>())?.as_bytes().to_vec(),
            ENCRYPTED_DATA => decrypted_part(&part.content, password)?,
            other => return Err(content(&format!("a part of it is of an unknown kind ({other})"))),
        };
        for bag in der(SafeContents::from_der(&plain))? {
            opened.take(&bag, password)?;
        }
    }
    opened.put_own_first();
    Ok(opened)
}

/// The key of an encrypted PKCS#8 file.
pub fn open_key(bytes: &[u8], password: &str) -> Result<Vec<u8>, Wrong> {
    let info = EncryptedPrivateKeyInfo::from_der(bytes)
        .map_err(|error| Wrong::Content(format!("has an encrypted key that is not right: {error}")))?;
    decrypt(&info.encryption_algorithm, info.encrypted_data.as_bytes(), password)
}

fn decrypted_part(part: &Any, password: &str) -> Result<Vec<u8>, Wrong> {
    let part = der(part.decode_as::<cms::encrypted_data::EncryptedData>())?;
    let info = part.enc_content_info;
    let sealed = info.encrypted_content.ok_or_else(|| content("an encrypted part of it is empty"))?;
    decrypt(&info.content_enc_alg, sealed.as_bytes(), password)
}

impl Opened {
    fn take(&mut self, bag: &SafeBag, password: &str) -> Result<(), Wrong> {
        let id = local_key_id(bag);
        match bag.bag_id {
            CERT_BAG => {
                let bag = der(ContextSpecific::<CertBag>::from_der(&bag.bag_value))?.value;
                self.certificates.push(bag.cert_value.as_bytes().to_vec());
                self.certificate_ids.push(id);
            }
            KEY_BAG => {
                let key = der(ContextSpecific::<Any>::from_der(&bag.bag_value))?.value;
                self.keys.push(der(key.to_der())?);
                self.key_ids.extend(id);
            }
            SHROUDED_KEY_BAG => {
                let info = der(ContextSpecific::<EncryptedPrivateKeyInfo>::from_der(&bag.bag_value))?.value;
                self.keys.push(decrypt(&info.encryption_algorithm, info.encrypted_data.as_bytes(), password)?);
                self.key_ids.extend(id);
            }
            _ => {} // a revocation list, or what only its maker knows
        }
        Ok(())
    }

    /// OpenSSL writes the key's own certificate first, other makers anywhere.
    fn put_own_first(&mut self) {
        let is_own = |id: &Option<Vec<u8>>| id.as_ref().is_some_and(|id| self.key_ids.contains(id));
        if let Some(at) = self.certificate_ids.iter().position(is_own) {
            self.certificates[..=at].rotate_right(1);
        }
    }
}

fn local_key_id(bag: &SafeBag) -> Option<Vec<u8>> {
    let attribute = bag.bag_attributes.as_ref()?.iter().find(|attribute| attribute.oid == LOCAL_KEY_ID)?;
    attribute.values.get(0)?.to_der().ok()
}

/// Whether the file was made with this password.
fn verify(mac: &MacData, bytes: &[u8], password: &str) -> Result<(), Wrong> {
    macro_rules! is_right {
        ($hash:ty, $length:expr) => {{
            let (salt, rounds) = (mac.mac_salt.as_bytes(), rounds(mac.iterations)?);
            let key = derive_key::<$hash>(&spelled(password), salt, Pkcs12KeyType::Mac, rounds, $length);
            let hmac = <SimpleHmac<$hash> as Mac>::new_from_slice(&key).expect("any length is right");
            hmac.chain_update(bytes).verify_slice(mac.mac.digest.as_bytes()).is_ok()
        }};
    }
    let is_right = match mac.mac.algorithm.oid {
        SHA1 => is_right!(Sha1, 20),
        SHA256 => is_right!(Sha256, 32),
        SHA384 => is_right!(Sha384, 48),
        SHA512 => is_right!(Sha512, 64),
        other => return Err(content(&format!("its password is checked by an unknown method ({other})"))),
    };
    match is_right {
        true => Ok(()),
        false => Err(Wrong::Password),
    }
}

fn rounds(rounds: i32) -> Result<i32, Wrong> {
    match (1..=ROUNDS_MAX).contains(&rounds) {
        true => Ok(rounds),
        false => Err(content(&format!("its password is to be hashed {rounds} times: expected 1 to {ROUNDS_MAX}"))),
    }
}

/// What was sealed: a key or a list, each of which is a sequence.
fn decrypt(algorithm: &AlgorithmIdentifierOwned, sealed: &[u8], password: &str) -> Result<Vec<u8>, Wrong> {
    let plain = decrypt_any(algorithm, sealed, password)?;
    // Of 256 wrong passwords one gives bytes that look as if they had been sealed. They are no sequence.
    match Any::from_der(&plain) {
        Ok(whole) if whole.tag() == Tag::Sequence => Ok(plain),
        _ => Err(Wrong::Password),
    }
}

fn decrypt_any(algorithm: &AlgorithmIdentifierOwned, sealed: &[u8], password: &str) -> Result<Vec<u8>, Wrong> {
    match algorithm.oid {
        PBE_SHA1_3DES => {
            let (key, iv) = derive(algorithm, password, 24)?;
            open_blocks(des::TdesEde3::new_from_slice(&key).ok(), &iv, sealed)
        }
        PBE_SHA1_RC2_128 => {
            let (key, iv) = derive(algorithm, password, 16)?;
            open_blocks(Some(rc2::Rc2::new_with_eff_key_len(&key, 128)), &iv, sealed)
        }
        PBE_SHA1_RC2_40 => {
            let (key, iv) = derive(algorithm, password, 5)?;
            open_blocks(Some(rc2::Rc2::new_with_eff_key_len(&key, 40)), &iv, sealed)
        }
        _ => {
            let encoded = der(algorithm.to_der())?;
            let scheme = EncryptionScheme::from_der(&encoded).map_err(|_| not_taken())?;
            match &scheme {
                EncryptionScheme::Pbes2(scheme) if too_many(scheme) => return rounds(i32::MAX).map(|_| Vec::new()),
                _ => {}
            }
            scheme.decrypt(password, sealed).map_err(|error| match error {
                SchemeError::DecryptFailed | SchemeError::EncryptFailed => Wrong::Password, // pkcs5 mixes these two up
                _ => not_taken(),
            })
        }
    }
}

fn not_taken() -> Wrong {
    let (key, file) =
        ("openssl pkcs8 -topk8 -v2 aes-256-cbc", "openssl pkcs12 -export -keypbe AES-256-CBC -certpbe AES-256-CBC");
    Wrong::Content(format!(
        "is encrypted with a method that is not supported: expected AES ({key} ..., or for PKCS#12: {file} ...)"
    ))
}

fn too_many(scheme: &pkcs8::pkcs5::pbes2::Parameters) -> bool {
    scheme.kdf.pbkdf2().is_some_and(|kdf| kdf.iteration_count > ROUNDS_MAX as u32)
}

/// Key and initial vector of the older methods.
fn derive(algorithm: &AlgorithmIdentifierOwned, password: &str, length: usize) -> Result<(Vec<u8>, Vec<u8>), Wrong> {
    let parameters = algorithm.parameters.as_ref().ok_or_else(|| content("its encryption has no parameters"))?;
    let parameters = der(parameters.decode_as::<Pkcs12PbeParams>())?;
    let (salt, rounds) = (parameters.salt.as_bytes(), rounds(parameters.iterations)?);
    let password = spelled(password);
    let derive = |what, length| derive_key::<Sha1>(&password, salt, what, rounds, length);
    Ok((derive(Pkcs12KeyType::EncryptionKey, length), derive(Pkcs12KeyType::Iv, 8)))
}

/// The password as keys are derived of it (RFC 7292, B.1): in UTF-16, with two zero bytes at its end. As in OpenSSL, any
/// character may be in it: beyond the first 65536 each is a pair.
pub fn spelled(password: &str) -> Zeroizing<Vec<u8>> {
    // No unit has fewer bytes in UTF-8 than one. So the bytes never move, and leave no copy behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(2 * password.len() + 2));
    for unit in password.encode_utf16().chain([0]) {
        bytes.extend(unit.to_be_bytes());
    }
    bytes
}

fn open_blocks<C: BlockCipher + BlockDecryptMut>(
    cipher: Option<C>,
    iv: &[u8],
    sealed: &[u8],
) -> Result<Vec<u8>, Wrong> {
    let cipher = cipher.and_then(|cipher| cbc::Decryptor::inner_iv_slice_init(cipher, iv).ok());
    let cipher = cipher.ok_or_else(|| content("its encryption has a key of another length"))?;
    let mut bytes = sealed.to_vec();
    let length = cipher.decrypt_padded_mut::<Pkcs7>(&mut bytes).map_err(|_| Wrong::Password)?.len();
    bytes.truncate(length);
    Ok(bytes)
}

#[cfg(test)]
#[path = "pkcs12_test.rs"]
mod tests;
