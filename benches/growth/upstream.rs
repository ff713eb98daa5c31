//! Upstream that answers every request on every connection with the same few bytes.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, LocalOptions};

/// End of each answer.
pub(crate) const ANSWER: &str = "{\"answer\":\"yes\"}";

static ACCEPTED: AtomicUsize = AtomicUsize::new(0);

/// Connections that all upstreams have accepted.
pub(crate) fn accepted() -> usize {
    ACCEPTED.load(Ordering::Relaxed)
}

/// Starts this many upstreams, each on a port of its own, on one thread.
pub(crate) fn start_many(count: usize) -> Vec<SocketAddr> {
    let (sender, addresses) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap();
        runtime.block_on(async {
            for _ in 0..count {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                sender.send(listener.local_addr().unwrap()).unwrap();
                tokio::task::spawn_local(accept(listener));
            }
            std::future::pending::<()>().await;
        });
    });
    addresses.iter().take(count).collect()
}

async fn accept(listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        ACCEPTED.fetch_add(1, Ordering::Relaxed);
        tokio::task::spawn_local(answer(stream));
    }
}

async fn answer(mut stream: TcpStream) {
    stream.set_nodelay(true).unwrap();
    let response = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 16\r\n\r\n{ANSWER}");
    let mut buffer = [0; 4096];
    let mut filled = 0;
    while let Ok(read @ 1..) = stream.read(&mut buffer[filled..]).await {
        filled += read;
        if buffer[..filled].ends_with(b"\r\n\r\n") {
            filled = 0;
            if stream.write_all(response.as_bytes()).await.is_err() {
                return;
            }
        }
    }
}
