//! `muster certs new`, `node` and `revoke`: the folder of a CA, and what it has made.
//!
//! | in DIR | what it is |
//! | --- | --- |
//! | `ca/ca.pem`, `ca/ca.key`, `ca/crl.pem` | the CA, its key, its revocation list |
//! | `ca/issued/NODE.SERIAL.pem` | each certificate that was made, so that it can be revoked when it is lost |
//! | `NODE/` | all that a node needs: `tls.json`, `node.pem` or `node.p12`, `ca.pem`, `crl.pem`, perhaps `password` |
//! | `.muster_certs` | by its lock the commands take turns, so that no revocation and no certificate is lost |

use super::authority::{self, hex, Authority, Issued, Names};
use super::contents::{self, Contents, Key};
use super::folder::{self, Fresh};
use super::moment;
use super::names::{shown_host, Target, CA};
use super::options::{Form, Make, Revoke};
use super::passwords::{self, Given};
use der::asn1::Uint;
use der::pem::LineEnding;
use der::Encode;
use muster::config::Password;
use serde_json::json;
use std::cell::LazyCell;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use x509_cert::certificate::Certificate;
use x509_cert::crl::RevokedCert;
use x509_cert::ext::pkix::CrlNumber;
use zeroize::Zeroizing;

const PEM: &str = "node.pem";
const P12: &str = "node.p12";
const PASSWORD: &str = "password";
const CONFIGURATION: &str = "tls.json";
const LIST: &str = "crl.pem";

/// `muster certs new`. Returns what was made, in lines.
pub fn new(what: &Make, given: Vec<Given>) -> Result<String, String> {
    let password = passwords::one_of(given)?;
    folder::make(&what.folder)?;
    let _turn = folder::turn(&what.folder)?;
    let place = what.folder.join(CA);
    if folder::is_there(&place) {
        return Err(format!(
            "{place:?} is there already: expected a folder without a CA (muster certs node makes further certificates)"
        ));
    }
    refuse_those_that_are_there(what)?;
    let (authority, key) = Authority::new(what.ca_days)?;
    let fresh = Fresh::begin(&place)?;
    fresh.put("ca.pem", &pem("CERTIFICATE", &authority.certificate)?)?;
    fresh.put("ca.key", &text("PRIVATE KEY", &key)?)?;
    fresh.put(LIST, &pem("X509 CRL", &authority.list(&authority::der(Uint::new(&[1]))?, Vec::new())?)?)?;
    fresh.finish()?;
    let until = moment::day(authority.until());
    let first = format!("{}: a CA until {until}. Keep it to yourself: ca.key makes certificates.\n", place.display());
    Ok(first + &nodes(what, &authority, password)? + &advice(what))
}

/// The password that seals files, or why there is none that can.
type Sealing = Result<Option<Password>, String>;

/// `muster certs node`. What was made goes to `said`, in lines, even if a later node fails. The passwords are fetched only
/// where they are needed.
pub fn node(what: &Make, given: impl FnOnce() -> Result<Vec<Given>, String>, said: &mut String) -> Result<(), String> {
    let password = LazyCell::new(|| given().and_then(passwords::one_of));
    let (authority, _) = ca(&what.folder)?;
    let _turn = folder::turn(&what.folder)?;
    if what.renew {
        for target in &what.nodes {
            *said += &renew(what, target, &authority, &password)?;
        }
        return Ok(());
    }
    refuse_those_that_are_there(what)?;
    *said += &(nodes(what, &authority, (*password).clone()?)? + &advice(what));
    Ok(())
}

fn refuse_those_that_are_there(what: &Make) -> Result<(), String> {
    for target in &what.nodes {
        let path = what.folder.join(&target.folder);
        if folder::is_there(&path) {
            return Err(format!("{path:?} is there already: expected another name, or muster certs node --renew"));
        }
    }
    Ok(())
}

