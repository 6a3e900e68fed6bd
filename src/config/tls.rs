//! What TLS is to use: the settings that name it, and the configuration file that they lead to.
//!
//! The file is JSON, with the keys of MindSpore's. Deliberately not here: reading it, and the files that it names (`tls`).

use super::json;
use super::origin::Origin;
use super::reader::Reader;
use super::shown::show;
use super::sources::Config;
use super::table::Key;
use super::value::{whole, TlsVersion};
use crate::error::{Error, Result as Outcome};
use crate::wiping::keeping;
use serde_json::{Map, Value};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zeroize::Zeroize;

/// A text that is never shown. Its clones share one copy, which is wiped with the last of them.
#[derive(Clone)]
pub struct Password(Arc<str>);

impl Password {
    /// Hides this text.
    pub fn new(mut text: String) -> Password {
        let kept = keeping(|| Arc::from(text.as_str()));
        text.zeroize();
        Password(kept)
    }

    /// The text, for the one that needs it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl PartialEq for Password {
    fn eq(&self, other: &Password) -> bool {
        self.0 == other.0
    }
}

impl Eq for Password {}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// The settings for the client's password: the text itself, a file with it, a descriptor that yields it.
const CLIENT_PASSWORD: [Key; 3] = [Key::ClientPassword, Key::ClientPasswordFile, Key::ClientPasswordFd];
const SERVER_PASSWORD: [Key; 3] = [Key::ServerPassword, Key::ServerPasswordFile, Key::ServerPasswordFd];
/// The three settings for the job's secret, in the same order.
pub(super) const JOB_SECRET: [Key; 3] = [Key::JobSecret, Key::JobSecretFile, Key::JobSecretFd];

/// A file that a setting names. It stays the same file if the program changes its working directory later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetFile {
    /// The path as it was written: a sentence names the file by it.
    pub written: String,
    /// The path by which it is opened.
    pub path: PathBuf,
}

impl SetFile {
    /// The file at this path, which is relative to the working directory of now.
    pub fn new(written: String) -> SetFile {
        let path = std::path::absolute(&written).unwrap_or_else(|_| PathBuf::from(&written));
        SetFile { written, path }
    }
}

/// What is set about TLS, where it is on.
#[derive(Clone, Debug)]
pub struct TlsSettings {
    /// The configuration file.
    pub config_file: SetFile,
    /// How the user knows the setting that names that file.
    pub(super) origin: String,
    /// What opens the client's file.
    pub client_lock: Lock,
    /// What opens the server's file.
    pub server_lock: Lock,
    /// What is demanded of names in certificates.
    pub names: NameChecks,
    /// The only TLS version that is spoken, if there is only one, and how the user knows the setting that says so.
    pub version: Option<(TlsVersion, String)>,
}

/// What is demanded of names in certificates.
#[derive(Clone, Debug, Default)]
pub struct NameChecks {
    /// Nodes' certificates must carry their node ids; how the user knows the setting that says so.
    pub node_ids: Option<String>,
    /// The node id that this process's own certificates must carry, once it is known. A scheduler has none.
    pub own_id: Option<String>,
    /// The scheduler's certificate must be for its host; how the user knows the setting that says so.
    pub host: Option<String>,
}

/// What opens a file.
#[derive(Clone, Debug)]
pub struct Lock {
    /// Where its password comes from.
    pub source: PasswordSource,
    /// How the user knows the setting that says so, or would.
    pub setting: String,
}

/// Where a password comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PasswordSource {
    /// There is none.
    None,
    /// A setting.
    Given(Password),
    /// A file.
    File(SetFile),
    /// A descriptor that the process has inherited.
    Descriptor(i32),
}

impl Lock {
    /// An error about the file or the descriptor; the words follow its name.
    pub fn error(&self, why: &str) -> Error {
        let named = match &self.source {
            PasswordSource::File(file) => file.written.clone(),
            PasswordSource::Descriptor(number) => number.to_string(),
            PasswordSource::None | PasswordSource::Given(_) => "a text".to_owned(),
        };
        Error::config(format!("{} is {}, which {why}", self.setting, show(&named)))
    }
}

