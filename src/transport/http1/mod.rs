//! HTTP/1 connections (RFC 9112).
//!
//! ```text
//! bytes ──▶ head_gate ──▶ hyper ──▶ exchange ──▶ service
//!           (head, chunked)         (tracked_service)
//! ```
//!
//! All of them share one [`state::Http1State`]. The driver in this file polls the connection and its time-outs, and
//! ends the connection as the state says:
//!
//! | ended by                             | last bytes                            | close                      |
//! |--------------------------------------|---------------------------------------|----------------------------|
//! | a response cut off, ended by close   | none                                  | reset                      |
//! | a stalled write                      | none                                  | reset                      |
//! | the service, which resets an exchange | none                                 | reset                      |
//! | a refused or slow head               | response to the head error            | lingers, then closes       |
//! | a response with `Connection: close`  | none                                  | lingers, then closes       |
//! | client, idle time-out, drain         | none                                  | closes                     |
//! | 101                                  | those of the upgrade hook             | when the hook ends, or reset |

mod chunked;
mod exchange;
pub mod head;
mod head_gate;
mod state;

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Request, Response, Version};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncWriteExt as _, BufReader};

use self::exchange::Http1Exchange;
use self::head::HeadLimits;
use self::head_gate::HeadGate;
use self::state::Http1State;
use super::activity::Phase;
use super::drain::{DrainStage, Registration};
use super::reset::ResetHandle;
use super::serving::{HeadError, ServeOptions, log_end};
use super::settings::Settings;
use super::stream::{SharedStream, reset_on_close, upgraded};
use super::tracked_service::TrackedService;
use super::upgrade::UpgradeSlot;
use super::watchdog::{Expired, Watchdog};
use crate::byte_stream::InspectedStream;

/// Bytes of the HTTP library's buffer beyond the largest head; also the least size of a buffer that it accepts.
const READ_AHEAD: usize = 8192;
/// Up to this many fields the library parses without allocating; it is also the library's default limit.
const FIELDS_ON_STACK: usize = 100;
/// Time for a client to take the last bytes of its connection, and to stop sending.
const LINGER: Duration = Duration::from_secs(2);

/// Runs a connection to its end.
pub(super) async fn run<S, B>(
    stream: SharedStream,
    options: &ServeOptions,
    registration: &Registration,
    service: S,
    upgrade_slot: &UpgradeSlot,
) where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + 'static,
    B: Body<Data = Bytes> + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let settings = &options.settings;
    let state = Rc::new(Http1State::new());
    upgrade_slot.set_reset(ResetHandle::new(Rc::clone(&state)));
    let io = InspectedStream::new(stream.clone(), HeadGate::new(Rc::clone(&state), head_limits(settings)));
    let exchange_state = Rc::clone(&state);
    let begin = move |version: Version| Http1Exchange::begin(&exchange_state, version);
    let mut connection = builder(settings).serve_connection(TokioIo::new(io), TrackedService { service, begin });
    let shut_down = http1::Connection::graceful_shutdown;
    let driven = drive(Pin::new(&mut connection), shut_down, &state, registration, settings);
    let expired = until_reset(&state, driven).await;
    if let Some(expired) = expired {
        expired.count(&options.timeouts);
    } else if !state.is_reset()
        && let Some(hook) = upgrade_slot.take()
    {
        let parts = connection.into_parts();
        // What came behind the request: some of it in the library's buffer, the rest held at the gate.
        let mut prefix = BytesMut::from(parts.read_buf);
        prefix.unsplit(parts.io.into_inner().into_inspector().into_held());
        hook(upgraded(prefix, stream.clone())).await;
        if state.is_reset() {
            reset_on_close(&stream);
        }
        return;
    }
    // The library's half is gone before the last bytes are written.
    drop(connection);
    end(stream, options, &state, expired).await;
}

/// Polls a driven connection until it ends, or until the service asks for a reset (`None`).
async fn until_reset(state: &Http1State, driven: impl Future<Output = Option<Expired>>) -> Option<Expired> {
    let mut driven = pin!(driven);
    poll_fn(|cx| state.set_task(cx)).await;
    // Nothing more is read or written after a reset, whatever is ready.
    poll_fn(|cx| if state.is_reset() { Poll::Ready(None) } else { driven.as_mut().poll(cx) }).await
}

/// Polls a connection until it ends (`None`) or one of its time-outs has passed.
async fn drive<C>(
    mut connection: Pin<&mut C>,
    shut_down: impl Fn(Pin<&mut C>),
    state: &Http1State,
    registration: &Registration,
    settings: &Settings,
) -> Option<Expired>
where
    C: Future<Output = hyper::Result<()>>,
{
    let mut watchdog = Watchdog::new(settings);
    let mut is_shut_down = false;
    poll_fn(|cx| {
        let stage = registration.stage(cx);
        if stage != DrainStage::Serving {
            state.drain();
        }
        loop {
            if let Poll::Ready(result) = connection.as_mut().poll(cx) {
                log_end(result);
                return Poll::Ready(None);
            }
            // The connection is polled first, to read what has come. The library does not see a head before it is
            // whole: told to shut down in the New or Head phase, it would close the connection as an idle one.
            let may_shut_down = matches!(state.activity.phase(), Phase::Idle(_) | Phase::Exchange);
            if stage != DrainStage::Closing || is_shut_down || !may_shut_down {
                break;
            }
            is_shut_down = true;
            shut_down(connection.as_mut());
        }
        if stage == DrainStage::Closing {
            watchdog.shorten_timeouts(&state.activity);
        }
        watchdog.poll(&state.activity, cx).map(Some)
    })
    .await
}

fn builder(settings: &Settings) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.half_close(false).max_buf_size(settings.max_head + READ_AHEAD);
    // Set even to its default, the limit would make the library allocate.
    if settings.max_fields != FIELDS_ON_STACK {
        builder.max_headers(settings.max_fields);
    }
    builder
}

fn head_limits(settings: &Settings) -> HeadLimits {
    HeadLimits { head: settings.max_head, fields: settings.max_fields, target: settings.max_target }
}

/// Ends a connection: with its last bytes, if any are due, and in the way that they require (see the module's table).
async fn end(stream: SharedStream, options: &ServeOptions, state: &Http1State, expired: Option<Expired>) {
    // Closed in order, the connection would say that the response was complete. A reset says that it was not.
    if state.is_truncated() || state.is_reset() {
        return reset_on_close(&stream);
    }
    let last_bytes = match (expired, state.head_error()) {
        // The client takes nothing: what the kernel holds for it is dropped.
        (Some(Expired::WriteStall), _) => return reset_on_close(&stream),
        (Some(Expired::Head), _) => (options.head_error_response)(HeadError::TooSlow),
        (None, Some(error)) => (options.head_error_response)(error),
        _ => Bytes::new(),
    };
    if state.is_close_announced() || !last_bytes.is_empty() {
        linger(stream, last_bytes).await;
    }
}

/// Writes the last bytes, closes the sending half, and reads on until the client closes, for [`LINGER`] at most. A
/// close on unread bytes resets the connection, and the client might lose the response (RFC 9112, section 9.6).
async fn linger(mut stream: SharedStream, last_bytes: Bytes) {
    let closing = async {
        stream.write_all(&last_bytes).await?;
        stream.shutdown().await?;
        tokio::io::copy_buf(&mut BufReader::new(stream), &mut tokio::io::sink()).await.map(drop)
    };
    if let Ok(Err(error)) = tokio::time::timeout(LINGER, closing).await {
        tracing::debug!(%error, "a client disconnected before it had taken its last response");
    }
}
