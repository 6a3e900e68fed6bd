//! Names in certificates: a node's id, as a URI, and the host of a scheduler.
//!
//! Deliberately absent: the rule which process must have which name (`config::NameChecks` says it; the scheduler's
//! port, the mesh and `trust` ask).

use crate::config::TlsSettings;
use crate::error::{Error, Result};
use rustls::pki_types::{CertificateDer, DnsName, ServerName};
use std::net::IpAddr;
use webpki::EndEntityCert;

/// What a node id in a certificate begins with (a subject alternative name, URI).
const URI: &str = "muster:node:";
/// How many node ids of one certificate a sentence names.
const NAMED_MAX: usize = 4;

/// The URI of this node id. Every character but letters, digits, `-`, `.`, `_` and `~` is percent-encoded (RFC 3986).
pub fn uri(id: &str) -> String {
    format!("{URI}{}", encoded(id))
}

/// The text, percent-encoded.
pub fn encoded(id: &str) -> String {
    let mut text = String::with_capacity(id.len());
    for byte in id.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => text.push(byte as char),
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// The node id in this URI, if there is one.
pub fn id_of(uri: &str) -> Option<String> {
    let mut bytes = uri.strip_prefix(URI)?.bytes();
    let mut id = Vec::new();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let mut digit = || (bytes.next()? as char).to_digit(16);
                id.push((digit()? << 4 | digit()?) as u8);
            }
            byte => id.push(byte),
        }
    }
    String::from_utf8(id).ok().filter(|id| !id.is_empty())
}

/// The URIs among a certificate's subject alternative names.
pub fn uris(certificate: &CertificateDer<'_>) -> Vec<String> {
    let parsed = EndEntityCert::try_from(certificate).ok();
    parsed.map(|parsed| parsed.valid_uri_names().map(str::to_owned).collect()).unwrap_or_default()
}

/// Checks whether one of these URIs is that of the node id. If not, says in words what the certificate has in its
/// place.
pub fn check(uris: &[String], node_id: &str) -> std::result::Result<(), String> {
    let ids: Vec<String> = uris.iter().filter_map(|uri| id_of(uri)).collect();
    if ids.iter().any(|id| id == node_id) {
        return Ok(());
    }
    Err(match ids.is_empty() {
        true => "no node id".to_owned(),
        false => format!(
            "the node id {}",
            ids.iter().take(NAMED_MAX).map(|id| format!("{id:?}")).collect::<Vec<_>>().join(", ")
        ),
    })
}

/// The name that a scheduler at this host must have, if that is demanded.
pub fn of_host(settings: &TlsSettings, host: &str) -> Result<Option<ServerName<'static>>> {
    let Some(setting) = &settings.names.host else { return Ok(None) };
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    let bare = bare.split_once('%').map_or(bare, |(address, _)| address); // the scope is this host's own name for a link
    let name = ServerName::try_from(bare.to_owned()).ok().filter(|name| match name {
        ServerName::IpAddress(address) => !IpAddr::from(*address).is_unspecified(),
        name => *name != nobody(),
    });
    name.map(Some).ok_or_else(|| {
        let what = "a host name or an address that a certificate can have";
        Error::config(format!("{setting} is on, but the scheduler's host is {host:?}: expected {what}"))
    })
}

/// The name that stands for a peer from which no name is demanded.
pub fn nobody() -> ServerName<'static> {
    const NOBODY: &str = "no-name-is-demanded.invalid";
    ServerName::DnsName(DnsName::try_from(NOBODY).expect("it is written as a name is"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_id_is_found_again_in_its_uri() {
        for (id, expected) in
            [("7", "muster:node:7"), ("a b/c", "muster:node:a%20b%2Fc"), ("ü%", "muster:node:%C3%BC%25")]
        {
            assert_eq!(uri(id), expected);
            assert_eq!(id_of(expected).as_deref(), Some(id));
        }
        for none in ["muster:node:", "muster:node:%4", "muster:node:%zz", "muster:node:%FF", "spiffe://a/b", ""] {
            assert_eq!(id_of(none), None, "{none}");
        }
    }

    #[test]
    fn a_host_that_no_certificate_can_have_is_refused_where_its_name_counts() {
        let files = crate::tls::testing::Files::new();
        let strict = files.settings_with([("MUSTER_VERIFY_HOST", "1")]);
        for host in ["0.0.0.0", "::", "a b", ""] {
            let error = of_host(&strict, host).unwrap_err();
            let start = format!("MUSTER_VERIFY_HOST is on, but the scheduler's host is {host:?}: expected ");
            assert!(error.message().starts_with(&start), "{error}");
            assert_eq!(of_host(&files.settings(), host).unwrap(), None);
        }
        assert!(of_host(&strict, "fe80::1%eth0").unwrap().is_some());
    }

    #[test]
    fn what_a_certificate_has_in_place_of_a_node_id_is_said() {
        let uris = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        assert_eq!(check(&uris(&["spiffe://a/b", "muster:node:a", "muster:node:b%20c"]), "b c"), Ok(()));
        assert_eq!(check(&uris(&["muster:node:a"]), "muster:node:a"), Err("the node id \"a\"".to_owned()));
        assert_eq!(check(&uris(&["muster:node:a", "muster:node:b"]), "c"), Err("the node id \"a\", \"b\"".to_owned()));
        assert_eq!(check(&uris(&["spiffe://a/b"]), "b"), Err("no node id".to_owned()));
    }
}
