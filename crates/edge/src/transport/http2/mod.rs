//! HTTP/2 connections (RFC 9113).
//!
//! ```text
//! bytes ──▶ frame_inspector ──▶ write_gatherer ──▶ hyper ──▶ stream_task ──▶ exchange ──▶ service
//!           (http2_frames)      (responses)                                  (tracked_service)
//! ```
//!
//! All of them share one [`state::Http2State`]. The driver in this file polls the connection and its time-outs, sends
//! GOAWAY when the listener drains or the service asks for it, and ends the connection.

mod exchange;
mod frame_inspector;
mod state;
mod stream_task;
mod write_gatherer;

use std::error::Error as _;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use http::Version;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use self::exchange::Http2Exchange;
use self::frame_inspector::FrameInspector;
use self::state::Http2State;
use self::stream_task::StreamExecutor;
use self::write_gatherer::{GatheredConnection, WriteGatherer};
use super::activity::Phase;
use super::connection_handle::ConnectionHandle;
use super::drain::{DrainStage, Registration};
use super::serving::{ConnectionService, ServeOptions, log_end};
use super::settings::Settings;
use super::stream::{SharedStream, reset_on_close};
use super::tracked_service::TrackedService;
use super::watchdog::{Expired, Watchdog};
use http2_frames::FrameError;
use platform::byte_stream::{self, InspectedStream};

/// Bytes of a stream's response that are held for a client that takes them slowly.
const SEND_BUFFER: usize = 64 * 1024;
/// Streams that the client has reset before they were served, held at a time. A flood of them (CVE-2023-44487) ends the
/// connection.
const MAX_PENDING_RESETS: usize = 64;
/// The same of a proxy: its clients go away in bursts.
const MAX_PENDING_RESETS_OF_PROXY: usize = 16 * 1024;
/// Streams of a connection that we reset for the client's errors, in all its life. A flood of them (CVE-2025-8671) ends
/// the connection. The number is the library's default: an honest client may cause some, and its connection may last
/// for days.
const MAX_LOCAL_RESETS: usize = 1024;
/// A client that has sent nothing for this long gets a PING, and has as long to answer it. So a stream over a dead
/// connection ends, also one that may last for ever.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// Time for a connection to end after GOAWAY.
const LINGER: Duration = Duration::from_secs(2);

/// Runs a connection to its end. `is_proxy`: it carries requests of many clients, and no flood of one ends it.
pub(super) async fn run(
    stream: SharedStream,
    options: &ServeOptions,
    is_proxy: bool,
    registration: &Registration,
    service: impl ConnectionService,
    handle: &ConnectionHandle,
) {
    let state = Rc::new(Http2State::default());
    let max_streams = if is_proxy { u32::MAX } else { options.settings.max_streams };
    let inspector = FrameInspector::new(Rc::clone(&state), max_streams);
    let io = byte_stream::SharedStream::new(WriteGatherer::new(InspectedStream::new(stream.clone(), inspector)));
    let exchange_state = Rc::clone(&state);
    let upgrade_slot = handle.upgrade_slot.clone();
    let begin = move |_: Version| {
        let exchange = Http2Exchange::begin(&exchange_state);
        upgrade_slot.set_reset(exchange.reset_handle());
        exchange
    };
    let service = TrackedService { service, begin };
    let connection = builder(options, is_proxy, &state).serve_connection(TokioIo::new(io.clone()), service);
    let mut connection = pin!(GatheredConnection { connection, stream: io.clone() });
    let shut_down = |c: Pin<&mut GatheredConnection<_, _>>| http2::Connection::graceful_shutdown(c.connection());
    match drive(connection.as_mut(), shut_down, &state, registration, handle, options).await {
        // Behind what was gathered.
        None => send_go_away(io, &state, options).await,
        Some(expired) => {
            expired.count(&options.timeouts);
            // GOAWAY before the close, so that a request already on its way is still served (section 6.8).
            shut_down(connection.as_mut());
            finish(connection, &stream, &state).await;
        }
    }
}

