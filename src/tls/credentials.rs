//! The files that the configuration names: certificates with their keys, the CA, the revocation lists.
//!
//! All of them are read and judged before the first connection: a file that others would not accept is an error here.

use super::ciphers;
use super::lists::{self, Lists};
use super::names;
use super::parts::{end, end_of_list, is_ca, kind_of, out_of_time, subject, useless_key, Use};
use super::password::password;
use super::pem::{self, encrypted_key, is_pem};
use super::pkcs12::{self, Opened, Wrong};
use super::sentence::{of_list, sentence};
use super::signing::WipingKey;
use super::trust::Trust;
use crate::config::{Lock, NameChecks, NamedFile, Password, PasswordSource, TlsFile, TlsSettings, TlsVersion};
use crate::error::{Error, Result};
use crate::net::file;
use crate::wiping::{keeping, wiping};
use rustls::client::{Resumption, VerifierBuilderError};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{
    CertificateError, ClientConfig, RootCertStore, ServerConfig, SupportedCipherSuite, SupportedProtocolVersion,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use x509_cert::name::Name;

/// The largest file that is read: a revocation list with a hundred thousand entries fits.
const FILE_MAX_BYTES: u64 = 16 << 20;
/// How PKCS#12, as all in DER here, begins.
const DER_SEQUENCE: u8 = 0x30;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// What each end of a connection uses.
pub struct Credentials {
    pub client: Arc<ClientConfig>,
    pub server: Arc<ServerConfig>,
    pub noted: Noted,
}

/// What else is known of files that were read.
pub struct Noted {
    /// One sentence each.
    pub warnings: Vec<String>,
    /// When the first of our certificates and of the revocation lists ends, in seconds since 1970.
    pub until: u64,
}

/// A certificate with the certificates that lead to the CA, and its key.
struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

/// The CA's certificates.
struct Roots {
    store: RootCertStore,
    /// The CAs that are left out.
    gone: Vec<Name>,
}

/// What is wrong, in words that follow a file's name.
type Said<T> = std::result::Result<T, String>;

/// Reads all that the settings name. Nothing is left of passwords and keys except what rustls keeps.
pub fn read(settings: &TlsSettings) -> Result<Credentials> {
    let file = configuration(settings)?;
    wiping(|| Reader { settings, file: &file }.credentials())
}

/// Reads all that the settings name as [`read`] does, with these cipher suites, whatever the configuration says of
/// them.
#[cfg(test)]
pub fn read_with(settings: &TlsSettings, cipher_suites: Vec<SupportedCipherSuite>) -> Result<Credentials> {
    let file = configuration(settings)?;
    let provider = CryptoProvider { cipher_suites, ..rustls::crypto::ring::default_provider() };
    Reader { settings, file: &file }.credentials_by(provider, Vec::new())
}

/// What a process uses that only connects, and has no server's certificate; with the warnings.
pub fn client(settings: &TlsSettings) -> Result<(Arc<ClientConfig>, Noted)> {
    wiping(|| client_alone(settings))
}

fn client_alone(settings: &TlsSettings) -> Result<(Arc<ClientConfig>, Noted)> {
    let file = configuration(settings)?;
    let reader = Reader { settings, file: &file };
    let mut noted = Noted::new(Vec::new());
    let provider = Arc::new(reader.provider(&mut noted.warnings)?);
    let trust = reader.trust(&provider, &mut noted)?;
    let client = reader.client(provider, trust, &mut noted)?;
    Ok((client, noted))
}

/// Every file that the settings lead to, as far as they can be read.
pub fn files(settings: &TlsSettings) -> Vec<PathBuf> {
    let mut files = vec![settings.config_file.path.clone()];
    for lock in [&settings.client_lock, &settings.server_lock] {
        if let PasswordSource::File(file) = &lock.source {
            files.push(file.path.clone());
        }
    }
    if let Ok(TlsFile { server_cert, client_cert, ca_cert, crl, .. }) = configuration(settings) {
        let named = [server_cert, client_cert, ca_cert].into_iter().chain(crl);
        files.extend(named.map(|file| file.path));
    }
    files
}

fn configuration(settings: &TlsSettings) -> Result<TlsFile> {
    let path = &settings.config_file.path;
    let bytes =
        file::read(path, FILE_MAX_BYTES).map_err(|why| settings.error(&format!("{why}: expected a file in JSON")))?;
    let folder = path.parent().unwrap_or_else(|| Path::new(""));
    TlsFile::parse(&bytes, folder).map_err(|why| settings.error(&why))
}

impl Noted {
    fn new(warnings: Vec<String>) -> Noted {
        Noted { warnings, until: u64::MAX }
    }

    fn hears_of(&mut self, ends: impl Iterator<Item = u64>) {
        self.until = ends.fold(self.until, u64::min);
    }
}

struct Reader<'a> {
    settings: &'a TlsSettings,
    file: &'a TlsFile,
}

