//! Files in PEM, as they are, and as they should not be.

use super::*;

/// A part of this kind with this byte in it.
fn part(kind: &str, byte: u8) -> String {
    der::pem::encode_string(kind, der::pem::LineEnding::LF, &[byte]).unwrap()
}

fn contents(bytes: &[u8]) -> Vec<u8> {
    parts(bytes).unwrap().into_iter().flat_map(|(_, bytes)| bytes).collect()
}

#[test]
fn parts_come_in_their_order_whatever_text_is_between_them() {
    let text = part("CERTIFICATE", 1) + "Bag Attributes\n" + &part("X509 CRL", 2) + &part("DH PARAMETERS", 3);
    assert_eq!(contents(text.as_bytes()), [1, 2]);
    assert_eq!(contents(text.replace('\n', " \r\n").as_bytes()), [1, 2]);
    assert_eq!(contents(&[b"J\xfcrgen's\n", text.as_bytes()].concat()), [1, 2], "Latin-1");
    assert!(contents(b"no PEM").is_empty());
}

#[test]
fn a_byte_order_mark_hides_no_part() {
    let marked = format!("\u{feff}{}", part("CERTIFICATE", 1));
    assert_eq!(contents(marked.as_bytes()), [1]);
    assert_eq!(contents(marked.repeat(2).as_bytes()), [1, 1], "two such files in one");
}

#[test]
fn parts_that_share_a_line_are_an_error() {
    for (kind, end) in [("CERTIFICATE", ""), ("X509 CRL", " "), ("ENCRYPTED PRIVATE KEY", "and so on")] {
        let glued = part(kind, 1).trim_end().to_owned() + end + &part("CERTIFICATE", 2);
        let expected = format!("is not PEM as expected: nothing may follow -----END {kind}----- on its line");
        assert_eq!(parts(glued.as_bytes()).unwrap_err(), expected);
    }
    for before in ["the newer list", "  "] {
        let why = parts(format!("{before}{}{}", part("X509 CRL", 1), part("X509 CRL", 2)).as_bytes()).unwrap_err();
        assert_eq!(why, "is not PEM as expected: nothing may stand before -----BEGIN on its line");
    }
}

#[test]
fn an_encrypted_key_is_found_beside_text_of_any_encoding() {
    let sealed = part("ENCRYPTED PRIVATE KEY", 7);
    let document = der::pem::encode_string("ENCRYPTED PRIVATE KEY", der::pem::LineEnding::LF, &[0x30, 0]).unwrap();
    let text = [b"J\xfcrgen's\n", part("CERTIFICATE", 1).as_bytes(), document.as_bytes()].concat();
    assert_eq!(encrypted_key(&text), Ok(Some(vec![0x30, 0])));
    assert_eq!(encrypted_key(part("CERTIFICATE", 1).as_bytes()), Ok(None));
    let cut = &sealed[..sealed.find("-----END").expect("it has an end")];
    let why = encrypted_key(cut.as_bytes()).unwrap_err();
    assert_eq!(why, "is not PEM as expected: it has no \"-----END ENCRYPTED PRIVATE KEY-----\"");
}

#[test]
fn a_key_of_the_older_encryption_is_told_with_the_command_that_helps() {
    let text = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nAAAA\n-----END RSA PRIVATE KEY-----\n";
    let why = parts(text.as_bytes()).unwrap_err();
    assert!(
        why.starts_with("has a key that is encrypted as OpenSSL did before PKCS#8") && why.contains("-topk8"),
        "{why}"
    );
}
