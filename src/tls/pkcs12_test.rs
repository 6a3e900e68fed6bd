//! Files that OpenSSL has made, of both its generations.

use super::*;
use crate::tls::testing::Folder;
use std::path::Path;
use std::process::Command;

/// A folder with a key, its certificate, and a CA's, made by OpenSSL.
fn folder() -> Folder {
    let folder = Folder::new();
    for who in ["ca", "node"] {
        let new = format!("req -x509 -newkey rsa:2048 -nodes -keyout {who}.key -out {who}.crt -days 9 -subj /CN={who}");
        openssl(&folder, &new);
    }
    folder
}

fn openssl(folder: &Path, arguments: &str) {
    let run = Command::new("openssl").args(arguments.split(' ')).current_dir(folder).output();
    let run = run.expect("the tests need the command openssl");
    assert!(run.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&run.stderr));
}

/// The text between the first and the last line of a PEM file with one block.
fn der_of(path: &Path) -> Vec<u8> {
    let text = std::fs::read_to_string(path).unwrap();
    der::Document::from_pem(text.trim()).unwrap().1.as_bytes().to_vec()
}

/// Each letter but the first ones has more than one byte in UTF-8, and the last is a pair in UTF-16.
const PASSWORD: &str = "h\u{fc}\u{20ac}\u{1f511}";

#[test]
fn files_of_both_generations_of_openssl_open_with_their_password_only() {
    let folder = folder();
    let kinds = [
        ("new", ""),
        ("old", " -legacy"),
        ("triple", " -legacy -certpbe PBE-SHA1-3DES -keypbe PBE-SHA1-3DES"),
        ("rc2", " -legacy -certpbe PBE-SHA1-RC2-128 -keypbe PBE-SHA1-RC2-40"),
        ("plain", " -certpbe NONE -keypbe NONE"),
        ("unchecked", " -nomac"),
        ("sha1", " -macalg sha1"),
        ("sha512", " -macalg sha512"),
    ];
    let (key, own, ca) =
        (der_of(&folder.join("node.key")), der_of(&folder.join("node.crt")), der_of(&folder.join("ca.crt")));
    for (name, options) in kinds {
        let made = format!("pkcs12 -export -inkey node.key -in node.crt -certfile ca.crt -passout pass:{PASSWORD}");
        openssl(&folder, &format!("{made} -out {name}.p12{options}"));
        let bytes = std::fs::read(folder.join(format!("{name}.p12"))).unwrap();
        let opened = open(&bytes, PASSWORD).unwrap_or_else(|wrong| panic!("{name}: {wrong:?}"));
        assert_eq!(opened.certificates, [own.clone(), ca.clone()], "{name}");
        assert_eq!(opened.keys, std::slice::from_ref(&key), "{name}");
        for wrong in ["hunter", "", "h\u{fc}\u{20ac}\u{1f512}"] {
            assert!(matches!(open(&bytes, wrong), Err(Wrong::Password)), "{name}");
        }
    }
}

#[test]
fn encrypted_keys_open_with_their_password_only() {
    let folder = folder();
    let key = der_of(&folder.join("node.key"));
    for method in ["-v2 aes-256-cbc", "-v2 aes-128-cbc -v2prf hmacWithSHA512", "-v2 des3", "-v1 PBE-SHA1-3DES"] {
        openssl(&folder, &format!("pkcs8 -topk8 -in node.key -out sealed.pem -passout pass:hunter2 {method}"));
        let sealed = der_of(&folder.join("sealed.pem"));
        assert_eq!(open_key(&sealed, "hunter2").unwrap_or_else(|wrong| panic!("{method}: {wrong:?}")), key);
        assert!(matches!(open_key(&sealed, "hunter"), Err(Wrong::Password)), "{method}");
    }
}

#[test]
fn an_encryption_that_is_not_taken_is_no_wrong_password() {
    let folder = folder();
    let is_named = |wrong: Result<(), Wrong>| match wrong {
        Err(Wrong::Content(why)) => {
            why.starts_with("is encrypted with a method that is not supported: expected AES (openssl ")
        }
        _ => false,
    };
    let legacy = " -provider legacy -provider default";
    for method in ["-v2 aria-256-cbc", "-v2 camellia-256-cbc", &format!("-v1 PBE-MD5-DES{legacy}")] {
        openssl(&folder, &format!("pkcs8 -topk8 -in node.key -out sealed.pem -passout pass:hunter2 {method}"));
        let sealed = der_of(&folder.join("sealed.pem"));
        for password in ["hunter2", "hunter"] {
            assert!(is_named(open_key(&sealed, password).map(drop)), "{method}");
        }
    }
    let made = "pkcs12 -export -inkey node.key -in node.crt -passout pass:hunter2 -out sealed.p12";
    for method in ["-certpbe aria-256-cbc", "-keypbe camellia-256-cbc", &format!("-certpbe PBE-SHA1-RC4-128{legacy}")] {
        openssl(&folder, &format!("{made} {method}"));
        let sealed = std::fs::read(folder.join("sealed.p12")).unwrap();
        assert!(is_named(open(&sealed, "hunter2").map(drop)), "{method}");
    }
}

/// Some of so many wrong passwords give bytes whose end is that of sealed ones.
#[test]
fn every_wrong_password_is_told_as_one() {
    let folder = folder();
    openssl(&folder, "pkcs8 -topk8 -in node.key -out sealed.pem -passout pass:hunter2 -v2 des3 -iter 1");
    let sealed = der_of(&folder.join("sealed.pem"));
    for number in 0..2000 {
        assert!(matches!(open_key(&sealed, &format!("wrong {number}")), Err(Wrong::Password)), "{number}");
    }
    openssl(
        &folder,
        "pkcs12 -export -inkey node.key -in node.crt -passout pass:hunter2 -iter 1 -nomac -legacy -out sealed.p12",
    );
    let sealed = std::fs::read(folder.join("sealed.p12")).unwrap();
    for number in 0..2000 {
        assert!(matches!(open(&sealed, &format!("wrong {number}")), Err(Wrong::Password)), "{number}");
    }
}

#[test]
fn what_is_no_such_file_is_an_error() {
    for bytes in [&b""[..], b"hello", &[0x30, 0x03, 2, 1, 3], &[0x30, 0x84, 255, 255, 255, 255]] {
        assert!(matches!(open(bytes, ""), Err(Wrong::Content(_))), "{bytes:?}");
        assert!(matches!(open_key(bytes, ""), Err(Wrong::Content(_))), "{bytes:?}");
    }
}

/// Nothing panics, whichever byte of a file is damaged.
#[test]
fn a_damaged_file_is_an_error() {
    let folder = folder();
    openssl(&folder, "pkcs12 -export -inkey node.key -in node.crt -passout pass:x -iter 1 -maciter -out node.p12");
    let bytes = std::fs::read(folder.join("node.p12")).unwrap();
    let whole = open(&bytes, "x").unwrap();
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        // Bytes that the check does not cover have no effect: the parameters of a hash that has none.
        if let Ok(opened) = open(&damaged, "x") {
            assert_eq!((&opened.keys, &opened.certificates), (&whole.keys, &whole.certificates), "byte {at}");
        }
        assert!(open(&bytes[..at], "x").is_err(), "byte {at}");
    }
}