impl Reader<'_> {
    /// An error about a file that the configuration names.
    fn error(&self, file: &NamedFile, why: &str) -> Error {
        let NamedFile { key, path } = file;
        self.settings.error(&format!("has {key} \"{}\", which {why}", path.display()))
    }

    fn credentials(&self) -> Result<Credentials> {
        let mut warnings = self.unknown_keys();
        let provider = self.provider(&mut warnings)?;
        self.credentials_by(provider, warnings)
    }

    fn credentials_by(&self, provider: CryptoProvider, warnings: Vec<String>) -> Result<Credentials> {
        let (provider, mut noted) = (Arc::new(provider), Noted::new(warnings));
        let trust = self.trust(&provider, &mut noted)?;
        let server = self.server(Arc::clone(&provider), &trust, &mut noted)?;
        let client = self.client(provider, trust, &mut noted)?;
        Ok(Credentials { client, server, noted })
    }

    fn server(&self, provider: Arc<CryptoProvider>, trust: &Trust, noted: &mut Noted) -> Result<Arc<ServerConfig>> {
        let file = &self.file.server_cert;
        let own = self.own(file, &self.settings.server_lock)?;
        noted.warnings.extend(self.judge(file, |at| trust.judge_server(&own.chain, at))?);
        noted.hears_of(own.chain.iter().filter_map(end));
        let shown = self.shown(file, own, &provider)?;
        self.check_suites(file, &shown, &provider)?;
        let shown: Arc<SingleCertAndKey> = Arc::new(shown.into());
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&self.versions())
            .map_err(|error| self.unusable(&error))?
            .with_client_cert_verifier(Arc::clone(&trust.clients))
            .with_cert_resolver(shown);
        Ok(Arc::new(without_resumption(config)))
    }

    fn client(&self, provider: Arc<CryptoProvider>, trust: Trust, noted: &mut Noted) -> Result<Arc<ClientConfig>> {
        let file = &self.file.client_cert;
        let own = self.own(file, &self.settings.client_lock)?;
        let warning = self.judge(file, |at| trust.judge_client(&own.chain, at))?;
        noted.warnings.extend(warning.filter(|_| file.path != self.file.server_cert.path));
        noted.hears_of(own.chain.iter().filter_map(end));
        let shown: Arc<SingleCertAndKey> = Arc::new(self.shown(file, own, &provider)?.into());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&self.versions())
            .map_err(|error| self.unusable(&error))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(trust))
            .with_client_cert_resolver(shown);
        config.resumption = Resumption::disabled();
        config.enable_sni = false; // there is one certificate, and names need not go out in clear
        Ok(Arc::new(config))
    }

    /// A certificate of ours with the certificates that sign for it. It is kept as long as a connection may need it.
    fn shown(&self, file: &NamedFile, own: Identity, provider: &CryptoProvider) -> Result<CertifiedKey> {
        let shown = keeping(|| CertifiedKey::from_der(own.chain, own.key, provider));
        let CertifiedKey { cert, key, .. } = shown.map_err(|error| self.error(file, &mismatch(&error)))?;
        Ok(CertifiedKey::new(cert, Arc::new(WipingKey(key))))
    }

    /// Checks whether a server with this key can use any of the suites. Those of TLS 1.3 serve every key.
    fn check_suites(&self, file: &NamedFile, own: &CertifiedKey, provider: &CryptoProvider) -> Result<()> {
        let serves = |suite: &SupportedCipherSuite| ciphers::serves(suite, &*own.key);
        let Some((version, setting)) = &self.settings.version else { return Ok(()) };
        if provider.cipher_suites.iter().any(serves) {
            return Ok(());
        }
        let kind = own.cert.first().and_then(kind_of).unwrap_or_default();
        let (version, right) = (version.name(), ciphers::lasting(&self.versions(), serves).join(" or "));
        let NamedFile { key, path } = file;
        let why = format!(
            "has a cipher_list without a suite for the key ({kind}) of {key} \"{}\" under TLS {version}, the only version \
             that {setting} allows: expected {right}",
            path.display()
        );
        Err(self.settings.error(&why))
    }

    fn versions(&self) -> Vec<&'static SupportedProtocolVersion> {
        match self.settings.version {
            Some((TlsVersion::Tls12, _)) => vec![&TLS12],
            Some((TlsVersion::Tls13, _)) => vec![&TLS13],
            None => rustls::ALL_VERSIONS.to_vec(),
        }
    }

    fn unusable(&self, error: &rustls::Error) -> Error {
        self.settings.error(&format!("cannot be used: {error}"))
    }

    fn unknown_keys(&self) -> Vec<String> {
        match &self.file.unknown[..] {
            [] => Vec::new(),
            unknown => {
                let path = &self.settings.config_file.written;
                vec![format!("\"{path}\" has keys that have no effect: {}", unknown.join(", "))]
            }
        }
    }

    fn provider(&self, warnings: &mut Vec<String>) -> Result<CryptoProvider> {
        let mut provider = rustls::crypto::ring::default_provider();
        self.choose(&mut provider, warnings)?;
        let Some((version, setting)) = &self.settings.version else { return Ok(provider) };
        provider.cipher_suites.retain(|suite| self.versions().contains(&suite.version()) && ciphers::lasts(suite));
        if provider.cipher_suites.is_empty() {
            let (version, known) = (version.name(), ciphers::lasting(&self.versions(), |_| true).join(" or "));
            let why = format!(
                "has a cipher_list without a suite that can be used under TLS {version}, the only version that {setting} \
                 allows: expected {known}"
            );
            return Err(self.settings.error(&why));
        }
        Ok(provider)
    }

    /// The suites that the list names, if there is one.
    fn choose(&self, provider: &mut CryptoProvider, warnings: &mut Vec<String>) -> Result<()> {
        let Some(list) = &self.file.cipher_list else { return Ok(()) };
        let Some(chosen) = ciphers::choose(list) else {
            let known = ciphers::names().join(", ");
            let why = format!("has a cipher_list without a usable suite: expected at least one of {known}");
            return Err(self.settings.error(&why));
        };
        provider.cipher_suites = chosen.suites;
        if !chosen.unknown.is_empty() {
            let unknown = chosen.unknown.join(", ");
            warnings.push(format!("the cipher_list has names that stand for no usable suite: {unknown}"));
        }
        Ok(())
    }

    fn trust(&self, provider: &Arc<CryptoProvider>, noted: &mut Noted) -> Result<Trust> {
        let Roots { store, gone } = self.roots(&mut noted.warnings)?;
        let revoked = match &self.file.crl {
            Some(list) => self.revoked(list, &gone, &mut noted.warnings)?,
            None => Vec::new(),
        };
        noted.hears_of(revoked.iter().filter_map(end_of_list));
        Trust::new(store, revoked, provider).map_err(|error| match (&self.file.crl, error) {
            (Some(list), VerifierBuilderError::InvalidCrl(why)) => self.error(list, &of_list(&why)),
            (_, error) => self.error(&self.file.ca_cert, &format!("cannot be used: {error}")),
        })
    }

    /// The CA's certificates. A certificate that is not valid now is left out if there are others: a file may hold the
    /// next CA beside the last. A certificate that is not a CA's is left out, too. Its key could sign for any name here, and
    /// so its owner could take another node's id. A self-signed certificate is no exception: rustls would let it sign others.
    fn roots(&self, warnings: &mut Vec<String>) -> Result<Roots> {
        let file = &self.file.ca_cert;
        let found = pem::certificates(&self.read(file)?).map_err(|why| self.error(file, &why))?;
        let (now, mut store, mut left_out) = (UnixTime::now().as_secs(), RootCertStore::empty(), Vec::new());
        let (mut here, mut gone) = (Vec::new(), Vec::new());
        for certificate in found {
            let says_so = is_ca(&certificate);
            let whose = || subject(&certificate).map(|name| name.to_string()).unwrap_or_default();
            if says_so == Some(false) {
                let whose = whose();
                left_out.push(format!(
                    "has a certificate of \"{whose}\" that is not a CA's (it lacks basicConstraints=CA:TRUE)"
                ));
                continue;
            }
            let name = subject(&certificate);
            if let Some(why) = out_of_time(&certificate, now) {
                left_out.push(format!("has a CA certificate that {why}"));
                gone.extend(name);
                continue;
            }
            if let Some(kind) = useless_key(&certificate, Use::Ca) {
                let right = Use::Ca.right_key();
                return Err(self.error(file, &format!("has a CA whose key ({kind}) cannot be used: expected {right}")));
            }
            if says_so.is_none() {
                warnings.push(of_version_1(file, &whose()));
            }
            here.extend(name);
            store.add(certificate).map_err(|error| {
                self.error(file, &format!("has a certificate that cannot be used: {}", sentence(&error)))
            })?;
        }
        if let (true, Some(why)) = (store.is_empty(), left_out.first()) {
            return Err(self.error(file, &format!("{why}: expected a CA's certificate that is valid now")));
        }
        warnings.extend(left_out.iter().map(|why| without(file, why)));
        gone.retain(|name| !here.contains(name)); // a CA's certificate may have been renewed
        Ok(Roots { store, gone })
    }

    /// The revocation lists that count, where these CAs are left out.
    fn revoked(
        &self,
        file: &NamedFile,
        gone: &[Name],
        warnings: &mut Vec<String>,
    ) -> Result<Vec<CertificateRevocationListDer<'static>>> {
        let read = pem::lists(&self.read(file)?);
        let now = UnixTime::now().as_secs();
        let Lists { counting, left_out } =
            read.and_then(|found| lists::counting(found, gone, now)).map_err(|why| self.error(file, &why))?;
        warnings.extend(left_out.iter().map(|why| without(file, why)));
        Ok(counting)
    }

    fn read(&self, file: &NamedFile) -> Result<Vec<u8>> {
        file::read(&file.path, FILE_MAX_BYTES).map_err(|why| self.error(file, &why))
    }

    /// A certificate of ours, with its key.
    fn own(&self, file: &NamedFile, lock: &Lock) -> Result<Identity> {
        let bytes = self.read(file)?;
        let password = password(lock)?;
        let own = identity(&bytes, password.as_ref(), &lock.setting).map_err(|why| self.error(file, &why))?;
        for (nth, certificate) in own.chain.iter().enumerate() {
            let (whose, used) = if nth == 0 { ("a certificate", Use::Own) } else { ("a CA's certificate", Use::Ca) };
            if let Some(kind) = useless_key(certificate, used) {
                let right = used.right_key();
                return Err(
                    self.error(file, &format!("has {whose} whose key ({kind}) cannot be used: expected {right}"))
                );
            }
        }
        self.check_own_id(file, &own)?;
        Ok(own)
    }

    /// Checks whether a certificate of ours carries our node id, if that is demanded.
    fn check_own_id(&self, file: &NamedFile, own: &Identity) -> Result<()> {
        let NameChecks { node_ids: Some(setting), own_id: Some(id), .. } = &self.settings.names else { return Ok(()) };
        let uris = own.chain.first().map(names::uris).unwrap_or_default();
        names::check(&uris, id).map_err(|has| {
            let wanted = format!("the name URI:{} for this node ({setting})", names::uri(id));
            let command = format!("muster certs node DIR --node_id={}", shell_word(id));
            self.error(file, &format!("has a certificate with {has}: expected {wanted} (make it with: {command})"))
        })
    }

    /// Judges whether others will accept a certificate of ours, now and for some days. Returns the error or the
    /// warning.
    fn judge(
        &self,
        file: &NamedFile,
        judge: impl Fn(UnixTime) -> std::result::Result<(), rustls::Error>,
    ) -> Result<Option<String>> {
        let now = UnixTime::now();
        judge(now).map_err(|error| match (&error, &self.file.crl) {
            (rustls::Error::InvalidCertRevocationList(why), Some(list)) => self.error(list, &of_list(why)),
            _ => self.error(file, &format!("others will not take: {}", sentence(&error))),
        })?;
        let ahead = |days: u32| UnixTime::since_unix_epoch(Duration::from_secs(now.as_secs()) + DAY * days);
        let days = self.file.warning_days;
        let Err(rustls::Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) =
            judge(ahead(days))
        else {
            return Ok(None);
        };
        let left = not_after.as_secs().saturating_sub(now.as_secs()) / DAY.as_secs();
        let NamedFile { key, path } = file;
        Ok(Some(format!("the certificate of {key} (\"{}\") ends in {left} days: renew it", path.display())))
    }
}

