//! HTTP client for the requests to a provider.
//!
//! - Each request has a connection of its own, and all of its work is done within the call: no state is shared between
//!   runtimes, and dropping the call ends it.
//! - A request takes at most ten seconds. No redirect is followed, and no body of more than 1 MiB is read.
//! - At most 64 requests are in flight at a time, however many users sign in.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_TYPE, DATE, HOST, USER_AGENT};
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use url::{Host, Position, Url};

use domain::clock::{Micros, http_date};
use platform::outbound::{OutboundStream, Server, ServerError};
use platform::tls::{self, ClientSettings, ClientTls};

/// Time-out of a request as a whole: a user waits for it.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of a response body at most. The largest documents, key sets with certificates, have some tens of KiB.
const MAX_BODY: usize = 1024 * 1024;
/// Requests at a time. Signing in needs no authentication, so this bounds what waits while the provider hangs.
const MAX_REQUESTS: usize = 64;
const FORM: HeaderValue = HeaderValue::from_static("application/x-www-form-urlencoded");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// HTTP client of one provider.
pub(crate) struct HttpClient {
    /// None when the provider is on this machine, and its addresses are `http:`.
    tls: Option<Arc<ClientTls>>,
    /// Requests in flight, of all threads.
    in_flight: AtomicUsize,
}

/// Response with a status below 500, except 429.
pub(super) struct HttpResponse {
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
    /// The provider's time (`Date`).
    pub(super) date: Option<Micros>,
}

/// Reason why there is no response.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// Too many requests are in flight.
    #[error("{MAX_REQUESTS} requests to it are in flight already")]
    Busy,
    /// There is no connection to the host.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The connection ended before the response.
    #[error("the connection ended before the response")]
    Broken(#[source] hyper::Error),
    /// The response took too long.
    #[error("there was no complete response within {} s", REQUEST_TIMEOUT.as_secs())]
    TimedOut,
    /// The status is 429 or 5xx.
    #[error("it answers with status {0}")]
    Unavailable(StatusCode),
    /// The address does not fit into a request.
    #[error("its address cannot be used in a request")]
    Address(#[source] http::Error),
    /// The response is not HTTP.
    #[error("its response is not HTTP")]
    NotHttp(#[source] hyper::Error),
    /// The response body is too large.
    #[error("its response has more than {MAX_BODY} bytes")]
    TooLarge,
}

impl HttpError {
    /// Returns whether the same request may succeed later.
    pub(super) fn is_temporary(&self) -> bool {
        !matches!(self, Self::Address(_) | Self::NotHttp(_) | Self::TooLarge)
    }
}

/// Guard of a request in flight; counts it until it is dropped.
struct InFlight<'a>(&'a AtomicUsize);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl HttpClient {
    /// A client that verifies the provider's certificate by these settings; without TLS for a provider on this machine.
    /// All addresses of a provider are either encrypted or not.
    pub(crate) fn new(encrypted: bool, settings: &ClientSettings) -> Result<Self, tls::Error> {
        let tls = encrypted.then(|| ClientTls::open(settings, &[]).map(Arc::new)).transpose()?;
        Ok(Self { tls, in_flight: AtomicUsize::new(0) })
    }

    /// Sends a `GET` request, with credentials where they are given.
    pub(super) async fn get(&self, url: &Url, authorization: Option<HeaderValue>) -> Result<HttpResponse, HttpError> {
        self.send(url, request(Method::GET, url, authorization, Bytes::new())?).await
    }

    /// Sends a form with `POST`.
    pub(super) async fn post(
        &self,
        url: &Url,
        authorization: Option<HeaderValue>,
        form: String,
    ) -> Result<HttpResponse, HttpError> {
        let mut request = request(Method::POST, url, authorization, form.into())?;
        request.headers_mut().insert(CONTENT_TYPE, FORM);
        self.send(url, request).await
    }

    async fn send(&self, url: &Url, request: Request<Full<Bytes>>) -> Result<HttpResponse, HttpError> {
        let _in_flight = self.count_request()?;
        let response = tokio::time::timeout(REQUEST_TIMEOUT, self.connect_and_exchange(url, request));
        let response = response.await.map_err(|_| HttpError::TimedOut)??;
        // An overloaded provider is unavailable; any other status is for the caller to judge.
        let unavailable = response.status.is_server_error() || response.status == StatusCode::TOO_MANY_REQUESTS;
        if unavailable { Err(HttpError::Unavailable(response.status)) } else { Ok(response) }
    }

    fn count_request(&self) -> Result<InFlight<'_>, HttpError> {
        let before = self.in_flight.fetch_add(1, Ordering::Relaxed);
        // The guard first: a request that is refused is counted until here, and its guard takes it off again.
        let in_flight = InFlight(&self.in_flight);
        if before < MAX_REQUESTS { Ok(in_flight) } else { Err(HttpError::Busy) }
    }

    async fn connect_and_exchange(&self, url: &Url, request: Request<Full<Bytes>>) -> Result<HttpResponse, HttpError> {
        let host = match url.host() {
            Some(Host::Ipv4(ip)) => ip.to_string(),
            Some(Host::Ipv6(ip)) => ip.to_string(),
            Some(Host::Domain(name)) => name.to_owned(),
            None => unreachable!("the issuer and the endpoints were checked to be https, or http on this machine"),
        };
        let port = url.port_or_known_default().unwrap_or(443);
        let stream = Server { host, port, tls: self.tls.clone() }.connect().await?;
        exchange(stream, request).await
    }
}

