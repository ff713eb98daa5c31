//! The key that signs checkpoints: unreadable at a check, a start, a reload and an upgrade.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use crate::support::{Client, Setup, Upstream, eventually};

/// A configuration with a key that is there.
pub(super) fn signed(upstream: &Upstream) -> (Setup, PathBuf) {
    let setup = Setup::new(upstream.address, "");
    let key = setup.path().join("audit.key");
    setup.ok(&["audit", "key", "new", "--out", key.to_str().unwrap(), "--name", "example.org/gw"]);
    let checkpoints = format!("path: audit, checkpoints: {{ key_file: {} }}", key.display());
    setup.write(&setup.text().replace("path: audit", &checkpoints));
    (setup, key)
}

fn checkpoint(setup: &Setup) -> Option<String> {
    fs::read_to_string(setup.path().join("audit/checkpoint")).ok()
}

fn failed(setup: &Setup) -> f64 {
    let page = String::from_utf8(Client::connect(setup.admin).get("/metrics", "").body).unwrap();
    let name = "keygate_audit_checkpoints_total{result=\"failed\"} ";
    page.lines().find_map(|line| line.strip_prefix(name)).unwrap().parse().unwrap()
}

#[test]
fn check_and_a_first_start_refuse_an_unreadable_signing_key() {
    let upstream = Upstream::start();
    let (setup, key) = signed(&upstream);
    assert!(setup.ok(&["check"]).ends_with(": ok"));
    for text in [Some("no key"), None] {
        match text {
            Some(text) => fs::write(&key, text).unwrap(),
            None => fs::remove_file(&key).unwrap(),
        }
        let checked = setup.keygate(&["check"]);
        let told = String::from_utf8_lossy(&checked.stderr).into_owned();
        assert_eq!(checked.status.code(), Some(64), "{told}");
        assert!(told.contains("audit.checkpoints.key_file: ") && told.contains("audit.key"), "{told}");
        assert!(!setup.keygate(&["serve"]).status.success());
    }
}

#[test]
fn check_reports_directories_in_which_nothing_can_be_created() {
    let upstream = Upstream::start();
    let setup = Setup::new(upstream.address, "");
    let text = setup.text();
    fs::write(setup.path().join("file"), "").unwrap();
    for (given, setting) in [
        ("path: state.db", "state.embedded.path"),
        ("path: audit", "audit.path"),
        ("socket: admin.sock", "admin.socket"),
    ] {
        let (name, path) = given.split_once(": ").unwrap();
        setup.write(&text.replace(given, &format!("{name}: file/below/{path}")));
        let checked = setup.keygate(&["check"]);
        let told = String::from_utf8_lossy(&checked.stderr).into_owned();
        assert_eq!(checked.status.code(), Some(64), "{told}");
        assert!(told.contains(&format!("{setting}: ")) && told.contains("is no directory"), "{told}");
    }
}

#[test]
fn unreadable_signing_key_stops_no_gateway_that_has_signed() {
    let upstream = Upstream::start();
    let (setup, key) = signed(&upstream);
    let api_key = setup.key();
    let gateway = setup.start_logged();
    assert_eq!(setup.client().get("/", &api_key).status, 200);
    eventually("there is a checkpoint", || checkpoint(&setup).is_some());
    let hidden = key.with_extension("hidden");
    fs::rename(&key, &hidden).unwrap();

    // A reload and an upgrade leave the process that has the key in its memory.
    gateway.hang_up();
    let upgraded = setup.keygate(&["upgrade"]);
    assert!(!upgraded.status.success(), "{upgraded:?}");
    let before = checkpoint(&setup);
    assert_eq!(setup.client().get("/", &api_key).status, 200);
    eventually("it still signs", || checkpoint(&setup) != before);
    gateway.stop();

    // A start serves without new checkpoints, and signs them once it can.
    let gateway = setup.start_logged();
    let before = checkpoint(&setup);
    assert_eq!(setup.client().get("/", &api_key).status, 200);
    eventually("it is counted", || failed(&setup) > 1.0);
    let log = fs::read_to_string(setup.path().join("log")).unwrap();
    assert!(log.contains("cannot read the key that signs checkpoints"), "{log}");
    assert_eq!(checkpoint(&setup), before);
    fs::rename(&hidden, &key).unwrap();
    eventually("it signs again", || checkpoint(&setup) != before);
    gateway.stop();
    setup.ok(&["audit", "verify"]);
}

/// Root makes the key, and another user runs the gateway.
#[test]
fn new_signing_key_belongs_to_the_owner_of_the_journal() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let upstream = Upstream::start();
    let setup = Setup::new(upstream.address, "");
    let journal = setup.path().join("audit");
    fs::create_dir(&journal).unwrap();
    std::os::unix::fs::chown(&journal, Some(12_345), Some(12_345)).unwrap();
    let key = setup.path().join("audit.key");
    setup.ok(&["audit", "key", "new", "--out", key.to_str().unwrap()]);
    let metadata = fs::metadata(&key).unwrap();
    assert_eq!((metadata.uid(), metadata.gid(), metadata.mode() & 0o777), (12_345, 12_345, 0o600));

    let checkpoints = format!("path: audit, checkpoints: {{ key_file: {} }}", key.display());
    setup.write(&setup.text().replace("path: audit", &checkpoints));
    std::os::unix::fs::chown(&key, Some(0), Some(0)).unwrap();
    let checked = setup.keygate(&["check"]);
    let told = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(told.contains("run: chown 12345:12345 "), "root's own rights count for nothing: {told}");
}
