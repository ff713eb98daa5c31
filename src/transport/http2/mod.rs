//! One HTTP/2 connection.

mod frames;

use std::convert::Infallible;
use std::error::Error as _;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use pin_project_lite::pin_project;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};

use self::frames::Frames;
use crate::metrics::TimeoutMetrics;
use crate::timer::LazyTimer;
use crate::transport::activity::{Phase, Progress, Taking};
use crate::transport::drain::{Member, Stage};
use crate::transport::serving::{ServeOptions, log_end};
use crate::transport::settings::Settings;
use crate::transport::stream::SharedStream;
use crate::transport::tracked_service::Watched;
use crate::transport::watchdog::Watchdog;

/// Bytes of a stream's response that are held for a client that takes them slowly.
const SEND_BUFFER: usize = 64 * 1024;
/// Streams that were reset before they were served, that are held at a time: floods of them (CVE-2023-44487) end the
/// connection.
const MAX_RESETS: usize = 64;
/// Streams of a connection that we have to reset, in all its life: floods of them (CVE-2025-8671) end it. As many as the
/// library takes by itself, since an honest client may meet some, and its connection may last for days.
const MAX_OWN_RESETS: usize = 1024;
/// A client of which nothing is heard for this long is asked whether it is still there, and has as long to answer: so a
/// stream over a dead connection ends, also where it may last for ever.
const PING: Duration = Duration::from_secs(30);
/// How long a connection may take to end when it was told to.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Runs a connection to its end.
pub(in crate::transport) async fn run<S, B>(stream: SharedStream, serving: &ServeOptions, member: &Member, service: S)
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + 'static,
    B: Body<Data = Bytes> + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let progress = Rc::new(Progress::new());
    let io = TokioIo::new(Io {
        stream: stream.clone(),
        progress: Rc::clone(&progress),
        frames: Frames::new(serving.settings.max_streams),
    });
    let service = Watched { service, progress: Rc::clone(&progress) };
    let mut connection = pin!(builder(serving, &progress).serve_connection(io, service));
    let mut watchdog = Watchdog::new(Rc::clone(&progress), &serving.settings);
    let mut told = false;
    let expired = poll_fn(|cx| {
        let stage = member.stage(cx);
        if stage == Stage::Closing {
            watchdog.hurry();
        }
        // One that has asked for nothing yet is served once; told at once, its client would come back again and again.
        let due = match stage {
            Stage::Serving => false,
            Stage::LameDuck => progress.highest_stream() > 0,
            Stage::Closing => true,
        };
        if due && !told {
            told = true;
            connection.as_mut().graceful_shutdown();
        }
        if let Poll::Ready(result) = connection.as_mut().poll(cx) {
            if result.as_ref().is_err_and(is_flood) {
                serving.connections.floods.inc();
            }
            log_end(result);
            return Poll::Ready(None);
        }
        watchdog.poll(cx).map(Some)
    })
    .await;
    match expired {
        None if progress.is_flooded() => {
            serving.connections.floods.inc();
            calm(stream, progress.highest_stream()).await;
        }
        None => {}
        Some(expired) => {
            expired.count(&serving.timeouts);
            // Said in time for a request that crosses the GOAWAY to be served (RFC 9113, section 6.8).
            connection.as_mut().graceful_shutdown();
            while tokio::time::timeout(LAST_WORDS, connection.as_mut()).await.is_err() {
                if progress.phase() != Phase::Exchange || progress.blocked_since().is_some() {
                    stream.forget_unsent();
                    break;
                }
            }
        }
    }
}

/// Whether the library has ended the connection for a flood of its own counts, and has said so to the client.
fn is_flood(error: &hyper::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<h2::Error>());
    cause.is_some_and(|cause| !cause.is_remote() && cause.reason() == Some(h2::Reason::ENHANCE_YOUR_CALM))
}

