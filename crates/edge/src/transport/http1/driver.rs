//! The driver of an HTTP/1 connection: polls what serves it, its time-outs and its listener's drain.
//!
//! ```text
//! parked ──readable──▶ served by the HTTP library ──silent──▶ parked
//! ```
//!
//! A connection is parked from its beginning to its first byte, and whenever it has been silent for [`SILENCE`] between
//! two requests. Of the HTTP library it keeps nothing then; a new instance serves the next request.
//!
//! - No byte is lost: a connection is parked only when it has been read to its end ([`Http1State::silent_since`]), and
//!   nothing is read while it is parked. The event loop remembers what comes in between.
//! - Time-outs and drain are those of any connection that waits for a request.
//! - A busy connection pays one firing of its timer in each [`SILENCE`].
//!
//! A client that disconnects after its request has come whole is noticed at once, and the exchange is dropped: what it
//! has sent ahead hides nothing. The driver looks, and not the HTTP library: that would read, into a buffer that it
//! allocates for each request, since the head that was split off the former one still lives.

use std::future::{Future, poll_fn};
use std::ops::ControlFlow;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::time::Instant;

use super::head_gate::HeadGate;
use super::state::Http1State;
use crate::transport::activity::Phase;
use crate::transport::drain::{DrainStage, Registration};
use crate::transport::serving::{ConnectionService, ServeOptions, log_end};
use crate::transport::settings::Settings;
use crate::transport::stream::{DisconnectWatch, SharedStream, poll_ahead, poll_readable, watch_disconnect};
use crate::transport::upgrade::{UpgradeHook, UpgradeSlot};
use crate::transport::watchdog::{Expired, Watchdog};
use platform::byte_stream::InspectedStream;
use platform::large_reads::MAX_BUFFER;
use platform::metrics::GaugeGuard;

/// Bytes of the HTTP library's buffer beyond the largest head; also the least size of a buffer that it accepts.
const READ_AHEAD: usize = 8192;
/// Up to this many fields the library parses without allocating; it is also the library's default limit.
const FIELDS_ON_STACK: usize = 100;

/// Time without a byte after which a connection is parked. A client in the middle of its work sends its next request
/// sooner, and a second is little against `timeouts.keep_alive`.
const SILENCE: Duration = Duration::from_secs(1);
/// Connections of a listener that are silent and not parked yet; beyond them, a connection is parked as soon as it is
/// silent. So tens of thousands that come at once do not hold their buffers for a second: those of so many are about
/// 32 MiB. To wake one costs the next request some microseconds, so the number is more than a worker serves at once.
const MAX_WARM: usize = 2048;

/// State of a connection that is enough to serve its next request.
pub(super) struct Parked<S> {
    pub(super) io: InspectedStream<SharedStream, HeadGate>,
    pub(super) service: S,
}

/// Driver of one connection.
pub(super) struct Driver<'c> {
    pub(super) stream: &'c SharedStream,
    pub(super) state: &'c Http1State,
    pub(super) registration: &'c Registration,
    pub(super) options: &'c ServeOptions,
    pub(super) upgrade_slot: &'c UpgradeSlot,
    pub(super) watchdog: Watchdog,
    /// Watch for the client's disconnect; none unless it has sent bytes ahead, which are not read before the exchange
    /// ends.
    pub(super) disconnect: Option<DisconnectWatch>,
}

/// End of a connection.
pub(super) enum End {
    /// The client, the HTTP library or the service has ended it.
    Closed,
    /// One of its time-outs has passed.
    Expired(Expired),
    /// A 101 has been sent: the hook runs on the connection, from the bytes on that came behind the request.
    Upgraded(UpgradeHook, BytesMut),
}

/// Reason for which the HTTP library is not polled any more.
enum Pause {
    Ended,
    Expired(Expired),
    Silent,
}

