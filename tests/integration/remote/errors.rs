//! Errors of commands with `--server`: exit statuses, and no word of the token.

use std::io::Write as _;
use std::net::TcpListener;
use std::thread;

use super::*;

#[test]
fn problems_have_the_text_and_exit_status_of_the_admin_socket() {
    let fixture = Fixture::start();
    fixture.local("org create acme");
    fixture.local("user create --org acme ada@example.com");
    for (line, code) in [
        ("org show nix", 1),
        ("key show abcDEF123", 1),
        ("org create acme", 1),
        ("org limits acme --concurrent 0", 2),
        ("user suspend --org acme bob@example.com", 1),
        ("key find d6ca0a5d362fdab49bbf5e6e0a6f03e8f281d6476eef09cf9c1989804e9aea03", 1),
    ] {
        let [local, remote] = [fixture.local(line), fixture.remote(line)];
        assert_eq!(local.code, code, "{local:?}");
        assert_eq!(remote, local, "{line}");
    }
    fixture.token("reader", "token create reader --allow orgs:read");
    let refused = fixture.with_token("reader", "org create other", "");
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.err.contains("does not have the scope `orgs:write`"), "{refused:?}");
}

#[test]
fn operation_without_a_call_says_why() {
    let fixture = Fixture::start();
    for line in ["audit verify", "audit export", "audit tail"] {
        let refused = fixture.remote(line);
        assert_eq!(refused.code, 2, "{line}: {refused:?}");
        assert!(refused.err.contains("on the machine of the gateway, without --server"), "{refused:?}");
    }
    let refused = fixture.remote("session list");
    assert!(refused.code == 2 && refused.err.contains("unexpected argument '--server'"), "{refused:?}");
}

#[test]
fn server_is_verified_and_named_once() {
    let fixture = Fixture::start();
    let token = fixture.files.path().join("token");
    let with = |server: &str, more: &[&str]| {
        let mut options = vec!["--token-file".as_ref(), token.as_path(), "--server".as_ref(), server.as_ref()];
        options.extend(more.iter().map(Path::new));
        run("org list", fixture.files.path(), &options, "")
    };
    let server = format!("https://{}", fixture.api());
    let secret = fs::read_to_string(&token).unwrap();
    let unverified = with(&server, &[]);
    assert_eq!(unverified.code, 69, "{unverified:?}");
    assert!(unverified.err.contains("certificate"), "{unverified:?}");
    let plain = with("http://192.0.2.1:80", &[]);
    assert!(plain.code == 2 && plain.err.contains("must begin with https://"), "{plain:?}");
    let both = with(&server, &["--socket", "admin.sock"]);
    assert!(both.code == 2 && both.err.contains("either --server or --socket"), "{both:?}");
    let gone = with("https://127.0.0.1:1", &[]);
    assert_eq!(gone.code, 69, "{gone:?}");
    for ended in [unverified, plain, both, gone] {
        assert!(!ended.err.contains(secret.trim()) && ended.out.is_empty(), "{ended:?}");
    }
}

#[test]
fn token_that_requires_a_certificate_is_sent_with_it() {
    let fixture = Fixture::with(", client_ca: FILES/ca.pem");
    fixture.token("bound", "token create bound --allow orgs:read --client-san pipeline.example");
    fixture.token("other", "token create other --allow orgs:read --client-san other.example");
    let [certificate, key] = ["client.pem", "client.key"].map(|name| fixture.files.path().join(name));
    let certified = format!("org list --client-cert {} --client-key {}", certificate.display(), key.display());
    assert_eq!(fixture.with_token("bound", &certified, "").code, 0);
    let refused = fixture.with_token("other", &certified, "");
    assert!(refused.code == 1 && refused.err.contains("certificate"), "{refused:?}");
    assert_eq!(fixture.with_token("bound", "org list", "").code, 69, "no connection without a certificate");
    let half = format!("org list --client-cert {}", certificate.display());
    assert!(fixture.with_token("bound", &half, "").err.contains("--client-key"));
}

#[test]
fn environment_names_the_server_and_the_token() {
    let fixture = Fixture::start();
    fs::set_permissions(fixture.files.path().join("token"), fs::Permissions::from_mode(0o644)).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_keygate"))
        .args(["org", "list", "--json", "--ca"])
        .arg(fixture.files.path().join("ca.pem"))
        .env("KEYGATE_SERVER", format!("https://{}", fixture.api()))
        .env("KEYGATE_TOKEN_FILE", fixture.files.path().join("token"))
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "{\"items\":[]}\n");
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(err.contains("every user of this machine can read") && err.contains("chmod 600"), "{err}");
}

