//! TLS of the connections that the gateway opens: authorities and certificates whose files are to be looked after.

use super::Config;
use platform::tls::ClientSettings;

impl Config {
    /// TLS of connections to upstreams, Redis, identity providers, collectors, sinks and witnesses.
    pub fn outbound_tls(&self) -> Vec<&ClientSettings> {
        let upstreams = self.upstreams.iter().map(|upstream| &upstream.settings.tls);
        let redis = match &self.state {
            state::Settings::Redis(redis) => redis.tls.as_ref(),
            state::Settings::Embedded(_) => None,
        };
        let providers = self.session.iter().flat_map(|session| &session.providers).map(|provider| &provider.oidc.tls);
        let traces = self.traces.iter().map(|traces| &traces.tls);
        let sinks = self.shipping.sinks.iter().filter_map(|sink| sink.destination.tls());
        let witnesses = self.audit.checkpoints.iter().flat_map(|checkpoints| &checkpoints.witnesses);
        let witnesses = witnesses.map(|witness| &witness.tls);
        upstreams.chain(redis).chain(providers).chain(traces).chain(sinks).chain(witnesses).collect()
    }
}