impl Driver<'_> {
    /// Drives a connection to its end. While it is served, `parked` is empty.
    pub(super) async fn run<S: ConnectionService>(&mut self, parked: &mut Option<Parked<S>>) -> End {
        loop {
            if let Some(expired) = self.wait().await {
                return End::Expired(expired);
            }
            let Some(idle) = parked.take() else { return End::Closed };
            // On the heap, so that a parked connection has no room for it.
            match Box::pin(self.serve(idle)).await {
                ControlFlow::Continue(silent) => *parked = Some(silent),
                ControlFlow::Break(end) => return end,
            }
        }
    }

    /// Waits as a parked connection until the HTTP library is needed (`None`), or a time-out has passed.
    async fn wait(&mut self) -> Option<Expired> {
        let _parked = GaugeGuard::new(&self.options.connections.parked);
        poll_fn(|cx| {
            let is_closing = self.registration.stage(cx) == DrainStage::Closing;
            // An idle connection of a listener that closes is ended by the library, as if it were not parked.
            let is_ended = is_closing && matches!(self.state.activity.phase(), Phase::Idle(_));
            if is_ended || poll_readable(self.stream, cx).is_ready() {
                return Poll::Ready(None);
            }
            if is_closing {
                self.watchdog.shorten_timeouts(&self.state.activity);
            }
            self.watchdog.poll(&self.state.activity, cx).map(Some)
        })
        .await
    }

    /// Serves requests with a new instance of the HTTP library, until the connection falls silent or ends.
    async fn serve<S: ConnectionService>(&mut self, parked: Parked<S>) -> ControlFlow<End, Parked<S>> {
        let mut connection = builder(&self.options.settings).serve_connection(TokioIo::new(parked.io), parked.service);
        match self.drive(Pin::new(&mut connection), http1::Connection::graceful_shutdown).await {
            Pause::Expired(expired) => ControlFlow::Break(End::Expired(expired)),
            Pause::Silent => {
                let parts = connection.into_parts();
                debug_assert!(parts.read_buf.is_empty(), "a silent connection has been read to its end");
                drop(parts.read_buf);
                self.state.large_reads.take();
                ControlFlow::Continue(Parked { io: parts.io.into_inner(), service: parts.service })
            }
            Pause::Ended => ControlFlow::Break(self.upgrade_slot.take().map_or(End::Closed, |hook| {
                let parts = connection.into_parts();
                // Bytes that came behind the request: some of them in the library's buffer, the rest held at the gate.
                let mut prefix = BytesMut::from(parts.read_buf);
                prefix.unsplit(parts.io.into_inner().into_inspector().into_held());
                End::Upgraded(hook, prefix)
            })),
        }
    }

    /// Polls the HTTP library until the connection ends, one of its time-outs has passed, or it has fallen silent.
    async fn drive<C>(&mut self, mut connection: Pin<&mut C>, shut_down: impl Fn(Pin<&mut C>)) -> Pause
    where
        C: Future<Output = hyper::Result<()>>,
    {
        let started = Instant::now();
        let mut is_shut_down = false;
        poll_fn(|cx| {
            let stage = self.registration.stage(cx);
            if stage != DrainStage::Serving {
                self.state.is_draining.set(true);
            }
            loop {
                if let Poll::Ready(result) = connection.as_mut().poll(cx) {
                    log_end(result);
                    // A tunnel may follow, which reads what comes.
                    self.disconnect = None;
                    return Poll::Ready(Pause::Ended);
                }
                // The connection is polled first, to read what has come. The library does not see a head before it is
                // whole: told to shut down in the New or Head phase, it would close the connection as an idle one.
                let may_shut_down = matches!(self.state.activity.phase(), Phase::Idle(_) | Phase::Exchange);
                if stage != DrainStage::Closing || is_shut_down || !may_shut_down {
                    break;
                }
                is_shut_down = true;
                shut_down(connection.as_mut());
            }
            if self.poll_disconnect(cx).is_ready() {
                tracing::debug!("a client disconnected before it had its response");
                return Poll::Ready(Pause::Ended);
            }
            if stage == DrainStage::Closing {
                self.watchdog.shorten_timeouts(&self.state.activity);
            }
            // Before the time-outs: its deadline is the first, so the timer they share is armed once.
            let is_silent = self.poll_silence(started, cx).is_ready();
            match self.watchdog.poll(&self.state.activity, cx) {
                Poll::Ready(expired) => Poll::Ready(Pause::Expired(expired)),
                Poll::Pending if is_silent => Poll::Ready(Pause::Silent),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }

    /// Completes when the client has disconnected while its exchange goes on, whatever bytes of it were not read.
    fn poll_disconnect(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.state.is_reading_paused() {
            self.disconnect = None;
            return Poll::Pending;
        }
        if self.disconnect.is_none() {
            let has_disconnected = ready!(poll_ahead(self.stream, cx));
            if has_disconnected {
                return Poll::Ready(());
            }
            self.disconnect = watch_disconnect(self.stream)
                .inspect_err(|error| tracing::debug!(%error, "a client that has sent requests ahead is not watched"))
                .ok();
        }
        self.disconnect.as_mut().map_or(Poll::Pending, |watch| watch.as_mut().poll(cx))
    }

    /// Completes when the connection is to be parked. It has been served since `started`.
    fn poll_silence(&mut self, started: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let silent_since = self.state.silent_since();
        self.registration.set_warm(silent_since.is_some());
        match silent_since {
            None => Poll::Pending,
            Some(_) if self.registration.warm_connections() > MAX_WARM => Poll::Ready(()),
            // Bytes that are no part of a head, as in TLS, wake a connection, but at most once in this time.
            Some(since) => self.watchdog.poll_deadline(since.max(started) + SILENCE, cx),
        }
    }
}

fn builder(settings: &Settings) -> http1::Builder {
    let mut builder = http1::Builder::new();
    // The driver looks for a disconnect. The bound is for bodies: the gate bounds heads, and passes whole ones.
    builder.half_close(true).max_buf_size(MAX_BUFFER.max(settings.max_head + READ_AHEAD));
    // Set even to its default, the limit would make the library allocate.
    if settings.max_fields != FIELDS_ON_STACK {
        builder.max_headers(settings.max_fields);
    }
    builder
}
