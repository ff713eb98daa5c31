//! Cost of a request, counted: instructions by thread and module, system calls by kind, allocations, bytes copied,
//! bytes of journal and of idle connections.
//!
//! Counts repeat within a per cent on any machine, where times scatter by a third. Instructions are those in user
//! space, counted by callgrind; bytes copied are those of the C library's copying functions, counted by dhat; system
//! calls are counted by strace. The real binary does the job of `benches/peers`, beside HAProxy, nginx with Lua and the
//! smallest proxy on hyper.
//!
//! `cargo bench --bench cost` measures (`make cost` installs what it needs first); arguments after `--`:
//! - `--json`: figures for programs;
//! - `--only NAME`: only the peers whose name begins so;
//! - `--redis`: counts with the rate in a Redis, instructions and system calls only;
//! - `--tls`, `--http2`: the same over TLS 1.3, or over HTTP/2 with eight requests in flight on each connection;
//! - `--decisions`, `--checks`: the cost of a decision for another proxy, asked by `forward_auth`, or by gRPC (`Check`
//!   of Envoy's `ext_authz`);
//! - `--quota`: counts requests that spend a budget, of keygate only;
//! - `--large`: counts requests with bodies of 1 MiB both ways;
//! - `--keys`: counts requests of one connection with 1,000 keys in turn;
//! - `--connections`: counts connections with one request each, with `--tls` a full handshake among it;
//! - `--functions`: also the functions with the most instructions;
//! - `--baseline`: counts only what `baseline.json` holds, and fails when it has risen; with
//!   `--write`, writes the file.
//!
//! Without `--bench`, as under `cargo test`, it only tries the load and the sizes out. `KEYGATE_BINARY` names another
//! build of the gateway to count, and `KEYGATE_PROFILES` a directory that keeps callgrind's files of the last peer.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark prints its figures")]
#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark fails by panicking, and has no public API")]

#[path = "../counters/mod.rs"]
mod counters;
#[path = "../load/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the other benchmarks need more of it")]
mod load;
#[path = "../peers/mod.rs"]
#[allow(dead_code, reason = "the other benchmarks need more of it")]
mod peers;
#[path = "../../tests/support/mod.rs"]
#[allow(dead_code, unused_imports, unreachable_pub, reason = "the tests need more of it")]
mod support;

mod baseline;
mod callgrind;
mod dhat;
mod report;
mod space;
mod strace;

use callgrind::Instructions;
use load::{Load, Protocol, Shape};
use peers::job::Job;
use peers::{Frontend, Peer, Proxy, Questions, Setup};
use space::Space;
use strace::SystemCalls;
use support::ports;
use support::redis::Redis;

/// Keys in the directory.
const KEYS: usize = 10_000;
/// Keys of the load that has many.
const KEYS_IN_TURN: usize = 1_000;
/// Connections of the load that has many.
const CONNECTIONS: usize = 64;
/// The gateway, and what it is compared with.
const PEERS: [Peer; 5] = [Peer::Keygate, Peer::Haproxy, Peer::NginxLua, Peer::Hyper, Peer::Direct];

/// The same with the rate in a Redis.
const PEERS_ON_REDIS: [Peer; 4] = [Peer::Keygate, Peer::Pingora, Peer::NginxLua, Peer::Hyper];

/// The same over TLS and HTTP/2.
const PEERS_OF_FRONTENDS: [Peer; 4] = [Peer::Keygate, Peer::Hyper, Peer::Haproxy, Peer::NginxPure];
/// Questions of other proxies, over HTTP/1.1 and by gRPC.
const FORWARD_AUTH: Questions = Questions { protocol: "forward_auth", slots: "none" };
const CHECK: Questions = Questions { protocol: "envoy", slots: "none" };

/// Requests in flight on each connection with HTTP/2.
const STREAMS: usize = 8;

/// Size of the measurement.
struct Size {
    keys: usize,
    /// Requests whose cost is counted.
    requests: usize,
    /// Idle connections that are opened at a time.
    idle_connections: usize,
    /// Silence before idle connections are measured.
    silence: std::time::Duration,
}

/// Counted cost of one peer, for each request.
struct Cost {
    peer: Peer,
    instructions: Option<Instructions>,
    bytes_copied: Option<f64>,
    /// With one connection, and with [`CONNECTIONS`].
    system_calls: Option<[SystemCalls; 2]>,
    space: Space,
}

