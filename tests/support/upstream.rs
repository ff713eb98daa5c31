//! A scripted upstream: records every request byte for byte, and responds as the test says.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// A request as it reached the upstream.
#[derive(Clone, Debug)]
pub struct Received {
    pub line: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

type Handler = dyn Fn(&Received, &mut TcpStream) + Send + Sync;

/// An upstream on a port of its own. Its threads end when their connections do.
pub struct Upstream {
    pub address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
    connections: Arc<AtomicUsize>,
}

impl Upstream {
    /// Responds to every request with 200 and `ok`.
    pub fn start() -> Self {
        Self::answering(|_, stream| drop(stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")))
    }

    /// Responds with the bytes that the handler writes.
    pub fn answering(handler: impl Fn(&Received, &mut TcpStream) + Send + Sync + 'static) -> Self {
        Self::answering_at("127.0.0.1:0", handler)
    }

    /// The same, at an address of the test's choice.
    pub fn answering_at(
        address: impl std::net::ToSocketAddrs,
        handler: impl Fn(&Received, &mut TcpStream) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::new(Mutex::new(Vec::new()));
        let connections = Arc::new(AtomicUsize::new(0));
        let handler: Arc<Handler> = Arc::new(handler);
        let (log, count) = (Arc::clone(&received), Arc::clone(&connections));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                count.fetch_add(1, Ordering::SeqCst);
                let (log, handler) = (Arc::clone(&log), Arc::clone(&handler));
                std::thread::spawn(move || serve(stream, &log, &*handler));
            }
        });
        Self { address, received, connections }
    }

    /// The requests received so far.
    pub fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    /// The last request received.
    pub fn last(&self) -> Received {
        self.received().pop().expect("a request has reached the upstream")
    }

    /// Number of requests received.
    pub fn count(&self) -> usize {
        self.received.lock().unwrap().len()
    }

    /// Number of connections accepted.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

fn serve(stream: TcpStream, log: &Mutex<Vec<Received>>, handler: &Handler) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut writer = stream;
    while let Some(received) = receive(&mut reader) {
        log.lock().unwrap().push(received.clone());
        handler(&received, &mut writer);
    }
}

fn receive(reader: &mut BufReader<TcpStream>) -> Option<Received> {
    let line = read_line(reader).filter(|line| !line.is_empty())?;
    let mut received = Received { line, headers: Vec::new(), body: Vec::new() };
    loop {
        let line = read_line(reader)?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').expect("a header has a colon");
        received.headers.push((name.to_owned(), value.trim().to_owned()));
    }
    if let Some(length) = received.header("content-length") {
        received.body.resize(length.parse().unwrap(), 0);
        reader.read_exact(&mut received.body).ok()?;
    } else if received.header("transfer-encoding") == Some("chunked") {
        loop {
            let size = usize::from_str_radix(&read_line(reader)?, 16).unwrap();
            let start = received.body.len();
            received.body.resize(start + size, 0);
            reader.read_exact(&mut received.body[start..]).ok()?;
            read_line(reader)?;
            if size == 0 {
                break;
            }
        }
    }
    Some(received)
}

fn read_line(reader: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = String::new();
    (reader.read_line(&mut line).ok()? > 0).then(|| line.trim_end().to_owned())
}

impl Received {
    /// The value of a header, when it is there exactly once.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values =
            self.headers.iter().filter(|(given, _)| given.eq_ignore_ascii_case(name)).map(|(_, value)| value);
        let value = values.next()?;
        assert!(values.next().is_none(), "{name} is there more than once: {:?}", self.headers);
        Some(value)
    }

    pub fn path(&self) -> &str {
        self.line.split(' ').nth(1).unwrap()
    }
}
