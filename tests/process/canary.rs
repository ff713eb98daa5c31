//! Canary key: a key that is sent in every part of requests must appear nowhere: not in the log at level trace, the
//! metrics, the audit, the output of management, the state, or the process list.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::path::Path;

use domain::key::KeyDigest;

use crate::support::{Client, Setup, Upstream, head};

/// Requests with a key in the `Authorization` field, and in every other place.
pub fn smuggled(key: &str) -> Vec<String> {
    let encoded: String = key.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let halfway = key.replace('_', "%5f");
    let fields = |fields: &[(&str, &str)]| head("GET", "/", key, fields, 0);
    let mut all = vec![
        head("GET", &format!("/{key}/x?key={key}#"), key, &[], 0).replace('#', ""),
        head("GET", &format!("/{encoded}?{encoded}"), key, &[], 0),
        head("GET", &format!("/{halfway}?{halfway}"), key, &[], 0),
        head("GET", &format!("/..;/{key}"), key, &[], 0),
        fields(&[("User-Agent", key), ("Referer", key), ("Cookie", &format!("key={key}"))]),
        fields(&[("X-Api-Key", key), ("X-Forwarded-For", key), ("Forwarded", key), ("X-User-Id", key)]),
        fields(&[("Host", key)]),
        fields(&[("Connection", key), (key, "1")]),
        fields(&[("Authorization", &format!("Bearer {key}"))]),
        fields(&[("Expect", key)]),
        fields(&[("Transfer-Encoding", key)]),
        fields(&[("Content-Length", key)]),
        fields(&[("Upgrade", key), ("Connection", "upgrade")]),
        format!("GET / HTTP/1.1\r\nHost: h\r\nAuthorization: Basic {key}\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {key}x\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: h\r\nAuthorization: {key}\r\n\r\n"),
        format!("{key} / HTTP/1.1\r\nHost: h\r\n\r\n"),
        format!("GET {key} HTTP/1.1\r\nHost: h\r\n\r\n"),
        format!("GET http://{key}@h/ HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {key}\r\n\r\n"),
        format!("GET / {key}\r\n\r\n"),
        format!("GET / HTTP/1.1\r\n{key}\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {key}\r\n folded\r\n\r\n"),
        format!("PROXY TCP4 {key}\r\n"),
        format!("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n{key}{key}"),
    ];
    all.push(format!("{}{key}", head("POST", "/", key, &[], key.len())));
    all.push(format!("{}3\r\n{key}", head("POST", "/", key, &[("Transfer-Encoding", "chunked")], 0)));
    all
}

/// Requests with a key of another system in the listed fields, in heads that are read and in heads that are not. Such a
/// key has no form by which it could be recognized elsewhere.
fn smuggled_in_listed_fields(key: &str) -> Vec<String> {
    let with = |lines: &str| format!("GET /?X-API-Key={key}&apikey={key} HTTP/1.1\r\nHost: h\r\n{lines}\r\n");
    let (plain, long) = (format!("X-API-Key: {key}\r\n"), "x".repeat(70_000));
    let mut all: Vec<String> = [
        plain.clone(),
        format!("x_api.key: {key}\r\n"),
        format!("apikey: \t{key} \r\nConnection: apikey\r\n"),
        format!("{plain}apikey: {key}\r\n"),
        format!("{plain}Authorization: Bearer {key}\r\n"),
        format!("{plain}Cookie: __Host-keygate={key}\r\n"),
        format!("apikey: {key}x\r\n"),
        format!("apikey: {key} {key}\r\n"),
        format!("X-API-Key: {key}\r\n folded\r\n"),
        format!("X-API-Key : {key}\r\n"),
        format!("X-API-Key: {key}\u{1}\r\n"),
        format!("{plain}X: {long}\r\n"),
        format!("{plain}Expect: a miracle\r\n"),
        format!("{plain}Content-Length: 1\r\nContent-Length: 1\r\n"),
    ]
    .map(|lines| with(&lines))
    .into();
    let chunked = with(&format!("{plain}Transfer-Encoding: chunked\r\n")).replacen("GET", "POST", 1);
    all.push(format!("{chunked}1\r\nx\r\n0\r\nX-API-Key: {key}\r\n\r\n"));
    all
}

/// Content of all files below a directory.
fn all_bytes(directory: &Path, into: &mut Vec<(String, Vec<u8>)>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all_bytes(&path, into);
        } else if path.is_file() {
            into.push((path.display().to_string(), fs::read(&path).unwrap()));
        }
    }
}

