//! Configuration snapshot: one validated configuration with everything made from it that could fail.

use std::sync::Arc;

use crate::config::Config;
use crate::gateway::PublicLimits;
use control::management_api::CallLimiter;
use domain::address_limiter::AddressLimiter;
use domain::quota::Quota;
use platform::metrics::{Metrics, TraceMetrics};
use platform::telemetry::access_log::AccessLog;
use platform::telemetry::trace::{Settings as TraceSettings, StartError, TraceExporters, Tracer};
use platform::tls;
use upstream::{Discovered, Endpoints, Settings};

/// One configuration, ready to be served.
///
/// - Applying a snapshot cannot fail: whatever can fail about a configuration is done when the snapshot is built.
#[derive(Clone)]
pub(super) struct ConfigSnapshot {
    pub(super) config: Arc<Config>,
    /// Endpoints of each upstream, in the order of the configuration. What the next snapshot also has keeps its state.
    pub(super) upstreams: Arc<[Endpoints]>,
    /// Limiter of requests with unknown keys, shared by all workers.
    pub(super) bad_keys: AddressLimiter,
    /// Limiter of sign-ins, shared by all workers.
    pub(super) sign_ins: AddressLimiter,
    /// Limits of requests without keys, shared by all workers.
    pub(super) public: PublicLimits,
    /// Limiter of calls by management token, shared by all workers.
    pub(super) calls: CallLimiter,
    /// The access log; none unless one is configured.
    pub(super) access_log: Option<AccessLog>,
    /// Begins traces, of all workers; none when traces are off.
    pub(super) tracer: Option<Tracer>,
    exporters: TraceExporters,
}

