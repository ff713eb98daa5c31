//! Errors of TLS settings. Each names the file that it concerns.

use std::io;
use std::path::PathBuf;

use rustls::pki_types::pem;
use rustls::server::VerifierBuilderError;

use super::explanation::Explanation;

/// The reason why a TLS configuration cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("{path} cannot be read")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A file is not PEM.
    #[error("{path} is not PEM")]
    Pem {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: pem::Error,
    },
    /// A file has no certificate in it.
    #[error("{0} has no certificate in it; it must be PEM, the certificate itself first")]
    NoCertificate(PathBuf),
    /// A file has no private key in it.
    #[error("{0} has no private key in it; it must be PEM, and not encrypted")]
    NoKey(PathBuf),
    /// A certificate is malformed.
    #[error("{0} holds a certificate that cannot be read; make another one (X.509, version 3)")]
    Malformed(PathBuf),
    /// A private key is of a kind that cannot be used.
    #[error(
        "{0} holds a private key that cannot be used; make one of RSA with 2048 to 8192 bits, of ECDSA with P-256, \
         P-384 or P-521, or of Ed25519"
    )]
    UnusableKey(PathBuf),
    /// Certificate and key do not belong together.
    #[error(
        "{chain} and {key} do not belong together: the key is not that of the first certificate; name its key, and put \
         the certificate before those that certify it"
    )]
    KeyMismatch {
        /// The file of the certificates.
        chain: PathBuf,
        /// The file of the key.
        key: PathBuf,
    },
    /// A certificate that no client or server would accept.
    #[error("{path} cannot be presented: {explanation}")]
    Certificate {
        /// The file.
        path: PathBuf,
        /// Its flaw.
        explanation: Explanation,
    },
    /// A certificate that is not valid now, in the place of one that is.
    #[error("the certificate in {path}: {explanation}")]
    Outdated {
        /// The file.
        path: PathBuf,
        /// Its flaw.
        explanation: Explanation,
    },
    /// A certificate after the first has no DNS name, so no client could ever ask for it.
    #[error("{0} holds a certificate without a DNS name, which only the first of a listener may")]
    MissingName(PathBuf),
    /// A listener has no certificate at all.
    #[error("there is no certificate")]
    NoCertificates,
    /// An authority's certificate cannot be used as such.
    #[error("{path} holds a certificate that cannot be an authority's: {explanation}")]
    Authority {
        /// The file.
        path: PathBuf,
        /// Its flaw.
        explanation: Explanation,
    },
    /// Clients cannot be verified by these authorities.
    #[error("{path} cannot be used to verify clients")]
    Verifier {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: VerifierBuilderError,
    },
    /// The system has no certificate authorities.
    #[error("the system has no certificate authorities; install them, or name a file as `tls: {{ ca: … }}`")]
    NoSystemRoots,
    /// The cryptography cannot be set up.
    #[error("the cryptography cannot be set up")]
    Crypto(#[from] rustls::Error),
}

impl Error {
    /// The error and its sources on one line.
    pub fn in_full(&self) -> String {
        let mut text = self.to_string();
        let mut source = std::error::Error::source(self);
        while let Some(error) = source {
            text.push_str(&format!(": {error}"));
            source = error.source();
        }
        text
    }
}
