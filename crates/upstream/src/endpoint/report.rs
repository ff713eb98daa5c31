//! Report of the endpoints, as operators see it: `keygate upstreams` and the admin socket.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::endpoints::{EndpointState, Endpoints};
use super::health::CheckReport;
use super::outlier::Phase;
use super::recent_latency::LatencyReport;
use crate::settings::DEFAULT_NAME;
use domain::clock::{self, Micros};

/// State of one endpoint at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointReport {
    /// Name of the upstream.
    #[serde(default = "default_upstream")]
    pub upstream: String,
    /// Name of the endpoint, as in metrics.
    pub endpoint: String,
    /// Part in the traffic.
    pub state: EndpointStatus,
    /// Reason of the ejection that lasts, or of the one that the endpoint returns from.
    pub reason: Option<String>,
    /// End of that state; of an unreachable endpoint, the next probe.
    #[serde(with = "clock::rfc3339::option")]
    pub until: Option<Micros>,
    /// End of the pause that the endpoint has asked for with `Retry-After`; none when it is not paused.
    #[serde(default, with = "clock::rfc3339::option")]
    pub paused_until: Option<Micros>,
    /// Ejections since the start of the gateway.
    pub ejections: u64,
    /// Last active check; none when none are configured.
    pub last_check: Option<CheckReport>,
    /// Requests in flight.
    pub in_flight: usize,
    /// Time from the end of a request to the head of its response, in the last minute; none without requests.
    pub latency: Option<LatencyReport>,
    /// Open connections.
    pub connections: usize,
    /// Requests that wait for a connection.
    #[serde(default)]
    pub waiting: usize,
}

/// Upstream in the report of a gateway that knows no others.
fn default_upstream() -> String {
    DEFAULT_NAME.to_owned()
}

/// Part of an endpoint in the traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndpointStatus {
    /// Takes its whole share of the requests.
    Up,
    /// Takes a share that grows.
    Returning,
    /// Set aside for what it answered.
    Ejected,
    /// Set aside because no connection can be made; or the only endpoint, to which none can be made.
    Unreachable,
    /// Set aside because its active checks fail.
    Failing,
}

impl Endpoints {
    /// Reports all endpoints of the upstream, in the order of the configuration.
    pub fn report(&self) -> Vec<EndpointReport> {
        self.list.iter().map(|endpoint| endpoint.report()).collect()
    }
}

impl EndpointState {
    fn report(&self) -> EndpointReport {
        let (ejection, ejections) = self.ejection.report();
        let state = match ejection.phase {
            Phase::Ejected => EndpointStatus::Ejected,
            Phase::Unreachable => EndpointStatus::Unreachable,
            _ if !self.is_reachable.load(Relaxed) => EndpointStatus::Unreachable,
            _ if self.ejection.fails_checks() => EndpointStatus::Failing,
            Phase::Returning => EndpointStatus::Returning,
            Phase::In => EndpointStatus::Up,
        };
        let lasts = ejection.phase != Phase::In;
        let now = clock::steady();
        let wall = Micros::wall();
        let rest = Duration::from_micros(ejection.until.since(now));
        EndpointReport {
            upstream: self.upstream.to_string(),
            endpoint: self.label.clone(),
            state,
            reason: lasts.then(|| ejection.reason.label().to_owned()),
            until: lasts.then(|| wall.after(rest)),
            paused_until: self.pause.rest(now).map(|rest| wall.after(rest)),
            ejections,
            last_check: self.check.last(),
            in_flight: self.in_flight.load(Relaxed),
            latency: self.recent_latency.report(&self.metrics.latency.counts()),
            connections: self.connections.count(),
            waiting: self.waiting.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_travels_as_the_json_of_the_contract() {
        let json = concat!(
            r#"{"upstream":"store","endpoint":"a:1","state":"ejected","reason":"server_errors","#,
            r#""until":"2026-11-20T21:08:00.000001Z","paused_until":"2026-11-20T21:07:30.000000Z","#,
            r#""ejections":2,"last_check":{"time":"2026-11-20T21:07:00.000000Z","ok":false,"#,
            r#""detail":"503"},"in_flight":1,"latency":{"p50_us":1000,"p99_us":2000},"connections":3,"#,
            r#""waiting":2}"#,
        );
        let report: EndpointReport = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&report).unwrap(), json);
    }
}
