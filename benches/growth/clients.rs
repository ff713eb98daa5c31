//! Load: requests in succession on each connection.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::upstream;

/// Sends one request with each key.
pub(crate) fn send_each<'a>(address: SocketAddr, keys: impl IntoIterator<Item = &'a String>) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    for key in keys {
        exchange(&mut stream, key).unwrap();
    }
}

/// Sends requests in succession for a time, each with the next key. Returns the time of the slowest.
pub(crate) fn slowest<'a>(address: SocketAddr, keys: impl Iterator<Item = &'a String>, time: Duration) -> Duration {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    let end = Instant::now() + time;
    let timed = keys.map(|key| {
        let began = Instant::now();
        exchange(&mut stream, key).unwrap();
        began.elapsed()
    });
    timed.take_while(|_| Instant::now() < end).max().unwrap_or_default()
}

/// Sends requests on several connections for a time.
pub(crate) fn send_for(address: SocketAddr, key: &str, connections: usize, time: Duration) {
    let streams: Vec<TcpStream> = (0..connections).map(|_| TcpStream::connect(address).unwrap()).collect();
    let end = Instant::now() + time;
    std::thread::scope(|scope| {
        for mut stream in streams {
            scope.spawn(move || {
                stream.set_nodelay(true).unwrap();
                while Instant::now() < end {
                    exchange(&mut stream, key).unwrap();
                }
            });
        }
    });
}

/// One request, which must be answered with 200; none when the connection fails.
pub(crate) fn exchange(stream: &mut TcpStream, key: &str) -> Option<()> {
    let request = format!(
        "GET /api/queries?limit=20 HTTP/1.1\r\nHost: bench.test\r\nUser-Agent: bench/1\r\nAccept: */*\r\n\
         Authorization: Bearer {key}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).ok()?;
    let mut buffer = [0; 4096];
    let mut filled = 0;
    while !buffer[..filled].ends_with(upstream::ANSWER.as_bytes()) {
        let read = stream.read(&mut buffer[filled..]).ok()?;
        filled += (read > 0).then_some(read)?;
    }
    assert!(buffer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&buffer[..filled]));
    Some(())
}
