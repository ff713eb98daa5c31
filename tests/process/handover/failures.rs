//! Hand-overs that fail: the old process goes on as if nothing had happened.

use std::io::Read as _;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use super::impostor::{Impostor, VERSION};
use super::{BLOCKS, Backend, Lineage, Tunnel, is_running, signal};
use crate::support::{Client, KEYGATE, SetOnDrop, Setup, eventually, exit_status, head, until};

fn start(backend: &Backend) -> (Lineage, String) {
    let (setup, key) = Setup::new(backend.upstream.address, BLOCKS).and_key();
    (Lineage::start(setup), key)
}

/// Runs something while a client sends requests, none of which fails; returns their number.
pub(super) fn under_load(lineage: &Lineage, key: &str, run: impl FnOnce()) -> usize {
    let (stop, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let _over = SetOnDrop(&stop);
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
fn replacement_of_a_gateway_that_does_not_run_fails() {
    let backend = Backend::start();
    let setup = Setup::new(backend.upstream.address, BLOCKS);
    let log = std::fs::File::create(setup.path().join("log")).unwrap();
    let mut command = Command::new(KEYGATE);
    command.args(["serve", "--replace", "--config"]).arg(setup.path().join("keygate.yaml"));
    let end = exit_status(&mut command.stderr(log).spawn().unwrap());
    let text = std::fs::read_to_string(setup.path().join("log")).unwrap();
    assert!(end.code() == Some(1) && text.contains("no gateway listens on this socket"), "{end}: {text}");
    let upgrade = setup.keygate(&["upgrade"]);
    assert_eq!(upgrade.status.code(), Some(69), "{upgrade:?}");
}

#[test]
fn configuration_that_needs_a_restart_is_refused() {
    let backend = Backend::start();
    let (lineage, key) = start(&backend);
    let text = lineage.setup.text();
    lineage.setup.write(&text.replace("workers: 2", "workers: 3"));
    let output = lineage.try_upgrade(&[]);
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("another configuration (workers)"), "{told}");
    lineage.setup.write(&text);
    let answered = under_load(&lineage, &key, || {});
    check(lineage, &key, answered);
}

#[test]
fn death_of_the_new_process_at_any_step_changes_nothing() {
    let backend = Backend::start();
    let (lineage, key) = start(&backend);
    let answered = under_load(&lineage, &key, || {
        drop(Impostor::connect(&lineage, VERSION));
        drop(Impostor::offered(&lineage));
        for prepared in [false, true] {
            let mut impostor = Impostor::offered(&lineage);
            if prepared {
                impostor.commit();
            } else {
                impostor.send(&"Ready".into());
                impostor.receive_to("Locks");
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
        assert_eq!(silent.stream.read(&mut [0]).unwrap(), 0, "the old process closes the connection");
    });
    check(lineage, &key, answered);
}

#[test]
fn new_process_that_hangs_before_it_serves_is_killed_and_not_the_one_that_it_names() {
    let backend = Backend::start();
    let (lineage, key) = start(&backend);
    let mut named = Command::new("sleep").arg("1000").spawn().unwrap();
    let answered = under_load(&lineage, &key, || {
        let mut impostor = Impostor::silent(&lineage);
        impostor.greet(&lineage, VERSION, named.id());
        impostor.receive_to("Offered");
        impostor.commit();
        let end = exit_status(&mut impostor.process);
        assert_eq!(end.signal(), Some(9));
        // Requests wait until then.
        assert_eq!(lineage.setup.client().get("/", &key).status, 200);
    });
    assert!(is_running(named.id()), "what a process says of itself is not believed");
    named.kill().unwrap();
    named.wait().unwrap();
    check(lineage, &key, answered + 1);
}

/// The gateway is in a PID namespace of its own, so that it does not see the new process, which is in the test's.
#[test]
fn new_process_that_hangs_and_cannot_be_killed_stalls_the_old_one_for_a_bounded_time() {
    let unshared = ["--user", "--map-root-user", "--pid", "--fork", "--kill-child"];
    let backend = Backend::start();
    let (setup, key) = Setup::new(backend.upstream.address, BLOCKS).and_key();
    // By util-linux, where user namespaces are allowed.
    let first = setup.start_by(Command::new("unshare").args(unshared).arg(KEYGATE));
    let mut lineage = Lineage { setup, first, later: Mutex::default() };
    assert_eq!(lineage.setup.client().get("/", &key).status, 200);
    let mut impostor = Impostor::offered(&lineage);
    impostor.commit();
    let mut waiting = lineage.setup.client();
    waiting.send(head("GET", "/", &key, &[], 0));
    assert_eq!(waiting.response().status, 503, "it is answered while the new process still hangs");
    assert_eq!(lineage.first.wait(), 0, "the old process has drained");
    let log = std::fs::read_to_string(lineage.setup.path().join("stderr")).unwrap();
    assert!(log.contains("a process of another PID namespace") && log.contains("cannot be ended from here"), "{log}");
    assert_eq!(impostor.process.try_wait().unwrap().and_then(|status| status.signal()), None, "it was not killed");
}

#[test]
fn death_of_a_new_process_that_has_recorded_a_use_ends_the_old_one() {
    let backend = Backend::start();
    let (mut lineage, key) = start(&backend);
    assert_eq!(lineage.setup.client().get("/", &key).status, 200);
    let mut impostor = Impostor::offered(&lineage);
    impostor.commit();
    let segment = lineage.setup.path().join("audit").join("0000000001.jsonl");
    append(&segment, b"{");
    drop(impostor);
    assert_eq!(lineage.first.wait(), 0);
    assert!(lineage.log().contains("this gateway drains: restart it"), "{}", lineage.log());
    // The next one cuts the torn line off, and has all records.
    let next = lineage.setup.start();
    assert_eq!(lineage.setup.client().get("/", &key).status, 200);
    assert_eq!(lineage.taken(&key), 2);
    next.stop();
    assert_eq!(lineage.outcomes().get("completed"), Some(&2));
}

/// Writes behind the lines of a segment, after which space may be allocated.
pub(super) fn append(segment: &Path, bytes: &[u8]) {
    let content = std::fs::read(segment).unwrap();
    let end = content.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    std::fs::File::options().write(true).open(segment).unwrap().write_all_at(bytes, end as u64).unwrap();
}

#[test]
fn process_that_comes_after_the_hand_over_is_refused_by_the_old_one() {
    let backend = Backend::start();
    let (mut lineage, key) = start(&backend);
    let tunnel = Tunnel::open(&lineage.setup, &key);
    let mut late = Impostor::silent(&lineage);
    let replaced = lineage.upgrade();
    late.greet(&lineage, VERSION, 999_999_999);
    // If an upgrade takes ten seconds, the connection without a greeting was given up meanwhile.
    if let Ok(refused) = late.try_receive() {
        assert!(refused.to_string().contains("another process took over from it already"), "{refused}");
    }
    tunnel.close();
    lineage.wait_for_end(replaced);
    check(lineage, &key, 1);
}

#[test]
fn upgrade_beside_another_one_ends_with_a_temporary_failure() {
    let backend = Backend::start();
    let (lineage, key) = start(&backend);
    let hanging = Hanging::new(&lineage);
    let silent = Impostor::silent(&lineage);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| lineage.try_upgrade(&["--binary", &hanging.binary]));
        let process = hanging.process();
        // A connection that has nothing to do with the upgrade does not end it.
        drop(silent);
        eventually("it is given up", || lineage.log().contains("the new process sent no greeting"));
        let second = lineage.try_upgrade(&[]);
        let text = String::from_utf8_lossy(&second.stderr).into_owned();
        assert_eq!(second.status.code(), Some(75), "{text}");
        assert!(text.contains("another upgrade is in progress"), "{text}");
        signal(process, "KILL");
        assert_eq!(first.join().unwrap().status.code(), Some(1));
    });
    check(lineage, &key, 0);
}

