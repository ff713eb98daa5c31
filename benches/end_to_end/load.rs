//! The load and the upstream: as little of either as can be.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

const ANSWER: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 16\r\n\r\n{\"answer\":\"yes\"}";

/// Answers every request on every connection with the same few bytes.
pub(crate) fn upstream() -> SocketAddr {
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
    let mut buffer = [0; 4096];
    let mut filled = 0;
    while let Ok(read @ 1..) = stream.read(&mut buffer[filled..]) {
        filled += read;
        if buffer[..filled].ends_with(b"\r\n\r\n") {
            filled = 0;
            if stream.write_all(ANSWER).is_err() {
                return;
            }
        }
    }
}

/// Sends requests one after the other on one connection; each must be answered with 200.
pub(crate) fn run(proxy: SocketAddr, key: &str, requests: usize) {
    let mut stream = TcpStream::connect(proxy).unwrap();
    stream.set_nodelay(true).unwrap();
    let request = request(key);
    let mut buffer = [0; 4096];
    for _ in 0..requests {
        stream.write_all(request.as_bytes()).unwrap();
        let mut filled = 0;
        while !buffer[..filled].ends_with(b"{\"answer\":\"yes\"}") {
            let read = stream.read(&mut buffer[filled..]).unwrap();
            assert!(read > 0, "the proxy closed: {}", String::from_utf8_lossy(&buffer[..filled]));
            filled += read;
        }
        assert!(buffer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&buffer[..filled]));
    }
}

/// The same on several connections at once, in threads that begin together; each takes its part of the requests.
pub(crate) fn run_many(proxy: SocketAddr, key: &str, connections: usize, requests: usize) {
    std::thread::scope(|scope| {
        for number in 0..connections {
            let own = requests / connections + usize::from(number < requests % connections);
            scope.spawn(move || run(proxy, key, own));
        }
    });
}

pub(crate) fn request(key: &str) -> String {
    format!(
        "GET /api/queries?limit=20 HTTP/1.1\r\nHost: bench.test\r\nUser-Agent: bench/1\r\nAccept: */*\r\n\
         Authorization: Bearer {key}\r\n\r\n"
    )
}
