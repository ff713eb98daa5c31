//! Metrics of both edges: connections, time-outs, removed header fields, and certificates.

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
            pub refused_address("address"),
            /// By an address that is not among the proxies that may ask.
            pub refused_peer("peer");
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

metrics! {
    /// Time-outs of both sides.
    pub struct TimeoutMetrics {
        /// Expired time-outs
        counter "timeouts_total" { kind } =>
            pub handshake("handshake"), pub first_byte("first_byte"), pub head("head"), pub body_idle("body_idle"),
            pub body_rate("body_rate"), pub write_idle("write_idle"), pub keep_alive("keep_alive"),
            /// No connection to the upstream was established in time.
            pub upstream_connect("upstream_connect"),
            /// No response head arrived in time.
            pub upstream_first_byte("upstream_first_byte"),
            /// The next piece of a response body did not arrive in time.
            pub upstream_body("upstream_body"),
            /// The whole exchange took too long.
            pub upstream_whole("upstream_whole"),
            /// A tunnel was idle for too long.
            pub tunnel_idle("tunnel_idle");
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