#[test]
fn failure_in_a_step_ends_the_upgrade_and_the_process_that_it_started() {
    let backend = Backend::start();
    let (lineage, key) = start(&backend);
    let hanging = Hanging::new(&lineage);
    std::thread::scope(|scope| {
        let upgrade = scope.spawn(|| lineage.try_upgrade(&["--binary", &hanging.binary]));
        let process = hanging.process();
        // In its place.
        let mut impostor = Impostor::offered(&lineage);
        impostor.send(&"Ready".into());
        impostor.receive_to("Locks");
        drop(impostor);
        let ended = upgrade.join().unwrap();
        let text = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(ended.status.code() == Some(1) && text.contains("could not read the state in time"), "{text}");
        assert!(!is_running(process), "it is killed");
    });
    check(lineage, &key, 0);
}

/// A program that runs, and takes nothing over.
struct Hanging {
    binary: String,
    /// The file that its process id goes to.
    begun: PathBuf,
}

impl Hanging {
    fn new(lineage: &Lineage) -> Self {
        let (binary, begun) = (lineage.setup.path().join("hanging"), lineage.setup.path().join("begun"));
        let script = format!("#!/bin/sh\necho $$ > {}\nexec sleep 1000\n", begun.display());
        std::fs::write(&binary, script).unwrap();
        std::fs::set_permissions(&binary, std::fs::Permissions::from_mode(0o755)).unwrap();
        Self { binary: binary.to_str().unwrap().to_owned(), begun }
    }

    /// Its process, once it runs.
    fn process(&self) -> u32 {
        until("the program runs", || std::fs::read_to_string(&self.begun).ok()?.trim().parse().ok())
    }
}

#[test]
fn another_version_and_a_second_hand_over_are_refused() {
    let backend = Backend::start();
    let (lineage, key) = start(&backend);
    let reason = |mut impostor: Impostor| impostor.receive()["Refused"]["reason"].as_str().unwrap().to_owned();
    assert!(reason(Impostor::connect(&lineage, 3)).contains("not by version 3"));
    let first = Impostor::offered(&lineage);
    assert!(reason(Impostor::connect(&lineage, VERSION)).contains("another process takes over"));
    drop(first);
    check(lineage, &key, 0);
}
