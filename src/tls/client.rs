//! The client's side: whom we believe, and who we are.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, RootCertStore};

use super::certificate::{Certificate, Pair};
use super::error::Error;
use super::files::Files;
use super::provider;

/// Whom we believe, and who we are, when we connect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientSettings {
    /// The file of the certificates (PEM) that servers must be certified by; none for those the system trusts.
    pub ca: Option<PathBuf>,
    /// Our own certificate, for servers that ask for one.
    pub identity: Option<Pair>,
}

impl ClientSettings {
    /// The configuration of connections that speak one of these protocols (ALPN); with none of them, any.
    ///
    /// # Errors
    /// [`Error`] when a file is of no use.
    pub fn config(&self, protocols: &[&[u8]]) -> Result<Arc<ClientConfig>, Error> {
        let paths = self.ca.iter().map(PathBuf::as_path).chain(self.identity.iter().flat_map(Pair::files));
        let files = Files::read(paths);
        let config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots(self.ca.as_deref(), &files)?);
        let mut config = match &self.identity {
            Some(pair) => {
                let key = Certificate::load(pair, &files)?.key;
                config.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(key)))
            }
            None => config.with_no_client_auth(),
        };
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(Arc::new(config))
    }
}

fn roots(ca: Option<&Path>, files: &Files) -> Result<RootCertStore, Error> {
    let Some(path) = ca else { return system_roots() };
    files.authorities(path)
}

fn system_roots() -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if added == 0 { Err(Error::NoSystem) } else { Ok(roots) }
}