fn builder(serving: &ServeOptions, progress: &Rc<Progress>) -> http2::Builder<Streams> {
    let settings: &Settings = &serving.settings;
    let mut builder = http2::Builder::new(Streams {
        progress: Rc::clone(progress),
        patience: settings.write_idle_timeout,
        timeouts: serving.timeouts.clone(),
    });
    builder
        .max_concurrent_streams(settings.max_streams)
        .initial_stream_window_size(settings.stream_window)
        .initial_connection_window_size(settings.connection_window)
        .max_send_buf_size(SEND_BUFFER)
        .max_pending_accept_reset_streams(MAX_RESETS)
        .max_local_error_reset_streams(MAX_OWN_RESETS)
        .timer(TokioTimer::new())
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING)
        // Heads up to twice the limit are read, so that they can be refused in words; larger ones the library answers with
        // an empty 431.
        .max_header_list_size(u32::try_from(settings.max_head.saturating_mul(2)).unwrap_or(u32::MAX));
    builder
}

/// The last words to a client that only keeps us busy: GOAWAY with ENHANCE_YOUR_CALM (RFC 9113, section 7).
async fn calm(mut stream: SharedStream, highest_stream: u32) {
    const GOAWAY: [u8; 9] = [0, 0, 8, 7, 0, 0, 0, 0, 0];
    const ENHANCE_YOUR_CALM: u32 = 0xb;
    let frame = [&GOAWAY[..], &highest_stream.to_be_bytes(), &ENHANCE_YOUR_CALM.to_be_bytes()].concat();
    let said = async {
        stream.write_all(&frame).await?;
        stream.shutdown().await
    };
    if let Ok(Err(error)) = tokio::time::timeout(LAST_WORDS, said).await {
        tracing::debug!(%error, "a client went away");
    }
}

/// A downstream HTTP/2 connection's bytes.
struct Io {
    stream: SharedStream,
    progress: Rc<Progress>,
    frames: Frames,
}

impl AsyncRead for Io {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        let this = &mut *self;
        this.frames.earned(this.progress.take_pieces());
        if this.frames.follow(&buf.filled()[before..]).is_err() {
            this.progress.flood();
            return Poll::Ready(Err(io::ErrorKind::QuotaExceeded.into()));
        }
        if buf.filled().len() > before {
            this.progress.note_frames(this.frames.in_head(), this.frames.highest_stream());
        }
        read
    }
}

impl AsyncWrite for Io {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.wrote(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.wrote(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.progress.written(flushed.is_ready());
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl Io {
    fn wrote(&mut self, written: &Poll<io::Result<usize>>) {
        self.progress.written(written.is_ready());
        if let Poll::Ready(Ok(bytes)) = written {
            self.frames.sent(*bytes);
        }
    }
}

/// Runs the streams of a connection on its own thread, and ends those whose clients take nothing.
#[derive(Clone)]
struct Streams {
    progress: Rc<Progress>,
    patience: Duration,
    timeouts: TimeoutMetrics,
}

impl<F: Future<Output = ()> + 'static> hyper::rt::Executor<F> for Streams {
    fn execute(&self, future: F) {
        let streams = self.clone();
        tokio::task::spawn_local(StreamTask { future, streams, taking: Rc::default(), timer: LazyTimer::default() });
    }
}

pin_project! {
    /// One stream. To drop it resets the stream.
    struct StreamTask<F> {
        #[pin]
        future: F,
        streams: Streams,
        taking: Rc<Taking>,
        timer: LazyTimer,
    }
}

impl<F: Future<Output = ()>> Future for StreamTask<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        *this.streams.progress.stream.borrow_mut() = Some(Rc::clone(this.taking));
        let done = this.future.poll(cx);
        this.streams.progress.stream.borrow_mut().take();
        if done.is_ready() {
            return done;
        }
        let Some(since) = this.taking.waiting.get() else { return Poll::Pending };
        let deadline = since + this.streams.patience;
        ready!(this.timer.poll(cx, deadline));
        this.streams.timeouts.write_idle.inc();
        Poll::Ready(())
    }
}
