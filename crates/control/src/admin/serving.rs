//! Accept loop and HTTP/1.1 connections of the admin socket and the admin listener, which end with the gateway.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::response::AdminResponse;
use platform::accept_errors::AcceptErrorLog;

/// Connections at a time; more are closed right after they were accepted. Operators and scrapers need a handful.
const MAX_CONNECTIONS: usize = 256;
/// Time-out of a request head, from the accept or the last response on.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for requests under way to finish after the shutdown began.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);
/// Pause after a failed accept: without file descriptors, the next one fails as well.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Serves the connections that `accept` returns, until `shutdown` completes and requests under way are finished. With
/// a connection comes what is known of its peer, which each of its requests is handled with.
pub(super) async fn serve<S, P, F>(
    mut accept: impl FnMut(&mut Context<'_>) -> Poll<io::Result<(S, P)>>,
    handle: impl Fn(Request<Incoming>, P) -> F + Clone + Send + 'static,
    errors: &AcceptErrorLog,
    shutdown: impl Future<Output = ()>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    P: Copy + Send + 'static,
    F: Future<Output = AdminResponse> + Send + 'static,
{
    let (stop, stopped) = watch::channel(());
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            accepted = poll_fn(&mut accept) => accepted,
        };
        // Connections that ended stay in the set until they are joined, and would count.
        while connections.try_join_next().is_some() {}
        match accepted {
            Ok((stream, peer)) if connections.len() < MAX_CONNECTIONS => {
                let handle = handle.clone();
                let handle = move |request| handle(request, peer);
                connections.spawn(serve_connection(stream, handle, stopped.clone()));
            }
            Ok(_) => tracing::debug!(limit = MAX_CONNECTIONS, "too many admin connections; closed the new one"),
            Err(error) => {
                errors.log(&error);
                tokio::time::sleep(ACCEPT_BACKOFF).await;
            }
        }
    }
    drop(stop);
    let ended = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(SHUTDOWN_GRACE, ended).await;
}

/// Serves one connection; once stopped, it ends after the request under way.
async fn serve_connection<S, F>(
    stream: S,
    handle: impl Fn(Request<Incoming>) -> F + Send + 'static,
    mut stopped: watch::Receiver<()>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Future<Output = AdminResponse> + Send + 'static,
{
    let service = service_fn(move |request| {
        let response = handle(request);
        async move { Ok::<_, Infallible>(response.await) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service).with_upgrades());
    let served = tokio::select! {
        served = &mut connection => served,
        _ = stopped.changed() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "an admin connection failed");
    }
}
