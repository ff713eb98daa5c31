//! The proxy on hyper: its server, its client, and a stack of idle upstream connections.

use std::cell::RefCell;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONNECTION, HOST, HeaderName};
use http::{HeaderValue, Request, Response, StatusCode, Uri, Version};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::Stream;
use super::admission::{Admission, Permit};

const USER: HeaderName = HeaderName::from_static("x-user-id");
const ORG: HeaderName = HeaderName::from_static("x-org-id");

/// Idle connections to the upstream, the last used first.
pub(super) struct Pool {
    upstream: SocketAddr,
    idle: RefCell<Vec<SendRequest<Incoming>>>,
}

/// Body of a response. Its end, or its drop, ends the request and gives the connection back.
struct Forwarded {
    body: Option<Incoming>,
    connection: Option<SendRequest<Incoming>>,
    pool: Rc<Pool>,
    _permit: Option<Permit>,
}

/// Serves one connection of a client.
pub(super) async fn serve(stream: impl Stream, http2: bool, admission: Rc<Admission>, pool: Rc<Pool>) {
    let service = service_fn(move |request| handle(request, Rc::clone(&admission), Rc::clone(&pool)));
    let stream = TokioIo::new(stream);
    // A client that goes away is none of our concern.
    if http2 {
        hyper::server::conn::http2::Builder::new(Local).serve_connection(stream, service).await.ok();
    } else {
        hyper::server::conn::http1::Builder::new().serve_connection(stream, service).await.ok();
    }
}

async fn handle(
    mut request: Request<Incoming>,
    admission: Rc<Admission>,
    pool: Rc<Pool>,
) -> Result<Response<Forwarded>, Infallible> {
    let authorization = request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes);
    let mut permit = match admission.admit(authorization, request.method(), request.uri().path()).await {
        Ok(permit) => permit,
        Err(status) => return Ok(own(status, pool)),
    };
    rewrite(&mut request, &permit);
    let Ok((response, connection)) = pool.send(request).await else { return Ok(own(502, pool)) };
    permit.status = response.status().as_u16();
    let (mut head, body) = response.into_parts();
    head.headers.remove(CONNECTION);
    head.version = Version::default();
    let body = Forwarded { body: Some(body), connection: Some(connection), pool, _permit: Some(permit) };
    Ok(Response::from_parts(head, body))
}

/// Makes the client's head the upstream's.
fn rewrite(request: &mut Request<Incoming>, permit: &Permit) {
    if let Some(authority) = request.uri().authority() {
        let host = HeaderValue::from_str(authority.as_str()).expect("an authority is a value");
        let path = request.uri().path_and_query().cloned();
        request.headers_mut().insert(HOST, host);
        *request.uri_mut() = path.map_or_else(Uri::default, Uri::from);
    }
    *request.version_mut() = Version::HTTP_11;
    let headers = request.headers_mut();
    headers.remove(CONNECTION);
    headers.remove(AUTHORIZATION);
    headers.insert(USER, permit.key.user_value.clone());
    headers.insert(ORG, permit.key.org_value.clone());
}

/// Response of the proxy itself.
fn own(status: u16, pool: Rc<Pool>) -> Response<Forwarded> {
    let mut response = Response::new(Forwarded { body: None, connection: None, pool, _permit: None });
    *response.status_mut() = StatusCode::from_u16(status).expect("a status");
    response
}

impl Pool {
    pub(super) fn new(upstream: SocketAddr) -> Self {
        Self { upstream, idle: RefCell::default() }
    }

    async fn send(&self, request: Request<Incoming>) -> Result<(Response<Incoming>, SendRequest<Incoming>), ()> {
        let mut connection = loop {
            let Some(mut idle) = self.idle.borrow_mut().pop() else { break self.connect().await? };
            if idle.ready().await.is_ok() {
                break idle;
            }
        };
        let response = connection.send_request(request).await.map_err(drop)?;
        Ok((response, connection))
    }

    async fn connect(&self) -> Result<SendRequest<Incoming>, ()> {
        let stream = TcpStream::connect(self.upstream).await.map_err(drop)?;
        stream.set_nodelay(true).map_err(drop)?;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(drop)?;
        tokio::task::spawn_local(connection);
        Ok(sender)
    }
}

impl Body for Forwarded {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.body {
            Some(body) => Pin::new(body).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for Forwarded {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.pool.idle.borrow_mut().push(connection);
        }
    }
}

/// Runs the tasks of HTTP/2 on this thread.
#[derive(Clone)]
struct Local;

impl<F: Future<Output: 'static> + 'static> hyper::rt::Executor<F> for Local {
    fn execute(&self, future: F) {
        tokio::task::spawn_local(future);
    }
}
