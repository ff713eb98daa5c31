//! `/metrics`, `/live` and `/ready`, for programs on this machine or in this cluster. Nothing here changes anything.

use std::sync::Arc;
use std::task::Context;

use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use tokio::net::TcpListener;

use super::Readiness;
use super::answer::{self, Answer};
use super::serving;
use crate::metrics::Metrics;

/// Prometheus's text exposition format.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Serves until the shutdown future completes. Let it outlive the drain, so that `/ready` can say that it goes on.
pub async fn serve_http(
    listener: TcpListener,
    metrics: Metrics,
    readiness: Arc<Readiness>,
    shutdown: impl Future<Output = ()>,
) {
    let accept = move |cx: &mut Context<'_>| listener.poll_accept(cx).map_ok(|(stream, _)| stream);
    let handle = move |request: Request<Incoming>| {
        let answer = handle(&request, &metrics, &readiness);
        async move { answer }
    };
    serving::serve(accept, handle, shutdown).await;
}

fn handle(request: &Request<Incoming>, metrics: &Metrics, readiness: &Readiness) -> Answer {
    let path = request.uri().path();
    if !matches!(path, "/metrics" | "/live" | "/ready") {
        return answer::not_found();
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return answer::method_not_allowed("GET, HEAD");
    }
    match path {
        "/metrics" => answer::content(StatusCode::OK, METRICS, metrics.render()),
        "/live" => answer::content(StatusCode::OK, "text/plain; charset=utf-8", "live\n"),
        _ => {
            let report = readiness.report();
            let status = if report.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            answer::json(status, &report)
        }
    }
}
