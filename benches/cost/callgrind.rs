//! Instructions in user space, by thread and by module, and allocations, counted by callgrind.

use std::collections::BTreeMap;
use std::path::Path;

use crate::counters::{self, callgrind};
use crate::peers::job::Job;
use crate::peers::{Peer, Proxy, Setup};

/// Functions of the C library that give memory.
const ALLOCATORS: [&str; 6] = ["malloc", "calloc", "realloc", "posix_memalign", "aligned_alloc", "memalign"];

/// Counts for each request.
pub(crate) struct Instructions {
    /// In the order in which the threads began, each with its name.
    pub(crate) threads: Vec<(String, f64)>,
    /// Own instructions of the functions of a module, the largest first. An inlined function counts where it was
    /// inlined.
    pub(crate) modules: Vec<(String, f64)>,
    /// The same of each function.
    pub(crate) functions: Vec<(String, f64)>,
    /// Calls of the C library's allocator.
    pub(crate) allocations: f64,
}

impl Instructions {
    pub(crate) fn total(&self) -> f64 {
        self.threads.iter().map(|(_, count)| count).sum()
    }
}

/// Costs of one thread.
#[derive(Default)]
struct Profile {
    /// Own instructions of each function, with its module.
    own: BTreeMap<(String, String), u64>,
    allocations: u64,
}

/// Counts requests in succession on one connection, after half as many that warm up.
pub(crate) fn count(peer: Peer, job: &Job, setup: &Setup<'_>, requests: usize) -> Instructions {
    let directory = tempfile::tempdir().unwrap();
    let wrapper = callgrind::command(directory.path());
    let proxy = Proxy::start(peer, job, &Setup { wrapper: &wrapper, ..*setup });
    crate::run_load(&proxy, job, setup, 1, requests / 2);
    callgrind::begin(proxy.id());
    crate::run_load(&proxy, job, setup, 1, requests);
    callgrind::end(proxy.id());
    callgrind::keep_files(directory.path());
    let (mut threads, mut allocations) = (Vec::new(), 0);
    let (mut modules, mut functions) = (BTreeMap::new(), BTreeMap::new());
    for (number, (_, name)) in counters::threads(proxy.id()).into_iter().enumerate() {
        let path = callgrind::file(directory.path(), number);
        let profile = std::fs::read_to_string(&path).map_or_else(|_| Profile::default(), |text| Profile::read(&text));
        threads.push((name, per_request(profile.own.values().sum(), requests)));
        allocations += profile.allocations;
        for ((module, function), cost) in profile.own {
            *modules.entry(module).or_insert(0) += cost;
            *functions.entry(function).or_insert(0) += cost;
        }
    }
    let [modules, functions] = [modules, functions].map(|costs| largest_first(costs, requests));
    Instructions { threads, modules, functions, allocations: per_request(allocations, requests) }
}

fn largest_first(costs: BTreeMap<String, u64>, requests: usize) -> Vec<(String, f64)> {
    let mut costs: Vec<_> = costs.into_iter().map(|(name, cost)| (name, per_request(cost, requests))).collect();
    costs.sort_by(|left, right| right.1.total_cmp(&left.1));
    costs
}

impl Profile {
    /// Reads a file in callgrind's format: lines `ob=(id) path` and `fn=(id) name` begin a function, and lines of two
    /// numbers are a position and a cost. A call is a line `cfn=(id) name`, a line `calls=COUNT POSITION`, and the cost
    /// of the function called. Names are given once, with their id.
    fn read(text: &str) -> Self {
        let (mut names, mut profile) = (BTreeMap::new(), Self::default());
        let (mut object, mut current, mut called) = (String::new(), String::new(), String::new());
        let mut is_call = false;
        for line in text.lines() {
            if let Some((kind @ ("ob" | "cob" | "fn" | "cfn"), value)) = line.split_once('=') {
                let (id, name) = value.split_once(' ').unwrap_or((value, ""));
                // Objects and functions are numbered apart.
                let id = (kind.ends_with("ob"), id.to_owned());
                if !name.is_empty() {
                    names.insert(id.clone(), name.to_owned());
                }
                let name = names.get(&id).cloned().unwrap_or_default();
                match kind {
                    "ob" => object = name,
                    "fn" => current = name,
                    "cfn" => called = name,
                    _ => {}
                }
            } else if let Some(calls) = line.strip_prefix("calls=") {
                is_call = true;
                // `realloc` that calls `malloc` is one allocation.
                if ALLOCATORS.contains(&called.as_str()) && !ALLOCATORS.contains(&current.as_str()) {
                    profile.allocations += calls.split(' ').next().and_then(|calls| calls.parse().ok()).unwrap_or(0);
                }
            } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
                let cost = line.split(' ').nth(1).and_then(|cost| cost.parse::<u64>().ok()).unwrap_or(0);
                if !std::mem::take(&mut is_call) {
                    *profile.own.entry((module(&current, &object), current.clone())).or_insert(0) += cost;
                }
            }
        }
        profile
    }
}

/// The module of a function: two levels of this crate, one of others; of a function in C, its program or library.
fn module(function: &str, object: &str) -> String {
    let path = function.trim_start_matches('<').trim_start_matches('&');
    let mut parts = path.split("::");
    match (parts.next(), parts.next()) {
        (Some("keygate"), Some(second)) => format!("keygate::{second}"),
        (Some(first), Some(_)) => first.to_owned(),
        _ => Path::new(object).file_name().map_or("unknown", |name| name.to_str().unwrap_or("unknown")).to_owned(),
    }
}

#[allow(clippy::cast_precision_loss, reason = "counts below 2^52")]
fn per_request(count: u64, requests: usize) -> f64 {
    count as f64 / requests as f64
}
