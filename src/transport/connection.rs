//! One downstream connection, from its first byte to its last.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::CONNECTION;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::Service;
use hyper_util::rt::TokioIo;
use pin_project_lite::pin_project;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

use super::drain::Member;
use super::io::{Io, Phase, Progress};
use super::listener::Serving;
use super::settings::Settings;

/// What every HTTP/2 connection begins with (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// A first read of this size takes in most heads whole.
const FIRST_READ: usize = 4096;
/// The library allows no smaller buffer.
const SMALLEST_HEAD: usize = 8192;
/// Up to this many fields the library parses without allocating; it is also the default limit.
const FIELDS_ON_STACK: usize = 100;
/// How long a connection may take to end: to take our last words, and to stop sending what nobody reads.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Why a head could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// It is not HTTP.
    Malformed,
    /// It has too many bytes or fields.
    HeadTooLarge,
    /// Its request target is too long.
    TargetTooLong,
    /// It did not arrive in time.
    TooSlow,
}

/// Runs a connection to its end. Failures are the client's affair, and end here.
pub(super) async fn run<S, B>(mut stream: TcpStream, serving: Serving, member: Member, service: S)
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + 'static,
    B: Body<Data = Bytes> + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let first = tokio::select! {
        biased;
        first = tokio::time::timeout(serving.settings.keep_alive_timeout, first_bytes(&mut stream)) => first,
        () = poll_fn(|cx| if member.draining(cx) { Poll::Ready(()) } else { Poll::Pending }) => return,
    };
    let Ok(Ok(first)) = first else { return };
    let http2 = first.starts_with(PREFACE);
    let progress = Rc::new(Progress::new(http2));
    let service = Watched { service, progress: Rc::clone(&progress) };
    let io = TokioIo::new(Io::new(stream, first, Rc::clone(&progress), Rc::clone(&serving.answer)));
    let watchdog = Watchdog::new(progress, &serving.settings);
    if http2 {
        run_http2(io, &serving.settings, &member, watchdog, service).await;
    } else {
        run_http1(io, &serving, &member, watchdog, service).await;
    }
}

/// Reads until it is clear whether this is HTTP/2; an HTTP/1 head usually arrives whole in the first read.
async fn first_bytes(stream: &mut TcpStream) -> io::Result<Bytes> {
    let mut buffer = BytesMut::with_capacity(FIRST_READ);
    loop {
        let read = stream.read_buf(&mut buffer).await?;
        let undecided = buffer.len() < PREFACE.len() && PREFACE.starts_with(&buffer);
        if !undecided || read == 0 {
            return Ok(buffer.freeze());
        }
    }
}

async fn run_http1<S, B>(
    io: TokioIo<Io>,
    serving: &Serving,
    member: &Member,
    mut watchdog: Watchdog,
    service: Watched<S>,
) where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + 'static,
    B: Body<Data = Bytes> + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut builder = http1::Builder::new();
    builder.half_close(false).max_buf_size(serving.settings.max_head.max(SMALLEST_HEAD));
    if serving.settings.max_fields != FIELDS_ON_STACK {
        builder.max_headers(serving.settings.max_fields);
    }
    let mut connection = builder.serve_connection(io, service);
    let mut told = false;
    let expired = poll_fn(|cx| {
        if !told && member.draining(cx) {
            told = true;
            Pin::new(&mut connection).graceful_shutdown();
        }
        if let Poll::Ready(result) = Pin::new(&mut connection).poll(cx) {
            log_end(result);
            return Poll::Ready(None);
        }
        watchdog.poll(cx).map(Some)
    })
    .await;
    let stream = connection.into_parts().io.into_inner().into_stream();
    let progress = watchdog.progress;
    let last_words = match expired {
        Some(Expired::Head) if progress.is_flushed() => (serving.answer)(Unreadable::TooSlow),
        _ => Bytes::new(),
    };
    if progress.is_closing() || !last_words.is_empty() {
        close(stream, last_words).await;
    }
}

async fn run_http2<S, B>(
    io: TokioIo<Io>,
    settings: &Settings,
    member: &Member,
    mut watchdog: Watchdog,
    service: Watched<S>,
) where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + 'static,
    B: Body<Data = Bytes> + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut builder = http2::Builder::new(LocalExecutor);
    builder
        .max_concurrent_streams(settings.max_streams)
        // Heads up to twice the limit are read, so that they can be refused in words; larger ones the library resets.
        .max_header_list_size(u32::try_from(settings.max_head.saturating_mul(2)).unwrap_or(u32::MAX));
    let mut connection = pin!(builder.serve_connection(io, service));
    let mut told = false;
    let expired = poll_fn(|cx| {
        if !told && member.draining(cx) {
            told = true;
            connection.as_mut().graceful_shutdown();
        }
        if let Poll::Ready(result) = connection.as_mut().poll(cx) {
            log_end(result);
            return Poll::Ready(false);
        }
        watchdog.poll(cx).map(|_| true)
    })
    .await;
    if expired {
        // Said in time for a request that crosses the GOAWAY to be served (RFC 9113, section 6.8).
        connection.as_mut().graceful_shutdown();
        while tokio::time::timeout(LAST_WORDS, connection.as_mut()).await.is_err() {
            if watchdog.progress.phase() != Phase::Exchange {
                break;
            }
        }
    }
}

