//! A page that opens a WebSocket with a key: scripts set no fields there, and offer it among the subprotocols.

use std::io::Write as _;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::json;

use crate::browser::Browser;
use crate::cors::site;
use crate::support::page::block;
use crate::support::{Gateway, Upstream};

/// An upstream that accepts every WebSocket, and sends one message (RFC 6455, sections 4.2.2 and 5.7).
fn greeting() -> Upstream {
    Upstream::answering(|received, stream| {
        let challenge = received.header("sec-websocket-key").unwrap_or_default();
        let accept = format!("{challenge}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
        let accept = STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, accept.as_bytes()));
        let head = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n";
        stream.write_all(format!("{head}sec-websocket-accept: {accept}\r\n\r\n").as_bytes()).ok();
        stream.write_all(b"\x81\x05hello").ok();
    })
}

#[test]
fn page_opens_a_websocket_with_its_key_and_not_without() {
    let (app, upstream) = (site(), greeting());
    let gateway = Gateway::with(&[upstream.address], &block("# Pages open WebSockets with a key."));
    let key = gateway.key().text;
    let browser = Browser::start();
    browser.go(&format!("http://{}", app.address));
    let url = format!("ws://{}/chat", gateway.address);
    let open = |opening: &str| {
        browser.script_until_done(&format!(
            "const apiKey = {key:?};
             {opening}
             socket.onmessage = (event) => done({{ data: event.data, protocol: socket.protocol }});
             socket.onclose = (event) => done({{ closed: event.code }});"
        ))
    };
    let opening = block("// A WebSocket with a key.").replace("wss://api.example.com/chat", &url);
    assert_eq!(open(&opening), json!({ "data": "hello", "protocol": "keygate.v1" }));
    let encoded = format!("keygate.key.{}", URL_SAFE_NO_PAD.encode(&key));
    for offer in [json!(["keygate.v1"]), json!([]), json!([encoded]), json!(["keygate.v1", encoded, "keygate.key.x"])] {
        let opening = format!("const socket = new WebSocket({url:?}, {offer});");
        assert_eq!(open(&opening), json!({ "closed": 1006 }), "refused before it is open");
    }
    let received = upstream.received();
    assert_eq!(received.len(), 1);
    assert!(received[0].headers.iter().all(|(_, value)| !value.contains(&key) && !value.contains("keygate.")));
}
