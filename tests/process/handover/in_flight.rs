//! Requests and tunnels in flight at the process that was replaced: their slots, records and revocations.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{BLOCKS, Backend, Lineage, Tunnel, is_running, signal, stop};
use crate::key_limit::limit_key;
use crate::support::{Client, Setup, eventually, head, until};

pub(super) fn start(backend: &Backend, concurrent: usize) -> (Lineage, String) {
    let blocks = BLOCKS.replace("concurrent: 100", &format!("concurrent: {concurrent}"));
    let (setup, key) = Setup::new(backend.upstream.address, &blocks).and_key();
    (Lineage::start(setup), key)
}

/// Sends a request that ends when the backend is told to.
fn slow(lineage: &Lineage, key: &str) -> Client {
    let mut client = lineage.setup.client();
    client.send(head("GET", "/slow", key, &[], 0));
    client
}

pub(super) fn status(lineage: &Lineage, key: &str) -> u16 {
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

/// Of three slots of the organization, two of the key.
#[test]
fn slots_of_a_key_in_flight_count_at_the_new_process_until_they_end() {
    let backend = Backend::start();
    let setup = Setup::new(backend.upstream.address, &BLOCKS.replace("concurrent: 100", "concurrent: 3"));
    let key = setup.key();
    let other = setup.ok(&["key", "create", "--org", "acme", "--user", "ada@example.com", "other"]);
    limit_key(&setup, &key, 2);
    let mut lineage = Lineage::start(setup);
    let tunnel = Tunnel::open(&lineage.setup, &key);
    let mut waiting = slow(&lineage, &key);
    eventually("the request is at the upstream", || backend.slow() == 1);
    assert_eq!((status(&lineage, &key), status(&lineage, &other)), (429, 200));
    let replaced = lineage.upgrade();
    assert_eq!((status(&lineage, &key), status(&lineage, &other)), (429, 200), "both count here");
    backend.release(1);
    assert_eq!(waiting.response().status, 200);
    eventually("its slot is free", || status(&lineage, &key) == 200);
    tunnel.close();
    lineage.wait_for_end(replaced);
    lineage.stop();
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
fn damaged_line_of_the_old_process_is_set_aside_and_reported() {
    let backend = Backend::start();
    let (mut lineage, key) = start(&backend, 2);
    let mut waiting = slow(&lineage, &key);
    eventually("the request is at the upstream", || backend.slow() == 1);
    let replaced = lineage.upgrade();
    let new = lineage.current();
    signal(new, "KILL");
    eventually("it has ended", || !is_running(new));
    backend.release(1);
    assert_eq!(waiting.response().status, 200);
    lineage.wait_for_end(replaced);
    let mut names = std::fs::read_dir(lineage.setup.path().join("audit")).unwrap().flatten();
    let spool = names.find(|entry| entry.file_name().to_string_lossy().starts_with("predecessor-")).unwrap().path();
    let text = std::fs::read_to_string(&spool).unwrap();
    let damaged = text.replace("\tcompleted\t200\t", "\tcompleted\t201\t");
    assert_ne!(text, damaged);
    std::fs::write(&spool, &damaged).unwrap();
    let next = lineage.setup.start();
    eventually("the spool is in the journal", || !spool.exists());
    next.stop();
    assert_eq!(lineage.exported_outcomes(), BTreeMap::from([("aborted".to_owned(), 1)]), "its end is not known");
    let verified = lineage.setup.keygate(&["audit", "verify"]);
    let report = String::from_utf8(verified.stdout).unwrap();
    let aside = lineage.setup.path().join("audit/0000000001.jsonl.damaged");
    assert_eq!(std::fs::read_to_string(aside).unwrap(), damaged);
    assert!(report.contains(" 1 problem\n") && report.contains("set aside in 0000000001.jsonl.damaged"), "{report}");
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

/// A gateway whose clients have seconds to leave after a hand-over, and a tunnel that keeps its process.
pub(super) fn start_slowly(backend: &Backend, concurrent: usize) -> (Lineage, String, Tunnel) {
    let (lineage, key) = start(backend, concurrent);
    reconfigure(&lineage, "lame_duck: 200ms", "lame_duck: 20s");
    let tunnel = Tunnel::open(&lineage.setup, &key);
    (lineage, key, tunnel)
}

pub(super) fn reconfigure(lineage: &Lineage, old: &str, new: &str) {
    lineage.setup.write(&lineage.setup.text().replace(old, new));
    eventually("the configuration is in force", || lineage.setup.keygate(&["config", "status"]).status.success());
}

/// A connection that is kept open.
pub(super) fn kept(lineage: &Lineage, key: &str) -> Client {
    let mut client = lineage.setup.client();
    assert_eq!(client.get("/", key).status, 200);
    client
}

#[test]
fn slot_of_a_request_that_came_to_the_old_process_after_the_hand_over_is_free_when_it_ends() {
    let backend = Backend::start();
    let (mut lineage, key, tunnel) = start_slowly(&backend, 2);
    let mut kept = kept(&lineage, &key);
    let replaced = lineage.upgrade();
    kept.send(head("GET", "/slow", &key, &[], 0));
    eventually("the request is at the upstream", || backend.slow() == 1);
    assert_eq!(status(&lineage, &key), 429, "the tunnel has the other slot");
    backend.release(1);
    assert_eq!(kept.response().status, 200);
    eventually("its slot is free", || status(&lineage, &key) == 200);
    assert!(is_running(replaced));
    tunnel.close();
    signal(replaced, "TERM");
    lineage.wait_for_end(replaced);
    reconfigure(&lineage, "lame_duck: 20s", "lame_duck: 200ms");
    lineage.stop();
}

/// One request was decided by the old process, and one by the new process for the old one.
#[test]
fn budget_of_requests_at_the_old_process_comes_back_to_the_new_one() {
    let backend = Backend::start();
    let blocks = BLOCKS.replace(
        "limits: {",
        "plans: { sold: { requests: 9, per: 1s, quota: { units: 1000, per: month, of: key } } }\nlimits: { plan: sold,",
    );
    let blocks = blocks.replace("upgrade: [websocket]", "upgrade: [websocket], cost: { at_most: 100, from: X-Cost }");
    let (setup, key) = Setup::new(backend.upstream.address, &blocks).and_key();
    let mut lineage = Lineage::start(setup);
    reconfigure(&lineage, "lame_duck: 200ms", "lame_duck: 20s");
    let tunnel = Tunnel::open(&lineage.setup, &key);
    let mut kept = kept(&lineage, &key);
    let mut waiting = slow(&lineage, &key);
    eventually("the request is at the upstream", || backend.slow() == 1);
    let replaced = lineage.upgrade();
    kept.send(head("GET", "/slow", &key, &[], 0));
    eventually("the request is at the upstream", || backend.slow() == 2);
    let used = || {
        let shown = lineage.setup.ok(&["quota", "show", "--key", &key[8..17], "--json"]);
        serde_json::from_str::<serde_json::Value>(&shown).unwrap()["used"].as_u64().unwrap()
    };
    assert_eq!(used(), 100 + 7 + 2 * 100, "the tunnel, one that has ended, and two that are open");
    backend.release(2);
    assert_eq!([waiting.response().status, kept.response().status], [200, 200]);
    eventually("93 of each come back", || used() == 100 + 3 * 7);
    tunnel.close();
    signal(replaced, "TERM");
    lineage.wait_for_end(replaced);
    let exported = lineage.setup.ok(&["audit", "export"]);
    let records = exported.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    assert_eq!(records.filter_map(|record| record["cost"].as_u64()).sum::<u64>(), 100 + 3 * 7, "so say the records");
    reconfigure(&lineage, "lame_duck: 20s", "lame_duck: 200ms");
    lineage.stop();
}

#[test]
fn request_that_came_to_the_old_process_after_the_hand_over_is_aborted_by_its_death() {
    let backend = Backend::start();
    let (mut lineage, key, _tunnel) = start_slowly(&backend, 3);
    let mut kept = kept(&lineage, &key);
    lineage.upgrade();
    kept.send(head("GET", "/slow", &key, &[], 0));
    eventually("the request is at the upstream", || backend.slow() == 1);
    lineage.first.kill();
    eventually("both uses have ended", || {
        let records = lineage.setup.ok(&["audit", "export"]);
        records.matches("\"outcome\":\"aborted\"").count() == 2
    });
    reconfigure(&lineage, "lame_duck: 20s", "lame_duck: 200ms");
    lineage.stop();
    assert_eq!(lineage.outcomes(), BTreeMap::from([("aborted".to_owned(), 2), ("completed".to_owned(), 1)]));
}

#[test]
fn request_that_waits_for_a_decision_of_the_new_process_is_answered_when_that_is_killed() {
    let backend = Backend::start();
    let (mut lineage, key, _tunnel) = start_slowly(&backend, 10);
    let mut kept = kept(&lineage, &key);
    lineage.upgrade();
    let new = lineage.current();
    stop(new);
    kept.send(head("GET", "/", &key, &[], 0));
    // Time for the request to get to the point at which it waits. One that comes later is answered in the same way.
    std::thread::sleep(Duration::from_millis(100));
    signal(new, "KILL");
    let refused = kept.response();
    assert_eq!((refused.status, &*refused.code()), (503, "state_unavailable"));
    lineage.first.kill();
}

#[test]
fn records_that_the_killed_new_process_has_taken_over_are_not_taken_over_again() {
    let backend = Backend::start();
    let (mut lineage, key, tunnel) = start_slowly(&backend, 10);
    let mut kept = [kept(&lineage, &key), kept(&lineage, &key)];
    let replaced = lineage.upgrade();
    assert_eq!(kept[0].get("/", &key).status, 200);
    eventually("the new process has its record", || {
        let records = lineage.setup.ok(&["audit", "export"]);
        let of_keys = records.lines().filter(|record| record.contains("\"auth_method\":\"api-key\""));
        of_keys.filter(|record| record.contains("\"outcome\":\"completed\"")).count() == 3
    });
    let new = lineage.current();
    signal(new, "KILL");
    eventually("it has ended", || !is_running(new));
    let refused = kept[1].get("/", &key);
    assert_eq!((refused.status, &*refused.code()), (503, "state_unavailable"), "no process decides");
    let next = lineage.setup.start();
    tunnel.close();
    signal(replaced, "TERM");
    lineage.wait_for_end(replaced);
    eventually("the spool is in the journal", || {
        let names = std::fs::read_dir(lineage.setup.path().join("audit")).unwrap();
        !names.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with("predecessor-"))
    });
    reconfigure(&lineage, "lame_duck: 20s", "lame_duck: 200ms");
    next.stop();
    assert_eq!(lineage.outcomes(), BTreeMap::from([("completed".to_owned(), 4)]));
}

#[test]
fn second_upgrade_is_refused_until_the_process_before_has_ended() {
    let backend = Backend::start();
    let (mut lineage, key) = start(&backend, 3);
    let mut tunnel = Tunnel::open(&lineage.setup, &key);
    let replaced = lineage.upgrade();
    let refused = lineage.try_upgrade(&[]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{text}");
    assert!(text.contains("the running gateway goes on as before"), "{text}");
    assert!(text.contains("still serves its last requests"), "{text}");
    // Neither process has noticed anything.
    tunnel.echo();
    assert_eq!(status(&lineage, &key), 200);
    tunnel.close();
    lineage.wait_for_end(replaced);
    let second = until("the end of the first process is noticed", || {
        let second = lineage.current();
        lineage.try_upgrade(&[]).status.success().then_some(second)
    });
    lineage.wait_for_end(second);
    assert_eq!(lineage.taken(&key), 2);
    lineage.stop();
    assert_eq!(lineage.outcomes(), BTreeMap::from([("completed".to_owned(), 2)]));
}
