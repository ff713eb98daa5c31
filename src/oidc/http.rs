//! Requests to a provider.
//!
//! - Each has a connection of its own, and all of its work is done within the call: nothing is shared between runtimes,
//!   and dropping the call ends it.
//! - Ten seconds are all it gets. No redirect is followed, and no body of more than 1 MiB is read.
//! - However many people sign in, no more than 64 are under way at once.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use openidconnect::url::{Host, Position, Url};
use rustls::pki_types::{IpAddr, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::tls::{self, ClientSettings};

/// For a request as a whole: somebody waits for it.
const PATIENCE: Duration = Duration::from_secs(10);
/// For each address of a name, so that one that does not answer leaves time for the next.
const CONNECT_PATIENCE: Duration = Duration::from_secs(3);
/// The largest documents, key sets with certificates, have some tens of KiB.
const LARGEST: usize = 1024 * 1024;
/// Anybody may begin to sign in; when the provider hangs, this many connections wait for it.
const AT_ONCE: usize = 64;
const FORM: HeaderValue = HeaderValue::from_static("application/x-www-form-urlencoded");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// How a provider is spoken to.
pub(super) struct Http {
    /// None when the provider is on this machine.
    tls: Option<TlsConnector>,
    /// Requests under way, of all threads.
    under_way: AtomicUsize,
}

/// What came back, whatever its status below 500.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// Too many wait for it already.
    #[error("{AT_ONCE} requests to it are under way already")]
    Busy,
    /// Its address cannot be found out.
    #[error("its name cannot be resolved")]
    Name(#[source] io::Error),
    /// It does not listen.
    #[error("it cannot be connected to")]
    Connect(#[source] io::Error),
    /// It is not who it should be, or does not speak TLS.
    #[error("no encrypted connection can be made")]
    Handshake(#[source] io::Error),
    /// The connection ended too early.
    #[error("the connection broke off")]
    Broken(#[source] hyper::Error),
    /// It was too slow.
    #[error("there was no whole answer within {} s", PATIENCE.as_secs())]
    TimedOut,
    /// It says that it cannot serve now.
    #[error("it answers with status {0}")]
    Unavailable(StatusCode),
    /// No request can be made for its address.
    #[error("its address cannot be used in a request")]
    Address(#[source] http::Error),
    /// It does not speak HTTP.
    #[error("it does not answer in HTTP")]
    NotHttp(#[source] hyper::Error),
    /// It says too much.
    #[error("its answer has more than {LARGEST} bytes")]
    TooLarge,
}

impl HttpError {
    /// Whether it may answer well another time.
    pub(super) fn is_absence(&self) -> bool {
        !matches!(self, Self::Address(_) | Self::NotHttp(_) | Self::TooLarge)
    }
}

/// One request under way, counted.
struct UnderWay<'a>(&'a AtomicUsize);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Http {
    /// For a provider that is certified by these; in the clear for one on this machine. All its addresses are alike.
    pub(super) fn new(encrypted: bool, settings: &ClientSettings) -> Result<Self, tls::Error> {
        let tls = if encrypted { Some(settings.config()?.into()) } else { None };
        Ok(Self { tls, under_way: AtomicUsize::new(0) })
    }

    /// Asks for a document, as somebody or as nobody.
    pub(super) async fn get(&self, url: &Url, authorization: Option<HeaderValue>) -> Result<Answer, HttpError> {
        self.call(url, request(Method::GET, url, authorization, Bytes::new())?).await
    }

    /// Sends a form.
    pub(super) async fn post(
        &self,
        url: &Url,
        authorization: Option<HeaderValue>,
        form: String,
    ) -> Result<Answer, HttpError> {
        let mut request = request(Method::POST, url, authorization, form.into())?;
        request.headers_mut().insert(CONTENT_TYPE, FORM);
        self.call(url, request).await
    }

    async fn call(&self, url: &Url, request: Request<Full<Bytes>>) -> Result<Answer, HttpError> {
        let _under_way = self.begin()?;
        let answered = tokio::time::timeout(PATIENCE, self.answered(url, request));
        let answer = answered.await.map_err(|_| HttpError::TimedOut)??;
        let away = answer.status.is_server_error() || answer.status == StatusCode::TOO_MANY_REQUESTS;
        if away { Err(HttpError::Unavailable(answer.status)) } else { Ok(answer) }
    }

    fn begin(&self) -> Result<UnderWay<'_>, HttpError> {
        let before = self.under_way.fetch_add(1, Ordering::Relaxed);
        let under_way = UnderWay(&self.under_way);
        if before < AT_ONCE { Ok(under_way) } else { Err(HttpError::Busy) }
    }

    async fn answered(&self, url: &Url, request: Request<Full<Bytes>>) -> Result<Answer, HttpError> {
        let stream = connect(url).await?;
        match &self.tls {
            Some(tls) => exchange(handshake(tls, url, stream).await?, request).await,
            None => exchange(stream, request).await,
        }
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

/// Connects, trying every address of the name in turn.
async fn connect(url: &Url) -> Result<TcpStream, HttpError> {
    let port = url.port_or_known_default().unwrap_or(443);
    let addresses = match url.host() {
        Some(Host::Ipv4(ip)) => vec![(ip, port).into()],
        Some(Host::Ipv6(ip)) => vec![(ip, port).into()],
        Some(Host::Domain(name)) => tokio::net::lookup_host((name, port)).await.map_err(HttpError::Name)?.collect(),
        None => Vec::new(),
    };
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for address in addresses {
        match tokio::time::timeout(CONNECT_PATIENCE, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(HttpError::Connect(last))
}

async fn handshake(
    tls: &TlsConnector,
    url: &Url,
    stream: TcpStream,
) -> Result<impl AsyncRead + AsyncWrite + Unpin + Send + 'static, HttpError> {
    let name = match url.host() {
        Some(Host::Ipv4(ip)) => ServerName::IpAddress(IpAddr::V4(ip.into())),
        Some(Host::Ipv6(ip)) => ServerName::IpAddress(IpAddr::V6(ip.into())),
        Some(Host::Domain(name)) => ServerName::try_from(name.to_owned())
            .map_err(|error| HttpError::Name(io::Error::new(io::ErrorKind::InvalidInput, error)))?,
        None => return Err(HttpError::Name(io::ErrorKind::InvalidInput.into())),
    };
    tls.connect(name, stream).await.map_err(HttpError::Handshake)
}

/// One request over a connection. The connection is driven from here, so that nothing is left of it afterwards.
async fn exchange<S>(stream: S, request: Request<Full<Bytes>>) -> Result<Answer, HttpError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failure)?;
    let answer = async {
        let response = sender.send_request(request).await.map_err(failure)?;
        Ok(Answer { status: response.status(), body: whole(response.into_body()).await? })
    };
    let driven = async {
        // What ends the connection is seen by the answer as well.
        connection.await.ok();
        std::future::pending().await
    };
    tokio::select! {
        biased;
        answer = answer => answer,
        never = driven => never,
    }
}

async fn whole(body: Incoming) -> Result<Bytes, HttpError> {
    let collected = Limited::new(body, LARGEST).collect().await;
    collected.map(|body| body.to_bytes()).map_err(|error| match error.downcast::<hyper::Error>() {
        Ok(error) => failure(*error),
        Err(error) => {
            debug_assert!(error.is::<LengthLimitError>(), "nothing else can happen to a body");
            HttpError::TooLarge
        }
    })
}

fn failure(error: hyper::Error) -> HttpError {
    if error.is_parse() { HttpError::NotHttp(error) } else { HttpError::Broken(error) }
}
