//! The queue of a listener that closes: whoever is in it is accepted, and nobody is turned away who was let in.
//!
//! To close a listener resets the connections in its queue, which their clients take for open and may already have sent
//! requests on. So first the kernel is told to let nobody in any more, then all who are in are accepted, and then the
//! listener closes. A client that is not let in tries again after a second (RFC 6298, section 2), and is refused then, or
//! served by whoever listens by then.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use socket2::{SockFilter, SockRef};
use tokio::net::{TcpListener, TcpStream};

/// For handshakes that are half-way when nobody is let in any more: as long as a round trip to the other side of the
/// world.
pub(super) const SETTLING: Duration = Duration::from_millis(200);

/// Tells the kernel to let nobody in any more: to take no notice of packets that ask for a connection. Those of
/// connections that are being made pass.
pub(super) fn let_nobody_in(listener: &impl AsFd) -> io::Result<()> {
    SockRef::from(listener).attach_filter(&NO_SYN)
}

/// Accepts all who are in the queue. Not by way of the runtime, which asks the kernel only when it was told of somebody.
pub(super) fn drained(listener: TcpListener, accepted: impl FnMut((TcpStream, SocketAddr))) {
    match listener.into_std().and_then(|listener| accept_all(&listener, accepted)) {
        Ok(()) => {}
        Err(error) => tracing::warn!(%error, "a listener could not be emptied: clients in its queue are reset"),
    }
}

fn accept_all(listener: &std::net::TcpListener, mut accepted: impl FnMut((TcpStream, SocketAddr))) -> io::Result<()> {
    loop {
        match listener.accept() {
            Ok((stream, address)) => {
                stream.set_nonblocking(true)?;
                accepted((TcpStream::from_std(stream)?, address));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            // Clients that went away.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => return Err(error),
        }
    }
}

/// A program of the classic BPF. It sees packets from their TCP header on (RFC 9293, section 3.1): of the flags in byte 13,
/// a packet that asks for a connection has SYN (2) and not ACK (16).
const NO_SYN: [SockFilter; 5] = [
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

    #[test]
    fn whoever_is_in_the_queue_is_accepted_though_the_runtime_knows_nothing_of_them() {
        with_listener(async |listener, address| {
            let mut clients: Vec<Client> = (0..10).map(|_| Client::connect(address).unwrap()).collect();
            let mut streams = Vec::new();
            drained(listener, |(stream, _)| streams.push(stream.into_std().unwrap()));
            assert_eq!(streams.len(), clients.len());
            for (client, stream) in clients.iter_mut().zip(&mut streams) {
                stream.set_nonblocking(false).unwrap();
                client.write_all(b"x").unwrap();
                stream.read_exact(&mut [0]).unwrap();
            }
            assert!(Client::connect(address).is_err());
        });
    }

    #[test]
    fn nobody_is_let_in_any_more_and_those_who_are_in_talk_on() {
        with_listener(async |listener, address| {
            let mut inside = Client::connect(address).unwrap();
            let_nobody_in(&listener).unwrap();
            let late = Client::connect_timeout(&address, Duration::from_millis(200)).unwrap_err();
            assert_eq!(late.kind(), io::ErrorKind::TimedOut, "it will try again");
            let mut streams = Vec::new();
            drained(listener, |(stream, _)| streams.push(stream.into_std().unwrap()));
            streams[0].set_nonblocking(false).unwrap();
            inside.write_all(b"x").unwrap();
            streams[0].read_exact(&mut [0]).unwrap();
            assert_eq!(Client::connect(address).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        });
    }
}
