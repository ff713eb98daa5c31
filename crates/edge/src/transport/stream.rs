//! The bytes of a downstream connection, plain or encrypted.

use std::io;
use std::os::fd::AsFd as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use tokio::io::{AsyncBufRead as _, Interest};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use platform::byte_stream::{self, PrefixedStream};

/// A client's socket. Its prefix is what the handshake has read of it and not used.
pub(super) type ClientSocket = PrefixedStream<TcpStream>;

/// A connection's bytes: plain on the left, TLS on the right.
pub(super) type ClientStream = Either<ClientSocket, Box<TlsStream<ClientSocket>>>;

/// A connection's bytes, which outlive the HTTP library's use of them: the connection's last bytes are written when the
/// library has ended.
pub(super) type SharedStream = byte_stream::SharedStream<ClientStream>;

/// A connection behind a 101: its bytes, from the first after the request.
pub type Upgraded = PrefixedStream<SharedStream>;

/// Completes when reading makes progress: bytes have come, or the connection has ended or failed. Reads nothing.
pub(super) fn poll_readable(stream: &SharedStream, cx: &mut Context<'_>) -> Poll<()> {
    let stream = stream.borrow();
    let (socket, has_plaintext) = match &*stream {
        Either::Left(socket) => (socket, false),
        // Bytes that were decrypted and not read. After them, progress depends on the socket alone: what is left of the
        // socket's bytes is less than a record.
        Either::Right(tls) => (tls.get_ref().0, !tls.get_ref().1.wants_read()),
    };
    if has_plaintext || !socket.prefix.is_empty() {
        return Poll::Ready(());
    }
    // A failed connection is found when it is read.
    socket.stream.poll_read_ready(cx).map(drop)
}

/// Completes when the client has sent something ahead, or has disconnected. Returns true if it has disconnected: it has
/// closed the connection, its half of it, or the half of its encryption. Of a plain connection nothing is read; of an
/// encrypted one what comes is decrypted, and stays.
pub(super) fn poll_ahead(stream: &SharedStream, cx: &mut Context<'_>) -> Poll<bool> {
    ready!(poll_readable(stream, cx));
    let mut stream = stream.borrow_mut();
    // The event loop knows of the end, also behind unread bytes: no system call is made.
    let has_closed = socket(&stream).stream.try_io(Interest::PRIORITY, || Ok(())).is_ok();
    match &mut *stream {
        Either::Right(tls) if !has_closed => {
            let ahead = ready!(Pin::new(tls).poll_fill_buf(cx));
            Poll::Ready(!ahead.is_ok_and(|bytes| !bytes.is_empty()))
        }
        _ => Poll::Ready(has_closed),
    }
}

/// Watch for the client's disconnect while bytes that came before it wait unread: completes when the client has closed
/// the connection, or its half, or the connection has failed.
///
/// - It has a file descriptor of its own for the socket, which lives as long as the watch: a future that borrows the
///   connection could not be kept.
pub(super) type DisconnectWatch = Pin<Box<dyn Future<Output = ()>>>;

/// Watches for the client's disconnect.
///
/// # Errors
/// No file descriptor is left, or the event loop takes no more.
pub(super) fn watch_disconnect(stream: &SharedStream) -> io::Result<DisconnectWatch> {
    let descriptor = socket(&stream.borrow()).stream.as_fd().try_clone_to_owned()?;
    let socket = TcpStream::from_std(descriptor.into())?;
    Ok(Box::pin(async move {
        // Unread bytes do not end this wait: it is for urgent data, which the event loop never reports, and for the
        // end.
        if let Err(error) = socket.ready(Interest::PRIORITY).await {
            tracing::debug!(%error, "a client that has sent requests ahead is not watched any more");
        }
    }))
}

/// The socket below the encryption.
fn socket(stream: &ClientStream) -> &ClientSocket {
    match stream {
        Either::Left(socket) => socket,
        Either::Right(tls) => tls.get_ref().0,
    }
}

/// Has the kernel reset the connection when it is closed (`SO_LINGER` 0), and drop what it holds for a client that does
/// not take it.
pub(super) fn reset_on_close(stream: &SharedStream) {
    if let Err(error) = socket(&stream.borrow()).stream.set_zero_linger() {
        tracing::debug!(%error, "cannot set SO_LINGER: the kernel keeps the connection's unsent bytes for a while");
    }
}

/// The stream behind a 101. `prefix` came along with the request.
pub(super) fn upgraded(prefix: BytesMut, stream: SharedStream) -> Upgraded {
    PrefixedStream { prefix, stream, guard: () }
}
