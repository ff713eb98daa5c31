//! `docs/development/design/retry.md`: requests whose connection breaks before the response.

use std::io::Write as _;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

use super::LIMITS;
use super::records::Records;
use super::stage::{Stage, state};
use crate::support::upstream::Received;
use crate::support::upstream_blocks::endpoints;
use crate::support::{Client, Gateway, Story, Upstream, eventually, head};

/// Endpoints that break connections.
struct Breaking {
    seen: Mutex<Seen>,
    changed: Condvar,
}

#[derive(Default)]
struct Seen {
    /// The endpoint, method and path, and id of each request, in the order of arrival.
    requests: Vec<(usize, String, String)>,
    /// The second try of GET /1 is answered.
    released: bool,
}

impl Breaking {
    fn endpoint(self: &Arc<Self>, endpoint: usize) -> Upstream {
        let shared = Arc::clone(self);
        Upstream::answering(move |received, stream| shared.serve(endpoint, received, stream))
    }

    /// Answers the second try of GET /1 once it is released; breaks the connection of every other try.
    fn serve(&self, endpoint: usize, received: &Received, stream: &mut TcpStream) {
        let words: Vec<&str> = received.line.split(' ').take(2).collect();
        let (name, id) = (words.join(" "), received.header("x-request-id").unwrap().to_owned());
        let mut seen = self.seen.lock().unwrap();
        let is_second = seen.requests.iter().any(|(_, _, before)| *before == id);
        seen.requests.push((endpoint, name.clone(), id));
        if is_second && name == "GET /1" {
            drop(self.changed.wait_while(seen, |seen| !seen.released).unwrap());
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").ok();
        } else {
            stream.shutdown(Shutdown::Both).ok();
        }
    }

    /// The tries of a request, the endpoint of its first one being the first.
    fn tries(&self, name: &str) -> String {
        let seen = self.seen.lock().unwrap();
        let tries: Vec<usize> = seen.requests.iter().filter(|(_, seen, _)| seen == name).map(|seen| seen.0).collect();
        let names = tries.iter().map(|endpoint| if *endpoint == tries[0] { "E1" } else { "E2" });
        names.collect::<Vec<_>>().join(", ")
    }

    fn release(&self) {
        self.seen.lock().unwrap().released = true;
        self.changed.notify_all();
    }
}

fn sent_again(gateway: &Gateway) -> f64 {
    let name = "keygate_upstream_retries_by_reason_total{reason=\"broken\",upstream=\"default\"}";
    gateway.metric_if_there(name).unwrap_or_default()
}

#[test]
fn request_whose_connection_breaks_goes_as_its_page_tells_it() {
    let stage = Stage::start(1);
    let server = &stage.servers[0];
    let breaking = Arc::new(Breaking { seen: Mutex::default(), changed: Condvar::new() });
    let upstreams = [breaking.endpoint(0), breaking.endpoint(1)];
    let addresses: Vec<SocketAddr> = upstreams.iter().map(|upstream| upstream.address).collect();
    let never_ejected = "outlier: { server_errors: 0, gateway_errors: 0, timeouts: 0 }";
    let upstream = format!("{{ {}, balance: {{ policy: round_robin }}, {never_ejected} }}", endpoints(&addresses));
    let state = state(server.address(), "10s");
    let gateway = Gateway::with(&[], &format!("{LIMITS}workers: 1\nstate: {state}\nupstream: {upstream}\n"));
    let key = gateway.key();
    let records = Records::of(&key, stage.zero());
    let mut story = Story::of("retry.md");
    story.tell(format!("{:<9} {:<7} {:<24} sent again  tokens  slots", "request", "tries", "the client"));
    let mut tell = |request: &str, client: &str| {
        let (tries, numbers, again) = (breaking.tries(request), records.read(server), sent_again(&gateway));
        let (tokens, taken) = (numbers.tokens, numbers.taken);
        story.tell(format!("{request:<9} {tries:<7} {client:<24} {again:>10}  {tokens:>6}  {taken:>5}"));
    };

    let mut client = Client::connect(gateway.address);
    client.send(head("GET", "/1", &key.text, &[], 0));
    eventually("the request is sent again", || breaking.tries("GET /1") == "E1, E2");
    eventually("the retry is counted", || sent_again(&gateway) == 1.0);
    tell("GET /1", "waits");
    breaking.release();
    let response = client.response();
    assert_eq!(response.status, 200);
    let is_free = || eventually("the released slot is reported", || records.read(server).taken == 0);
    is_free();
    tell("GET /1", "200");
    for (method, path) in [("POST", "/2"), ("GET", "/3")] {
        let response = Client::connect(gateway.address).request(method, path, &key.text, &[], b"");
        is_free();
        tell(&format!("{method} {path}"), &format!("{} {}", response.status, response.code()));
    }
    story.tell("");
    story.tell("audit records, oldest first:");
    let mut uses = gateway.records();
    uses.reverse();
    for record in uses {
        let outcome = serde_json::to_value(record.outcome).unwrap();
        let (outcome, status) = (outcome.as_str().unwrap().to_owned(), record.status.unwrap());
        story.tell(format!("{:<9} {outcome}, {status}", format!("{} {}", record.method, record.path)));
    }
    story.end();
}
