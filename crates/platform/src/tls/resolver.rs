//! Resolver of the certificate that a client is presented with, by the name that it asks for (SNI).

use std::collections::HashMap;
use std::sync::Arc;

use rustls::SignatureScheme;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::certificate::Certificate;

/// The certificates of a listener, by name.
///
/// - An exact name takes precedence over a wildcard, and a wildcard stands for exactly one label (RFC 6125, section
///   6.4.3).
/// - Of several certificates with one name, such as an RSA and an ECDSA one, the first that the client can verify is
///   presented.
/// - A client that sends no name, or a name that no certificate has, gets the listener's first certificate.
#[derive(Debug)]
pub(super) struct CertificateResolver {
    first: Arc<CertifiedKey>,
    exact: HashMap<String, Vec<Arc<CertifiedKey>>>,
    /// The certificates of `*.rest`, by `rest`.
    wildcard: HashMap<String, Vec<Arc<CertifiedKey>>>,
}

impl CertificateResolver {
    /// The resolver of these certificates; `None` without any.
    pub(super) fn new(certificates: &[Certificate]) -> Option<Self> {
        let first = Arc::clone(&certificates.first()?.key);
        let mut resolver = Self { first, exact: HashMap::new(), wildcard: HashMap::new() };
        for certificate in certificates {
            for name in &certificate.names {
                let keys = match name.strip_prefix("*.") {
                    Some(rest) => resolver.wildcard.entry(rest.to_owned()),
                    None => resolver.exact.entry(name.clone()),
                };
                keys.or_default().push(Arc::clone(&certificate.key));
            }
        }
        Some(resolver)
    }

    /// Finds the certificate for a name, which is in lower case.
    fn find(&self, name: Option<&str>, schemes: &[SignatureScheme]) -> &Arc<CertifiedKey> {
        let named = name.and_then(|name| {
            let wildcard = || self.wildcard.get(name.split_once('.')?.1);
            self.exact.get(name).or_else(wildcard)
        });
        let candidates = named.map_or(std::slice::from_ref(&self.first), Vec::as_slice);
        let suits = |key: &&Arc<CertifiedKey>| key.key.choose_scheme(schemes).is_some();
        // Without a common signature scheme the handshake fails with any of them.
        candidates.iter().find(suits).unwrap_or(&candidates[0])
    }
}

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(self.find(hello.server_name(), hello.signature_schemes())))
    }
}
