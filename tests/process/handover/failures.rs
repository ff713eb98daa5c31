//! Hand-overs that fail: the old process goes on as if nothing had happened.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use super::{BLOCKS, Backend, Lineage};
use crate::support::{Client, Setup, head, until};

/// A process that speaks the protocol of a hand-over as far as the test wants.
struct Impostor(UnixStream);

impl Impostor {
    fn connect(lineage: &Lineage, version: u32) -> Self {
        let setup = &lineage.setup;
        let mut stream = UnixStream::connect(setup.path().join("admin.sock")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
            .write_all(
                b"POST /v1/handover HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: keygate-handover\r\n\r\n",
            )
            .unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.extend(byte);
        }
        assert!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
        let identity = serde_json::json!({
            "workers": 2, "listen": [setup.address], "admin": setup.admin,
            "state": setup.path().join("state.db"), "audit": setup.path().join("audit"),
        });
        let mut impostor = Self(stream);
        impostor.send(&serde_json::json!({
            "version": version, "program": "0", "pid": 999_999_999, "replaces": true, "identity": identity,
        }));
        impostor
    }

    fn send(&mut self, message: &serde_json::Value) {
        let text = message.to_string();
        let length = u32::try_from(text.len()).unwrap().to_be_bytes();
        self.0.write_all(&[&length, text.as_bytes()].concat()).unwrap();
    }

    fn receive(&mut self) -> serde_json::Value {
        let mut length = [0; 4];
        self.0.read_exact(&mut length).unwrap();
        let mut text = vec![0; u32::from_be_bytes(length) as usize];
        self.0.read_exact(&mut text).unwrap();
        serde_json::from_slice(&text).unwrap()
    }

    /// Connects, when the hand-over before has come to its end.
    fn offered(lineage: &Lineage) -> Self {
        until("the hand-over before has ended", || {
            let mut impostor = Self::connect(lineage, 1);
            let first = impostor.receive();
            if first.get("Refused").is_some() {
                assert!(first.to_string().contains("right now"), "{first}");
                return None;
            }
            impostor.receive_to("Offered");
            Some(impostor)
        })
    }

    /// Receives up to a message.
    fn receive_to(&mut self, wanted: &str) {
        loop {
            let message = self.receive();
            if message == wanted {
                return;
            }
            assert!(message.get("Listeners").is_some(), "{message}");
        }
    }
}

fn start(backend: &Backend) -> (Lineage, String) {
    let setup = Setup::new(backend.upstream.address, BLOCKS);
    let key = setup.key();
    (Lineage::start(setup), key)
}

/// Runs something while a client sends requests, none of which fails; returns their number.
fn under_load(lineage: &Lineage, key: &str, run: impl FnOnce()) -> usize {
    let (stop, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let mut client = Client::connect(lineage.setup.address);
            while !stop.load(Ordering::SeqCst) {
                client.send(head("GET", "/", key, &[], 0));
                let response = client.response();
                assert_eq!((response.status, response.header("connection")), (200, None), "nothing happened");
                answered.fetch_add(1, Ordering::SeqCst);
            }
        });
        run();
        stop.store(true, Ordering::SeqCst);
        client.join().expect("no request fails");
    });
    answered.into_inner()
}

/// Ends the gateway, and checks that tokens and records are those of these requests.
fn check(mut lineage: Lineage, key: &str, answered: usize) {
    assert_eq!(lineage.taken(key), answered);
    lineage.stop();
    assert_eq!(lineage.outcomes().get("completed").copied().unwrap_or(0), answered);
    let names = std::fs::read_dir(lineage.setup.path().join("audit")).unwrap();
    assert!(!names.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with("predecessor-")));
}

#[test]
fn five_binaries_that_fail_at_start_change_nothing() {
    let backend = Backend::start();
    let (lineage, key) = start(&backend);
    let answered = under_load(&lineage, &key, || {
        for binary in ["/bin/false", "/bin/true", "/nonexistent", "/etc/passwd", "/bin/false"] {
            let output = lineage.try_upgrade(&["--binary", binary]);
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(1), "{text}");
            assert!(text.contains("the running gateway goes on as before"), "{text}");
        }
    });
    check(lineage, &key, answered);
}

#[test]
fn configuration_that_needs_a_restart_is_refused() {
    let backend = Backend::start();
    let (lineage, key) = start(&backend);
    let text = lineage.setup.text();
    lineage.setup.write(&text.replace("workers: 2", "workers: 3"));
    let output = lineage.try_upgrade(&[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(lineage.log().contains("another configuration (workers)"), "{}", lineage.log());
    lineage.setup.write(&text);
    let answered = under_load(&lineage, &key, || {});
    check(lineage, &key, answered);
}

#[test]
fn death_of_the_new_process_at_any_step_changes_nothing() {
    let backend = Backend::start();
    let (lineage, key) = start(&backend);
    let answered = under_load(&lineage, &key, || {
        drop(Impostor::connect(&lineage, 1));
        drop(Impostor::offered(&lineage));
        for prepared in [false, true] {
            let mut impostor = Impostor::offered(&lineage);
            impostor.send(&"Ready".into());
            impostor.receive_to("Locks");
            if prepared {
                impostor.send(&"Prepared".into());
                impostor.receive_to("Commit");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    assert!(answered > 0);
    // The gateway that goes on can be replaced.
    drop(Impostor::offered(&lineage));
    let replaced = until("the hand-over before has ended", || {
        lineage.try_upgrade(&[]).status.success().then(|| lineage.first.id())
    });
    let mut lineage = lineage;
    lineage.wait_for_end(replaced);
    check(lineage, &key, answered);
}

#[test]
fn silence_of_the_new_process_is_given_up_and_waiting_requests_are_answered() {
    let backend = Backend::start();
    let (lineage, key) = start(&backend);
    let answered = under_load(&lineage, &key, || {
        let mut silent = Impostor::offered(&lineage);
        silent.send(&"Ready".into());
        silent.receive_to("Locks");
        assert_eq!(silent.0.read(&mut [0]).unwrap(), 0, "the old process closes the connection");
    });
    check(lineage, &key, answered);
}

#[test]
fn another_version_and_a_second_hand_over_are_refused() {
    let backend = Backend::start();
    let (lineage, key) = start(&backend);
    let reason = |mut impostor: Impostor| impostor.receive()["Refused"]["reason"].as_str().unwrap().to_owned();
    assert!(reason(Impostor::connect(&lineage, 2)).contains("not by version 2"));
    let first = Impostor::offered(&lineage);
    assert!(reason(Impostor::connect(&lineage, 1)).contains("another process takes over"));
    drop(first);
    check(lineage, &key, 0);
}
