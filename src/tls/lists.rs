//! Which of the revocation lists in a file count: the newest of each CA.
//!
//! rustls asks the first list of a certificate's CA, and no other. Invariants: an older list never stands before a newer
//! one, in whatever order the file has them. Every list that counts is in effect. A list that is not in effect is an
//! error, unless its CA is left out: then the list is left out, too. At least one list remains: without a list nothing
//! would be revoked.

use super::parts::{moment, not_in_effect, NEW_LIST};
use der::asn1::ObjectIdentifier;
use der::Decode;
use rustls::pki_types::CertificateRevocationListDer;
use std::cmp::Reverse;
use x509_cert::crl::{CertificateList, TbsCertList};
use x509_cert::ext::pkix::CrlNumber;
use x509_cert::name::Name;

// Extensions of a list: its number, the part of the certificates that it is for, and its CA's key.
const NUMBER: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.20");
const PART: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.28");
const KEY: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.35");

/// A list, in DER.
type Der = CertificateRevocationListDer<'static>;

/// The lists that count.
pub struct Lists {
    pub counting: Vec<Der>,
    /// What was left out, in words that follow the file's name.
    pub left_out: Vec<String>,
}

/// The number of a list: how many bytes it has, and these, without leading zeros.
type Number = (usize, Vec<u8>);

/// What each list of a line of lists has in common: the CA's name, its key, and the part of its certificates that
/// the list is for, if it is not for all of them.
type Line = (Name, [Option<Vec<u8>>; 2]);

struct List {
    der: Der,
    line: Line,
    number: Option<Number>,
    from: u64,
    until: Option<u64>,
}

/// The lists that count now. These CAs are left out. An error's words follow the file's name.
pub fn counting(found: Vec<Der>, gone: &[Name], now: u64) -> Result<Lists, String> {
    let (is_one, mut lists) = (found.len() == 1, Vec::new());
    for der in found {
        match List::read(&der) {
            Some(list) => lists.push(list),
            // rustls says what is wrong with it.
            None if is_one => return Ok(Lists { counting: vec![der], left_out: Vec::new() }),
            None => {
                return Err(format!(
                    "has, among others, a revocation list that cannot be read: expected lists of version 2 ({NEW_LIST})"
                ));
            }
        }
    }
    let (out, mut kept): (Vec<List>, Vec<List>) = newest_of_each(lists)
        .into_iter()
        .partition(|list| gone.contains(&list.line.0) && not_in_effect(&list.der, now).is_some());
    let needed = if kept.is_empty() { &out } else { &kept };
    if let Some(why) = needed.iter().find_map(|list| not_in_effect(&list.der, now)) {
        return Err(why);
    }
    kept.sort_by_key(|list| Reverse(list.from)); // rustls knows a CA by its name alone, and parts may overlap
    let left_out = out.iter().map(|list| {
        let when = match list.until.filter(|until| now >= *until) {
            Some(until) => format!("has ended on {}", moment(until)),
            None => format!("begins on {}", moment(list.from)),
        };
        format!("has a revocation list that {when}, of a CA that is left out")
    });
    Ok(Lists { left_out: left_out.collect(), counting: kept.into_iter().map(|list| list.der).collect() })
}

/// The newest list of each line.
fn newest_of_each(mut lists: Vec<List>) -> Vec<List> {
    let mut newest = Vec::new();
    while let Some(line) = lists.first().map(|list| list.line.clone()) {
        let (same, others): (Vec<List>, Vec<List>) = lists.into_iter().partition(|list| list.line == line);
        // The number decides if all of them have one.
        let is_numbered = same.iter().all(|list| list.number.is_some());
        let age = |list: &List| (list.number.clone().filter(|_| is_numbered), list.from);
        newest.extend(same.into_iter().max_by_key(age));
        lists = others;
    }
    newest
}

impl List {
    fn read(der: &Der) -> Option<List> {
        let list = CertificateList::from_der(der).ok()?.tbs_cert_list;
        Some(List {
            der: der.clone(),
            line: (list.issuer.clone(), [KEY, PART].map(|id| extension(&list, id).map(<[u8]>::to_vec))),
            number: extension(&list, NUMBER).and_then(number),
            from: list.this_update.to_unix_duration().as_secs(),
            until: list.next_update.map(|until| until.to_unix_duration().as_secs()),
        })
    }
}

/// What this extension of a list holds, if it has it.
fn extension(list: &TbsCertList, id: ObjectIdentifier) -> Option<&[u8]> {
    let mut extensions = list.crl_extensions.iter().flatten();
    extensions.find(|extension| extension.extn_id == id).map(|extension| extension.extn_value.as_bytes())
}

fn number(value: &[u8]) -> Option<Number> {
    let CrlNumber(number) = CrlNumber::from_der(value).ok()?;
    Some((number.as_bytes().len(), number.as_bytes().to_vec()))
}

#[cfg(test)]
#[path = "lists_test.rs"]
mod tests;
