//! Listeners that serve the API, the dashboard, or both.

use super::fixture;
use super::gateway_browser::GatewayBrowser;
use crate::support::{Client, Gateway, Upstream};

#[test]
fn listeners_serve_their_configured_role() {
    let upstream = Upstream::start();
    let listen = "listen:\n  - address: 127.0.0.1:0\n  - { address: '127.0.0.1:0', serves: api }\n  \
                  - { address: '127.0.0.1:0', serves: dashboard }\n";
    let gateway = Gateway::with(&[upstream.address], &format!("{listen}{}", fixture::session(&[], "")));
    let key = gateway.key();
    let seen: Vec<[u16; 3]> = gateway
        .addresses()
        .iter()
        .map(|address| {
            let api = Client::connect(*address).get("/x", &key.text).status;
            let mut visitor = GatewayBrowser::at(*address);
            [api, visitor.open("/settings/sign-in").status, visitor.open("/").status]
        })
        .collect();
    assert_eq!(seen, [[200, 200, 401], [200, 404, 401], [404, 200, 303]]);
    assert_eq!(upstream.count(), 2, "no request to the dashboard's listener is forwarded");
    assert!(upstream.received().iter().all(|received| received.path() == "/x"));
}
