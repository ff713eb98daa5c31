//! Metrics of both edges: connections, time-outs, removed header fields, and certificates.

use prometheus::{IntCounter, IntCounterVec};

metrics! {
    /// Removed header fields, by the direction of their message.
    pub struct FieldMetrics {
        /// Header fields removed because a server could misread their names
        counter "fields_dropped_total" { direction } => pub request("request"), pub response("response");
    }
}

metrics! {
    /// Downstream connections.
    pub struct ConnectionMetrics {
        /// Open downstream connections
        gauge "connections" => pub open;
        /// HTTP/1 connections that wait for a request without buffers
        gauge "connections_parked" => pub parked;
        /// Connections closed at once because a maximum was reached
        counter "connections_refused_total" { reason } =>
            pub refused_total("total"),
            /// That of their address.
            pub refused_address("address");
        /// Connections that failed before HTTP
        counter "handshake_failures_total" { kind } =>
            pub failed_tls("tls"),
            /// Missing or malformed PROXY headers.
            pub failed_proxy("proxy");
        /// HTTP/2 connections closed for a flood of frames
        counter "http2_floods_total" => pub floods;
    }
}

metrics! {
    /// Certificates.
    pub struct TlsMetrics {
        /// Unix time at which the certificate expires
        gauges "tls_certificate_not_after_timestamp_seconds" { certificate } => not_after;
        /// Changed certificates that could not be used
        counter "tls_reload_failures_total" => pub reload_failures;
    }
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
