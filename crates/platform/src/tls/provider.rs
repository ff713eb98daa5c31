//! The cryptography of all TLS connections.

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, aws_lc_rs};

/// The one provider of cryptography.
pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}
