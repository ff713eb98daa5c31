//! Bodies of 1 GiB are streamed in bounded memory.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};

use crate::support::{Setup, head};

const GIBIBYTE: usize = 1 << 30;
const PIECE: usize = 1 << 18;
const MOST_MEMORY: u64 = 64 << 20;

/// Upstream that reads a body of 1 GiB and answers with another.
fn upstream() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::with_capacity(PIECE, stream.try_clone().unwrap());
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line).unwrap();
        }
        let received = std::io::copy(&mut reader.take(GIBIBYTE as u64), &mut std::io::sink()).unwrap();
        let answer = format!("HTTP/1.1 200 OK\r\nx-received: {received}\r\ncontent-length: {GIBIBYTE}\r\n\r\n");
        stream.write_all(answer.as_bytes()).unwrap();
        let piece = vec![b'd'; PIECE];
        (0..GIBIBYTE / PIECE).for_each(|_| stream.write_all(&piece).unwrap());
    });
    address
}

#[test]
fn one_gibibyte_streams_each_way_in_bounded_memory() {
    // On a busy machine the upstream may be slow to accept.
    let (setup, key) = Setup::new(upstream(), "timeouts: { connect: 30s, lame_duck: 0s }").and_key();
    let gateway = setup.start();
    let mut client = setup.client();
    client.send(head("POST", "/big", &key, &[], GIBIBYTE));
    let piece = vec![b'u'; PIECE];
    (0..GIBIBYTE / PIECE).for_each(|_| {
        client.send(&piece);
    });
    let (status, headers) = client.head().unwrap();
    assert_eq!(status, 200);
    assert!(headers.contains(&("x-received".into(), GIBIBYTE.to_string())));
    let mut received = 0;
    while received < GIBIBYTE {
        received += client.read_some().unwrap();
    }
    assert_eq!(received, GIBIBYTE);
    let peak = gateway.peak_memory();
    assert!(peak < MOST_MEMORY, "{} MiB", peak >> 20);
    gateway.stop();
    let records = setup.ok(&["audit", "list", "--json"]);
    assert!(records.contains(&format!("\"response_bytes\":{GIBIBYTE}")), "{records}");
}
