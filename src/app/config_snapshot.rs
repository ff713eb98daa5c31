//! Configuration snapshot: one validated configuration with everything made from it that could fail.

use std::sync::Arc;

use crate::config::Config;
use crate::failed_auth::FailedAuthLimiter;
use crate::metrics::Metrics;
use crate::tls;
use crate::upstream::Endpoints;

/// One configuration, ready to be served.
///
/// - Applying a snapshot cannot fail: whatever can fail about a configuration is done when the snapshot is built.
#[derive(Clone)]
pub(super) struct ConfigSnapshot {
    pub(super) config: Arc<Config>,
    /// Upstream endpoints. An endpoint that the next snapshot also has keeps its count of requests in flight.
    pub(super) endpoints: Endpoints,
    /// Limiter of failed authentications, shared by all workers.
    pub(super) failed_auth: FailedAuthLimiter,
}

impl ConfigSnapshot {
    /// The snapshot of the start.
    pub(super) fn new(config: Config, endpoints: Endpoints) -> Self {
        Self { endpoints, failed_auth: FailedAuthLimiter::new(config.bad_keys), config: Arc::new(config) }
    }

    /// The snapshot that follows this one, with another configuration.
    ///
    /// # Errors
    /// [`tls::Error`] when a TLS file of the upstream cannot be used.
    pub(super) fn with_config(&self, config: Config, metrics: &Metrics) -> Result<Self, tls::Error> {
        let endpoints = self.endpoints.changed(&self.config.upstream, &config.upstream, metrics)?;
        // A reload of an unchanged limit must not give clients their failed attempts back. The counts of another limit
        // cannot be converted, so they begin anew.
        let is_same = config.bad_keys == self.config.bad_keys;
        let failed_auth = if is_same { self.failed_auth.clone() } else { FailedAuthLimiter::new(config.bad_keys) };
        Ok(Self { endpoints, failed_auth, config: Arc::new(config) })
    }
}
