//! Reload: all settings of traces change while the gateway runs.

use super::{ROUTES, servers};
use crate::support::{Client, Collector, Gateway, Upstream, eventually};

fn reload(gateway: &Gateway, change: impl FnOnce(&str) -> String) {
    let before = gateway.metric("keygate_config_last_reload_success_timestamp_seconds");
    gateway.reconfigure(change);
    let loaded = || gateway.metric("keygate_config_last_reload_success_timestamp_seconds");
    eventually("the configuration is loaded", || loaded() > before);
}

#[test]
fn traces_are_turned_on_changed_and_turned_off_by_reloads() {
    let (upstream, first, second) = (Upstream::start(), Collector::start(), Collector::start());
    let (gateway, key) = Gateway::with(&[upstream.address], ROUTES).and_secret();
    let mut client = Client::connect(gateway.address);
    let mut get = || assert_eq!(client.get("/items/7", &key).status, 200);
    get();
    assert!(upstream.last().header("traceparent").is_none());
    reload(&gateway, |text| format!("{text}{}", first.telemetry("")));
    get();
    first.wait_for(2);
    reload(&gateway, |text| text.replace(&first.telemetry(""), &second.telemetry("service: other")));
    get();
    let spans = second.wait_for(2);
    assert_eq!(servers(&spans)[0].resource["service.name"], "other");
    reload(&gateway, |text| text.replace(&second.telemetry("service: other"), ""));
    get();
    assert!(upstream.last().header("traceparent").is_none());
    drop(gateway);
    assert_eq!((first.spans().len(), second.spans().len()), (2, 2));
}

#[test]
fn spans_of_the_settings_before_are_sent_where_they_belong() {
    let (upstream, first, second) = (Upstream::start(), Collector::start(), Collector::start());
    let (gateway, key) = Gateway::with(&[upstream.address], &format!("{}{ROUTES}", first.telemetry(""))).and_secret();
    let mut client = Client::connect(gateway.address);
    assert_eq!(client.get("/items/7", &key).status, 200);
    reload(&gateway, |text| text.replace(&first.telemetry(""), &second.telemetry("")));
    assert_eq!(client.get("/items/7", &key).status, 200);
    drop(gateway);
    assert_eq!((first.spans().len(), second.spans().len()), (2, 2));
}

#[test]
fn reload_without_a_change_of_traces_keeps_the_exporter() {
    let (upstream, collector) = (Upstream::start(), Collector::start());
    let gateway = Gateway::with(&[upstream.address], &format!("{}{ROUTES}", collector.telemetry("")));
    let key = gateway.key().text;
    let mut client = Client::connect(gateway.address);
    for round in 1..=2 {
        assert_eq!(client.get("/items/7", &key).status, 200);
        collector.wait_for(2 * round);
        reload(&gateway, |text| format!("{text}# round {round}\n"));
    }
    assert_eq!(collector.connections(), 1, "a new exporter would have made a new one");
}
