//! A key in a field of its own over HTTP/1.1: in every spelling, with hostile heads around it, and however the bytes
//! are split.

use domain::management_token::PlainToken;

use super::{BLOCKS, SPELLINGS, assert_unseen, bare, import, start};
use crate::support::{Client, Gateway, Upstream, eventually, head};

#[test]
fn key_in_a_listed_field_is_admitted_and_the_field_removed() {
    let upstream = Upstream::start();
    let (gateway, key) = start(&upstream).and_key();
    let mut client = Client::connect(gateway.address);
    for name in SPELLINGS {
        for value in [key.text.clone(), format!(" \t{}\t ", key.text)] {
            for connection in ["keep-alive".to_owned(), format!("keep-alive, {name}")] {
                let fields = [(name, value.as_str()), ("Connection", &connection), ("X-Own", "kept")];
                let response = client.send(bare("GET", "/a", &fields)).response();
                assert_eq!(response.status, 200, "{name}: {response:?}");
                let received = upstream.last();
                assert_eq!(received.header("x-key-id"), Some(key.id.as_str()), "{name}");
                assert_eq!(received.header("x-auth-method"), Some("api-key"), "{name}");
                assert_eq!(received.header("x-own"), Some("kept"), "{name}");
            }
        }
    }
    assert_eq!(client.get("/", &key.text).status, 200, "Authorization is read as before");
    assert_unseen(&upstream, &key.text);
    assert_eq!(gateway.records().len(), upstream.count());
    assert!(gateway.records().iter().all(|record| record.key_id == Some(key.id)));
}

#[test]
fn field_that_is_not_listed_is_no_credential_and_goes_through() {
    let (upstream, gateway, key) = Gateway::with_secret("");
    let mut client = Client::connect(gateway.address);
    let refused = client.send(bare("GET", "/", &[("X-API-Key", &key)])).response();
    assert_eq!((refused.status, refused.code().as_str()), (401, "unauthenticated"));
    assert_eq!(client.request("GET", "/", &key, &[("X-API-Key", "of the upstream")], b"").status, 200);
    assert_eq!(upstream.last().header("x-api-key"), Some("of the upstream"));
}

#[test]
fn invalid_keys_are_refused_as_in_authorization_and_counted_together() {
    let blocks = "credentials: { headers: [X-API-Key] }\nlimits: { bad_keys: { requests: 3, per: 1h } }\n";
    let (_upstream, gateway, key) = Gateway::with_key(blocks);
    let send = |fields: &[(&str, &str)]| {
        let response = Client::connect(gateway.address).send(bare("GET", "/", fields)).response();
        (response.status, response.code())
    };
    let (unknown, malformed) = (gateway.another_key(&key).text.replace("sk_live_", "sk_test_"), "a b");
    for fields in [[("X-API-Key", unknown.as_str())], [("X-API-Key", malformed)], [("X_Api_Key", "unknown")]] {
        assert_eq!(send(&fields), (401, "invalid_token".to_owned()), "{fields:?}");
    }
    assert_eq!(send(&[("X-API-Key", "unknown")]), (429, "too_many_attempts".to_owned()));
    assert_eq!(send(&[("Authorization", "Bearer unknown")]), (429, "too_many_attempts".to_owned()));
    let valid = Client::connect(gateway.address).send(bare("GET", "/", &[("X-API-Key", &key.text)])).response();
    assert_eq!(valid.status, 200, "valid keys are served");
    gateway.revoke(&key);
    assert_eq!(send(&[("X-API-Key", &key.text)]), (429, "too_many_attempts".to_owned()), "as an unknown one");
    assert_eq!(gateway.metric("keygate_auth_total{result=\"revoked\"}"), 1.0);
}

#[test]
fn management_token_is_an_unknown_key_even_if_its_digest_is_imported() {
    let upstream = Upstream::start();
    let gateway = start(&upstream);
    let token = PlainToken::generate().unwrap();
    let text = token.expose().expose();
    import(&gateway, &gateway.key(), text);
    let mut client = Client::connect(gateway.address);
    for field in [("Authorization", &*format!("Bearer {text}")), ("X-API-Key", text)] {
        let response = client.send(bare("GET", &format!("/{text}"), &[field])).response();
        assert_eq!((response.status, response.code().as_str()), (401, "invalid_token"), "{field:?}");
    }
    assert_eq!(upstream.count(), 0);
    // Attempts with what is no key of the state are recorded as such, without the secret.
    eventually("an attempt is recorded", || !gateway.records().is_empty());
    for record in gateway.records() {
        assert_eq!((record.key_id, record.outcome.name()), (None, "unknown"));
        assert!(record.path.starts_with(&format!("/kgm_{}_…", token.id())), "{}", record.path);
    }
}

