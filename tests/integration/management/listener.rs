//! The admin listener: metrics, liveness and readiness.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use control::admin::{self, Readiness};
use platform::accept_errors::AcceptErrorLog;
use platform::metrics::Metrics;
use tokio::net::{TcpListener, TcpStream};

use super::exchange;

#[tokio::test]
async fn listener_serves_metrics_liveness_and_readiness() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let works = Arc::new(AtomicBool::new(false));
    let check = Arc::clone(&works);
    let find_cause = move || (!check.load(Ordering::Relaxed)).then_some("NOREPLICAS".into());
    let readiness = Arc::new(Readiness::new().with("state", find_cause));
    let serving = admin::serve_http(
        listener,
        Metrics::new(),
        Arc::clone(&readiness),
        AcceptErrorLog::default(),
        std::future::pending(),
    );
    let serving = tokio::spawn(serving);
    let ask = async |request: &str| exchange(TcpStream::connect(address).await.unwrap(), request, "").await;

    let (head, body) = ask("GET /metrics").await;
    assert!(head.contains("content-type: text/plain; version=0.0.4; charset=utf-8"), "{head}");
    assert!(body.contains("keygate_build_info"));
    assert!(ask("GET /live").await.0.starts_with("http/1.1 200"));
    assert!(ask("GET /v1/orgs").await.0.starts_with("http/1.1 404"));
    assert!(ask("POST /ready").await.0.starts_with("http/1.1 405"));

    let (head, body) = ask("GET /ready").await;
    assert!(head.starts_with("http/1.1 503"), "{head}");
    assert_eq!(body, r#"{"ready":false,"reasons":["state"],"causes":{"state":"NOREPLICAS"}}"#);
    works.store(true, Ordering::Relaxed);
    assert!(ask("GET /ready").await.0.starts_with("http/1.1 200"));
    readiness.drain();
    assert_eq!(ask("GET /ready").await.1, r#"{"ready":false,"reasons":["draining"]}"#);
    serving.abort();
}
