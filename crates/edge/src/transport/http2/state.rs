//! The state of an HTTP/2 connection, shared by its bytes, its streams and its driver.

use std::cell::Cell;
use std::rc::Rc;

use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::transport::activity::Activity;
use crate::transport::reset::Reset;
use http2_frames::FrameError;

/// State of one HTTP/2 connection.
#[derive(Default)]
pub(super) struct Http2State {
    /// Phase of the connection: noted by the frames and the exchanges, read by the watchdog.
    pub(super) activity: Activity,
    /// The highest stream of which a head has begun; 0 before the first. For the GOAWAY.
    pub(super) highest_stream: Cell<u32>,
    /// Pieces of responses that were sent and not yet credited to the client's allowance of frames.
    uncredited_pieces: Cell<u32>,
    /// Reason for which the client's frames end the connection.
    pub(super) frame_error: Cell<Option<FrameError>>,
    /// The state of the stream whose exchange has just begun, for the task of the stream.
    ///
    /// The HTTP library calls the service and then spawns the stream's task, with nothing between. It passes no
    /// argument from the one to the other, so the state is left here for a moment.
    pub(super) next_stream: Cell<Option<Rc<StreamState>>>,
}

/// State of one stream, shared by its exchange and its task: whether its client takes the response, and the task, whose
/// end resets the stream.
#[derive(Default)]
pub(super) struct StreamState {
    /// Since when a piece of the response waits for the client to make room for it.
    pub(super) stalled_since: Cell<Option<Instant>>,
    /// The task, until a reset aborts it. The handle of a task that has ended is dropped with the last holder of this
    /// state.
    pub(super) task: Cell<Option<JoinHandle<()>>>,
}

impl Http2State {
    /// Notes what the frames that have come say: whether a head is incomplete, and the highest stream.
    pub(super) fn record_frames(&self, in_head: bool, highest_stream: u32) {
        debug_assert!(highest_stream >= self.highest_stream.get(), "streams are begun in their order");
        self.highest_stream.set(highest_stream);
        if in_head {
            self.activity.begin_head();
        } else {
            self.activity.end_head();
        }
    }

    /// Counts a piece of a response that was sent.
    pub(super) fn record_piece(&self) {
        self.uncredited_pieces.set(self.uncredited_pieces.get().saturating_add(1));
    }

    /// The pieces that were sent since the last call.
    pub(super) fn take_uncredited_pieces(&self) -> u32 {
        self.uncredited_pieces.take()
    }
}

impl StreamState {
    /// Notes that the response's body was asked for its next piece, which means that the client has taken the one
    /// before. If a piece is ready, it waits for the client from now on.
    pub(super) fn record_poll(&self, is_ready: bool) {
        self.stalled_since.set(is_ready.then(Instant::now));
    }
}

impl Reset for StreamState {
    fn reset(&self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}
