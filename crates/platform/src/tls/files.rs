//! The contents of files at one moment: each file is read once, and everything is built of the same bytes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use super::error::Error;
use super::explanation::explain;

/// Bytes of a file: many times the size of all public authorities together. A device never ends, and is refused.
const MAX_SIZE: u64 = 4 << 20;

/// The contents of files, or the errors by which they could not be read. There is no `Debug`: keys are among them.
pub(super) struct FileContents(BTreeMap<PathBuf, io::Result<Zeroizing<Vec<u8>>>>);

/// Digests of files: equal when all contents are equal. A file that could not be read has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fingerprints(BTreeMap<PathBuf, Option<[u8; 32]>>);

impl FileContents {
    /// Reads the files. An error is returned when the contents of its file are used.
    pub(super) fn read<'p>(paths: impl IntoIterator<Item = &'p Path>) -> Self {
        Self(paths.into_iter().map(|path| (path.to_owned(), read(path))).collect())
    }

    pub(super) fn fingerprints(&self) -> Fingerprints {
        let digest = |content: &io::Result<Zeroizing<Vec<u8>>>| content.as_ref().ok().map(|c| Sha256::digest(c).into());
        Fingerprints(self.0.iter().map(|(path, content)| (path.clone(), digest(content))).collect())
    }

    /// The certificates of a file, in the file's order; at least one.
    pub(super) fn certificates(&self, path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
        let pem = |source| Error::Pem { path: path.to_owned(), source };
        let certificates = CertificateDer::pem_slice_iter(self.content(path)?).collect::<Result<Vec<_>, _>>();
        let certificates = certificates.map_err(pem)?;
        if certificates.is_empty() { Err(Error::NoCertificate(path.to_owned())) } else { Ok(certificates) }
    }

    /// The first private key of a file.
    pub(super) fn private_key(&self, path: &Path) -> Result<PrivateKeyDer<'static>, Error> {
        PrivateKeyDer::from_pem_slice(self.content(path)?).map_err(|source| match source {
            pem::Error::NoItemsFound => Error::NoKey(path.to_owned()),
            source => Error::Pem { path: path.to_owned(), source },
        })
    }

    /// The certificates of a file, as authorities.
    pub(super) fn authorities(&self, path: &Path) -> Result<RootCertStore, Error> {
        let mut roots = RootCertStore::empty();
        for certificate in self.certificates(path)? {
            let unusable = |error| Error::Authority { path: path.to_owned(), explanation: explain(&error) };
            roots.add(certificate).map_err(unusable)?;
        }
        Ok(roots)
    }

    fn content(&self, path: &Path) -> Result<&[u8], Error> {
        let read_error = |source| Error::Read { path: path.to_owned(), source };
        match self.0.get(path) {
            Some(Ok(content)) => Ok(content),
            Some(Err(error)) => Err(read_error(copy_error(error))),
            None => Err(read_error(io::ErrorKind::NotFound.into())),
        }
    }
}

impl Fingerprints {
    /// The files whose contents differ, and those that only one of the two has.
    pub(super) fn differences(&self, other: &Self) -> Vec<PathBuf> {
        let both = self.0.keys().chain(other.0.keys().filter(|path| !self.0.contains_key(*path)));
        both.filter(|path| self.0.get(*path) != other.0.get(*path)).cloned().collect()
    }
}

fn read(path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    let file = File::open(path)?;
    // Capacity for the whole file: a buffer that grows leaves copies of a key behind.
    let capacity = usize::try_from(file.metadata()?.len().min(MAX_SIZE)).unwrap_or_default() + 1;
    let mut content = Zeroizing::new(Vec::with_capacity(capacity));
    file.take(MAX_SIZE + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MAX_SIZE { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(content) }
}

/// Copies an error of the operating system: `io::Error` cannot be cloned.
fn copy_error(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error)
}
