//! Servers that end a connection after so many resets, with the streams of all clients (rapid reset).

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use super::http2::{Http2Upstream, ok};
use crate::support::{Client, eventually, head};

#[test]
fn connection_is_retired_before_100_streams_were_reset() {
    const BURST: usize = 90;
    let first = Arc::<Mutex<Option<TcpStream>>>::default();
    let kept = Arc::clone(&first);
    let upstream = Http2Upstream::answering(move |asked, stream| {
        if asked.request == 0 {
            *kept.lock().unwrap() = Some(stream.try_clone().unwrap());
        }
    });
    let gateway = upstream.gateway("");
    let key = gateway.key();
    let mut other = Client::connect(gateway.address);
    other.send(head("GET", "/", &key.text, &[], 0));
    let mut aborted = 0;
    for size in [BURST, BURST, BURST].into_iter().chain([1; BURST]) {
        eventually("the requests of the others have ended", || gateway.explain_in_flight(&key) == 1);
        let mut clients: Vec<Client> = (0..size).map(|_| Client::connect(gateway.address)).collect();
        for client in &mut clients {
            client.send(head("GET", "/", &key.text, &[], 0));
        }
        aborted += size;
        eventually("all are at the upstream", || upstream.requests() == 1 + aborted);
    }
    eventually("all are reset", || upstream.resets.lock().unwrap().iter().sum::<usize>() == aborted);
    let resets = upstream.resets.lock().unwrap().clone();
    assert!(resets.iter().all(|resets| *resets < 100), "{resets:?}");
    // The stream that has lasted over all of them ends in peace, and then its connection.
    first.lock().unwrap().as_mut().unwrap().write_all(&ok(1)).unwrap();
    assert_eq!(other.response().status, 200);
}
