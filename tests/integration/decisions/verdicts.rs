//! The same trace of requests through the proxy mode and through each protocol gives the same verdicts.

use std::collections::BTreeMap;
use std::thread;

use envoy_wire::HttpStatus;
use envoy_wire::ext_authz::HttpResponse;
use envoy_wire::ext_proc::Response as Answer;

use super::grpc::{Envoy, head, question};
use super::{Asked, PROTOCOLS, Protocol, listen};
use crate::support::random::Random;
use crate::support::strict::is_strict;
use crate::support::{Client, Gateway, Key, Upstream};

/// Requests of the trace: in a strict run ten thousand.
fn requests() -> usize {
    if is_strict() { 10_000 } else { 2_000 }
}

const BLOCKS: &str = "limits: { key: { requests: 5, per: 24h, burst: 5 }, bad_keys: { requests: 100000, per: 24h },
  public: { requests: 100000, per: 24h } }
routes:
  - { name: reads, path: '/reads/**', methods: [GET, HEAD], permission: 'queries:read' }
  - { name: item, path: '/items/{id}', permission: 'queries:write' }
  - { name: open, path: /open, access: public }
  - { name: colon, path: '/rest/a:b', permission: 'queries:write' }
  - { name: rest, path: '/rest/**' }
";

/// A gateway with keys in every state that a decision knows.
struct World {
    gateway: Gateway,
    keys: Vec<String>,
}

impl World {
    fn new(upstream: &Upstream) -> Self {
        let gateway = Gateway::with(&[upstream.address], &format!("{}{BLOCKS}", listen("none")));
        let key = |permissions: &[&str]| gateway.key_with(permissions);
        let all = ["queries:read", "queries:write"];
        let [disabled, revoked, suspended, removed, rotated] = [(); 5].map(|()| key(&all));
        gateway.disable(&disabled);
        gateway.revoke(&revoked);
        gateway.suspend(&suspended);
        gateway.remove_user(&removed);
        let successor = gateway.rotate(&rotated, None);
        let mut keys: Vec<Key> = (0..6).map(|number| key(&all[..number % 3])).collect();
        keys.extend([disabled, revoked, suspended, removed, rotated, successor]);
        let mut keys: Vec<String> = keys.into_iter().map(|key| key.text).collect();
        keys.extend(["".to_owned(), "sk_live_x".to_owned(), "other".to_owned()]);
        Self { gateway, keys }
    }
}

/// A request of the trace: its method, its target, and the index of its key.
fn request(random: &mut Random) -> (&'static str, String, usize) {
    let methods = [
        "GET",
        "HEAD",
        "POST",
        "PUT",
        "DELETE",
        "OPTIONS",
        "PATCH",
        "PURGE",
        "VERSION-CONTROL",
        "M-SEARCH",
        "get",
        "X_Y",
        "TRACE",
        "A_METHOD_OF_25_CHARACTERS",
    ];
    let parts = [
        "reads", "reads", "items", "open", "open", "open", "rest", "rest", "a:b", "a%3Ab", "a%3ab", "a", "..", ".",
        "%2e%2e", "", "b%2fc", "~x", "1", "#", "%0a",
    ];
    let segments = (0..=random.below(4)).map(|_| parts[random.index(parts.len())]);
    let path: String = segments.map(|segment| format!("/{segment}")).collect();
    let query = ["", "?a=1", "?", "?/../x"][random.index(4)];
    (methods[random.index(methods.len())], format!("{path}{query}"), random.index(15))
}

/// The verdict: whether it is admitted, else the status and the code.
fn verdict(status: u16, body: &[u8]) -> String {
    if status < 300 {
        return "admitted".to_owned();
    }
    let problem: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    format!("{status} {}", problem["code"].as_str().unwrap_or_default())
}

/// A way to ask about a request; the first one is to send it.
enum Way {
    Proxied(Client),
    OverHttp(Protocol, Client),
    Check(Envoy),
    Process(Envoy),
}

