//! Instructions in user space, by thread and by module, counted by callgrind.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::load;
use crate::proxies::Proxy;

/// Instructions for each request.
pub(crate) struct Instructions {
    /// In the order in which the threads began, each with its name.
    pub(crate) threads: Vec<(String, f64)>,
    /// Own instructions of the functions of a module, the largest first. An inlined function counts where it was
    /// inlined.
    pub(crate) modules: Vec<(String, f64)>,
}

impl Instructions {
    pub(crate) fn total(&self) -> f64 {
        self.threads.iter().map(|(_, count)| count).sum()
    }
}

/// Command line that runs a program under callgrind, which writes its files into `directory`.
pub(crate) fn command(directory: &Path) -> Vec<String> {
    let out = format!("--callgrind-out-file={}/out", directory.display());
    let own = ["valgrind", "--tool=callgrind", "--separate-threads=yes", "--error-limit=no", "-q"];
    own.iter().map(ToString::to_string).chain([out]).collect()
}

/// Counts the instructions of requests in succession on one connection, after as many that warm up.
pub(crate) fn count(proxy: &Proxy, directory: &Path, key: &str, requests: usize) -> Instructions {
    load::run(proxy.address, key, requests / 2);
    control(proxy, "--zero");
    load::run(proxy.address, key, requests);
    control(proxy, "--dump=requests");
    let names = thread_names(proxy.id());
    let (mut threads, mut modules) = (Vec::new(), BTreeMap::new());
    for (number, name) in names.into_iter().enumerate() {
        // The first dump of the thread.
        let path = directory.join(format!("out.1-{:02}", number + 1));
        let own = std::fs::read_to_string(&path).map_or_else(|_| BTreeMap::new(), |text| self_costs(&text));
        threads.push((name, per_request(own.values().sum(), requests)));
        for (function, cost) in own {
            *modules.entry(module(&function)).or_insert(0) += cost;
        }
    }
    let mut modules: Vec<_> = modules.into_iter().map(|(module, cost)| (module, per_request(cost, requests))).collect();
    modules.sort_by(|left, right| right.1.total_cmp(&left.1));
    Instructions { threads, modules }
}

fn control(proxy: &Proxy, what: &str) {
    let id = proxy.id().to_string();
    let output = Command::new("callgrind_control").args([what, &id]).output().expect("valgrind is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Names of the threads of a process, in the order in which they began.
fn thread_names(process: u32) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let mut tasks: Vec<(u32, String)> = tasks
        .map(|task| {
            let path = task.unwrap().path();
            let name = std::fs::read_to_string(path.join("comm")).unwrap();
            (path.file_name().unwrap().to_str().unwrap().parse().unwrap(), name.trim().to_owned())
        })
        .collect();
    tasks.sort();
    tasks.into_iter().map(|(_, name)| name).collect()
}

/// Own cost of each function, from a file in callgrind's format: a line `fn=(id) name` begins a function, lines of two
/// numbers are a position and a cost, and the line after `calls=` is the cost of the function called.
fn self_costs(text: &str) -> BTreeMap<String, u64> {
    let (mut names, mut costs) = (BTreeMap::new(), BTreeMap::new());
    let (mut current, mut is_call) = (String::new(), false);
    for line in text.lines() {
        if let Some((kind @ ("fn" | "cfn"), value)) = line.split_once('=') {
            let (id, name) = value.split_once(' ').unwrap_or((value, ""));
            if !name.is_empty() {
                names.insert(id.to_owned(), name.to_owned());
            }
            if kind == "fn" {
                current = names.get(id).cloned().unwrap_or_default();
            }
        } else if line.starts_with("calls=") {
            is_call = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            let cost = line.split(' ').nth(1).and_then(|cost| cost.parse::<u64>().ok()).unwrap_or(0);
            if !std::mem::take(&mut is_call) {
                *costs.entry(current.clone()).or_insert(0) += cost;
            }
        }
    }
    costs
}

/// The module of a function: two levels of this crate, one of others.
fn module(function: &str) -> String {
    let path = function.trim_start_matches('<').trim_start_matches('&');
    let mut parts = path.split("::");
    match (parts.next(), parts.next()) {
        (Some("keygate"), Some(second)) => format!("keygate::{second}"),
        (Some(first), Some(_)) => first.to_owned(),
        _ => "libc".to_owned(),
    }
}

#[allow(clippy::cast_precision_loss, reason = "counts below 2^52")]
fn per_request(count: u64, requests: usize) -> f64 {
    count as f64 / requests as f64
}
