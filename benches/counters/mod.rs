//! Counters of what a running process does, which several benchmarks use: system calls by strace, instructions by
//! callgrind, and the threads that they are counted for.

pub(crate) mod callgrind;
pub(crate) mod strace;

use std::fs;

/// Ids and names of the threads of a process, in the order in which they began.
pub(crate) fn threads(process: u32) -> Vec<(u32, String)> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let mut tasks: Vec<(u32, String)> = tasks
        .map(|task| {
            let path = task.unwrap().path();
            let name = fs::read_to_string(path.join("comm")).unwrap();
            (path.file_name().unwrap().to_str().unwrap().parse().unwrap(), name.trim().to_owned())
        })
        .collect();
    tasks.sort();
    tasks
}
