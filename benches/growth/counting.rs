//! Instructions in user space by thread, counted by callgrind, and system calls of a worker, counted by strace.

use std::fs;

use crate::clients;
use crate::counters::{self, callgrind, strace::Tracer};
use crate::directory::StateFile;
use crate::gateway::Gateway;

/// Instructions for each request, by the name of the thread. The first half of the requests only warms up.
pub(crate) fn count(file: &StateFile, config: &str, requests: usize, each_another: bool) -> Vec<(String, f64)> {
    count_before(1, file, config, requests, each_another)
}

/// The same with this many endpoints.
pub(crate) fn count_before(
    endpoints: usize,
    file: &StateFile,
    config: &str,
    requests: usize,
    each_another: bool,
) -> Vec<(String, f64)> {
    let out = tempfile::tempdir().unwrap();
    let wrapper = callgrind::command(out.path());
    let gateway = Gateway::start_before(endpoints, file, config, &wrapper);
    // Steps through the directory, so that neighbours in memory are not used one after the other.
    let step = if each_another { 7919 } else { 0 };
    let keys: Vec<&String> = (0..2 * requests).map(|n| &file.keys[n * step % file.keys.len()]).collect();
    let (warm_up, counted) = keys.split_at(requests);
    clients::send_each(gateway.address, warm_up.iter().copied());
    callgrind::begin(gateway.id());
    clients::send_each(gateway.address, counted.iter().copied());
    callgrind::end(gateway.id());
    callgrind::keep_files(out.path());
    let threads = counters::threads(gateway.id());
    let total = |number: usize| {
        let dump = fs::read_to_string(callgrind::file(out.path(), number)).unwrap_or_default();
        let line = dump.lines().find_map(|line| line.strip_prefix("totals: ")).unwrap_or("0");
        line.trim().parse::<f64>().unwrap() / requests as f64
    };
    threads.into_iter().enumerate().map(|(number, (_, name))| (name, total(number))).collect()
}

/// System calls of the worker for each request over one connection, with this many endpoints. The first half of the
/// requests only warms up.
pub(crate) fn system_calls(endpoints: usize, file: &StateFile, config: &str, requests: usize) -> f64 {
    let gateway = Gateway::start_before(endpoints, file, config, &[]);
    let is_worker = |(_, name): &&(u32, String)| name.starts_with("worker-");
    let (worker, _) = counters::threads(gateway.id()).iter().find(is_worker).cloned().expect("a worker");
    let keys: Vec<&String> = std::iter::repeat_n(&file.keys[0], requests).collect();
    clients::send_each(gateway.address, keys.iter().copied());
    let directory = tempfile::tempdir().unwrap();
    let tracer = Tracer::attach(worker, directory.path()).expect("a worker goes on");
    clients::send_each(gateway.address, keys);
    let calls = tracer.end().values().sum::<f64>();
    assert!(calls > 0.0, "strace has counted nothing");
    calls / requests as f64
}
