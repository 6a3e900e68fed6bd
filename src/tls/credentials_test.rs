//! What is wrong with a file is said before the first connection.

use crate::tls::credentials;
use crate::tls::testing::{ca, ca_with, list, revoked, Files};
use rcgen::{BasicConstraints, CertificateParams, CustomExtension, IsCa, Issuer, KeyPair, SerialNumber};
use std::time::{Duration, SystemTime};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn wrong(files: &Files) -> String {
    files.read().expect_err("it is refused")
}

#[test]
fn what_is_right_needs_no_word() {
    assert_eq!(Files::new().read(), Ok(Vec::new()));
}

#[test]
fn files_that_are_not_what_they_should_be() {
    let files = Files::new();
    std::fs::remove_file(files.folder.join("ca.pem")).unwrap();
    assert_eq!(
        wrong(&files),
        "has ca_cert_path \"ca.pem\", which can't be read: No such file or directory (os error 2)"
    );
    files.write("ca.pem", "no certificate");
    assert_eq!(wrong(&files), "has ca_cert_path \"ca.pem\", which has no certificate in PEM in it");
    let files = Files::new();
    files.write("server.pem", files.ca.pem());
    let wrong_place = "has a CA's certificate, and no key: expected the process's own certificate with its key (a CA's belongs into ca_cert_path)";
    assert_eq!(wrong(&files), format!("has server_cert_path \"server.pem\", which {wrong_place}"));
    let own = files.node("server", |_| ());
    files.write("server.pem", &own[..own.find("-----BEGIN PRIVATE KEY").expect("it has a key")]);
    let without_key = "has a certificate, but no key: expected both in one file";
    assert_eq!(wrong(&files), format!("has server_cert_path \"server.pem\", which {without_key}"));
    files.write("server.pem", &own);
    files.write("tls.json", "{");
    assert!(wrong(&files).starts_with("is not JSON as expected"), "{}", wrong(&files));
}

/// The owner of a node's key could sign for any node id.
#[test]
fn a_certificate_that_is_no_ca_s_signs_for_nobody() {
    let files = Files::new();
    let (params, key) = (CertificateParams::new(Vec::new()).unwrap(), KeyPair::generate().unwrap());
    let (own, itself) = (params.signed_by(&key, &files.ca).unwrap(), params.self_signed(&key).unwrap());
    let node = Issuer::new(params, key);
    let (forged, its_key) = (CertificateParams::new(Vec::new()).unwrap(), KeyPair::generate().unwrap());
    let forged = forged.signed_by(&its_key, &node).unwrap().pem() + &its_key.serialize_pem();
    for no_ca in [own.pem(), itself.pem()] {
        files.write("ca.pem", &no_ca);
        let what =
            "has a certificate of \"CN=rcgen self signed cert\" that is not a CA's (it lacks basicConstraints=CA:TRUE)";
        let end = "expected a CA's certificate that is valid now";
        assert_eq!(wrong(&files), format!("has ca_cert_path \"ca.pem\", which {what}: {end}"));
        files.write("ca.pem", no_ca + &files.ca.pem());
        assert_eq!(files.read().unwrap(), [format!("ca_cert_path (\"ca.pem\") {what}: it is left out")]);
        files.write("client.pem", &forged);
        let end = "its certificate is not signed by the CA that is trusted here (ca_cert_path)";
        assert!(wrong(&files).ends_with(end), "{}", wrong(&files));
        files.write("client.pem", files.node("client", |_| ()));
    }
}

#[test]
fn a_file_that_is_neither_pem_nor_pkcs12_is_called_what_it_is() {
    let files = Files::new();
    let certificate: &[u8] = files.ca.der();
    let kinds: [(&[u8], &str); 4] = [
        (b" \n", "is empty"),
        (b"Certificate:\n    Data:\n", "is neither PEM nor PKCS#12"),
        (b"\0", "is neither PEM nor PKCS#12"),
        (certificate, "is a certificate in DER, without a key"),
    ];
    for (bytes, what) in kinds {
        files.write("server.pem", bytes);
        let right = "expected a certificate and its key, in PEM or PKCS#12";
        assert_eq!(wrong(&files), format!("has server_cert_path \"server.pem\", which {what}: {right}"));
    }
    files.write("server.pem", &certificate[..certificate.len() - 1]);
    assert!(wrong(&files).contains("which is no PKCS#12 file as expected: "), "{}", wrong(&files));
}