#[test]
fn key_secret_is_found_only_in_the_response_that_created_it() {
    // The upstream echoes what it receives, as careless services do.
    let upstream = Upstream::answering(|request, stream| {
        let body = format!("{request:?}");
        write!(stream, "HTTP/1.1 200 OK\r\nx-echo: {}\r\ncontent-length: {}\r\n\r\n{body}", request.line, body.len())
            .ok();
    });
    let bad_keys = "limits: { bad_keys: { requests: 10000, per: 1s } }\ntelemetry: { level: trace }\n";
    let (setup, key) = Setup::new(upstream.address, bad_keys).and_key();
    let gateway = setup.start_logged();
    let id = &key["sk_live_".len()..][..9];
    // The whole key is given by mistake where a key id is expected.
    let mistaken = setup.keygate(&["key", "show", &key]);
    for request in smuggled(&key) {
        let mut stream = TcpStream::connect(setup.address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        // The response is not checked here; only that there is one.
        stream.read_to_end(&mut Vec::new()).ok();
    }
    assert_eq!(setup.client().get("/", &key).status, 200);
    setup.ok(&["key", "revoke", id]);
    assert_eq!(setup.client().get("/", &key).status, 401);

    let mut seen = vec![
        ("metrics".to_owned(), Client::connect(setup.admin).get("/metrics", "").body),
        ("a mistaken command".to_owned(), [mistaken.stdout, mistaken.stderr].concat()),
    ];
    for command in
        [&["audit", "list", "--json"][..], &["explain", id], &["key", "show", id], &["key", "list", "--org", "acme"]]
    {
        seen.push((command.join(" "), setup.ok(command).into_bytes()));
    }
    for file in ["cmdline", "environ"] {
        seen.push((file.to_owned(), fs::read(format!("/proc/{}/{file}", gateway.id())).unwrap()));
    }
    gateway.stop();
    all_bytes(setup.path(), &mut seen);
    let talkative =
        |bytes: &[u8]| String::from_utf8_lossy(bytes).lines().filter(|line| line.contains("DEBUG")).count() > 10;
    assert!(
        seen.iter().any(|(name, bytes)| name.ends_with("/log") && talkative(bytes)),
        "the log has no content to search"
    );
    assert!(seen.iter().any(|(name, bytes)| name.contains("/audit/") && bytes.windows(9).any(|w| w == id.as_bytes())));

    // The secret alone would be enough to steal the key, and so would most of it.
    assert_found_nowhere(&seen, &key["sk_live_".len() + 10..][..40]);
}

#[test]
fn key_of_another_system_in_a_listed_field_is_found_nowhere() {
    const IMPORTED: &str = "Zm9yZWlnbi1jYW5hcnkta2V5LTEyMzQ1Njc4OQ";
    let upstream = Upstream::start();
    let blocks = "credentials: { headers: [X-API-Key, apikey] }\ntelemetry: { level: trace }\n\
                  routes: [{ name: all, path: '/**', query_in_audit: true }]\n";
    let setup = Setup::new(upstream.address, blocks);
    setup.key();
    let gateway = setup.start_logged();
    let sha256 = KeyDigest::of(IMPORTED.as_bytes()).to_hex();
    setup.ok(&["key", "import", "--org", "acme", "--user", "ada@example.com", "--sha256", &sha256, "old"]);
    for request in smuggled_in_listed_fields(IMPORTED) {
        let mut client = Client::connect(setup.address);
        // The gateway may refuse the request before it has read it all.
        client.try_send(&request).ok();
        client.try_response_to("GET").ok();
    }
    assert!(upstream.count() >= 4, "keys alone in their field are admitted: {}", upstream.count());
    for received in upstream.received() {
        assert!(!received.headers.iter().any(|(_, value)| value.contains(IMPORTED)), "{received:?}");
    }
    let metrics = Client::connect(setup.admin).get("/metrics", "").body;
    let mut seen = vec![("metrics".to_owned(), metrics)];
    seen.push(("audit list".to_owned(), setup.ok(&["audit", "list", "--json"]).into_bytes()));
    gateway.stop();
    all_bytes(setup.path(), &mut seen);
    assert!(seen.iter().any(|(name, bytes)| name == "audit list" && bytes.windows(8).any(|w| w == b"REDACTED")));
    assert_found_nowhere(&seen, IMPORTED);
}

#[track_caller]
fn assert_found_nowhere(seen: &[(String, Vec<u8>)], secret: &str) {
    for (name, bytes) in seen {
        let found = bytes.windows(secret.len()).position(|window| window == secret.as_bytes());
        let around = found.map(|at| String::from_utf8_lossy(&bytes[at.saturating_sub(200)..at]).into_owned());
        assert_eq!(around, None, "the key is in {name}");
    }
}
