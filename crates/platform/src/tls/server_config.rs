//! TLS settings of a listener, and the configuration that is built of them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ProducesTickets, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, ServerConfig, SupportedProtocolVersion};
use sha2::{Digest as _, Sha256};

use super::certificate::{Certificate, CertificateExpiry, CertificateFiles, Validity};
use super::error::Error;
use super::files::FileContents;
use super::provider::{is_chacha, provider};
use super::resolver::CertificateResolver;
use super::tickets::SharedTicketer;
use domain::secret::Secret;

/// The protocols that listeners speak (ALPN), the preferred one first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// TLS settings of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSettings {
    /// The certificates, at least one. The first is for clients that ask for a name that none has.
    pub certificates: Vec<CertificateFiles>,
    /// Authentication of clients by certificates; `None` when no certificate is requested.
    pub client_auth: Option<ClientAuth>,
    /// The lowest version that is accepted.
    pub minimum: Version,
    /// The secret that the keys of session tickets are derived from, shared by all instances. `None` for random keys of
    /// this process alone.
    pub ticket_key: Option<Secret>,
}

/// Authentication of clients by certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAuth {
    /// The file of the authorities (PEM) that certify clients.
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

/// Configuration built of the settings and the contents of their files.
pub(super) struct BuiltServerConfig {
    pub(super) settings: ServerSettings,
    /// For clients that get the suite that this side prefers.
    pub(super) config: Arc<ServerConfig>,
    /// The same, for clients that get the suite that they prefer.
    by_client_order: Arc<ServerConfig>,
    pub(super) expiries: Vec<CertificateExpiry>,
    /// Validity of the certificates, in the order of the settings.
    validities: Vec<Validity>,
    /// Digest of the client authentication, see [`digest_policy`].
    policy: [u8; 32],
}

impl ServerSettings {
    /// The paths of all files, each once.
    pub(super) fn paths(&self) -> Vec<&Path> {
        let ca = self.client_auth.iter().map(|auth| auth.ca.as_path());
        let mut paths: Vec<&Path> = self.certificates.iter().flat_map(CertificateFiles::paths).chain(ca).collect();
        paths.sort_unstable();
        paths.dedup();
        paths
    }
}

impl ClientAuth {
    /// Checks that the file holds authorities by which clients can be verified, now.
    ///
    /// # Errors
    /// [`Error`] when it does not.
    pub fn check(&self) -> Result<(), Error> {
        self.verifier(&FileContents::read([self.ca.as_path()])).map(drop)
    }

    fn verifier(&self, files: &FileContents) -> Result<Arc<dyn ClientCertVerifier>, Error> {
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

impl BuiltServerConfig {
    /// Builds the configuration. `active` is the one that it replaces, whose ticket keys it keeps if it may.
    pub(super) fn build(settings: &ServerSettings, files: &FileContents, active: Option<&Self>) -> Result<Self, Error> {
        let certificates = load_certificates(settings, files)?;
        for (number, (certificate, paths)) in certificates.iter().zip(&settings.certificates).enumerate() {
            let replaced = active.and_then(|active| active.validity_of_replaced(number, settings));
            certificate.validity.check_replacement(replaced, &paths.chain)?;
        }
        let resolver = CertificateResolver::new(&certificates).ok_or(Error::NoCertificates)?;
        let policy = digest_policy(settings, files)?;
        let builder =
            ServerConfig::builder_with_provider(provider()).with_protocol_versions(&settings.minimum.and_later())?;
        let builder = match &settings.client_auth {
            Some(auth) => builder.with_client_cert_verifier(auth.verifier(files)?),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_cert_resolver(Arc::new(resolver));
        config.alpn_protocols = PROTOCOLS.iter().map(|protocol| protocol.to_vec()).collect();
        // Sessions are in tickets alone: clients keep them, so they cost no memory and instances need not share any.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.ticketer = ticketer(settings, policy, active)?;
        // A resumed session brings the ticket for the next one.
        config.send_tls13_tickets = 1;
        // Early data can be replayed.
        config.max_early_data_size = 0;
        let by_client_order = Arc::new(config.clone());
        config.ignore_client_order = true;
        Ok(Self {
            settings: settings.clone(),
            config: Arc::new(config),
            by_client_order,
            expiries: certificates.iter().enumerate().map(expiry).collect(),
            validities: certificates.iter().map(|certificate| certificate.validity).collect(),
            policy,
        })
    }

    /// Validity of the certificate that another one replaces: of the same file, or in the same place, if that file is
    /// named no more.
    fn validity_of_replaced(&self, number: usize, new: &ServerSettings) -> Option<Validity> {
        let (old, new) = (&self.settings.certificates, &new.certificates);
        let is_of = |files: &CertificateFiles| files.chain == new[number].chain;
        let is_gone = || new.iter().all(|files| old.get(number).is_some_and(|old| old.chain != files.chain));
        let place = old.iter().position(is_of).or_else(|| is_gone().then_some(number))?;
        self.validities.get(place).copied()
    }

    /// The configuration for a client that offers these suites. The first of them that both have decides: where it is
    /// ChaCha20, AES would be slow for the client.
    pub(super) fn for_client(&self, offered: &[CipherSuite]) -> &Arc<ServerConfig> {
        let own = &self.config.crypto_provider().cipher_suites;
        let first = offered.iter().find(|suite| own.iter().any(|own| own.suite() == **suite));
        if first.is_some_and(|suite| is_chacha(*suite)) { &self.by_client_order } else { &self.config }
    }
}

fn load_certificates(settings: &ServerSettings, files: &FileContents) -> Result<Vec<Certificate>, Error> {
    let mut certificates = Vec::new();
    for paths in &settings.certificates {
        let certificate = Certificate::load(paths, files)?;
        // The first is also for clients that send no name.
        if !certificates.is_empty() && certificate.names.is_empty() {
            return Err(Error::MissingName(paths.chain.clone()));
        }
        certificates.push(certificate);
    }
    Ok(certificates)
}

fn expiry((number, certificate): (usize, &Certificate)) -> CertificateExpiry {
    let name = certificate.names.first().cloned().unwrap_or_else(|| number.to_string());
    CertificateExpiry { certificate: name, not_after: certificate.validity.not_after }
}

/// Digests the client authentication.
///
/// A resumed session presents no certificate again. So its ticket is good only under the same client authentication:
/// not at a listener that requires more, and not after an authority was removed.
fn digest_policy(settings: &ServerSettings, files: &FileContents) -> Result<[u8; 32], Error> {
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
    active: Option<&BuiltServerConfig>,
) -> Result<Arc<dyn ProducesTickets>, Error> {
    if let Some(secret) = &settings.ticket_key {
        return Ok(Arc::new(SharedTicketer::new(secret, policy)));
    }
    // Random keys outlive a change of certificates, but not of the client authentication.
    match active.filter(|active| active.policy == policy && active.settings.ticket_key.is_none()) {
        Some(active) => Ok(Arc::clone(&active.config.ticketer)),
        None => Ok(Ticketer::new()?),
    }
}