#[test]
fn a_key_of_another_certificate_is_found() {
    let files = Files::new();
    let other = files.node("other", |_| ());
    let key = &other[other.find("-----BEGIN PRIVATE KEY").expect("it has a key")..];
    let own = files.node("client", |_| ());
    let certificate = &own[..own.find("-----BEGIN PRIVATE KEY").expect("it has a key")];
    files.write("client.pem", format!("{certificate}{key}"));
    let wrong = wrong(&files);
    let start = "has client_cert_path \"client.pem\", which has a key that does not belong to its first certificate";
    assert!(wrong.starts_with(start), "{wrong}");
}

/// One file serves both ends, and its key is told by what was wrong with it.
#[test]
fn a_file_of_both_ends_is_called_by_the_key_under_which_it_is_read() {
    let files = Files::new();
    let key = std::process::Command::new("openssl")
        .args(["pkcs8", "-topk8", "-in", "server.pem", "-passout", "pass:hunter2", "-out", "sealed.key"])
        .current_dir(&*files.folder)
        .status();
    assert!(key.expect("the tests need the command openssl").success());
    let whole = std::fs::read_to_string(files.folder.join("server.pem")).unwrap();
    let certificate = &whole[..whole.find("-----BEGIN PRIVATE KEY").expect("it has a key")];
    let sealed = std::fs::read_to_string(files.folder.join("sealed.key")).unwrap();
    files.write("both.pem", format!("{certificate}{sealed}"));
    files.write(
        "tls.json",
        r#"{"server_cert_path": "both.pem", "client_cert_path": "both.pem", "ca_cert_path": "ca.pem"}"#,
    );
    let wrong = |passwords: [(&str, &str); 2]| {
        let error = credentials::read(&files.settings_with(passwords)).err().expect("it is refused");
        error.message().to_owned()
    };
    let (server, client) = ("MUSTER_SERVER_PASSWORD", "MUSTER_CLIENT_PASSWORD");
    let of_client = wrong([(server, "hunter2"), (client, "hunter3")]);
    assert!(of_client.contains("has client_cert_path \"") && of_client.contains("password of MUSTER_CLIENT_PASSWORD"));
    let of_server = wrong([(server, "hunter3"), (client, "hunter2")]);
    assert!(of_server.contains("has server_cert_path \"") && of_server.contains("password of MUSTER_SERVER_PASSWORD"));
}

#[test]
fn certificates_that_others_would_not_take() {
    let files = Files::new();
    let refused = |files: &Files, certificate: String| {
        files.write("client.pem", certificate);
        wrong(files)
            .strip_prefix("has client_cert_path \"client.pem\", which others will not take: ")
            .unwrap()
            .to_owned()
    };
    let now = SystemTime::now();
    let expired = files.node("client", |params| {
        (params.not_before, params.not_after) = ((now - 9 * DAY).into(), (now - DAY).into());
    });
    assert_eq!(refused(&files, expired), "its certificate has expired");
    let early = files.node("client", |params| params.not_before = (now + DAY).into());
    assert_eq!(refused(&files, early), "its certificate is not valid yet");
    let foreign = files.signed_by(&ca("another CA"), "client", |_| ());
    assert_eq!(refused(&files, foreign), "its certificate is not signed by the CA that is trusted here (ca_cert_path)");
}

