//! Requests of the endpoints of the control plane, beside their answers.

use http::header::CONTENT_LENGTH;
use http::{HeaderValue, Method, Response};

use bytes::Bytes;
use uuid::Uuid;

use domain::clock;
use domain::identity::X_REQUEST_ID;
use platform::abort_on_drop::AbortOnDrop;
use platform::metrics::{Metrics, RouteMetrics};

/// The requests of one kind of endpoint, as its metrics count them.
pub(crate) struct ServedCalls {
    pub(crate) metrics: Metrics,
    route: RouteMetrics,
}

impl ServedCalls {
    /// Of the endpoint that the label `route` of metrics names so.
    pub(crate) fn new(metrics: Metrics, route: &str) -> Self {
        Self { route: metrics.route(route), metrics }
    }

    /// Answers a request, and counts it. What changes something runs to its end even when its client is gone; a panic
    /// is logged, and answered by `failed`. The response has the id of the request; that to `HEAD` no body.
    pub(crate) async fn serve(
        &self,
        id: Uuid,
        method: &Method,
        answer: impl Future<Output = Response<Bytes>> + 'static,
        failed: impl FnOnce() -> Response<Bytes>,
    ) -> Response<Bytes> {
        let arrived = clock::now();
        // A task of its own: dropping this future leaves the task running.
        let task = tokio::task::spawn_local(answer);
        let response = if method.is_safe() { AbortOnDrop::new(task).await } else { task.await };
        let mut response = response.unwrap_or_else(|error| {
            tracing::error!(request_id = %id, %error, "panic while a call was answered");
            self.metrics.panics.inc();
            failed()
        });
        #[allow(clippy::cast_precision_loss, reason = "a duration in a histogram")]
        self.route.duration.observe(clock::now().since(arrived) as f64 / 1e6);
        self.route.count_response(response.status());
        let value = HeaderValue::try_from(id.to_string()).expect("hexadecimal digits and dashes");
        response.headers_mut().insert(X_REQUEST_ID, value);
        if method == Method::HEAD {
            let length = response.body().len();
            response.headers_mut().insert(CONTENT_LENGTH, length.into());
            *response.body_mut() = Bytes::new();
        }
        response
    }
}
