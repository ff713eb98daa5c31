//! Upstream that answers every request on every connection with the same few bytes.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

/// End of each answer.
pub(crate) const ANSWER: &str = "{\"answer\":\"yes\"}";

/// Starts this many upstreams, each on a port of its own.
pub(crate) fn start_many(count: usize) -> Vec<SocketAddr> {
    (0..count).map(|_| start()).collect()
}

fn start() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || answer(stream));
        }
    });
    address
}

fn answer(mut stream: TcpStream) {
    stream.set_nodelay(true).unwrap();
    let response = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 16\r\n\r\n{ANSWER}");
    let mut buffer = [0; 4096];
    let mut filled = 0;
    while let Ok(read @ 1..) = stream.read(&mut buffer[filled..]) {
        filled += read;
        if buffer[..filled].ends_with(b"\r\n\r\n") {
            filled = 0;
            if stream.write_all(response.as_bytes()).is_err() {
                return;
            }
        }
    }
}
