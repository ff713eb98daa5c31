//! Decisions by gRPC: `ext_authz`, and streams of `ext_proc`, which are exchanges.

use control::management;
use domain::refusal::Refusal;
use envoy_wire::ext_authz::{CheckRequest, CheckResponse, HttpResponse};
use envoy_wire::ext_proc::{
    self, HttpHeaders, HttpTrailers, ProcessingRequest, ProcessingResponse, Request as Part, Response,
};
use envoy_wire::health::{self, HealthCheckRequest, HealthCheckResponse, ServingStatus};
use envoy_wire::{HeaderValueOption, ext_authz};
use journal::audit::Outcome;

use super::grpc::{Envoy, head, question, response_head};
use super::{Asked, gateway};
use crate::support::gateway::OPERATOR;
use crate::support::{Gateway, Key, Upstream, eventually};

const ROUTES: &str = "credentials: { headers: [X-API-Key] }\nroutes:\n  \
                      - { name: reads, path: '/reads/**', permission: 'queries:read' }\n  \
                      - { name: open, path: /open, access: public }\n";
/// Places of the listeners of `ext_authz` and of `ext_proc`.
const CHECK: usize = 3;
const PROCESS: usize = 4;

struct World {
    gateway: Gateway,
    key: Key,
    _upstream: Upstream,
}

impl World {
    fn new() -> Self {
        let upstream = Upstream::start();
        let gateway = gateway(&upstream, "none", ROUTES);
        let key = gateway.key_with(&["queries:read"]);
        Self { gateway, key, _upstream: upstream }
    }

    fn envoy(&self, listener: usize) -> Envoy {
        Envoy::connect(self.gateway.addresses()[listener])
    }
}

fn ok(answer: &CheckResponse) -> &ext_authz::OkHttpResponse {
    match &answer.http_response {
        Some(HttpResponse::OkResponse(ok)) => ok,
        other => panic!("not admitted: {other:?}"),
    }
}

fn set(fields: &[HeaderValueOption]) -> Vec<&str> {
    fields.iter().map(HeaderValueOption::name).collect()
}

/// Status and code of a refusal by `ext_authz`, and the number of its decision.
fn denied(answer: &CheckResponse) -> (i32, String, i32) {
    let Some(HttpResponse::DeniedResponse(denied)) = &answer.http_response else { panic!("admitted: {answer:?}") };
    let body: serde_json::Value = serde_json::from_str(&denied.body).unwrap();
    let status = denied.status.as_ref().unwrap().code;
    assert!(!set(&denied.headers).iter().any(|name| name.starts_with("x-user") || name.starts_with("x-org")));
    (status, body["code"].as_str().unwrap().to_owned(), answer.status.as_ref().unwrap().code)
}

#[test]
fn request_is_admitted_by_ext_authz_with_its_identity_and_without_what_is_forged() {
    let world = World::new();
    let fields = [("X-User-Id", "forged"), ("x_org_id", "forged"), ("X-Real-IP", "1.2.3.4"), ("Accept", "*/*")];
    let asked = Asked { fields: &fields, ..Asked::get("/reads/a?b", &world.key.text) };
    let answer = world.envoy(CHECK).check(&question(asked));
    let admitted = ok(&answer);
    let names = set(&admitted.headers);
    for name in ["x-user-id", "x-org-id", "x-key-id", "x-permissions", "x-auth-method", "x-request-id"] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    let removed: Vec<&str> = admitted.headers_to_remove.iter().map(String::as_str).collect();
    for name in ["x_org_id", "x-real-ip", "authorization"] {
        assert!(removed.contains(&name), "{name}: {removed:?}");
    }
    assert!(!removed.iter().any(|name| names.contains(name)), "Envoy would remove what it has set: {removed:?}");
    assert!(!removed.contains(&"accept"));
    assert!(set(&admitted.response_headers_to_add).contains(&"ratelimit"));
    let metadata = answer.dynamic_metadata.unwrap();
    for name in ["key", "organization", "limit", "route"] {
        assert!(metadata.fields.contains_key(name), "{name}: {metadata:?}");
    }
    let records = world.gateway.records();
    assert_eq!((records.len(), records[0].outcome, &*records[0].path), (1, Outcome::Decided, "/reads/a"));
    assert_eq!(records[0].ip.unwrap().to_string(), "198.51.100.7");
}

