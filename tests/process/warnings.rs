//! Warnings of `keygate serve` about configurations that are valid and probably not meant, and about its process.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;

use crate::authority::Authority;
use crate::support::redis::Redis;
use crate::support::{KEYGATE, Running, Setup, Upstream, eventually};

const ROUTES: &str = "routes: [{ name: all, path: '/**' }]";

/// The log of a gateway with this state and these blocks, from its start to its end.
fn log(state: &str, blocks: &str) -> String {
    let upstream = Upstream::start();
    let setup = Setup::with_state(upstream.address, state, blocks);
    setup.start_logged().stop();
    std::fs::read_to_string(setup.path().join("log")).unwrap()
}

/// Returns whether a log has a warning, other than those about the user and the limits by which tests run.
fn has_warning(log: &str) -> bool {
    let of_tests = ["user of the process", "limit of open files"];
    log.lines().any(|line| line.contains("WARN") && !of_tests.iter().any(|subject| line.contains(subject)))
}

/// Starts a gateway after this command of a shell, such as `ulimit`.
fn start_after(setup: &Setup, command: &str) -> Running {
    setup.start_by(Command::new("sh").args(["-c", &format!("{command}; exec \"$@\""), "sh", KEYGATE]))
}

#[test]
fn low_soft_limit_of_open_files_is_raised() {
    let upstream = Upstream::start();
    let setup = Setup::new(upstream.address, &format!("http: {{ max_connections: 300 }}\n{ROUTES}"));
    let gateway = start_after(&setup, "ulimit -Sn 128");
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", gateway.id())).unwrap();
    let limit = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let [soft, hard] = [3, 4].map(|word| limit.split_whitespace().nth(word).unwrap());
    assert_eq!(soft, hard, "{limit}");
    // More than the soft limit has room for, all at once.
    let held: Vec<TcpStream> = (0..200)
        .map(|_| {
            let mut stream = TcpStream::connect(setup.address).unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
            let mut status = [0; 12];
            stream.read_exact(&mut status).unwrap();
            assert_eq!(&status, b"HTTP/1.1 401");
            stream
        })
        .collect();
    drop(held);
    gateway.stop();
}

#[test]
fn hard_limit_of_open_files_that_is_too_low_is_warned_about_once() {
    let upstream = Upstream::start();
    let setup = Setup::new(upstream.address, &format!("http: {{ max_connections: 1000 }}\n{ROUTES}"));
    let gateway = start_after(&setup, "ulimit -n 1500");
    let log = || std::fs::read_to_string(setup.path().join("stderr")).unwrap();
    let warning = "limit of open files: 1500, with http.max_connections: 1000; raise the hard limit to 2256 or more";
    eventually("the warning is in the log", || log().contains(warning));
    gateway.stop();
    assert_eq!(log().matches("limit of open files").count(), 1, "{}", log());
}

#[test]
fn certificates_that_are_over_are_warned_about_at_the_start_and_at_a_change() {
    let upstream = Upstream::start();
    let setup = Setup::new(upstream.address, ROUTES);
    let tls = "tls: { certificates: [{ chain: a.pem, key: a.key }, { chain: b.pem, key: b.key }] }";
    setup.write(&setup.text().replace("http2: prior_knowledge", tls));
    let authority = Authority::new();
    let expired = authority.certify_with(&["b.test"], &rcgen::PKCS_ECDSA_P256_SHA256, |params| {
        params.not_before = rcgen::date_time_ymd(2019, 1, 1);
        params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    });
    authority.certify(&["a.test"]).write(setup.path(), "a");
    expired.write(setup.path(), "b");
    let gateway = setup.start_logged();
    let log = || std::fs::read_to_string(setup.path().join("log")).unwrap();
    let of_start = "expired at 2020-01-01T00:00:00Z; renew it";
    eventually("the start is in the log", || log().contains(of_start));
    assert_eq!(log().matches("/a.pem").count(), 0, "{}", log());
    // The certificate that is in use is valid, and stays.
    expired.write(setup.path(), "a");
    eventually("the change is in the log", || log().contains("the previous certificates stay in use: they are valid"));
    gateway.stop();
}

#[test]
fn gateway_without_routes_is_warned_about() {
    let embedded = "{ embedded: { path: state.db } }";
    let without = log(embedded, "");
    assert_eq!(without.matches("no `routes` are configured").count(), 1, "{without}");
    let with = log(embedded, ROUTES);
    assert!(!has_warning(&with), "{with}");
}

#[test]
fn replicas_that_no_change_waits_for_are_warned_about_once() {
    let primary = Redis::start();
    let state = |replicas| {
        format!("{{ redis: {{ url: '{}', deadline: 2s, durability: {{ replicas: {replicas} }} }} }}", primary.url())
    };
    let blocks = format!("workers: 3\n{ROUTES}");
    let alone = log(&state(0), &blocks);
    assert!(!has_warning(&alone), "{alone}");
    let _replica = Redis::options().arg("replicaof", &format!("127.0.0.1 {}", primary.port())).start();
    eventually("the replica is in sync", || {
        primary.info("replication", "connected_slaves") == "1"
            && primary.info("replication", "slave0").contains("online")
    });
    let unused = log(&state(0), &blocks);
    assert_eq!(unused.matches("`state.redis.durability.replicas` is 0").count(), 1, "{unused}");
    let used = log(&state(1), &blocks);
    assert!(!used.contains("durability"), "{used}");
}
