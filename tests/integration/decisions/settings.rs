//! Settings of listeners for decisions.

use std::io::Read as _;
use std::net::TcpStream;
use std::path::Path;

use keygate::config::Config;

use super::{Asked, Protocol, gateway};
use crate::support::{Client, Gateway, Upstream, until};

const REST: &str = "\nadmin: { socket: a.sock }\nstate: { embedded: { path: s.db } }\naudit: { path: audit }\n";

fn errors(listen: &str) -> String {
    let text = format!("listen: [{{ address: 127.0.0.1:0, {listen} }}]{REST}");
    Config::parse(Path::new("x.yaml"), &text).map_or_else(|errors| errors.to_string(), |_| String::new())
}

#[test]
fn settings_that_do_not_fit_are_errors_that_say_what_to_do() {
    assert_eq!(errors("serves: decisions, decisions: { protocol: nginx, slots: none }"), "", "no upstream is needed");
    for (listen, part) in [
        ("serves: decisions", "needs a block `decisions`"),
        ("serves: decisions, decisions: { protocol: nginx }", "slots"),
        ("serves: decisions, decisions: { slots: none }", "protocol"),
        ("serves: decisions, decisions: { protocol: haproxy, slots: none }", "forward_auth"),
        ("serves: decisions, decisions: { protocol: nginx, slots: { lease: 0s } }", "lease"),
        ("serves: decisions, decisions: { protocol: nginx, slots: { lease: 2h } }", "lease"),
        ("serves: decisions, decisions: { protocol: nginx, slots: none, peers: [0.0.0.0/0] }", "wider than /8"),
        ("serves: decisions, decisions: { protocol: nginx, slots: none, peers: ['2000::/3'] }", "wider than /8"),
        ("serves: decisions, decisions: { protocol: nginx, slots: none, peers: [] }", "is empty"),
        ("decisions: { protocol: nginx, slots: none }", "needs `serves: decisions`"),
        (
            "serves: decisions, proxy_protocol: [127.0.0.1], decisions: { protocol: nginx, slots: none }",
            "is not for decisions",
        ),
    ] {
        let errors = errors(listen);
        assert!(errors.contains(part), "{listen}: {errors}");
    }
    assert!(errors("serves: api").contains("upstream"), "a listener that forwards needs one");
}

#[test]
fn peer_that_may_not_ask_is_closed_without_a_byte_until_a_reload_names_it() {
    let upstream = Upstream::start();
    let gateway = Gateway::with(
        &[upstream.address],
        "\nlisten: [{ address: 127.0.0.1:0, serves: decisions, decisions: { protocol: nginx, slots: none, peers: \
         [192.0.2.0/24] } }]\n",
    );
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    let mut bytes = Vec::new();
    // A reset is an end without a byte, too.
    let read = stream.read_to_end(&mut bytes);
    assert!(bytes.is_empty() && !matches!(read, Ok(1..)), "{read:?}");
    assert_eq!(gateway.metric("keygate_connections_refused_total{reason=\"peer\"}"), 1.0);
    gateway.reconfigure(|text| text.replace("192.0.2.0/24", "127.0.0.1"));
    // The workers take the new configuration one after the other.
    let ask = || {
        let mut client = Client::connect(gateway.address);
        client.try_send("GET /v1/nginx/GET/ HTTP/1.1\r\nhost: h\r\nx-forwarded-for: 192.0.2.9\r\n\r\n").ok()?;
        client.try_response_to("GET").ok()
    };
    assert_eq!(until("the peer may ask", ask).status, 401);
}

#[test]
fn decisions_are_served_by_their_listeners_alone() {
    let upstream = Upstream::start();
    let (gateway, key) = gateway(&upstream, "none", "").and_key();
    let forwarded = Protocol::Nginx.ask(gateway.address, Asked::get("/a", &key.text));
    assert_eq!(forwarded.status, 200, "a path of the upstream, on the listener of the API");
    assert_eq!(upstream.count(), 1);
}
