//! Certificates for tests: a CA, what it signs, and the configuration file, in a folder of their own.

use super::credentials;
use super::link::TlsTransport;
use crate::config::{Config, TlsSettings};
use crate::error::{Error, Result};
use crate::net::{Side, Transport};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConnection};
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A folder of a test's own. It goes with this.
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
    let mut params = named(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

impl Files {
    /// All is as it should be.
    pub fn new() -> Files {
        Files::of("a CA of tests")
    }

    /// The same, with a CA of this name.
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

    /// The same, signed by another.
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

    pub fn settings(&self) -> TlsSettings {
        self.settings_with([])
    }

    /// The same, with these variables beside.
    pub fn settings_with<const COUNT: usize>(&self, more: [(&str, &str); COUNT]) -> TlsSettings {
        let path = self.folder.join("tls.json");
        let mut config = Config::new();
        let usual = [("MUSTER_ENABLE_SSL", "1"), ("MUSTER_CONFIG_FILE_PATH", path.to_str().unwrap())];
        config.load_env(usual.into_iter().chain(more));
        config.settings().unwrap().tls.expect("it is on")
    }

    /// The warnings; or the error, without what comes before the words about the file.
    pub fn read(&self) -> std::result::Result<Vec<String>, String> {
        let read: Result<_> = credentials::read(&self.settings());
        let place = self.folder.to_str().unwrap();
        let plain = |text: &str| text.replace(&format!("{place}/"), "");
        let start = "MUSTER_CONFIG_FILE_PATH is \"tls.json\", which ";
        let told = |error: Error| plain(error.message()).strip_prefix(start).expect("it names the setting").to_owned();
        let warnings = read.map_err(told)?.warnings;
        Ok(warnings.iter().map(|line| plain(line)).collect())
    }
}

/// A connection with TLS around it, by these files.
pub fn wrapped<T: Transport + 'static>(files: &Files, inner: T, side: Side) -> Box<dyn Transport> {
    let (client, server) = both(files);
    Box::new(TlsTransport::new(inner, Ok(if side == Side::Client { client } else { server })))
}

/// The sessions of a client and a server that have these files.
pub fn both(files: &Files) -> (Connection, Connection) {
    between(files, files)
}

/// The same, each with its own files.
pub fn between(client: &Files, server: &Files) -> (Connection, Connection) {
    let [client, server] = [client, server].map(|files| credentials::read(&files.settings()).unwrap());
    let name = ServerName::from(IpAddr::from(Ipv4Addr::LOCALHOST));
    let client = ClientConnection::new(Arc::clone(&client.client), name).unwrap();
    let server = ServerConnection::new(Arc::clone(&server.server)).unwrap();
    (Connection::Client(client), Connection::Server(server))
}
