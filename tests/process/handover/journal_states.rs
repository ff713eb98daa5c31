//! Each row of the table of failures (`src/app/handover/mod.rs`), on a new journal, after a rotation, and after a
//! recovery: the file of the open segment was opened in another way each time.

use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};

use super::failures::{append, under_load};
use super::impostor::{Impostor, VERSION};
use super::interceptor::start_new_process;
use super::{BLOCKS, Backend, Lineage, is_running, signal};
use crate::support::{Client, Running, Setup, eventually, exit_status, head};

#[derive(Clone, Copy, Debug)]
enum JournalState {
    New,
    Rotated,
    Recovered,
}

/// A gateway with a journal in some state, and a key.
struct Old {
    backend: Backend,
    lineage: Lineage,
    key: String,
    /// Requests that were answered before.
    before: usize,
}

/// Runs a test on a gateway with each state of the journal.
fn in_every_state(test: impl Fn(Old) + Sync) {
    let test = &test;
    std::thread::scope(|scope| {
        let states = [JournalState::New, JournalState::Rotated, JournalState::Recovered];
        let tests = states.map(|state| (state, scope.spawn(move || test(Old::start(state)))));
        tests.into_iter().for_each(|(state, test)| test.join().unwrap_or_else(|_| panic!("{state:?}")));
    });
}

impl Old {
    fn start(state: JournalState) -> Self {
        let backend = Backend::start();
        let setup = Setup::new(backend.upstream.address, &BLOCKS.replace("concurrent: 100", "concurrent: 2"));
        setup.write(&setup.text().replace("path: audit", "path: audit, segment_size: 1MiB"));
        let mut lineage = Lineage::start(setup);
        // By the gateway that runs: offline, the command would begin the journal.
        let key = lineage.setup.key();
        let path = format!("/{}", "x".repeat(1500));
        let mut client = lineage.setup.client();
        let mut request = || assert_eq!(client.get(&path, &key).status, 200);
        let before = match state {
            JournalState::New => 0,
            JournalState::Rotated => {
                let next = segment(&lineage, 2);
                (0..).take_while(|_| !is_begun(&next)).map(|_| request()).count()
            }
            JournalState::Recovered => {
                request();
                lineage.first.kill();
                // The part of a line that a killed process leaves.
                append(&segment(&lineage, 1), b"u\t0197c1de");
                lineage.first = lineage.setup.start_logged();
                1
            }
        };
        Self { backend, lineage, key, before }
    }

    /// The segment that is open.
    fn open_segment(&self) -> PathBuf {
        (1..9).map(|number| segment(&self.lineage, number)).rfind(|path| is_begun(path)).unwrap()
    }

    /// Goes on to the point at which the state and the journal are those of the new process.
    fn committed(&self) -> Impostor {
        let mut impostor = Impostor::offered(&self.lineage);
        impostor.commit();
        impostor
    }

    /// Goes on to the point at which the new process has the locks, and is not prepared.
    fn locked(&self) -> Impostor {
        let mut impostor = Impostor::offered(&self.lineage);
        impostor.send(&"Ready".into());
        impostor.receive_to("Locks");
        impostor
    }

    /// Sends requests while something fails, and checks that none of them notices; then that the gateway can be
    /// replaced, and that tokens and records are those of all requests.
    fn goes_on(mut self, fail: impl FnOnce(&Self)) {
        let answered = under_load(&self.lineage, &self.key, || fail(&self));
        drop(Impostor::offered(&self.lineage));
        eventually("it goes on, and can be replaced", || self.lineage.try_upgrade(&[]).status.success());
        let replaced = self.lineage.first.id();
        self.lineage.wait_for_end(replaced);
        assert_eq!(self.lineage.setup.client().get("/", &self.key).status, 200);
        self.lineage.stop();
        self.check(answered + 1);
    }

    /// Checks the records of the requests before and of `more`. Those that a kill had left open were aborted.
    fn check(&self, more: usize) {
        let outcomes = self.lineage.outcomes();
        let ended = ["completed", "aborted"].map(|outcome| outcomes.get(outcome).copied().unwrap_or(0));
        assert_eq!(ended.iter().sum::<usize>(), self.before + more, "{outcomes:?}");
        assert_eq!(outcomes.values().sum::<usize>(), self.before + more, "{outcomes:?}");
        let names = std::fs::read_dir(self.lineage.setup.path().join("audit")).unwrap();
        assert!(!names.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with("predecessor-")));
    }

    /// Sends a request that the upstream answers only when it is told to.
    fn slow(&self) -> Client {
        let mut client = self.lineage.setup.client();
        client.send(head("GET", "/slow", &self.key, &[], 0));
        eventually("the request is at the upstream", || self.backend.slow() == 1);
        client
    }
}

fn segment(lineage: &Lineage, number: u64) -> PathBuf {
    lineage.setup.path().join("audit").join(format!("{number:010}.jsonl"))
}

/// Returns whether a segment has a line. Closed ones may be compressed by now, and have another name.
fn is_begun(segment: &Path) -> bool {
    std::fs::read(segment).is_ok_and(|content| content.first().is_some_and(|first| *first != 0))
}

#[test]
fn new_process_that_is_killed_before_the_commit_changes_nothing() {
    in_every_state(|old| old.goes_on(|old| drop(old.locked())));
}

#[test]
fn new_process_that_is_killed_between_commit_and_serving_changes_nothing() {
    in_every_state(|old| old.goes_on(|old| drop(old.committed())));
}

