//! HTTP/1.1 client for the admin socket and the admin listener: one request over one connection.

use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, HOST};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use super::call::Call;
use ::control::admin::SUDO_UID_HEADER;

/// Time-out of a response. The slowest operation is a change, which waits for a disk write.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// User for whom root runs this command by sudo.
pub(super) fn sudo_uid() -> Option<u32> {
    std::env::var("SUDO_UID").ok()?.parse().ok()
}

/// Request of a command.
pub(super) struct ClientRequest<'a> {
    method: Method,
    /// Path with its query.
    target: &'a str,
    body: Bytes,
    timeout: Duration,
}

/// Response whose body may still be on its way.
pub(super) struct ClientResponse {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    body: Incoming,
    deadline: Deadline,
}

/// End of the time for a response.
#[derive(Clone, Copy)]
struct Deadline {
    at: Instant,
    timeout: Duration,
}

impl<'a> ClientRequest<'a> {
    /// GET.
    pub(super) fn get(target: &'a str) -> Self {
        Self { method: Method::GET, target, body: Bytes::new(), timeout: RESPONSE_TIMEOUT }
    }

    /// POST of JSON, or of JSON lines.
    pub(super) fn post(target: &'a str, body: Vec<u8>) -> Self {
        Self { method: Method::POST, body: body.into(), ..Self::get(target) }
    }

    /// A call of the API, whose target this is.
    pub(super) fn of_call(call: &Call, target: &'a str) -> Self {
        let body = call.body.as_ref().map(|body| body.to_string().into()).unwrap_or_default();
        Self { method: call.method.clone(), body, ..Self::get(target) }
    }

    /// The same with another time-out of the response.
    pub(super) fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Sends the request, and returns the response as soon as its head is there.
    pub(super) async fn send<S>(self, stream: S) -> anyhow::Result<ClientResponse>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let deadline = Deadline { at: Instant::now() + self.timeout, timeout: self.timeout };
        let request = self.build()?;
        let response = deadline.bound(async {
            let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
            // It ends with the response: the request says that it is the last one.
            tokio::spawn(connection);
            sender.send_request(request).await.context("the connection was closed")
        });
        let (head, body) = response.await?.into_parts();
        Ok(ClientResponse { status: head.status, headers: head.headers, body, deadline })
    }

    fn build(self) -> anyhow::Result<Request<Full<Bytes>>> {
        let request = Request::builder().method(self.method).uri(self.target);
        let request = request.header(HOST, "keygate").header(CONNECTION, "close");
        let sudo_uid = sudo_uid().map(|uid| (SUDO_UID_HEADER, uid));
        let request = sudo_uid.into_iter().fold(request, |request, (name, uid)| request.header(name, uid));
        let request = request.header(CONTENT_TYPE, "application/json").body(Full::new(self.body));
        request.context("cannot build the request")
    }
}

impl ClientResponse {
    /// Reads the whole body, within the time-out of the response.
    pub(super) async fn bytes(self) -> anyhow::Result<Bytes> {
        let Self { body, deadline, .. } = self;
        deadline.bound(async { Ok(body.collect().await.context("the connection was closed")?.to_bytes()) }).await
    }

    /// The body as it comes, without a time-out.
    pub(super) fn into_body(self) -> Incoming {
        self.body
    }
}

impl Deadline {
    async fn bound<T>(self, response: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
        tokio::time::timeout_at(self.at, response)
            .await
            .with_context(|| format!("no response within {} s", self.timeout.as_secs_f64()))?
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    /// Sends a request to a server that answers with these bytes, and keeps the connection open.
    async fn exchange(timeout: Duration, answer: &'static [u8]) -> anyhow::Result<(StatusCode, Bytes)> {
        let (client, mut server) = duplex(4096);
        tokio::spawn(async move {
            let mut sent = [0; 7];
            server.read_exact(&mut sent).await.unwrap();
            assert_eq!(&sent, b"POST /x");
            server.write_all(answer).await.unwrap();
            std::future::pending::<()>().await;
        });
        let response = ClientRequest::post("/x", b"{}".to_vec()).with_timeout(timeout).send(client).await?;
        Ok((response.status, response.bytes().await?))
    }

    #[tokio::test(flavor = "current_thread")]
    async fn response_has_one_time_out_for_head_and_body() {
        let whole = b"HTTP/1.1 409 Conflict\r\ncontent-length: 2\r\n\r\nno";
        let minute = Duration::from_secs(60);
        assert_eq!(exchange(minute, whole).await.unwrap(), (StatusCode::CONFLICT, Bytes::from_static(b"no")));
        for part in [&whole[..0], &whole[..20], &whole[..whole.len() - 1]] {
            let error = exchange(Duration::from_millis(20), part).await.unwrap_err();
            assert_eq!(error.to_string(), "no response within 0.02 s", "after {} bytes", part.len());
        }
    }
}
