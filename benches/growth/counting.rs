//! Instructions in user space by thread, counted by callgrind, and system calls of a worker, counted by strace.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use crate::clients;
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
    let wrapper = [
        "valgrind".to_owned(),
        "--tool=callgrind".to_owned(),
        "--separate-threads=yes".to_owned(),
        "-q".to_owned(),
        format!("--callgrind-out-file={}/out", out.path().display()),
    ];
    let gateway = Gateway::start_before(endpoints, file, config, &wrapper);
    // Steps through the directory, so that neighbours in memory are not used one after the other.
    let step = if each_another { 7919 } else { 0 };
    let keys: Vec<&String> = (0..2 * requests).map(|n| &file.keys[n * step % file.keys.len()]).collect();
    let (warm_up, counted) = keys.split_at(requests);
    clients::send_each(gateway.address, warm_up.iter().copied());
    control(&gateway, "--zero");
    clients::send_each(gateway.address, counted.iter().copied());
    control(&gateway, "--dump=requests");
    let names = thread_names(gateway.id());
    let total = |number: usize| {
        // The first dump of the thread.
        let dump = fs::read_to_string(out.path().join(format!("out.1-{:02}", number + 1))).unwrap_or_default();
        let line = dump.lines().find_map(|line| line.strip_prefix("totals: ")).unwrap_or("0");
        line.trim().parse::<f64>().unwrap() / requests as f64
    };
    names.into_iter().enumerate().map(|(number, name)| (name, total(number))).collect()
}

/// System calls of the worker for each request over one connection, with this many endpoints. The first half of the requests
/// only warms up.
pub(crate) fn system_calls(endpoints: usize, file: &StateFile, config: &str, requests: usize) -> f64 {
    let gateway = Gateway::start_before(endpoints, file, config, &[]);
    let worker = gateway.workers().remove(0);
    let keys: Vec<&String> = std::iter::repeat_n(&file.keys[0], requests).collect();
    clients::send_each(gateway.address, keys.iter().copied());
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("counts");
    // Without `-f`, one thread is traced.
    let mut strace = Command::new("strace")
        .args(["-c", "-p", worker.file_name().unwrap().to_str().unwrap(), "-o"])
        .arg(&out)
        .stderr(Stdio::piped())
        .spawn()
        .expect("strace is installed");
    let (mut line, mut messages) = (String::new(), BufReader::new(strace.stderr.take().unwrap()));
    messages.read_line(&mut line).unwrap();
    assert!(line.contains("attached"), "strace cannot count: {line}");
    clients::send_each(gateway.address, keys);
    let interrupted = Command::new("kill").args(["-INT", &strace.id().to_string()]).status();
    assert!(interrupted.unwrap().success());
    strace.wait().unwrap();
    drop(messages);
    // Columns: share, seconds, microseconds for each call, calls, errors where there are any, name.
    let table = fs::read_to_string(&out).unwrap();
    let total = table.lines().find(|line| line.trim_end().ends_with(" total")).expect("strace has counted something");
    total.split_whitespace().nth(3).unwrap().parse::<f64>().unwrap() / requests as f64
}

fn control(gateway: &Gateway, what: &str) {
    let output = Command::new("callgrind_control").args([what, &gateway.id().to_string()]).output();
    assert!(output.expect("valgrind is installed").status.success());
}

/// Names of the threads of a process, in the order in which they began.
fn thread_names(process: u32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let mut tasks: Vec<(u32, String)> = tasks
        .map(|task| {
            let path = task.unwrap().path();
            let name = fs::read_to_string(path.join("comm")).unwrap();
            (path.file_name().unwrap().to_str().unwrap().parse().unwrap(), name.trim().to_owned())
        })
        .collect();
    tasks.sort();
    tasks.into_iter().map(|(_, name)| name).collect()
}
