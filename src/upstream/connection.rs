//! A connection to an endpoint, and the making of one.

use std::io;
use std::time::Duration;

use super::patience::Patience;
use super::settings::Endpoint;
use super::stream::{Encryption, reach};
use bytes::Bytes;
use http_body::Body;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;

/// Bytes of an upstream's response head that are taken at most, and bytes of its body that are read at once: of these
/// pieces, about five are held for a client that takes them slowly.
const MAX_HEAD: usize = 32 * 1024;

/// A connection: the library's handle, and the timer that its exchanges share.
pub(super) struct Connection<B> {
    pub(super) sender: SendRequest<B>,
    pub(super) patience: Patience,
}

/// Connects, and starts the connection's task on this thread.
pub(super) async fn connect<B>(
    endpoint: &Endpoint,
    encryption: Option<&Encryption>,
    timeout: Duration,
) -> io::Result<Connection<B>>
where
    B: Body<Data = Bytes> + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let stream = tokio::time::timeout(timeout, reach(endpoint, encryption)).await??;
    let mut builder = http1::Builder::new();
    builder.max_buf_size(MAX_HEAD);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    tokio::task::spawn_local(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "an upstream connection ended early");
        }
    });
    Ok(Connection { sender, patience: Patience::default() })
}
