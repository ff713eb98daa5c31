//! A certificate with its key, and what it says of itself.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::sign::CertifiedKey;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::error::Error;
use super::files::Files;
use super::provider;

/// Where a certificate and its key are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The file of the certificate and those that certify it, in this order (PEM).
    pub chain: PathBuf,
    /// The file of its private key (PEM).
    pub key: PathBuf,
}

/// When a certificate ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateExpiry {
    /// Its first DNS name; when it has none, its number in the configuration, from 0.
    pub certificate: String,
    /// The last second of its validity, Unix time.
    pub not_after: i64,
}

/// A certificate that can be shown.
#[derive(Debug)]
pub(super) struct Certificate {
    pub(super) key: Arc<CertifiedKey>,
    /// Its DNS names, in lower case; wildcards begin with `*.`.
    pub(super) names: Vec<String>,
    pub(super) not_after: i64,
}

impl CertificateFiles {
    /// True if the files hold a certificate and its key, now.
    ///
    /// # Errors
    /// [`Error`] when they do not.
    pub fn check(&self) -> Result<(), Error> {
        Certificate::load(self, &Files::read(self.files())).map(drop)
    }

    pub(super) fn files(&self) -> [&Path; 2] {
        [&self.chain, &self.key]
    }
}

impl Certificate {
    /// The certificate and its key, which is its own.
    pub(super) fn load(pair: &CertificateFiles, files: &Files) -> Result<Self, Error> {
        let chain = files.certificates(&pair.chain)?;
        let key = files.private_key(&pair.key)?;
        let (names, not_after) =
            read(&chain[0]).map_err(|source| Error::Malformed { path: pair.chain.clone(), source })?;
        let key = CertifiedKey::from_der(chain, key, &provider()).map_err(|source| Error::KeyMismatch {
            chain: pair.chain.clone(),
            key: pair.key.clone(),
            source,
        })?;
        Ok(Self { key: Arc::new(key), names, not_after })
    }
}

/// The DNS names and the end of a certificate.
fn read(der: &[u8]) -> Result<(Vec<String>, i64), x509_parser::error::X509Error> {
    let (_, certificate) = X509Certificate::from_der(der)?;
    let names = certificate.subject_alternative_name()?;
    let names = names.iter().flat_map(|names| &names.value.general_names).filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        _ => None,
    });
    Ok((names.collect(), certificate.validity().not_after.timestamp()))
}
