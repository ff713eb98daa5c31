//! Growth: what a start, a key in memory and a request cost as keys, routes, endpoints and connections become more.
//!
//! `cargo bench --bench growth` measures the real binary; the instructions need valgrind, the system calls
//! strace. `KEYGATE_BINARY` names another build. Without `--bench`, as under `cargo test`, a small directory is
//! tried out, without valgrind.
#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]
#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark fails by panicking, and has no public API")]
#![allow(clippy::cast_precision_loss, reason = "counts below 2^52")]

#[path = "../changes/mod.rs"]
mod changes;
#[path = "../counters/mod.rs"]
mod counters;
#[path = "../load/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the other benchmarks need more of it")]
mod load;
#[path = "../../tests/support/ports.rs"]
#[allow(dead_code, unreachable_pub, reason = "the tests need more of it")]
mod ports;

mod clients;
mod counting;
mod directory;
mod gateway;
mod upstream;

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use directory::StateFile;
use gateway::Gateway;

/// The route that is asked for.
const LISTED: &str = "  - { name: queries.list, methods: [GET], path: /api/queries, permission: 'queries:read' }\n";

/// Sizes of a run.
struct Sizes {
    keys: &'static [usize],
    routes: &'static [usize],
    endpoints: &'static [usize],
    /// Requests whose instructions are counted; none: valgrind is left out.
    counted: Option<usize>,
    /// Time after a start in which the slowest request is sought.
    beginning: Duration,
    /// Rounds of each number of connections, and how long each takes.
    rounds: (usize, Duration),
    /// Connections with a request in flight each, and the requests of a round.
    active: (&'static [usize], usize),
}

fn main() {
    let sizes = if std::env::args().any(|argument| argument == "--bench") {
        Sizes {
            keys: &[10, 10_000, 1_000_000],
            routes: &[10, 100, 1000],
            endpoints: &[1, 3, 100],
            counted: Some(3_000),
            beginning: Duration::from_secs(10),
            rounds: (10, Duration::from_secs(1)),
            active: (&[10, 200, 400, 1000, 4000], 40_000),
        }
    } else {
        Sizes {
            keys: &[10, 300],
            routes: &[2, 5],
            endpoints: &[1, 3],
            counted: None,
            beginning: Duration::from_millis(20),
            rounds: (1, Duration::from_millis(20)),
            active: (&[3, 30], 60),
        }
    };
    type Section = (&'static str, fn(&Sizes));
    let sections: &[Section] = &[
        ("keys", of_keys),
        ("routes", of_routes),
        ("endpoints", of_endpoints),
        ("connections", of_connections),
        ("active", of_active),
    ];
    // `-- routes` runs this section alone.
    let chosen = |name: &str| std::env::args().any(|argument| argument == name);
    let all = !sections.iter().any(|(name, _)| chosen(name));
    sections.iter().filter(|(name, _)| all || chosen(name)).for_each(|(_, run)| run(&sizes));
}

/// Start, the slowest request after it, memory and instructions by the number of keys.
fn of_keys(sizes: &Sizes) {
    println!(
        "keys       start s  resident MiB  bytes per key  of it strings  slowest ms  all used: MiB  bytes per key"
    );
    let mut base = 0.0;
    for keys in sizes.keys {
        let file = StateFile::new(*keys);
        let began = Instant::now();
        let gateway = Gateway::start(&file, &config(1, 1), &[]);
        let start = began.elapsed().as_secs_f64();
        let resident = gateway.resident();
        let slowest = clients::slowest(gateway.address, file.keys.iter().cycle(), sizes.beginning);
        clients::send_each(gateway.address, &file.keys);
        let used = gateway.resident();
        if base == 0.0 {
            base = resident;
        }
        let per_key = |resident: f64| (resident - base) / *keys as f64;
        println!(
            "{keys:<10} {start:>7.2}  {:>12.1}  {:>13.0}  {:>13.0}  {:>10.1}  {:>13.1}  {:>13.0}",
            resident / 1048576.0,
            per_key(resident),
            file.string_bytes_per_key(),
            slowest.as_secs_f64() * 1000.0,
            used / 1048576.0,
            per_key(used),
        );
        drop(gateway);
        if let Some(requests) = sizes.counted {
            counted(&format!("{keys} keys, each request another"), &file, &config(1, 1), requests, true);
            counted(&format!("{keys} keys, one of them used"), &file, &config(1, 1), requests, false);
        }
    }
}

/// Instructions by the number of routes. The request matches the last of them.
fn of_routes(sizes: &Sizes) {
    let file = StateFile::new(10);
    for routes in sizes.routes {
        match sizes.counted {
            Some(requests) => counted(&format!("{routes} routes"), &file, &config(1, *routes), requests, false),
            None => clients::send_each(Gateway::start(&file, &config(1, *routes), &[]).address, file.keys.iter()),
        }
    }
}

/// Instructions and system calls by the number of endpoints.
fn of_endpoints(sizes: &Sizes) {
    let (file, config) = (StateFile::new(10), config(1, 1));
    for endpoints in sizes.endpoints {
        match sizes.counted {
            Some(requests) => {
                print_counts(
                    &format!("{endpoints} endpoints"),
                    &counting::count_before(*endpoints, &file, &config, requests, false),
                );
                let calls = counting::system_calls(*endpoints, &file, &config, requests);
                println!("{endpoints} endpoints: {calls:.2} system calls of the worker a request");
            }
            None => {
                let gateway = Gateway::start_before(*endpoints, &file, &config, &[]);
                clients::send_each(gateway.address, file.keys.iter());
            }
        }
    }
}

fn counted(name: &str, file: &StateFile, config: &str, requests: usize, each_another: bool) {
    print_counts(name, &counting::count(file, config, requests, each_another));
}

fn print_counts(name: &str, counts: &[(String, f64)]) {
    let total: f64 = counts.iter().map(|(_, count)| count).sum();
    let thread = |start: &str| counts.iter().filter(|(name, _)| name.starts_with(start)).map(|(_, count)| count).sum();
    let (worker, writer): (f64, f64) = (thread("worker-"), thread("state-writer"));
    println!("{name}: {total:.0} instructions a request; the worker {worker:.0}, the state's writer {writer:.0}");
    // Those that work each second count more under valgrind, where a second has few requests.
    for (name, count) in counts.iter().filter(|(name, count)| !name.starts_with("worker-") && *count >= 100.0) {
        println!("    thread {name}: {count:.0}");
    }
}

/// Balance of two workers by the number of connections.
fn of_connections(sizes: &Sizes) {
    let file = StateFile::new(10);
    let gateway = Gateway::start(&file, &config(2, 1), &[]);
    let (rounds, time) = sizes.rounds;
    for connections in [2, 4, 8] {
        // The part of the busier worker in the CPU time of both: a half is best.
        let shares: Vec<f64> = (0..rounds)
            .map(|_| {
                // The connections of the round before are closed by then.
                std::thread::sleep(Duration::from_millis(200));
                let before = gateway.worker_seconds();
                clients::send_for(gateway.address, &file.keys[0], connections, time);
                let after = gateway.worker_seconds();
                let spent: Vec<f64> = after.iter().zip(&before).map(|(after, before)| after - before).collect();
                spent.iter().copied().fold(0.0, f64::max) / spent.iter().sum::<f64>()
            })
            .collect();
        let line = shares.iter().fold(String::new(), |mut line, share| {
            write!(line, " {:.0}", share * 100.0).unwrap();
            line
        });
        println!("{connections} connections, two workers: per cent at the busier one, by round:{line}");
    }
}

/// CPU time of the worker, connects to the upstream and latency by the number of connections, each with a request in
/// flight all the time. The rounds of all numbers are interleaved; the first one of each only warms up.
fn of_active(sizes: &Sizes) {
    let (file, (numbers, requests)) = (StateFile::new(10), sizes.active);
    let limits = "org: { concurrent: 1000000 }, key: { requests: 1000000000, per: 1s, burst: 1000000000 }";
    let config = format!(
        "workers: 1\nlimits: {{ {limits} }}\nhttp: {{ max_connections_per_address: 20000 }}\nroutes:\n{LISTED}"
    );
    let gateway = Gateway::start(&file, &config, &[]);
    let mut rounds = vec![Vec::new(); numbers.len()];
    for _ in 0..=sizes.rounds.0.min(5) {
        for (connections, rounds) in numbers.iter().zip(&mut rounds) {
            rounds.push(active_round(&gateway, &file.keys, *connections, requests));
        }
    }
    for (connections, rounds) in numbers.iter().zip(rounds) {
        let figures = |of: fn(&[f64; 3]) -> f64| {
            let mut figures: Vec<f64> = rounds[1..].iter().map(of).collect();
            figures.sort_by(f64::total_cmp);
            format!("{:.2} ({:.2} to {:.2})", figures[figures.len() / 2], figures[0], figures[figures.len() - 1])
        };
        let (cpu, connects, slow) = (figures(|round| round[0]), figures(|round| round[1]), figures(|round| round[2]));
        println!("{connections} active: {cpu} µs of the worker, {connects} connects per thousand, p99 {slow} ms");
    }
}

/// Microseconds of the worker for each request, connects for a thousand, and the 99th percentile in milliseconds.
fn active_round(gateway: &Gateway, keys: &[String], connections: usize, requests: usize) -> [f64; 3] {
    let look = || (gateway.worker_seconds()[0], upstream::accepted());
    let before = look();
    let load = load::Load {
        keys,
        protocol: load::Protocol::Http1,
        shape: load::Shape::Small,
        connections,
        requests: requests.max(4 * connections),
    };
    let times = load.run(gateway.address);
    let (after, sent) = (look(), load.requests as f64);
    [(after.0 - before.0) * 1e6 / sent, (after.1 - before.1) as f64 * 1000.0 / sent, times.milliseconds(0.99)]
}

/// The configuration, but for the addresses and the paths.
fn config(workers: usize, routes: usize) -> String {
    let mut text =
        format!("workers: {workers}\nlimits: {{ key: {{ requests: 1000000, per: 1s, burst: 1000000 }} }}\nroutes:\n");
    for number in 1..routes {
        let path = format!("/api/area{}/kind{number}/{{id}}/part", number % 7);
        writeln!(text, "  - {{ name: route{number}, methods: [GET], path: '{path}', permission: 'queries:read' }}")
            .unwrap();
    }
    text + LISTED
}