/// The CA of this folder, and its certificate as it lies there.
fn ca(folder: &Path) -> Result<(Authority, Vec<u8>), String> {
    let (path, key_path) = (folder.join(CA).join("ca.pem"), folder.join(CA).join("ca.key"));
    let bytes = folder::read(&path)?;
    let found = contents::of(&bytes, &[]).map_err(|why| format!("{path:?} {why}"))?;
    let certificate = found.certificates.into_iter().next().ok_or_else(|| format!("{path:?} has no certificate"))?;
    let key_bytes = Zeroizing::new(folder::read_private(&key_path)?);
    let mut found = contents::of(&key_bytes, &[]).map_err(|why| format!("{key_path:?} {why}"))?;
    let last = found.keys.pop();
    let Some(Key::Open(key)) = &last else {
        return Err(format!(
            "{key_path:?} has no key that opens: expected the CA's private key, in PEM, not encrypted"
        ));
    };
    let authority = Authority::of(certificate, key).map_err(|why| format!("{:?} {why}", folder.join(CA)))?;
    Ok((authority, bytes))
}

/// Makes all folders that are asked for.
fn nodes(what: &Make, authority: &Authority, given: Option<Password>) -> Result<String, String> {
    let place = what.folder.join(CA);
    let (ca_pem, list) = (folder::read(&place.join("ca.pem"))?, list_of(&place, authority)?);
    let mut said = String::new();
    for target in &what.nodes {
        let names = Names { node_id: target.id.clone(), hosts: what.hosts.clone() };
        let issued = issue(&what.folder, target, &names, what.days, authority)?;
        let path = what.folder.join(&target.folder);
        let fresh = Fresh::begin(&path)?;
        let file = match what.form.unwrap_or(Form::Pem) {
            Form::Pem => {
                fresh.put(PEM, &both(&issued)?)?;
                PEM
            }
            Form::Pkcs12 => {
                let password = given.clone().map_or_else(passwords::made_up, Ok)?;
                fresh.put(P12, &sealed(&issued, &password)?)?;
                if given.is_none() {
                    fresh.put(PASSWORD, format!("{}\n", password.reveal()).as_bytes())?;
                }
                P12
            }
        };
        fresh.put("ca.pem", &ca_pem)?;
        fresh.put(LIST, &list)?;
        let configuration =
            json!({"server_cert_path": file, "client_cert_path": file, "ca_cert_path": "ca.pem", "crl_path": LIST});
        fresh.put(CONFIGURATION, format!("{configuration:#}\n").as_bytes())?;
        fresh.finish()?;
        said += &format!("{}: {}\n", path.display(), described(&issued, &names));
    }
    Ok(said)
}

fn described(issued: &Issued, names: &Names) -> String {
    let until = moment::day(moment::seconds(&issued.certificate.tbs_certificate.validity.not_after));
    let id = names.node_id.as_ref().map(|id| format!("the node id {id:?}"));
    let whose: Vec<String> = id.into_iter().chain(names.hosts.iter().filter_map(shown_host)).collect();
    let whose = if whose.is_empty() { String::new() } else { format!(" for {}", whose.join(", ")) };
    format!("a certificate{whose} until {until}")
}

/// Makes a certificate and its record. The record comes first, so that whatever was made can be revoked.
fn issue(folder: &Path, target: &Target, names: &Names, days: u32, authority: &Authority) -> Result<Issued, String> {
    let issued = authority.certify(&target.name, names, days)?;
    let records = folder.join(CA).join("issued");
    folder::make(&records)?;
    let serial = hex(issued.certificate.tbs_certificate.serial_number.as_bytes());
    let record = records.join(format!("{}.{serial}.pem", target.folder));
    folder::create(&record, &pem("CERTIFICATE", &issued.certificate)?)?;
    Ok(issued)
}

