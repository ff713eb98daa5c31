//! Balance of connections between workers.
//!
//! The kernel spreads the connections of one address over its listeners by a hash: of two connections, both go to the
//! same worker every other time. One core would then idle while requests queue at another.
//!
//! - A connection stays with the worker that accepted it, or is handed to the one with the fewest connections; it never
//!   moves later: no request hops.
//! - It is handed over when the accepting worker has more connections than that one by over an eighth of its own; with
//!   fewer than eight, by one. Smaller differences stay, because a hop has a cost too.
//! - A worker that closes its listener takes what was handed to it before. What comes later stays
//!   where it was accepted.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{self, Receiver, Sender, error::TrySendError};

use super::release::ListenerRelease;
use crate::transport::connection_limiter::ConnectionPermit;
use platform::accept_errors::AcceptErrorLog;

/// Connections that wait in the inbox of one listener. A worker takes them between two polls: one with a full inbox
/// hangs, and gets no more.
const INBOX_CAPACITY: usize = 64;
/// Divisor of a worker's connections that gives the number by which it may have more than another before it hands one
/// over. With many connections an eighth is above the scatter of the kernel's hash, which grows with their square root.
const TOLERANCE_DIVISOR: usize = 8;

/// Open connections of each worker, over all its listeners. Clones share the counts.
#[derive(Clone, Debug)]
pub struct WorkerLoads(Arc<Mutex<Vec<usize>>>);

/// One worker's listener on an address that other workers listen on too.
#[derive(Debug)]
pub struct WorkerListener {
    pub(super) socket: TcpListener,
    pub(super) balancer: Balancer,
    /// Connections that other workers have accepted.
    pub(super) inbox: Receiver<HandedConnection>,
    pub(super) release: ListenerRelease,
    pub(super) errors: AcceptErrorLog,
}

/// Places accepted connections.
#[derive(Debug)]
pub(super) struct Balancer {
    worker: usize,
    loads: WorkerLoads,
    /// The listeners on the address, by worker.
    inboxes: Arc<[Sender<HandedConnection>]>,
}

/// A connection at the worker that serves it.
pub(super) struct PlacedConnection {
    pub(super) stream: TcpStream,
    pub(super) address: SocketAddr,
    pub(super) guards: ConnectionGuards,
}

/// A connection on its way to another worker, registered with no runtime.
#[derive(Debug)]
pub(super) struct HandedConnection {
    stream: std::net::TcpStream,
    address: SocketAddr,
    guards: ConnectionGuards,
}

/// Guard that counts a connection while it is open.
#[derive(Debug)]
pub(super) struct ConnectionGuards {
    _permit: ConnectionPermit,
    _load: LoadGuard,
}

/// Counts a connection of a worker until it is dropped.
#[derive(Debug)]
struct LoadGuard {
    worker: usize,
    loads: WorkerLoads,
}

impl WorkerLoads {
    /// No connections of this many workers.
    pub fn new(workers: usize) -> Self {
        Self(Arc::new(Mutex::new(vec![0; workers])))
    }

    /// Counts a connection for the worker that is to have it, when `accepting` has accepted it.
    fn count_for_least(&self, accepting: usize) -> LoadGuard {
        let mut open = self.lock();
        let own = open[accepting];
        let least = (0..open.len()).min_by_key(|worker| open[*worker]).unwrap_or(accepting);
        let worker = if own - open[least] > own / TOLERANCE_DIVISOR { least } else { accepting };
        open[worker] += 1;
        LoadGuard { worker, loads: self.clone() }
    }

    fn count(&self, worker: usize) -> LoadGuard {
        self.lock()[worker] += 1;
        LoadGuard { worker, loads: self.clone() }
    }

    /// A panic under this lock cannot leave a count half changed.
    fn lock(&self) -> MutexGuard<'_, Vec<usize>> {
        self.0.lock()
    }
}

impl Drop for LoadGuard {
    fn drop(&mut self) {
        self.loads.lock()[self.worker] -= 1;
    }
}

