//! The server's side: one listener's TLS, as it is configured and as it is made.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ProducesTickets, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, SupportedProtocolVersion};
use sha2::{Digest as _, Sha256};

use super::certificate::{Certificate, CertificateExpiry, CertificateFiles};
use super::error::Error;
use super::files::Files;
use super::provider;
use super::resolver::Names;
use super::tickets::SharedTickets;
use crate::secret::Secret;

/// What we speak, the preferred one first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// How a listener is encrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSettings {
    /// Its certificates, at least one; the first is for clients that ask for no name that any of them has.
    pub certificates: Vec<CertificateFiles>,
    /// Who clients must be certified by; none when they are not asked.
    pub client_auth: Option<ClientAuth>,
    /// The lowest version that is spoken.
    pub minimum: Version,
    /// What the keys of session tickets are derived from, shared by all instances; none for keys of this process alone.
    pub ticket_key: Option<Secret>,
}

/// Who clients must be certified by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAuth {
    /// The file of the authorities' certificates (PEM).
    pub ca: PathBuf,
    /// True if a client without a certificate is refused.
    pub required: bool,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// RFC 5246.
    Tls12,
    /// RFC 8446.
    Tls13,
}

/// What is made of the settings and the files.
pub(super) struct Made {
    pub(super) settings: ServerSettings,
    pub(super) config: Arc<ServerConfig>,
    pub(super) expiries: Vec<CertificateExpiry>,
    /// What sessions depend on beside the handshake: with another one, none is resumed.
    policy: [u8; 32],
}

impl ServerSettings {
    /// All files, each once.
    pub(super) fn files(&self) -> Vec<&Path> {
        let ca = self.client_auth.iter().map(|auth| auth.ca.as_path());
        let mut files: Vec<&Path> = self.certificates.iter().flat_map(CertificateFiles::files).chain(ca).collect();
        files.sort_unstable();
        files.dedup();
        files
    }
}

impl ClientAuth {
    /// True if the file holds authorities by which clients can be verified, now.
    ///
    /// # Errors
    /// [`Error`] when it does not.
    pub fn check(&self) -> Result<(), Error> {
        self.verifier(&Files::read([self.ca.as_path()])).map(drop)
    }

    fn verifier(&self, files: &Files) -> Result<Arc<dyn ClientCertVerifier>, Error> {
        let roots = Arc::new(files.authorities(&self.ca)?);
        let builder = WebPkiClientVerifier::builder_with_provider(roots, provider());
        let builder = if self.required { builder } else { builder.allow_unauthenticated() };
        builder.build().map_err(|source| Error::Verifier { path: self.ca.clone(), source })
    }
}

impl Version {
    fn and_later(self) -> Vec<&'static SupportedProtocolVersion> {
        match self {
            Self::Tls12 => vec![&TLS13, &TLS12],
            Self::Tls13 => vec![&TLS13],
        }
    }
}

impl Made {
    /// Reads the files and makes everything anew, but for the ticket keys of `before`, which go on.
    pub(super) fn of(settings: &ServerSettings, files: &Files, before: Option<&Self>) -> Result<Self, Error> {
        let certificates = certificates(settings, files)?;
        let names = Names::new(&certificates).ok_or(Error::NoCertificates)?;
        let policy = policy(settings, files)?;
        let builder =
            ServerConfig::builder_with_provider(provider()).with_protocol_versions(&settings.minimum.and_later())?;
        let builder = match &settings.client_auth {
            Some(auth) => builder.with_client_cert_verifier(auth.verifier(files)?),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_cert_resolver(Arc::new(names));
        config.alpn_protocols = PROTOCOLS.iter().map(|protocol| protocol.to_vec()).collect();
        // Sessions are in tickets only: what clients carry costs us no memory, and no instance has to know of another.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.ticketer = ticketer(settings, policy, before)?;
        config.max_early_data_size = 0;
        Ok(Self {
            settings: settings.clone(),
            config: Arc::new(config),
            expiries: certificates.iter().enumerate().map(expiry).collect(),
            policy,
        })
    }
}

fn certificates(settings: &ServerSettings, files: &Files) -> Result<Vec<Certificate>, Error> {
    let mut certificates = Vec::new();
    for pair in &settings.certificates {
        let certificate = Certificate::load(pair, files)?;
        if !certificates.is_empty() && certificate.names.is_empty() {
            return Err(Error::MissingName(pair.chain.clone()));
        }
        certificates.push(certificate);
    }
    Ok(certificates)
}

fn expiry((number, certificate): (usize, &Certificate)) -> CertificateExpiry {
    let name = certificate.names.first().cloned().unwrap_or_else(|| number.to_string());
    CertificateExpiry { certificate: name, not_after: certificate.not_after }
}

/// A digest of who clients must be.
///
/// A session that is resumed shows no certificate again. So tickets are good only where the same is asked of clients:
/// not at a listener that asks for more, and not after an authority was removed.
fn policy(settings: &ServerSettings, files: &Files) -> Result<[u8; 32], Error> {
    let mut digest = Sha256::new();
    if let Some(auth) = &settings.client_auth {
        digest.update(if auth.required { b"required" } else { b"optional" });
        for certificate in files.certificates(&auth.ca)? {
            digest.update(Sha256::digest(&certificate));
        }
    }
    Ok(digest.finalize().into())
}

fn ticketer(
    settings: &ServerSettings,
    policy: [u8; 32],
    before: Option<&Made>,
) -> Result<Arc<dyn ProducesTickets>, Error> {
    if let Some(secret) = &settings.ticket_key {
        return Ok(Arc::new(SharedTickets::new(secret, policy)));
    }
    match before.filter(|before| before.policy == policy && before.settings.ticket_key.is_none()) {
        Some(before) => Ok(Arc::clone(&before.config.ticketer)),
        None => Ok(Ticketer::new()?),
    }
}
