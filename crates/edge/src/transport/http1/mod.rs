//! HTTP/1 connections (RFC 9112).
//!
//! ```text
//! bytes ──▶ head_gate ──▶ hyper ──▶ exchange ──▶ service
//!           (head, chunked)         (tracked_service)
//! ```
//!
//! All of them share one [`state::Http1State`]. The [`driver`] polls them while there is something to serve; a silent
//! connection is parked, without the HTTP library. This file ends the connection as the state says:
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

mod driver;
mod exchange;
mod head_gate;
pub mod head;
mod chunked;
mod state;

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::Version;
use tokio::io::{AsyncWriteExt as _, BufReader};

use self::driver::{Driver, End, Parked};
use self::exchange::Http1Exchange;
use self::head::HeadLimits;
use self::head_gate::HeadGate;
use self::state::Http1State;
use super::drain::Registration;
use super::reset::ResetHandle;
use super::serving::{ConnectionService, HeadError, ServeOptions};
use super::stream::{SharedStream, reset_on_close, upgraded};
use super::tracked_service::TrackedService;
use super::upgrade::UpgradeSlot;
use super::watchdog::{Expired, Watchdog};
use domain::identity::Peer;
use platform::byte_stream::InspectedStream;

/// Time for a client to take the last bytes of its connection, and to stop sending.
const LINGER: Duration = Duration::from_secs(2);

/// Runs a connection to its end.
pub(super) async fn run(
    stream: SharedStream,
    options: &ServeOptions,
    registration: &Registration,
    service: impl ConnectionService,
    upgrade_slot: &UpgradeSlot,
    peer: &Rc<Peer>,
) {
    let settings = &options.settings;
    let state = Rc::new(Http1State::default());
    upgrade_slot.set_reset(ResetHandle::new(Rc::clone(&state)));
    let gate = HeadGate::new(Rc::clone(&state), HeadLimits::of(settings), settings.credentials.clone());
    let exchange_state = Rc::clone(&state);
    let exchange_slot = upgrade_slot.clone();
    let begin = move |version: Version| Http1Exchange::begin(&exchange_state, &exchange_slot, version);
    let mut parked =
        Some(Parked { io: InspectedStream::new(stream.clone(), gate), service: TrackedService { service, begin } });
    let watchdog = Watchdog::new(settings);
    let disconnect = None;
    let mut driver =
        Driver { stream: &stream, state: &state, registration, options, upgrade_slot, watchdog, disconnect };
    let expired = match until_reset(&state, pin!(driver.run(&mut parked))).await {
        End::Upgraded(hook, prefix) if !state.is_reset.get() => {
            hook(upgraded(prefix, stream.clone())).await;
            return if state.is_reset.get() {
                reset_on_close(&stream)
            };
        }
        End::Expired(expired) => Some(expired),
        End::Upgraded(..) | End::Closed => None,
    };
    if let Some(expired) = expired {
        expired.count(&options.timeouts);
    }
    // On the heap, because few connections have last bytes. Before they are written, the library's half is gone.
    Box::pin(end(stream, options, &state, expired, peer)).await;
}

/// Polls a driven connection until it ends, or until the service asks for a reset.
async fn until_reset(state: &Http1State, mut driven: Pin<&mut impl Future<Output = End>>) -> End {
    poll_fn(|cx| state.set_task(cx)).await;
    // Nothing more is read or written after a reset, whatever is ready.
    poll_fn(|cx| if state.is_reset.get() { Poll::Ready(End::Closed) } else { driven.as_mut().poll(cx) }).await
}

/// Ends a connection: with its last bytes, if any are due, and in the way that they require (see the module's table).
async fn end(
    stream: SharedStream,
    options: &ServeOptions,
    state: &Http1State,
    expired: Option<Expired>,
    peer: &Rc<Peer>,
) {
    // Closed in order, the connection would say that the response was complete. A reset says that it was not.
    if state.is_truncated.get() || state.is_reset.get() {
        return reset_on_close(&stream);
    }
    let last_bytes = match (expired, state.head_error.get()) {
        // The client takes nothing: what the kernel holds for it is dropped.
        (Some(Expired::WriteStall), _) => return reset_on_close(&stream),
        (Some(Expired::Head), _) => (options.head_error_response)(HeadError::TooSlow, peer),
        (None, Some(error)) => (options.head_error_response)(error, peer),
        _ => Bytes::new(),
    };
    if state.is_close_announced.get() || !last_bytes.is_empty() {
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