#[test]
fn a_revocation_list_is_kept_to() {
    let files = Files::new();
    files.write(
        "client.pem",
        files.node("client", |params| params.serial_number = Some(SerialNumber::from_slice(&[7]))),
    );
    files.configure(r#", "crl_path": "crl.pem""#);
    files.write("crl.pem", list(&files.ca, &[8], 9));
    assert_eq!(files.read(), Ok(Vec::new()));
    files.write("crl.pem", list(&files.ca, &[7], 9));
    let start = "has client_cert_path \"client.pem\", which others will not take: its certificate is revoked";
    assert_eq!(wrong(&files), start);
    files.write("crl.pem", revoked(&files.ca, &[8], 9).der().as_ref());
    assert_eq!(files.read(), Ok(Vec::new()), "DER");
    files.write("crl.pem", revoked(&files.ca, &[7], 9).der().as_ref());
    assert_eq!(wrong(&files), start);
    files.write("crl.pem", b"\x30\x03\x02\x01\x01");
    let junk = wrong(&files);
    let start = "has crl_path \"crl.pem\", which is not a revocation list: expected PEM or DER";
    assert!(junk.starts_with(start), "{junk}");
    files.write("crl.pem", list(&files.ca, &[8], 0));
    let ended = "has crl_path \"crl.pem\", which is not in effect any more: it has ended on 20";
    assert!(wrong(&files).starts_with(ended), "{}", wrong(&files));
    files.write("crl.pem", list(&ca("another CA"), &[8], 9));
    assert!(
        wrong(&files)
            .ends_with("the revocation list (crl_path) does not cover: expected a list of that CA's in it, too"),
        "{}",
        wrong(&files)
    );
}

#[test]
fn a_file_without_a_list_is_not_one_without_entries() {
    let files = Files::new();
    files.configure(r#", "crl_path": "crl.pem""#);
    for empty in ["", "\n"] {
        files.write("crl.pem", empty);
        let start =
            "has crl_path \"crl.pem\", which is empty: expected a revocation list in PEM or DER (openssl ca -gencrl";
        assert!(wrong(&files).starts_with(start), "{}", wrong(&files));
    }
    files.write("crl.pem", "\0");
    let start = "has crl_path \"crl.pem\", which is not a revocation list: expected PEM or DER";
    assert!(wrong(&files).starts_with(start), "{}", wrong(&files));
}

#[test]
fn certificates_that_were_made_in_another_way_are_told_with_what_is_right() {
    let files = Files::new();
    let refused = |certificate: String| {
        files.write("client.pem", certificate);
        let start = "has client_cert_path \"client.pem\", which others will not take: its certificate ";
        wrong(&files).strip_prefix(start).expect("it names the file").to_owned()
    };
    let of_ca = files.node("client", |params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained));
    let why = refused(of_ca);
    assert!(why.starts_with("is a CA's: expected") && why.contains("\"basicConstraints=CA:FALSE\""), "{why}");
    let mut extension = CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 99999, 1], vec![5, 0]);
    extension.set_criticality(true);
    let why = refused(files.node("client", |params| params.custom_extensions.push(extension)));
    assert!(why.starts_with("has a critical extension that is not known here: expected"), "{why}");
}