fn log_end(result: hyper::Result<()>) {
    if let Err(error) = result {
        tracing::debug!(%error, "a connection ended early");
    }
}

/// Says the last words, if there are any, and closes; but lingers, as more of the request may be on its way. To close on
/// unread bytes resets the connection, and the client might never see the answer (RFC 9112, section 9.6).
async fn close(mut stream: TcpStream, last_words: Bytes) {
    let closing = async {
        stream.write_all(&last_words).await?;
        stream.shutdown().await?;
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await.map(drop)
    };
    if let Ok(Err(error)) = tokio::time::timeout(LAST_WORDS, closing).await {
        tracing::debug!(%error, "a client went away");
    }
}

/// Runs the streams of an HTTP/2 connection on its own thread.
#[derive(Clone, Copy)]
struct LocalExecutor;

impl<F: Future<Output = ()> + 'static> hyper::rt::Executor<F> for LocalExecutor {
    fn execute(&self, future: F) {
        tokio::task::spawn_local(future);
    }
}

/// What ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expired {
    Head,
    Idle,
}

/// Ends connections that are idle or whose heads are slow.
///
/// - Polled with its connection, in the same task: it sees what the connection does without being told.
/// - A timer is set only when the connection waits and the one that is set would come too late; one that comes too
///   early is set again. A request that arrives whole touches no timer.
struct Watchdog {
    progress: Rc<Progress>,
    head: Duration,
    idle: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Watchdog {
    fn new(progress: Rc<Progress>, settings: &Settings) -> Self {
        Self { progress, head: settings.head_timeout, idle: settings.keep_alive_timeout, timer: None }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Expired> {
        loop {
            let (deadline, expired) = match self.progress.phase() {
                Phase::Exchange => return Poll::Pending,
                Phase::Head(since) => (since + self.head, Expired::Head),
                Phase::Idle(since) => (since + self.idle, Expired::Idle),
            };
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
            if timer.deadline() > deadline {
                timer.as_mut().reset(deadline);
            }
            ready!(timer.as_mut().poll(cx));
            if Instant::now() >= deadline {
                return Poll::Ready(expired);
            }
            timer.as_mut().reset(deadline);
        }
    }
}

/// The service, telling the connection when an exchange begins and ends.
struct Watched<S> {
    service: S,
    progress: Rc<Progress>,
}

impl<S, B> Service<Request<Incoming>> for Watched<S>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    B: Body,
{
    type Response = Response<WatchedBody<B>>;
    type Error = Infallible;
    type Future = Exchange<S::Future>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let ongoing = Ongoing::new(&self.progress);
        Exchange { future: self.service.call(request), ongoing: Some(ongoing) }
    }
}

pin_project! {
    /// The time from a request's head to its response's head.
    struct Exchange<F> {
        #[pin]
        future: F,
        ongoing: Option<Ongoing>,
    }
}

impl<F, B> Future for Exchange<F>
where
    F: Future<Output = Result<Response<B>, Infallible>>,
{
    type Output = Result<Response<WatchedBody<B>>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let Ok(response) = ready!(this.future.poll(cx));
        let ongoing = this.ongoing.take();
        if let Some(ongoing) = &ongoing
            && response.headers().get(CONNECTION).is_some_and(|value| value == "close")
        {
            ongoing.0.close();
        }
        Poll::Ready(Ok(response.map(|body| WatchedBody { body, _ongoing: ongoing })))
    }
}

pin_project! {
    /// A response body that keeps its exchange going until it is dropped.
    struct WatchedBody<B> {
        #[pin]
        body: B,
        _ongoing: Option<Ongoing>,
    }
}

impl<B: Body> Body for WatchedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        self.project().body.poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// An exchange, as long as it goes on.
struct Ongoing(Rc<Progress>);

impl Ongoing {
    fn new(progress: &Rc<Progress>) -> Self {
        progress.begin();
        Self(Rc::clone(progress))
    }
}

impl Drop for Ongoing {
    fn drop(&mut self) {
        self.0.end();
    }
}
