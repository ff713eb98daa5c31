//! Active checks, and what operators see of endpoints.

use std::convert::Infallible;
use std::io::Write as _;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use domain::clock;
use futures_util::stream;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::StreamBody;
use hyper::body::{Body, Frame, Incoming};
use upstream::EndpointReport;

use super::{PLENTY, ejections, labelled, responding};
use crate::support::upstream_blocks::endpoints as endpoints_at;
use crate::support::{Client, Gateway, HyperOptions, KEYGATE, Upstream, eventually, free_address, traffic_of};

/// gRPC server whose calls, and whose health, are as the switches say.
struct GrpcServer {
    address: SocketAddr,
    is_serving: Arc<AtomicBool>,
    calls: Arc<AtomicUsize>,
}

impl GrpcServer {
    /// `status` is the `grpc-status` of calls; it stands in the head, or behind a message.
    fn start(status: &'static str, in_head: bool) -> Self {
        let (is_serving, calls) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
        let (serving, counted) = (Arc::clone(&is_serving), Arc::clone(&calls));
        let upstream = HyperOptions::http2().start(move |request: Request<Incoming>| {
            let response = if request.uri().path() == "/grpc.health.v1.Health/Check" {
                let status = if serving.load(Ordering::SeqCst) { 1 } else { 2 };
                grpc_response(&[0, 0, 0, 0, 2, 8, status], "0", false)
            } else {
                counted.fetch_add(1, Ordering::SeqCst);
                grpc_response(b"\0\0\0\0\0", status, in_head)
            };
            std::future::ready(Ok::<_, Infallible>(response))
        });
        Self { address: upstream.address, is_serving, calls }
    }
}

/// Response with one message, and its status in the head or in the trailers.
fn grpc_response(
    message: &[u8],
    status: &'static str,
    in_head: bool,
) -> Response<impl Body<Data = Bytes, Error = Infallible> + use<>> {
    let mut response = Response::builder().header("content-type", "application/grpc");
    let mut frames = vec![Ok(Frame::data(Bytes::copy_from_slice(message)))];
    if in_head {
        response = response.header("grpc-status", status);
    } else {
        let trailers = [("grpc-status".parse().unwrap(), HeaderValue::from_static(status))];
        frames.push(Ok(Frame::trailers(HeaderMap::from_iter(trailers))));
    }
    response.body(StreamBody::new(stream::iter(frames))).unwrap()
}

pub fn with(endpoints: &[SocketAddr], upstream: &str) -> Gateway {
    with_blocks(endpoints, upstream, "")
}

/// The same with further blocks of the configuration.
pub fn with_blocks(endpoints: &[SocketAddr], upstream: &str, blocks: &str) -> Gateway {
    let routes = "routes: [{ name: all, path: /**, trailers: true }]\n";
    let upstream = format!("upstream: {{ {}, {upstream} }}\n", endpoints_at(endpoints));
    Gateway::with(&[], &format!("{PLENTY}{routes}{upstream}{blocks}"))
}

