//! Free ports for servers that have to know their port before they start, or that come back to it.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// First port of the range. The range lies below the ephemeral ports of outgoing connections (32768 and up by default):
/// while a server is down, no connection of its clients can take its port, and the server can come back.
const FIRST: u16 = 12_000;
const COUNT: u16 = 10_000;
/// Distance from a Redis node's port to its Cluster bus port.
const BUS: u16 = 10_000;

/// A port of loopback that is free, and that this process does not hand out again soon. The port above it by 10000 is
/// free as well.
pub fn free_port() -> u16 {
    static NEXT: OnceLock<AtomicU32> = OnceLock::new();
    // Test binaries that run at the same time begin at different places.
    let next = NEXT.get_or_init(|| AtomicU32::new(std::process::id().wrapping_mul(7919)));
    for _ in 0..COUNT {
        let offset = next.fetch_add(1, Ordering::Relaxed) % u32::from(COUNT);
        let port = FIRST + u16::try_from(offset).expect("an offset is below the count");
        if is_free(port) && is_free(port + BUS) {
            return port;
        }
    }
    panic!("no port from {FIRST} to {} is free", FIRST + COUNT);
}

/// A loopback address with a free port.
pub fn free_address() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, free_port()).into()
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}
