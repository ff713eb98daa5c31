//! Connections that stop speaking HTTP (RFC 9110, section 7.8): how a service takes over the bytes behind its 101.

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::stream::{SharedStream, take_ahead};

/// What runs on a connection from its 101 on; the connection lasts as long as it does.
type Tunnel = Box<dyn FnOnce(Upgraded) -> Pin<Box<dyn Future<Output = ()>>>>;

/// By this a service takes over its connection; one per connection, and clones are the same.
///
/// - What was taken over runs in the connection's own task, once the 101 has gone out. Dropped with the connection when
///   it does not come to that.
#[derive(Clone, Default)]
pub struct UpgradeSlot(Rc<RefCell<Option<Tunnel>>>);

/// A connection behind a 101: its bytes, from the first after the request.
#[derive(Debug)]
pub struct Upgraded {
    /// What was read along with the request.
    ahead: BytesMut,
    stream: SharedStream,
}

impl UpgradeSlot {
    /// Has `tunnel` run when the response that the service is about to give, a 101, has gone out.
    pub fn on_upgrade<F: Future<Output = ()> + 'static>(&self, tunnel: impl FnOnce(Upgraded) -> F + 'static) {
        *self.0.borrow_mut() = Some(Box::new(move |upgraded| Box::pin(tunnel(upgraded))));
    }

    pub(super) fn take(&self) -> Option<Tunnel> {
        self.0.borrow_mut().take()
    }
}

impl fmt::Debug for UpgradeSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpgradeSlot").field("taken", &self.0.borrow().is_some()).finish()
    }
}

impl Upgraded {
    pub(super) fn new(ahead: BytesMut, stream: SharedStream) -> Self {
        Self { ahead, stream }
    }
}

impl AsyncRead for Upgraded {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if take_ahead(&mut self.ahead, buf) {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Upgraded {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