/// The text as a shell takes it.
fn shell_word(text: &str) -> String {
    match text.chars().all(|letter| letter.is_ascii_alphanumeric() || "-._".contains(letter)) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

/// Forbids the resumption of sessions: it would show no certificate, so one that has ended or is revoked meanwhile
/// would pass.
fn without_resumption(mut config: ServerConfig) -> ServerConfig {
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config
}

/// The reason why a certificate and its key cannot be used.
fn mismatch(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InconsistentKeys(_) => {
            "has a key that does not belong to its first certificate: expected the node's own certificate first, then \
             those that lead to the CA"
                .to_owned()
        }
        other => format!("has a key that cannot be used ({other}): expected {}", Use::Own.right_key()),
    }
}

fn of_version_1(file: &NamedFile, whose: &str) -> String {
    let what = "of X.509 version 1, which cannot say whether it is a CA's: it counts as one. Expected version 3 (openssl req -x509 ...)";
    format!("{} (\"{}\") has a certificate of \"{whose}\" {what}", file.key, file.path.display())
}

/// A warning that a part of this file is left out.
fn without(file: &NamedFile, why: &str) -> String {
    format!("{} (\"{}\") {why}: it is left out", file.key, file.path.display())
}

/// Reads a certificate and its key from PEM or PKCS#12.
fn identity(bytes: &[u8], password: Option<&Password>, setting: &str) -> Said<Identity> {
    let unlocked = |wrong: Wrong| wrong.told(password.is_some(), setting);
    let password = password.map_or("", Password::reveal);
    if !is_pem(bytes) {
        neither(bytes)?;
        return of_pkcs12(pkcs12::open(bytes, password).map_err(unlocked)?);
    }
    let chain = pem::certificates(bytes)?;
    let key = match (pem::all(bytes)?.next(), encrypted_key(bytes)?) {
        (Some(key), _) => key,
        (None, Some(sealed)) => private_key(pkcs12::open_key(&sealed, password).map_err(unlocked)?)?,
        (None, None) => return Err(without_key(&chain)),
    };
    Ok(Identity { chain, key })
}