impl TlsSettings {
    /// An error about the configuration file; the words follow its name.
    pub fn error(&self, why: &str) -> Error {
        Error::config(format!("{} is {}, which {why}", self.origin, show(&self.config_file.written)))
    }
}

impl Config {
    /// Where the secret of a job comes from, for a process that asks its scheduler.
    pub fn job_secret(&self) -> Outcome<Lock> {
        Reader { config: self, placement: None }.lock(JOB_SECRET)
    }

    /// The recovery directory, where recovery is on: a run keeps its secret there.
    pub fn recovery_directory(&self) -> Outcome<Option<PathBuf>> {
        let reader = Reader { config: self, placement: None };
        let directory = reader.text(Key::RecoveryPath)?.map(PathBuf::from);
        Ok(directory.filter(|_| reader.flag(Key::EnableRecovery).unwrap_or(false)))
    }

    /// What is set about TLS, whatever else is set; none where it is off.
    pub fn tls_settings(&self) -> Outcome<Option<TlsSettings>> {
        Reader { config: self, placement: None }.tls()
    }
}

impl Reader<'_> {
    /// What is set about TLS; none where it is off.
    pub(super) fn tls(&self) -> Outcome<Option<TlsSettings>> {
        let names = NameChecks {
            node_ids: self.flag(Key::VerifyNodeId)?.then(|| self.name(Key::VerifyNodeId)),
            own_id: None,
            host: self.flag(Key::VerifyHost)?.then(|| self.name(Key::VerifyHost)),
        };
        if !self.flag(Key::EnableSsl)? {
            return match names.node_ids.or(names.host) {
                None => Ok(None),
                Some(flag) => {
                    let ssl = Key::EnableSsl.setting().variable();
                    let what = "without TLS nobody shows a certificate";
                    Err(Error::config(format!("{flag} is on, but {ssl} is off: expected both, for {what}")))
                }
            };
        }
        let (flag, origin) = (self.name(Key::EnableSsl), self.name(Key::ConfigFilePath));
        let Some(config_file) = self.text(Key::ConfigFilePath)?.map(SetFile::new) else {
            let what = "the path of a JSON file that names certificates";
            return Err(Error::config(format!("{flag} is on, but {origin} is not set: expected {what}")));
        };
        Ok(Some(TlsSettings {
            config_file,
            origin,
            client_lock: self.lock(CLIENT_PASSWORD)?,
            server_lock: self.lock(SERVER_PASSWORD)?,
            names,
            version: self.tls_version()?.map(|version| (version, self.name(Key::TlsVersion))),
        }))
    }

    /// The one of three settings that is set; two would be a contradiction. What is set in code beats the environment here, too.
    pub(super) fn lock(&self, [given, file, descriptor]: [Key; 3]) -> Outcome<Lock> {
        let text = self.text(given)?.map(|text| (given, PasswordSource::Given(Password::new(text))));
        let path = self.text(file)?.map(|path| (file, PasswordSource::File(SetFile::new(path))));
        let number = self.whole(descriptor)?.map(|number| {
            let number = i32::try_from(number).expect("the table's maximum is that of an i32");
            (descriptor, PasswordSource::Descriptor(number))
        });
        let is_from_code = |key: Key| self.set_by(key) == Some(Origin::Code);
        let in_code = [given, file, descriptor].into_iter().any(is_from_code);
        let mut set = [text, path, number].into_iter().flatten().filter(|(key, _)| !in_code || is_from_code(*key));
        let (key, source) = set.next().unwrap_or((given, PasswordSource::None));
        match set.next() {
            None => Ok(Lock { source, setting: self.name(key) }),
            Some((other, _)) => {
                let (one, other) = (self.name(key), self.name(other));
                Err(Error::config(format!("{one} and {other} are both set: expected one of them")))
            }
        }
    }
}

