//! Audit records and usage of a gateway elsewhere.

use super::*;
use crate::support::{Client, Key, eventually};

/// Sends a request with a key.
fn use_key(fixture: &Fixture, key: &Key) {
    assert_eq!(Client::connect(fixture.gateway.address).get("/", &key.text).status, 200);
}

/// A fixture with two organizations, whose keys were used once and twice.
fn used() -> (Fixture, Key, Key) {
    let fixture = Fixture::start();
    let [first, second] = [fixture.gateway.key_with(&["queries:read"]), fixture.gateway.key_with(&["queries:read"])];
    use_key(&fixture, &first);
    use_key(&fixture, &second);
    use_key(&fixture, &second);
    fixture.gateway.records();
    (fixture, first, second)
}

#[test]
fn records_are_those_of_the_files_with_all_filters() {
    let (fixture, first, second) = used();
    let name = fixture.json("org list")["items"][0]["name"].as_str().unwrap().to_owned();
    for filter in [
        "".to_owned(),
        "--limit 3".to_owned(),
        format!("--key {}", first.id),
        format!("--org {}", second.org),
        format!("--org {name} --user user@example.com"),
        format!("--subject {}", first.user),
        "--outcome completed --since 1h".to_owned(),
        "--until 1h".to_owned(),
    ] {
        fixture.same(&format!("audit list {filter}"));
        fixture.same(&format!("audit list {filter} --json"));
    }
    let records = fixture.json(&format!("audit list --key {} --outcome completed", second.id));
    let requests = records["records"].as_array().unwrap().iter().filter(|record| record["method"] == "GET");
    assert_eq!(requests.count(), 2, "{records}");
    let explain = format!("explain {}", second.id);
    // Tokens flow into the bucket between the two commands.
    let steady = |ended: Ended| {
        assert_eq!(ended.code, 0, "{ended:?}");
        let lines = ended.out.lines().filter(|line| !line.starts_with("bucket ") && !line.starts_with("full "));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let remote = steady(fixture.remote(&explain));
    assert_eq!(remote, steady(fixture.local(&explain)));
    assert_eq!(remote.iter().filter(|line| line.contains("GET /")).count(), 2, "{remote:?}");
}

/// A client in a loop sends the id of one of its refusals: most of them are folded into one record.
#[test]
fn request_is_explained_by_the_id_that_its_client_was_sent() {
    let fixture = Fixture::start();
    let key = fixture.gateway.key_with(&[]);
    assert_eq!(fixture.remote(&format!("key revoke {}", key.id)).code, 0);
    let mut client = Client::connect(fixture.gateway.address);
    let mut refuse = || {
        let refused = client.get("/", &key.text);
        assert_eq!(refused.code(), "invalid_token");
        refused.json()["request_id"].as_str().unwrap().to_owned()
    };
    let ids: Vec<String> = (0..40).map(|_| refuse()).collect();
    let last = ids.last().unwrap();
    let list = |id: &str| fixture.json(&format!("audit list --id {id}"));
    eventually("the record is written", || list(last)["missing"]["reason"] == "folded");
    let folded = ids.iter().filter(|id| list(id)["missing"]["reason"] == "folded").count();
    let own = ids.iter().filter(|id| list(id)["records"][0]["id"] == **id).count();
    assert!(folded > 0 && own + folded == 40, "{own} with a record of their own, {folded} folded");
    for id in [&ids[0], last] {
        let text = fixture.same(&format!("audit list --id {id}"));
        assert!(text.contains(key.id.as_str()) && text.contains("revoked"), "{text}");
        fixture.same(&format!("audit list --id {id} --json"));
        let text = fixture.same(&format!("explain {id}"));
        assert!(text.contains(key.id.as_str()) && text.contains("requests are refused"), "{text}");
    }
    let missing = fixture.local(&format!("audit list --id {last}")).err;
    let expected = format!(" refusals `revoked` of key {} were folded, from ", key.id);
    assert!(missing.starts_with("no record of its own; its time is covered by record "), "{missing}");
    assert!(missing.contains(&expected) && missing.contains("requests without a key"), "{missing}");
    // The key is that of the records, and the request may have had none.
    let explained = fixture.local(&format!("explain {last}")).err;
    assert!(explained.contains(&format!("this is what is known of key {}", key.id)), "{explained}");
    let of_own = ids.iter().find(|id| list(id)["records"][0]["id"] == **id).unwrap();
    assert!(!fixture.local(&format!("explain {of_own}")).err.contains("this is what is known"));
    let explained = fixture.json(&format!("explain {last}"));
    assert_eq!([&explained["request"]["missing"]["reason"], &explained["key"]["id"]], ["folded", key.id.as_str()]);
    assert_eq!(fixture.local(&format!("audit export --id {last}")).err.lines().last(), missing.lines().next());

    // A request without a key has no record, and its id none to explain.
    let anonymous = Client::connect(fixture.gateway.address).get("/", "").json();
    let line = format!("explain {}", anonymous["request_id"].as_str().unwrap());
    for ended in [fixture.local(&line), fixture.remote(&line)] {
        let expected = "keygate: the audit does not say of which key this request was";
        assert_eq!((ended.code, ended.err.lines().last()), (1, Some(expected)), "{ended:?}");
        assert!(ended.err.contains("no record: "), "{ended:?}");
    }
}

#[test]
fn more_records_than_a_page_are_listed() {
    let fixture = Fixture::start();
    let key = fixture.gateway.key_with(&["queries:read"]);
    (0..130).for_each(|_| use_key(&fixture, &key));
    fixture.gateway.records();
    let list = fixture.same(&format!("audit list --key {} --limit 125", key.id));
    assert_eq!(list.lines().count(), 126);
}

#[test]
fn usage_is_that_of_the_files_and_of_one_organization_for_its_token() {
    let (fixture, first, second) = used();
    for line in [
        "usage --by org",
        "usage --by org --json",
        "usage --by key --per month",
        "usage --by key --own --json",
        "usage --by route --since 1h",
        "usage --by org --cloudevents",
    ] {
        let [local, remote] = [fixture.local(line), fixture.remote(line)];
        assert_eq!((local.code, remote.code), (0, 0), "{line}: {local:?} {remote:?}");
        // The time up to which the records are complete is that of the reading.
        let without_view = |text: &str| text.split("\"view\":{").next().unwrap_or_default().to_owned();
        let items = |text: &str| text.split("\"items\":").nth(1).map(str::to_owned);
        assert_eq!(
            (without_view(&remote.out), items(&remote.out)),
            (without_view(&local.out), items(&local.out)),
            "{line}"
        );
    }
    fixture.token("billing", &format!("token create billing --org {} --allow usage:read", second.org));
    let usage = fixture.with_token("billing", "usage --by route --json", "");
    let usage: Value = serde_json::from_str(&usage.out).unwrap_or_else(|_| panic!("{usage:?}"));
    let requests: u64 = usage["items"].as_array().unwrap().iter().map(|item| item["requests"].as_u64().unwrap()).sum();
    assert_eq!(requests, 2, "those of the other organization are not counted: {usage}");
    let keys = fixture.with_token("billing", "usage --by key", "");
    assert!(keys.err.contains("names are not shown"), "{keys:?}");
    assert!(keys.out.contains(&second.id.to_string()) && !keys.out.contains(&first.id.to_string()), "{keys:?}");
}

#[test]
fn token_of_one_organization_lists_its_records_and_not_who_runs_the_gateway() {
    let (fixture, first, second) = used();
    fixture.token("auditor", &format!("token create auditor --org {} --allow audit:read", second.org));
    let listed = fixture.with_token("auditor", "audit list --json --limit 1000", "");
    let listed: Value = serde_json::from_str(&listed.out).unwrap_or_else(|_| panic!("{listed:?}"));
    let records = listed["records"].as_array().unwrap();
    assert!(records.iter().any(|record| record["action"] == "key.create"), "{listed}");
    assert!(records.iter().all(|record| record["org_id"] == second.org.to_string()), "{listed}");
    assert!(records.iter().all(|record| record["actor"].is_null()), "operators have no name: {listed}");
    let of_first = fixture.with_token("auditor", &format!("audit list --org {} --json", first.org), "");
    let of_none = fixture.with_token("auditor", "audit list --org org_0197c1de000070008000000000000001 --json", "");
    assert_eq!((of_first.code, of_none.code), (1, 1), "{of_first:?}");
    let by_key = fixture.with_token("auditor", &format!("audit list --key {} --json", first.id), "");
    assert_eq!(by_key.out, "{\"records\":[]}\n");
    assert_eq!(fixture.with_token("auditor", "usage --by org", "").code, 1, "another scope");
}
