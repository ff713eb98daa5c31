//! A proxy that simulates a bad network in front of a server.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Chunks in transit at most, in each direction of a connection: about as much as a socket buffers.
const CHUNKS: usize = 1024;
const CHUNK: usize = 16 * 1024;
/// Time-out of connecting to the server. One that is stopped does so while its backlog has room.
const CONNECT: Duration = Duration::from_secs(5);

/// Behaviour of a black hole. In either case the sender notices nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hole {
    /// Loses the bytes. A connection that has lost bytes stays silent in that direction, so that none is
    /// ever missing in between.
    Swallow,
    /// Keeps the bytes, and delivers them in order when the network has healed.
    Hold,
}

/// A TCP proxy on a loopback port of its own; its threads end when it is dropped.
///
/// - Bytes arrive unchanged and in order, or not at all.
/// - Connections are accepted whatever the network is like, unless it refuses them.
/// - The end of a connection is delayed, held and lost like everything else that is sent.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

struct Shared {
    /// The server of new connections.
    server: Mutex<SocketAddr>,
    network: Mutex<Network>,
    /// Notified of every change of the network.
    changed: Condvar,
}

/// The state of the network, and the connections that there are.
#[derive(Default)]
struct Network {
    delay: Duration,
    requests: Option<Hole>,
    answers: Option<Hole>,
    refuses: bool,
    has_ended: bool,
    accepted: u64,
    lost: u64,
    /// The sockets of each connection. One that is not here any more has been cut, or is over.
    connections: HashMap<u64, Vec<TcpStream>>,
}

/// One direction of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Requests,
    Answers,
}

/// Time at which bytes were read, and the bytes; empty at the end.
type Chunk = (Instant, Vec<u8>);

impl Proxy {
    /// Starts a proxy in front of a server, which need not be up.
    pub fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let shared =
            Arc::new(Shared { server: Mutex::new(server), network: Mutex::default(), changed: Condvar::new() });
        let accepting = {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || shared.accept(&listener))
        };
        Self { address, shared, accepting: Some(accepting) }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of the proxy.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Delays replies by this round-trip time. Order and throughput stay.
    pub fn delay(&self, delay: Duration) {
        self.shared.change(|network| network.delay = delay);
    }

    /// Delivers nothing any more.
    pub fn black_hole(&self, hole: Hole) {
        self.shared.change(|network| (network.requests, network.answers) = (Some(hole), Some(hole)));
    }

    /// Delivers requests and no replies: commands are executed, and the client does not learn of it.
    pub fn black_hole_answers(&self, hole: Hole) {
        self.shared.change(|network| (network.requests, network.answers) = (None, Some(hole)));
    }

    /// Delivers everything again; first what was held.
    pub fn heal(&self) {
        self.shared.change(|network| (network.requests, network.answers) = (None, None));
    }

    /// Leads new connections to another server, as a virtual address does after a failover. Those that there are stay.
    pub fn redirect(&self, server: SocketAddr) {
        *self.shared.server.lock().unwrap() = server;
    }

    /// Closes all connections; what was on its way is lost.
    pub fn cut(&self) {
        self.shared.change(Network::cut);
    }

    /// Closes new connections at once, or no longer. Those that there are stay.
    pub fn refuse(&self, refuses: bool) {
        self.shared.change(|network| network.refuses = refuses);
    }

    /// Number of open connections.
    pub fn connections(&self) -> usize {
        self.shared.network().connections.len()
    }

    /// Number of connections accepted so far, refused ones not counted.
    pub fn accepted(&self) -> u64 {
        self.shared.network().accepted
    }

    /// Number of pieces of a stream that a black hole has lost so far.
    pub fn lost(&self) -> u64 {
        self.shared.network().lost
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.change(|network| {
            network.has_ended = true;
            network.cut();
        });
        // Wakes it up to see that all has ended. It waits for the threads of its connections.
        TcpStream::connect(self.address).ok();
        self.accepting.take().map(JoinHandle::join);
    }
}

impl Network {
    fn cut(&mut self) {
        let all: Vec<u64> = self.connections.keys().copied().collect();
        all.into_iter().for_each(|id| self.close(id));
    }

