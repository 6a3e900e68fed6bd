//! Certificates for tests: a CA, what it signs, and the configuration file, in a folder of their own.

use super::credentials;
use super::link::TlsTransport;
use super::names;
use crate::config::{Config, TlsSettings};
use crate::error::{Error, Result};
use crate::net::{Side, Transport};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationList, CertificateRevocationListParams, CertifiedIssuer,
    DnType, IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SanType, SerialNumber,
};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A folder of a test's own. It is removed when this is dropped.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Folder {
        let name = format!("muster-tls-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).unwrap();
        Folder(folder)
    }
}

impl Deref for Folder {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What lies in the folder.
pub struct Files {
    pub folder: Folder,
    pub ca: CertifiedIssuer<'static, KeyPair>,
}

fn named(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

pub fn ca(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    ca_of(named(name))
}

/// A CA with something unusual.
pub fn ca_with(change: impl FnOnce(&mut CertificateParams)) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = named("an unusual CA");
    change(&mut params);
    ca_of(params)
}

fn ca_of(mut params: CertificateParams) -> CertifiedIssuer<'static, KeyPair> {
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A revocation list of this CA's, with this certificate on it.
pub fn list_from(ca: &CertifiedIssuer<'static, KeyPair>, serial: &[u8], from: SystemTime, until: SystemTime) -> String {
    list_of(ca, serial, &[1], from, until).pem().unwrap()
}

/// Such a list as a value, with this number.
pub fn list_of(
    ca: &CertifiedIssuer<'static, KeyPair>,
    serial: &[u8],
    number: &[u8],
    from: SystemTime,
    until: SystemTime,
) -> CertificateRevocationList {
    let entry = RevokedCertParams {
        serial_number: SerialNumber::from_slice(serial),
        revocation_time: from.into(),
        reason_code: None,
        invalidity_date: None,
    };
    let params = CertificateRevocationListParams {
        this_update: from.into(),
        next_update: until.into(),
        crl_number: SerialNumber::from_slice(number),
        issuing_distribution_point: None,
        revoked_certs: vec![entry],
        key_identifier_method: KeyIdMethod::Sha256,
    };
    params.signed_by(ca).unwrap()
}

impl Files {
    /// Files in which everything is as it should be.
    pub fn new() -> Files {
        Files::of("a CA of tests")
    }

    /// Such files, with a CA of this name.
    pub fn of(name: &str) -> Files {
        let files = Files { folder: Folder::new(), ca: ca(name) };
        files.write("ca.pem", files.ca.pem());
        files.write("server.pem", files.node("server", |_| ()));
        files.write("client.pem", files.node("client", |_| ()));
        files.configure("");
        files
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.folder.join(name), bytes).unwrap();
    }

    /// Writes the configuration file, with these entries beside the usual ones.
    pub fn configure(&self, more: &str) {
        let usual = r#""server_cert_path": "server.pem", "client_cert_path": "client.pem", "ca_cert_path": "ca.pem""#;
        self.write("tls.json", format!("{{{usual}{more}}}"));
    }

    /// A certificate and its key, in PEM.
    pub fn node(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> String {
        self.signed_by(&self.ca, name, change)
    }

    /// A certificate and its key for the node with this id.
    pub fn of_node(&self, id: &str) -> String {
        let uri = crate::tls::names::uri(id).try_into().unwrap();
        self.node("a node", |params| params.subject_alt_names.push(SanType::URI(uri)))
    }

    /// A certificate and its key, signed by another CA.
    pub fn signed_by(
        &self,
        ca: &CertifiedIssuer<'static, KeyPair>,
        name: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> String {
        let (mut params, key) = (named(name), KeyPair::generate().unwrap());
        change(&mut params);
        params.signed_by(&key, ca).unwrap().pem() + &key.serialize_pem()
    }

    /// A revocation list with this certificate on it.
    pub fn list(&self, serial: &[u8], from: SystemTime, until: SystemTime) -> String {
        list_from(&self.ca, serial, from, until)
    }

    pub fn settings(&self) -> TlsSettings {
        self.settings_with([])
    }

    /// The warnings or the error, with these variables beside the usual ones.
    pub fn settings_with<const COUNT: usize>(&self, more: [(&str, &str); COUNT]) -> TlsSettings {
        settings_in(&self.folder, more)
    }

    /// The warnings; or the error, without what comes before the words about the file.
    pub fn read(&self) -> std::result::Result<Vec<String>, String> {
        let read: Result<_> = credentials::read(&self.settings());
        let place = self.folder.to_str().unwrap();
        let plain = |text: &str| text.replace(&format!("{place}/"), "");
        let start = "MUSTER_CONFIG_FILE_PATH is \"tls.json\", which ";
        let told = |error: Error| plain(error.message()).strip_prefix(start).expect("it names the setting").to_owned();
        let warnings = read.map_err(told)?.noted.warnings;
        Ok(warnings.iter().map(|line| plain(line)).collect())
    }
}

/// The settings of a process that has such a folder, with these variables beside.
pub fn settings_in<const COUNT: usize>(folder: &Path, more: [(&str, &str); COUNT]) -> TlsSettings {
    let path = folder.join("tls.json");
    let mut config = Config::new();
    let usual = [("MUSTER_ENABLE_SSL", "1"), ("MUSTER_CONFIG_FILE_PATH", path.to_str().unwrap())];
    config.load_env(usual.into_iter().chain(more));
    config.settings().unwrap().tls.expect("it is on")
}

/// A connection with TLS around it, by these files.
pub fn wrapped<T: Transport + 'static>(files: &Files, inner: T, side: Side) -> Box<dyn Transport> {
    wrapped_by(&files.settings(), inner, side)
}

/// A connection with TLS around it, by these settings.
pub fn wrapped_by<T: Transport + 'static>(settings: &TlsSettings, inner: T, side: Side) -> Box<dyn Transport> {
    let ends = credentials::read(settings).unwrap();
    let session = match side {
        Side::Client => ClientConnection::new(ends.client, names::nobody()).map(Connection::Client),
        Side::Server => ServerConnection::new(ends.server).map(Connection::Server),
    };
    Box::new(TlsTransport::new(inner, session))
}

/// The sessions of a client and a server that have these files.
pub fn both(files: &Files) -> (Connection, Connection) {
    between(files, files)
}

/// The sessions of a client and a server that each have their own files.
pub fn between(client: &Files, server: &Files) -> (Connection, Connection) {
    let [client, server] = [client, server].map(|files| credentials::read(&files.settings()).unwrap());
    sessions(client.client, server.server, names::nobody())
}

/// The sessions of these two ends; the server is to have this name.
pub fn sessions(
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    name: ServerName<'static>,
) -> (Connection, Connection) {
    let (client, server) = (ClientConnection::new(client, name).unwrap(), ServerConnection::new(server).unwrap());
    (Connection::Client(client), Connection::Server(server))
}

/// A revocation list of this CA's, in PEM: it has this certificate's number, and is valid for one day less than `days`.
pub fn list(ca: &CertifiedIssuer<'static, KeyPair>, serial: &[u8], days: u32) -> String {
    revoked(ca, serial, days).pem().unwrap()
}

/// Such a list as a value, which may be written in any form.
pub fn revoked(ca: &CertifiedIssuer<'static, KeyPair>, serial: &[u8], days: u32) -> CertificateRevocationList {
    let now = SystemTime::now();
    list_of(ca, serial, &[1], now - 2 * DAY, now - DAY + DAY * days)
}
