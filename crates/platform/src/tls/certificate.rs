//! Certificates with their private keys.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::InconsistentKeys;
use rustls::sign::CertifiedKey;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::error::Error;
use super::explanation::{Explanation, RENEW, WAIT, explain, seconds};
use super::files::FileContents;
use super::provider::provider;
use domain::clock;

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

/// Time in which a certificate is valid, in Unix seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Validity {
    /// First second.
    pub(super) not_before: i64,
    /// Last second.
    pub(super) not_after: i64,
}

/// A certificate that can be presented.
#[derive(Debug)]
pub(super) struct Certificate {
    pub(super) key: Arc<CertifiedKey>,
    /// Its DNS names, in lower case; wildcards begin with `*.`.
    pub(super) names: Vec<String>,
    pub(super) validity: Validity,
}

impl Validity {
    /// The flaw that it has at a Unix time.
    pub(super) fn flaw(self, now: i64) -> Option<Explanation> {
        let at = |time: i64| seconds(u64::try_from(time).unwrap_or_default());
        if now > self.not_after {
            return Some(Explanation::new(format!("expired at {}", at(self.not_after)), RENEW));
        }
        let is_early = now < self.not_before;
        is_early.then(|| Explanation::new(format!("not valid before {}", at(self.not_before)), WAIT))
    }

    /// Checks that a certificate is valid now, unless the one that it replaces is not either.
    ///
    /// # Errors
    /// [`Error::Outdated`].
    pub(super) fn check_replacement(self, of: Option<Self>, path: &Path) -> Result<(), Error> {
        let now = clock::now().0.cast_signed() / 1_000_000;
        let is_valid_before = of.is_some_and(|active| active.flaw(now).is_none());
        match self.flaw(now).filter(|_| is_valid_before) {
            Some(explanation) => Err(Error::Outdated { path: path.to_owned(), explanation }),
            None => Ok(()),
        }
    }
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
        let (names, validity) = parse(&chain[0]).map_err(|_| Error::Malformed(paths.chain.clone()))?;
        let unusable = |_| Error::UnusableKey(paths.key.clone());
        let key = CertifiedKey::new(chain, provider().key_provider.load_private_key(key).map_err(unusable)?);
        match key.keys_match() {
            // A key that does not show its public key may be the certificate's.
            Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
            Err(rustls::Error::InconsistentKeys(_)) => {
                return Err(Error::KeyMismatch { chain: paths.chain.clone(), key: paths.key.clone() });
            }
            Err(error) => return Err(Error::Certificate { path: paths.chain.clone(), explanation: explain(&error) }),
        }
        Ok(Self { key: Arc::new(key), names, validity })
    }
}

/// Parses the DNS names of a certificate, and the time in which it is valid.
fn parse(der: &[u8]) -> Result<(Vec<String>, Validity), x509_parser::error::X509Error> {
    let (_, certificate) = X509Certificate::from_der(der)?;
    let names = certificate.subject_alternative_name()?;
    let names = names.iter().flat_map(|names| &names.value.general_names).filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        _ => None,
    });
    let validity = certificate.validity();
    let (not_before, not_after) = (validity.not_before.timestamp(), validity.not_after.timestamp());
    Ok((names.collect(), Validity { not_before, not_after }))
}