#[test]
fn refusals_of_ext_authz_have_their_status_and_the_body_of_the_proxy_mode() {
    let world = World::new();
    let mut envoy = world.envoy(CHECK);
    let key = &*world.key.text;
    let mut check = |asked| denied(&envoy.check(&question(asked)));
    assert_eq!(check(Asked::get("/reads/a", "")), (401, "unauthenticated".into(), 7));
    assert_eq!(check(Asked::get("/none", key)), (404, "not_found".into(), 7));
    let twice = [("Authorization", "Bearer x")];
    assert_eq!(check(Asked { fields: &twice, ..Asked::get("/reads/a", key) }), (400, "invalid_request".into(), 7));
    world.gateway.limit_org(&world.key, 1);
    let mut streams = world.envoy(PROCESS);
    let (open, _) = streams.process(&head(Asked::get("/reads/a", key)));
    assert_eq!(check(Asked::get("/reads/a", key)), (429, "too_many_in_flight".into(), 8));
    drop(open);
}

/// Envoy joins fields of one name.
#[test]
fn keys_that_envoy_has_joined_are_two() {
    let world = World::new();
    let mut envoy = world.envoy(CHECK);
    let key = &*world.key.text;
    let mut check =
        |key: &str, fields: &[(&str, &str)]| envoy.check(&question(Asked { fields, ..Asked::get("/reads/a", key) }));
    ok(&check("", &[("X-API-Key", key)]));
    let refused = (400, "invalid_request".to_owned(), 7);
    assert_eq!(denied(&check(&format!("{key},Bearer {key}"), &[])), refused);
    for field in
        [("x_api_key", format!("{key},{key}")), ("X-API-Key", format!("{key},")), ("X-API-Key", "a,b".to_owned())]
    {
        assert_eq!(denied(&check("", &[(field.0, &field.1)])), refused, "{field:?}");
    }
}

#[test]
fn question_that_lacks_a_fact_is_refused_by_both() {
    let world = World::new();
    let key = &*world.key.text;
    let mut envoy = world.envoy(CHECK);
    let complete = question(Asked::get("/reads/a", key));
    let without = |change: &dyn Fn(&mut ext_authz::AttributeContext)| {
        let mut question = complete.clone();
        change(question.attributes.as_mut().unwrap());
        question
    };
    let http = |attributes: &mut ext_authz::AttributeContext, change: &dyn Fn(&mut ext_authz::HttpRequest)| {
        change(attributes.request.as_mut().unwrap().http.as_mut().unwrap());
    };
    for question in [
        CheckRequest::default(),
        without(&|attributes| attributes.source = None),
        without(&|attributes| attributes.request = None),
        without(&|attributes| http(attributes, &|http| http.method.clear())),
        without(&|attributes| http(attributes, &|http| http.path.clear())),
        without(&|attributes| http(attributes, &|http| http.host.clear())),
        without(&|attributes| http(attributes, &|http| http.fragment = "a".to_owned())),
        without(&|attributes| http(attributes, &|http| drop(http.headers.insert(":path".into(), "/open".into())))),
    ] {
        assert_eq!(denied(&envoy.check(&question)).1, "malformed_decision");
    }
    let mut envoy = world.envoy(PROCESS);
    let complete = head(Asked::get("/reads/a", key));
    let mut without_source = complete.clone();
    without_source.attributes.clear();
    let mut twice = complete;
    if let Some(Part::RequestHeaders(HttpHeaders { headers: Some(headers), .. })) = &mut twice.request {
        let method = headers.headers[0].clone();
        headers.headers.push(method);
    }
    for malformed in [without_source, twice] {
        let (_, answer) = envoy.process(&malformed);
        let Some(Response::ImmediateResponse(refused)) = answer.response else { panic!("{answer:?}") };
        assert_eq!(refused.status.unwrap().code, i32::from(Refusal::MalformedDecision.row().answer.status.as_u16()));
    }
    assert_eq!(world.gateway.metric("keygate_malformed_decisions_total"), 10.0);
}