/// Replaces certificate and key, and brings the rest up to date.
fn renew(
    what: &Make,
    target: &Target,
    authority: &Authority,
    given: &impl Deref<Target = Sealing>,
) -> Result<String, String> {
    let path = what.folder.join(&target.folder);
    let is = |name| folder::is_there(&path.join(name));
    let form = match (is(PEM), is(P12)) {
        (true, _) => Form::Pem,
        (false, true) => Form::Pkcs12,
        (false, false) => {
            return Err(format!("{path:?} has neither {PEM} nor {P12}: expected a folder that muster certs has made"));
        }
    };
    if what.form.is_some_and(|asked| asked != form) {
        return Err(format!("{path:?} has its certificate in another format: expected --renew without --format"));
    }
    let password = resealing(what, &path, form, given)?;
    let file = path.join(if form == Form::Pem { PEM } else { P12 });
    let old = certificate_in(&file, password.clone());
    let mut names = recorded_names(&what.folder, target, old.as_ref())?;
    names.node_id = target.id.clone().or(names.node_id);
    if !what.hosts.is_empty() {
        names.hosts = what.hosts.clone();
    }
    let issued = issue(&what.folder, target, &names, what.days, authority)?;
    let bytes = match &password {
        None => both(&issued)?,
        Some(password) => sealed(&issued, password)?,
    };
    folder::replace(&file, &bytes)?;
    let place = what.folder.join(CA);
    folder::replace(&path.join("ca.pem"), &folder::read(&place.join("ca.pem"))?)?;
    folder::replace(&path.join(LIST), &list_of(&place, authority)?)?;
    Ok(format!("{}: renewed: {}\n", path.display(), described(&issued, &names)))
}

/// The password that is to seal a renewed PKCS#12 file in the node's folder `path`; none for PEM.
fn resealing(what: &Make, path: &Path, form: Form, given: &impl Deref<Target = Sealing>) -> Sealing {
    let own = path.join(PASSWORD);
    let is_beside = folder::is_there(&own);
    if what.password_file.is_some() {
        match form {
            Form::Pem => {
                return Err(format!("{:?} has no password: expected --renew without --password_file", path.join(PEM)))
            }
            Form::Pkcs12 if is_beside => {
                return Err(format!("{own:?} has the password of {P12}: expected --renew without --password_file"));
            }
            Form::Pkcs12 => {}
        }
    }
    // The password that lies beside the file goes on opening it.
    match form {
        Form::Pem => Ok(None),
        Form::Pkcs12 if !is_beside => (**given).clone()?.map(Some).ok_or_else(|| {
            let file = path.join(P12);
            format!("{file:?} was made with a password of its own, for there is no {own:?}: expected --password_file with a file that has it")
        }),
        Form::Pkcs12 => {
            let text = own.to_str().ok_or_else(|| format!("{own:?} is not valid UTF-8: expected a path that is"))?;
            let read = passwords::given(Some(text), []).and_then(passwords::one_of)?;
            Ok(Some(read.expect("a file that was read has a password in it")))
        }
    }
}

/// The node's certificate in this file; none if the file does not open, such as with a password that is new.
fn certificate_in(path: &Path, password: Option<Password>) -> Option<Certificate> {
    let given = password.map(|password| Given { password, setting: P12.to_owned() });
    in_file(path, given.as_slice()).ok()?.certificates.into_iter().next()
}

/// The names in the certificate that the node has (`old`), or else in the one that was made last under this name. A
/// certificate that is not on record may be from anywhere, and so may its names: it does not count.
fn recorded_names(folder: &Path, target: &Target, old: Option<&Certificate>) -> Result<Names, String> {
    let recorded = recorded(folder, target)?;
    let Some(kept) = old.filter(|old| recorded.contains(old)).or(recorded.last()) else { return Ok(Names::default()) };
    let mut hosts = contents::alternative_names(kept);
    hosts.retain(|name| shown_host(name).is_some());
    Ok(Names { node_id: contents::node_id(kept), hosts })
}