impl WorkerListener {
    /// The listeners on one address, one for each of the workers.
    pub fn share(
        sockets: Vec<TcpListener>,
        loads: &WorkerLoads,
        release: &ListenerRelease,
        errors: &AcceptErrorLog,
    ) -> Vec<Self> {
        let (inboxes, receivers): (Vec<_>, Vec<_>) = sockets.iter().map(|_| mpsc::channel(INBOX_CAPACITY)).unzip();
        let inboxes: Arc<[_]> = inboxes.into();
        let balancers = (0..).map(|worker| Balancer { worker, loads: loads.clone(), inboxes: Arc::clone(&inboxes) });
        let shared = sockets.into_iter().zip(receivers).zip(balancers);
        shared
            .map(|((socket, inbox), balancer)| Self {
                socket,
                balancer,
                inbox,
                release: release.clone(),
                errors: errors.clone(),
            })
            .collect()
    }

    /// A listener that is alone on its address.
    pub fn alone(socket: TcpListener) -> Self {
        let (sender, inbox) = mpsc::channel(1);
        let balancer = Balancer { worker: 0, loads: WorkerLoads::new(1), inboxes: Arc::new([sender]) };
        Self { socket, balancer, inbox, release: ListenerRelease::new(), errors: AcceptErrorLog::default() }
    }
}

impl Balancer {
    /// Places an accepted connection: returns it when it stays with this worker, else hands it to another one.
    pub(super) fn place(
        &self,
        stream: TcpStream,
        address: SocketAddr,
        permit: ConnectionPermit,
    ) -> io::Result<Option<PlacedConnection>> {
        let load = self.loads.count_for_least(self.worker);
        let worker = load.worker;
        let guards = ConnectionGuards { _permit: permit, _load: load };
        if worker == self.worker {
            return Ok(Some(PlacedConnection { stream, address, guards }));
        }
        let handed = HandedConnection { stream: stream.into_std()?, address, guards };
        match self.inboxes[worker].try_send(handed) {
            Ok(()) => Ok(None),
            // The other worker hangs, or closes its listener.
            Err(TrySendError::Full(returned) | TrySendError::Closed(returned)) => {
                let HandedConnection { stream, address, guards: ConnectionGuards { _permit: permit, .. } } = returned;
                Ok(Some(self.keep(TcpStream::from_std(stream)?, address, permit)))
            }
        }
    }

    /// Places an accepted connection with this worker.
    pub(super) fn keep(&self, stream: TcpStream, address: SocketAddr, permit: ConnectionPermit) -> PlacedConnection {
        let guards = ConnectionGuards { _permit: permit, _load: self.loads.count(self.worker) };
        PlacedConnection { stream, address, guards }
    }
}

impl HandedConnection {
    /// Registers the connection with the runtime of the worker that it was handed to.
    pub(super) fn arrive(self) -> io::Result<PlacedConnection> {
        let Self { stream, address, guards } = self;
        Ok(PlacedConnection { stream: TcpStream::from_std(stream)?, address, guards })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place_all(loads: &WorkerLoads, accepting: impl IntoIterator<Item = usize>) -> Vec<LoadGuard> {
        accepting.into_iter().map(|worker| loads.count_for_least(worker)).collect()
    }

    #[test]
    fn few_connections_are_spread_evenly_wherever_they_are_accepted() {
        for connections in [2, 4, 8] {
            let loads = WorkerLoads::new(2);
            let _open = place_all(&loads, std::iter::repeat_n(0, connections));
            assert_eq!(*loads.lock(), [connections / 2; 2]);
        }
        let loads = WorkerLoads::new(3);
        let _open = place_all(&loads, [2, 2, 2, 0, 2, 1]);
        assert_eq!(*loads.lock(), [2, 2, 2]);
    }

    #[test]
    fn small_difference_of_many_connections_is_left() {
        let loads = WorkerLoads::new(2);
        let mut open = place_all(&loads, (0..200).map(|n| n % 2));
        assert_eq!(*loads.lock(), [100, 100]);
        open.extend(place_all(&loads, [0; 12]));
        assert_eq!(*loads.lock(), [112, 100], "they stay");
        open.extend(place_all(&loads, [0; 8]));
        let counts = loads.lock().clone();
        assert!(counts[0] - counts[1] <= counts[0] / TOLERANCE_DIVISOR + 1, "{counts:?}");
        assert_eq!(counts[0] + counts[1], 220);
        drop(open);
        assert_eq!(*loads.lock(), [0, 0]);
    }
}