/// Facts that are no head, or would be two, are answered as heads of connections are that no server reads alike.
#[test]
fn described_head_that_cannot_be_read_is_refused_by_both() {
    let world = World::new();
    let (mut check, mut process) = (world.envoy(CHECK), world.envoy(PROCESS));
    let key = &*world.key.text;
    let status = |answer: ProcessingResponse| match answer.response {
        Some(Response::ImmediateResponse(refused)) => refused.status.unwrap().code,
        other => panic!("admitted: {other:?}"),
    };
    for target in ["/open#/../reads/a", "/open HTTP/1.1\r\nX-User-Id: forged", "/open\u{e4}", "/\"", "/a b"] {
        assert_eq!(denied(&check.check(&question(Asked::get(target, key)))).1, "malformed_request", "{target:?}");
        assert_eq!(status(process.process(&head(Asked::get(target, key))).1), 400, "{target:?}");
    }
    for field in [("a", "b\r\nX-User-Id: forged"), ("a: b\r\nc", "d"), ("a:b", "c"), ("host", "other"), ("", "a")] {
        let fields = [field];
        let asked = Asked { fields: &fields, ..Asked::get("/reads/a", key) };
        assert_eq!(denied(&check.check(&question(asked))).1, "malformed_request", "{field:?}");
        assert_eq!(status(process.process(&head(asked)).1), 400, "{field:?}");
    }
    let long = format!("/open?{}", "a".repeat(17_000));
    assert_eq!(denied(&check.check(&question(Asked::get(&long, key)))).0, 414);
    let same = [("host", "h"), ("Content-Length", "x"), ("Expect", "a miracle")];
    let asked = Asked { fields: &same, ..Asked::get("/reads/a", key) };
    ok(&check.check(&question(asked)));
}

#[test]
fn stream_is_an_exchange_with_a_slot_until_it_ends() {
    let world = World::new();
    let mut envoy = world.envoy(PROCESS);
    let head = head(Asked::get("/reads/a", &world.key.text));
    let (mut call, answer) = envoy.process(&head);
    let Some(Response::RequestHeaders(_)) = &answer.response else { panic!("{answer:?}") };
    assert!(answer.mode_override.is_some(), "else Envoy ends the stream before the response");
    assert_eq!(world.gateway.explain_in_flight(&world.key), 1);
    call.send(response_head(201, false));
    let answer: ProcessingResponse = envoy.next(&mut call).unwrap();
    let Some(Response::ResponseHeaders(headers)) = answer.response else { panic!("{answer:?}") };
    let shown = headers.response.unwrap().header_mutation.unwrap().set_headers;
    assert!(set(&shown).contains(&"ratelimit"), "{shown:?}");
    assert_eq!(world.gateway.explain_in_flight(&world.key), 1, "the response goes on");
    call.send(Part::ResponseTrailers(HttpTrailers::default()));
    envoy.next::<ProcessingResponse>(&mut call).unwrap();
    call.parts = None;
    assert_eq!(envoy.next::<ProcessingResponse>(&mut call), Err(Some("0".to_owned())));
    eventually("the slot is free", || world.gateway.explain_in_flight(&world.key) == 0);
    let records = world.gateway.records();
    assert_eq!((records.len(), records[0].outcome, records[0].status), (1, Outcome::Completed, Some(201)));
}

#[test]
fn outcome_of_a_stream_says_what_was_seen_of_its_end() {
    let world = World::new();
    let mut envoy = world.envoy(PROCESS);
    let head = head(Asked::get("/reads/a", &world.key.text));
    let mut end = |parts: &[Part]| {
        let (mut call, _) = envoy.process(&head);
        for part in parts {
            call.send(part.clone());
            envoy.next::<ProcessingResponse>(&mut call).unwrap();
        }
        // Envoy resets streams, whatever has become of the exchange.
        drop(call);
        let record = world.gateway.records().remove(0);
        (record.outcome, record.status)
    };
    assert_eq!(end(&[]), (Outcome::Decided, None), "no head of a response was ever seen");
    assert_eq!(world.gateway.metric("keygate_decision_streams_early_total"), 1.0);
    assert_eq!(end(&[response_head(204, true)]), (Outcome::Completed, Some(204)), "that was all");
    assert_eq!(end(&[response_head(200, false)]), (Outcome::Decided, Some(200)));
    assert_eq!(end(&[]), (Outcome::Aborted, None), "heads are seen, so the client has gone");
    assert_eq!(world.gateway.metric("keygate_decision_streams_early_total"), 1.0);
}

