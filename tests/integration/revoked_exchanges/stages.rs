//! Every stage of a request at which its key may be revoked: whatever the exchange is waiting for then, it has ended
//! soon after, its slot is free, its record says `terminated`, and the next request with the key is refused.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use journal::audit::Outcome;

use super::{PATIENCE, UPGRADE, end_of};
use crate::support::gateway::Key;
use crate::support::{Client, Gateway, eventually, head};

/// Stage of an exchange: what the client sends, and what the upstream does with it.
struct Stage {
    name: &'static str,
    request: fn(&str) -> String,
    /// Bytes that the upstream sends once it has the head of the request. It reads on, and never closes.
    response: &'static [u8],
    /// Bytes of the response that reach the client before the revocation.
    until: &'static str,
}

const CHUNKED: [(&str, &str); 1] = [("Transfer-Encoding", "chunked")];
const SWITCHED: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

fn get(key: &str) -> String {
    head("GET", "/", key, &[], 0)
}

fn tunnel(key: &str) -> String {
    head("GET", "/tunnel", key, &UPGRADE, 0)
}

const STAGES: [Stage; 16] = [
    Stage { name: "no byte of a response", request: get, response: b"", until: "" },
    Stage { name: "HEAD without a response", request: |key| head("HEAD", "/", key, &[], 0), response: b"", until: "" },
    Stage { name: "interim response", request: get, response: b"HTTP/1.1 103 Early Hints\r\n\r\n", until: "" },
    Stage { name: "within the response's head", request: get, response: b"HTTP/1.1 200 OK\r\ncontent", until: "" },
    Stage {
        name: "no byte of the response's body",
        request: get,
        response: b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n",
        until: "\r\n\r\n",
    },
    Stage {
        name: "within a body with a length",
        request: get,
        response: b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nsome",
        until: "some",
    },
    Stage {
        name: "within a chunk",
        request: get,
        response: b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9\r\nsome",
        until: "some",
    },
    Stage {
        name: "between two chunks",
        request: get,
        response: b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nsome\r\n",
        until: "some",
    },
    Stage {
        name: "body that ends with the connection",
        request: get,
        response: b"HTTP/1.1 200 OK\r\n\r\nsome",
        until: "some",
    },
    Stage {
        name: "server-sent events",
        request: get,
        response: b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: 1\n\n",
        until: "data: 1",
    },
    Stage {
        name: "upload that has not begun",
        request: |key| head("POST", "/", key, &[], 9),
        response: b"",
        until: "",
    },
    Stage {
        name: "within an upload with a length",
        request: |key| head("POST", "/", key, &[], 9) + "some",
        response: b"",
        until: "",
    },
    Stage {
        name: "within a chunk of an upload",
        request: |key| head("POST", "/", key, &CHUNKED, 0) + "9\r\nsome",
        response: b"",
        until: "",
    },
    Stage {
        name: "response beside an upload that goes on",
        request: |key| head("POST", "/", key, &CHUNKED, 0) + "4\r\nsome\r\n",
        response: b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nsome\r\n",
        until: "some",
    },
    Stage { name: "tunnel without a byte", request: tunnel, response: SWITCHED, until: "\r\n\r\n" },
    Stage {
        name: "tunnel with bytes",
        request: |key| tunnel(key) + "to the upstream",
        response: b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nback",
        until: "back",
    },
];

const BLOCKS: &str = "
routes:
  - { name: tunnel, path: /tunnel, upgrade: [websocket] }
  - { name: other, path: /** }
workers: 1
";

/// An upstream that sends these bytes behind each head that it has received.
fn answering(response: &'static [u8]) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let mut received = Vec::new();
                let mut byte = [0];
                while stream.read(&mut byte).is_ok_and(|read| read > 0) {
                    received.push(byte[0]);
                    if received.ends_with(b"\r\n\r\n") && stream.write_all(response).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// Begins the exchange of a stage, and waits until it has come so far.
fn begin(gateway: &Gateway, stage: &Stage, key: &Key) -> TcpStream {
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all((stage.request)(&key.text).as_bytes()).unwrap();
    eventually("the exchange is in flight", || gateway.metric("keygate_in_flight") == 1.0);
    let mut received = Vec::new();
    while !String::from_utf8_lossy(&received).contains(stage.until) {
        let mut byte = [0];
        assert_eq!(stream.read(&mut byte).unwrap(), 1, "{}", stage.name);
        received.push(byte[0]);
    }
    stream
}

fn assert_ended(gateway: &Gateway, stage: &str, key: &Key) {
    eventually("the slot is free", || gateway.metric("keygate_in_flight") == 0.0);
    eventually("its record has an outcome", || gateway.records().len() == 1);
    assert_eq!(gateway.records()[0].outcome, Outcome::Terminated, "{stage}");
    assert_eq!(Client::connect(gateway.address).get("/", &key.text).status, 401, "{stage}");
}

#[test]
fn exchange_ends_at_every_stage() {
    for stage in &STAGES {
        let (gateway, key) = Gateway::with(&[answering(stage.response)], BLOCKS).and_key();
        let stream = begin(&gateway, stage, &key);
        gateway.revoke(&key);
        // Never a regular end, and never a response that looks whole.
        assert_eq!(end_of(stream), super::End::Reset, "{}", stage.name);
        assert_ended(&gateway, stage.name, &key);
    }
}

#[test]
fn exchange_that_waits_for_a_connection_ends() {
    let upstream = answering(b"");
    let limits = format!("upstream: {{ endpoints: ['http://{upstream}'], connections: {{ max: 1 }} }}\n");
    let gateway = Gateway::with(&[], &format!("{BLOCKS}{limits}"));
    let (holder, key) = (gateway.key(), gateway.key());
    let held = begin(&gateway, &STAGES[0], &holder);
    let mut waiting = TcpStream::connect(gateway.address).unwrap();
    waiting.set_read_timeout(Some(PATIENCE)).unwrap();
    waiting.write_all(get(&key.text).as_bytes()).unwrap();
    eventually("the exchange is in flight", || gateway.metric("keygate_in_flight") == 2.0);
    gateway.revoke(&key);
    assert_eq!(end_of(waiting), super::End::Reset);
    eventually("the slot is free", || gateway.metric("keygate_in_flight") == 1.0);
    gateway.revoke(&holder);
    assert_eq!(end_of(held), super::End::Reset);
}

#[test]
fn request_that_is_not_admitted_yet_is_refused() {
    let gateway = Gateway::with(&[answering(b"HTTP/1.1 204 No Content\r\n\r\n")], BLOCKS);
    let (within, behind) = (gateway.key(), gateway.key());
    // Within its head, and kept alive behind an exchange that was served.
    let request = get(&within.text);
    let (first, rest) = request.split_at(request.len() - 2);
    let mut unfinished = Client::connect(gateway.address);
    unfinished.send(first);
    let mut kept = Client::connect(gateway.address);
    assert_eq!(kept.get("/", &behind.text).status, 204);
    gateway.revoke(&within);
    gateway.revoke(&behind);
    assert_eq!(unfinished.send(rest).response().status, 401);
    assert_eq!(kept.get("/", &behind.text).status, 401);
}
