//! Bytes copied by the C library's functions (`memcpy`, `memmove`, `strcpy` and the like), counted by dhat.

use std::path::Path;

use serde_json::Value;

use crate::load;
use crate::peers::job::Job;
use crate::peers::{Peer, Proxy, Setup};

/// Bytes copied for each request. dhat counts whole lives of processes, so one with few requests is subtracted from one
/// with more.
pub(crate) fn bytes_copied(peer: Peer, job: &Job, requests: usize) -> f64 {
    let [few, many] = [requests / 4, requests / 4 + requests].map(|requests| copied_in_life(peer, job, requests));
    #[allow(clippy::cast_precision_loss, reason = "counts below 2^52")]
    let bytes = (many - few) as f64 / requests as f64;
    bytes
}

fn copied_in_life(peer: Peer, job: &Job, requests: usize) -> i64 {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("dhat");
    let wrapper = command(&out);
    let mut proxy = Proxy::start(peer, job, &Setup { wrapper: &wrapper, ..Setup::default() });
    load::run(proxy.address, &job.keys[0], requests);
    proxy.terminate();
    let text = std::fs::read_to_string(&out).unwrap();
    let report: Value = serde_json::from_str(&text).unwrap();
    // Total bytes of each place in the program.
    report["pps"].as_array().unwrap().iter().filter_map(|place| place["tb"].as_i64()).sum()
}

fn command(out: &Path) -> Vec<String> {
    let file = format!("--dhat-out-file={}", out.display());
    ["valgrind", "--tool=dhat", "--mode=copy", "--error-limit=no", "-q"]
        .map(str::to_owned)
        .into_iter()
        .chain([file])
        .collect()
}