/// Reason why there is no snapshot of a configuration.
#[derive(Debug, thiserror::Error)]
pub(super) enum SnapshotError {
    #[error("{}", .0.in_full())]
    Upstream(#[from] tls::Error),
    #[error(transparent)]
    Traces(#[from] StartError),
}

impl ConfigSnapshot {
    /// The snapshot of the start.
    ///
    /// # Errors
    /// [`StartError`] when traces cannot be exported.
    pub(super) fn new(
        config: Config,
        upstreams: Arc<[Endpoints]>,
        access_log: Option<AccessLog>,
        metrics: &Metrics,
    ) -> Result<Self, StartError> {
        let bad_keys = AddressLimiter::new(config.bad_keys);
        let sign_ins = AddressLimiter::new(config.sign_ins);
        let public = PublicLimits::new(config.public);
        let calls = CallLimiter::new(config.management);
        let exporters = TraceExporters::default();
        let tracer = start_tracer(&exporters, config.traces.as_ref(), None, &metrics.traces)?;
        let config = Arc::new(config);
        Ok(Self { config, upstreams, bad_keys, sign_ins, public, calls, access_log, tracer, exporters })
    }

    /// The exporters of traces, also of snapshots before this one.
    pub(super) fn trace_exporters(&self) -> TraceExporters {
        self.exporters.clone()
    }

    /// The snapshot that follows this one, with another configuration.
    ///
    /// # Errors
    /// [`SnapshotError`] when a TLS file of the upstream cannot be used, or traces cannot be exported.
    pub(super) fn with_config(&self, config: Config, metrics: &Metrics) -> Result<Self, SnapshotError> {
        let upstreams =
            config.upstreams.iter().map(|new| self.endpoints(&new.settings, metrics)).collect::<Result<_, _>>()?;
        // A reload of an unchanged limit must not give clients their failed attempts back. The counts of another limit
        // cannot be converted, so they begin anew.
        let limiter = |limiter: &AddressLimiter, old: Quota, new: Quota| {
            if new == old { limiter.clone() } else { AddressLimiter::new(new) }
        };
        let bad_keys = limiter(&self.bad_keys, self.config.bad_keys, config.bad_keys);
        let sign_ins = limiter(&self.sign_ins, self.config.sign_ins, config.sign_ins);
        let public = self.public.changed(config.public);
        let calls = if config.management == self.config.management {
            self.calls.clone()
        } else {
            CallLimiter::new(config.management)
        };
        let tracer = start_tracer(&self.exporters, config.traces.as_ref(), self.tracer.as_ref(), &metrics.traces)?;
        Ok(Self { upstreams, bad_keys, sign_ins, public, calls, tracer, config: Arc::new(config), ..self.clone() })
    }

    /// The same snapshot with another access log.
    pub(super) fn with_access_log(self, access_log: Option<AccessLog>) -> Self {
        Self { access_log, ..self }
    }

    /// The snapshot that follows this one, with the same configuration and other endpoints of some upstreams.
    ///
    /// # Errors
    /// [`SnapshotError`] when the new endpoints have TLS, those of before had not, and a file for that cannot be used.
    pub(super) fn with_endpoints(&self, discovered: &[Discovered], metrics: &Metrics) -> Result<Self, SnapshotError> {
        let mut config = Config::clone(&self.config);
        for upstream in &mut config.upstreams {
            if let Some(found) = discovered.iter().find(|found| found.upstream == upstream.settings.name) {
                upstream.settings.endpoints.clone_from(&found.endpoints);
            }
        }
        self.with_config(config, metrics)
    }

    /// Endpoints of an upstream in the next snapshot. An upstream of the same name is the same one. Without a change it
    /// is taken as it is, so that addresses of one upstream that come and go do not disturb the counts of another.
    fn endpoints(&self, settings: &Settings, metrics: &Metrics) -> Result<Endpoints, tls::Error> {
        let mut existing = self.config.upstreams.iter().zip(&*self.upstreams);
        match existing.find(|(old, _)| old.settings.name == settings.name) {
            Some((old, endpoints)) if old.settings == *settings => Ok(endpoints.clone()),
            Some((old, endpoints)) => endpoints.changed(&old.settings, settings),
            None => Endpoints::new(settings, metrics),
        }
    }
}

/// Tracer of a configuration: the active one, if its settings are the same.
fn start_tracer(
    exporters: &TraceExporters,
    settings: Option<&TraceSettings>,
    current: Option<&Tracer>,
    metrics: &TraceMetrics,
) -> Result<Option<Tracer>, StartError> {
    let Some(settings) = settings else { return Ok(None) };
    match current.filter(|current| current.settings() == settings) {
        Some(current) => Ok(Some(current.clone())),
        None => exporters.start(settings, metrics).map(Some),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn config(reports: &str) -> Config {
        let text = format!(
            "{{listen: [address: '127.0.0.1:0'], admin: {{socket: a.sock}}, state: {{embedded: {{path: s.db}}}}, \
             audit: {{path: audit}}, routes: [{{name: a, path: /a, upstream: store}}, {{name: b, path: /b, upstream: \
             reports}}], upstreams: {{store: {{endpoints: ['http://127.0.0.1:1', 'http://127.0.0.1:2']}}, reports: \
             {{endpoints: [{reports}]}}}}}}"
        );
        Config::parse(Path::new("x.yaml"), &text).unwrap()
    }

    #[test]
    fn change_of_one_upstream_leaves_the_others_as_they_are() {
        let metrics = Metrics::new();
        let first = config("'http://127.0.0.1:3'");
        let open = |upstream: &crate::config::Upstream| Endpoints::new(&upstream.settings, &metrics).unwrap();
        let upstreams = first.upstreams.iter().map(open).collect();
        let first = ConfigSnapshot::new(first, upstreams, None, &metrics).unwrap();
        let second = first.with_config(config("'http://127.0.0.1:4'"), &metrics).unwrap();
        let is_same = |place: usize| first.upstreams[place].is_same(&second.upstreams[place]);
        assert_eq!([is_same(0), is_same(1)], [true, false]);
    }
}
