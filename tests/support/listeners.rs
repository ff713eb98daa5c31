//! Listeners of this program that are closed, and their addresses. A process that another test is starting just then
//! has a copy of a closed listener until it runs its own program.

use std::net::{SocketAddr, TcpListener, TcpStream};

use super::{eventually, until};

/// Listens at an address, perhaps that of a listener which was closed.
pub fn listen_at(address: SocketAddr) -> TcpListener {
    until("the address is free", || TcpListener::bind(address).ok())
}

/// Waits until connections to an address are refused.
pub fn await_refusal(address: SocketAddr) {
    eventually("connections are refused", || TcpStream::connect(address).is_err());
}