    /// Ends a connection, if it has not ended. Its threads see it, whatever they wait for.
    fn close(&mut self, id: u64) {
        for socket in self.connections.remove(&id).into_iter().flatten() {
            // Either end may have closed it already.
            socket.shutdown(Shutdown::Both).ok();
        }
    }

    /// Takes a socket of a connection in; without it, the connection has been cut.
    fn keep(&mut self, id: u64, socket: &TcpStream) -> Option<()> {
        self.connections.get_mut(&id)?.push(socket.try_clone().ok()?);
        Some(())
    }

    fn hole(&self, direction: Direction) -> Option<Hole> {
        if direction == Direction::Requests { self.requests } else { self.answers }
    }
}

impl Shared {
    fn network(&self) -> MutexGuard<'_, Network> {
        self.network.lock().unwrap()
    }

    fn change<T>(&self, change: impl FnOnce(&mut Network) -> T) -> T {
        let changed = change(&mut self.network());
        self.changed.notify_all();
        changed
    }

    fn accept(&self, listener: &TcpListener) {
        std::thread::scope(|scope| {
            for client in listener.incoming().map_while(Result::ok) {
                let mut network = self.network();
                if network.has_ended {
                    break;
                }
                if network.refuses {
                    continue;
                }
                network.accepted += 1;
                let id = network.accepted;
                network.connections.insert(id, Vec::new());
                if network.keep(id, &client).is_some() {
                    scope.spawn(move || self.connect(id, client));
                }
            }
        });
    }

    /// Carries a connection until it is over.
    fn connect(&self, id: u64, client: TcpStream) {
        let server = *self.server.lock().unwrap();
        let server = TcpStream::connect_timeout(&server, CONNECT).ok();
        if let Some(server) = server.filter(|server| self.network().keep(id, server).is_some()) {
            // The delays are ours, not those of waiting for a chunk to fill up.
            client.set_nodelay(true).ok();
            server.set_nodelay(true).ok();
            std::thread::scope(|scope| {
                scope.spawn(|| self.carry(id, Direction::Requests, &client, &server));
                self.carry(id, Direction::Answers, &server, &client);
            });
        }
        self.change(|network| network.close(id));
    }

    /// Carries one direction of it until that is over.
    fn carry(&self, id: u64, direction: Direction, from: &TcpStream, to: &TcpStream) {
        let (sender, receiver) = sync_channel(CHUNKS);
        std::thread::scope(|scope| {
            scope.spawn(|| read(from, sender));
            self.write(id, direction, to, receiver);
        });
    }

    fn write(&self, id: u64, direction: Direction, mut to: &TcpStream, receiver: Receiver<Chunk>) {
        let mut has_lost = false;
        for (read_at, bytes) in receiver {
            let Some(passes) = self.passes(id, direction, read_at) else { return };
            has_lost |= !passes;
            let written = match &bytes[..] {
                _ if has_lost => Ok(()),
                [] => to.shutdown(Shutdown::Write),
                bytes => to.write_all(bytes),
            };
            if written.is_err() {
                return self.change(|network| network.close(id));
            }
        }
    }

    /// Waits until what was read then is due. False if it is lost; none when the connection has been cut.
    fn passes(&self, id: u64, direction: Direction, read_at: Instant) -> Option<bool> {
        let mut network = self.network();
        loop {
            if !network.connections.contains_key(&id) {
                return None;
            }
            let delay = if direction == Direction::Answers { network.delay } else { Duration::ZERO };
            let left = (read_at + delay).saturating_duration_since(Instant::now());
            network = match network.hole(direction) {
                Some(Hole::Swallow) => {
                    network.lost += 1;
                    return Some(false);
                }
                Some(Hole::Hold) => self.changed.wait(network).unwrap(),
                None if left.is_zero() => return Some(true),
                None => self.changed.wait_timeout(network, left).unwrap().0,
            };
        }
    }
}

/// Reads until the end of the bytes, or of their receiver.
fn read(mut from: &TcpStream, sender: SyncSender<Chunk>) {
    let mut buffer = vec![0; CHUNK];
    loop {
        let length = from.read(&mut buffer).unwrap_or(0);
        if sender.send((Instant::now(), buffer[..length].to_vec())).is_err() || length == 0 {
            return;
        }
    }
}
