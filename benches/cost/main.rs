//! Cost of a request, counted: instructions by thread and module, system calls by kind, bytes of journal and of idle
//! connections.
//!
//! Counts repeat within a per cent on any machine, where times scatter by a third. Instructions are those in user space, counted
//! by callgrind; system calls are counted by strace. The real binary serves the job of the `end_to_end` benchmark, beside
//! HAProxy.
//!
//! `cargo bench --bench cost` measures, with `-- --json` for programs; it needs valgrind and strace (`make cost` installs
//! them). Without `--bench`, as under `cargo test`, it only tries the load and the sizes out.
#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]
#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark fails by panicking, and has no public API")]

#[path = "../../tests/support/ports.rs"]
#[allow(dead_code, unreachable_pub, reason = "the tests need more of it")]
mod ports;
#[path = "../end_to_end/load.rs"]
mod load;
#[path = "../end_to_end/proxies.rs"]
#[allow(dead_code, reason = "the other benchmark needs more of it")]
mod proxies;

mod callgrind;
mod report;
mod space;
mod strace;

use callgrind::Instructions;
use proxies::{Job, Proxy};
use space::Space;
use strace::SystemCalls;

/// Keys in the directory.
const KEYS: usize = 10_000;
/// Connections of the load that has many.
const CONNECTIONS: usize = 64;

/// Size of the measurement.
struct Size {
    keys: usize,
    /// Requests whose cost is counted.
    requests: usize,
    idle_connections: usize,
}

/// Counted cost of one proxy, for each request.
struct Cost {
    name: &'static str,
    instructions: Option<Instructions>,
    /// With one connection, and with [`CONNECTIONS`].
    system_calls: Option<[SystemCalls; 2]>,
    space: Space,
}

fn main() {
    let measure = std::env::args().any(|argument| argument == "--bench");
    let size = match measure {
        true => Size { keys: KEYS, requests: 4_000, idle_connections: 1_000 },
        false => Size { keys: 10, requests: 50, idle_connections: 10 },
    };
    let upstream = load::upstream();
    let job = Job::new(size.keys, upstream);
    let mut costs = vec![cost("keygate", &job, &size, measure, |name, wrapper| {
        Some(Proxy::keygate(&job, name, "written", wrapper))
    })];
    if measure {
        costs.extend(haproxy_cost(&job, &size));
    }
    match std::env::args().any(|argument| argument == "--json") {
        true => println!("{}", report::json(&costs)),
        false => report::table(&costs),
    }
}

fn haproxy_cost(job: &Job, size: &Size) -> Option<Cost> {
    if !proxies::is_haproxy_installed() {
        println!("haproxy is not installed, so there is nothing to compare with: apt-get install haproxy");
        return None;
    }
    Some(cost("HAProxy", job, size, true, |_, wrapper| Proxy::haproxy(job, wrapper)))
}

/// Starts the proxy anew for each kind of count, since the tools that count slow it down.
fn cost(
    name: &'static str,
    job: &Job,
    size: &Size,
    measure: bool,
    start: impl Fn(&'static str, &[String]) -> Option<Proxy>,
) -> Cost {
    let proxy = start(name, &[]).unwrap();
    let space = space::measure(&proxy, &job.key, size.requests, size.idle_connections);
    let system_calls = measure
        .then(|| [1, CONNECTIONS].map(|connections| strace::count(&proxy, &job.key, connections, size.requests)));
    drop(proxy);
    let instructions = measure.then(|| {
        let directory = tempfile::tempdir().unwrap();
        let proxy = start(name, &callgrind::command(directory.path())).unwrap();
        callgrind::count(&proxy, directory.path(), &job.key, size.requests)
    });
    Cost { name, instructions, system_calls, space }
}
