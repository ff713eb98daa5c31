//! The client's side: whom we believe, and who we are.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, RootCertStore};

use super::certificate::{Certificate, CertificateFiles};
use super::error::Error;
use super::files::Files;
use super::provider;
use super::server_tls::Offer;

/// Whom we believe, and who we are, when we connect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientSettings {
    /// The file of the certificates (PEM) that servers must be certified by; none for those the system trusts.
    pub ca: Option<PathBuf>,
    /// Our own certificate, for servers that ask for one.
    pub identity: Option<CertificateFiles>,
}

impl ClientSettings {
    /// The configuration of connections that agree on no protocol (ALPN).
    ///
    /// # Errors
    /// [`Error`] when a file is of no use.
    pub fn config(&self) -> Result<Arc<ClientConfig>, Error> {
        Ok(self.make(&self.read(), &[])?.config)
    }

    pub(super) fn read(&self) -> Files {
        Files::read(self.ca.iter().map(PathBuf::as_path).chain(self.identity.iter().flat_map(CertificateFiles::files)))
    }

    pub(super) fn make(&self, files: &Files, protocols: &[&[u8]]) -> Result<Offer, Error> {
        let config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots(self.ca.as_deref(), files)?);
        let own = self.identity.as_ref().map(|pair| Certificate::load(pair, files)).transpose()?;
        let not_after = own.as_ref().map(|own| own.not_after);
        let mut config = match own {
            Some(own) => config.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(own.key))),
            None => config.with_no_client_auth(),
        };
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(Offer { config: Arc::new(config), not_after })
    }
}

fn roots(ca: Option<&Path>, files: &Files) -> Result<RootCertStore, Error> {
    let Some(path) = ca else { return system_roots() };
    files.authorities(path)
}

fn system_roots() -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if added == 0 { Err(Error::NoSystemRoots) } else { Ok(roots) }
}
