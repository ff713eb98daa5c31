//! A client that speaks HTTP/2 with prior knowledge.

use std::net::SocketAddr;

use bytes::Bytes;
use http::Request;
use http_body::Body;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};

use super::Response;

/// Connects and runs the client's side; the gateway is started and stopped outside, as it has threads of its own.
pub fn over_http2<B, T>(address: SocketAddr, client: impl AsyncFnOnce(SendRequest<B>) -> T) -> T
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: std::error::Error + Send + Sync,
{
    let connect = async || {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    };
    over_http2_on(connect, client)
}

/// The same on another stream, such as one of TLS.
pub fn over_http2_on<S, B, T>(connect: impl AsyncFnOnce() -> S, client: impl AsyncFnOnce(SendRequest<B>) -> T) -> T
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: std::error::Error + Send + Sync,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let stream = TokioIo::new(connect().await);
        let (sender, connection) = Builder::new(TokioExecutor::new()).handshake(stream).await.unwrap();
        tokio::spawn(connection);
        client(sender).await
    })
}

/// One request and its response on a connection of its own; an error when the stream was reset.
pub fn fetch_http2(address: SocketAddr, method: &str, path: &str, key: &str) -> Result<Response, hyper::Error> {
    let request = Request::builder().method(method).uri(format!("http://{address}{path}"));
    let request = request.header("authorization", format!("Bearer {key}")).body(Full::default()).unwrap();
    over_http2(address, async |mut sender: SendRequest<Full<Bytes>>| {
        let (head, body) = sender.send_request(request).await?.into_parts();
        let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let headers = head.headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
        let body = body.collect().await?.to_bytes().to_vec();
        Ok(Response { status: head.status.as_u16(), headers, body })
    })
}
