//! Metrics of both edges: connections, time-outs, removed header fields, and certificates.

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry};

use super::registration::{counter, counters, gauge, gauges};

/// `fields_dropped_total{direction}`: header fields that were removed because a server could misread their names.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the label's values")]
pub struct FieldMetrics {
    pub request: IntCounter,
    pub response: IntCounter,
}

/// `connections`, `connections_parked`, `connections_refused_total{reason}`, `handshake_failures_total{kind}` and `http2_floods_total`.
#[derive(Clone, Debug)]
pub struct ConnectionMetrics {
    /// Open connections.
    pub open: IntGauge,
    /// Those of them that wait for a request without buffers.
    pub parked: IntGauge,
    /// Connections closed at once, because the maximum was open.
    pub refused_total: IntCounter,
    /// Connections closed at once, because the maximum of their address was open.
    pub refused_address: IntCounter,
    /// Failed TLS handshakes.
    pub failed_tls: IntCounter,
    /// Missing or malformed PROXY headers.
    pub failed_proxy: IntCounter,
    /// HTTP/2 connections closed for a flood of frames.
    pub floods: IntCounter,
}

/// `timeouts_total{kind}`: expired time-outs of the downstream side.
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

/// `timeouts_total{kind}`: expired time-outs of the upstream side.
#[derive(Clone, Debug)]
pub struct UpstreamTimeouts {
    /// No connection was established in time.
    pub connect: IntCounter,
    /// No response head arrived in time.
    pub first_byte: IntCounter,
    /// The next piece of a response body did not arrive in time.
    pub body: IntCounter,
    /// The whole exchange took too long.
    pub whole: IntCounter,
    /// A tunnel was idle for too long.
    pub tunnel: IntCounter,
}

/// `tls_certificate_not_after_timestamp_seconds{certificate}` and `tls_reload_failures_total`.
#[derive(Clone, Debug)]
pub struct TlsMetrics {
    not_after: IntGaugeVec,
    /// Changed certificate files that could not be used; the previous certificates stay in use.
    pub reload_failures: IntCounter,
}

impl FieldMetrics {
    pub(super) fn new(r: &Registry) -> Self {
        let fields = counters(
            r,
            "fields_dropped_total",
            "Header fields removed because a server could misread their names",
            &["direction"],
        );
        let direction = |direction| fields.with_label_values(&[direction]);
        Self { request: direction("request"), response: direction("response") }
    }
}

impl ConnectionMetrics {
    pub(super) fn new(r: &Registry) -> Self {
        let refused = counters(
            r,
            "connections_refused_total",
            "Connections closed at once because a maximum was reached",
            &["reason"],
        );
        let failed = counters(r, "handshake_failures_total", "Connections that failed before HTTP", &["kind"]);
        Self {
            open: gauge(r, "connections", "Open downstream connections"),
            parked: gauge(r, "connections_parked", "HTTP/1 connections that wait for a request without buffers"),
            refused_total: refused.with_label_values(&["total"]),
            refused_address: refused.with_label_values(&["address"]),
            failed_tls: failed.with_label_values(&["tls"]),
            failed_proxy: failed.with_label_values(&["proxy"]),
            floods: counter(r, "http2_floods_total", "HTTP/2 connections closed for a flood of frames"),
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
                "Unix time at which the certificate expires",
                &["certificate"],
            ),
            reload_failures: counter(r, "tls_reload_failures_total", "Changed certificates that could not be used"),
        }
    }

    /// Sets the expiry of a certificate, Unix time in seconds. Its name must come from the configuration or from the
    /// certificate itself.
    pub fn set_expiry(&self, certificate: &str, at: i64) {
        self.not_after.with_label_values(&[certificate]).set(at);
    }

    /// Removes a certificate that is no longer in use.
    pub fn remove_certificate(&self, certificate: &str) {
        // Fails only for a certificate that was never set.
        self.not_after.remove_label_values(&[certificate]).ok();
    }
}
