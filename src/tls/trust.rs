//! Whether a certificate is accepted: signed by the CA, begun and not ended, not revoked. The rule is the same for both
//! ends of a connection.
//!
//! A certificate need not have a name, unless one is demanded of the server that was dialled.

use super::names::nobody;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{VerifierBuilderError, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::WebPkiClientVerifier;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::sync::Arc;

/// Judges the certificates of others.
#[derive(Clone, Debug)]
pub struct Trust {
    pub clients: Arc<dyn ClientCertVerifier>,
    servers: Arc<WebPkiServerVerifier>,
}

impl Trust {
    pub fn new(
        roots: RootCertStore,
        revoked: Vec<CertificateRevocationListDer<'static>>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Trust, VerifierBuilderError> {
        let roots = Arc::new(roots);
        let servers = WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(provider))
            .with_crls(revoked.iter().cloned())
            .only_check_end_entity_revocation()
            .enforce_revocation_expiration();
        let clients = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider))
            .with_crls(revoked)
            .only_check_end_entity_revocation()
            .enforce_revocation_expiration();
        Ok(Trust { clients: clients.build()?, servers: servers.build()? })
    }

    /// Whether others would accept this certificate of a client at this time.
    pub fn judge_client(&self, chain: &[CertificateDer<'_>], at: UnixTime) -> Result<(), Error> {
        let Some((own, rest)) = chain.split_first() else { return Err(Error::NoCertificatesPresented) };
        self.clients.verify_client_cert(own, rest, at).map(drop)
    }

    /// Whether others would accept this certificate of a server at this time.
    pub fn judge_server(&self, chain: &[CertificateDer<'_>], at: UnixTime) -> Result<(), Error> {
        let Some((own, rest)) = chain.split_first() else { return Err(Error::NoCertificatesPresented) };
        self.verify_server_cert(own, rest, &nobody(), &[], at).map(drop)
    }
}

impl ServerCertVerifier for Trust {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.servers.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            // rustls checks the name last.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if *server_name == nobody() => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.servers.verify_tls12_signature(message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.servers.verify_tls13_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.servers.supported_verify_schemes()
    }
}
