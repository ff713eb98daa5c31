//! SIGTERM: not ready at once, then the lame duck, then the drain of exchanges in flight, and exit code 0.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::{Mutex, mpsc};

use crate::support::{Client, KEYGATE, Setup, Upstream, eventually, exit_status, head};

#[test]
fn drain_finishes_exchanges_in_flight_and_accepts_no_connection() {
    let (release, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let upstream = Upstream::answering(move |request, stream| {
        if request.path() == "/slow" {
            wait.lock().unwrap().recv().unwrap();
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").ok();
    });
    let (setup, key) = Setup::new(upstream.address, "").and_key();
    let mut gateway = setup.start();
    let mut idle = setup.client();
    assert_eq!(idle.get("/", &key).status, 200);
    let mut slow = setup.client();
    slow.send(head("GET", "/slow", &key, &[], 0));
    eventually("both requests are at the upstream", || upstream.count() == 2);
    let mut admin = Client::connect(setup.admin);
    assert_eq!(admin.get("/ready", "").status, 200);

    gateway.terminate();
    not_ready(&setup);
    assert!(idle.is_closed(), "idle connections are closed");
    release.send(()).unwrap();
    let response = slow.response();
    assert_eq!((response.status, response.body), (200, b"ok".to_vec()));
    assert_eq!(gateway.wait(), 0);
    assert!(std::net::TcpStream::connect(setup.address).is_err());
    setup.ok(&["audit", "verify"]);
}

#[test]
fn drain_ends_after_the_grace_period() {
    let upstream = Upstream::answering(|_, _| {});
    let (setup, key) = Setup::new(upstream.address, "timeouts: { lame_duck: 0s, drain: 300ms }").and_key();
    let mut gateway = setup.start();
    let mut client = setup.client();
    client.send(head("GET", "/never", &key, &[], 0));
    eventually("the request is at the upstream", || upstream.count() == 1);
    gateway.terminate();
    assert_eq!(gateway.wait(), 0);
    assert!(client.is_closed());
    let records = setup.ok(&["audit", "list", "--json"]);
    assert!(records.contains("\"aborted\""), "{records}");
}

#[test]
fn second_gateway_on_the_same_state_or_address_is_refused() {
    let upstream = Upstream::start();
    let setup = Setup::new(upstream.address, "");
    let _gateway = setup.start();
    let second = setup.keygate(&["serve"]);
    assert!(!second.status.success());
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(said.contains(&setup.address.to_string()), "{said}");
}

#[test]
fn lame_duck_serves_requests_and_asks_clients_to_reconnect() {
    let upstream = Upstream::start();
    let (setup, key) = Setup::new(upstream.address, "timeouts: { lame_duck: 1h }").and_key();
    let mut gateway = setup.start();
    let mut idle = setup.client();
    assert_eq!(idle.get("/", &key).header("connection"), None);
    gateway.terminate();
    not_ready(&setup);
    for client in [&mut idle, &mut setup.client()] {
        // `/ready` fails a little before the workers enter the lame duck.
        while client.get("/", &key).header("connection") != Some("close") {}
        assert!(client.is_closed());
    }
    gateway.terminate();
    assert_eq!(gateway.wait(), 0, "a second signal skips the rest");
}

#[test]
fn each_further_signal_expedites_the_shutdown() {
    let upstream = Upstream::answering(|_, _| {});
    let (setup, key) = Setup::new(upstream.address, "timeouts: { lame_duck: 1h, drain: 1h }").and_key();
    let mut gateway = setup.start();
    let mut client = setup.client();
    client.send(head("GET", "/never", &key, &[], 0));
    eventually("the request is at the upstream", || upstream.count() == 1);
    gateway.terminate();
    not_ready(&setup);
    gateway.hang_up();
    drop(setup.client());
    gateway.signal("INT");
    eventually("the listeners are closed", || std::net::TcpStream::connect(setup.address).is_err());
    not_ready(&setup);
    gateway.terminate();
    assert_eq!(gateway.wait(), 0);
    assert!(client.is_closed());
    let records = setup.ok(&["audit", "list", "--json"]);
    assert!(records.contains("\"aborted\""), "{records}");
    setup.ok(&["audit", "verify"]);
}

/// Ctrl-C on a terminal.
#[test]
fn interrupt_from_a_terminal_skips_the_lame_duck() {
    let upstream = Upstream::start();
    let setup = Setup::new(upstream.address, "timeouts: { lame_duck: 1h }");
    let config = setup.path().join("keygate.yaml");
    let serve = format!("exec '{KEYGATE}' serve --config '{}'", config.display());
    let mut terminal = Command::new("script")
        .args(["-qec", &serve, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    while !setup.keygate(&["health"]).status.success() {
        assert!(terminal.try_wait().unwrap().is_none(), "it runs");
    }
    terminal.stdin.as_mut().unwrap().write_all(b"\x03").unwrap();
    assert_eq!(exit_status(&mut terminal).code(), Some(0));
}

fn not_ready(setup: &Setup) {
    let ready = || Client::connect(setup.admin).get("/ready", "");
    eventually("it is not ready", || ready().status == 503);
    assert!(String::from_utf8(ready().body).unwrap().contains("draining"));
}
