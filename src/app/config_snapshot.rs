//! Configuration snapshot: one validated configuration with everything made from it that could fail.

use std::sync::Arc;

use crate::config::Config;
use crate::failed_auth::FailedAuthLimiter;
use crate::metrics::Metrics;
use crate::quota::Quota;
use crate::tls;
use crate::upstream::{Discovered, Endpoints, Settings};

/// One configuration, ready to be served.
///
/// - Applying a snapshot cannot fail: whatever can fail about a configuration is done when the snapshot is built.
#[derive(Clone)]
pub(super) struct ConfigSnapshot {
    pub(super) config: Arc<Config>,
    /// Endpoints of each upstream, in the order of the configuration. What the next snapshot also has keeps its state.
    pub(super) upstreams: Arc<[Endpoints]>,
    /// Limiter of requests with unknown keys, shared by all workers.
    pub(super) bad_keys: FailedAuthLimiter,
    /// Limiter of sign-ins, shared by all workers.
    pub(super) sign_ins: FailedAuthLimiter,
}

impl ConfigSnapshot {
    /// The snapshot of the start.
    pub(super) fn new(config: Config, upstreams: Arc<[Endpoints]>) -> Self {
        let (bad_keys, sign_ins) = (FailedAuthLimiter::new(config.bad_keys), FailedAuthLimiter::new(config.sign_ins));
        Self { upstreams, bad_keys, sign_ins, config: Arc::new(config) }
    }

    /// The snapshot that follows this one, with another configuration.
    ///
    /// # Errors
    /// [`tls::Error`] when a TLS file of the upstream cannot be used.
    pub(super) fn with_config(&self, config: Config, metrics: &Metrics) -> Result<Self, tls::Error> {
        let upstreams =
            config.upstreams.iter().map(|new| self.endpoints(&new.settings, metrics)).collect::<Result<_, _>>()?;
        // A reload of an unchanged limit must not give clients their failed attempts back. The counts of another limit
        // cannot be converted, so they begin anew.
        let limiter = |limiter: &FailedAuthLimiter, old: Quota, new: Quota| {
            if new == old { limiter.clone() } else { FailedAuthLimiter::new(new) }
        };
        let bad_keys = limiter(&self.bad_keys, self.config.bad_keys, config.bad_keys);
        let sign_ins = limiter(&self.sign_ins, self.config.sign_ins, config.sign_ins);
        Ok(Self { upstreams, bad_keys, sign_ins, config: Arc::new(config) })
    }

    /// The snapshot that follows this one, with the same configuration and other endpoints of some upstreams.
    ///
    /// # Errors
    /// [`tls::Error`] when the new endpoints have TLS, those of before had not, and a file for that cannot be used.
    pub(super) fn with_endpoints(&self, discovered: &[Discovered], metrics: &Metrics) -> Result<Self, tls::Error> {
        let mut config = Config::clone(&self.config);
        for upstream in &mut config.upstreams {
            if let Some(found) = discovered.iter().find(|found| found.upstream == upstream.settings.name) {
                upstream.settings.endpoints.clone_from(&found.endpoints);
            }
        }
        self.with_config(config, metrics)
    }

    /// Endpoints of an upstream in the next snapshot. An upstream of the same name is the same one. Without a change it is
    /// taken as it is, so that addresses of one upstream that come and go do not disturb the counts of another.
    fn endpoints(&self, settings: &Settings, metrics: &Metrics) -> Result<Endpoints, tls::Error> {
        let mut existing = self.config.upstreams.iter().zip(&*self.upstreams);
        match existing.find(|(old, _)| old.settings.name == settings.name) {
            Some((old, endpoints)) if old.settings == *settings => Ok(endpoints.clone()),
            Some((old, endpoints)) => endpoints.changed(&old.settings, settings),
            None => Endpoints::new(settings, metrics),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn config(reports: &str) -> Config {
        let text = format!(
            "{{listen: [address: '127.0.0.1:0'], admin: {{socket: a.sock}}, state: {{embedded: {{path: s.db}}}}, \
             audit: {{path: audit}}, routes: [{{name: a, path: /a, upstream: store}}, {{name: b, path: /b, upstream: reports}}], \
             upstreams: {{store: {{endpoints: ['http://127.0.0.1:1', 'http://127.0.0.1:2']}}, reports: {{endpoints: [{reports}]}}}}}}"
        );
        Config::parse(Path::new("x.yaml"), &text).unwrap()
    }

    #[test]
    fn change_of_one_upstream_leaves_the_others_as_they_are() {
        let metrics = Metrics::new();
        let first = config("'http://127.0.0.1:3'");
        let open = |upstream: &crate::config::Upstream| Endpoints::new(&upstream.settings, &metrics).unwrap();
        let upstreams = first.upstreams.iter().map(open).collect();
        let first = ConfigSnapshot::new(first, upstreams);
        let second = first.with_config(config("'http://127.0.0.1:4'"), &metrics).unwrap();
        let is_same = |place: usize| first.upstreams[place].is_same(&second.upstreams[place]);
        assert_eq!([is_same(0), is_same(1)], [true, false]);
    }
}
