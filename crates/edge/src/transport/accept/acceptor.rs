//! Acceptor: takes the connections of one worker's listener, those that the kernel gives it and those that
//! other workers hand over.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::pin::pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::Receiver;

use super::backlog;
use super::balancer::{Balancer, HandedConnection, PlacedConnection, WorkerListener};
use crate::transport::connection_limiter::ConnectionPermit;
use platform::accept_errors::AcceptErrorLog;

/// Pause after a failed accept: short enough not to be noticed, long enough not to spin.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);

/// Connections that are accepted before the end is looked at again: a flood of them puts it off by less than a
/// millisecond.
const BATCH: usize = 16;

/// Takes the connections of a listener.
pub(super) struct Acceptor {
    listener: TcpListener,
    balancer: Balancer,
    inbox: Receiver<HandedConnection>,
    errors: AcceptErrorLog,
}

impl Acceptor {
    /// Registers the listener with the runtime.
    pub(super) fn new(listener: WorkerListener) -> io::Result<Self> {
        let WorkerListener { socket, balancer, inbox, errors, .. } = listener;
        // Another process has bound it, perhaps.
        send_at_once(&socket)?;
        Ok(Self { listener: TcpListener::from_std(socket)?, balancer, inbox, errors })
    }

    /// Accepts connections until `end` completes, and returns its result. `permit` acquires the permit of a connection;
    /// `start` gets the connections that this worker is to serve.
    pub(super) async fn accept_until<T>(
        &mut self,
        end: impl Future<Output = T>,
        permit: impl Fn(SocketAddr) -> Option<ConnectionPermit>,
        start: impl Fn(PlacedConnection),
    ) -> T {
        let mut end = pin!(end);
        let Self { listener, balancer, inbox, errors } = self;
        // An accepted connection starts if this worker is to serve it.
        let place = |(stream, address)| {
            let placed = permit(address).and_then(|permit| registered(balancer.place(stream, address, permit)));
            placed.flatten().into_iter().for_each(&start);
        };
        loop {
            tokio::select! {
                // The end comes first: under a flood of connections it would otherwise be put off.
                biased;
                result = &mut end => return result,
                Some(handed) = inbox.recv() => registered(handed.arrive()).into_iter().for_each(&start),
                accepted = poll_fn(|cx| poll_batch(listener, cx, place)) => if let Err(error) = accepted {
                    back_off(&error, errors).await;
                },
            }
        }
    }

    /// Has the kernel ignore attempts to connect from now on.
    pub(super) fn block_new_connections(&self) {
        if let Err(error) = backlog::block_new_connections(&self.listener) {
            tracing::debug!(%error, "cannot block new connections: clients that connect while it closes may be reset");
        }
    }

    /// Accepts the backlog and what was handed over, and closes the listener.
    pub(super) async fn close(
        self,
        permit: impl Fn(SocketAddr) -> Option<ConnectionPermit>,
        start: impl Fn(PlacedConnection),
    ) {
        let Self { listener, balancer, inbox, .. } = self;
        backlog::accept_backlog(listener, |(stream, address)| {
            if let Some(permit) = permit(address) {
                start(balancer.keep(stream, address, permit));
            }
        });
        take_handed(inbox, start).await;
    }

    /// Leaves the socket, and its backlog, to another process, and takes what was handed over.
    pub(super) async fn leave(self, start: impl Fn(PlacedConnection)) {
        let Self { listener, inbox, .. } = self;
        drop(listener);
        take_handed(inbox, start).await;
    }
}

/// Has the connections of a listener send at once (`TCP_NODELAY`), which accepted sockets inherit on Linux. Responses
/// are written whole; waiting to fill a packet would only delay their ends.
pub(super) fn send_at_once(listener: &impl AsFd) -> io::Result<()> {
    SockRef::from(listener).set_tcp_nodelay(true)
}

/// Accepts the connections that have come. Completes when there may be more of them, or with an error.
fn poll_batch(
    listener: &TcpListener,
    cx: &mut Context<'_>,
    place: impl Fn((TcpStream, SocketAddr)),
) -> Poll<io::Result<()>> {
    for _ in 0..BATCH {
        place(ready!(listener.poll_accept(cx))?);
    }
    Poll::Ready(Ok(()))
}

/// Takes the connections that were handed over. Those that other workers hand over from now on come back to them.
async fn take_handed(mut inbox: Receiver<HandedConnection>, start: impl Fn(PlacedConnection)) {
    inbox.close();
    while let Some(handed) = inbox.recv().await {
        registered(handed.arrive()).into_iter().for_each(&start);
    }
}

/// Logs a connection that could not be registered with the runtime. It is closed.
fn registered<T>(result: io::Result<T>) -> Option<T> {
    result.inspect_err(|error| tracing::warn!(%error, "cannot register a connection; it is closed")).ok()
}

/// Backs off after accept errors. ECONNABORTED and ECONNRESET concern one client, which went away before it was
/// accepted; others (out of file descriptors, EMFILE) may persist.
async fn back_off(error: &io::Error, errors: &AcceptErrorLog) {
    if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
        return;
    }
    errors.log(error);
    tokio::time::sleep(ACCEPT_BACKOFF).await;
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::transport::connection_limiter::ConnectionLimiter;

    #[tokio::test(flavor = "current_thread")]
    async fn all_connections_of_a_burst_are_started_and_send_at_once() {
        const BURST: usize = 3 * BATCH + 1;
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let address = socket.local_addr().unwrap();
        let mut acceptor = Acceptor::new(WorkerListener::alone(socket)).unwrap();
        let _clients: Vec<_> = (0..BURST).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
        let limiter = ConnectionLimiter::new(BURST, BURST, Vec::new());
        let started = Cell::new(0);
        let all = poll_fn(|cx| {
            cx.waker().wake_by_ref();
            if started.get() == BURST { Poll::Ready(()) } else { Poll::Pending }
        });
        let start = |placed: PlacedConnection| {
            assert!(placed.stream.nodelay().unwrap());
            started.set(started.get() + 1);
        };
        acceptor.accept_until(all, |address| limiter.acquire(address.ip()).ok(), start).await;
    }
}
