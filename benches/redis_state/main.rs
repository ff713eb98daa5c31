//! Cost of the Redis state: the server's time per decision, its commands per request, and how far one Redis carries
//! one gateway and two, beside the same script under `redis-benchmark`.
//!
//! `cargo bench --bench redis_state` measures; without `--bench`, as under `cargo test`, it only tries itself out.
//!
//! Server, gateways and load share the machine: the throughputs say how they compare here, and the server's own time
//! per decision, which it counts itself, says how far it would carry on a core of its own.
#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]
#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark fails by panicking, and has no public API")]

#[path = "../load/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the other benchmarks need more of it")]
mod load;
#[path = "../../tests/support/mod.rs"]
#[allow(dead_code, unused_imports, unreachable_pub, reason = "the tests need more of it")]
mod support;

mod bare;
mod deciding;
mod gateway;
mod many_leases;

use deciding::Directory;
use support::redis::Redis;

/// Size of the measurement.
struct Size {
    rounds: usize,
    decisions: usize,
    requests: usize,
    keys: usize,
    /// Numbers of gateways that hold slots, and calls of each script.
    gateways: Vec<usize>,
    calls: usize,
}

/// Decisions in flight of one gateway where many are.
const MANY: usize = 64;

fn main() {
    let size = if std::env::args().any(|argument| argument == "--bench") {
        Size {
            rounds: 5,
            decisions: 200_000,
            requests: 20_000,
            keys: 1000,
            gateways: vec![10, 100, 1000, 3000],
            calls: 10_000,
        }
    } else {
        Size { rounds: 1, decisions: 500, requests: 100, keys: 10, gateways: vec![10], calls: 20 }
    };
    let server = Redis::start();
    let directory = Directory::new(&server, size.keys);
    many_leases::measure(&server, &directory, &size.gateways, size.calls);
    throughput(&server, &directory, &size);
    over_http(&server, &directory, &size);
}

/// Decisions per second and the server's microseconds for each, of everything in every round.
fn throughput(server: &Redis, directory: &Directory, size: &Size) {
    type Run<'a> = Box<dyn Fn() -> f64 + 'a>;
    /// Name, load, decisions of one call of the script; and what was measured in each round.
    type Measured<'a> = (&'a str, Run<'a>, usize, Vec<f64>, Vec<f64>);
    let few = size.decisions / 10;
    let mut runs: Vec<Measured<'_>> = Vec::new();
    let mut add = |name, run: Run<'static>, of_call| runs.push((name, run, of_call, Vec::new(), Vec::new()));
    let one = |at_once, count| {
        let directory = directory.clone();
        Box::new(move || directory.decide(1, at_once, count)) as Run<'static>
    };
    add("one gateway, 1 in flight", one(1, few), 1);
    add("one gateway, 64 in flight", one(MANY, size.decisions), 1);
    let both = directory.clone();
    let decisions = size.decisions;
    add("two gateways, 64 in flight each", Box::new(move || both.decide(2, MANY, decisions)), 1);
    for (name, clients, pipeline, in_a_call) in [
        ("redis-benchmark, 1 in flight", 1, 1, None),
        ("redis-benchmark, 64 clients", 64, 1, None),
        ("redis-benchmark, 4 x 16", 4, 16, None),
        ("experiment, 1 in a call", 4, 16, Some(1)),
        ("experiment, 2 in a call", 4, 8, Some(2)),
        ("experiment, 5 in a call", 4, 3, Some(5)),
        ("experiment, 10 in a call", 4, 1, Some(10)),
    ] {
        let bare = match in_a_call {
            None => bare::Bare::new(server, directory),
            Some(decisions) => bare::Bare::several(server, directory, decisions),
        };
        let (count, of_call) = (if clients == 1 { few } else { size.decisions }, bare.decisions());
        add(name, Box::new(move || bare.run(clients, pipeline, count)), of_call);
    }
    for _ in 0..size.rounds {
        for (_, run, of_call, rates, costs) in &mut runs {
            server.reset_stats();
            rates.push(run());
            let (calls, microseconds) = server.command_calls("evalsha");
            #[allow(clippy::cast_precision_loss, reason = "counts")]
            costs.push(microseconds as f64 / (calls * *of_call as u64) as f64);
        }
    }
    println!("{:34}{:>34}{:>28}", "median (min to max)", "decisions per second", "server's µs each");
    for (name, _, _, rates, costs) in &runs {
        println!("{name:34}{:>34}{:>28}", spread(rates, 0), spread(costs, 2));
    }
}

/// Real gateways over HTTP: requests per second, and what is said to Redis for each of them.
fn over_http(server: &Redis, directory: &Directory, size: &Size) {
    let upstream = load::upstream();
    let gateways = [gateway::Gateway::start(server, upstream), gateway::Gateway::start(server, upstream)];
    let texts = directory.texts();
    let titles = ["requests per second", "Redis commands per request"];
    println!("\n{:34}{:>34}{:>28}", "real gateways over HTTP", titles[0], titles[1]);
    let cases = [("one, 1 connection", 1, 1), ("one, 8 connections", 1, 8), ("two, 4 connections each", 2, 8)];
    let mut figures = vec![(Vec::new(), Vec::new()); cases.len()];
    for _ in 0..size.rounds {
        for ((_, count, connections), (rates, commands)) in cases.iter().zip(&mut figures) {
            let way = |number: usize| (gateways[number % count].address, &texts[number % texts.len()]);
            // Every gateway has seen its keys, so that this is the steady state.
            (0..*connections).map(way).for_each(|(address, key)| load::run(address, key, 2));
            server.reset_stats();
            let started = std::time::Instant::now();
            std::thread::scope(|scope| {
                for (address, key) in (0..*connections).map(way) {
                    scope.spawn(move || load::run(address, key, size.requests));
                }
            });
            #[allow(clippy::cast_precision_loss, reason = "a count")]
            let requests = (size.requests * connections) as f64;
            rates.push(requests / started.elapsed().as_secs_f64());
            #[allow(clippy::cast_precision_loss, reason = "a count")]
            commands.push(sent(server) as f64 / requests);
        }
    }
    for ((name, ..), (rates, commands)) in cases.iter().zip(&figures) {
        println!("{name:34}{:>34}{:>28}", spread(rates, 0), spread(commands, 3));
    }
}

fn spread(values: &[f64], digits: usize) -> String {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let [median, least, most] = [sorted.len() / 2, 0, sorted.len() - 1].map(|at| sorted[at]);
    format!("{median:.digits$} ({least:.digits$} to {most:.digits$})")
}

/// Commands that clients have sent. Those that scripts call the server counts as well; no gateway sends them in steady
/// state, but for the one that asks for these figures.
fn sent(server: &Redis) -> u64 {
    ["evalsha", "eval", "set", "ping"].into_iter().map(|name| server.command_calls(name).0).sum()
}