/// A server that closes its first connections after it has read a request, and answers the next one with this head and
/// body. Returns the heads of the requests.
fn flaky(closed: usize, head: &str, body: &str) -> (String, thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let answer = format!("HTTP/1.1 {head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let serving = thread::spawn(move || {
        let mut heads = Vec::new();
        for number in 0..=closed {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = vec![0; 4096];
            let length = std::io::Read::read(&mut stream, &mut head).unwrap();
            heads.push(String::from_utf8_lossy(&head[..length]).into_owned());
            if number == closed && answer.len() > 40 {
                stream.write_all(answer.as_bytes()).unwrap();
            }
        }
        heads
    });
    (server, serving)
}

impl Fixture {
    /// Runs a command against a server, with the token.
    fn at(&self, server: &str, line: &str) -> Ended {
        let token = self.files.path().join("token");
        let options: [&Path; 4] = ["--server".as_ref(), server.as_ref(), "--token-file".as_ref(), &token];
        run(line, self.files.path(), &options, "")
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

#[test]
fn creation_is_sent_once_more_with_its_idempotency_key() {
    let fixture = Fixture::start();
    let org = concat!(
        r#"{"id":"org_0197c1de000070008000000000000001","name":"acme","tag":"aB3","suspended":false,"#,
        r#""concurrent":null,"concurrent_in_force":100,"created":"2026-11-20T21:08:00.000001Z"}"#,
    );
    let (server, serving) = flaky(1, "201 Created", org);
    let created = fixture.at(&server, "org create acme");
    assert_eq!(created.code, 0, "{created:?}");
    let heads = serving.join().unwrap();
    let keys: Vec<_> = heads.iter().map(|head| header(head, "idempotency-key").unwrap()).collect();
    assert!(keys.len() == 2 && keys[0] == keys[1] && keys[0].len() == 38, "{keys:?}");

    // A change that has no such key is not sent again.
    let (server, serving) = flaky(0, "", "");
    let unanswered = fixture.at(&server, "org suspend acme");
    assert_eq!((unanswered.code, serving.join().unwrap().len()), (69, 1), "{unanswered:?}");
    assert!(unanswered.err.contains("check whether the change was made"), "{unanswered:?}");
}

#[test]
fn secret_that_was_lost_with_the_connection_is_not_taken_for_one() {
    let fixture = Fixture::start();
    let head = "201 Created\r\nidempotent-replayed: true";
    let (server, serving) = flaky(1, head, r#"{"id":"abcDEF123","key":null}"#);
    let lost = fixture.at(&server, "key create --org acme --user ada@example.com ci");
    assert_eq!((lost.code, lost.out.as_str()), (1, ""), "{lost:?}");
    assert!(lost.err.contains("keygate key rotate abcDEF123"), "{lost:?}");
    drop(serving.join());
}

#[test]
fn retry_after_of_a_refusal_is_told() {
    let fixture = Fixture::start();
    let problem = concat!(
        r#"{"type":"about:blank","title":"Too Many Requests","status":429,"detail":"Too many.","#,
        r#""code":"too_many_requests"}"#,
    );
    let (server, serving) = flaky(0, "429 Too Many Requests\r\nretry-after: 60", problem);
    let refused = fixture.at(&server, "org list");
    assert_eq!(refused.code, 75, "{refused:?}");
    assert_eq!(refused.err, "keygate: too many (try again after 60 s)\n");
    drop(serving.join());
}

/// A server that gives each page the same cursor ends the command, instead of keeping it busy for ever.
#[test]
fn list_ends_when_a_cursor_repeats() {
    let files = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || repeat_page(stream.unwrap()));
        }
    });
    let token = domain::management_token::PlainToken::generate().unwrap();
    fs::write(files.path().join("token"), token.expose().expose()).unwrap();
    fs::set_permissions(files.path().join("token"), fs::Permissions::from_mode(0o600)).unwrap();
    for line in ["org list", "user list --org acme", "token list", "audit list --limit 1000"] {
        let token = files.path().join("token");
        let options: [&Path; 4] = ["--token-file".as_ref(), &token, "--server".as_ref(), server.as_ref()];
        let ended = run(line, files.path(), &options, "");
        assert_eq!(ended.code, 1, "{line}: {ended:?}");
        assert!(ended.err.contains("repeats a page"), "{line}: {ended:?}");
    }
}

/// Answers each request of a connection with the same page.
fn repeat_page(stream: std::net::TcpStream) {
    let page = r#"{"items":[],"nextCursor":"again","gateway":"g"}"#;
    let mut reader = std::io::BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    while std::io::BufRead::read_line(&mut reader, &mut line).is_ok_and(|length| length > 0) {
        if line == "\r\n" {
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length";
            drop(write!(&stream, "{head}: {}\r\n\r\n{page}", page.len()));
        }
        line.clear();
    }
}
