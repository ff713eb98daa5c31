//! Bounds of what clients may try, and of what rules may give.

use super::{ROUTES, TARGET, World, exchange, issued, refusal};
use crate::support::{Client, Gateway};

const LIMIT: &str = "limits: { sign_ins: { requests: 3, per: 1h, burst: 3 } }\n";

#[test]
fn failures_of_an_address_are_bounded_and_successes_are_not() {
    let world = World::with(None, LIMIT);
    for _ in 0..6 {
        issued(&world.exchange(&world.token()));
    }
    for _ in 0..3 {
        assert_eq!(refusal(&exchange(&world.gateway, "acme/nothing", &world.token(), &[])).0, 400);
    }
    let limited = exchange(&world.gateway, TARGET, &world.token(), &[]);
    assert_eq!(refusal(&limited), (429, "slow_down".into(), "too_many_attempts".into()));
    assert!(limited.header("retry-after").is_some_and(|seconds| seconds.parse::<u64>().unwrap() > 60), "{limited:?}");
}

#[test]
fn rule_gives_sixty_keys_at_once() {
    let world = World::embedded();
    let limited = (0..90).map(|_| world.exchange(&world.token())).find(|response| response.status != 200);
    let limited = limited.expect("it gives ninety");
    assert_eq!(refusal(&limited), (429, "slow_down".into(), "exchange_limited".into()));
    assert_eq!(limited.header("retry-after"), Some("1"));
    let made = world.keys().len();
    assert!((60..90).contains(&made), "{made}");
}

#[test]
fn path_is_the_upstreams_without_the_setting() {
    let (upstream, gateway, key) = Gateway::with_key("");
    let mut client = Client::connect(gateway.address);
    assert_eq!(client.request("POST", "/v1/token", &key.text, &[], b"grant_type=x").status, 200);
    assert_eq!(upstream.received()[0].line, "POST /v1/token HTTP/1.1");
    assert_eq!(client.request("POST", "/v1/token", "", &[], b"grant_type=x").code(), "unauthenticated");
    let gateway = Gateway::with(&[upstream.address], &format!("\nfederation: {{ path: /token }}\n{ROUTES}"));
    let mut client = Client::connect(gateway.address);
    assert_eq!(client.request("POST", "/v1/token", "", &[], b"grant_type=x").status, 401);
    assert_eq!(client.request("POST", "/token", "", &[], b"grant_type=x").status, 415);
    assert_eq!(upstream.received().len(), 1, "the path of the exchange is never forwarded");
}
