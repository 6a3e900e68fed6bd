//! What is revoked stays so, whatever else the file with the lists has.

use crate::tls::testing::{ca, ca_with, list, list_from, list_of, Files};
use rcgen::SerialNumber;
use std::time::{Duration, SystemTime};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const REVOKED: &str = "has client_cert_path \"client.pem\", which others will not take: its certificate is revoked";

/// Files with a client's certificate of the number 7, and with a file for lists.
fn files() -> Files {
    let files = Files::new();
    let seven = files.node("client", |params| params.serial_number = Some(SerialNumber::from_slice(&[7])));
    files.write("client.pem", seven);
    files.configure(r#", "crl_path": "crl.pem""#);
    files
}

#[test]
fn the_newest_list_of_a_ca_counts_whichever_comes_first() {
    let files = files();
    let at = |number: &[u8], days_ago: u32, serial: u8| {
        let from = SystemTime::now() - DAY * days_ago;
        list_of(&files.ca, &[serial], number, from, from + 90 * DAY).pem().unwrap()
    };
    // The number decides, and then the day on which the list was made.
    for (older, newer) in
        [((&[1][..], 5), (&[2][..], 3)), ((&[2], 3), (&[3], 5)), ((&[255], 5), (&[1, 0], 3)), ((&[1], 5), (&[1], 3))]
    {
        for (first, last, expected) in [(8, 7, Err(REVOKED.to_owned())), (7, 8, Ok(Vec::new()))] {
            let (older, newer) = (at(older.0, older.1, first), at(newer.0, newer.1, last));
            for both in [older.clone() + &newer, newer.clone() + &older] {
                files.write("crl.pem", both);
                assert_eq!(files.read(), expected);
            }
        }
    }
    // An older list may have ended.
    files.write("crl.pem", at(&[1], 91, 8) + &at(&[2], 3, 7));
    assert_eq!(files.read(), Err(REVOKED.to_owned()));
    files.write("crl.pem", at(&[2], 91, 8) + &at(&[1], 3, 7));
    assert!(files.read().is_err_and(|why| why.contains("is not in effect any more")), "the newest has");
}

/// The numbers of a CA with a new key begin anew.
#[test]
fn lists_of_two_keys_with_one_name_are_not_compared_by_their_numbers() {
    let (files, now) = (files(), SystemTime::now());
    let former = ca("a CA of tests");
    let of =
        |ca, number: &[u8], days_ago| list_of(ca, &[7], number, now - DAY * days_ago, now + 90 * DAY).pem().unwrap();
    let (old, new) = (of(&former, &[9], 5), of(&files.ca, &[1], 3));
    for both in [old.clone() + &new, new + &old] {
        files.write("crl.pem", both);
        assert_eq!(files.read(), Err(REVOKED.to_owned()));
    }
}

#[test]
fn a_list_that_has_ended_is_left_out_with_its_ca_only() {
    let (files, now) = (files(), SystemTime::now());
    let ended = ca_with(|params| {
        (params.not_before, params.not_after) = ((now - 9 * DAY).into(), (now - DAY).into());
    });
    let over = list_from(&ended, &[8], now - 9 * DAY, now - DAY);
    files.write("ca.pem", ended.pem() + &files.ca.pem());
    for own in [8, 7] {
        files.write("crl.pem", over.clone() + &list(&files.ca, &[own], 9));
        match files.read() {
            Ok(warnings) => {
                assert_eq!((own, warnings.len()), (8, 2), "{warnings:?}");
                assert!(warnings[0].starts_with("ca_cert_path (\"ca.pem\") has a CA certificate that has ended on 20"));
                let start = "crl_path (\"crl.pem\") has a revocation list that has ended on 20";
                let end = ", of a CA that is left out: it is left out";
                assert!(warnings[1].starts_with(start) && warnings[1].ends_with(end), "{warnings:?}");
            }
            Err(why) => assert_eq!((own, &why[..]), (7, REVOKED)),
        }
    }
    let begins = list_from(&ended, &[7], now + DAY, now + 9 * DAY);
    files.write("crl.pem", begins + &list(&files.ca, &[8], 9));
    let warnings = files.read().unwrap();
    assert!(warnings[1].starts_with("crl_path (\"crl.pem\") has a revocation list that begins on 20"), "{warnings:?}");
    let not_in_effect = |files: &Files| files.read().is_err_and(|why| why.contains("which is not in effect any more"));
    files.write("crl.pem", &over);
    assert!(not_in_effect(&files), "without any list nothing would be revoked");
    files.write("crl.pem", list(&files.ca, &[8], 0) + &over);
    assert!(not_in_effect(&files), "the list of a CA that remains");
    files.write("ca.pem", files.ca.pem());
    files.write("crl.pem", list(&ca("between"), &[8], 0) + &list(&files.ca, &[8], 9));
    assert!(not_in_effect(&files), "the list of a CA that stands between the others and the trusted one");
}

#[test]
fn lists_among_which_one_cannot_be_read_are_an_error() {
    let files = files();
    let junk = "-----BEGIN X509 CRL-----\nMAMCAQE=\n-----END X509 CRL-----\n";
    files.write("crl.pem", list(&files.ca, &[8], 9) + junk);
    let start = "has crl_path \"crl.pem\", which has, among others, a revocation list that cannot be read: expected ";
    assert!(files.read().is_err_and(|why| why.starts_with(start)));
}