/// A file that a configuration file names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedFile {
    /// The key under which it stands there.
    pub key: &'static str,
    /// The path, as it is to be opened.
    pub path: PathBuf,
}

/// What a configuration file says.
#[derive(Debug)]
pub struct TlsFile {
    /// The certificate that this process shows to processes that connect to it.
    pub server_cert: NamedFile,
    /// The certificate that this process shows to processes that it connects to.
    pub client_cert: NamedFile,
    /// The certificates that sign those of others.
    pub ca_cert: NamedFile,
    /// The revocation list.
    pub crl: Option<NamedFile>,
    /// OpenSSL's names, separated by colons, commas or blanks.
    pub cipher_list: Option<String>,
    /// How many days before the end of a certificate of our own a warning begins.
    pub warning_days: u32,
    /// Keys that mean nothing here.
    pub unknown: Vec<String>,
}

const SERVER_CERT: &str = "server_cert_path";
const CLIENT_CERT: &str = "client_cert_path";
const CA_CERT: &str = "ca_cert_path";
const CRL: &str = "crl_path";
const CIPHERS: &str = "cipher_list";
const WARNING_DAYS: &str = "cert_expire_warning_time_in_day";
const KEYS: [&str; 6] = [SERVER_CERT, CLIENT_CERT, CA_CERT, CRL, CIPHERS, WARNING_DAYS];

const DAYS: std::ops::RangeInclusive<u64> = 7..=180;
const DAYS_DEFAULT: u32 = 90;

impl TlsFile {
    /// Reads the configuration file from these bytes; its paths are relative to this folder. An error's words follow
    /// the file's name.
    pub fn parse(bytes: &[u8], folder: &Path) -> Result<TlsFile, String> {
        let value = json::parse(bytes)?;
        let Value::Object(entries) = &value else {
            return Err(format!("is {}: expected an object in braces", kind(&value)));
        };
        let named = |key| text(entries, key).map(|text| text.map(|text| NamedFile { key, path: folder.join(text) }));
        let needed = |key, what: &str| named(key)?.ok_or_else(|| format!("has no {key}: expected the path of {what}"));
        Ok(TlsFile {
            server_cert: needed(SERVER_CERT, "a certificate with its key, in PKCS#12 or PEM")?,
            client_cert: needed(CLIENT_CERT, "a certificate with its key, in PKCS#12 or PEM")?,
            ca_cert: needed(CA_CERT, "the certificates of the CA, in PEM")?,
            crl: named(CRL)?,
            cipher_list: text(entries, CIPHERS)?.map(str::to_owned),
            warning_days: days(entries)?,
            unknown: entries.keys().filter(|key| !KEYS.contains(&key.as_str())).cloned().collect(),
        })
    }
}

/// The text under this key, if there is one.
fn text<'a>(entries: &'a Map<String, Value>, key: &str) -> Result<Option<&'a str>, String> {
    match entries.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.contains('\0') => {
            Err(format!("has {key} {}: expected no zero byte in it", show(text)))
        }
        Some(Value::String(text)) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
        Some(other) => Err(format!("has {key}, which is {}: expected text in quotes", kind(other))),
    }
}

fn days(entries: &Map<String, Value>) -> Result<u32, String> {
    let number = match entries.get(WARNING_DAYS) {
        None | Some(Value::Null) => return Ok(DAYS_DEFAULT),
        Some(Value::Number(number)) => number.as_u64(),
        Some(Value::String(text)) => whole(text), // the original takes a number in quotes, too
        Some(_) => None,
    };
    let right = number.filter(|number| DAYS.contains(number));
    right.map(|days| days as u32).ok_or_else(|| {
        let shown = show(&entries[WARNING_DAYS].to_string());
        format!("has {WARNING_DAYS} {shown}: expected a whole number of days from {} to {}", DAYS.start(), DAYS.end())
    })
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
#[path = "tls_test.rs"]
mod tests;
