//! The backlog of a listener that closes: every connection in it is accepted.
//!
//! A listener that closes resets the connections in its backlog. Their clients take them for open and may already have
//! sent requests. So the kernel is first told to ignore new connections, then the backlog is accepted, then the
//! listener closes. A client whose SYN is ignored sends it again after a second (RFC 6298, section 2): by then it is
//! refused, or another process listens.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use socket2::{SockFilter, SockRef};
use tokio::net::{TcpListener, TcpStream};

/// Time for TCP handshakes that are half-way when new connections are blocked: a round trip to the other side of the
/// world.
pub(super) const HANDSHAKE_GRACE: Duration = Duration::from_millis(200);

/// Has the kernel ignore SYN packets to the listener. Packets of handshakes that have begun still pass.
pub(super) fn block_new_connections(listener: &impl AsFd) -> io::Result<()> {
    SockRef::from(listener).attach_filter(&DROP_SYN)
}

/// Accepts every connection in the backlog, and closes the listener.
///
/// Asks the kernel directly: the runtime asks it only after an event, and could miss connections that have just come.
pub(super) fn accept_backlog(listener: TcpListener, start: impl FnMut((TcpStream, SocketAddr))) {
    if let Err(error) = listener.into_std().and_then(|listener| accept_all(&listener, start)) {
        tracing::warn!(%error, "cannot accept the backlog of a closing listener: connections in it are reset");
    }
}

fn accept_all(listener: &std::net::TcpListener, mut start: impl FnMut((TcpStream, SocketAddr))) -> io::Result<()> {
    loop {
        match listener.accept() {
            Ok((stream, address)) => {
                stream.set_nonblocking(true)?;
                start((TcpStream::from_std(stream)?, address));
            }
            // The backlog is empty.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            // A client that went away before it was accepted.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Program of the classic BPF that drops packets with SYN (2) and without ACK (16): those that ask for a connection. It
/// sees packets from their TCP header on; the flags are in byte 13 (RFC 9293, section 3.1).
const DROP_SYN: [SockFilter; 5] = [
    SockFilter::new(LOAD_BYTE, 0, 0, 13),
    SockFilter::new(AND, 0, 0, 2 | 16),
    SockFilter::new(JUMP_IF_EQUAL, 0, 1, 2),
    SockFilter::new(RETURN, 0, 0, 0),
    SockFilter::new(RETURN, 0, 0, u32::MAX),
];
const LOAD_BYTE: u16 = 0x30;
const AND: u16 = 0x54;
const JUMP_IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream as Client;

    use super::*;

    fn with_listener(then: impl AsyncFnOnce(TcpListener, SocketAddr)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            then(listener, address).await;
        });
    }

    /// Connects until that fails. A process that another test is starting just then has a copy of the closed listener
    /// until it runs its own program.
    fn refusal(address: SocketAddr) -> io::Error {
        std::iter::repeat_with(|| Client::connect(address)).find_map(Result::err).unwrap()
    }

    #[test]
    fn backlog_is_accepted_before_close_without_events_of_the_runtime() {
        with_listener(async |listener, address| {
            let mut clients: Vec<Client> = (0..10).map(|_| Client::connect(address).unwrap()).collect();
            let mut streams = Vec::new();
            accept_backlog(listener, |(stream, _)| streams.push(stream.into_std().unwrap()));
            assert_eq!(streams.len(), clients.len());
            for (client, stream) in clients.iter_mut().zip(&mut streams) {
                stream.set_nonblocking(false).unwrap();
                client.write_all(b"x").unwrap();
                stream.read_exact(&mut [0]).unwrap();
            }
            assert_eq!(refusal(address).kind(), io::ErrorKind::ConnectionRefused);
        });
    }

    #[test]
    fn new_connections_are_blocked_and_established_ones_go_on() {
        with_listener(async |listener, address| {
            let mut established = Client::connect(address).unwrap();
            block_new_connections(&listener).unwrap();
            let late = Client::connect_timeout(&address, Duration::from_millis(200)).unwrap_err();
            assert_eq!(late.kind(), io::ErrorKind::TimedOut, "the client sends its SYN again");
            let mut streams = Vec::new();
            accept_backlog(listener, |(stream, _)| streams.push(stream.into_std().unwrap()));
            streams[0].set_nonblocking(false).unwrap();
            established.write_all(b"x").unwrap();
            streams[0].read_exact(&mut [0]).unwrap();
            assert_eq!(refusal(address).kind(), io::ErrorKind::ConnectionRefused);
        });
    }
}
