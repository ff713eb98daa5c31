//! Ports of servers that come back to them.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Below those that the system gives to outgoing connections (32768 and up, unless it is set otherwise): while a server
/// is down, none of its clients' connections can take its port, and it can come back.
const FIRST: u16 = 12_000;
const COUNT: u16 = 10_000;
/// The nodes of a Cluster talk to each other on a second port, this far above the first.
const BUS: u16 = 10_000;

/// A port that nobody has now, and that is not given out in this process again soon. So is the one above it by 10000.
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

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}
