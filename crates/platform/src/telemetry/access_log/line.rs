//! A line of the access log: one JSON object with the names of the Elastic Common Schema.
//!
//! - A line is printable ASCII and ends in a line feed, whatever the request holds (`json`).
//! - It never has an API key, a cookie or a field other than `User-Agent`. The query string is there only where its
//!   route says so, without the values of parameters that hold secrets (`query`).

use http::Version;

use super::json::Object;
use crate::telemetry::request_facts::{PATH_CAP, QUERY_CAP, RequestFacts, USER_AGENT_CAP};

/// Version of the Elastic Common Schema whose names the lines have.
const ECS_VERSION: &str = "8.17.0";
/// Bytes kept of a method: the longest registered one has 17.
const METHOD_CAP: usize = 32;
/// Bytes kept of names of the configuration.
const NAME_CAP: usize = 256;

/// Appends the line of a request that has ended, at the gateway of this name. What is not known is not in the line.
pub(crate) fn write_line(facts: &RequestFacts, gateway: &str, out: &mut Vec<u8>) {
    let mut object = Object::begin(out);
    write_event(facts, &mut object);
    write_http(facts, &mut object);
    write_peers(facts, &mut object);
    write_own(facts, gateway, &mut object);
    object.end();
    out.push(b'\n');
}

fn write_event(facts: &RequestFacts, object: &mut Object<'_>) {
    object.display("@timestamp", facts.time);
    object.constant("ecs.version", ECS_VERSION);
    object.constant("event.kind", "event");
    object.list_of("event.category", "web");
    object.list_of("event.type", "access");
    object.constant("event.dataset", "keygate.access");
    object.constant("event.outcome", if facts.has_succeeded() { "success" } else { "failure" });
    object.number("event.duration", u64::try_from(facts.duration.as_nanos()).unwrap_or(u64::MAX));
    object.constant("service.name", "keygate");
    if let Some(trace) = &facts.trace {
        object.display("trace.id", trace.trace_id);
    }
}

fn write_http(facts: &RequestFacts, object: &mut Object<'_>) {
    if let Some(id) = facts.id {
        object.uuid("http.request.id", id);
    }
    if let Some(head) = &facts.head {
        object.text("http.request.method", head.method.as_str().as_bytes(), METHOD_CAP);
        object.number("http.request.bytes", head.bytes + facts.request_body_bytes);
    }
    object.number("http.request.body.bytes", facts.request_body_bytes);
    if let Some(status) = facts.status {
        object.number("http.response.status_code", status.as_u16().into());
    }
    object.number("http.response.body.bytes", facts.response_body_bytes);
    let Some(head) = &facts.head else { return };
    if let Some(version) = version_number(head.version) {
        object.constant("http.version", version);
    }
    object.text("url.path", head.path.as_bytes(), PATH_CAP);
    if let Some(query) = &facts.query {
        object.text("url.query", query.as_bytes(), QUERY_CAP);
    }
    if let Some(agent) = &head.user_agent {
        object.text("user_agent.original", agent.as_bytes(), USER_AGENT_CAP);
    }
}

fn version_number(version: Version) -> Option<&'static str> {
    match version {
        Version::HTTP_10 => Some("1.0"),
        Version::HTTP_11 => Some("1.1"),
        Version::HTTP_2 => Some("2"),
        _ => None,
    }
}

fn write_peers(facts: &RequestFacts, object: &mut Object<'_>) {
    let client = facts.client.to_canonical();
    object.display("client.ip", client);
    object.display("client.address", client);
    object.display("source.ip", facts.source.ip().to_canonical());
    object.number("source.port", facts.source.port().into());
    if let Some(version) = facts.tls {
        object.constant("tls.version", version.as_str());
        object.constant("tls.version_protocol", "tls");
    }
    let Some(caller) = &facts.caller else { return };
    object.display("user.id", caller.user_id);
    object.display("organization.id", caller.org_id);
    if let Some(key_id) = caller.key_id {
        object.display("keygate.key_id", key_id);
    }
    object.constant("keygate.auth_method", caller.method.as_str());
}

