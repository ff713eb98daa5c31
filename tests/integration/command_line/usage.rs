//! `keygate usage`: tables, JSON and CloudEvents.

use domain::budget::Cost;
use domain::clock::{self, Micros};
use domain::identity::OrgId;
use domain::key::KeyId;
use domain::refusal::Refusal;
use journal::audit::{Journal, Outcome, Use, UseEnd};
use keygate::config::Config;
use platform::metrics::Metrics;
use serde_json::{Value, json};

use super::Installation;
use crate::journal::support::Caller;

const DAY: u64 = 86_400_000_000;

/// Journal of an installation with uses of one key: two on a day of 2024, one of them refused 30 times, and one use
/// that is open since the day after and has cost 20 units.
struct Written {
    installation: Installation,
    org: OrgId,
    key: KeyId,
}

fn write_journal() -> Written {
    let installation = Installation::new();
    let caller @ Caller { org, key, .. } = Caller::random();
    let opening = |time: Micros| Use { number: None, ..caller.opening_at(time) };
    let end = |outcome| UseEnd { outcome, status: Some(200), duration_us: 1, request_bytes: 3, response_bytes: 7 };
    let config = Config::load(&installation.config).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let journal = Journal::open(config.audit.clone(), Metrics::new().audit).unwrap();
        let first: Micros = "2024-02-29T23:59:59Z".parse().unwrap();
        for _ in 0..2 {
            journal.begin(&opening(first)).await.unwrap().close(end(Outcome::Completed));
        }
        for _ in 0..30 {
            let refused = end(Outcome::Refused(Refusal::RateLimited));
            journal.record_refusal(&opening(first), refused).await.unwrap();
        }
        // Recovery has closed it, if there was one: a killed gateway leaves it open until the next start.
        let report = Use { cost: Cost::fixed(20), ..opening(Micros(first.0 + DAY)) };
        std::mem::forget(journal.begin(&report).await.unwrap());
        journal.close().await;
    });
    Written { installation, org, key }
}

#[test]
fn usage_is_a_table_or_json() {
    let Written { installation, org, key } = write_journal();
    let table = installation.ok("usage --by key").out;
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 3, "{table}");
    assert!(lines[0].starts_with("PERIOD") && lines[1].starts_with(&format!("2024-02-29  {org}/{key}  2 ")), "{table}");
    assert!(lines[1].contains("completed=2 rate_limited=30"), "{table}");
    assert!(
        lines[0].contains("  REQUESTS  UNITS  REFUSALS  ") && lines[2].contains("  1         20     0  "),
        "{table}"
    );
    let even = installation.ok("usage --by key --until 2024-03-01T00:00:00Z").out;
    assert!(even.contains("  REQUESTS  REFUSALS  "), "every request has cost one unit: {even}");
    let usage = installation.json("usage --by key --per month");
    assert_eq!(usage["by"], "key");
    assert_eq!((usage["complete_from"].clone(), usage["damaged_lines"].clone()), (Value::Null, json!(0)));
    let expected = json!({
        "period": "2024-02", "start": "2024-02-01T00:00:00.000000Z", "end": "2024-03-01T00:00:00.000000Z",
        "org_id": org, "key_id": key, "requests": 2, "refusals": 30, "open": 0,
        "outcomes": { "completed": 2, "rate_limited": 30 }, "units": 2, "request_bytes": 6, "response_bytes": 14,
    });
    assert_eq!(usage["items"][0], expected);
    let items = |line: &str| installation.json(line)["items"].clone();
    assert_eq!(items("usage --by org")[1]["org_id"], json!(org));
    assert_eq!(items("usage --by route")[0]["route"], "queries.list");
    assert_eq!(items("usage --by org --since 2024-03-01T00:00:00Z").as_array().unwrap().len(), 1);
    assert_eq!(items("usage --by org --until 2024-02-29T00:00:00Z"), json!([]));
    let none = installation.ok("usage --by org --until 2024-01-01T00:00:00Z");
    let (first, second) = none.err.split_once('\n').unwrap();
    assert_eq!(first, "there are no requests in this time");
    assert!(second.starts_with("records of gateway ") && second.contains(" only, complete up to 20"), "{second}");
}

#[test]
fn events_are_the_same_each_time_and_have_final_usage_only() {
    let Written { installation, org, key } = write_journal();
    let first = installation.ok("usage --by key --cloudevents");
    let event: Value = serde_json::from_str(first.out.lines().next().unwrap()).unwrap();
    assert_eq!(event["specversion"], "1.0");
    assert_eq!(event["id"], json!(format!("day:2024-02-29:key:{org}/{key}")));
    assert_eq!(event["type"], "keygate.usage.key.day.v1");
    assert_eq!(
        (event["subject"].clone(), event["time"].clone()),
        (json!(format!("{org}/{key}")), json!("2024-03-01T00:00:00.000000Z"))
    );
    assert!(event["source"].as_str().unwrap().starts_with("/keygate/gateways/"));
    assert_eq!(event["datacontenttype"], "application/json");
    assert_eq!((event["data"]["requests"].clone(), event["data"]["refusals"].clone()), (json!(2), json!(30)));
    assert_eq!(first.out.lines().count(), 1, "the use of the next day is open: {first:?}");
    assert!(first.err.contains("1 row from 2024-03-01 on not exported yet: "), "{first:?}");
    assert!(first.err.contains("or requests of it are open (1). Run again tomorrow."), "{first:?}");

    let again = installation.ok("usage --by key --per day --cloudevents lines");
    assert_eq!(again.out, first.out);
    let batch: Value = serde_json::from_str(&installation.ok("usage --by key --cloudevents batch").out).unwrap();
    assert_eq!(batch, json!([event]));
    // A later use changes nothing that was exported.
    let printed = installation.with_key();
    installation.with_use_of(printed.trim());
    let later = installation.ok("usage --by key --cloudevents").out;
    assert!(later.starts_with(&first.out), "{later}");
    assert!(later.contains("day:2024-03-01:key:"), "the next start has closed the open use: {later}");
    assert!(!later.contains(&clock::now().to_string()[..10]), "today is not over: {later}");
    let refused = installation.run("usage --by key --json --cloudevents");
    assert_eq!(refused.code, 2, "{refused:?}");
    // A part of a month is no month.
    let part = installation
        .ok("usage --by key --per month --since 2024-02-29T00:00:00Z --until 2024-03-01T00:00:00Z --cloudevents");
    assert_eq!(part.out, "");
}
