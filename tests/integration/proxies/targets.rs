//! Random targets, with characters that browsers send in a query, encoded slashes and empty segments where routes let
//! them pass: what the upstream gets is what the client has sent, or what was decided.

use std::collections::BTreeMap;

use super::requests::as_read_laxly;
use super::setup::{LIMITS, blocks_with};
use super::{Kind, Setup};
use crate::support::{Client, Gateway, Key, Random, Upstream};

/// Targets of each proxy, and of the gateway as the proxy.
const TARGETS: usize = 2_000;
/// Requests of one connection.
const PER_CONNECTION: usize = 100;
const ROUTES: &str = "routes:\n  \
                      - { name: reads, path: '/reads/**', permission: 'queries:read', encoded_slash: pass, \
                      empty_segments: pass }\n  \
                      - { name: files, path: '/files/{id}', permission: 'queries:read', encoded_slash: pass }\n  \
                      - { name: writes, path: '/writes/**', permission: 'queries:write' }\n  \
                      - { name: open, path: '/open/**', access: public }\n";

/// Pieces of paths; some begin a segment, some end one, some are no characters of a path.
const OF_PATHS: [&str; 34] = [
    "/", "/", "//", "a", "b", "~", "%2F", "%2f", "%7E", "%41", "%60", "%25", "%252F", "%5C", "\\", ";x=y", ".", "..",
    "/.", "/..", "%2e", "%2E%2e", "..%2f", "'", "|", "{id}", "`", "\"", "%C3%A4", "%00", "@", ":", "/writes", "/reads",
];
/// Pieces of queries.
const OF_QUERIES: [&str; 24] = [
    "`", "`x`", "|", "^", "{", "}", "[]", "\\", "'", "?", "/", "/../", "%2F", "%60", "%22", "+", "=", "&", "a", ";",
    "~", "\"", "<", "%zz",
];

/// A target that begins with one of the routes.
fn target(random: &mut Random) -> String {
    let mut pick =
        |of: &[&str], most: u64| -> String { (0..random.below(most)).map(|_| of[random.index(of.len())]).collect() };
    let begin = ["/reads/", "/files/", "/open/", "/reads", "/"];
    let path = pick(&OF_PATHS, 7);
    let query = pick(&OF_QUERIES, 8);
    let begin = begin[random.index(begin.len())];
    if query.is_empty() { format!("{begin}{path}") } else { format!("{begin}{path}?{query}") }
}

/// Sends the targets by connections of a bounded age; returns how often each status came, and how often the target that
/// arrived was spelled otherwise than the one that was sent.
fn send(
    connect: impl Fn() -> Client,
    upstream: &Upstream,
    key: &Key,
    seed: u64,
) -> (BTreeMap<u16, usize>, Vec<String>) {
    let mut random = Random::new(seed);
    let (mut statuses, mut respelled) = (BTreeMap::new(), Vec::new());
    let mut client = connect();
    for number in 1..=TARGETS {
        let target = target(&mut random);
        let before = upstream.count();
        let response = client.get(&target, &key.text);
        *statuses.entry(response.status).or_default() += 1;
        let served = usize::from(response.status == 200);
        assert_eq!(upstream.count(), before + served, "{target}: {response:?}");
        if served == 1 {
            let received = upstream.last();
            let path = as_read_laxly(received.path());
            // The key may not write, whichever way a server reads the path.
            assert!(!path.starts_with("writes"), "{target} arrives as {}", received.path());
            if received.path() != target {
                respelled.push(format!("{target} as {}", received.path()));
            }
        }
        // A refusal of a head that is none closes the connection.
        if number % PER_CONNECTION == 0 || response.header("connection") == Some("close") {
            client = connect();
        }
    }
    (statuses, respelled)
}

#[test]
fn random_targets_arrive_byte_for_byte() {
    let upstream = Upstream::start();
    let gateway = Gateway::with(&[upstream.address], &format!("{ROUTES}limits: {LIMITS}\n"));
    let key = gateway.key_with(&["queries:read"]);
    let (statuses, respelled) = send(|| Client::connect(gateway.address), &upstream, &key, 1);
    assert!(respelled.is_empty(), "{respelled:?}");
    assert!(statuses[&200] > TARGETS / 8 && statuses[&404] > 0 && statuses[&400] > 0, "{statuses:?}");
}

#[test]
fn random_targets_behind_proxies_arrive_as_they_were_decided() {
    for (seed, kind) in Kind::all().into_iter().enumerate() {
        let setup = Setup::with(kind, &blocks_with(kind, ROUTES));
        let (statuses, respelled) = send(|| setup.proxy.client(), &setup.upstream, &setup.key, seed as u64);
        // Traefik and Caddy spell some paths anew, between the decision and the upstream.
        assert!(respelled.is_empty() || !kind.is_nginx() && !kind.is_envoy(), "{kind:?}: {respelled:?}");
        let refused = [400, 403, 404].iter().filter_map(|status| statuses.get(status)).sum::<usize>();
        assert!(statuses[&200] > TARGETS / 10 && statuses[&200] + refused == TARGETS, "{kind:?}: {statuses:?}");
    }
}