fn write_own(facts: &RequestFacts, gateway: &str, object: &mut Object<'_>) {
    let names = [
        ("keygate.gateway", Some(gateway)),
        ("keygate.route", facts.route.as_deref()),
        ("keygate.upstream", facts.upstream.as_deref()),
        ("keygate.endpoint", facts.endpoint.as_deref()),
    ];
    for (name, value) in names.iter().filter_map(|(name, value)| Some((name, (*value)?))) {
        object.text(name, value.as_bytes(), NAME_CAP);
    }
    if let Some(code) = facts.refusal {
        object.constant("keygate.refusal", code);
    }
    object.constant("keygate.outcome", facts.outcome());
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use http::{Request, StatusCode};
    use uuid::Uuid;

    use super::*;
    use crate::telemetry::request_facts::{COMPLETED, HeadFacts, RequestText};
    use domain::clock::{self, Micros, Reading};
    use domain::head_fields::CredentialFields;
    use domain::identity::{AuthMethod, OrgId, Peer, Principal, PrincipalHeaders, TlsVersion, UserId};

    fn line(path: &str, agent: &[u8], query: Option<&str>) -> String {
        let peer =
            Peer { address: "[::ffff:10.0.0.1]:4711".parse().unwrap(), tls: Some(TlsVersion::V1_3), certificate: None };
        let arrival = Reading { time: Micros(1_700_000_000_000_042), ..clock::read() };
        let (head, ()) = Request::new(()).into_parts();
        let user_agent = Some(RequestText::user_agent(agent));
        let user_id = UserId::from_bytes([1; 16]);
        let org_id = OrgId::from_bytes([2; 16]);
        let key_id = Some("abcDEF123".parse().unwrap());
        let headers = PrincipalHeaders::new(user_id, org_id, &[]);
        let facts = RequestFacts {
            duration: Duration::from_nanos(1_234_567),
            head: Some(HeadFacts { user_agent, bytes: 120, ..HeadFacts::new(&head, path) }),
            query: query.map(|query| RequestText::query(query, &CredentialFields::NONE)),
            caller: Some(Arc::new(Principal { key_id, user_id, org_id, method: AuthMethod::ApiKey, headers })),
            route: Some("queries.list".into()),
            upstream: Some("default".into()),
            endpoint: Some("127.0.0.1:8081".into()),
            outcome: Some(COMPLETED),
            status: Some(StatusCode::OK),
            response_body_bytes: 17,
            ..RequestFacts::new(Some(Uuid::nil()), arrival, &peer, "192.0.2.7".parse().unwrap())
        };
        let mut out = Vec::new();
        write_line(&facts, "gw", &mut out);
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
            r#""user.id":"usr_01010101010101010101010101010101","#,
            r#""organization.id":"org_02020202020202020202020202020202","#,
            r#""keygate.key_id":"abcDEF123","keygate.auth_method":"api-key","keygate.gateway":"gw","#,
            r#""keygate.route":"queries.list","keygate.upstream":"default","keygate.endpoint":"127.0.0.1:8081","#,
            r#""keygate.outcome":"completed"}"#,
            "\n"
        );
        assert_eq!(line("/api/queries", b"curl/8.5.0", None), expected);
    }

    #[test]
    fn secrets_are_in_no_field_and_injection_is_impossible() {
        let key = format!("sk_live_abcDEF123_{}", "x".repeat(49));
        let path = format!("/a/{key}/\u{1b}");
        let agent = format!("agent {key}\r\n{{\"forged\":1}}");
        let query = format!("q={key}&api_key=legacy-secret");
        let text = line(&path, agent.as_bytes(), Some(&query));
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
            let value: serde_json::Value = serde_json::from_str(&line(&path, b"", None)).unwrap();
            let shown = value["url.path"].as_str().unwrap();
            assert!(!shown.contains('x') && shown.ends_with('…'), "{place}: {shown}");
        }
    }
}
