//! Requests and tunnels in flight at the process that was replaced: their slots, records and revocations.

use std::collections::BTreeMap;

use super::{BLOCKS, Backend, Lineage, Tunnel, is_running, signal};
use crate::support::{Client, Setup, eventually, head};

fn start(backend: &Backend, concurrent: usize) -> (Lineage, String) {
    let blocks = BLOCKS.replace("concurrent: 100", &format!("concurrent: {concurrent}"));
    let setup = Setup::new(backend.upstream.address, &blocks);
    let key = setup.key();
    (Lineage::start(setup), key)
}

/// Sends a request that ends when the backend is told to.
fn slow(lineage: &Lineage, key: &str) -> Client {
    let mut client = lineage.setup.client();
    client.send(head("GET", "/slow", key, &[], 0));
    client
}

fn status(lineage: &Lineage, key: &str) -> u16 {
    lineage.setup.client().get("/", key).status
}

#[test]
fn slots_of_requests_in_flight_count_at_the_new_process_until_they_end() {
    let backend = Backend::start();
    let (mut lineage, key) = start(&backend, 3);
    let tunnel = Tunnel::open(&lineage.setup, &key);
    let mut waiting = slow(&lineage, &key);
    eventually("the request is at the upstream", || backend.slow() == 1);
    let replaced = lineage.upgrade();
    // Two slots are taken by the old process, and the third one here.
    let mut third = slow(&lineage, &key);
    eventually("the request is at the upstream", || backend.slow() == 2);
    assert_eq!(status(&lineage, &key), 429);
    backend.release(1);
    assert_eq!(waiting.response().status, 200);
    eventually("its slot is free", || status(&lineage, &key) == 200);
    tunnel.close();
    lineage.wait_for_end(replaced);
    backend.release(1);
    assert_eq!(third.response().status, 200);
    lineage.stop();
    let outcomes = lineage.outcomes();
    assert!(outcomes["completed"] >= 4 && outcomes["too_many_in_flight"] >= 1, "{outcomes:?}");
    assert_eq!(outcomes.len(), 2, "{outcomes:?}");
}

#[test]
fn request_on_a_connection_of_the_old_process_is_decided_by_the_new_one() {
    let backend = Backend::start();
    let (mut lineage, key) = start(&backend, 100);
    lineage.setup.write(&lineage.setup.text().replace("lame_duck: 200ms", "lame_duck: 5s"));
    let mut kept = lineage.setup.client();
    assert_eq!(kept.get("/", &key).status, 200);
    eventually("the configuration is in force", || lineage.setup.keygate(&["config", "status"]).status.success());
    let replaced = lineage.upgrade();
    let response = kept.get("/", &key);
    assert_eq!((response.status, response.header("connection")), (200, Some("close")));
    assert_eq!(lineage.taken(&key), 2);
    signal(replaced, "TERM");
    lineage.wait_for_end(replaced);
    lineage.stop();
    assert_eq!(lineage.outcomes(), BTreeMap::from([("completed".to_owned(), 2)]));
}

#[test]
fn revocation_at_the_new_process_ends_what_is_open_at_the_old_one() {
    let backend = Backend::start();
    let (mut lineage, key) = start(&backend, 100);
    let mut tunnel = Tunnel::open(&lineage.setup, &key);
    let replaced = lineage.upgrade();
    tunnel.echo();
    lineage.setup.ok(&["key", "revoke", &key[8..17]]);
    assert_eq!(tunnel.0.rest(), b"", "it is reset");
    lineage.wait_for_end(replaced);
    lineage.stop();
    assert_eq!(lineage.outcomes(), BTreeMap::from([("terminated".to_owned(), 1)]));
}

#[test]
fn kill_of_the_old_process_releases_its_slots_and_aborts_its_uses() {
    let backend = Backend::start();
    let (mut lineage, key) = start(&backend, 1);
    let _waiting = slow(&lineage, &key);
    eventually("the request is at the upstream", || backend.slow() == 1);
    lineage.upgrade();
    assert_eq!(status(&lineage, &key), 429);
    lineage.first.kill();
    eventually("the slot is free", || status(&lineage, &key) == 200);
    lineage.stop();
    let outcomes = lineage.outcomes();
    assert_eq!((outcomes.get("aborted"), outcomes.get("completed")), (Some(&1), Some(&1)), "{outcomes:?}");
}

#[test]
fn kill_of_the_new_process_loses_no_record_of_the_old_one() {
    let backend = Backend::start();
    let (mut lineage, key) = start(&backend, 2);
    let mut waiting = slow(&lineage, &key);
    eventually("the request is at the upstream", || backend.slow() == 1);
    let replaced = lineage.upgrade();
    let new = lineage.current();
    signal(new, "KILL");
    eventually("it has ended", || !is_running(new));
    // It ends at the old process, while no process has the journal.
    backend.release(1);
    assert_eq!(waiting.response().status, 200);
    let next = lineage.setup.start();
    assert_eq!(status(&lineage, &key), 200);
    lineage.wait_for_end(replaced);
    eventually("the spool is in the journal", || {
        let names = std::fs::read_dir(lineage.setup.path().join("audit")).unwrap();
        !names.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with("predecessor-"))
    });
    next.stop();
    assert_eq!(lineage.outcomes(), BTreeMap::from([("completed".to_owned(), 2)]));
}

#[test]
fn start_takes_over_from_a_gateway_that_drains_and_not_from_one_in_full_service() {
    let backend = Backend::start();
    let (mut lineage, key) = start(&backend, 2);
    let second = lineage.setup.keygate(&["serve"]);
    let text = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(!second.status.success() && text.contains("in full service") && text.contains("keygate upgrade"), "{text}");

    let mut waiting = slow(&lineage, &key);
    eventually("the request is at the upstream", || backend.slow() == 1);
    lineage.first.terminate();
    eventually("it drains", || !lineage.setup.keygate(&["health"]).status.success());
    let next = lineage.setup.start();
    assert_eq!(status(&lineage, &key), 200);
    let second = slow(&lineage, &key);
    eventually("the request is at the upstream", || backend.slow() == 2);
    assert_eq!(status(&lineage, &key), 429, "the slot of the old process counts");
    backend.release(2);
    assert_eq!(waiting.response().status, 200);
    assert_eq!(lineage.first.wait(), 0);
    drop(second);
    eventually("the slots are free", || status(&lineage, &key) == 200);
    next.stop();
    let outcomes = lineage.outcomes();
    assert!(outcomes["completed"] >= 3, "{outcomes:?}");
}
