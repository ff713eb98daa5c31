//! Admin listener: `/metrics`, `/live` and `/ready` over plain HTTP, for Prometheus and orchestrators. Read-only.

use std::sync::Arc;
use std::task::Context;

use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use tokio::net::TcpListener;

use super::Readiness;
use super::response::{self, AdminResponse};
use super::serving;
use platform::accept_errors::AcceptErrorLog;
use platform::metrics::Metrics;

/// Prometheus's text exposition format.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Serves until the shutdown future completes. The caller lets it outlive the drain, so that `/ready` answers 503
/// while the gateway drains.
pub async fn serve_http(
    listener: TcpListener,
    metrics: Metrics,
    readiness: Arc<Readiness>,
    errors: AcceptErrorLog,
    shutdown: impl Future<Output = ()>,
) {
    let accept = move |cx: &mut Context<'_>| listener.poll_accept(cx).map_ok(|(stream, _)| (stream, ()));
    let handle = move |request: Request<Incoming>, ()| {
        let response = handle(&request, &metrics, &readiness);
        async move { response }
    };
    serving::serve(accept, handle, &errors, shutdown).await;
}

fn handle(request: &Request<Incoming>, metrics: &Metrics, readiness: &Readiness) -> AdminResponse {
    let path = request.uri().path();
    if !matches!(path, "/metrics" | "/live" | "/ready") {
        return response::not_found();
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return response::method_not_allowed("GET, HEAD");
    }
    match path {
        "/metrics" => response::content(StatusCode::OK, METRICS, metrics.render()),
        "/live" => response::content(StatusCode::OK, "text/plain; charset=utf-8", "live\n"),
        _ => {
            let report = readiness.report();
            let status = if report.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            response::json(status, &report)
        }
    }
}
