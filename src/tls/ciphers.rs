//! Cipher suites by the names that OpenSSL gives them, as a `cipher_list` has them.
//!
//! As in OpenSSL, names may be separated by commas and blanks, too. As in OpenSSL, a list that names only suites of TLS
//! 1.2 leaves the suites of TLS 1.3 alone. A list that names suites of 1.3 allows only those of them.

use rustls::crypto::ring::cipher_suite as suites;
use rustls::sign::SigningKey;
use rustls::{SupportedCipherSuite, SupportedProtocolVersion};

const KNOWN: [(&str, SupportedCipherSuite); 9] = [
    ("TLS_AES_256_GCM_SHA384", suites::TLS13_AES_256_GCM_SHA384),
    ("TLS_AES_128_GCM_SHA256", suites::TLS13_AES_128_GCM_SHA256),
    ("TLS_CHACHA20_POLY1305_SHA256", suites::TLS13_CHACHA20_POLY1305_SHA256),
    ("ECDHE-ECDSA-AES256-GCM-SHA384", suites::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-ECDSA-AES128-GCM-SHA256", suites::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
    ("ECDHE-ECDSA-CHACHA20-POLY1305", suites::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
    ("ECDHE-RSA-AES256-GCM-SHA384", suites::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-RSA-AES128-GCM-SHA256", suites::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
    ("ECDHE-RSA-CHACHA20-POLY1305", suites::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
];

/// What a list stands for.
pub struct Chosen {
    /// The suites, in the list's order; those of TLS 1.3 come first.
    pub suites: Vec<SupportedCipherSuite>,
    /// The names that stand for no suite.
    pub unknown: Vec<String>,
}

/// All names that are known.
pub fn names() -> [&'static str; 9] {
    KNOWN.map(|(name, _)| name)
}

/// Whether a link can last with this suite: its keys can be changed, or one key may seal as much as anybody can send. TLS
/// 1.2 changes no keys, and a key of AES-GCM seals only 2^24 records.
pub fn lasts(suite: &SupportedCipherSuite) -> bool {
    match suite {
        SupportedCipherSuite::Tls12(suite) => suite.common.confidentiality_limit == u64::MAX,
        SupportedCipherSuite::Tls13(_) => true,
    }
}

/// Whether a server with this key can use this suite. Suites of TLS 1.3 name no kind of key.
pub fn serves(suite: &SupportedCipherSuite, key: &dyn SigningKey) -> bool {
    match suite {
        SupportedCipherSuite::Tls12(suite) => key.choose_scheme(suite.sign).is_some(),
        SupportedCipherSuite::Tls13(_) => true,
    }
}

/// The names of the lasting suites of these versions that are right.
pub fn lasting(
    versions: &[&'static SupportedProtocolVersion],
    is_right: impl Fn(&SupportedCipherSuite) -> bool,
) -> Vec<&'static str> {
    let known =
        KNOWN.iter().filter(|(_, suite)| versions.contains(&suite.version()) && lasts(suite) && is_right(suite));
    known.map(|(name, _)| *name).collect()
}

/// All suites, in the order that the makers of rustls prefer.
pub fn all() -> Vec<SupportedCipherSuite> {
    rustls::crypto::ring::ALL_CIPHER_SUITES.to_vec()
}

/// The suites that this list allows; none if not one of its names can be used.
pub fn choose(list: &str) -> Option<Chosen> {
    let (mut named, mut unknown) = (Vec::new(), Vec::new());
    for name in words(list) {
        match of_name(name) {
            Some(suite) => named.push(suite),
            None => unknown.push(name.to_owned()),
        }
    }
    if named.is_empty() {
        return None;
    }
    let is_newest = |suite: &SupportedCipherSuite| is_of(*suite, &rustls::version::TLS13);
    if !named.iter().any(is_newest) {
        named.extend(all().into_iter().filter(is_newest));
    }
    named.sort_by_key(|suite| !is_newest(suite));
    Some(Chosen { suites: named, unknown })
}

fn of_name(name: &str) -> Option<SupportedCipherSuite> {
    KNOWN.iter().find(|(known, _)| *known == name).map(|(_, suite)| *suite)
}

/// The names of a list. A blank separates two names if one of the words beside it is known. Otherwise it is a slip
/// within a name, which is reported as it was written.
fn words(list: &str) -> impl Iterator<Item = &str> {
    let parts = list.split([':', ',', ';']).map(str::trim).filter(|part| !part.is_empty());
    parts.flat_map(|part| {
        let several: Vec<&str> = part.split_whitespace().collect();
        if several.iter().any(|name| of_name(name).is_some()) {
            several
        } else {
            vec![part]
        }
    })
}

fn is_of(suite: SupportedCipherSuite, version: &SupportedProtocolVersion) -> bool {
    suite.version() == version
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &str) -> (Vec<String>, Vec<String>) {
        let chosen = choose(list).expect("something of it can be used");
        let name = |suite: &SupportedCipherSuite| {
            KNOWN.iter().find(|(_, known)| known == suite).expect("all are known").0.to_owned()
        };
        (chosen.suites.iter().map(name).collect(), chosen.unknown)
    }

    #[test]
    fn names_of_the_older_version_leave_the_newer_one_alone() {
        let (suites, unknown) = names("ECDHE-RSA-AES128-GCM-SHA256:DHE-RSA-AES128-GCM-SHA256");
        let newest = ["TLS_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256"];
        assert_eq!(suites[..3], newest);
        assert_eq!(suites[3..], ["ECDHE-RSA-AES128-GCM-SHA256"]);
        assert_eq!(unknown, ["DHE-RSA-AES128-GCM-SHA256"]);
    }

    #[test]
    fn a_list_that_names_suites_of_the_newer_version_allows_no_other() {
        let (suites, unknown) = names("TLS_AES_128_GCM_SHA256");
        assert_eq!((suites, unknown), (vec!["TLS_AES_128_GCM_SHA256".to_owned()], Vec::new()));
    }

    #[test]
    fn names_may_stand_between_what_openssl_takes_as_separators() {
        let wanted = ["ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256"];
        for separator in [":", ",", ";", " ", ", ", "\t", " : "] {
            let (suites, unknown) = names(&format!("{}{separator}RC4-SHA{separator}{}", wanted[0], wanted[1]));
            assert_eq!(
                (&suites[3..], unknown),
                (&wanted.map(str::to_owned)[..], vec!["RC4-SHA".to_owned()]),
                "{separator:?}"
            );
        }
    }

    #[test]
    fn a_slip_within_a_name_is_told_as_it_was_written() {
        let (suites, unknown) = names("ECDHE-R SA-AES128-GCM-SHA256:ECDHE-RSA-AES256-GCM-SHA384");
        assert_eq!(suites[3..], ["ECDHE-RSA-AES256-GCM-SHA384"]);
        assert_eq!(unknown, ["ECDHE-R SA-AES128-GCM-SHA256"]);
    }

    #[test]
    fn a_list_without_a_usable_name_is_none() {
        assert!(choose("").is_none() && choose("RC4-SHA:aNULL").is_none());
    }

    #[test]
    fn each_suite_that_there_is_has_a_name() {
        assert!(all().iter().all(|suite| KNOWN.iter().any(|(_, known)| known == suite)));
    }
}
