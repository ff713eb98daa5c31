//! A hundred hand-overs that fail, one after another: each leaves the gateway as it was.

use std::path::Path;

use super::impostor::{Impostor, VERSION};
use super::{BLOCKS, Backend, Lineage};
use crate::support::{Client, Setup, eventually, until};

/// Failed hand-overs.
const FAILURES: usize = 100;

/// Ways in which a new process fails, by the last message that it gets.
const STEPS: [fn(&Lineage); 5] = [
    |lineage| drop(Impostor::silent(lineage)),
    |lineage| drop(Impostor::connect(lineage, VERSION)),
    |lineage| drop(Impostor::offered(lineage)),
    |lineage| {
        let mut impostor = Impostor::offered(lineage);
        impostor.send(&"Ready".into());
        impostor.receive_to("Locks");
    },
    |lineage| Impostor::offered(lineage).commit(),
];

fn count_open_files(process: u32) -> usize {
    std::fs::read_dir(Path::new("/proc").join(process.to_string()).join("fd")).unwrap().count()
}

#[test]
fn hundred_failed_hand_overs_change_nothing() {
    let backend = Backend::start();
    let (setup, key) = Setup::new(backend.upstream.address, BLOCKS).and_key();
    let mut lineage = Lineage::start(setup);
    let mut client = Client::connect(lineage.setup.address);
    let mut answered = 0;
    let mut get = |lineage: &Lineage| {
        answered += 1;
        assert_eq!(client.get("/", &key).status, 200, "{}", lineage.log());
    };
    // The first of each kind opens what the gateway keeps: its log, a thread for its journal.
    for step in STEPS {
        step(&lineage);
        get(&lineage);
    }
    let process = lineage.first.id();
    drop(Impostor::offered(&lineage));
    let before = until("the hand-over before has ended", || Some(count_open_files(process)));
    for number in 0..FAILURES {
        STEPS[number % STEPS.len()](&lineage);
        get(&lineage);
    }
    drop(Impostor::offered(&lineage));
    eventually("every descriptor of a failed hand-over is closed", || count_open_files(process) <= before);
    // The one that succeeds is like the first.
    let replaced =
        until("the hand-over before has ended", || lineage.try_upgrade(&[]).status.success().then_some(process));
    drop(client);
    lineage.wait_for_end(replaced);
    assert_eq!(lineage.setup.client().get("/", &key).status, 200);
    answered += 1;
    assert_eq!(lineage.taken(&key), answered);
    lineage.stop();
    assert_eq!(lineage.outcomes().get("completed"), Some(&answered));
}
