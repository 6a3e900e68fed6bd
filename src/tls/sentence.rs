//! What went wrong in a handshake, in words that follow the peer's name and a colon.

use super::parts::NEW_LIST;
use rustls::pki_types::ServerName;
use rustls::{
    AlertDescription, CertRevocationListError, CertificateError, Error, InvalidMessage, OtherError, PeerIncompatible,
};

/// How many names of a certificate a sentence repeats.
const NAMED_MAX: usize = 4;

/// The words for a handshake that the other end ends, or breaks off, without a word.
pub const NO_TLS_THERE: &str =
    "it ended the connection before TLS was agreed on: perhaps TLS (enable_ssl) is off there";

/// The words for two ends that allow different versions of TLS, at either of them.
const NO_VERSION: &str = "it has no version of TLS in common with this process (tls_version)";

/// The reason why a peer's certificate is not accepted.
fn of_certificate(error: &CertificateError) -> String {
    let what = match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "has expired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => "is not valid yet",
        CertificateError::Revoked => "is revoked",
        CertificateError::UnknownIssuer => "is not signed by the CA that is trusted here (ca_cert_path)",
        CertificateError::UnknownRevocationStatus => {
            "is signed by a CA that the revocation list (crl_path) does not cover: expected a list of that CA's in it, too"
        }
        CertificateError::ExpiredRevocationList | CertificateError::ExpiredRevocationListContext { .. } => {
            "cannot be judged, because the revocation list (crl_path) has expired"
        }
        CertificateError::BadSignature => {
            "names the CA that is trusted here (ca_cert_path) as its signer, and is not signed by it"
        }
        CertificateError::NotValidForNameContext { expected, presented } => return of_name(expected, presented),
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "is not meant for this end of a connection (its extended key usage)"
        }
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "is signed with an algorithm that is not accepted: expected SHA-256 or SHA-384 (openssl x509 -req -sha256 ...)"
        }
        CertificateError::BadEncoding => "is not X.509 as expected",
        other => match unnamed(other) {
            Some(what) => what,
            None => return format!("its certificate is not accepted: {other}"),
        },
    };
    format!("its certificate {what}")
}

/// The words for what rustls has no error of its own for.
fn unnamed(error: &CertificateError) -> Option<&'static str> {
    use webpki::Error as Why;
    let CertificateError::Other(OtherError(why)) = error else { return None };
    Some(match why.downcast_ref()? {
        Why::UnsupportedCertVersion => {
            "is of X.509 version 1: expected version 3 (openssl x509 -req -extfile FILE ..., where FILE says \
             \"basicConstraints=CA:FALSE\")"
        }
        Why::CaUsedAsEndEntity => {
            "is a CA's: expected the process's own certificate first, with basicConstraints=CA:FALSE (openssl x509 -req \
             -extfile FILE ..., where FILE says \"basicConstraints=CA:FALSE\")"
        }
        Why::EndEntityUsedAsCa => {
            "is signed with a certificate that is not a CA's: expected basicConstraints=CA:TRUE in that one"
        }
        Why::PathLenConstraintViolated => "is signed through more CAs than one of these allows (its pathlen)",
        Why::NameConstraintViolation => "has a name that its CA is not to sign (the CA's nameConstraints)",
        Why::UnsupportedCriticalExtension => {
            "has a critical extension that is not known here: expected one without it, or with it not critical"
        }
        _ => return None,
    })
}

