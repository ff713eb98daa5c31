//! Several upstreams behind one gateway: each with its own protocol, TLS, time-outs, state and names.

mod config;
mod reload;
mod strip_prefix;

use std::convert::Infallible;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use platform::tls::{ServerSettings, ServerTls};

use crate::support::upstream_blocks::{self, PLENTY, endpoints};
use crate::support::{Client, GatedUpstream, Gateway, KEYGATE, NameServer, Upstream, eventually, free_port};
use crate::tls::authority::{Authority, settings};

/// Blocks with these upstreams, and a route for each: `/NAME/**`.
fn blocks(upstreams: &[(&str, String)]) -> String {
    let mut blocks = format!("{PLENTY}upstreams:\n");
    upstreams.iter().for_each(|(name, upstream)| blocks.push_str(&format!("  {name}: {{ {upstream} }}\n")));
    blocks.push_str("routes:\n");
    let route = |name: &str| format!("  - {{ name: {name}, path: '/{name}/**', upstream: {name} }}\n");
    upstreams.iter().for_each(|(name, _)| blocks.push_str(&route(name)));
    blocks
}

/// Value of a metric of one endpoint.
fn of_endpoint(gateway: &Gateway, metric: &str, upstream: &str, endpoint: SocketAddr) -> f64 {
    gateway.metric(&upstream_blocks::of_endpoint(metric, upstream, endpoint))
}

/// An upstream that speaks HTTP/2 over TLS, and responds with protocol, path and claim of each request.
fn start_encrypted_http2(settings: &ServerSettings) -> SocketAddr {
    let acceptor = ServerTls::open(settings).unwrap().acceptor();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let stream = acceptor.accept(stream).await.unwrap();
                    let service = service_fn(|request: Request<Incoming>| async move {
                        let claim = request.headers().get("x-real-ip");
                        let body = format!("{:?} {} {claim:?}", request.version(), request.uri().path());
                        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(body))))
                    });
                    let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    builder.serve_connection(TokioIo::new(stream), service).await.ok();
                });
            }
        });
    });
    address
}

#[test]
fn each_upstream_has_its_protocol_encryption_and_claims() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let http2 =
        start_encrypted_http2(&settings(vec![authority.certify(&["store.test"]).write(dir.path(), "upstream")]));
    let ca = authority.write(&dir.path().join("ca.pem"));
    let own = authority.certify(&["gateway.test"]).write(dir.path(), "own");
    let (certificate, key) = (own.chain.display(), own.key.display());
    let tls = format!("ca: {}, certificate: {certificate}, key: {key}, server_name: store.test", ca.display());
    let plain = Upstream::start();
    let gateway = Gateway::with(
        &[],
        &blocks(&[
            ("plain", format!("{}, pass_fields: [X-Real-IP]", endpoints(&[plain.address]))),
            ("encrypted", format!("endpoints: ['https://{http2}'], protocol: http2, tls: {{ {tls} }}")),
        ]),
    );
    let key = gateway.key().text;
    let mut client = Client::connect(gateway.address);
    assert_eq!(client.request("GET", "/plain/a", &key, &[("X-Real-IP", "192.0.2.1")], b"").status, 200);
    let received = plain.last();
    assert_eq!((&*received.line, received.header("x-real-ip")), ("GET /plain/a HTTP/1.1", Some("192.0.2.1")));
    let response = client.request("GET", "/encrypted/b", &key, &[("X-Real-IP", "192.0.2.1")], b"");
    assert_eq!((response.status, &response.body[..]), (200, &b"HTTP/2.0 /encrypted/b None"[..]));
    assert_eq!(plain.count(), 1);
    let expiry = "keygate_tls_certificate_not_after_timestamp_seconds{certificate=\"upstream:encrypted\"}";
    assert!(gateway.metric(expiry) > 0.0);
}

