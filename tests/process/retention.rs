//! Retention of the journal by age, with a wall clock that is stepped for the process.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::support::{KEYGATE, Setup, SteppedClock, Upstream, client, eventually};

const DAY: i64 = 86_400;

#[test]
fn clock_that_is_ahead_for_a_while_removes_no_segment() {
    let (upstream, clock) = (Upstream::start(), SteppedClock::new());
    let setup = Setup::new(upstream.address, "limits: { key: { requests: 1000000, per: 1s } }");
    let journal = "path: audit, segment_size: 1MiB, segment_age: 1m, retention: { age: 30d } }";
    setup.write(&setup.text().replace("path: audit }", journal));
    let key = setup.key();
    let gateway = setup.start_by(clock.apply(&mut Command::new(KEYGATE)));
    let closed = || -> Vec<PathBuf> {
        let files = fs::read_dir(setup.path().join("audit")).unwrap().map(|entry| entry.unwrap().path());
        let mut closed: Vec<_> = files.filter(|path| path.to_str().unwrap().ends_with(".jsonl.zst")).collect();
        closed.sort();
        closed
    };
    let request = client::head("GET", &format!("/{}", "x".repeat(1000)), &key, &[], 0);
    let mut client = setup.client();
    let mut send = || {
        client.try_send(&request).unwrap();
        assert_eq!(client.try_response_to("GET").unwrap().status, 200);
    };
    eventually("several segments are closed", || {
        (0..500).for_each(|_| send());
        closed().len() >= 3
    });
    let before = closed();
    let log = || fs::read_to_string(setup.path().join("stderr")).unwrap();
    // Longer than the process's clock waits until it follows; records get this time.
    clock.step(60 * DAY);
    eventually("the process's clock follows", || log().contains("the wall clock went ahead"));
    send();
    eventually("a segment is closed, because it is old by then", || {
        send();
        closed().len() > before.len()
    });
    clock.step(0);
    eventually("the process's clock is corrected", || log().contains("the wall clock was set back"));
    // A look of the maintenance that has begun is finished by the stop.
    gateway.stop();
    let after = closed();
    assert!(before.iter().all(|segment| after.contains(segment)), "of {before:?} there are {after:?}");
    assert!(!log().contains("removing an audit segment"), "{}", log());
    setup.ok(&["audit", "verify"]);
}
