//! Options of a listener, which its accept loop and its connections share.

use std::convert::Infallible;
use std::error::Error;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::service::Service;
use ipnet::IpNet;

use super::connection_limiter::ConnectionLimiter;
use super::settings::Settings;
use domain::http_syntax::InvalidTargetByte;
use domain::identity::Peer;
use platform::metrics::{ConnectionMetrics, TimeoutMetrics};
use platform::tls::ServerTls;

/// Options of a listener. A connection keeps those that were in force when it was accepted.
#[derive(Clone)]
pub struct ServeOptions {
    /// Sizes and time-outs.
    pub settings: Rc<Settings>,
    /// Renders the HTTP/1.1 response, head and body, to a head that is refused. The connection is closed after it.
    pub head_error_response: HeadErrorResponse,
    /// Certificates and parameters of the TLS handshake; `None` for plain connections.
    pub tls: Option<Arc<ServerTls>>,
    /// Negotiation of HTTP/2.
    pub http2: Http2Negotiation,
    /// Networks whose connections must begin with a PROXY header.
    pub proxy_networks: Rc<[IpNet]>,
    /// Networks from which connections are accepted; none: from any. Others are closed without a byte.
    pub peers: Option<Rc<[IpNet]>>,
    /// Networks of proxies that are trusted to name the client of each request.
    pub trusted_proxies: Rc<[IpNet]>,
    /// Limits the number of connections.
    pub connection_limiter: ConnectionLimiter,
    /// Counters of connections.
    pub connections: ConnectionMetrics,
    /// Counters of time-outs.
    pub timeouts: TimeoutMetrics,
}

impl ServeOptions {
    /// Returns whether a peer is a proxy: one that asks for decisions, or a trusted one. Its connections carry what
    /// many clients do. So none of these may end such a connection for the others, by frames that a single client is
    /// not to send so many of (rapid reset).
    pub(super) fn is_proxy(&self, peer: &Peer) -> bool {
        let ip = peer.address.ip().to_canonical();
        self.peers.is_some() || self.trusted_proxies.iter().any(|network| network.contains(&ip))
    }
}

/// Responses of a service.
type ResponseOf<S> = Response<<S as ConnectionService>::ResponseBody>;

/// Service of one connection: it answers every request.
pub trait ConnectionService:
    Service<Request<Incoming>, Response = ResponseOf<Self>, Error = Infallible> + 'static
{
    /// Body of its responses.
    type ResponseBody: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + 'static;
}

impl<S, B> ConnectionService for S
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + 'static,
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + 'static,
{
    type ResponseBody = B;
}

/// Renders the response to a refused head of this peer.
pub type HeadErrorResponse = Rc<dyn Fn(HeadError, &Rc<Peer>) -> Bytes>;

/// Negotiation of HTTP/2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Http2Negotiation {
    /// By ALPN in the TLS handshake alone. Plain connections are HTTP/1.1.
    #[default]
    Alpn,
    /// By ALPN; on plain connections by prior knowledge: they begin with the HTTP/2 preface (RFC 9113, section 3.3).
    PriorKnowledge,
}

/// The reason why a request head is refused before it reaches the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadError {
    /// It is not HTTP, or two servers could read it differently.
    Malformed,
    /// It has too many bytes or fields.
    HeadTooLarge,
    /// Its request target has a byte that it may not have.
    Target(InvalidTargetByte),
    /// Its request target is too long.
    TargetTooLong,
    /// It did not arrive in time.
    TooSlow,
}

/// Logs the error by which the HTTP library ended a connection. At `debug`: most are clients that went away.
pub(super) fn log_end(result: hyper::Result<()>) {
    if let Err(error) = result {
        tracing::debug!(%error, "a downstream connection ended with an error");
    }
}