/// All certificates that were made under this name, the last one last. A certificate's time has whole seconds: within a
/// second the times of the files decide.
fn recorded(folder: &Path, target: &Target) -> Result<Vec<Certificate>, String> {
    let records = folder.join(CA).join("issued");
    let mut found = Vec::new();
    for name in folder::names(&records)? {
        let parts = name.strip_suffix(".pem").and_then(|name| name.rsplit_once('.'));
        if parts.is_some_and(|(folder, _)| folder == target.folder) {
            let path = records.join(name);
            let written = folder::written(&path)?;
            found.extend(in_file(&path, &[])?.certificates.into_iter().map(|certificate| (written, certificate)));
        }
    }
    found.sort_by_key(|(written, made)| (moment::seconds(&made.tbs_certificate.validity.not_before), *written));
    Ok(found.into_iter().map(|(_, certificate)| certificate).collect())
}

fn in_file(path: &Path, passwords: &[Given]) -> Result<Contents, String> {
    contents::of(&Zeroizing::new(folder::read(path)?), passwords).map_err(|why| format!("{path:?} {why}"))
}

/// The revocation list as it lies there; a new one if there is none.
fn list_of(place: &Path, authority: &Authority) -> Result<Vec<u8>, String> {
    let path = place.join(LIST);
    if !folder::is_there(&path) {
        let first = authority.list(&authority::der(Uint::new(&[1]))?, Vec::new())?;
        folder::create(&path, &pem("X509 CRL", &first)?)?;
    }
    folder::read(&path)
}

/// `muster certs revoke`. Returns what was revoked, in lines.
pub fn revoke(what: &Revoke, given: &[Given]) -> Result<String, String> {
    let (authority, _) = ca(&what.folder)?;
    let _turn = folder::turn(&what.folder)?;
    let place = what.folder.join(CA);
    let bytes = list_of(&place, &authority)?;
    let before = contents::of(&bytes, &[]).map_err(|why| format!("{:?} {why}", place.join(LIST)))?;
    let before = before.lists.into_iter().next().ok_or_else(|| format!("{:?} has no list", place.join(LIST)))?;
    let last = before.tbs_cert_list.crl_extensions.iter().flatten().find_map(number).unwrap_or(0);
    let mut revoked = before.tbs_cert_list.revoked_certificates.unwrap_or_default();
    let mut said = String::new();
    for (certificate, whose) in asked_for(what, &authority, given)? {
        let serial = certificate.tbs_certificate.serial_number;
        let shown = hex(serial.as_bytes());
        if revoked.iter().any(|entry| entry.serial_number == serial) {
            said += &format!("{whose}: {shown} is on the list already\n");
            continue;
        }
        let revocation_date = authority::der(moment::time(moment::now()))?;
        revoked.push(RevokedCert { serial_number: serial, revocation_date, crl_entry_extensions: None });
        said += &format!("{whose}: {shown} is revoked\n");
    }
    let next = authority::der(Uint::new(&(last + 1).to_be_bytes()))?;
    let list = pem("X509 CRL", &authority.list(&next, revoked)?)?;
    folder::replace(&place.join(LIST), &list)?;
    said += &format!("{}: list {}, until {}\n", place.join(LIST).display(), last + 1, moment::day(authority.until()));
    for path in node_folders(&what.folder)? {
        folder::replace(&path.join(LIST), &list)?;
        said += &format!("{}: replaced; copy it to the hosts that have the old one\n", path.join(LIST).display());
    }
    Ok(said)
}

fn number(extension: &x509_cert::ext::Extension) -> Option<u64> {
    use der::oid::AssociatedOid;
    use der::Decode;
    if extension.extn_id != CrlNumber::OID {
        return None;
    }
    let number = CrlNumber::from_der(extension.extn_value.as_bytes()).ok()?.0;
    number.as_bytes().iter().try_fold(0u64, |sum, byte| sum.checked_mul(256)?.checked_add((*byte).into()))
}