#[test]
fn revocation_resets_open_streams() {
    let world = World::new();
    let (gateway, key) = (&world.gateway, &world.key);
    let mut envoy = world.envoy(PROCESS);
    let mut check = |change: &dyn Fn()| {
        let mut calls: Vec<_> = (0..20).map(|_| envoy.process(&head(Asked::get("/reads/a", &key.text))).0).collect();
        change();
        for call in &mut calls {
            assert_eq!(envoy.next::<ProcessingResponse>(call), Err(None), "the stream is reset");
        }
    };
    check(&|| gateway.disable(key));
    gateway.perform(async |to, now| management::enable_key(to, OPERATOR, key.id, now).await);
    check(&|| gateway.suspend_user(key));
    let records = world.gateway.records();
    assert_eq!(records.iter().filter(|record| record.outcome == Outcome::Terminated).count(), 40);
    assert_eq!(world.gateway.explain_in_flight(&world.key), 0);
}

#[test]
fn streams_end_without_an_error_behind_the_drain() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream, "none", &format!("{ROUTES}timeouts: {{ drain: 1s, lame_duck: 0s }}\n"));
    let key = gateway.key_with(&["queries:read"]);
    let mut envoy = Envoy::connect(gateway.addresses()[PROCESS]);
    let (mut call, _) = envoy.process(&head(Asked::get("/reads/a", &key.text)));
    call.send(response_head(200, false));
    envoy.next::<ProcessingResponse>(&mut call).unwrap();
    let mut health = envoy.ask(health::WATCH, &HealthCheckRequest::default());
    assert_eq!(envoy.next::<HealthCheckResponse>(&mut health), Ok(ServingStatus::Serving.into()));
    let stopping = std::thread::spawn(move || drop(gateway));
    assert_eq!(envoy.next::<HealthCheckResponse>(&mut health), Ok(ServingStatus::NotServing.into()));
    assert_eq!(envoy.next::<ProcessingResponse>(&mut call), Err(Some("0".to_owned())), "the exchange goes on");
    stopping.join().unwrap();
}

/// Requests of one client of Envoy, refused or given up many times, do not end the connection that all share.
#[test]
fn clients_that_go_away_or_are_refused_do_not_end_the_connection_of_the_others() {
    let world = World::new();
    let mut envoy = world.envoy(PROCESS);
    let admitted = head(Asked::get("/reads/a", &world.key.text));
    let refused = head(Asked::get("/reads/a", ""));
    let (mut open, _) = envoy.process(&admitted);
    for _ in 0..1200 {
        drop(envoy.open(ext_proc::PROCESS, &admitted));
        drop(envoy.process(&refused));
    }
    open.send(response_head(200, false));
    envoy.next::<ProcessingResponse>(&mut open).unwrap();
}

#[test]
fn each_slots_setting_serves_its_protocol_and_health_is_told() {
    let world = World::new();
    let unimplemented = Err(Some("12".to_owned()));
    let mut envoy = world.envoy(CHECK);
    let mut call = envoy.open(ext_proc::PROCESS, &head(Asked::get("/reads/a", &world.key.text)));
    assert_eq!(envoy.next::<ProcessingResponse>(&mut call), unimplemented);
    let mut call = envoy.ask(health::CHECK, &HealthCheckRequest::default());
    let healthy = HealthCheckResponse::from(ServingStatus::Serving);
    assert_eq!(envoy.next::<HealthCheckResponse>(&mut call), Ok(healthy));
    let mut envoy = world.envoy(PROCESS);
    let mut call = envoy.ask(ext_authz::CHECK, &question(Asked::get("/reads/a", &world.key.text)));
    assert_eq!(envoy.next::<CheckResponse>(&mut call).err(), unimplemented.err());
    let mut call = envoy.ask(health::WATCH, &HealthCheckRequest::default());
    assert_eq!(envoy.next::<HealthCheckResponse>(&mut call), Ok(healthy));
    let mut call = envoy.open(ext_proc::PROCESS, &ProcessingRequest::from(response_head(200, true)));
    assert_eq!(envoy.next::<ProcessingResponse>(&mut call), Err(Some("3".to_owned())), "it begins with the request");
}
