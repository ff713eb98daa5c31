//! `kill -9` under load: every request that reached the upstream is in the journal, and no bucket comes back fuller.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::support::{Client, SetOnDrop, Setup, Upstream, client, eventually};

const DEATHS: usize = 20;
/// Responses seen before each death.
const RESPONSES: usize = 150;
/// Each has one request in flight at most.
const CLIENTS: usize = 4;
/// The bucket hardly refills: what is taken is visibly gone.
const BURST: usize = 100_000;
/// Tokens of each request.
const COST: usize = 3;

#[test]
fn twenty_kills_under_load_lose_no_record() {
    let upstream = Upstream::start();
    let setup = Setup::new(
        upstream.address,
        "plans: { sold: { requests: 1, per: 1h, burst: 100000, quota: { units: 1000000, per: month, of: org } } }\n\
         limits: { plan: sold }\n\
         routes: [{ name: all, path: '/**', cost: 3 }]",
    );
    let key = setup.key();
    for _ in 0..DEATHS {
        let mut gateway = setup.start();
        load_until(&setup, &key, || gateway.kill());
    }
    // The last start recovers the journal; a clean stop leaves no record open.
    let gateway = setup.start();
    let explained = setup.ok(&["explain", &key[8..17], "--json"]);
    gateway.stop();
    let explained: serde_json::Value = serde_json::from_str(&explained).unwrap();

    let seen: Vec<String> =
        upstream.received().iter().map(|request| request.header("x-request-id").unwrap().to_owned()).collect();
    assert!(seen.len() >= DEATHS * RESPONSES);
    assert_eq!(seen.iter().collect::<HashSet<_>>().len(), seen.len());
    let mut recorded: HashMap<String, usize> = HashMap::new();
    let mut outcomes: HashMap<String, usize> = HashMap::new();
    let mut last_time: Option<String> = None;
    for line in setup.ok(&["audit", "export"]).lines() {
        let record: serde_json::Value = serde_json::from_str(line).unwrap();
        if record["auth_method"] == "api-key" {
            *recorded.entry(record["id"].as_str().unwrap().to_owned()).or_default() += 1;
            // Times of this form sort as text.
            last_time = last_time.max(record["time"].as_str().map(str::to_owned));
            *outcomes.entry(record["outcome"].as_str().unwrap().to_owned()).or_default() += 1;
        }
    }
    // Last Used is that of the last use before a kill, to the microsecond, although no checkpoint had it.
    let last_used = find(&explained, "last_used").and_then(serde_json::Value::as_str).unwrap().to_owned();
    assert_eq!(Some(last_used), last_time);
    let missing: Vec<_> = seen.iter().filter(|id| !recorded.contains_key(*id)).collect();
    assert!(missing.is_empty(), "{} of {} requests have no record", missing.len(), seen.len());
    assert!(recorded.values().all(|count| *count == 1));
    assert_eq!(outcomes.get("in_progress"), None, "{outcomes:?}");
    assert!(outcomes["completed"] > 0, "{outcomes:?}");
    setup.ok(&["audit", "verify"]);

    let remaining =
        find(&explained, "remaining").and_then(serde_json::Value::as_u64).expect("explain says what is left");
    let remaining = usize::try_from(remaining).unwrap();
    assert!(remaining <= BURST - COST * seen.len(), "{remaining} tokens are left after {} requests", seen.len());
    let taken = BURST - remaining;
    // The budget is exact but for what was in flight at each death: never too low.
    let spent = find(&explained, "used").and_then(serde_json::Value::as_u64).expect("explain says what is spent");
    let spent = usize::try_from(spent).unwrap();
    assert!(spent >= COST * recorded.len(), "{spent} units are spent, {} uses are recorded", recorded.len());
    assert!(spent <= COST * (recorded.len() + DEATHS * CLIENTS), "{spent} units are spent");
    // A checkpoint may have the tokens of a request that was killed before its record, and was not forwarded: the
    // bucket is emptier by what was in flight at each death, at most. The one is a token that is partly refilled.
    let decided = COST * (recorded.len() + DEATHS * CLIENTS) + 1;
    assert!(taken <= decided, "{taken} tokens were taken, {} uses are recorded", recorded.len());
}

/// Clients send requests; when enough are answered, the gateway is killed while they continue.
fn load_until(setup: &Setup, key: &str, die: impl FnOnce()) {
    let (answered, dead) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let _over = SetOnDrop(&dead);
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut client = setup.client();
                let request = client::head("GET", "/", key, &[], 0);
                while !dead.load(Ordering::SeqCst) && one(&mut client, &request) {
                    answered.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        eventually("requests are answered", || answered.load(Ordering::SeqCst) >= RESPONSES);
        die();
        dead.store(true, Ordering::SeqCst);
    });
}

fn one(client: &mut Client, request: &str) -> bool {
    client.try_send(request).is_ok() && client.try_response_to("GET").is_ok_and(|response| response.status == 200)
}

/// Finds a member by name anywhere in a document.
pub fn find<'a>(document: &'a serde_json::Value, name: &str) -> Option<&'a serde_json::Value> {
    match document {
        serde_json::Value::Object(members) => {
            members.get(name).or_else(|| members.values().find_map(|member| find(member, name)))
        }
        serde_json::Value::Array(items) => items.iter().find_map(|item| find(item, name)),
        _ => None,
    }
}
