//! An upstream behind a gate: it holds its responses until the test opens the gate.

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex};

use super::Upstream;

/// Upstream that answers each request with 200 once its gate is open. Dropped, it opens the gate: no
/// thread waits for ever.
pub struct GatedUpstream {
    upstream: Upstream,
    gate: Arc<(Mutex<bool>, Condvar)>,
}

impl GatedUpstream {
    pub fn start() -> Self {
        Self::sending(b"", b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
    }

    /// Sends the first part of the response at once, and the rest when the gate is open.
    pub fn sending(first: &'static [u8], rest: &'static [u8]) -> Self {
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        let waiting = Arc::clone(&gate);
        let upstream = Upstream::answering(move |_, stream| {
            stream.write_all(first).ok();
            let (is_open, opened) = &*waiting;
            drop(opened.wait_while(is_open.lock().unwrap(), |is_open| !*is_open).unwrap());
            stream.write_all(rest).ok();
        });
        Self { upstream, gate }
    }

    pub fn address(&self) -> SocketAddr {
        self.upstream.address
    }

    /// Number of requests received.
    pub fn count(&self) -> usize {
        self.upstream.count()
    }

    pub fn open(&self) {
        *self.gate.0.lock().unwrap() = true;
        self.gate.1.notify_all();
    }

    /// Holds later responses again.
    pub fn close(&self) {
        *self.gate.0.lock().unwrap() = false;
    }
}

impl Drop for GatedUpstream {
    fn drop(&mut self) {
        self.open();
    }
}
