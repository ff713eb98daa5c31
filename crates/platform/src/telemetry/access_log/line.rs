//! A line of the access log: one JSON object with the names of the Elastic Common Schema.
//!
//! - A line is printable ASCII and ends in a line feed, whatever the request holds (`json`).
//! - It never has an API key, a cookie or a field other than `User-Agent`. The query string is there only where its route
//!   says so, without the values of parameters that hold secrets (`query`).

use std::net::{IpAddr, SocketAddr};

use uuid::Uuid;

use super::json::Object;
use super::query;
use domain::clock::Micros;
use domain::identity::{AuthMethod, OrgId, TlsVersion, UserId};
use domain::key::{self, KeyId};
use domain::trace_context::TraceId;

/// Version of the Elastic Common Schema whose names the lines have.
const ECS_VERSION: &str = "8.17.0";
/// Bytes kept of a user agent, as in the audit journal.
const USER_AGENT_CAP: usize = 256;
/// Bytes kept of a path, as in the audit journal.
const PATH_CAP: usize = 1024;
/// Bytes kept of a query string.
const QUERY_CAP: usize = 1024;
/// Bytes kept of a method: the longest registered one has 17.
const METHOD_CAP: usize = 32;
/// Bytes kept of names of the configuration.
const NAME_CAP: usize = 256;

/// Facts about one request. What is not known is not in the line.
#[derive(Clone, Debug)]
pub struct Line<'a> {
    /// Time of arrival.
    pub time: Micros,
    /// Time from the arrival to the end of the response, in nanoseconds.
    pub duration_ns: u64,
    /// Id of the request, the `X-Request-Id` of its response.
    pub id: Option<Uuid>,
    /// Id of the trace.
    pub trace_id: Option<TraceId>,
    /// Method; none when the head could not be read.
    pub method: Option<&'a str>,
    /// Path.
    pub path: Option<&'a RequestText>,
    /// Query string; none unless the route says that it is logged.
    pub query: Option<&'a RequestText>,
    /// HTTP version, such as `1.1`.
    pub http_version: Option<&'static str>,
    /// Bytes of the request's head, as HTTP/1.1 writes it, and body.
    pub request_bytes: Option<u64>,
    /// Bytes of the request's body.
    pub request_body_bytes: u64,
    /// Status of the response; none when none was sent.
    pub status: Option<u16>,
    /// Bytes of the response's body that were sent.
    pub response_body_bytes: u64,
    /// Client, by the trusted-proxy rule.
    pub client: IpAddr,
    /// Other end of the connection.
    pub source: SocketAddr,
    /// TLS version of the connection; none without TLS.
    pub tls: Option<TlsVersion>,
    /// `User-Agent`.
    pub user_agent: Option<&'a RequestText>,
    /// Caller, once it is known.
    pub caller: Option<Caller>,
    /// Name of the gateway.
    pub gateway: &'a str,
    /// Name of the route.
    pub route: Option<&'a str>,
    /// Name of the upstream.
    pub upstream: Option<&'a str>,
    /// Endpoint that has answered.
    pub endpoint: Option<&'a str>,
    /// `code` of the refusal.
    pub refusal: Option<&'static str>,
    /// Outcome, as in the audit journal.
    pub outcome: &'static str,
    /// True if the response is no error and went to its end.
    pub succeeded: bool,
}

/// Text of a request, without secrets, as far as a line shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestText(Box<[u8]>);

impl RequestText {
    /// A path.
    pub fn path(path: &str) -> Self {
        Self::cut(&key::redact(path.as_bytes()), PATH_CAP)
    }

    /// A query string.
    pub fn query(query: &str) -> Self {
        Self::cut(&query::redact(query), QUERY_CAP)
    }

    /// A value of `User-Agent`.
    pub fn user_agent(agent: &[u8]) -> Self {
        Self::cut(&key::redact(agent), USER_AGENT_CAP)
    }

    /// A copy, so that the whole head is not kept with it. The character behind the cap shows that the text was cut.
    fn cut(text: &[u8], cap: usize) -> Self {
        Self(text[..text.len().min(cap + char::MAX.len_utf8())].into())
    }
}