#[test]
fn key_is_never_read_from_the_query_string_or_the_body() {
    let upstream = Upstream::start();
    let (gateway, key) = start(&upstream).and_secret();
    let mut client = Client::connect(gateway.address);
    for query in [format!("apikey={key}"), format!("X-API-Key={key}"), format!("authorization=Bearer%20{key}")] {
        let response = client.send(bare("GET", &format!("/?{query}"), &[])).response();
        assert_eq!((response.status, response.code().as_str()), (401, "unauthenticated"), "{query}");
    }
    let form = format!("apikey={key}");
    let response =
        client.request("POST", "/", "", &[("Content-Type", "application/x-www-form-urlencoded")], form.as_bytes());
    assert_eq!(response.status, 401);
    assert_eq!(upstream.count(), 0);
}

#[test]
fn field_in_trailers_is_no_credential_and_goes_nowhere() {
    let routes = "routes:\n  - { name: all, path: /**, trailers: true }\n";
    let (upstream, gateway, key) = Gateway::with_secret(&format!("{BLOCKS}{routes}"));
    let chunked = [("Transfer-Encoding", "chunked"), ("TE", "trailers"), ("Trailer", "X-API-Key")];
    let body = format!("2\r\nok\r\n0\r\nX-API-Key: {key}\r\nX_API_Key: {key}\r\n\r\n");
    let response = Client::connect(gateway.address).send(bare("POST", "/", &chunked) + &body).response();
    assert_eq!((response.status, response.code().as_str()), (401, "unauthenticated"));
    let fields = [&chunked[..], &[("X-API-Key", key.as_str())]].concat();
    let mut client = Client::connect(gateway.address);
    // Behind the request with the trailers comes another one on the same connection.
    client.send(bare("POST", "/", &fields) + &body + &bare("GET", "/next", &[("apikey", &key)]));
    assert_eq!([client.response().status, client.response().status], [200, 200]);
    assert_eq!(upstream.count(), 2);
    assert_unseen(&upstream, &key);
}

#[test]
fn each_pipelined_head_has_a_credential_of_its_own_however_the_bytes_are_split() {
    let upstream = Upstream::start();
    let (gateway, key) = start(&upstream).and_secret();
    let field = [("X_API_Key", key.as_str())];
    let expected = [200, 401, 200, 400, 200, 401];
    let heads = [
        bare("GET", "/", &[("X-API-Key", &key)]),
        bare("GET", "/", &[("X-Own", "of the upstream")]),
        head("GET", "/", &key, &[], 0),
        head("GET", "/", &key, &field, 0),
        bare("GET", "/", &[field[0], ("Connection", "X-API-Key, X_API_Key")]),
        bare("GET", "/", &[("X-API-Keys", &key), ("X-API", &key)]),
    ];
    let bytes = heads.concat().into_bytes();
    let answered = |mut client: Client, how: &str| {
        let statuses = expected.map(|_| client.response().status);
        assert_eq!(statuses, expected, "{how}");
    };
    for split in (0..=bytes.len()).step_by(3) {
        let mut client = Client::connect(gateway.address);
        client.send(&bytes[..split]);
        std::thread::yield_now();
        client.send(&bytes[split..]);
        answered(client, &format!("split at {split}"));
    }
    let mut client = Client::connect(gateway.address);
    for byte in &bytes {
        client.send([*byte]);
    }
    answered(client, "byte by byte");
    assert_unseen(&upstream, &key);
}

#[test]
fn body_is_asked_for_only_after_the_key_in_the_field_is_admitted() {
    let upstream = Upstream::start();
    let (gateway, key) = start(&upstream).and_secret();
    let expect = [("Expect", "100-continue"), ("Content-Length", "5")];
    let mut client = Client::connect(gateway.address);
    client.send(bare("POST", "/", &[&expect[..], &[("apikey", &key)]].concat()));
    assert_eq!(client.head().unwrap().0, 100);
    assert_eq!(client.send("hello").response().status, 200);
    assert_eq!(upstream.last().body, b"hello");
    assert_unseen(&upstream, &key);
    for (credential, status) in
        [(&[("apikey", "unknown")][..], 401), (&[("apikey", ""), ("X-API-Key", &key)], 400), (&[("apikey", "")], 400)]
    {
        let mut client = Client::connect(gateway.address);
        let refused = client.send(bare("POST", "/", &[&expect[..], credential].concat())).response();
        assert_eq!((refused.status, refused.header("connection")), (status, Some("close")), "{credential:?}");
    }
    assert_eq!(upstream.count(), 1);
}

#[test]
fn tunnel_is_opened_with_a_key_in_the_field() {
    let upstream = Upstream::answering(|_, stream| {
        use std::io::Write as _;
        stream.write_all(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n").ok();
    });
    let routes = "routes: [{ name: ws, path: /ws, upgrade: [websocket] }]\n";
    let (gateway, key) = Gateway::with(&[upstream.address], &format!("{BLOCKS}{routes}")).and_key();
    let mut client = Client::connect(gateway.address);
    let fields = [("apikey", key.text.as_str()), ("Connection", "Upgrade"), ("Upgrade", "websocket")];
    assert_eq!(client.send(bare("GET", "/ws", &fields)).head().unwrap().0, 101);
    assert_unseen(&upstream, &key.text);
    eventually("the tunnel is in flight", || gateway.explain_in_flight(&key) == 1);
    gateway.revoke(&key);
    client.rest();
}
