//! Warnings of `keygate check` about configurations that are valid.

use crate::config::{MINIMAL, parse};

#[test]
fn routes_that_another_spelling_passes_by_are_warned_about() {
    let warnings = |routes: &str| parse(&format!("{MINIMAL}routes: [{routes}]\n")).unwrap().warnings();
    let guarded = "{ name: purge, path: '/v1/things:purge', permission: 'things:purge' }";
    let told = warnings(&format!("{guarded}, {{ name: rest, path: '/v1/**' }}"));
    let spellings = "requests for `/v1/THINGS:PURGE` and `/v1/things:purge/` match `rest`, which needs no permission";
    assert!(told.len() == 1 && told[0].contains("`purge`") && told[0].contains(spellings), "{told:?}");
    let told = warnings(&format!("{guarded}, {{ name: rest, path: '/v1/**', permission: 'things:read' }}"));
    assert_eq!(told, Vec::<String>::new());
    let told = warnings("{ name: one, path: '/api/:id' }");
    assert!(told.len() == 1 && told[0].contains("`:id`") && told[0].contains("write `{id}`"), "{told:?}");
}

#[test]
fn networks_that_trust_everybody_are_warned_about() {
    let warnings =
        |addition: &str| parse(&format!("{MINIMAL}{addition}routes: [{{ name: a, path: /a }}]\n")).unwrap().warnings();
    for fine in ["", "trusted_proxies: [10.0.0.0/8, fc00::/7, 192.0.2.7]\n"] {
        assert_eq!(warnings(fine), Vec::<String>::new(), "{fine}");
    }
    for wide in ["0.0.0.0/0", "'::/0'", "128.0.0.0/1"] {
        let told = warnings(&format!("trusted_proxies: [10.0.0.1, {wide}]\n"));
        let network = wide.trim_matches('\'');
        assert!(told.len() == 1 && told[0].contains(&format!("trusted_proxies has {network}")), "{told:?}");
    }
    let listen =
        MINIMAL.replace("- address: 127.0.0.1:8080", "- { address: '127.0.0.1:8080', proxy_protocol: [0.0.0.0/0] }");
    let told = parse(&listen).unwrap().warnings().join("\n");
    assert!(told.contains("listen.proxy_protocol has 0.0.0.0/0"), "{told}");
}

#[test]
fn costs_of_responses_that_a_listener_does_not_see_are_warned_about() {
    let plans = "plans: { sold: { requests: 9, per: 1s, quota: { units: 9, per: day, of: key } } }";
    let warnings = |decisions: &str, cost: &str| {
        let asked =
            format!("- {{ address: '127.0.0.1:8090', serves: decisions, decisions: {{ {decisions} }} }}\n  - address");
        let file = MINIMAL.replacen("- address", &asked, 1);
        parse(&format!("{file}{plans}\nroutes: [{{ name: chat, path: /a, cost: {cost} }}]\n")).unwrap().warnings()
    };
    let metered = "{ at_most: 9, from: X-Cost }";
    assert_eq!(warnings("protocol: envoy, slots: stream", metered), Vec::<String>::new());
    assert_eq!(warnings("protocol: nginx, slots: none", "9"), Vec::<String>::new());
    for unseeing in ["protocol: envoy, slots: none", "protocol: forward_auth, slots: { lease: 30s }"] {
        let told = warnings(unseeing, metered);
        assert!(told.len() == 1 && told[0].contains("`chat`") && told[0].contains("127.0.0.1:8090"), "{told:?}");
    }
}

#[test]
fn fewer_connections_than_workers_are_warned_about() {
    let warnings = |connections: &str| {
        let upstream = MINIMAL.replace("8081]", &format!("8081]\n  connections: {{ {connections} }}"));
        parse(&format!("{upstream}routes: [{{ name: a, path: /a }}]\nworkers: 4\n")).unwrap().warnings()
    };
    assert_eq!(warnings("max: 4, max_total: 4"), Vec::<String>::new());
    for (scarce, warning) in
        [("max: 3", "`connections.max` of the upstream `default` is 3, with 4 workers"), ("max_total: 1", "max_total")]
    {
        let given = warnings(scarce);
        assert!(given.len() == 1 && given[0].contains(warning), "{given:?}");
    }
}