/// Caller of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Key; none with a session.
    pub key_id: Option<KeyId>,
    /// User that the request acts as.
    pub user_id: UserId,
    /// Organization of the user.
    pub org_id: OrgId,
    /// Method of authentication.
    pub method: AuthMethod,
}

impl Line<'_> {
    /// Appends the line.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut object = Object::begin(out);
        self.write_event(&mut object);
        self.write_http(&mut object);
        self.write_peers(&mut object);
        self.write_own(&mut object);
        object.end();
        out.push(b'\n');
    }

    fn write_event(&self, object: &mut Object<'_>) {
        object.display("@timestamp", self.time);
        object.constant("ecs.version", ECS_VERSION);
        object.constant("event.kind", "event");
        object.list_of("event.category", "web");
        object.list_of("event.type", "access");
        object.constant("event.dataset", "keygate.access");
        object.constant("event.outcome", if self.succeeded { "success" } else { "failure" });
        object.number("event.duration", self.duration_ns);
        object.constant("service.name", "keygate");
        if let Some(trace_id) = self.trace_id {
            object.display("trace.id", trace_id);
        }
    }

    fn write_http(&self, object: &mut Object<'_>) {
        if let Some(id) = self.id {
            object.uuid("http.request.id", id);
        }
        if let Some(method) = self.method {
            object.text("http.request.method", method.as_bytes(), METHOD_CAP);
        }
        if let Some(bytes) = self.request_bytes {
            object.number("http.request.bytes", bytes);
        }
        object.number("http.request.body.bytes", self.request_body_bytes);
        if let Some(status) = self.status {
            object.number("http.response.status_code", status.into());
        }
        object.number("http.response.body.bytes", self.response_body_bytes);
        if let Some(version) = self.http_version {
            object.constant("http.version", version);
        }
        if let Some(path) = self.path {
            object.text("url.path", &path.0, PATH_CAP);
        }
        if let Some(query) = self.query {
            object.text("url.query", &query.0, QUERY_CAP);
        }
        if let Some(agent) = self.user_agent {
            object.text("user_agent.original", &agent.0, USER_AGENT_CAP);
        }
    }

    fn write_peers(&self, object: &mut Object<'_>) {
        let client = self.client.to_canonical();
        object.display("client.ip", client);
        object.display("client.address", client);
        object.display("source.ip", self.source.ip().to_canonical());
        object.number("source.port", self.source.port().into());
        if let Some(version) = self.tls {
            object.constant("tls.version", version.as_str());
            object.constant("tls.version_protocol", "tls");
        }
        let Some(caller) = self.caller else { return };
        object.display("user.id", caller.user_id);
        object.display("organization.id", caller.org_id);
        if let Some(key_id) = caller.key_id {
            object.display("keygate.key_id", key_id);
        }
        object.constant("keygate.auth_method", caller.method.as_str());
    }

    fn write_own(&self, object: &mut Object<'_>) {
        let names = [
            ("keygate.gateway", Some(self.gateway)),
            ("keygate.route", self.route),
            ("keygate.upstream", self.upstream),
            ("keygate.endpoint", self.endpoint),
        ];
        for (name, value) in names.iter().filter_map(|(name, value)| Some((name, (*value)?))) {
            object.text(name, value.as_bytes(), NAME_CAP);
        }
        if let Some(code) = self.refusal {
            object.constant("keygate.refusal", code);
        }
        object.constant("keygate.outcome", self.outcome);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_line(path: &str, agent: &[u8], query: Option<&str>, test: impl FnOnce(&Line<'_>)) {
        let (path, agent) = (RequestText::path(path), RequestText::user_agent(agent));
        let query = query.map(RequestText::query);
        test(&Line {
            time: Micros(1_700_000_000_000_042),
            duration_ns: 1_234_567,
            id: Some(Uuid::nil()),
            trace_id: None,
            method: Some("GET"),
            path: Some(&path),
            query: query.as_ref(),
            http_version: Some("1.1"),
            request_bytes: Some(120),
            request_body_bytes: 0,
            status: Some(200),
            response_body_bytes: 17,
            client: "192.0.2.7".parse().unwrap(),
            source: "[::ffff:10.0.0.1]:4711".parse().unwrap(),
            tls: Some(TlsVersion::V1_3),
            user_agent: Some(&agent),
            caller: Some(Caller {
                key_id: Some("abcDEF123".parse().unwrap()),
                user_id: UserId::from_bytes([1; 16]),
                org_id: OrgId::from_bytes([2; 16]),
                method: AuthMethod::ApiKey,
            }),
            gateway: "gw",
            route: Some("queries.list"),
            upstream: Some("default"),
            endpoint: Some("127.0.0.1:8081"),
            refusal: None,
            outcome: "completed",
            succeeded: true,
        });
    }

    fn text(line: &Line<'_>) -> String {
        let mut out = Vec::new();
        line.write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn line_has_the_names_of_the_common_schema() {
        let expected = concat!(
            r#"{"@timestamp":"2023-11-14T22:13:20.000042Z","ecs.version":"8.17.0","event.kind":"event","#,
            r#""event.category":["web"],"event.type":["access"],"event.dataset":"keygate.access","#,
            r#""event.outcome":"success","event.duration":1234567,"service.name":"keygate","#,
            r#""http.request.id":"00000000-0000-0000-0000-000000000000","http.request.method":"GET","#,
            r#""http.request.bytes":120,"http.request.body.bytes":0,"http.response.status_code":200,"#,
            r#""http.response.body.bytes":17,"http.version":"1.1","url.path":"/api/queries","#,
            r#""user_agent.original":"curl/8.5.0","client.ip":"192.0.2.7","client.address":"192.0.2.7","#,
            r#""source.ip":"10.0.0.1","source.port":4711,"tls.version":"1.3","tls.version_protocol":"tls","#,
            r#""user.id":"usr_01010101010101010101010101010101","organization.id":"org_02020202020202020202020202020202","#,
            r#""keygate.key_id":"abcDEF123","keygate.auth_method":"api-key","keygate.gateway":"gw","#,
            r#""keygate.route":"queries.list","keygate.upstream":"default","keygate.endpoint":"127.0.0.1:8081","#,
            r#""keygate.outcome":"completed"}"#,
            "\n"
        );
        with_line("/api/queries", b"curl/8.5.0", None, |line| assert_eq!(text(line), expected));
    }

    #[test]
    fn secrets_are_in_no_field_and_injection_is_impossible() {
        let key = format!("sk_live_abcDEF123_{}", "x".repeat(49));
        let (path, agent) = (format!("/a/{key}/\u{1b}"), format!("agent {key}\r\n{{\"forged\":1}}"));
        let query = format!("q={key}&api_key=legacy-secret");
        let mut written = String::new();
        with_line(&path, agent.as_bytes(), Some(&query), |line| written = text(line));
        let text = written;
        assert!(!text.contains("xxxx") && !text.contains("legacy-secret"), "{text}");
        assert_eq!(text.matches('\n').count(), 1, "{text}");
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["url.path"], "/a/sk_live_abcDEF123_…/\u{1b}");
        assert_eq!(value["url.query"], "q=sk_live_abcDEF123_…&api_key=REDACTED");
        assert!(value.get("forged").is_none());
    }

    #[test]
    fn key_at_the_cap_is_redacted_before_the_text_is_cut() {
        let key = format!("sk_live_abcDEF123_{}", "x".repeat(49));
        for place in PATH_CAP - 80..PATH_CAP + 2 {
            let path = format!("{}{key}", "a".repeat(place));
            with_line(&path, b"", None, |line| {
                let value: serde_json::Value = serde_json::from_str(&text(line)).unwrap();
                let shown = value["url.path"].as_str().unwrap();
                assert!(!shown.contains('x') && shown.ends_with('…'), "{place}: {shown}");
            });
        }
    }
}
