//! Metrics of routes.

use std::sync::{Arc, OnceLock};

use prometheus::{Histogram, IntCounter, IntCounterVec};

use super::Metrics;

/// Metrics of one route. The counter of a status is resolved when the status is first sent.
#[derive(Clone, Debug)]
pub struct RouteMetrics {
    route: Arc<str>,
    vec: IntCounterVec,
    by_status: Arc<[OnceLock<IntCounter>]>,
    /// Seconds from the request's head to the response's last byte.
    pub duration: Histogram,
}

/// Metrics of one public route, by what became of its requests.
#[derive(Clone, Debug)]
pub struct PublicRouteMetrics {
    /// Those that were admitted.
    pub admitted: IntCounter,
    /// Those whose address had sent too many.
    pub address_limited: IntCounter,
    /// Those that found no place among the requests in flight.
    pub busy: IntCounter,
}

impl Metrics {
    /// The metrics of a route. Its name must come from the configuration, never from a request.
    pub fn route(&self, name: &str) -> RouteMetrics {
        RouteMetrics {
            route: name.into(),
            vec: self.requests.clone(),
            by_status: (100..600).map(|_| OnceLock::new()).collect(),
            duration: self.durations.with_label_values(&[name]),
        }
    }

    /// The metrics that a public route has beside those of every route. Its name must come from the configuration.
    pub fn public_route(&self, name: &str) -> PublicRouteMetrics {
        let counter = |result| self.public.with_label_values(&[name, result]);
        PublicRouteMetrics {
            admitted: counter("admitted"),
            address_limited: counter("address_limited"),
            busy: counter("busy"),
        }
    }

    /// The counter of requests to a route that cost more than they had reserved. Its name must come from the
    /// configuration.
    pub fn cost_over(&self, name: &str) -> IntCounter {
        self.cost_over.with_label_values(&[name])
    }
}

impl RouteMetrics {
    /// Counts a response with this status.
    pub fn count_response(&self, status: http::StatusCode) {
        let Some(cell) = self.by_status.get(usize::from(status.as_u16()).wrapping_sub(100)) else { return };
        cell.get_or_init(|| self.vec.with_label_values(&[&*self.route, status.as_str()])).inc();
    }
}
