//! Configuration snapshot: one validated configuration with everything made from it that could fail.

use std::sync::Arc;

use crate::config::Config;
use crate::failed_auth::FailedAuthLimiter;
use crate::metrics::Metrics;
use crate::quota::Quota;
use crate::tls;
use crate::upstream::{Endpoint, Endpoints};

/// One configuration, ready to be served.
///
/// - Applying a snapshot cannot fail: whatever can fail about a configuration is done when the snapshot is built.
#[derive(Clone)]
pub(super) struct ConfigSnapshot {
    pub(super) config: Arc<Config>,
    /// Upstream endpoints. An endpoint that the next snapshot also has keeps its count of requests in flight.
    pub(super) endpoints: Endpoints,
    /// Limiter of requests with unknown keys, shared by all workers.
    pub(super) bad_keys: FailedAuthLimiter,
    /// Limiter of sign-ins, shared by all workers.
    pub(super) sign_ins: FailedAuthLimiter,
}

impl ConfigSnapshot {
    /// The snapshot of the start.
    pub(super) fn new(config: Config, endpoints: Endpoints) -> Self {
        let (bad_keys, sign_ins) = (FailedAuthLimiter::new(config.bad_keys), FailedAuthLimiter::new(config.sign_ins));
        Self { endpoints, bad_keys, sign_ins, config: Arc::new(config) }
    }

    /// The snapshot that follows this one, with another configuration.
    ///
    /// # Errors
    /// [`tls::Error`] when a TLS file of the upstream cannot be used.
    pub(super) fn with_config(&self, config: Config, metrics: &Metrics) -> Result<Self, tls::Error> {
        let endpoints = self.endpoints.changed(&self.config.upstream, &config.upstream, metrics)?;
        // A reload of an unchanged limit must not give clients their failed attempts back. The counts of another limit
        // cannot be converted, so they begin anew.
        let limiter = |limiter: &FailedAuthLimiter, old: Quota, new: Quota| {
            if new == old { limiter.clone() } else { FailedAuthLimiter::new(new) }
        };
        let bad_keys = limiter(&self.bad_keys, self.config.bad_keys, config.bad_keys);
        let sign_ins = limiter(&self.sign_ins, self.config.sign_ins, config.sign_ins);
        Ok(Self { endpoints, bad_keys, sign_ins, config: Arc::new(config) })
    }

    /// The snapshot that follows this one, with the same configuration and other endpoints.
    ///
    /// # Errors
    /// [`tls::Error`] when the new endpoints have TLS, those of before had not, and a file for that cannot be used.
    pub(super) fn with_endpoints(&self, endpoints: Vec<Endpoint>, metrics: &Metrics) -> Result<Self, tls::Error> {
        let mut config = Config::clone(&self.config);
        config.upstream.endpoints = endpoints;
        self.with_config(config, metrics)
    }
}
