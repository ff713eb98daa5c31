//! Binding of listening sockets.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

/// Connections that the kernel completes and holds until they are accepted: the maximum that Linux allows by default.
const BACKLOG: i32 = 4096;

/// Binds `count` listeners to one address. The kernel spreads the connections among them (`SO_REUSEPORT`).
///
/// The address is first bound without `SO_REUSEPORT`, so that an address that another process listens on is an error:
/// otherwise the two would share its connections. With port 0, all listeners share the port that the kernel chose.
///
/// # Errors
/// The address cannot be bound.
pub fn bind(address: SocketAddr, count: usize) -> io::Result<Vec<TcpListener>> {
    // It does not listen: clients that connected to it would be reset when it is closed.
    drop(bind_socket(address, false)?);
    let first = listen(address)?;
    let address = first.local_addr()?;
    let mut listeners = vec![first];
    for _ in 1..count {
        listeners.push(listen(address)?);
    }
    Ok(listeners)
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = bind_socket(address, true)?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn bind_socket(address: SocketAddr, reuse_port: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // After a restart the port is free, although old connections are still in TIME_WAIT.
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(reuse_port)?;
    socket.set_nonblocking(true)?;
    super::acceptor::send_at_once(&socket)?;
    socket.bind(&address.into())?;
    Ok(socket)
}
