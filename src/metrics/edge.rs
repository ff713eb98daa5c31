//! The metrics of both edges: connections, what took too long, what was not passed on, and certificates.

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry};

use super::{counters, gauges, registered};

/// `fields_dropped_total{direction}`.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the label's values")]
pub struct FieldMetrics {
    pub request: IntCounter,
    pub response: IntCounter,
}

/// `connections`, and those that came to nothing.
#[derive(Clone, Debug)]
pub struct ConnectionMetrics {
    /// Open ones.
    pub open: IntGauge,
    /// Closed unheard, because there were as many as there may be.
    pub refused_total: IntCounter,
    /// Closed unheard, because there were as many from their address as there may be.
    pub refused_address: IntCounter,
    /// TLS handshakes that failed.
    pub failed_tls: IntCounter,
    /// PROXY headers that were missing or malformed.
    pub failed_proxy: IntCounter,
    /// HTTP/2 connections that were closed for floods of frames.
    pub floods: IntCounter,
}

/// `timeouts_total{kind}`.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the label's values")]
pub struct TimeoutMetrics {
    pub handshake: IntCounter,
    pub first_byte: IntCounter,
    pub head: IntCounter,
    pub body_idle: IntCounter,
    pub body_rate: IntCounter,
    pub write_idle: IntCounter,
    pub keep_alive: IntCounter,
}

/// `timeouts_total{kind}`, the kinds of the upstream side.
#[derive(Clone, Debug)]
pub struct UpstreamTimeouts {
    /// No connection in time.
    pub connect: IntCounter,
    /// No response head in time.
    pub first_byte: IntCounter,
    /// No next piece of a response body in time.
    pub body: IntCounter,
    /// The exchange as a whole took too long.
    pub whole: IntCounter,
    /// Nothing went through a tunnel for too long.
    pub tunnel: IntCounter,
}

/// `tls_certificate_not_after_timestamp_seconds{certificate}` and `tls_reload_failures_total`.
#[derive(Clone, Debug)]
pub struct TlsMetrics {
    not_after: IntGaugeVec,
    /// Changed files that were of no use: the certificates before them are still shown.
    pub reload_failures: IntCounter,
}

impl FieldMetrics {
    pub(super) fn new(r: &Registry) -> Self {
        let fields = counters(r, "fields_dropped_total", "Fields with names that could be misread", &["direction"]);
        let direction = |direction| fields.with_label_values(&[direction]);
        Self { request: direction("request"), response: direction("response") }
    }
}

impl ConnectionMetrics {
    pub(super) fn new(r: &Registry) -> Self {
        let refused = counters(r, "connections_refused_total", "Connections closed unheard", &["reason"]);
        let failed = counters(r, "handshake_failures_total", "Connections that did not come about", &["kind"]);
        Self {
            open: registered(r, IntGauge::new("connections", "Open downstream connections")),
            refused_total: refused.with_label_values(&["total"]),
            refused_address: refused.with_label_values(&["address"]),
            failed_tls: failed.with_label_values(&["tls"]),
            failed_proxy: failed.with_label_values(&["proxy"]),
            floods: registered(r, IntCounter::new("http2_floods_total", "HTTP/2 connections closed for floods")),
        }
    }
}

impl TimeoutMetrics {
    pub(super) fn new(vec: &IntCounterVec) -> Self {
        let kind = |kind| vec.with_label_values(&[kind]);
        Self {
            handshake: kind("handshake"),
            first_byte: kind("first_byte"),
            head: kind("head"),
            body_idle: kind("body_idle"),
            body_rate: kind("body_rate"),
            write_idle: kind("write_idle"),
            keep_alive: kind("keep_alive"),
        }
    }
}

impl UpstreamTimeouts {
    pub(super) fn new(vec: &IntCounterVec) -> Self {
        let kind = |kind| vec.with_label_values(&[kind]);
        Self {
            connect: kind("upstream_connect"),
            first_byte: kind("upstream_first_byte"),
            body: kind("upstream_body"),
            whole: kind("upstream_whole"),
            tunnel: kind("tunnel_idle"),
        }
    }
}

impl TlsMetrics {
    pub(super) fn new(r: &Registry) -> Self {
        Self {
            not_after: gauges(
                r,
                "tls_certificate_not_after_timestamp_seconds",
                "When certificates that are shown end",
                "certificate",
            ),
            reload_failures: registered(
                r,
                IntCounter::new("tls_reload_failures_total", "Changed certificates that could not be used"),
            ),
        }
    }

    /// When a certificate ends; its name must come from the configuration or from the certificate itself.
    pub fn set_expiry(&self, certificate: &str, at: i64) {
        self.not_after.with_label_values(&[certificate]).set(at);
    }

    /// The certificate is shown no more.
    pub fn remove_certificate(&self, certificate: &str) {
        // It can only fail for one that was never shown.
        self.not_after.remove_label_values(&[certificate]).ok();
    }
}