impl Way {
    /// All ways, each to a gateway of its own.
    fn all(upstream: &Upstream) -> Vec<(Self, World)> {
        let mut ways = Vec::new();
        for place in 0..=PROTOCOLS.len() + 2 {
            let world = World::new(upstream);
            let address = world.gateway.addresses()[place];
            let way = match place {
                0 => Self::Proxied(Client::connect(address)),
                3 => Self::Check(Envoy::connect(address)),
                4 => Self::Process(Envoy::connect(address)),
                place => Self::OverHttp(PROTOCOLS[place - 1], Client::connect(address)),
            };
            ways.push((way, world));
        }
        ways
    }

    fn verdict_on(&mut self, world: &World, (method, target, key): &(&'static str, String, usize)) -> String {
        let asked = Asked { method, target, key: &world.keys[*key], fields: &[] };
        let verdict = self.verdict(world, asked);
        // Without a body there is no code.
        if *method == "HEAD" { verdict[..verdict.len().min(3)].to_owned() } else { verdict }
    }

    fn verdict(&mut self, world: &World, asked: Asked<'_>) -> String {
        match self {
            Self::Proxied(client) => {
                let response = client.request(asked.method, asked.target, asked.key, &[], b"");
                if response.header("connection").is_some() {
                    *client = Client::connect(world.gateway.addresses()[0]);
                }
                verdict(response.status, &response.body)
            }
            Self::OverHttp(protocol, client) => {
                let response = protocol.ask_over(client, asked);
                if response.header("connection").is_some() {
                    *client = Client::connect(world.gateway.addresses()[protocol.place()]);
                }
                verdict(protocol.status(&response), &response.body)
            }
            Self::Check(envoy) => match envoy.check(&question(asked)).http_response {
                Some(HttpResponse::DeniedResponse(denied)) => {
                    verdict(status(denied.status.as_ref()), denied.body.as_bytes())
                }
                _ => verdict(200, b""),
            },
            Self::Process(envoy) => match envoy.process(&head(asked)).1.response {
                Some(Answer::ImmediateResponse(refused)) => verdict(status(refused.status.as_ref()), &refused.body),
                _ => verdict(200, b""),
            },
        }
    }
}

fn status(status: Option<&HttpStatus>) -> u16 {
    status.unwrap().code.try_into().unwrap()
}

#[test]
fn trace_has_the_same_verdicts_in_the_proxy_mode_and_in_each_protocol() {
    let upstream = Upstream::start();
    let mut random = Random::new(0x5eed);
    let trace: Vec<_> = (0..requests()).map(|_| request(&mut random)).collect();
    let ways = Way::all(&upstream);
    let verdicts: Vec<Vec<String>> = thread::scope(|scope| {
        let ask = |(mut way, world): (Way, World)| {
            let trace = &trace;
            scope.spawn(move || trace.iter().map(|request| way.verdict_on(&world, request)).collect())
        };
        let asking: Vec<_> = ways.into_iter().map(ask).collect();
        asking.into_iter().map(|asking| asking.join().unwrap()).collect()
    });
    let (expected, others) = verdicts.split_first().unwrap();
    for (place, verdicts) in others.iter().enumerate() {
        for (number, (expected, verdict)) in expected.iter().zip(verdicts).enumerate() {
            assert_eq!(expected, verdict, "request {number}, way {}: {:?}", place + 1, trace[number]);
        }
    }
    let mut seen = BTreeMap::<&str, usize>::new();
    expected.iter().for_each(|verdict| *seen.entry(verdict).or_default() += 1);
    for verdict in ["admitted", "401 unauthenticated", "401 invalid_token", "403 insufficient_scope", "404 not_found"] {
        assert!(seen.get(verdict).is_some_and(|count| *count > 50), "{verdict}: {seen:?}");
    }
    assert!(seen.contains_key("429 rate_limited"), "{seen:?}");
}