fn request(
    method: Method,
    url: &Url,
    authorization: Option<HeaderValue>,
    body: Bytes,
) -> Result<Request<Full<Bytes>>, HttpError> {
    let mut request = Request::builder()
        .method(method)
        .uri(&url[Position::BeforePath..Position::AfterQuery])
        .header(HOST, &url[Position::BeforeHost..Position::AfterPort])
        .header(ACCEPT, JSON)
        .header(CONNECTION, "close")
        .header(USER_AGENT, "keygate")
        .body(Full::new(body))
        .map_err(HttpError::Address)?;
    if let Some(mut authorization) = authorization {
        authorization.set_sensitive(true);
        request.headers_mut().insert(AUTHORIZATION, authorization);
    }
    Ok(request)
}

/// Exchanges one request and its response over a connection. The connection is driven within this future, not in a
/// task: when the future is dropped, nothing of it is left on the runtime.
async fn exchange(stream: Box<dyn OutboundStream>, request: Request<Full<Bytes>>) -> Result<HttpResponse, HttpError> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(classify)?;
    let exchange = async {
        let response = sender.send_request(request).await.map_err(classify)?;
        let date = response.headers().get(DATE).and_then(|date| http_date::parse(date.to_str().ok()?));
        Ok(HttpResponse { status: response.status(), date, body: read_body(response.into_body()).await? })
    };
    let driver = async {
        // The exchange sees the error that ends the connection, so the driver has no result of its own.
        connection.await.ok();
        std::future::pending().await
    };
    tokio::select! {
        biased;
        response = exchange => response,
        never = driver => never,
    }
}

async fn read_body(body: Incoming) -> Result<Bytes, HttpError> {
    let collected = Limited::new(body, MAX_BODY).collect().await;
    collected.map(|body| body.to_bytes()).map_err(|error| match error.downcast::<hyper::Error>() {
        Ok(error) => classify(*error),
        Err(error) => {
            debug_assert!(error.is::<LengthLimitError>(), "nothing else can happen to a body");
            HttpError::TooLarge
        }
    })
}

fn classify(error: hyper::Error) -> HttpError {
    if error.is_parse() { HttpError::NotHttp(error) } else { HttpError::Broken(error) }
}
