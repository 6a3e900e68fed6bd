use super::*;

fn parse(text: &str) -> Result<TlsFile, String> {
    TlsFile::parse(text.as_bytes(), Path::new("/etc/job"))
}

const LEAST: &str =
    r#""server_cert_path": "server.p12", "client_cert_path": "/keys/client.p12", "ca_cert_path": "ca.pem""#;

#[test]
fn paths_are_relative_to_the_file_and_what_is_empty_is_not_set() {
    let file = parse(&format!(r#"{{{LEAST}, "crl_path": "", "cipher_list": ""}}"#)).unwrap();
    let named = |key, path: &str| NamedFile { key, path: PathBuf::from(path) };
    assert_eq!(file.server_cert, named("server_cert_path", "/etc/job/server.p12"));
    assert_eq!(file.client_cert, named("client_cert_path", "/keys/client.p12"));
    assert_eq!(file.ca_cert, named("ca_cert_path", "/etc/job/ca.pem"));
    assert!(file.crl.is_none() && file.cipher_list.is_none() && file.unknown.is_empty());
    assert_eq!(file.warning_days, 90);
}

/// A program may change its working directory between the first reading and the next.
#[test]
fn a_file_is_opened_by_a_path_that_does_not_depend_on_the_working_directory() {
    let file = SetFile::new("certs/tls.json".to_owned());
    assert_eq!(file.path, std::env::current_dir().unwrap().join("certs/tls.json"));
    assert_eq!(file.written, "certs/tls.json");
    let lock = Lock { source: PasswordSource::File(SetFile::new("word".to_owned())), setting: "a file".to_owned() };
    assert_eq!(lock.error("is empty").message(), "a file is \"word\", which is empty");
}

#[test]
fn all_of_it_is_read() {
    let more = r#""crl_path": "crl.pem", "cipher_list": "A:B", "cert_expire_warning_time_in_day": 7, "colour": 1"#;
    let file = parse(&format!("{{{LEAST}, {more}}}")).unwrap();
    assert_eq!(file.crl.unwrap().path, Path::new("/etc/job/crl.pem"));
    assert_eq!(file.cipher_list.as_deref(), Some("A:B"));
    assert_eq!((file.warning_days, &file.unknown[..]), (7, &["colour".to_owned()][..]));
}

#[test]
fn what_is_wrong_is_said_with_its_key() {
    let with = |more: &str| parse(&format!("{{{LEAST}, {more}}}")).unwrap_err();
    assert_eq!(parse("[]").unwrap_err(), "is a list: expected an object in braces");
    assert_eq!(
        parse(r#"{"client_cert_path": "c", "ca_cert_path": "a"}"#).unwrap_err(),
        "has no server_cert_path: expected the path of a certificate with its key, in PKCS#12 or PEM"
    );
    assert_eq!(with(r#""crl_path": 3"#), "has crl_path, which is a number: expected text in quotes");
    for days in ["6", "181", "-7", "7.5", "\"soon\"", "\"+30\"", "true"] {
        let wrong = with(&format!(r#""cert_expire_warning_time_in_day": {days}"#));
        assert!(wrong.ends_with("expected a whole number of days from 7 to 180"), "{wrong}");
    }
}
