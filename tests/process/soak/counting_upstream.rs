//! An upstream that notes the id of each request that it receives, and misbehaves where it is asked to.

use std::collections::HashSet;
use std::io::{BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use uuid::Uuid;

/// Bytes of `/large`.
const LARGE: usize = 1 << 20;

/// An upstream. Its threads end when their connections do.
pub struct CountingUpstream {
    pub address: SocketAddr,
    received: Arc<Mutex<HashSet<Uuid>>>,
}

impl CountingUpstream {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::new(Mutex::new(HashSet::new()));
        let noted = Arc::clone(&received);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let noted = Arc::clone(&noted);
                // An error says that the gateway has closed the connection.
                std::thread::spawn(move || while let Some(true) = serve(&stream, &noted) {});
            }
        });
        Self { address, received }
    }

    pub fn count(&self) -> usize {
        self.received.lock().unwrap().len()
    }

    pub fn received(&self) -> HashSet<Uuid> {
        self.received.lock().unwrap().clone()
    }
}

/// Serves the requests of a connection. Returns none when it has ended.
fn serve(stream: &TcpStream, received: &Mutex<HashSet<Uuid>>) -> Option<bool> {
    let mut reader = BufReader::new(stream);
    loop {
        let line = read_line(&mut reader)?;
        let (mut id, mut length, mut is_chunked) = (None, 0, false);
        loop {
            let field = read_line(&mut reader)?;
            let Some((name, value)) = field.split_once(':') else { break };
            match name.to_ascii_lowercase().as_str() {
                "x-request-id" => id = value.trim().parse().ok(),
                "content-length" => length = value.trim().parse().ok()?,
                "transfer-encoding" => is_chunked = true,
                _ => {}
            }
        }
        // Before its body, which may never come.
        received.lock().unwrap().insert(id.expect("the gateway sets the id"));
        std::io::copy(&mut reader.by_ref().take(length), &mut std::io::sink()).ok()?;
        while is_chunked {
            let size = u64::from_str_radix(&read_line(&mut reader)?, 16).ok()?;
            std::io::copy(&mut reader.by_ref().take(size + 2), &mut std::io::sink()).ok()?;
            is_chunked = size > 0;
        }
        if !answer(line.split(' ').nth(1)?, stream) {
            return None;
        }
    }
}

/// Answers a request. Returns whether the connection goes on.
fn answer(path: &str, mut stream: &TcpStream) -> bool {
    let ok = |length: usize| format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
    let (head, body, goes_on) = match path {
        "/large" => (ok(LARGE), vec![b'x'; LARGE], true),
        "/break" => (ok(100), b"some".to_vec(), false),
        "/garbage" => ("HTTP/1.1 200 OK\r\ncontent-length: 1, 2\r\n\r\n".to_owned(), b"ok".to_vec(), false),
        "/close" => return false,
        _ => (ok(2), b"ok".to_vec(), true),
    };
    stream.write_all(&[head.into_bytes(), body].concat()).is_ok() && goes_on
}

fn read_line(reader: &mut impl std::io::BufRead) -> Option<String> {
    let mut line = String::new();
    let read = reader.read_line(&mut line).ok()?;
    (read > 0).then(|| line.trim_end().to_owned())
}