/// Polls a connection until it ends (`None`) or one of its time-outs has passed.
async fn drive<C>(
    mut connection: Pin<&mut C>,
    shut_down: impl Fn(Pin<&mut C>),
    state: &Http2State,
    registration: &Registration,
    handle: &ConnectionHandle,
    options: &ServeOptions,
) -> Option<Expired>
where
    C: Future<Output = hyper::Result<()>>,
{
    let mut watchdog = Watchdog::new(&options.settings);
    let mut is_shut_down = false;
    poll_fn(|cx| {
        let stage = registration.stage(cx);
        if stage == DrainStage::Closing {
            watchdog.shorten_timeouts(&state.activity);
        }
        let is_due = match stage {
            DrainStage::Serving => false,
            // A connection without a request yet is served once: sent away at once, its client would come back again
            // and again.
            DrainStage::LameDuck => state.highest_stream.get() > 0,
            DrainStage::Closing => true,
        };
        if (is_due || handle.is_closing()) && !is_shut_down {
            is_shut_down = true;
            shut_down(connection.as_mut());
        }
        if let Poll::Ready(result) = connection.as_mut().poll(cx) {
            if result.as_ref().is_err_and(is_flood) {
                options.connections.floods.inc();
            }
            log_end(result);
            return Poll::Ready(None);
        }
        watchdog.poll(&state.activity, cx).map(Some)
    })
    .await
}

/// Waits for a connection to end after its GOAWAY. Resets it when it takes longer than [`LINGER`] with no exchange
/// going on, or with a client that takes nothing.
async fn finish<C: Future>(mut connection: Pin<&mut C>, stream: &SharedStream, state: &Http2State) {
    while tokio::time::timeout(LINGER, connection.as_mut()).await.is_err() {
        let is_serving = state.activity.phase() == Phase::Exchange;
        if !is_serving || state.activity.stalled_since().is_some() {
            return reset_on_close(stream);
        }
    }
}

/// True if the library has ended the connection for a flood by its own counts, and has sent the GOAWAY itself.
fn is_flood(error: &hyper::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<h2::Error>());
    cause.is_some_and(|cause| !cause.is_remote() && cause.reason() == Some(h2::Reason::ENHANCE_YOUR_CALM))
}

fn builder(options: &ServeOptions, is_proxy: bool, state: &Rc<Http2State>) -> http2::Builder<StreamExecutor> {
    let settings: &Settings = &options.settings;
    let mut builder = http2::Builder::new(StreamExecutor {
        state: Rc::clone(state),
        write_idle_timeout: settings.write_idle_timeout,
        timeouts: options.timeouts.clone(),
    });
    builder
        .max_concurrent_streams(settings.max_streams)
        .initial_stream_window_size(settings.stream_window)
        .initial_connection_window_size(settings.connection_window)
        .max_send_buf_size(SEND_BUFFER)
        .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
        .max_local_error_reset_streams(MAX_LOCAL_RESETS)
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_INTERVAL)
        // Heads up to twice the limit are read, so that the service can refuse them with a response of its own. The
        // library answers larger ones with an empty 431.
        .max_header_list_size(u32::try_from(settings.max_head.saturating_mul(2)).unwrap_or(u32::MAX));
    if is_proxy {
        builder.max_pending_accept_reset_streams(MAX_PENDING_RESETS_OF_PROXY).max_local_error_reset_streams(None);
    }
    builder
}

/// Sends GOAWAY to a client whose frames have ended the connection, and closes it: with ENHANCE_YOUR_CALM for a flood,
/// else with PROTOCOL_ERROR (section 7).
async fn send_go_away(mut stream: impl AsyncWrite + Unpin, state: &Http2State, options: &ServeOptions) {
    const GOAWAY: [u8; 9] = [0, 0, 8, 7, 0, 0, 0, 0, 0];
    let code: u32 = match state.frame_error.get() {
        None => return,
        Some(FrameError::Malformed) => 0x1,
        Some(FrameError::Flood) => {
            options.connections.floods.inc();
            0xb
        }
    };
    let frame = [&GOAWAY[..], &state.highest_stream.get().to_be_bytes(), &code.to_be_bytes()].concat();
    let sending = async {
        stream.write_all(&frame).await?;
        stream.shutdown().await
    };
    if let Ok(Err(error)) = tokio::time::timeout(LINGER, sending).await {
        tracing::debug!(%error, "a client disconnected before it had taken the GOAWAY for its frames");
    }
}
