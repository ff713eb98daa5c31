//! Accepting and serving HTTP/1.1 connections on the runtime that polls, with an end.

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

use super::answer::Answer;

/// Connections at once; the ones beyond are closed at once. Operators and scrapers need a handful.
const CONNECTIONS: usize = 256;
/// For a head to arrive, from the connection or the last answer on.
const HEAD: Duration = Duration::from_secs(30);
/// For requests under way to be finished after the shutdown.
const GRACE: Duration = Duration::from_secs(5);
/// After a failed accept: it fails again until descriptors are free.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves what `accept` gives until `shutdown` completes.
pub(super) async fn serve<S, F>(
    mut accept: impl FnMut(&mut Context<'_>) -> Poll<io::Result<S>>,
    handle: impl Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    shutdown: impl Future<Output = ()>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Future<Output = Answer> + Send + 'static,
{
    let (stop, stopped) = watch::channel(());
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            accepted = poll_fn(&mut accept) => accepted,
        };
        while connections.try_join_next().is_some() {}
        match accepted {
            Ok(stream) if connections.len() < CONNECTIONS => {
                connections.spawn(connection(stream, handle.clone(), stopped.clone()));
            }
            Ok(_) => tracing::debug!("too many admin connections: one was closed"),
            Err(error) => {
                tracing::warn!(%error, "an admin connection could not be accepted");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    drop(stop);
    let ended = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(GRACE, ended).await;
}

/// Serves one connection; from the stop on, it ends with the request under way.
async fn connection<S, F>(
    stream: S,
    handle: impl Fn(Request<Incoming>) -> F + Send + 'static,
    mut stopped: watch::Receiver<()>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Future<Output = Answer> + Send + 'static,
{
    let service = service_fn(move |request| {
        let answer = handle(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    let served = tokio::select! {
        served = &mut connection => served,
        _ = stopped.changed() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "an admin connection broke off");
    }
}