fn main() {
    peers::minimal::run_if_asked();
    let arguments: Vec<String> = std::env::args().collect();
    let has = |name: &str| arguments.iter().any(|argument| argument == name);
    if has("--baseline") {
        std::process::exit(i32::from(!baseline::check(has("--write"))));
    }
    let only = arguments.iter().position(|argument| argument == "--only").and_then(|at| arguments.get(at + 1));
    let measure = has("--bench");
    let requests = if has("--large") { 200 } else { 4_000 };
    let size = if measure {
        Size { keys: KEYS, requests, idle_connections: 500, silence: std::time::Duration::from_secs(4) }
    } else {
        Size { keys: 10, requests: 50, idle_connections: 10, silence: std::time::Duration::ZERO }
    };
    let job = Job::new(size.keys, load::upstream());
    let redis = has("--redis").then(|| {
        let server = Redis::start();
        job.write_to_redis(server.port());
        server
    });
    let frontend = match () {
        () if has("--tls") => Frontend::Tls,
        () if has("--http2") => Frontend::Http2,
        () if has("--decisions") => Frontend::Decisions(FORWARD_AUTH),
        () if has("--checks") => Frontend::Decisions(CHECK),
        () => Frontend::Plain,
    };
    let shape = match () {
        () if has("--large") => Shape::Large,
        () if has("--connections") => Shape::NewConnections,
        () if has("--keys") => Shape::KeysInTurn,
        () => Shape::Small,
    };
    let has_budget = has("--quota");
    let setup = Setup { redis: redis.as_ref().map(Redis::port), frontend, shape, has_budget, ..Setup::default() };
    let is_usual = redis.is_none() && frontend == Frontend::Plain && shape == Shape::Small && !has_budget;
    let peers = match frontend {
        _ if has_budget => &[Peer::Keygate][..],
        Frontend::Plain if redis.is_none() => &PEERS[..],
        Frontend::Plain => &PEERS_ON_REDIS,
        Frontend::Tls | Frontend::Http2 => &PEERS_OF_FRONTENDS,
        Frontend::Decisions(_) => &[Peer::Keygate],
    };
    let mut costs = Vec::new();
    for peer in peers.iter().copied() {
        if only.is_some_and(|only| !peer.name().starts_with(only.as_str())) {
            continue;
        }
        if !peer.is_installed() {
            eprintln!("{} is not installed, so it is left out; `make cost` installs it", peer.name());
            continue;
        }
        peers::check::check(peer, &job, &setup);
        costs.push(if is_usual {
            cost(peer, &job, &setup, &size, measure)
        } else {
            cost_of_path(peer, &job, &setup, &size)
        });
    }
    if !measure {
        try_decisions(&job, size.requests);
    }
    if has("--json") {
        println!("{}", report::json(&costs));
    } else {
        report::table(&costs, has("--functions"));
    }
}

/// Starts the peer anew for each kind of count, since the tools that count slow it down.
fn cost(peer: Peer, job: &Job, setup: &Setup<'_>, size: &Size, measure: bool) -> Cost {
    let space = space::measure(peer, job, size);
    let system_calls = measure.then(|| {
        let proxy = Proxy::start(peer, job, setup);
        strace::count_both(&proxy, job, setup, size.requests)
    });
    let instructions = measure.then(|| callgrind::count(peer, job, setup, size.requests));
    let bytes_copied = measure.then(|| dhat::bytes_copied(peer, job, size.requests));
    Cost { peer, instructions, bytes_copied, system_calls, space }
}

/// Cost of a request with the rate in Redis, or over another protocol; bytes of journal do not depend on that.
fn cost_of_path(peer: Peer, job: &Job, setup: &Setup<'_>, size: &Size) -> Cost {
    let instructions = Some(callgrind::count(peer, job, setup, size.requests));
    let proxy = Proxy::start(peer, job, setup);
    let system_calls = Some(strace::count_both(&proxy, job, setup, size.requests));
    Cost { peer, instructions, bytes_copied: None, system_calls, space: Space::default() }
}

/// Asks the gateway for decisions, each of which must admit.
fn try_decisions(job: &Job, requests: usize) {
    for questions in [FORWARD_AUTH, CHECK] {
        let setup = Setup { frontend: Frontend::Decisions(questions), ..Setup::default() };
        let proxy = Proxy::start(Peer::Keygate, job, &setup);
        run_load(&proxy, job, &setup, 1, requests);
    }
}

/// Sends requests with one key in the way of the frontend.
fn run_load(proxy: &Proxy, job: &Job, setup: &Setup<'_>, connections: usize, requests: usize) {
    let protocol = match setup.frontend {
        Frontend::Plain => Protocol::Http1,
        Frontend::Tls => Protocol::Tls(job.trust.clone()),
        Frontend::Http2 => Protocol::Http2(STREAMS),
        Frontend::Decisions(FORWARD_AUTH) => Protocol::ForwardAuth,
        Frontend::Decisions(_) => Protocol::Check,
    };
    let keys = if setup.shape == Shape::KeysInTurn { job.keys.len().min(KEYS_IN_TURN) } else { 1 };
    Load { keys: &job.keys[..keys], protocol, shape: setup.shape, connections, requests }.run(proxy.address);
}
