//! Exchanges of an HTTP/1 connection: back-pressure, and whether a response is the connection's last.

use std::rc::Rc;
use std::task::{Context, Poll};

use http::header::CONNECTION;
use http::{HeaderValue, Response, Version};

use super::state::Http1State;
use crate::transport::tracked_service::ExchangeGuard;
use crate::transport::upgrade::UpgradeSlot;

/// An exchange on an HTTP/1 connection.
pub(super) struct Http1Exchange {
    state: Rc<Http1State>,
    /// True if the client may know the response's end by the connection's end alone: HTTP/1.0 has no chunks.
    ends_by_close: bool,
}

impl Http1Exchange {
    /// Begins the exchange of the head that was passed last, and hands the head's fields to the service.
    pub(super) fn begin(state: &Rc<Http1State>, slot: &UpgradeSlot, version: Version) -> Self {
        state.activity.begin_exchange();
        slot.set_fields(state.fields.get());
        Self { state: Rc::clone(state), ends_by_close: version < Version::HTTP_11 }
    }

    /// Sets `Connection: close` on the connection's last response, or notes that the service has set it.
    ///
    /// A response is the last when the listener drains, and when it comes before the whole request: the HTTP library
    /// reads no further once the service has dropped the request's body, and then it is unknown where the next request
    /// begins.
    fn mark_last_response<B>(&self, response: &mut Response<B>) {
        let headers = response.headers_mut();
        let is_last = self.state.is_draining.get() || self.state.has_unread_body.get();
        if is_last && may_say_close(headers.get(CONNECTION)) {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if headers.get(CONNECTION).is_some_and(|value| value == "close") {
            self.state.is_close_announced.set(true);
        }
    }
}

impl ExchangeGuard for Http1Exchange {
    fn inspect_response<B>(&self, response: &mut Response<B>) {
        self.mark_last_response(response);
    }

    fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.state.poll_room(cx)
    }

    fn inspect_frame<T, E>(&self, frame: &Poll<Option<Result<T, E>>>) {
        // To such a client an orderly close would say that the body is complete.
        if self.ends_by_close && matches!(frame, Poll::Ready(Some(Err(_)))) {
            self.state.is_truncated.set(true);
        }
    }
}

impl Drop for Http1Exchange {
    fn drop(&mut self) {
        self.state.end_exchange();
    }
}

/// True if the response's `Connection` field may be `close`. In a 101 it is `upgrade`.
fn may_say_close(connection: Option<&HeaderValue>) -> bool {
    connection.is_none_or(|value| value == "close")
}
