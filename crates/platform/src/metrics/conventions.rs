//! Metrics of HTTP by the semantic conventions of OpenTelemetry, beside the gateway's own ones.
//!
//! - The values of labels are bounded: methods and statuses are those that are registered, others are `_OTHER` and the
//!   first status of their class; routes and servers are those of the configuration.
//! - They cost look-ups by label at each request, and so are off unless configured.

use http::{Method, StatusCode};
use prometheus::HistogramVec;

use super::GaugeGuard;

/// `http.request.method` of other methods than those of RFC 9110 and PATCH.
pub(crate) const OTHER_METHOD: &str = "_OTHER";
/// Buckets of the convention, in seconds.
const BUCKETS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];

metrics! {
    /// Requests of clients.
    pub struct ServerConventions {
        /// Duration of HTTP server requests
        histograms "http_server_request_duration_seconds"
            { http_request_method, http_route, http_response_status_code, error_type } in BUCKETS => durations;
        /// Number of active HTTP server requests
        gauges "http_server_active_requests" { http_request_method, url_scheme } => active;
    }
}

metrics! {
    /// Requests to upstreams.
    pub(super) struct ClientConventions {
        /// Duration of HTTP client requests
        histograms "http_client_request_duration_seconds"
            { http_request_method, server_address, server_port, http_response_status_code, error_type }
            in BUCKETS => durations;
    }
}

/// `http_client_request_duration_seconds` of one server.
#[derive(Clone, Debug)]
pub struct ClientDurations {
    durations: HistogramVec,
    address: String,
    port: String,
}

/// End of a request.
#[derive(Clone, Copy, Debug)]
pub struct RequestEnd<'a> {
    /// Method of the request.
    pub method: &'a Method,
    /// Status of the response; none when there was none.
    pub status: Option<StatusCode>,
    /// Error that is no status.
    pub error: Option<&'static str>,
    /// Seconds that it took.
    pub seconds: f64,
}

impl ServerConventions {
    /// Counts a request as active.
    pub fn begin(&self, method: &Method, scheme: &'static str) -> GaugeGuard {
        GaugeGuard::new(&self.active.with_label_values(&[known_method(method), scheme]))
    }

    /// Notes the end of a request. `route` is the path of its route as the configuration has it, or empty.
    pub fn observe(&self, end: RequestEnd<'_>, route: &str) {
        let is_error = |status: StatusCode| status.is_server_error();
        let (status, error) = labels(&end, is_error);
        let durations = self.durations.with_label_values(&[known_method(end.method), route, &status, &error]);
        durations.observe(end.seconds);
    }
}

impl ClientConventions {
    /// The metric of one server: an entry of the configuration, such as `http://store:8081`.
    pub(super) fn server(&self, entry: &str) -> ClientDurations {
        let authority = entry.split_once("://").map_or(entry, |(_, rest)| rest);
        let (address, port) = match authority.rsplit_once(':') {
            Some((address, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => (address, port),
            _ => (authority, ""),
        };
        ClientDurations { durations: self.durations.clone(), address: address.to_owned(), port: port.to_owned() }
    }
}

impl ClientDurations {
    /// Notes the end of a request.
    pub fn observe(&self, end: RequestEnd<'_>) {
        let is_error = |status: StatusCode| status.is_client_error() || status.is_server_error();
        let (status, error) = labels(&end, is_error);
        let values = [known_method(end.method), &self.address, &self.port, &status, &error];
        self.durations.with_label_values(&values).observe(end.seconds);
    }
}

/// Values of `http_response_status_code` and `error_type`; empty when there is none.
fn labels(end: &RequestEnd<'_>, is_error: impl Fn(StatusCode) -> bool) -> (String, String) {
    let status = end.status.map(|status| known_status(status).to_string()).unwrap_or_default();
    let error = match end.error {
        Some(error) => error.to_owned(),
        None if end.status.is_some_and(is_error) => status.clone(),
        None => String::new(),
    };
    (status, error)
}

/// A method that everybody knows; a client can send any other, and labels and names are bounded.
pub(crate) fn known_method(method: &Method) -> &'static str {
    const KNOWN: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];
    KNOWN.into_iter().find(|known| method.as_str() == *known).unwrap_or(OTHER_METHOD)
}

/// A registered status; for others the first one of their class, as which clients must treat them
/// (RFC 9110, section 15).
fn known_status(status: StatusCode) -> u16 {
    match status.canonical_reason() {
        Some(_) => status.as_u16(),
        None => status.as_u16() / 100 * 100,
    }
}

#[cfg(test)]
mod tests {
    use prometheus::{Registry, TextEncoder};

    use super::*;

    fn text(registry: &Registry) -> String {
        TextEncoder::new().encode_to_string(&registry.gather()).unwrap()
    }

    #[test]
    fn labels_are_bounded() {
        let registry = Registry::new();
        let server = ServerConventions::register(&registry);
        for (method, status) in [("GET", 200), ("BREW", 418), ("X", 599), ("Y", 598), ("GET", 777)] {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            let status = StatusCode::from_u16(status).ok();
            server.observe(RequestEnd { method: &method, status, error: None, seconds: 0.02 }, "/a/{id}");
        }
        let text = text(&registry);
        let series: Vec<&str> = text.lines().filter(|line| line.contains("seconds_count{")).collect();
        let count = |labels: &str, count: u64| {
            let line = format!("http_server_request_duration_seconds_count{{{labels}}} {count}");
            assert!(series.contains(&line.as_str()), "{line}: {series:#?}");
        };
        let of = |method: &str, status: &str, error: &str| {
            format!(
                "error_type=\"{error}\",http_request_method=\"{method}\",http_response_status_code=\"{status}\",\
                 http_route=\"/a/{{id}}\""
            )
        };
        count(&of("GET", "200", ""), 1);
        count(&of("_OTHER", "500", "500"), 2);
        count(&of("GET", "700", ""), 1);
        assert!(text.contains("_bucket{") && text.contains("le=\"0.025\"} 1"), "{text}");
    }

    #[test]
    fn active_requests_are_those_that_have_not_ended() {
        let registry = Registry::new();
        let server = ServerConventions::register(&registry);
        let active = server.begin(&Method::GET, "https");
        let line = "http_server_active_requests{http_request_method=\"GET\",url_scheme=\"https\"}";
        assert!(text(&registry).contains(&format!("{line} 1")));
        drop(active);
        assert!(text(&registry).contains(&format!("{line} 0")));
    }

    #[test]
    fn server_is_the_entry_of_the_configuration() {
        let client = ClientConventions::register(&Registry::new());
        let parts = |entry: &str| {
            let ClientDurations { address, port, .. } = client.server(entry);
            (address, port)
        };
        let both = |address: &str, port: &str| (address.to_owned(), port.to_owned());
        assert_eq!(parts("http://store:8081"), both("store", "8081"));
        assert_eq!(parts("https://[::1]:443"), both("[::1]", "443"));
        assert_eq!(parts("unix:/run/store.sock"), both("unix:/run/store.sock", ""));
        assert_eq!(parts("srv+http://_http._tcp.store"), both("_http._tcp.store", ""));
    }
}
