//! Requests over HTTP/1.1, one after the other on a connection.

use std::time::Instant;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::{LARGE, Shape, microseconds};

/// Sends as many requests, the given ones in turn, each after the answer to the one before, and adds their microseconds
/// to `times`.
pub(crate) async fn requests(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    given: &[Vec<u8>],
    requests: usize,
    times: &mut Vec<u32>,
) {
    let mut buffer = buffer();
    for request in given.iter().cycle().take(requests) {
        let begun = Instant::now();
        exchange(stream, request, &mut buffer).await;
        times.push(microseconds(begun));
    }
}

/// A buffer for answers.
pub(crate) fn buffer() -> Vec<u8> {
    vec![0; 64 << 10]
}

/// Sends one request, and reads its answer.
pub(crate) async fn exchange(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), request: &[u8], buffer: &mut [u8]) {
    stream.write_all(request).await.unwrap();
    // TLS keeps what is written until it is flushed.
    stream.flush().await.unwrap();
    answer(stream, buffer).await;
}

/// Reads one answer.
pub(crate) async fn answer(stream: &mut (impl AsyncRead + Unpin), buffer: &mut [u8]) {
    let mut filled = 0;
    let mut left = loop {
        let read = stream.read(&mut buffer[filled..]).await.unwrap();
        assert!(read > 0, "the proxy closed: {}", String::from_utf8_lossy(&buffer[..filled]));
        filled += read;
        if let Some(left) = body_left(&buffer[..filled]) {
            break left;
        }
    };
    while left > 0 {
        let read = stream.read(buffer).await.unwrap();
        assert!(read > 0 && read <= left, "the proxy closed, or sent more than the body");
        left -= read;
    }
}

/// Bytes of the body that are not there yet, once the head is whole.
fn body_left(bytes: &[u8]) -> Option<usize> {
    let mut fields = [httparse::EMPTY_HEADER; 32];
    let mut response = httparse::Response::new(&mut fields);
    let httparse::Status::Complete(head) = response.parse(bytes).unwrap() else { return None };
    assert_eq!(response.code, Some(200), "{}", String::from_utf8_lossy(bytes));
    let length = response.headers.iter().find(|field| field.name.eq_ignore_ascii_case("content-length"));
    let length: usize = std::str::from_utf8(length.expect("a length").value).unwrap().parse().unwrap();
    Some(head + length - bytes.len())
}

/// A request with this key.
pub(crate) fn request(key: &str, shape: Shape) -> Vec<u8> {
    let mut request = head(key, shape).into_bytes();
    if shape == Shape::Large {
        request.resize(request.len() + LARGE, b'x');
    }
    request
}

fn head(key: &str, shape: Shape) -> String {
    let (method, length, close) = match shape {
        Shape::Small | Shape::KeysInTurn => ("GET", String::new(), ""),
        Shape::NewConnections => ("GET", String::new(), "Connection: close\r\n"),
        Shape::Large => ("POST", format!("Content-Length: {LARGE}\r\n"), ""),
    };
    format!(
        "{method} /api/queries?limit=20 HTTP/1.1\r\nHost: bench.test\r\nUser-Agent: bench/1\r\nAccept: */*\r\n\
         Authorization: Bearer {key}\r\n{length}{close}\r\n"
    )
}
