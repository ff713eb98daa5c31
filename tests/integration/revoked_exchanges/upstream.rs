//! An upstream whose exchanges do not end by themselves.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::eventually;

const SWITCH: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
const CHUNKED: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

/// Upstream that answers by the path: `/tunnel` switches protocols and echoes, `/download` sends a body without an end,
/// `/trickle` sends one byte of a body and no more, `/upload` reads the request's body, `/silent` never responds. All
/// go on until the gateway closes the connection.
pub struct Endless {
    pub address: SocketAddr,
    /// Exchanges that have begun.
    begun: Arc<AtomicUsize>,
    /// Exchanges that the gateway has ended.
    ended: Arc<AtomicUsize>,
    /// Tunnels that the gateway has reset.
    reset: Arc<AtomicUsize>,
}

impl Endless {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let upstream = Self { address, begun: Arc::default(), ended: Arc::default(), reset: Arc::default() };
        let counts = [&upstream.begun, &upstream.ended, &upstream.reset].map(Arc::clone);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let counts = counts.clone();
                std::thread::spawn(move || serve(stream, &counts));
            }
        });
        upstream
    }

    pub fn begun(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }

    pub fn ended(&self) -> usize {
        self.ended.load(Ordering::SeqCst)
    }

    pub fn reset(&self) -> usize {
        self.reset.load(Ordering::SeqCst)
    }

    /// Waits until as many exchanges have ended as have begun.
    #[track_caller]
    pub fn until_all_ended(&self) {
        eventually("the connections to the upstream are closed", || self.ended() == self.begun());
    }
}

fn serve(mut stream: TcpStream, [begun, ended, reset]: &[Arc<AtomicUsize>; 3]) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read(&mut byte).unwrap_or(0) == 0 {
            return;
        }
        head.push(byte[0]);
    }
    begun.fetch_add(1, Ordering::SeqCst);
    let head = String::from_utf8(head).unwrap();
    let path = head.split(' ').nth(1).unwrap();
    match path.split('?').next().unwrap() {
        "/tunnel" => stream.write_all(SWITCH).unwrap(),
        "/trickle" => stream.write_all(&[CHUNKED, b"1\r\nx\r\n"].concat()).unwrap(),
        "/download" => {
            let piece = [&b"10000\r\n"[..], &[b'x'; 0x10000], b"\r\n"].concat();
            let mut sent = stream.write_all(CHUNKED);
            while sent.is_ok() {
                sent = stream.write_all(&piece);
            }
        }
        _ => {}
    }
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) if path.starts_with("/tunnel") => drop(stream.write_all(&buffer[..length])),
            Ok(_) => {}
            Err(_) => {
                reset.fetch_add(1, Ordering::SeqCst);
                break;
            }
        }
    }
    ended.fetch_add(1, Ordering::SeqCst);
}