#[test]
fn time_outs_are_those_of_the_upstream() {
    let slow = GatedUpstream::start();
    let same = endpoints(&[slow.address()]);
    let gateway = Gateway::with(
        &[],
        &blocks(&[("patient", same.clone()), ("hasty", format!("{same}, timeouts: {{ response: 100ms }}"))]),
    );
    let (key, address) = (gateway.key().text, gateway.address);
    thread::scope(|scope| {
        let patient = scope.spawn(|| Client::connect(address).get("/patient/", &key).status);
        eventually("the patient request is at the upstream", || slow.count() == 1);
        let hasty = Client::connect(address).get("/hasty/", &key);
        assert_eq!((hasty.status, &*hasty.code()), (504, "upstream_timeout"));
        slow.open();
        assert_eq!(patient.join().unwrap(), 200);
    });
}

#[test]
fn endpoint_that_two_upstreams_share_fails_for_each_apart() {
    let failing = Upstream::answering(|received, stream| {
        let status = if received.path().starts_with("/one/") { 500 } else { 200 };
        stream.write_all(format!("HTTP/1.1 {status} x\r\ncontent-length: 2\r\n\r\nok").as_bytes()).ok();
    });
    let good = Upstream::start();
    let shared = endpoints(&[failing.address, good.address]);
    let upstream = format!("{shared}, outlier: {{ ejection: 1h, max_ejection: 1h }}");
    let (gateway, key) = Gateway::with(&[], &blocks(&[("one", upstream.clone()), ("two", upstream)])).and_secret();
    let mut client = Client::connect(gateway.address);
    eventually("it is ejected from the first upstream", || {
        client.get("/one/", &key);
        of_endpoint(&gateway, "endpoint_up", "one", failing.address) == 0.0
    });
    let before = failing.count();
    eventually("it takes requests of the second upstream", || {
        assert_eq!(client.get("/two/", &key).status, 200);
        failing.count() >= before + 5
    });
    assert_eq!(of_endpoint(&gateway, "endpoint_up", "two", failing.address), 1.0);
    let count = |upstream| {
        let labels = format!("endpoint=\"{}\",result=\"ok\",upstream=\"{upstream}\"", good.address);
        gateway.metric(&format!("keygate_upstream_requests_total{{{labels}}}"))
    };
    eventually("the other endpoint takes requests of both", || {
        assert_eq!(["/one/", "/two/"].map(|path| client.get(path, &key).status), [200, 200]);
        count("one") >= 1.0 && count("two") >= 1.0
    });

    let list: serde_json::Value = serde_json::from_slice(&upstreams(&gateway, &["--json"]).stdout).unwrap();
    let shown =
        list["items"].as_array().unwrap().iter().map(|item| (&item["upstream"], &item["endpoint"], &item["state"]));
    let (mut shown, address) = (shown.collect::<Vec<_>>(), serde_json::Value::from(failing.address.to_string()));
    shown.retain(|(_, endpoint, _)| **endpoint == address);
    let [one, two, ejected, up] = ["one", "two", "ejected", "up"].map(serde_json::Value::from);
    assert_eq!(shown, [(&one, &address, &ejected), (&two, &address, &up)]);
    let only = String::from_utf8(upstreams(&gateway, &["--upstream", "two"]).stdout).unwrap();
    assert!(only.lines().skip(1).all(|line| line.starts_with("two ")) && only.lines().count() == 3, "{only}");
    let unknown = upstreams(&gateway, &["--upstream", "three"]);
    assert_eq!(unknown.status.code(), Some(1), "{unknown:?}");
}

/// Runs `keygate upstreams` against a gateway.
fn upstreams(gateway: &Gateway, arguments: &[&str]) -> Output {
    let config = gateway.dir.path().join("keygate.yaml");
    Command::new(KEYGATE).arg("upstreams").args(arguments).arg("--config").arg(&config).output().unwrap()
}