/// Output of `keygate upstreams` with these arguments.
fn keygate_upstreams(gateway: &Gateway, arguments: &[&str]) -> String {
    let config = gateway.dir.path().join("keygate.yaml");
    let output = Command::new(KEYGATE).arg("upstreams").args(arguments).arg("--config").arg(&config).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn endpoint_whose_checks_fail_takes_no_requests_until_they_pass() {
    let is_well = Arc::new(AtomicBool::new(false));
    let state = Arc::clone(&is_well);
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&requests);
    let checked = Upstream::answering(move |request, stream| {
        let is_check = request.path() == "/health?deep";
        let status = if is_check && !state.load(Ordering::SeqCst) { 503 } else { 204 };
        counted.fetch_add(usize::from(!is_check), Ordering::SeqCst);
        stream.write_all(format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\n\r\n").as_bytes()).ok();
    });
    let good = responding(204, Duration::ZERO);
    let health = "health: { path: \"/health?deep\", expect: 204, interval: 100ms, healthy: 2, unhealthy: 2 }, outlier: \
                  { slow_start: 100ms }";
    let gateway = with(&[checked.address, good.address], health);
    let up = labelled("endpoint_up", checked.address);
    eventually("its checks fail", || gateway.metric(&up) == 0.0);
    assert!(keygate_upstreams(&gateway, &["--json"]).contains("\"state\":\"failing\""));
    let key = gateway.key().text;
    let before = requests.load(Ordering::SeqCst);
    traffic_of(gateway.address, &key, 2, 50);
    assert_eq!(requests.load(Ordering::SeqCst), before);
    is_well.store(true, Ordering::SeqCst);
    eventually("its checks pass", || gateway.metric(&up) == 1.0);
    eventually("it takes requests", || {
        traffic_of(gateway.address, &key, 2, 10);
        requests.load(Ordering::SeqCst) > before
    });
}

#[test]
fn all_checks_fail_and_requests_still_go() {
    let upstreams = [responding(404, Duration::ZERO), responding(404, Duration::ZERO)];
    let gateway =
        with(&upstreams.each_ref().map(|upstream| upstream.address), "health: { path: /no, interval: 100ms }");
    let key = gateway.key().text;
    eventually("the upstream is in panic", || gateway.metric("keygate_upstream_panic{upstream=\"default\"}") == 1.0);
    assert_eq!(Client::connect(gateway.address).get("/", &key).status, 404);
}

#[test]
fn grpc_health_decides_who_takes_calls() {
    let servers = [GrpcServer::start("0", false), GrpcServer::start("0", false)];
    let health = "protocol: http2, health: { grpc: server, interval: 100ms, healthy: 1, unhealthy: 1 }";
    let gateway = with(&servers.each_ref().map(|server| server.address), health);
    let up = labelled("endpoint_up", servers[0].address);
    let ok = format!(
        "keygate_upstream_checks_total{{endpoint=\"{}\",result=\"ok\",upstream=\"default\"}}",
        servers[0].address
    );
    eventually("a check passes", || gateway.metric(&ok) > 0.0);
    servers[0].is_serving.store(false, Ordering::SeqCst);
    eventually("it is not serving", || gateway.metric(&up) == 0.0);
    let key = gateway.key().text;
    let before = servers[0].calls.load(Ordering::SeqCst);
    traffic_of(gateway.address, &key, 2, 20);
    assert_eq!(servers[0].calls.load(Ordering::SeqCst), before);
    servers[0].is_serving.store(true, Ordering::SeqCst);
    eventually("it is serving", || gateway.metric(&up) == 1.0);
}

#[test]
fn grpc_health_that_is_not_implemented_fails_the_check() {
    let answers = |status, in_head| {
        let answer = move |_: Request<Incoming>| {
            let serving = [0, 0, 0, 0, 2, 8, 1];
            std::future::ready(Ok::<_, Infallible>(grpc_response(&serving, status, in_head)))
        };
        HyperOptions::http2().start(answer)
    };
    let (good, others) = (answers("0", false), [answers("12", true), answers("12", false)]);
    let health = "protocol: http2, health: { grpc: store.Store, interval: 100ms, unhealthy: 1 }";
    let gateway = with(&[good.address, others[0].address, others[1].address], health);
    for other in &others {
        eventually("its checks fail", || gateway.metric(&labelled("endpoint_up", other.address)) == 0.0);
    }
    assert_eq!(gateway.metric(&labelled("endpoint_up", good.address)), 1.0);
}

#[test]
fn check_that_is_not_answered_in_time_fails() {
    let (silent, good) = (Upstream::answering(|_, _| {}), responding(200, Duration::ZERO));
    let health = "health: { path: /, interval: 100ms, timeout: 500ms, unhealthy: 1 }";
    let gateway = with(&[silent.address, good.address], health);
    eventually("its check fails", || gateway.metric(&labelled("endpoint_up", silent.address)) == 0.0);
    assert!(keygate_upstreams(&gateway, &["--json"]).contains("no response in time"));
}

#[test]
fn only_endpoint_is_shown_as_unreachable_and_never_set_aside() {
    let address = free_address();
    let gateway = with(&[address], "");
    let key = gateway.key().text;
    let mut client = Client::connect(gateway.address);
    assert_eq!(client.get("/", &key).status, 503);
    assert!(keygate_upstreams(&gateway, &["--json"]).contains("\"state\":\"unreachable\""));
    let upstream = Upstream::answering_at(address, |_, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").ok();
    });
    assert_eq!(client.get("/", &key).status, 200, "each request tries it");
    assert!(keygate_upstreams(&gateway, &["--json"]).contains("\"state\":\"up\""));
    assert_eq!(upstream.count(), 1);
}

#[test]
fn reload_keeps_connections() {
    let upstream = responding(200, Duration::ZERO);
    let gateway = with_blocks(&[upstream.address], "outlier: { server_errors: 7 }", "workers: 1\n");
    let key = gateway.key().text;
    let mut client = Client::connect(gateway.address);
    assert_eq!(client.get("/", &key).status, 200);
    let loaded = gateway.metric("keygate_config_last_reload_success_timestamp_seconds");
    gateway.reconfigure(|text| text.replace("server_errors: 7", "server_errors: 8"));
    eventually("it is reloaded", || gateway.metric("keygate_config_last_reload_success_timestamp_seconds") > loaded);
    assert_eq!(client.get("/", &key).status, 200);
    assert_eq!((upstream.count(), upstream.connections()), (2, 1));
}

