//! Facts of the certificates in a file, for diagnosis.

use std::path::Path;

use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::certificate::Validity;
use super::error::Error;
use super::explanation::{Explanation, NO_AUTHORITY, VERSION_3};
use super::files::FileContents;

/// Facts of one certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFacts {
    /// Name of its owner.
    pub subject: String,
    /// Name of the authority that issued it.
    pub issuer: String,
    /// DNS names in lower case, and IP addresses.
    pub names: Vec<String>,
    /// URIs, such as a SPIFFE id.
    pub uris: Vec<String>,
    /// First second of its validity, Unix time.
    pub not_before: i64,
    /// Last second of its validity, Unix time.
    pub not_after: i64,
    /// Version of X.509, 1 to 3.
    pub version: u32,
    /// True when it is an authority's.
    pub is_authority: bool,
}

impl CertificateFacts {
    /// Reads all certificates of a PEM file, in its order; at least one.
    ///
    /// # Errors
    /// [`Error`] when the file cannot be read, or has another content.
    pub fn read(path: &Path) -> Result<Vec<Self>, Error> {
        let malformed = |_| Error::Malformed(path.to_owned());
        let certificates = FileContents::read([path]).certificates(path)?;
        certificates.iter().map(|der| Self::parse(der).map_err(malformed)).collect()
    }

    /// Parses a certificate; none when it is malformed.
    pub fn from_der(der: &[u8]) -> Option<Self> {
        Self::parse(der).ok()
    }

    fn parse(der: &[u8]) -> Result<Self, x509_parser::error::X509Error> {
        let (_, certificate) = X509Certificate::from_der(der)?;
        let extension = certificate.subject_alternative_name()?;
        let alternatives = || extension.iter().flat_map(|names| &names.value.general_names);
        let uris = alternatives().filter_map(|name| match name {
            GeneralName::URI(uri) => Some((*uri).to_owned()),
            _ => None,
        });
        let names = alternatives().filter_map(|name| match name {
            GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
            GeneralName::IPAddress(octets) => address_text(octets),
            _ => None,
        });
        Ok(Self {
            subject: certificate.subject().to_string(),
            issuer: certificate.issuer().to_string(),
            names: names.collect(),
            uris: uris.collect(),
            not_before: certificate.validity().not_before.timestamp(),
            not_after: certificate.validity().not_after.timestamp(),
            version: certificate.version().0 + 1,
            is_authority: certificate.is_ca(),
        })
    }

    /// The flaw of its dates at a Unix time in seconds.
    pub fn outdated(&self, now: i64) -> Option<Explanation> {
        Validity { not_before: self.not_before, not_after: self.not_after }.flaw(now)
    }

    /// The flaw to which the other side may object when the certificate is presented as one's own: its version, or that
    /// it is an authority's.
    pub fn unfit(&self) -> Option<Explanation> {
        if self.version < 3 {
            return Some(Explanation::new(format!("of version {}, which is refused", self.version), VERSION_3));
        }
        let found = "an authority's (CA:TRUE): strict clients, such as those in Rust, refuse it as a server's own";
        self.is_authority.then(|| Explanation::new(found, NO_AUTHORITY))
    }

    /// Returns whether a certificate is valid for a host. A wildcard stands for one label (RFC 6125, section 6.4.3).
    pub fn is_for(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        let parent = host.split_once('.').map(|(_, parent)| parent);
        self.names.iter().any(|name| match name.strip_prefix("*.") {
            Some(rest) => parent == Some(rest),
            None => *name == host,
        })
    }
}

fn address_text(octets: &[u8]) -> Option<String> {
    let v4 = <[u8; 4]>::try_from(octets).map(|octets| std::net::Ipv4Addr::from(octets).to_string());
    let v6 = || <[u8; 16]>::try_from(octets).map(|octets| std::net::Ipv6Addr::from(octets).to_string());
    v4.or_else(|_| v6()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_those_of_the_certificate() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("chain.pem");
        let names = ["API.example.com", "*.example.org", "10.0.0.1"].map(str::to_owned);
        std::fs::write(&path, rcgen::generate_simple_self_signed(names).unwrap().cert.pem()).unwrap();
        let facts = CertificateFacts::read(&path).unwrap().remove(0);
        assert_eq!(facts.subject, facts.issuer);
        assert!(facts.not_before < facts.not_after);
        assert_eq!((facts.version, facts.is_authority, facts.unfit()), (3, false, None));
        assert_eq!(facts.outdated(facts.not_after), None);
        let (over, early) = (facts.outdated(facts.not_after + 1), facts.outdated(facts.not_before - 1));
        assert!(over.is_some_and(|flaw| flaw.found.starts_with("expired at ")));
        assert!(early.is_some_and(|flaw| flaw.found.starts_with("not valid before ")));
        for (host, expected) in [
            ("api.example.com", true),
            ("Api.Example.com", true),
            ("example.com", false),
            ("keys.example.org", true),
            ("a.keys.example.org", false),
            ("example.org", false),
            ("10.0.0.1", true),
        ] {
            assert_eq!(facts.is_for(host), expected, "{host}");
        }
        assert!(CertificateFacts::read(dir.path()).is_err());
        assert_eq!(CertificateFacts::from_der(b"x"), None);
    }
}
