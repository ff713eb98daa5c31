//! Exchanges of an HTTP/2 connection: write stalls, and credit for the frames that a response earns its client.

use std::rc::Rc;
use std::task::{Context, Poll};

use http::Response;

use super::state::{Http2State, StreamState};
use crate::transport::reset::ResetHandle;
use crate::transport::tracked_service::ExchangeGuard;

/// An exchange on an HTTP/2 connection.
pub(super) struct Http2Exchange {
    state: Rc<Http2State>,
    stream: Rc<StreamState>,
}

impl Http2Exchange {
    pub(super) fn begin(state: &Rc<Http2State>) -> Self {
        state.activity.begin_exchange();
        let stream = Rc::<StreamState>::default();
        state.leave_stream(Rc::clone(&stream));
        Self { state: Rc::clone(state), stream }
    }

    /// The handle by which the service can reset the stream.
    pub(super) fn reset_handle(&self) -> ResetHandle {
        ResetHandle::new(Rc::clone(&self.stream))
    }
}

impl ExchangeGuard for Http2Exchange {
    /// GOAWAY announces the end of a connection, not the response's head.
    fn inspect_response<B>(&self, _response: &mut Response<B>) {}

    /// The HTTP library polls the body only when the stream's flow-control window has room.
    fn poll_room(&self, _cx: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    fn inspect_frame<T, E>(&self, frame: &Poll<Option<Result<T, E>>>) {
        self.stream.record_poll(frame.is_ready());
        if frame.is_ready() {
            self.state.record_piece();
        }
    }
}

impl Drop for Http2Exchange {
    fn drop(&mut self) {
        self.state.activity.end_exchange();
    }
}