#[test]
fn checks_are_those_of_the_upstream() {
    let is_healthy = Arc::new(AtomicBool::new(false));
    let healthy = Arc::clone(&is_healthy);
    let first = Upstream::answering(move |received, stream| {
        let ok = received.path() != "/health" || healthy.load(Ordering::Relaxed);
        let status = if ok { 200 } else { 503 };
        stream.write_all(format!("HTTP/1.1 {status} x\r\ncontent-length: 2\r\n\r\nok").as_bytes()).ok();
    });
    let second = Upstream::start();
    let shared = endpoints(&[first.address, second.address]);
    let checked = format!("{shared}, health: {{ path: /health, interval: 100ms }}");
    let gateway = Gateway::with(&[], &blocks(&[("checked", checked), ("unchecked", shared)]));
    let up = |upstream| of_endpoint(&gateway, "endpoint_up", upstream, first.address);
    eventually("the checks fail", || up("checked") == 0.0);
    assert_eq!(up("unchecked"), 1.0);
    is_healthy.store(true, Ordering::Relaxed);
    eventually("the checks pass", || up("checked") == 1.0);
    assert_eq!(of_endpoint(&gateway, "endpoint_up", "checked", second.address), 1.0);
}

#[test]
fn name_is_looked_up_by_the_name_servers_of_each_upstream() {
    let port = free_port();
    let replicas = ["127.0.0.1", "127.0.0.2"].map(|address| {
        let address: SocketAddr = format!("{address}:{port}").parse().unwrap();
        Upstream::answering_at(address, |_, stream| {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").ok();
        })
    });
    let servers = [NameServer::start(1), NameServer::start(1)];
    servers[0].set("store.test", &["127.0.0.1"]);
    servers[1].set("store.test", &["127.0.0.2"]);
    let upstream = |server: &NameServer| {
        format!("endpoints: ['http://store.test:{port}'], resolver: {{ servers: ['{}'] }}", server.address)
    };
    let gateway = Gateway::with(&[], &blocks(&[("one", upstream(&servers[0])), ("two", upstream(&servers[1]))]));
    let key = gateway.key().text;
    let mut client = Client::connect(gateway.address);
    let mut send = |path: &str| {
        assert_eq!(client.get(path, &key).status, 200);
        [replicas[0].count(), replicas[1].count()]
    };
    assert_eq!(send("/one/"), [1, 0]);
    assert_eq!(send("/two/"), [1, 1]);
    servers[1].set("store.test", &["127.0.0.1", "127.0.0.2"]);
    let known = |upstream| gateway.metric(&format!("keygate_upstream_endpoints{{upstream=\"{upstream}\"}}"));
    eventually("the second upstream has two endpoints", || known("two") == 2.0);
    assert_eq!(known("one"), 1.0);
    servers[0].remove("store.test");
    let failed = "keygate_upstream_lookups_total{result=\"failed\",upstream=\"one\"}";
    eventually("the name of the first is gone", || gateway.metric(failed) >= 1.0);
    let before = replicas[1].count();
    assert_eq!(send("/one/")[1], before, "the last known address stays in use");
    assert_eq!(gateway.metric("keygate_upstream_lookups_total{result=\"failed\",upstream=\"two\"}"), 0.0);
}

#[test]
fn only_upstream_needs_no_name_in_routes() {
    let upstream = Upstream::start();
    let one = format!("upstreams: {{ store: {{ {} }} }}\n", endpoints(&[upstream.address]));
    for routes in ["", "routes: [{ name: all, path: '/**' }]\n"] {
        let (gateway, key) = Gateway::with(&[], &format!("{one}{routes}")).and_secret();
        assert_eq!(Client::connect(gateway.address).get("/a", &key).status, 200);
        assert_eq!(of_endpoint(&gateway, "endpoint_up", "store", upstream.address), 1.0);
    }
}

#[test]
fn upstream_that_is_down_fails_only_its_own_routes() {
    let good = Upstream::start();
    let gateway = Gateway::with(
        &[],
        &blocks(&[("down", endpoints(&[crate::support::free_address()])), ("good", endpoints(&[good.address]))]),
    );
    let key = gateway.key().text;
    let mut client = Client::connect(gateway.address);
    for _ in 0..10 {
        assert_eq!(client.get("/down/", &key).code(), "upstream_unavailable");
        assert_eq!(client.get("/good/", &key).status, 200);
    }
    let ready = Client::connect(gateway.admin).get("/ready", "");
    assert_eq!(ready.status, 200);
}
