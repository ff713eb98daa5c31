//! Acceptor: takes the connections of one worker's listener, those that the kernel gives it and those that
//! other workers hand over.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::Receiver;

use super::backlog;
use super::balancer::{Balancer, HandedConnection, PlacedConnection, WorkerListener};
use crate::transport::connection_limiter::ConnectionPermit;
use platform::accept_errors::AcceptErrorLog;

/// Pause after a failed accept: short enough not to be noticed, long enough not to spin.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);

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
        loop {
            tokio::select! {
                // The end comes first: under a flood of connections it would otherwise be put off.
                biased;
                result = &mut end => return result,
                Some(handed) = self.inbox.recv() => registered(handed.arrive()).into_iter().for_each(&start),
                accepted = self.listener.accept() => match accepted {
                    Ok(accepted) => self.place(accepted, &permit).into_iter().for_each(&start),
                    Err(error) => back_off(&error, &self.errors).await,
                },
            }
        }
    }

    /// Returns an accepted connection if this worker is to serve it.
    fn place(
        &self,
        (stream, address): (TcpStream, SocketAddr),
        permit: impl Fn(SocketAddr) -> Option<ConnectionPermit>,
    ) -> Option<PlacedConnection> {
        registered(self.balancer.place(stream, address, permit(address)?)).flatten()
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
