//! Idle connections to one endpoint.
//!
//! # Silence
//!
//! HTTP/1.1 does not number its responses: bytes that come while a connection is idle would be taken for the response
//! to the next request. So a connection is used again only if nothing waits to be read from it. Usually the event loop
//! knows that without a system call:
//!
//! - When the loop waits for events, it learns of every byte, and of every end, that has come up to then. A connection
//!   that became idle before that wait, and of which it has learnt nothing since, is silent.
//! - A connection that became idle after the last wait may have bytes that came along with its last response. It is
//!   taken only when there is no other, and the kernel is asked. A worker's loop runs all tasks that are ready before
//!   it waits again, so a busy worker, too, has waited since nearly all of its connections became idle.
//!
//! Asking the kernel for each connection would be no safer. Whenever it is asked, bytes can come between its answer
//! and the request, which the connection's own task writes later in the same turn of the loop. Bytes that come within
//! this turn cannot be told from an early response in either case; those that came before it are seen in both.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::http1::Connection;
use super::lifetime::LearnedIdle;
use super::limits::{EndpointLink, IdleUse, LocalRequest};

/// Idle connections of a worker to an endpoint up to which none is closed before it is too old.
const MAX_UNSHRUNK: usize = 64;
/// Of the connections beyond these that have reached half of the age, one of so many is closed with each look.
const SHRINK: usize = 16;

/// Time after which an idle connection gives back the buffer that has grown with a body.
const SILENCE: Duration = Duration::from_secs(1);

/// Stacks of idle connections: the one used last is used next, so that the others grow old. Shared by the tasks of one
/// worker: requests take connections and give them back, the upkeep closes old ones. One that is dropped closes.
///
/// There are as many as the requests of the last minute have needed at once: their number is bounded by their age, and
/// by the bounds of connections. With a smaller bound, a worker with more requests in flight would open and close
/// connections all the time.
pub(crate) struct IdleConnections {
    /// Connections that were idle already when the event loop last waited for events.
    polled: Vec<(Box<Connection>, Instant)>,
    /// Connections that have become idle since.
    fresh: Vec<(Box<Connection>, Instant)>,
    /// Turn of the event loop in which the fresh ones became idle.
    turn: u64,
    /// True once the endpoint was removed: no connection to it is kept.
    is_closed: bool,
    link: EndpointLink,
    /// Connections on their way to requests that waited for them, by the numbers of these. A request that is dropped
    /// meanwhile takes its own out.
    handed: Vec<(u64, Box<Connection>)>,
    /// True while a task looks for connections whose buffers have grown.
    is_shrinking: bool,
    learned: LearnedIdle,
}

impl IdleConnections {
    /// No connections. The link leads to the requests that wait for one.
    pub(crate) fn new(link: EndpointLink) -> Self {
        Self {
            polled: Vec::new(),
            fresh: Vec::new(),
            turn: 0,
            is_closed: false,
            link,
            handed: Vec::new(),
            is_shrinking: false,
            learned: LearnedIdle::default(),
        }
    }

    /// Takes a connection back behind an exchange. If its buffer has grown with a body, a task looks for idle
    /// connections that do without.
    pub(crate) fn take_back(this: &Rc<RefCell<Self>>, connection: Box<Connection>, now: Instant) {
        let has_grown = connection.state.large_reads().has_permit();
        this.borrow_mut().push(connection, now);
        if has_grown && !std::mem::replace(&mut this.borrow_mut().is_shrinking, true) {
            tokio::task::spawn_local(shrink_idle(Rc::downgrade(this)));
        }
    }

    /// Gives back the grown buffers of connections that have been idle for [`SILENCE`], or whose last exchange did
    /// without. Returns whether other idle connections have grown ones.
    fn shrink(&mut self, now: Instant) -> bool {
        // A connection that is not clean would be taken for a clean one with a new instance of the library.
        self.prune();
        self.is_shrinking = false;
        for (connection, since) in self.polled.iter_mut().chain(&mut self.fresh) {
            let has_grown = connection.state.large_reads().has_permit();
            let is_unused = connection.state.large_reads().is_unused();
            if has_grown && (is_unused || now.saturating_duration_since(*since) >= SILENCE) {
                connection.shrink();
            } else {
                self.is_shrinking |= has_grown;
            }
        }
        self.is_shrinking
    }

    /// Keeps a connection behind an exchange, unless there are enough, its lifetime is over, or a request waits for it.
    pub(crate) fn push(&mut self, connection: Box<Connection>, now: Instant) {
        connection.lifetime.count_request();
        self.push_unused(connection, now);
    }

