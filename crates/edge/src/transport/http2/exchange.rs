//! Exchanges of an HTTP/2 connection: write stalls, and credit for the frames that a response earns its client.

use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response};

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
        state.next_stream.set(Some(Rc::clone(&stream)));
        Self { state: Rc::clone(state), stream }
    }

    /// The handle by which the service can reset the stream.
    pub(super) fn reset_handle(&self) -> ResetHandle {
        ResetHandle::new(Rc::clone(&self.stream))
    }
}

impl ExchangeGuard for Http2Exchange {
    /// GOAWAY announces the end of a connection, not the response's head.
    fn inspect_response<B>(&self, response: &mut Response<B>) {
        copy_values(response.headers_mut());
    }

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

/// Copies the values of a head that the library may keep into one buffer of its own.
///
/// The HTTP library's table of sent fields (RFC 7541, section 2.3.2) keeps values as long as the connection
/// lasts. Those of an upstream are slices of the buffer that its response was read into: 8 KiB, which each of
/// them would keep, too.
fn copy_values(headers: &mut HeaderMap) {
    // A sensitive value is in no table.
    let is_kept = |value: &HeaderValue| !value.is_sensitive();
    let mut buffer = Vec::with_capacity(headers.values().filter(|value| is_kept(value)).map(HeaderValue::len).sum());
    headers.values().filter(|value| is_kept(value)).for_each(|value| buffer.extend_from_slice(value.as_bytes()));
    let mut rest = Bytes::from(buffer);
    for value in headers.values_mut().filter(|value| is_kept(value)) {
        let copy = rest.split_to(value.len());
        *value = HeaderValue::from_maybe_shared(copy).expect("the bytes of a value are a value");
    }
}

#[cfg(test)]
mod tests {
    use http::header::{CONTENT_TYPE, ETAG, SET_COOKIE};

    use super::*;

    #[test]
    fn kept_values_are_equal_and_keep_no_buffer_of_the_upstream() {
        let read = Bytes::from(b"text/plaina=1b=2".to_vec());
        let mut secret = HeaderValue::from_maybe_shared(read.slice(13..)).unwrap();
        secret.set_sensitive(true);
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_maybe_shared(read.slice(..10)).unwrap());
        headers.append(SET_COOKIE, HeaderValue::from_maybe_shared(read.slice(10..13)).unwrap());
        headers.append(SET_COOKIE, HeaderValue::from_static(""));
        headers.insert(ETAG, secret);
        let before = headers.clone();
        copy_values(&mut headers);
        assert_eq!(headers, before);
        assert!(headers[ETAG].is_sensitive());
        drop(before);
        // The library keeps no sensitive value.
        headers.remove(ETAG);
        assert!(read.is_unique(), "no value refers to the buffer");
    }
}
