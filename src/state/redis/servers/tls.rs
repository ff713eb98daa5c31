//! Encrypted connections to the servers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use crate::state::redis::settings::Tls;

/// Why encrypted connections cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file with certificates or a key cannot be read as such.
    #[error("{path}: cannot be read as PEM")]
    Pem {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    /// A file has no certificate.
    #[error("{0}: has no certificate")]
    Empty(PathBuf),
    /// The certificates, or the certificate with its key, are of no use.
    #[error("the certificates cannot be used")]
    Unusable(#[from] rustls::Error),
    /// The system has no certificates.
    #[error("the system has no certificate authorities; install them, or name a file as `tls: {{ ca: … }}`")]
    NoSystem,
}

/// A connector that believes the configured authorities and shows the configured certificate.
pub(super) fn connector(tls: &Tls) -> Result<TlsConnector, TlsError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots(tls.ca.as_deref())?);
    let config = match &tls.identity {
        Some((chain, key)) => config.with_client_auth_cert(certificates(chain)?, private_key(key)?)?,
        None => config.with_no_client_auth(),
    };
    Ok(TlsConnector::from(Arc::new(config)))
}

fn roots(ca: Option<&Path>) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    match ca {
        Some(path) => {
            for certificate in certificates(path)? {
                roots.add(certificate)?;
            }
        }
        None => {
            let (added, _) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if added == 0 {
                return Err(TlsError::NoSystem);
            }
        }
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = |source| TlsError::Pem { path: path.to_owned(), source };
    let certificates: Vec<_> =
        CertificateDer::pem_file_iter(path).map_err(pem)?.collect::<Result<_, _>>().map_err(pem)?;
    if certificates.is_empty() { Err(TlsError::Empty(path.to_owned())) } else { Ok(certificates) }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(|source| TlsError::Pem { path: path.to_owned(), source })
}