#[test]
fn a_server_s_key_fits_one_of_the_suites() {
    let files = Files::new();
    let read = |list: &str, version| {
        files.configure(&format!(r#", "cipher_list": "{list}""#));
        let read = credentials::read(&files.settings_with([("MUSTER_TLS_VERSION", version)]));
        read.map(drop).map_err(|error| error.message().to_owned())
    };
    let (fits, other) = ("ECDHE-ECDSA-CHACHA20-POLY1305", "ECDHE-RSA-CHACHA20-POLY1305");
    let why = read(other, "1.2").unwrap_err();
    let start = "has a cipher_list without a suite for the key (ECDSA P-256) of server_cert_path \"";
    let end = format!("under TLS 1.2, the only version that MUSTER_TLS_VERSION allows: expected {fits}");
    assert!(why.contains(start) && why.ends_with(&end), "{why}");
    assert_eq!(read(&format!("{other}:{fits}"), "1.2"), Ok(()));
    assert_eq!(read(other, "1.3"), Ok(()), "its suites serve every key");
}

#[test]
fn a_ca_whose_own_time_is_not_now_is_no_ca() {
    let of = |from: SystemTime, until: SystemTime| {
        ca_with(|params| (params.not_before, params.not_after) = (from.into(), until.into()))
    };
    let now = SystemTime::now();
    let (ended, early) = (of(now - 9 * DAY, now - DAY), of(now + DAY, now + 9 * DAY));
    let files = Files::new();
    files.write("ca.pem", ended.pem());
    let start = "has ca_cert_path \"ca.pem\", which has a CA certificate that ";
    assert!(wrong(&files).starts_with(&format!("{start}has ended on 20")), "{}", wrong(&files));
    files.write("ca.pem", early.pem());
    assert!(wrong(&files).starts_with(&format!("{start}is not valid before 20")), "{}", wrong(&files));
    files.write("ca.pem", ended.pem() + &files.ca.pem());
    let warnings = files.read().unwrap();
    let start = "ca_cert_path (\"ca.pem\") has a CA certificate that has ended on 20";
    assert!(warnings.len() == 1 && warnings[0].starts_with(start), "{warnings:?}");
    // A certificate that such a CA has signed is not accepted, though its signature is right.
    files.write("client.pem", files.signed_by(&ended, "client", |_| ()));
    let end = "its certificate is not signed by the CA that is trusted here (ca_cert_path)";
    assert!(wrong(&files).ends_with(end), "{}", wrong(&files));
}

#[test]
fn a_list_that_begins_later_is_not_in_effect() {
    let files = Files::new();
    files.configure(r#", "crl_path": "crl.pem""#);
    let begins = SystemTime::now() + DAY;
    files.write("crl.pem", files.list(&[7], begins, begins + DAY));
    let start = "has crl_path \"crl.pem\", which is not in effect yet: it begins on 20";
    assert!(wrong(&files).starts_with(start), "{}", wrong(&files));
}

#[test]
fn an_end_that_is_near_and_what_has_no_use_are_warned_of() {
    let files = Files::new();
    let soon = SystemTime::now() + 10 * DAY + DAY / 2;
    files.write("server.pem", files.node("server", |params| params.not_after = soon.into()));
    files.configure(r#", "cipher_list": "ECDHE-R SA-AES128-GCM-SHA256:ECDHE-RSA-AES256-GCM-SHA384", "colour": "red""#);
    assert_eq!(
        files.read().unwrap(),
        [
            "\"tls.json\" has keys that have no effect: colour",
            "the cipher_list has names that stand for no usable suite: ECDHE-R SA-AES128-GCM-SHA256",
            "the certificate of server_cert_path (\"server.pem\") ends in 10 days: renew it",
        ]
    );
    files.configure(r#", "cipher_list": "RC4-SHA""#);
    assert!(wrong(&files).starts_with("has a cipher_list without a usable suite"), "{}", wrong(&files));
}

#[test]
fn ones_own_certificates_carry_ones_own_node_id_where_that_is_demanded() {
    let files = Files::new();
    let read = |id: &str| {
        let mut settings = files.settings_with([("MUSTER_VERIFY_NODE_ID", "1")]);
        settings.names.own_id = Some(id.to_owned());
        credentials::read(&settings).map(drop).map_err(|error| error.message().to_owned())
    };
    let error = read("rank 3").unwrap_err();
    let wanted = "which has a certificate with no node id: expected the name URI:muster:node:rank%203 for this node \
                  (MUSTER_VERIFY_NODE_ID) (make it with: muster certs node DIR --node_id='rank 3')";
    assert!(error.contains("server_cert_path") && error.ends_with(wanted), "{error}");
    files.write("server.pem", files.of_node("rank 3"));
    files.write("client.pem", files.of_node("4"));
    let error = read("rank 3").unwrap_err();
    assert!(error.contains("client_cert_path") && error.contains("with the node id \"4\": expected"), "{error}");
    files.write("client.pem", files.of_node("rank 3"));
    assert_eq!(read("rank 3"), Ok(()));
    let scheduler = files.settings_with([("MUSTER_VERIFY_NODE_ID", "1")]);
    assert!(credentials::read(&scheduler).is_ok(), "a scheduler has no node id");
}
