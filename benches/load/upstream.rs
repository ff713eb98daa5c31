//! The upstream: it answers every request at once, with few bytes or with many.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::{LARGE, SMALL, runtime};

/// Path under which the upstream answers with the head that it received.
pub(crate) const ECHOED: &str = "/api/queries/echo";

/// Starts it on a thread of its own.
pub(crate) fn upstream() -> SocketAddr {
    let (sender, address) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        runtime().block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            sender.send(listener.local_addr().unwrap()).unwrap();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::task::spawn_local(serve(stream));
            }
        });
    });
    address.recv().unwrap()
}

/// Answers until the proxy closes.
async fn serve(mut stream: TcpStream) {
    stream.set_nodelay(true).unwrap();
    let (small, large) = (answer(&[b's'; SMALL]), answer(&vec![b'l'; LARGE]));
    let mut buffer = vec![0; 64 << 10];
    let mut filled = 0;
    while let Ok(read @ 1..) = stream.read(&mut buffer[filled..]).await {
        filled += read;
        let Some((head, length)) = request(&buffer[..filled]) else { continue };
        let mut left = head + length - filled;
        while left > 0 {
            let Ok(read @ 1..) = stream.read(&mut buffer).await else { return };
            left -= read;
        }
        let written = match length {
            0 if buffer.starts_with(format!("GET {ECHOED}").as_bytes()) => {
                stream.write_all(&answer(&buffer[..head])).await
            }
            0 => stream.write_all(&small).await,
            _ => stream.write_all(&large).await,
        };
        if written.is_err() {
            return;
        }
        filled = 0;
    }
}

/// Bytes of the request's head and of its body, once the head is whole.
fn request(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut fields = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut fields);
    let httparse::Status::Complete(head) = request.parse(bytes).unwrap() else { return None };
    let length = request.headers.iter().find(|field| field.name.eq_ignore_ascii_case("content-length"));
    let length = length.map_or(0, |field| std::str::from_utf8(field.value).unwrap().parse().unwrap());
    Some((head, length))
}

fn answer(body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}