/// The reason why the revocation list cannot be used, in words that follow its name.
pub fn of_list(error: &CertRevocationListError) -> String {
    use CertRevocationListError as Why;
    let what = match error {
        Why::BadSignature => "is not signed by the CA that it names: expected a list of the CA's (ca_cert_path)",
        Why::UnsupportedSignatureAlgorithmContext { .. }
        | Why::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "is signed with an algorithm that is not accepted: expected SHA-256 or SHA-384"
        }
        Why::IssuerInvalidForCrl => {
            return "is of a CA whose certificate does not allow it to sign lists: expected keyUsage with cRLSign (openssl \
                    req -x509 -addext keyUsage=critical,keyCertSign,cRLSign ...)"
                .to_owned();
        }
        Why::UnsupportedCrlVersion => "is of version 1: expected version 2 (crlnumber in the CA's configuration)",
        Why::ParseError | Why::Other(_) => "is not a revocation list: expected PEM or DER",
        Why::UnsupportedDeltaCrl => "has only what has changed since another list: expected a whole list",
        Why::UnsupportedIndirectCrl => "has certificates of other CAs than its own: expected a list of one CA's",
        Why::UnsupportedCriticalExtension => {
            "has a critical extension that is not known here: expected a list without it"
        }
        other => return format!("cannot be used ({other:?}): expected a revocation list of the CA's ({NEW_LIST})"),
    };
    format!("{what} ({NEW_LIST})")
}

/// The sentence for a certificate that is for another host than was dialled.
fn of_name(expected: &ServerName<'_>, presented: &[String]) -> String {
    let hosts: Vec<&str> = presented.iter().filter_map(|name| host(name)).take(NAMED_MAX).collect();
    let names = match hosts.is_empty() {
        true => "it has no host name and no address".to_owned(),
        false => format!("it is for {}", hosts.join(", ")),
    };
    format!("its certificate is not for the host {:?}, as is demanded here (verify_host): {names}", expected.to_str())
}

/// The DNS name or the address in a name of a certificate, as rustls writes these; none if it is of another kind.
fn host(name: &str) -> Option<&str> {
    let within = |start, end| name.strip_prefix(start)?.strip_suffix(end);
    within("DnsName(\"", "\")").or_else(|| within("IpAddress(", ")"))
}

/// The reason why the peer has ended the handshake.
fn of_alert(alert: AlertDescription) -> String {
    let what = match alert {
        AlertDescription::CertificateExpired => "it says that our certificate has expired, or is not valid yet",
        AlertDescription::CertificateRevoked => "it says that our certificate is revoked",
        AlertDescription::UnknownCA | AlertDescription::DecryptError => {
            "it does not trust the CA that has signed our certificate"
        }
        AlertDescription::CertificateRequired => "it wants a certificate, and was shown none",
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::AccessDenied => "it does not take our certificate",
        AlertDescription::ProtocolVersion => NO_VERSION,
        AlertDescription::HandshakeFailure => {
            "it has no version of TLS, cipher suite or signature in common with this process"
        }
        AlertDescription::BadRecordMac => "it says that a TLS record was damaged on the way",
        other => return format!("it has ended the connection with the TLS alert {other:?}"),
    };
    what.to_owned()
}

/// Whether the peer refuses this process, and has not only found damage.
pub fn is_refusal(error: &Error) -> bool {
    use AlertDescription::{BadRecordMac, DecodeError, RecordOverflow, UnexpectedMessage};
    !matches!(error, Error::AlertReceived(BadRecordMac | DecodeError | RecordOverflow | UnexpectedMessage))
}

/// The words for a record that is not as it was sent.
pub const DAMAGED: &str = "a TLS record was damaged on the way";

/// Whether this error, on a link that both sides have agreed on, is damage. What the other end reports does not count:
/// that end tells the group.
pub fn is_damage(error: &Error) -> bool {
    matches!(
        error,
        Error::DecryptError
            | Error::PeerSentOversizedRecord
            | Error::InvalidMessage(_)
            | Error::InappropriateMessage { .. }
            | Error::InappropriateHandshakeMessage { .. }
            | Error::PeerMisbehaved(_)
    )
}

