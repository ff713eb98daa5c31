//! Endpoints with TLS: wrong certificates, and active checks.

use std::convert::Infallible;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response, Version};
use http_body_util::Empty;
use hyper::body::Incoming;
use platform::tls::ServerTls;
use rustls::ServerConfig;

use super::logged::Logged;
use super::{PLENTY, labelled};
use crate::support::hyper_upstream::ok;
use crate::support::{Gateway, HyperOptions, HyperUpstream, eventually, part_of, traffic_of};
use crate::tls::authority::{Authority, settings};

/// TLS of a server with a certificate for this name.
pub fn server(dir: &Path, authority: &Authority, name: &str) -> Arc<ServerConfig> {
    let pair = authority.certify(&[name]).write(dir, &uuid::Uuid::new_v4().to_string());
    Arc::clone(ServerTls::open(&settings(vec![pair])).unwrap().acceptor().config())
}

#[test]
fn endpoints_with_wrong_certificates_get_no_byte_of_a_request_and_are_told() {
    let (dir, trusted) = (tempfile::tempdir().unwrap(), Authority::new());
    let start =
        |authority: &Authority, name| HyperOptions::http1().over_tls(&server(dir.path(), authority, name)).start(ok);
    let good = start(&trusted, "127.0.0.1");
    let wrong = [start(&trusted, "other.test"), start(&Authority::new(), "127.0.0.1")];
    let endpoints = [&good, &wrong[0], &wrong[1]].map(|upstream| format!("https://{}", upstream.address));
    let ca = trusted.write(&dir.path().join("ca.pem"));
    let gateway = Logged::start(&endpoints, &format!(", tls: {{ ca: '{}' }}", ca.display()));
    let mut answers = Vec::new();
    eventually("both are set aside", || {
        answers.extend(traffic_of(gateway.setup.address, &gateway.key, 4, 10));
        wrong.iter().all(|upstream| gateway.shown(upstream.address)["reason"] == "connect_failures")
    });
    assert_eq!((part_of(&answers, 200), good.count()), (1.0, answers.len()));
    for upstream in &wrong {
        assert!(upstream.connections() > 0, "it was tried");
        assert_eq!(upstream.count(), 0, "nothing is sent before the certificate is verified");
        assert_eq!(gateway.metric(&labelled("endpoint_up", upstream.address)), 0.0);
        assert_eq!(gateway.shown(upstream.address)["state"], "unreachable");
        let told = gateway.lines(&format!("endpoint={} ", upstream.address));
        assert!(
            told.len() == 1 && told[0].contains("cannot be reached") && told[0].contains("certificate"),
            "{told:?}"
        );
    }
    assert_eq!(gateway.shown(good.address)["state"], "up");
}

/// Endpoint whose health is as the switch says.
struct Checked {
    upstream: HyperUpstream,
    is_well: Arc<AtomicBool>,
    /// Requests that are no checks.
    requests: Arc<AtomicUsize>,
    /// Versions and authorities of the checks.
    checks: Arc<Mutex<Vec<(Version, String)>>>,
}

impl Checked {
    fn start(options: HyperOptions) -> Self {
        let (is_well, requests, checks) =
            (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default(), Arc::<Mutex<Vec<_>>>::default());
        let (well, counted, log) = (Arc::clone(&is_well), Arc::clone(&requests), Arc::clone(&checks));
        let upstream = options.start(move |request: Request<Incoming>| {
            let is_check = request.uri().path() == "/health";
            let host = request.headers().get("host").map(|host| host.to_str().unwrap().to_owned());
            let authority = host.unwrap_or_else(|| request.uri().authority().unwrap().to_string());
            if is_check {
                log.lock().unwrap().push((request.version(), authority));
            } else {
                counted.fetch_add(1, Ordering::SeqCst);
            }
            let status = if is_check && !well.load(Ordering::SeqCst) { 503 } else { 204 };
            std::future::ready(Ok::<_, Infallible>(
                Response::builder().status(status).body(Empty::<Bytes>::new()).unwrap(),
            ))
        });
        Self { upstream, is_well, requests, checks }
    }
}

#[test]
fn active_checks_have_the_protocol_and_the_tls_of_the_upstream() {
    let (dir, authority) = (tempfile::tempdir().unwrap(), Authority::new());
    let tls = server(dir.path(), &authority, "127.0.0.1");
    let ca = format!(", tls: {{ ca: '{}' }}", authority.write(&dir.path().join("ca.pem")).display());
    for (options, protocol, scheme, ca, version) in [
        (HyperOptions::http1().over_tls(&tls), "http1", "https", &*ca, Version::HTTP_11),
        (HyperOptions::http2(), "http2", "http", "", Version::HTTP_2),
        (HyperOptions::http2().over_tls(&tls), "http2", "https", &*ca, Version::HTTP_2),
    ] {
        let checked = Checked::start(options.clone());
        let good = Checked::start(options);
        good.is_well.store(true, Ordering::SeqCst);
        let endpoints = [&checked, &good].map(|one| format!("{scheme}://{}", one.upstream.address));
        let health = "health: { path: /health, expect: 204, interval: 100ms, healthy: 2, unhealthy: 2 }";
        let upstream =
            format!("endpoints: {endpoints:?}, protocol: {protocol}, outlier: {{ slow_start: 100ms }}, {health}{ca}");
        let gateway = Gateway::with(&[], &format!("{PLENTY}upstream: {{ {upstream} }}\n"));
        let up = labelled("endpoint_up", checked.upstream.address);
        eventually("its checks fail", || gateway.metric(&up) == 0.0);
        let (key, before) = (gateway.key().text, checked.requests.load(Ordering::SeqCst));
        assert_eq!(part_of(&traffic_of(gateway.address, &key, 2, 25), 204), 1.0);
        assert_eq!(checked.requests.load(Ordering::SeqCst), before, "{protocol}, {scheme}");
        checked.is_well.store(true, Ordering::SeqCst);
        eventually("its checks pass", || gateway.metric(&up) == 1.0);
        eventually("it takes requests", || {
            traffic_of(gateway.address, &key, 2, 10);
            checked.requests.load(Ordering::SeqCst) > before
        });
        let expected = (version, checked.upstream.address.to_string());
        assert!(checked.checks.lock().unwrap().iter().all(|check| *check == expected), "{expected:?}");
        assert_eq!(gateway.metric(&labelled("endpoint_up", good.upstream.address)), 1.0);
    }
}
