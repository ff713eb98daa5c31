//! Which certificate a client sees.

use std::collections::HashMap;
use std::sync::Arc;

use rustls::SignatureScheme;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::certificate::Certificate;

/// The certificates of a listener, by name.
///
/// - The exact name goes before the wildcard, and a wildcard stands for exactly one label (RFC 6125, section 6.4.3).
/// - Of several for one name, such as an RSA and an ECDSA one, the first that the client can verify is taken.
/// - A client that sends no name, or one that no certificate has, gets the first certificate.
#[derive(Debug)]
pub(super) struct Names {
    first: Arc<CertifiedKey>,
    exact: HashMap<String, Vec<Arc<CertifiedKey>>>,
    /// Those of `*.rest`, by `rest`.
    wildcard: HashMap<String, Vec<Arc<CertifiedKey>>>,
}

impl Names {
    /// Nothing, when there is no certificate.
    pub(super) fn new(certificates: &[Certificate]) -> Option<Self> {
        let first = Arc::clone(&certificates.first()?.key);
        let mut names = Self { first, exact: HashMap::new(), wildcard: HashMap::new() };
        for certificate in certificates {
            for name in &certificate.names {
                let keys = match name.strip_prefix("*.") {
                    Some(rest) => names.wildcard.entry(rest.to_owned()),
                    None => names.exact.entry(name.clone()),
                };
                keys.or_default().push(Arc::clone(&certificate.key));
            }
        }
        Some(names)
    }

    /// The certificate for a name, which is in lower case.
    fn find(&self, name: Option<&str>, schemes: &[SignatureScheme]) -> &Arc<CertifiedKey> {
        let named = name.and_then(|name| {
            let wildcard = || self.wildcard.get(name.split_once('.')?.1);
            self.exact.get(name).or_else(wildcard)
        });
        let candidates = named.map_or(std::slice::from_ref(&self.first), Vec::as_slice);
        let suits = |key: &&Arc<CertifiedKey>| key.key.choose_scheme(schemes).is_some();
        candidates.iter().find(suits).unwrap_or(&candidates[0])
    }
}

impl ResolvesServerCert for Names {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(self.find(hello.server_name(), hello.signature_schemes())))
    }
}
