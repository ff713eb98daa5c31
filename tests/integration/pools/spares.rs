//! Connections that are kept open ahead of requests.

use std::time::Duration;

use super::counting::{Census, Protocol, upstream};
use super::gateway;
use crate::support::{Client, eventually, part_of, traffic_of};

#[test]
fn spares_are_there_before_the_first_request_and_return_when_they_are_closed() {
    for (protocol, more) in [(Protocol::Http1, ""), (Protocol::Http2(10), "protocol: http2")] {
        let census = Census::default();
        let address = upstream(protocol, Duration::ZERO, &census, 6);
        let gateway = gateway(&[address], "max: 6, min_idle: 6", more);
        eventually("spares are open", || census.open() == 6);
        census.close_all();
        eventually("spares are open again", || census.open() == 6);
        assert_eq!((census.most(), census.accepted()), (6, 12));
        let key = gateway.key().text;
        assert_eq!(Client::connect(gateway.address).get("/", &key).status, 200);
        assert_eq!(census.accepted(), 12, "a spare carried the request");
    }
}

#[test]
fn spares_keep_to_the_bounds() {
    let census = Census::default();
    let start = || upstream(Protocol::Http1, Duration::from_millis(1), &census, 5);
    let addresses = [start(), start()];
    let gateway = gateway(&addresses, "max: 4, max_total: 5, min_idle: 4, max_wait: 60s", "");
    eventually("there are as many spares as there may be", || census.open() == 5);
    let key = gateway.key().text;
    // Long enough for some looks at the spares.
    let answers = traffic_of(gateway.address, &key, 16, 100);
    assert_eq!(part_of(&answers, 200), 1.0);
    assert_eq!(census.most(), 5);
}

#[test]
fn spares_of_a_removed_endpoint_are_closed() {
    let (old, new) = (Census::default(), Census::default());
    let addresses =
        [upstream(Protocol::Http1, Duration::ZERO, &old, 4), upstream(Protocol::Http1, Duration::ZERO, &new, 4)];
    let gateway = gateway(&addresses[..1], "min_idle: 4", "");
    eventually("spares are open", || old.open() == 4);
    gateway.reconfigure(|text| text.replace(&addresses[0].to_string(), &addresses[1].to_string()));
    eventually("spares have moved", || (old.open(), new.open()) == (0, 4));
    let loaded = || gateway.metric("keygate_config_last_reload_success_timestamp_seconds");
    let before = loaded();
    gateway.reconfigure(|text| text.replace("min_idle: 4", "min_idle: 0"));
    eventually("no spares are configured", || loaded() > before);
    let accepted = old.accepted();
    new.close_all();
    let key = gateway.key().text;
    assert_eq!(Client::connect(gateway.address).get("/", &key).status, 200);
    assert_eq!((new.open(), old.accepted()), (1, accepted), "none is opened any more");
}

#[test]
fn spares_are_renewed_at_their_age() {
    let census = Census::default();
    let address = upstream(Protocol::Http1, Duration::ZERO, &census, 2);
    let _gateway = gateway(&[address], "min_idle: 2, max_age: 1s", "");
    eventually("spares were renewed", || census.accepted() >= 4 && census.open() == 2);
    assert_eq!(census.most(), 2);
}