/// What went wrong, in a sentence.
pub fn sentence(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(why) => of_certificate(why),
        Error::InvalidCertRevocationList(why) => {
            format!("its certificate cannot be judged, because the revocation list (crl_path) {}", of_list(why))
        }
        Error::NoCertificatesPresented => "it shows no certificate".to_owned(),
        Error::AlertReceived(alert) => of_alert(*alert),
        Error::InvalidMessage(InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion) => {
            "it does not speak TLS as expected: TLS (enable_ssl) is on here, and seems to be off there".to_owned()
        }
        Error::PeerIncompatible(
            PeerIncompatible::NoCipherSuitesInCommon | PeerIncompatible::NoSignatureSchemesInCommon,
        ) => "it has no cipher suite or signature in common with this process (cipher_list)".to_owned(),
        Error::PeerIncompatible(
            PeerIncompatible::ServerDoesNotSupportTls12Or13
            | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
            | PeerIncompatible::SupportedVersionsExtensionRequired
            | PeerIncompatible::Tls12NotOffered
            | PeerIncompatible::Tls12NotOfferedOrEnabled,
        ) => NO_VERSION.to_owned(),
        other => format!("TLS with it failed: {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::testing::{sessions, Files};
    use crate::tls::{credentials, names};

    #[test]
    fn a_certificate_for_another_host_is_told_by_its_hosts() {
        let told = |presented: &[&str]| {
            let presented = presented.iter().map(|name| name.to_string()).collect();
            let expected = ServerName::try_from("here.example").unwrap();
            let error = CertificateError::NotValidForNameContext { expected, presented };
            let start = "its certificate is not for the host \"here.example\", as is demanded here (verify_host): ";
            sentence(&error.into()).strip_prefix(start).expect("it names the host").to_owned()
        };
        let mut names = vec!["UniformResourceIdentifier(\"muster:node:0\")"; 5];
        assert_eq!(told(&names), "it has no host name and no address");
        names.extend(["DnsName(\"there.example\")", "IpAddress(127.0.0.1)"]);
        assert_eq!(told(&names), "it is for there.example, 127.0.0.1");
        assert_eq!(told(&["DnsName(\"a\")"; 9]), "it is for a, a, a, a");
    }

    /// The words are those of the library that writes them.
    #[test]
    fn the_hosts_of_a_real_certificate_are_found() {
        let files = Files::new();
        let hosts = ["there.example".to_owned(), "127.0.0.1".to_owned(), "2001:db8::1".to_owned()];
        let named = rcgen::CertificateParams::new(hosts).unwrap().subject_alt_names;
        files.write("server.pem", files.node("server", |params| params.subject_alt_names = named));
        let ends = credentials::read(&files.settings()).unwrap();
        let name = ServerName::try_from("here.example").unwrap();
        let (mut client, mut server) = sessions(ends.client, ends.server, name);
        let mut turn = || {
            let mut bytes = Vec::new();
            client.write_tls(&mut bytes).unwrap();
            server.read_tls(&mut &bytes[..]).unwrap();
            server.process_new_packets().unwrap();
            bytes.clear();
            server.write_tls(&mut bytes).unwrap();
            client.read_tls(&mut &bytes[..]).unwrap();
            client.process_new_packets().err()
        };
        let error = turn().or_else(turn).expect("the server has another name");
        let told = sentence(&error);
        assert!(told.ends_with("it is for there.example, 127.0.0.1, 2001:db8::1"), "{told}");
    }

    #[test]
    fn both_ends_say_the_same_if_they_have_no_version_in_common() {
        let files = Files::new();
        let of = |version| credentials::read(&files.settings_with([("MUSTER_TLS_VERSION", version)])).unwrap();
        for (here, there) in [("1.2", "1.3"), ("1.3", "1.2")] {
            let (mut client, mut server) = sessions(of(here).client, of(there).server, names::nobody());
            for (from, into) in [(0, 1), (1, 0)] {
                let ends = [&mut client, &mut server];
                let mut bytes = Vec::new();
                ends[from].write_tls(&mut bytes).unwrap();
                ends[into].read_tls(&mut &bytes[..]).unwrap();
                let error = ends[into].process_new_packets().expect_err("it does not know the other's version");
                assert_eq!(sentence(&error), NO_VERSION, "{here} and {there}: {error}");
            }
        }
    }
}
