//! `kill -9` while a segment of the journal is compressed: no record is lost, and none is there twice.

use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::{SetOnDrop, Setup, Upstream, eventually};

const DEATHS: u64 = 8;

#[test]
fn kill_during_compression_loses_and_duplicates_no_record() {
    let upstream = Upstream::start();
    let setup = Setup::new(upstream.address, "limits: { key: { requests: 1000000, per: 1s } }");
    setup.write(&setup.text().replace("path: audit }", "path: audit, segment_size: 1MiB }"));
    let key = setup.key();
    let files = |end: &str| -> Vec<PathBuf> {
        let files = fs::read_dir(setup.path().join("audit")).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| path.to_str().unwrap().ends_with(end)).collect()
    };
    let mut caught = 0;
    for death in 0..DEATHS {
        let mut gateway = setup.start();
        let dead = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _over = SetOnDrop(&dead);
            for _ in 0..4 {
                scope.spawn(|| {
                    let (mut client, path) = (setup.client(), format!("/{}", "x".repeat(1000)));
                    let request = crate::support::client::head("GET", &path, &key, &[], 0);
                    let mut send = || client.try_send(&request).is_ok() && client.try_response_to("GET").is_ok();
                    while !dead.load(Ordering::SeqCst) {
                        if !send() {
                            break;
                        }
                    }
                });
            }
            eventually("a segment is compressed", || !files(".jsonl.zst.tmp").is_empty());
            // At different moments of it, and shortly after it.
            let until = Instant::now() + Duration::from_millis(death * death);
            while Instant::now() < until {}
            gateway.kill();
            dead.store(true, Ordering::SeqCst);
        });
        let plain: HashSet<_> = files(".jsonl").iter().map(|path| path.with_extension("")).collect();
        let compressed = files(".jsonl.zst").iter().map(|path| path.with_extension("").with_extension("")).collect();
        caught += u32::from(!files(".jsonl.zst.tmp").is_empty() || !plain.is_disjoint(&compressed));
    }
    assert!(caught > 0, "a kill has interrupted a compression");
    let gateway = setup.start();
    eventually("what a kill left behind is finished", || {
        files(".jsonl.zst.tmp").is_empty() && files(".jsonl").len() == 1
    });
    gateway.stop();
    setup.ok(&["audit", "verify"]);
    let mut recorded = HashSet::new();
    for line in setup.ok(&["audit", "export"]).lines() {
        let record: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(recorded.insert(record["id"].as_str().unwrap().to_owned()), "{line} is there twice");
    }
    for request in upstream.received() {
        let id = request.header("x-request-id").unwrap();
        assert!(recorded.contains(id), "{id} has no record");
    }
}
