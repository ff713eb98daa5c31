//! Free ports for servers that have to know their port before they start, or that come back to it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use socket2::{Domain, Socket, Type};

/// First port of the range. The range lies below the ephemeral ports of outgoing connections (32768 and up by default):
/// while a server is down, no connection of its clients can take its port, and the server can come back.
const FIRST: u16 = 12_000;
const COUNT: u16 = 10_000;
/// Distance from a Redis node's port to its Cluster bus port.
const BUS: u16 = 10_000;

/// A port of loopback that is free, and that no test program hands out again while this one runs. The port above it
/// by 10000 is free as well. Nothing listens on it until a server of the test does: until then connections are
/// refused, which a port that the kernel chose for a listener since dropped does not promise, as it may choose it
/// for the next listener.
pub fn free_port() -> u16 {
    static NEXT: OnceLock<AtomicU32> = OnceLock::new();
    // Test binaries that run at the same time begin at different places.
    let next = NEXT.get_or_init(|| AtomicU32::new(std::process::id().wrapping_mul(7919)));
    for _ in 0..COUNT {
        let offset = next.fetch_add(1, Ordering::Relaxed) % u32::from(COUNT);
        let port = FIRST + u16::try_from(offset).expect("an offset is below the count");
        // Claimed first: looking whether a port is free takes it for a moment, which may be that of its server's start.
        if claim(port) && is_free(port) && is_free(port + BUS) {
            return port;
        }
    }
    panic!("no port from {FIRST} to {} is free", FIRST + COUNT);
}

/// A loopback address with a free port.
pub fn free_address() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, free_port()).into()
}

/// Keeps a port from the other test programs of this machine, for as long as this one runs: its UDP port of the same
/// number is taken, which leaves the TCP port to the server.
fn claim(port: u16) -> bool {
    static CLAIMS: Mutex<Vec<UdpSocket>> = Mutex::new(Vec::new());
    let claim = UdpSocket::bind((Ipv4Addr::LOCALHOST, port));
    let claimed = claim.is_ok();
    CLAIMS.lock().extend(claim);
    claimed
}

/// Does not listen: a process that is being started has copies of all sockets until it runs its own program, and one
/// that listens would keep the server of the port away meanwhile.
fn is_free(port: u16) -> bool {
    let bind = || -> io::Result<()> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into())
    };
    bind().is_ok()
}
