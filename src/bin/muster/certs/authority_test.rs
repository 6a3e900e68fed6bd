use super::*;
use crate::certs::contents::{belongs, node_id};

fn key(bytes: &[u8]) -> PrivateKeyDer<'static> {
    PrivateKeyDer::try_from(bytes.to_vec()).unwrap()
}

#[test]
fn a_ca_is_known_again_by_its_certificate_and_key() {
    let (ca, pkcs8) = Authority::new(10).unwrap();
    let again = Authority::of(ca.certificate.clone(), &key(&pkcs8)).unwrap();
    assert_eq!(again.until(), ca.until());
    let (other, other_key) = Authority::new(10).unwrap();
    let wrong = |certificate, key: &PrivateKeyDer<'_>| Authority::of(certificate, key).err().unwrap();
    assert_eq!(wrong(ca.certificate.clone(), &key(&other_key)), "has a key that does not belong to its certificate");
    let node = other.certify("node", &Names::default(), 5).unwrap();
    let why = wrong(node.certificate, &key(&node.key));
    assert!(why.starts_with("has a certificate that is not a CA's"), "{why}");
}

#[test]
fn a_node_has_its_id_and_its_own_key_and_ends_with_the_ca() {
    let (ca, _) = Authority::new(10).unwrap();
    let issued = ca.certify("node", &Names { node_id: Some("rank 3".to_owned()), hosts: Vec::new() }, 365).unwrap();
    assert_eq!(node_id(&issued.certificate).as_deref(), Some("rank 3"));
    assert_eq!(belongs(&key(&issued.key), &issued.certificate), Some(true));
    assert_eq!(belongs(&key(&issued.key), &ca.certificate), Some(false));
    let own = &issued.certificate.tbs_certificate;
    assert_eq!(moment::seconds(&own.validity.not_after), ca.until());
    assert!(moment::seconds(&own.validity.not_before) < moment::now());
    assert_eq!(own.issuer, ca.certificate.tbs_certificate.subject);
    let other = ca.certify("node", &Names::default(), 5).unwrap();
    assert_ne!(other.certificate.tbs_certificate.serial_number, own.serial_number);
    assert_eq!(node_id(&other.certificate), None);
}
