//! `muster certs show`: what a file holds, in lines.

use super::contents::{self, belongs, Contents, Key};
use super::folder;
use super::moment::{self, with_distance};
use super::names::shown_host;
use super::passwords::Given;
use crate::status::text::plain;
use muster::config::TlsFile;
use muster::tls::names;
use muster::tls::parts::{is_a_ca, kind_of_key};
use std::fmt::Write;
use std::path::Path;
use x509_cert::certificate::{Certificate, Version};
use x509_cert::crl::CertificateList;
use x509_cert::ext::pkix::name::GeneralName;
use zeroize::Zeroizing;

/// How many entries of a revocation list are shown.
const ENTRIES_SHOWN: usize = 100;

/// What is in this file.
pub fn file(path: &Path, passwords: &[Given]) -> Result<String, String> {
    let bytes = Zeroizing::new(folder::read(path)?);
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    let shown = match first {
        Some(b'{') => return configuration(path, &bytes, passwords),
        _ => one(&bytes, passwords).map_err(|why| format!("{path:?} {why}"))?,
    };
    Ok(format!("{}\n{shown}", plain(&path.display().to_string())))
}

fn one(bytes: &[u8], passwords: &[Given]) -> Result<String, String> {
    Ok(shown(&contents::of(bytes, passwords)?, moment::now()))
}

/// A configuration file, and each file that it names. What is wrong with one of them is said in its place.
fn configuration(path: &Path, bytes: &[u8], passwords: &[Given]) -> Result<String, String> {
    let folder = path.parent().unwrap_or_else(|| Path::new(""));
    let file = TlsFile::parse(bytes, folder).map_err(|why| format!("{path:?} {why}"))?;
    let mut text = format!("{}\n  a TLS configuration\n", plain(&path.display().to_string()));
    let mut named = vec![&file.server_cert, &file.client_cert, &file.ca_cert];
    named.extend(&file.crl);
    let mut seen: Vec<&Path> = Vec::new();
    for path in named.iter().map(|file| file.path.as_path()) {
        if seen.contains(&path) {
            continue;
        }
        seen.push(path);
        let keys: Vec<&str> = named.iter().filter(|file| file.path == path).map(|file| file.key).collect();
        let shown = folder::read(path)
            .map(Zeroizing::new)
            .and_then(|bytes| one(&bytes, passwords).map_err(|why| format!("{path:?} {why}")));
        let shown = shown.unwrap_or_else(|why| format!("  {}\n", plain(&why)));
        let _ = write!(text, "{}: {}\n{shown}", keys.join(" and "), plain(&path.display().to_string()));
    }
    Ok(text)
}

fn shown(contents: &Contents, now: u64) -> String {
    let mut text = String::new();
    for certificate in &contents.certificates {
        of_certificate(&mut text, certificate, now);
    }
    for key in &contents.keys {
        let words = match (key, contents.certificates.first()) {
            (Key::Sealed, _) => "encrypted",
            (Key::Open(_), None) => "not encrypted here",
            (Key::Open(key), Some(first)) => match belongs(key, first) {
                Some(true) => "belongs to the first certificate",
                Some(false) => "does not belong to the first certificate",
                None => "of a kind that TLS does not take here",
            },
        };
        let _ = writeln!(text, "  private key: {words}");
    }
    for list in &contents.lists {
        of_list(&mut text, list, now);
    }
    text
}

fn of_certificate(text: &mut String, certificate: &Certificate, now: u64) {
    let own = &certificate.tbs_certificate;
    let what = if is_a_ca(certificate) == Some(true) { "CA certificate" } else { "certificate" };
    let _ = writeln!(text, "  {what}: {}", plain(&own.subject.to_string()));
    let mut line = |called: &str, words: &str| {
        let _ = writeln!(text, "    {called:<10} {}", plain(words));
    };
    match own.subject == own.issuer {
        true => line("signed by", "itself"),
        false => line("signed by", &own.issuer.to_string()),
    }
    let (from, until) = (moment::seconds(&own.validity.not_before), moment::seconds(&own.validity.not_after));
    line("from", &with_distance(from, now, "begins", "began"));
    line("until", &with_distance(until, now, "ends", "ended"));
    line("serial", &super::authority::hex(own.serial_number.as_bytes()));
    line("key", &kind_of_key(&own.subject_public_key_info));
    if own.version != Version::V3 {
        line("version", "older than 3: TLS takes it here as a CA's only");
    }
    for name in contents::alternative_names(certificate) {
        match name {
            GeneralName::UniformResourceIdentifier(uri) => match names::id_of(uri.as_str()) {
                Some(id) => line("node id", &id),
                None => line("URI", uri.as_str()),
            },
            other => match shown_host(&other) {
                Some(host) => line("host", &host),
                None => line("name", "of another kind"),
            },
        }
    }
}

fn of_list(text: &mut String, list: &CertificateList, now: u64) {
    let own = &list.tbs_cert_list;
    let revoked = own.revoked_certificates.as_deref().unwrap_or_default();
    let _ = writeln!(text, "  revocation list: of {} certificates", revoked.len());
    let mut line = |called: &str, words: &str| {
        let _ = writeln!(text, "    {called:<10} {}", plain(words));
    };
    line("signed by", &own.issuer.to_string());
    line("from", &with_distance(moment::seconds(&own.this_update), now, "begins", "made"));
    match &own.next_update {
        Some(until) => line("until", &with_distance(moment::seconds(until), now, "ends", "ended")),
        None => line("until", "it does not say"),
    }
    for entry in revoked.iter().take(ENTRIES_SHOWN) {
        let when = moment::moment(moment::seconds(&entry.revocation_date));
        line("revoked", &format!("{} on {when}", super::authority::hex(entry.serial_number.as_bytes())));
    }
    if revoked.len() > ENTRIES_SHOWN {
        line("revoked", &format!("{} more", revoked.len() - ENTRIES_SHOWN));
    }
}