#[test]
fn new_process_that_is_silent_before_the_commit_is_given_up() {
    in_every_state(|old| {
        old.goes_on(|old| assert_eq!(old.locked().stream.read(&mut [0]).unwrap(), 0, "the connection is closed"));
    });
}

#[test]
fn new_process_that_is_silent_between_commit_and_serving_is_killed() {
    in_every_state(|old| {
        old.goes_on(|old| assert_eq!(exit_status(&mut old.committed().process).signal(), Some(9)));
    });
}

#[test]
fn new_process_that_is_killed_after_it_has_recorded_something_ends_the_old_one() {
    in_every_state(|mut old| {
        let impostor = old.committed();
        append(&old.open_segment(), b"{");
        drop(impostor);
        assert_eq!(old.lineage.first.wait(), 0);
        let log = old.lineage.log();
        assert!(log.contains("this gateway drains: restart it") && log.contains("has more lines after byte"), "{log}");
        // The next one cuts the torn line off.
        let next = old.lineage.setup.start();
        assert_eq!(old.lineage.setup.client().get("/", &old.key).status, 200);
        next.stop();
        old.check(1);
    });
}

#[test]
fn new_process_that_is_killed_after_it_has_served_loses_nothing() {
    in_every_state(|mut old| {
        let replaced = old.lineage.upgrade();
        assert_eq!(old.lineage.setup.client().get("/", &old.key).status, 200);
        let new = old.lineage.current();
        signal(new, "KILL");
        eventually("it has ended", || !is_running(new));
        old.lineage.wait_for_end(replaced);
        let next = old.lineage.setup.start();
        assert_eq!(old.lineage.setup.client().get("/", &old.key).status, 200);
        next.stop();
        let log = std::fs::read_to_string(old.lineage.setup.path().join("stderr")).unwrap();
        assert!(
            log.contains("the last gateway ended without stopping") && log.contains(&format!("process={new}")),
            "{log}"
        );
        old.check(2);
    });
}

#[test]
fn new_process_ends_and_has_written_nothing_when_the_old_one_is_killed_before_the_commit() {
    in_every_state(|mut old| {
        let (key, setup) = (old.key.clone(), &old.lineage.setup);
        let mut child = start_new_process(setup, "Commit", || signal(old.lineage.first.id(), "KILL"));
        let status = exit_status(&mut child);
        let log = std::fs::read_to_string(setup.path().join("new.log")).unwrap();
        assert!(status.code() == Some(1) && log.contains("took everything back"), "{status}: {log}");
        let names = std::fs::read_dir(setup.path().join("audit")).unwrap().flatten();
        let spools = names.filter(|entry| entry.file_name().to_string_lossy().starts_with("predecessor-")).count();
        assert_eq!(spools, 1, "the spool of the old process is left to the next start");
        let next = setup.start();
        assert_eq!(setup.client().get("/", &key).status, 200);
        next.stop();
        old.lineage.first.kill();
        old.check(1);
    });
}

#[test]
fn new_process_goes_on_and_aborts_open_uses_when_the_old_one_is_killed_before_serving() {
    in_every_state(|mut old| {
        let _waiting = old.slow();
        let setup = &old.lineage.setup;
        let child = start_new_process(setup, "Serving", || signal(old.lineage.first.id(), "KILL"));
        let new = Running::of(child);
        // Both slots: the one of the request that was open is free again.
        eventually("the slots are free", || {
            let (mut one, mut two) = (setup.client(), setup.client());
            one.send(head("GET", "/slow", &old.key, &[], 0));
            let status = two.get("/", &old.key).status;
            old.backend.release(2);
            status == 200 && one.response().status == 200
        });
        new.stop();
        old.lineage.first.kill();
        let outcomes = old.lineage.outcomes();
        assert!(outcomes.get("aborted").is_some_and(|aborted| *aborted >= 1), "{outcomes:?}");
    });
}

#[test]
fn new_process_goes_on_and_aborts_open_uses_when_the_old_one_is_killed_later() {
    in_every_state(|mut old| {
        let _waiting = old.slow();
        old.lineage.upgrade();
        old.lineage.first.kill();
        let records = || old.lineage.setup.ok(&["audit", "export"]);
        eventually("its use has ended", || records().contains("\"path\":\"/slow\"") && !records().contains("\"open\""));
        assert_eq!(old.lineage.setup.client().get("/", &old.key).status, 200);
        old.lineage.stop();
        old.check(2);
    });
}

#[test]
fn process_of_another_version_or_configuration_and_a_second_one_are_refused() {
    in_every_state(|old| {
        let reason = |mut impostor: Impostor| impostor.receive()["Refused"]["reason"].as_str().unwrap().to_owned();
        old.goes_on(|old| {
            assert!(reason(Impostor::connect(&old.lineage, 3)).contains("not by version 3"));
            let first = Impostor::offered(&old.lineage);
            assert!(reason(Impostor::connect(&old.lineage, VERSION)).contains("another process takes over"));
            drop(first);
            let text = old.lineage.setup.text();
            old.lineage.setup.write(&text.replace("workers: 2", "workers: 3"));
            let refused = old.lineage.try_upgrade(&[]);
            let told = String::from_utf8_lossy(&refused.stderr).into_owned();
            assert!(!refused.status.success() && told.contains("(workers)"), "{told}");
            old.lineage.setup.write(&text);
        });
    });
}