/// The certificates to revoke, each with the word that named it.
fn asked_for(what: &Revoke, authority: &Authority, given: &[Given]) -> Result<Vec<(Certificate, String)>, String> {
    let mut found = Vec::new();
    for target in &what.nodes {
        let recorded = recorded(&what.folder, target)?;
        if recorded.is_empty() {
            let records = what.folder.join(CA).join("issued");
            return Err(format!(
                "{records:?} has no certificate of {:?}: expected a name that was given one",
                target.name
            ));
        }
        found.extend(recorded.into_iter().map(|certificate| (certificate, target.name.clone())));
    }
    for path in &what.files {
        let in_file = in_file(path, given)?.certificates;
        let own = in_file.into_iter().next().ok_or_else(|| format!("{path:?} has no certificate in it"))?;
        if own.tbs_certificate.subject == authority.certificate.tbs_certificate.subject {
            return Err(format!(
                "{path:?} has the certificate of the CA itself, which its own list cannot revoke: expected a node's \
                 certificate (if nobody is to trust this CA any more, make a new one with muster certs new in another \
                 folder, and give every node its files)"
            ));
        }
        if own.tbs_certificate.issuer != authority.certificate.tbs_certificate.subject {
            return Err(format!("{path:?} has a certificate that another CA has signed: only that CA can revoke it"));
        }
        found.push((own, path.display().to_string()));
    }
    Ok(found)
}

/// The folders in this one that hold a node's files.
fn node_folders(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let paths = folder::names(folder)?.into_iter().map(|name| folder.join(name));
    Ok(paths.filter(|path| folder::is_there(&path.join(CONFIGURATION)) && folder::is_there(&path.join(LIST))).collect())
}

/// The settings to make, for the first of the nodes.
fn advice(what: &Make) -> String {
    let Some(first) = what.nodes.first() else { return String::new() };
    let path = what.folder.join(&first.folder);
    let path = std::path::absolute(&path).unwrap_or(path);
    let mut lines = vec![("ENABLE_SSL", "1".to_owned())];
    lines.push(("CONFIG_FILE_PATH", quoted(&path.join(CONFIGURATION))));
    let password = match &what.password_file {
        Some(file) => Some(std::path::absolute(file).unwrap_or_else(|_| file.into())),
        None => Some(path.join(PASSWORD)).filter(|file| folder::is_there(file)),
    };
    for name in ["SERVER_PASSWORD_FILE", "CLIENT_PASSWORD_FILE"] {
        lines.extend(password.iter().map(|file| (name, quoted(file))));
    }
    let lines = lines.iter().map(|(name, value)| format!("  export MUSTER_{name}={value}\n"));
    let mut lines = lines.collect::<String>();
    if password.is_none() && what.form == Some(Form::Pkcs12) {
        lines +=
            "and both MUSTER_SERVER_PASSWORD and MUSTER_CLIENT_PASSWORD (or ..._FILE) to the password that sealed it\n";
    }
    match what.nodes.len() {
        1 => format!("To use it, set in each process of the job, the launcher included:\n{lines}"),
        _ => format!(
            "To use it, set for the node {}, and for each other node its own folder's files:\n{lines}",
            first.name
        ),
    }
}

/// The path as a shell takes it for one word.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    match text.chars().all(|letter| letter.is_ascii_alphanumeric() || "/._-%+,:@".contains(letter)) {
        true => text,
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

fn text(label: &str, der: &[u8]) -> Result<Vec<u8>, String> {
    let text = der::pem::encode_string(label, LineEnding::LF, der);
    text.map(String::into_bytes).map_err(|error| format!("this cannot be put into PEM: {error}"))
}

fn pem(label: &str, what: &impl Encode) -> Result<Vec<u8>, String> {
    text(label, &authority::der(what.to_der())?)
}

/// Certificate and key.
fn both(issued: &Issued) -> Result<Vec<u8>, String> {
    Ok([pem("CERTIFICATE", &issued.certificate)?, text("PRIVATE KEY", &issued.key)?].concat())
}

fn sealed(issued: &Issued, password: &Password) -> Result<Vec<u8>, String> {
    super::sealed::seal(&authority::der(issued.certificate.to_der())?, &issued.key, password.reveal())
}

#[cfg(test)]
#[path = "make_test.rs"]
mod tests;