    /// Keeps a connection that had no exchange.
    pub(crate) fn push_unused(&mut self, connection: Box<Connection>, now: Instant) {
        self.begin_turn(connection.turn());
        if self.is_closed || !connection.lifetime.goes_on() {
            return;
        }
        if self.link.needs_offers() {
            self.offer(connection, now);
        } else {
            self.fresh.push((connection, now));
        }
    }

    /// Closes all connections, and from now on each one that becomes idle.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
        self.polled.clear();
        self.fresh.clear();
    }

    /// Takes a connection that can carry a request. Old and unclean ones are closed on the way.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<Box<Connection>> {
        debug_assert!(!self.is_closed || self.len() == 0, "no connection to a removed endpoint is kept");
        if let Some((connection, _)) = self.fresh.last() {
            self.begin_turn(connection.turn());
        }
        while let Some((connection, since)) = self.polled.pop() {
            let idle = now.saturating_duration_since(since);
            if idle >= self.max_idle(&connection, now) {
                // The connections below it in the stack are older still.
                self.polled.clear();
            } else if connection.is_clean(true) {
                return Some(connection);
            } else {
                self.learned.note_closing(idle, now);
            }
        }
        std::iter::from_fn(|| self.fresh.pop()).map(|(connection, _)| connection).find(|fresh| fresh.is_clean(false))
    }

    /// The most that a connection may be idle now.
    fn max_idle(&self, connection: &Connection, now: Instant) -> Duration {
        connection.lifetime.max_idle().min(self.learned.at(now).unwrap_or(Duration::MAX))
    }

    pub(crate) fn len(&self) -> usize {
        self.polled.len() + self.fresh.len()
    }

    /// Takes the connection that was handed to a request; none when something was read from it meanwhile.
    pub(crate) fn take_handed(&mut self, request: u64) -> Option<Box<Connection>> {
        let index = self.handed.iter().position(|(id, _)| *id == request)?;
        Some(self.handed.swap_remove(index).1).filter(|connection| connection.is_clean(false))
    }

    /// Offers the idle connections to the requests that wait, the oldest first.
    pub(crate) fn offer_all(&mut self) {
        self.prune();
        while self.len() > 0 {
            match self.link.offer() {
                IdleUse::Keep => break,
                IdleUse::Close => self.remove_oldest().state.mark_closing(),
                IdleUse::HandTo(request) => {
                    let connection = self.pop(Instant::now());
                    self.hand_to(request, connection);
                }
            }
        }
    }

    /// Closes connections that are too old, or cannot carry another request.
    fn prune(&mut self) {
        if let Some((connection, _)) = self.fresh.last() {
            self.begin_turn(connection.turn());
        }
        let now = Instant::now();
        let learned = self.learned.at(now).unwrap_or(Duration::MAX);
        let mut closed = None;
        let mut is_kept = |(connection, since): &(Box<Connection>, Instant), polled: bool| {
            let idle = now.saturating_duration_since(*since);
            if idle >= connection.lifetime.max_idle().min(learned) || !connection.lifetime.goes_on() {
                return false;
            }
            let is_clean = connection.is_clean(polled);
            if !is_clean {
                closed = Some(closed.map_or(idle, |other: Duration| other.min(idle)));
            }
            is_clean
        };
        self.polled.retain(|entry| is_kept(entry, true));
        self.fresh.retain(|entry| is_kept(entry, false));
        self.shrink_unneeded(now);
        if let Some(idle) = closed {
            self.learned.note_closing(idle, now);
        }
    }

    /// Closes some of the connections that were not needed for half of the age, the oldest first, so that those of a
    /// burst are not all closed at once.
    fn shrink_unneeded(&mut self, now: Instant) {
        let excess = self.len().saturating_sub(MAX_UNSHRUNK);
        let is_unneeded = |(connection, since): &(Box<Connection>, Instant)| {
            now.saturating_duration_since(*since) >= connection.lifetime.max_idle() / 2
        };
        let unneeded = self.polled.iter().take(excess).take_while(|entry| is_unneeded(entry)).count();
        self.polled.drain(..unneeded.div_ceil(SHRINK));
    }

    /// Keeps a connection, closes it, or hands it to a request.
    fn offer(&mut self, connection: Box<Connection>, now: Instant) {
        // A request that waited must not get a connection that is about to fail.
        if !connection.is_clean(false) {
            return;
        }
        match self.link.offer() {
            IdleUse::Keep => self.fresh.push((connection, now)),
            IdleUse::Close => connection.state.mark_closing(),
            IdleUse::HandTo(request) => self.hand_to(request, Some(connection)),
        }
    }

    /// Hands a connection to a request. Without one, the request is woken to look again.
    fn hand_to(&mut self, request: LocalRequest, connection: Option<Box<Connection>>) {
        debug_assert!(self.handed.iter().all(|(id, _)| *id != request.id()), "a request is given one connection");
        self.handed.extend(connection.map(|connection| (request.id(), connection)));
        request.wake();
    }

    fn remove_oldest(&mut self) -> Box<Connection> {
        let stack = if self.polled.is_empty() { &mut self.fresh } else { &mut self.polled };
        stack.remove(0).0
    }

    /// Counts the fresh connections among the polled ones, if the event loop has waited for events meanwhile.
    fn begin_turn(&mut self, turn: u64) {
        if turn != self.turn {
            self.turn = turn;
            self.polled.append(&mut self.fresh);
        }
    }
}

