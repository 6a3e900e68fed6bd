//! The names of nodes: a folder's name, and a certificate's. The library decides what the node id in a certificate
//! looks like (`tls::names`).

use super::authority::hex;
use der::asn1::{Ia5String, OctetString};
use muster::config::{is_of_many, Key};
use muster::tls::names::encoded;
use ring::digest::{digest, SHA256};
use rustls::pki_types::DnsName;
use std::net::IpAddr;
use x509_cert::ext::pkix::name::GeneralName;

/// The CA's folder, which no node can have.
pub const CA: &str = "ca";
/// How long a name may be: as long as a common name (RFC 5280).
const NAME_MAX_CHARS: usize = 64;
/// How long a folder's name may be: a file's name has 255 bytes at most, and the record of a certificate is called
/// FOLDER.SERIAL.pem, with 32 digits.
const FOLDER_MAX_BYTES: usize = 255 - 32 - ".".len() - ".pem".len();
/// How much of its beginning a longer name keeps, for people; and how many bytes of its hash tell it from others.
const KEPT_CHARS: usize = 64;
const HASH_BYTES: usize = 16;

/// A node for which something is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its folder's name.
    pub folder: String,
    /// The name in its certificate.
    pub name: String,
    /// The node id in its certificate.
    pub id: Option<String>,
}

impl Default for Target {
    /// Stands for all nodes, if none is named.
    fn default() -> Target {
        Target { folder: "node".to_owned(), name: "node".to_owned(), id: None }
    }
}

impl Target {
    /// The node of this name.
    pub fn named(name: &str) -> Result<Target, String> {
        let is_right = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
        let begins = name.starts_with(|letter: char| letter.is_ascii_alphanumeric() || letter == '_');
        if !begins || name.chars().count() > NAME_MAX_CHARS || !name.chars().all(is_right) || name == CA {
            return Err(format!(
                "--name is {name:?}; it must be a folder's name: letters, digits, `.`, `_` and `-`, {NAME_MAX_CHARS} at \
                 most, beginning with a letter, a digit or `_`, and not {CA:?}"
            ));
        }
        Ok(Target { folder: name.to_owned(), name: name.to_owned(), id: None })
    }

    /// The node with this node id.
    pub fn of_id(id: &str) -> Result<Target, String> {
        let kind = Key::NodeId.setting().kind;
        if id.is_empty() || kind.parse(id).is_none() {
            return Err(format!("--node_id is {id:?}: expected {}", kind.expectation()));
        }
        let mut folder = encoded(id);
        if folder == CA || folder.starts_with(['.', '-']) {
            folder = format!("%{:02X}{}", folder.as_bytes()[0], &folder[1..]);
        }
        let cut = id.char_indices().nth(NAME_MAX_CHARS).map_or(id, |(at, _)| &id[..at]);
        Ok(Target { folder: fitting(folder), name: cut.to_owned(), id: Some(id.to_owned()) })
    }
}

/// The name, or a shorter one in place of one that is too long. No other id leads to a `+`, which would be encoded.
fn fitting(folder: String) -> String {
    if folder.len() <= FOLDER_MAX_BYTES {
        return folder;
    }
    let hash = digest(&SHA256, folder.as_bytes());
    format!("{}+{}", &folder[..KEPT_CHARS], hex(&hash.as_ref()[..HASH_BYTES]))
}

/// The name that a certificate has for this host: an address, or a DNS name, whose first part may be `*`.
pub fn host(text: &str) -> Result<GeneralName, String> {
    let address = text.parse::<IpAddr>().ok();
    let is_of_one = |address: &IpAddr| !address.to_canonical().is_unspecified() && !is_of_many(*address);
    let name = match address.filter(is_of_one) {
        Some(IpAddr::V4(address)) => OctetString::new(address.octets()).ok().map(GeneralName::IpAddress),
        Some(IpAddr::V6(address)) => OctetString::new(address.octets()).ok().map(GeneralName::IpAddress),
        None if address.is_some() => None,
        None => DnsName::try_from(text.strip_prefix("*.").unwrap_or(text))
            .ok()
            .and_then(|_| Ia5String::new(text).ok())
            .map(GeneralName::DnsName),
    };
    name.ok_or_else(|| format!("--host is {text:?}; it must be a host name, or an address that others can connect to"))
}

/// A host among a certificate's names, as people write it.
pub fn shown_host(name: &GeneralName) -> Option<String> {
    match name {
        GeneralName::DnsName(name) => Some(name.as_str().to_owned()),
        GeneralName::IpAddress(bytes) => {
            let bytes = bytes.as_bytes();
            let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
            four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok().map(|address| address.to_string())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_lies_where_it_should_whatever_the_id() {
        for (id, folder) in
            [("rank 3", "rank%203"), ("..", "%2E."), ("ca", "%63a"), ("a/../b", "a%2F..%2Fb"), ("-r", "%2Dr")]
        {
            assert_eq!(Target::of_id(id).unwrap().folder, folder);
        }
        assert_eq!(Target::of_id(&"ü".repeat(100)).unwrap().name.chars().count(), NAME_MAX_CHARS);
    }

    #[test]
    fn a_long_id_has_a_folder_of_its_own_whose_name_fits() {
        let folder = |id: &str| Target::of_id(id).unwrap().folder;
        assert_eq!(folder(&"a".repeat(218)), "a".repeat(218), "it was never too long");
        let long = folder(&"a".repeat(219));
        assert_eq!(
            long,
            format!("{}+46fb83c58e7b16a8419903e9682211ce", "a".repeat(64)),
            "it is the same in each version"
        );
        let others = [&"a".repeat(220), &long, &"é".repeat(127), &"\u{e9}a".repeat(85)].map(|id| folder(id));
        for (nth, other) in others.iter().enumerate() {
            assert!(other.len() <= FOLDER_MAX_BYTES && *other != long && !others[..nth].contains(other), "{other}");
        }
    }

    #[test]
    fn names_that_are_no_folders_are_refused() {
        assert!(Target::named("host-7.rack_2").is_ok());
        for name in ["", ".", "..", "ca", "a/b", "-rf", "a b", "n\u{fc}", &"a".repeat(65)] {
            let why = Target::named(name).unwrap_err();
            assert!(why.starts_with(&format!("--name is {name:?}; it must be a folder's name")), "{why}");
        }
        for id in ["", &"a".repeat(256)] {
            assert!(Target::of_id(id).unwrap_err().starts_with("--node_id is "), "{id}");
        }
    }
}
