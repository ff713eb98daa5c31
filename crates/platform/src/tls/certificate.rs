//! Certificates with their private keys.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::sign::CertifiedKey;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::error::Error;
use super::files::FileContents;
use super::provider::provider;

/// The files of a certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The file of the certificate and those that certify it, in this order (PEM).
    pub chain: PathBuf,
    /// The file of its private key (PEM, not encrypted).
    pub key: PathBuf,
}

/// The end of a certificate's validity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateExpiry {
    /// The certificate's first DNS name; if it has none, its number in the configuration, from 0.
    pub certificate: String,
    /// The last second of its validity, Unix time.
    pub not_after: i64,
}

/// A certificate that can be presented.
#[derive(Debug)]
pub(super) struct Certificate {
    pub(super) key: Arc<CertifiedKey>,
    /// Its DNS names, in lower case; wildcards begin with `*.`.
    pub(super) names: Vec<String>,
    /// The last second of its validity, Unix time.
    pub(super) not_after: i64,
}

impl CertificateFiles {
    /// Checks that the files hold a certificate and its key, now.
    ///
    /// # Errors
    /// [`Error`] when they do not.
    pub fn check(&self) -> Result<(), Error> {
        Certificate::load(self, &FileContents::read(self.paths())).map(drop)
    }

    pub(super) fn paths(&self) -> [&Path; 2] {
        [&self.chain, &self.key]
    }
}

impl Certificate {
    /// Loads a certificate and its key, and checks that they belong together.
    pub(super) fn load(paths: &CertificateFiles, files: &FileContents) -> Result<Self, Error> {
        let chain = files.certificates(&paths.chain)?;
        let key = files.private_key(&paths.key)?;
        let (names, not_after) =
            parse(&chain[0]).map_err(|source| Error::Malformed { path: paths.chain.clone(), source })?;
        let key = CertifiedKey::from_der(chain, key, &provider()).map_err(|source| Error::KeyMismatch {
            chain: paths.chain.clone(),
            key: paths.key.clone(),
            source,
        })?;
        Ok(Self { key: Arc::new(key), names, not_after })
    }
}

/// Parses the DNS names and the end of a certificate.
fn parse(der: &[u8]) -> Result<(Vec<String>, i64), x509_parser::error::X509Error> {
    let (_, certificate) = X509Certificate::from_der(der)?;
    let names = certificate.subject_alternative_name()?;
    let names = names.iter().flat_map(|names| &names.value.general_names).filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        _ => None,
    });
    Ok((names.collect(), certificate.validity().not_after.timestamp()))
}