/// Names what is not PEM, and at the first look no PKCS#12 either.
fn neither(bytes: &[u8]) -> Said<()> {
    let what = match bytes {
        blank if blank.trim_ascii().is_empty() => "is empty",
        [DER_SEQUENCE, ..] if subject(&CertificateDer::from(bytes)).is_some() => {
            "is a certificate in DER, without a key"
        }
        [DER_SEQUENCE, ..] => return Ok(()),
        _ => "is neither PEM nor PKCS#12",
    };
    Err(format!("{what}: expected a certificate and its key, in PEM or PKCS#12"))
}

fn of_pkcs12(opened: Opened) -> Said<Identity> {
    let Opened { certificates, mut keys, .. } = opened;
    match (certificates.is_empty(), keys.len()) {
        (true, _) => Err("has no certificate in it".to_owned()),
        (false, 0 | 1) => {
            let chain: Vec<CertificateDer<'static>> = certificates.into_iter().map(CertificateDer::from).collect();
            let key = keys.pop().ok_or_else(|| without_key(&chain))?;
            Ok(Identity { chain, key: private_key(key)? })
        }
        (false, many) => Err(format!("has {many} keys in it: expected one")),
    }
}

/// What is wrong with a file that has these certificates, and no key.
fn without_key(chain: &[CertificateDer<'_>]) -> String {
    match chain.iter().all(|certificate| is_ca(certificate) == Some(true)) {
        true => "has a CA's certificate, and no key: expected the process's own certificate with its key (a CA's belongs into \
                 ca_cert_path)"
            .to_owned(),
        false => "has a certificate, but no key: expected both in one file".to_owned(),
    }
}

fn private_key(bytes: Vec<u8>) -> Said<PrivateKeyDer<'static>> {
    PrivateKeyDer::try_from(bytes).map_err(|why| format!("has a key that is not right: {why}"))
}

#[cfg(test)]
#[path = "credentials_test.rs"]
mod tests;
