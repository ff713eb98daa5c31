//! One HTTP/1 connection.

mod chunks;
pub mod head;
mod io;

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncWriteExt as _, BufReader};

use self::head::HeadLimits;
use self::io::Io;
use crate::transport::activity::{Phase, Progress};
use crate::transport::drain::{Member, Stage};
use crate::transport::serving::{HeadError, ServeOptions, log_end};
use crate::transport::settings::Settings;
use crate::transport::stream::SharedStream;
use crate::transport::tracked_service::Watched;
use crate::transport::upgrade::{UpgradeSlot, Upgraded};
use crate::transport::watchdog::{Expired, Watchdog};

/// How much the library reads beyond a head of the largest size, and the least that it can do with.
const READ_AHEAD: usize = 8192;
/// Up to this many fields the library parses without allocating; it is also the default limit.
const FIELDS_ON_STACK: usize = 100;
/// How long a connection may take to end: to take our last words, and to stop sending what nobody reads.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Runs a connection to its end.
pub(in crate::transport) async fn run<S, B>(
    stream: SharedStream,
    serving: &ServeOptions,
    member: &Member,
    service: S,
    upgrade_slot: &UpgradeSlot,
) where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + 'static,
    B: Body<Data = Bytes> + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let settings = &serving.settings;
    let progress = Rc::new(Progress::new());
    let io = TokioIo::new(Io::new(stream.clone(), Rc::clone(&progress), limits(settings)));
    let service = Watched { service, progress: Rc::clone(&progress) };
    let mut connection = builder(settings).serve_connection(io, service);
    let mut watchdog = Watchdog::new(Rc::clone(&progress), settings);
    let mut told = false;
    let expired = poll_fn(|cx| {
        let stage = member.stage(cx);
        if stage != Stage::Serving {
            progress.make_last();
        }
        loop {
            if let Poll::Ready(result) = Pin::new(&mut connection).poll(cx) {
                log_end(result);
                return Poll::Ready(None);
            }
            // Only after what has come was read. The library sees no head before it is whole, and would take the
            // connection for idle.
            if stage != Stage::Closing || told || !matches!(progress.phase(), Phase::Idle(_) | Phase::Exchange) {
                break;
            }
            told = true;
            Pin::new(&mut connection).graceful_shutdown();
        }
        if stage == Stage::Closing {
            watchdog.hurry();
        }
        watchdog.poll(cx).map(Some)
    })
    .await;
    if let Some(expired) = expired {
        expired.count(&serving.timeouts);
    }
    if let (None, Some(tunnel)) = (expired, upgrade_slot.take()) {
        let parts = connection.into_parts();
        let mut ahead = BytesMut::from(parts.read_buf);
        ahead.unsplit(parts.io.into_inner().into_held());
        return tunnel(Upgraded::new(ahead, stream)).await;
    }
    drop(connection);
    if progress.is_cut() {
        // Closed in order, the connection would say that this was all. Reset, it says that it was not.
        return stream.forget_unsent();
    }
    end(stream, serving, &progress, expired).await;
}

fn builder(settings: &Settings) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.half_close(false).max_buf_size(settings.max_head + READ_AHEAD);
    if settings.max_fields != FIELDS_ON_STACK {
        builder.max_headers(settings.max_fields);
    }
    builder
}

fn limits(settings: &Settings) -> HeadLimits {
    HeadLimits { head: settings.max_head, fields: settings.max_fields, target: settings.max_target }
}

/// The end of a connection, with the last words that are due.
async fn end(stream: SharedStream, serving: &ServeOptions, progress: &Progress, expired: Option<Expired>) {
    let last_words = match (expired, progress.refusal()) {
        (Some(Expired::Write), _) => return stream.forget_unsent(),
        (Some(Expired::Head), _) => (serving.head_error_response)(HeadError::TooSlow),
        (None, Some(why)) => (serving.head_error_response)(why),
        _ => Bytes::new(),
    };
    if progress.is_closing() || !last_words.is_empty() {
        close(stream, last_words).await;
    }
}

/// Says the last words, if there are any, and closes; but lingers, as more of the request may be on its way. To close on
/// unread bytes resets the connection, and the client might never see the answer (RFC 9112, section 9.6).
async fn close(mut stream: SharedStream, last_words: Bytes) {
    let closing = async {
        stream.write_all(&last_words).await?;
        stream.shutdown().await?;
        tokio::io::copy_buf(&mut BufReader::new(stream), &mut tokio::io::sink()).await.map(drop)
    };
    if let Ok(Err(error)) = tokio::time::timeout(LAST_WORDS, closing).await {
        tracing::debug!(%error, "a client went away");
    }
}
