//! `credentials.websocket_protocol`: a key among the subprotocols that a page offers for a WebSocket.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::bare;
use crate::support::{Client, Gateway, Upstream, eventually};

const BLOCKS: &str = "credentials: { headers: [X-API-Key], websocket_protocol: keygate.v1 }
telemetry: { access_log: { file: access.log } }
limits: { key: { requests: 1000000, per: 1s }, bad_keys: { requests: 1000000, per: 1s } }
routes:
  - { name: chat, path: /chat, upgrade: [websocket] }
  - { name: own, path: /own, upgrade: [websocket], pass_authorization: true }
  - { name: rest, path: '/**' }
";

/// An upstream that opens every WebSocket; with the subprotocol `chat` if that is offered.
fn upstream() -> Upstream {
    Upstream::answering(|received, stream| {
        let protocol = received.header("sec-websocket-protocol").filter(|offered| offered.contains("chat"));
        let chosen = protocol.map_or("", |_| "sec-websocket-protocol: chat\r\n");
        let switching = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n";
        let answer = match received.header("upgrade") {
            Some(_) => format!("{switching}{chosen}\r\n"),
            None => "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_owned(),
        };
        stream.write_all(answer.as_bytes()).ok();
    })
}

/// Offers subprotocols, in which `KEY` is that of a key, and returns the status and the one that was chosen.
fn open(gateway: &Gateway, path: &str, key: &str, offer: &str, other: &[(&str, &str)]) -> (u16, Option<String>) {
    let encoded = format!("keygate.key.{}", URL_SAFE_NO_PAD.encode(key));
    let offer = offer.replace("KEY", &encoded);
    let fields = [("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Protocol", &*offer)];
    let mut client = Client::connect(gateway.address);
    client.send(bare("GET", path, &[&fields, other].concat()));
    let (status, headers) = client.head().unwrap();
    let chosen = headers.into_iter().find(|(name, _)| name == "sec-websocket-protocol");
    (status, chosen.map(|(_, value)| value))
}

#[test]
fn key_in_the_offer_of_a_websocket_is_one_credential_and_seen_nowhere() {
    let upstream = upstream();
    let (gateway, key) = Gateway::with(&[upstream.address], BLOCKS).and_key();
    let text = &*key.text;
    let bearer = format!("Bearer {text}");
    let marker = || Some("keygate.v1".to_owned());
    for (path, offer, other, status, chosen) in [
        ("/chat", "keygate.v1, KEY", &[][..], 101, marker()),
        ("/chat", "KEY, chat, keygate.v1", &[], 101, Some("chat".to_owned())),
        ("/chat", "keygate.v1, KEY, other", &[], 101, marker()),
        ("/own", "keygate.v1, KEY", &[("Authorization", "Bearer of-the-upstream")], 101, marker()),
        // One credential in all places together.
        ("/chat", "keygate.v1, KEY, KEY", &[], 400, None),
        ("/chat", "keygate.v1, KEY", &[("Authorization", &*bearer)], 400, None),
        ("/chat", "keygate.v1, KEY", &[("X-API-Key", text)], 400, None),
        ("/own", "keygate.v1, KEY", &[("X-API-Key", text)], 400, None),
        ("/chat", "keygate.v1, keygate.key.", &[], 400, None),
        ("/chat", "keygate.v1, keygate.key.c2s_", &[], 401, None),
        // Without the marker, or on another route, an entry with a key is no credential, and not forwarded either.
        ("/chat", "KEY", &[], 401, None),
        ("/rest", "keygate.v1, KEY", &[], 401, None),
        ("/chat", "KEY", &[("Authorization", &*bearer)], 101, None),
        ("/rest", "keygate.v1, KEY", &[("Authorization", &*bearer)], 200, None),
    ] {
        assert_eq!(open(&gateway, path, text, offer, other), (status, chosen), "{path}, {offer}, {other:?}");
    }
    let encoded = URL_SAFE_NO_PAD.encode(text);
    let received = upstream.received();
    assert_eq!(received.len(), 6, "{received:?}");
    for request in &received {
        let has_secret = |text: &str| text.contains(&*key.text) || text.contains(&encoded) || text.contains("keygate.");
        let of_request = request.headers.iter().filter(|(name, _)| !name.starts_with("x-"));
        let seen: Vec<_> = of_request.filter(|(_, value)| has_secret(value)).collect();
        assert!(seen.is_empty(), "{seen:?}");
    }
    let offers: Vec<_> = received.iter().filter_map(|request| request.header("sec-websocket-protocol")).collect();
    assert_eq!(offers, ["chat", "other"], "the upstream sees the rest");
    assert_eq!(received[3].header("authorization"), Some("Bearer of-the-upstream"));
    let log = || std::fs::read_to_string(gateway.dir.path().join("access.log")).unwrap_or_default();
    eventually("the lines of refusals and of the plain request are written", || log().lines().count() >= 9);
    let log = log();
    let audit = format!("{:?}", gateway.records());
    for text in [&*key.text, &encoded] {
        assert!(!log.contains(text) && !audit.contains(text), "{log}\n{audit}");
    }
}

#[test]
fn without_the_setting_an_offer_is_the_upstreams() {
    let upstream = upstream();
    let blocks = BLOCKS.replace(", websocket_protocol: keygate.v1", "");
    let (gateway, key) = Gateway::with(&[upstream.address], &blocks).and_key();
    assert_eq!(open(&gateway, "/chat", &key.text, "keygate.v1, KEY", &[]), (401, None));
    let bearer = [("Authorization", &*format!("Bearer {}", key.text))];
    assert_eq!(open(&gateway, "/chat", "other", "keygate.v1, chat", &bearer), (101, Some("chat".to_owned())));
    assert_eq!(upstream.received()[0].header("sec-websocket-protocol"), Some("keygate.v1, chat"));
}
