//! SIGTERM: not ready at once, what is in flight ends, then exit 0.

use std::io::Write as _;
use std::sync::{Mutex, mpsc};

use crate::client::{Client, head};
use crate::running::Setup;
use crate::upstream::Upstream;

#[test]
fn a_drain_ends_what_is_in_flight_and_takes_nothing_new() {
    let (release, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let upstream = Upstream::answering(move |request, stream| {
        if request.path() == "/slow" {
            wait.lock().unwrap().recv().unwrap();
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").ok();
    });
    let setup = Setup::new(upstream.address, "");
    let key = setup.key();
    let mut gateway = setup.start();
    let mut idle = setup.client();
    assert_eq!(idle.get("/", &key).status, 200);
    let mut slow = setup.client();
    slow.send(head("GET", "/slow", &key, &[], 0));
    while upstream.count() < 2 {
        std::thread::yield_now();
    }
    let mut admin = Client::connect(setup.admin);
    assert_eq!(admin.get("/ready", "").status, 200);

    gateway.terminate();
    let draining = loop {
        let response = Client::connect(setup.admin).get("/ready", "");
        if response.status != 200 {
            break response;
        }
    };
    assert_eq!(draining.status, 503);
    assert!(String::from_utf8(draining.body).unwrap().contains("draining"));
    assert!(idle.is_closed(), "idle connections are closed");
    release.send(()).unwrap();
    let response = slow.response();
    assert_eq!((response.status, response.body), (200, b"ok".to_vec()));
    assert_eq!(gateway.wait(), 0);
    assert!(std::net::TcpStream::connect(setup.address).is_err());
    setup.ok(&["audit", "verify"]);
}

#[test]
fn the_grace_period_ends_it_all_the_same() {
    let upstream = Upstream::answering(|_, _| {});
    let setup = Setup::new(upstream.address, "timeouts: { lame_duck: 0s, drain: 300ms }");
    let key = setup.key();
    let mut gateway = setup.start();
    let mut client = setup.client();
    client.send(head("GET", "/never", &key, &[], 0));
    while upstream.count() < 1 {
        std::thread::yield_now();
    }
    gateway.terminate();
    assert_eq!(gateway.wait(), 0);
    assert!(client.is_closed());
    let records = setup.ok(&["audit", "list", "--json"]);
    assert!(records.contains("\"aborted\""), "{records}");
}

#[test]
fn a_second_gateway_on_the_same_state_or_address_is_refused() {
    let upstream = Upstream::start();
    let setup = Setup::new(upstream.address, "");
    let _gateway = setup.start();
    let second = setup.keygate(&["serve"]);
    assert!(!second.status.success());
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(said.contains(&setup.address.to_string()), "{said}");
}
