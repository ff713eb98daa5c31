//! Settings of active checks.

use std::time::Duration;

use http::uri::PathAndQuery;

/// Active checks of all endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthSettings {
    /// Question, and expected answer.
    pub kind: HealthKind,
    /// Time between two checks of an endpoint, give or take a tenth.
    pub interval: Duration,
    /// Time for one check, connecting included.
    pub timeout: Duration,
    /// Passed checks in a row after which an endpoint takes requests again.
    pub healthy: u32,
    /// Failed checks in a row after which it takes none.
    pub unhealthy: u32,
    /// True if the gateway is not ready while every endpoint fails its checks.
    pub required: bool,
    /// `Host` of each check; none: that of the endpoint.
    pub host: Option<String>,
}

/// Kind of check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HealthKind {
    /// A GET of this path must be answered with one of these statuses; with none given, with any 2xx.
    Http {
        /// Path and query.
        path: PathAndQuery,
        /// Expected statuses.
        expect: Vec<u16>,
    },
    /// The gRPC health service must report this service as serving; the empty name is the whole server.
    Grpc {
        /// Name of the service.
        service: String,
    },
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Checks by gRPC, one each second, whose first result counts.
    pub(crate) fn every_second() -> HealthSettings {
        let second = Duration::from_secs(1);
        HealthSettings {
            kind: HealthKind::Grpc { service: String::new() },
            interval: second,
            timeout: second,
            healthy: 1,
            unhealthy: 1,
            required: false,
            host: None,
        }
    }
}