/// Shrinks idle connections until no grown one is left.
async fn shrink_idle(idle: Weak<RefCell<IdleConnections>>) {
    loop {
        tokio::time::sleep(SILENCE).await;
        let is_done = idle.upgrade().is_none_or(|idle| !idle.borrow_mut().shrink(Instant::now()));
        if is_done {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::sync::Arc;
    use std::task::{Context, Waker};

    use tokio::io::ReadBuf;
    use tokio::runtime::{Builder, LocalOptions};

    use super::*;
    use crate::connection::http1::connect;
    use crate::connection::lifetime::Lifetimes;
    use crate::connection::limits::{ConnectionPermit, WorkerLink};
    use crate::connection::sent_head::Kept;
    use crate::settings::{Address, Endpoint};
    use domain::field_lines::FieldLines;
    use platform::large_reads::MAX_BUFFER;

    /// Runs a test on a runtime like that of a worker.
    fn run(test: impl AsyncFnOnce()) {
        Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap().block_on(test());
    }

    /// Connection that is ready for a request, and the upstream's end of it.
    async fn connection() -> (Box<Connection>, TcpStream) {
        connection_with(Lifetimes::default()).await
    }

    async fn connection_with(lifetimes: Lifetimes) -> (Box<Connection>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let host = "127.0.0.1".into();
        let authority = "a".into();
        let source = "a".into();
        let address = Address::Tcp(address);
        let endpoint = Endpoint { host, port: 0, authority, tls: None, address, source, weight: 1000 };
        let connection =
            connect(&endpoint, None, Duration::from_secs(10), &lifetimes, ConnectionPermit::unbounded()).await.unwrap();
        // The connection's task begins to wait for requests.
        next_turn().await;
        (connection, listener.accept().unwrap().0)
    }

    fn empty() -> IdleConnections {
        IdleConnections::new(EndpointLink::new(&WorkerLink::new(&Arc::default(), 1), &Arc::default()))
    }

    async fn idle() -> (IdleConnections, TcpStream) {
        let (mut idle, (connection, peer)) = (empty(), connection().await);
        idle.push(connection, Instant::now());
        (idle, peer)
    }

    /// Lets the event loop wait for events: there is nothing else to do.
    async fn next_turn() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    #[test]
    fn silent_connection_is_used_again() {
        run(async || {
            let (mut idle, _peer) = idle().await;
            let connection = idle.pop(Instant::now()).expect("fresh");
            assert!(idle.pop(Instant::now()).is_none(), "it was taken");
            idle.push(connection, Instant::now());
            next_turn().await;
            assert!(idle.pop(Instant::now()).is_some(), "polled");
        });
    }

    #[test]
    fn connections_of_a_burst_are_kept_and_closed_in_steps() {
        run(async || {
            let (mut idle, mut peers, now) = (empty(), Vec::new(), Instant::now());
            let unneeded = now.checked_sub(Lifetimes::default().max_idle * 3 / 5).unwrap();
            let burst = MAX_UNSHRUNK + 2 * SHRINK + 1;
            for _ in 0..burst {
                let (connection, peer) = connection().await;
                idle.push(connection, unneeded);
                peers.push(peer);
            }
            next_turn().await;
            assert_eq!(idle.len(), burst, "no arrival closes another");
            let mut left = vec![burst];
            while left.len() == 1 || left[left.len() - 1] < left[left.len() - 2] {
                idle.prune();
                left.push(idle.len());
            }
            assert_eq!(left[..3], [burst, burst - 3, burst - 5], "a sixteenth, rounded up, each time");
            assert_eq!(left[left.len() - 1], MAX_UNSHRUNK, "{left:?}");
        });
    }

    #[test]
    fn connections_of_a_burst_that_are_needed_are_kept() {
        run(async || {
            let (mut idle, mut peers) = (empty(), Vec::new());
            for _ in 0..=MAX_UNSHRUNK {
                let (connection, peer) = connection().await;
                idle.push(connection, Instant::now());
                peers.push(peer);
            }
            next_turn().await;
            idle.prune();
            assert_eq!(idle.len(), MAX_UNSHRUNK + 1);
        });
    }

    #[test]
    fn bytes_and_ends_before_the_next_turn_are_seen() {
        run(async || {
            let (mut bytes, mut peer) = idle().await;
            peer.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
            assert!(bytes.pop(Instant::now()).is_none());
            let (mut end, peer) = idle().await;
            peer.shutdown(Shutdown::Write).unwrap();
            assert!(end.pop(Instant::now()).is_none());
        });
    }

    #[test]
    fn bytes_and_ends_of_the_last_turn_are_seen() {
        run(async || {
            let (mut bytes, mut writer) = idle().await;
            let (mut end, closer) = idle().await;
            next_turn().await;
            writer.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
            closer.shutdown(Shutdown::Write).unwrap();
            next_turn().await;
            assert!(bytes.pop(Instant::now()).is_none());
            assert!(end.pop(Instant::now()).is_none());
        });
    }

    /// The event of the socket and the one that wakes this task come in the same turn, as when a late byte of the
    /// upstream and the client's next request come together.
    #[test]
    fn event_is_seen_before_the_connection_has_read_it() {
        run(async || {
            for _ in 0..100 {
                let (mut idle, mut peer) = idle().await;
                next_turn().await;
                let (client, mut other) = tokio::net::UnixStream::pair().unwrap();
                let mut client = client.into_std().unwrap();
                let sent = std::thread::spawn(move || {
                    peer.write_all(b"H").unwrap();
                    client.write_all(b"G").unwrap();
                    peer
                });
                tokio::io::AsyncReadExt::read_u8(&mut other).await.unwrap();
                assert!(idle.pop(Instant::now()).is_none());
                drop(sent.join().unwrap());
            }
        });
    }

    #[test]
    fn polled_connection_is_used_before_a_fresh_one() {
        run(async || {
            let ((first, _peer), (second, _other)) = (connection().await, connection().await);
            let first_state = Rc::as_ptr(&first.state);
            let mut idle = empty();
            idle.push(first, Instant::now());
            next_turn().await;
            idle.push(second, Instant::now());
            assert_eq!(Rc::as_ptr(&idle.pop(Instant::now()).unwrap().state), first_state);
            assert!(idle.pop(Instant::now()).is_some(), "the fresh one is used when there is no other");
        });
    }

    /// Reads as the library does while a body fills its buffer.
    fn grow(connection: &Connection) {
        let mut buffer = vec![0; MAX_BUFFER];
        let mut cx = Context::from_waker(Waker::noop());
        let read = connection.state.large_reads().poll_read(
            &mut vec![0; MAX_BUFFER].as_slice(),
            &mut cx,
            &mut ReadBuf::new(&mut buffer),
        );
        assert!(read.is_ready() && connection.state.large_reads().has_permit());
    }

    #[test]
    fn grown_buffer_is_given_back_after_silence_and_the_connection_is_used_again() {
        run(async || {
            let ((connection, mut peer), mut idle) = (connection().await, empty());
            grow(&connection);
            idle.push(connection, Instant::now());
            next_turn().await;
            assert!(idle.shrink(Instant::now()), "not silent for long enough");
            assert!(!idle.shrink(Instant::now() + SILENCE));
            next_turn().await;
            let connection = idle.pop(Instant::now()).expect("clean");
            assert!(!connection.state.large_reads().has_permit());
            peer.write_all(b"early").unwrap();
            next_turn().await;
            assert!(!connection.is_clean(true), "the new instance reads");
        });
    }

    #[test]
    fn grown_buffer_that_the_last_exchange_did_without_is_given_back_at_once() {
        run(async || {
            let ((connection, _peer), mut idle) = (connection().await, empty());
            grow(&connection);
            connection.state.begin_exchange(FieldLines::default(), Kept::Nothing);
            connection.state.end_exchange();
            idle.push(connection, Instant::now());
            next_turn().await;
            assert!(!idle.shrink(Instant::now()));
            // The new instance begins to wait for requests.
            next_turn().await;
            assert!(!idle.pop(Instant::now()).unwrap().state.large_reads().has_permit());
        });
    }

    #[test]
    fn connection_at_the_end_of_its_life_is_not_kept() {
        run(async || {
            let lifetimes = Lifetimes { max_requests: Some(2), ..Lifetimes::default() };
            let ((connection, _peer), mut idle) = (connection_with(lifetimes).await, empty());
            idle.push(connection, Instant::now());
            let again = idle.pop(Instant::now()).expect("one request");
            idle.push(again, Instant::now());
            assert!(idle.pop(Instant::now()).is_none(), "two requests");
        });
    }

    #[test]
    fn closed_pool_keeps_no_connection() {
        run(async || {
            let (mut idle, _peer) = idle().await;
            let (connection, _other) = connection().await;
            idle.close();
            assert!(idle.pop(Instant::now()).is_none());
            idle.push(connection, Instant::now());
            assert!(idle.pop(Instant::now()).is_none());
        });
    }
}
