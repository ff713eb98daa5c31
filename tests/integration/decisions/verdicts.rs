//! The same trace of requests through the proxy mode and through each protocol gives the same verdicts.

use control::admin::Operation;

use super::{Asked, PROTOCOLS, Protocol, listen};
use crate::support::random::Random;
use crate::support::{Client, Gateway, Key, Response, Upstream};

const REQUESTS: usize = 10_000;
const BLOCKS: &str = "limits: { key: { requests: 20, per: 24h, burst: 20 }, bad_keys: { requests: 100000, per: 24h },
  public: { requests: 100000, per: 24h } }
routes:
  - { name: reads, path: '/reads/**', methods: [GET, HEAD], permission: 'queries:read' }
  - { name: item, path: '/items/{id}', permission: 'queries:write' }
  - { name: open, path: /open, access: public }
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
        gateway.perform(Operation::DisableKey { key: disabled.id, leaked: false });
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
    let methods = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "PURGE"];
    let parts = ["reads", "items", "open", "rest", "a", "..", ".", "%2e%2e", "", "b%2fc", "~x", "1"];
    let segments = (0..=random.below(4)).map(|_| parts[random.index(parts.len())]);
    let path: String = segments.map(|segment| format!("/{segment}")).collect();
    let query = ["", "?a=1", "?", "?/../x"][random.index(4)];
    (methods[random.index(methods.len())], format!("{path}{query}"), random.index(15))
}

/// The verdict: whether it is admitted, else the status and the code.
fn verdict(status: u16, response: &Response) -> String {
    if status < 300 {
        return "admitted".to_owned();
    }
    format!("{status} {}", Protocol::code(response))
}

#[test]
fn trace_has_the_same_verdicts_in_the_proxy_mode_and_in_each_protocol() {
    let upstream = Upstream::start();
    let worlds: Vec<World> = (0..=PROTOCOLS.len()).map(|_| World::new(&upstream)).collect();
    let mut connections: Vec<Client> =
        worlds.iter().enumerate().map(|(place, world)| Client::connect(world.gateway.addresses()[place])).collect();
    let mut random = Random::new(0x5eed);
    let mut seen = std::collections::BTreeMap::<String, usize>::new();
    for number in 0..REQUESTS {
        let (method, target, key) = request(&mut random);
        let mut expected = None;
        for (place, (world, connection)) in worlds.iter().zip(&mut connections).enumerate() {
            let key = &world.keys[key];
            let (verdict, is_closed) = match place.checked_sub(1).map(|place| PROTOCOLS[place]) {
                None => {
                    let response = connection.request(method, &target, key, &[], b"");
                    (verdict(response.status, &response), response.header("connection").is_some())
                }
                Some(protocol) => {
                    let asked = Asked { method, target: &target, key, fields: &[] };
                    let response = protocol.ask_over(connection, asked);
                    (verdict(protocol.status(&response), &response), response.header("connection").is_some())
                }
            };
            if is_closed {
                *connection = Client::connect(world.gateway.addresses()[place]);
            }
            // Without a body there is no code.
            let verdict = if method == "HEAD" { verdict[..verdict.len().min(3)].to_owned() } else { verdict };
            let expected = expected.get_or_insert_with(|| verdict.clone());
            assert_eq!(
                *expected,
                verdict,
                "request {number}, {:?}: {method} {target}",
                PROTOCOLS.get(place.wrapping_sub(1))
            );
        }
        *seen.entry(expected.unwrap_or_default()).or_default() += 1;
    }
    for verdict in ["admitted", "401 unauthenticated", "401 invalid_token", "403 insufficient_scope", "404 not_found"] {
        assert!(seen.get(verdict).is_some_and(|count| *count > 100), "{verdict}: {seen:?}");
    }
    assert!(seen.contains_key("429 rate_limited"), "{seen:?}");
}
