//! Slots of requests that other proxies forward.

use super::{Asked, PROTOCOLS, gateway};
use crate::support::{Gateway, Key, Upstream, eventually};

fn limited(gateway: &Gateway) -> Key {
    let key = gateway.key();
    gateway.limit_org(&key, 2);
    key
}

#[test]
fn leased_slots_bound_the_organization_until_their_time_is_over() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream, "{ lease: 500ms }", "");
    let addresses = &gateway.addresses()[1..];
    let key = limited(&gateway);
    let ask = |number: usize| {
        let place = number % PROTOCOLS.len();
        PROTOCOLS[place].status(&PROTOCOLS[place].ask(addresses[place], Asked::get("/a", &key.text)))
    };
    assert!([ask(0), ask(1)].into_iter().all(|status| status < 300));
    assert_eq!(gateway.explain_in_flight(&key), 2);
    assert_eq!(ask(2), 429, "both slots are held, over all protocols");
    eventually("the slots are given back", || gateway.explain_in_flight(&key) == 0);
    assert!(ask(2) < 300);
    // Of the record nothing is held back.
    assert_eq!(gateway.records().iter().filter(|record| record.outcome.name() == "decided").count(), 3);
}

#[test]
fn slots_that_are_not_held_bound_nothing_afterwards() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream, "none", "");
    let key = limited(&gateway);
    for _ in 0..5 {
        for (protocol, address) in PROTOCOLS.iter().zip(&gateway.addresses()[1..]) {
            assert!(protocol.ask(*address, Asked::get("/a", &key.text)).status < 300);
        }
    }
    assert_eq!(gateway.explain_in_flight(&key), 0);
}
