//! Collector: delivers batches of spans over HTTP, with the retries of the OTLP specification.
//!
//! - A batch is sent again after 429, 502, 503 and 504, and when no answer came: with growing pauses, or after `Retry-After`,
//!   until the time of the batch is up.
//! - No redirect is followed: the fields of a request may hold a token.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message as _;
use tokio::time::{Instant, sleep, timeout_at};

use super::collector_connection::{SendError, Target};
use super::settings::Settings;
use crate::outbound::HttpConnection;
use crate::tls::{self, ClientTls};

/// Pause before the first retry; each one doubles it.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Longest pause without `Retry-After`.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Longest `Retry-After` that counts: meanwhile spans are dropped.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(30);
const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");

/// Client of a collector. It keeps one connection.
#[derive(Debug)]
pub(super) struct Collector {
    target: Target,
    headers: HeaderMap,
    /// Time of a batch, with all tries.
    timeout: Duration,
    connection: tokio::sync::Mutex<Option<HttpConnection>>,
    delivery: Mutex<Delivery>,
}

/// Result of a batch, beyond what the library tells.
#[derive(Debug, Default)]
pub(super) struct Delivery {
    /// Spans that the collector has rejected of a batch that it took.
    pub(super) rejected: u64,
    /// The collector's reason for that.
    pub(super) message: String,
    /// Reason why the batch was not taken.
    pub(super) failure: Option<String>,
}

/// Reason why a batch was not taken.
#[derive(Debug, thiserror::Error)]
enum DeliveryError {
    #[error("the collector answers with status {0}")]
    Status(StatusCode),
    #[error("the collector does not answer in time")]
    TimedOut,
    #[error(transparent)]
    NotSent(#[from] SendError),
}

impl Collector {
    /// A client by these settings.
    ///
    /// # Errors
    /// [`tls::Error`]: a file cannot be used.
    pub(super) fn new(settings: &Settings) -> Result<Self, tls::Error> {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host(settings));
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("keygate/", env!("CARGO_PKG_VERSION"))));
        headers.insert(CONTENT_TYPE, PROTOBUF);
        for (name, value) in &settings.headers {
            // The configuration has checked it.
            let Ok(mut value) = HeaderValue::from_str(value.expose()) else { continue };
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Ok(Self {
            target: Target::new(settings)?,
            headers,
            timeout: settings.timeout,
            connection: tokio::sync::Mutex::default(),
            delivery: Mutex::default(),
        })
    }

    /// The TLS of its connections; none without encryption.
    pub(super) fn tls(&self) -> Option<Arc<ClientTls>> {
        self.target.tls()
    }

    /// Takes the result of the last batch.
    pub(super) fn take_delivery(&self) -> Delivery {
        std::mem::take(&mut *self.delivery.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn set_delivery(&self, delivery: Delivery) {
        *self.delivery.lock().unwrap_or_else(PoisonError::into_inner) = delivery;
    }

    /// Delivers a batch: sends it until it is taken, refused for good, or its time is up.
    async fn deliver(&self, batch: Bytes) -> Result<Response<Bytes>, DeliveryError> {
        let deadline = Instant::now() + self.timeout;
        let mut pause = FIRST_PAUSE;
        loop {
            let (error, retry_after) = match timeout_at(deadline, self.send(batch.clone())).await {
                Ok(Ok(response)) if response.status().is_success() => return Ok(response),
                Ok(Ok(response)) if !is_retried(response.status()) => {
                    return Err(DeliveryError::Status(response.status()));
                }
                Ok(Ok(response)) => (DeliveryError::Status(response.status()), retry_after(response.headers())),
                Ok(Err(error)) => (error.into(), None),
                Err(_) => return Err(DeliveryError::TimedOut),
            };
            let wait = retry_after.unwrap_or(pause);
            let is_last = Instant::now() + wait >= deadline;
            // The next batch must wait as well for as long as the collector asks.
            if !is_last || retry_after.is_some() {
                sleep(wait.min(LONGEST_RETRY_AFTER)).await;
            }
            if is_last {
                return Err(error);
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Sends a batch once, over the connection that is kept, or a new one.
    async fn send(&self, batch: Bytes) -> Result<Response<Bytes>, SendError> {
        // Taken, so that a try that is given up closes its connection.
        let kept = self.connection.lock().await.take();
        let mut connection = match kept.filter(HttpConnection::is_open) {
            Some(connection) => connection,
            None => self.target.connect().await?,
        };
        let mut request = Request::post(self.target.path()).body(batch).map_err(SendError::Address)?;
        request.headers_mut().clone_from(&self.headers);
        let response = connection.send(request).await?;
        *self.connection.lock().await = Some(connection);
        Ok(response)
    }
}

impl HttpClient for Collector {
    /// Sends the body of a request. All its fields are the collector's own.
    fn send_bytes<'s, 'f>(
        &'s self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'f>>
    where
        's: 'f,
        Self: 'f,
    {
        Box::pin(async move {
            let delivered = self.deliver(request.into_body()).await;
            self.set_delivery(match &delivered {
                Ok(response) => partial_success(response.body()),
                Err(error) => Delivery { failure: Some(in_full(error)), ..Delivery::default() },
            });
            Ok(delivered?)
        })
    }
}

/// Spans that a collector has rejected of a batch that it took. A body that is not that of OTLP rejects none.
fn partial_success(body: &[u8]) -> Delivery {
    let partial = ExportTraceServiceResponse::decode(body).ok().and_then(|response| response.partial_success);
    partial.map_or_else(Delivery::default, |partial| Delivery {
        rejected: u64::try_from(partial.rejected_spans).unwrap_or(0),
        message: partial.error_message,
        failure: None,
    })
}

fn is_retried(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    )
}

/// Time for which a collector asks, in seconds; a date counts as none.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

fn host(settings: &Settings) -> HeaderValue {
    HeaderValue::from_str(settings.endpoint.url().authority()).expect("the authority of an address is visible ASCII")
}

/// An error with its causes.
fn in_full(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(error.source(), |error| error.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTracePartialSuccess;

    use super::*;

    #[test]
    fn rejected_spans_are_read_of_the_answer() {
        let partial = ExportTracePartialSuccess { rejected_spans: 3, error_message: "too old".into() };
        let answer = ExportTraceServiceResponse { partial_success: Some(partial) }.encode_to_vec();
        let delivery = partial_success(&answer);
        assert_eq!((delivery.rejected, delivery.message.as_str(), delivery.failure), (3, "too old", None));
        for other in [&b""[..], b"{}", b"\xff\xff", &answer[..3]] {
            assert_eq!(partial_success(other).rejected, 0, "{other:?}");
        }
    }

    #[test]
    fn retry_after_is_a_number_of_seconds() {
        let read = |value: &str| retry_after(&HeaderMap::from_iter([(RETRY_AFTER, value.parse().unwrap())]));
        assert_eq!(read("7"), Some(Duration::from_secs(7)));
        assert_eq!(read("Wed, 21 Oct 2026 07:28:00 GMT"), None);
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }
}