#[test]
fn grpc_failures_eject_an_endpoint() {
    for in_head in [true, false] {
        let servers = [GrpcServer::start("14", in_head), GrpcServer::start("0", false)];
        let gateway = with(&servers.each_ref().map(|server| server.address), "protocol: http2");
        let key = gateway.key().text;
        eventually("it is ejected", || {
            traffic_of(gateway.address, &key, 2, 10);
            gateway.metric(&labelled("endpoint_up", servers[0].address)) == 0.0
        });
        assert_eq!(ejections(&gateway, "gateway_errors"), 1.0);
    }
}

#[test]
fn operators_see_the_endpoints() {
    let (failing, good) = (responding(500, Duration::ZERO), responding(200, Duration::ZERO));
    let gateway = with(
        &[failing.address, good.address],
        "health: { path: /, expect: [200, 500], interval: 100ms }, outlier: { ejection: 1h, max_ejection: 1h }",
    );
    let key = gateway.key().text;
    eventually("one is ejected", || {
        traffic_of(gateway.address, &key, 2, 10);
        gateway.metric(&labelled("endpoint_up", failing.address)) == 0.0
    });
    let upstreams = |arguments: &[&str]| keygate_upstreams(&gateway, arguments);
    eventually("both were checked", || !upstreams(&["--json"]).contains("\"last_check\":null"));
    let list: serde_json::Value = serde_json::from_str(&upstreams(&["--json"])).unwrap();
    let item_of = |upstream: &Upstream| {
        let items = list["items"].as_array().unwrap();
        items.iter().find(|item| item["endpoint"] == upstream.address.to_string()).unwrap()
    };
    let item = item_of(&failing);
    assert_eq!((&item["state"], &item["reason"]), (&"ejected".into(), &"server_errors".into()), "{item}");
    let report: EndpointReport = serde_json::from_value(item.clone()).unwrap();
    let soon = clock::now().after(Duration::from_mins(30));
    assert!(report.until.is_some_and(|until| until > soon), "it is ejected for an hour: {item}");
    assert!(item["ejections"] == 1 && item["in_flight"] == 0, "{item}");
    assert_eq!((&item["last_check"]["ok"], &item["last_check"]["detail"]), (&true.into(), &"500".into()));
    let item = item_of(&good);
    assert_eq!(
        (&item["state"], &item["reason"], &item["until"]),
        (&"up".into(), &serde_json::Value::Null, &serde_json::Value::Null)
    );
    assert!(item["connections"].as_u64() >= Some(1), "{item}");
    let table = upstreams(&[]);
    assert!(table.starts_with("UPSTREAM") && table.contains("server_errors"), "{table}");
    let histogram =
        format!("keygate_upstream_latency_seconds_count{{endpoint=\"{}\",upstream=\"default\"}}", good.address);
    assert!(gateway.metric(&histogram) >= 1.0);
}

#[test]
fn reload_without_checks_forgets_their_results() {
    let (checked, good) = (responding(404, Duration::ZERO), responding(200, Duration::ZERO));
    let health = "health: { path: /no, interval: 100ms, unhealthy: 1, timeout: 5s, expect: 200 }";
    let gateway = with(&[checked.address, good.address], health);
    let key = gateway.key().text;
    let up = labelled("endpoint_up", checked.address);
    eventually("its checks fail", || gateway.metric(&up) == 0.0);
    gateway.reconfigure(|text| text.replace(&format!(", {health}"), ""));
    eventually("they count no more", || gateway.metric(&up) == 1.0);
    let mut client = Client::connect(gateway.address);
    eventually("it takes requests", || client.get("/", &key).status == 404);
    let list: serde_json::Value = serde_json::from_str(&keygate_upstreams(&gateway, &["--json"])).unwrap();
    assert!(list["items"].as_array().unwrap().iter().all(|item| item["last_check"].is_null()), "{list}");
}

#[test]
fn reload_keeps_an_ejection_and_drops_the_checks() {
    let (failing, good) = (responding(500, Duration::ZERO), responding(200, Duration::ZERO));
    let gateway = with(&[failing.address, good.address], "outlier: { ejection: 1h, max_ejection: 1h }");
    let key = gateway.key().text;
    let up = labelled("endpoint_up", failing.address);
    eventually("one is ejected", || {
        traffic_of(gateway.address, &key, 2, 10);
        gateway.metric(&up) == 0.0
    });
    let loaded = gateway.metric("keygate_config_last_reload_success_timestamp_seconds");
    gateway.reconfigure(|text| {
        text.replace("max_ejection: 1h", "max_ejection: 59m, ejection: 58m").replace("ejection: 1h, ", "")
    });
    eventually("it is reloaded", || gateway.metric("keygate_config_last_reload_success_timestamp_seconds") > loaded);
    let before = failing.count();
    traffic_of(gateway.address, &key, 2, 20);
    assert_eq!((failing.count(), gateway.metric(&up)), (before, 0.0));
}
