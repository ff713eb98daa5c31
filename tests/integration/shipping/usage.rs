//! `keygate usage` where the audit is shipped to PostgreSQL: the usage in PostgreSQL is that of the journals.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use domain::clock::{self, Micros};
use domain::identity::AuthMethod;
use domain::refusal::Refusal;
use journal::audit::{AuditView, BillingPeriod, Fleet, Outcome, Settings, UsageBy, UsageQuery, Use, UseEnd};
use journal::shipping::Shippers;
use platform::metrics::Metrics;
use serde_json::{Value, json};

use super::postgresql::sink;
use crate::journal::support::{Caller, END, block_on, open_journal, settings};
use crate::support::Postgresql;

const DAY: u64 = 86_400_000_000;

/// Writes uses of two days to the journal of a gateway, and ships them.
fn write_and_ship(settings: &Settings, server: &Postgresql, callers: &[Caller], now: Micros) {
    let journal = open_journal(settings);
    block_on(async {
        for (number, time) in (0..60_u64).map(|number| (number, Micros(now.0 - (number % 3) * DAY))) {
            let caller = callers[number as usize % callers.len()];
            let opening = Use { action: ["queries.list", "GET /x"][number as usize % 2], ..caller.opening_at(time) };
            let refused = UseEnd { outcome: Outcome::Refused(Refusal::RateLimited), status: Some(429), ..END };
            match number % 5 {
                0 => drop(journal.record_refusal(&opening, refused).await.unwrap()),
                1 => {
                    let session = Use { key_id: None, auth_method: AuthMethod::Session, ..opening };
                    journal.begin(&session).await.unwrap().close(UseEnd { request_bytes: 7, ..END });
                }
                _ => journal.begin(&opening).await.unwrap().close(END),
            }
        }
        // Coalesced: one record of several.
        for _ in 0..30 {
            let refused = UseEnd { outcome: Outcome::Refused(Refusal::Forbidden), status: Some(403), ..END };
            journal.record_refusal(&callers[0].opening_at(now), refused).await.unwrap();
        }
    });
    let shippers = Shippers::start(journal.tap(), &sink(server), &Metrics::new().shipping).unwrap();
    block_on(journal.close());
    shippers.finish(Duration::from_secs(60));
}

/// The usage by route of one organization is that organization's, although its rows do not name it.
fn compare_usage_of(caller: &Caller, server: &Postgresql, gateway: &Path, by_org: &[Value]) {
    let view = AuditView::of_directory(&gateway.join("audit")).unwrap();
    let database = platform::postgresql::Settings::parse(&server.url(), None).unwrap();
    view.set_fleet(Some(Fleet::open(database, Duration::from_secs(60)).unwrap()));
    let (by, per, org) = (UsageBy::Route, BillingPeriod::Day, Some(caller.org));
    let query = UsageQuery { by, per, since: None, until: None, by_gateway: false, org };
    let (reports, _) = view.usage_of_fleet(query).unwrap();
    let rows = reports.iter().flat_map(|report| &report.rows);
    let all: u64 = rows.map(|row| row.requests + row.refusals).sum();
    let own = by_org.iter().filter(|item| item["org_id"] == caller.org.to_string());
    let number = |item: &Value, name: &str| item[name].as_u64().unwrap();
    let expected: u64 = own.map(|item| number(item, "requests") + number(item, "refusals")).sum();
    assert!(all == expected && all > 0, "{all} of {expected}");
}

fn usage(config: &Path, arguments: &str) -> String {
    usage_and_notes(config, arguments).0
}

fn usage_and_notes(config: &Path, arguments: &str) -> (String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_keygate"));
    let output = command.arg("usage").args(arguments.split_whitespace()).arg("--config").arg(config).output().unwrap();
    assert!(output.status.success(), "{arguments}: {output:?}");
    (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
}

fn items(config: &Path, arguments: &str) -> Vec<Value> {
    let report: Value = serde_json::from_str(&usage(config, &format!("{arguments} --json"))).unwrap();
    report["items"].as_array().unwrap().clone()
}

#[test]
fn usage_in_the_database_is_that_of_the_journals() {
    let (directory, server) = (tempfile::tempdir().unwrap(), Postgresql::start());
    let callers = [Caller::random(), Caller::random()];
    let now = clock::now();
    let configs = ["gw-1", "gw-2"].map(|name| {
        let path = directory.path().join(name);
        std::fs::create_dir(&path).unwrap();
        let settings = Settings { gateway: name.into(), ..settings(&path) };
        write_and_ship(&settings, &server, &callers, now);
        let config = path.join("keygate.yaml");
        let text = format!(
            "listen: [{{ address: 127.0.0.1:0 }}]\nadmin: {{ socket: s, address: 127.0.0.1:1 }}\n\
             upstream: {{ endpoints: [http://127.0.0.1:8081] }}\nstate: {{ embedded: {{ path: state.db }} }}\n\
             gateway: {name}\n\
             audit: {{ path: audit, ship: [{{ postgresql: {{ url: '{}' }} }}] }}\n",
            server.url()
        );
        std::fs::write(&config, text).unwrap();
        config
    });
    for query in
        ["--by org", "--by key", "--by route", "--by key --per month", "--by org --since 30h", "--by org --until 30h"]
    {
        let fleet = items(&configs[0], query);
        let journals = configs.each_ref().map(|config| items(config, &format!("{query} --own")));
        assert!(!fleet.is_empty() && fleet.len() == journals[0].len(), "{query}: {fleet:?}");
        for (item, parts) in fleet.iter().zip(journals[0].iter().zip(&journals[1])) {
            for name in ["requests", "refusals", "open", "request_bytes", "response_bytes"] {
                let sum = parts.0[name].as_u64().unwrap() + parts.1[name].as_u64().unwrap();
                assert_eq!(item[name].as_u64(), Some(sum), "{query} {name}: {item}");
            }
            for name in ["period", "org_id", "key_id", "route"] {
                assert_eq!(item[name], parts.0[name], "{query}");
            }
        }
    }
    for caller in &callers {
        compare_usage_of(caller, &server, &directory.path().join("gw-1"), &items(&configs[0], "--by org"));
    }
    // The events are those of the gateways themselves, under the same ids: exported by either, they are billed once.
    let events = |config: &Path, more: &str| {
        let text = usage(config, &format!("--by key --cloudevents {more}"));
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let [first, second] = configs.each_ref().map(|config| events(config, "--own"));
    let mut both = [first, second].concat();
    both.sort();
    assert_eq!(events(&configs[0], ""), both);
    assert!(!both.is_empty());
    // Whose records were counted, and up to when; and no removal that retention has not made.
    let (_, fleet) = usage_and_notes(&configs[0], "--by org");
    assert!(
        fleet.contains("records of all gateways, complete up to: gw-1 20") && fleet.contains(", gw-2 20"),
        "{fleet}"
    );
    assert!(!fleet.contains("removed"), "{fleet}");
    let (_, own) = usage_and_notes(&configs[0], "--by org --own");
    assert!(own.contains("records of gateway gw-1 only, complete up to 20") && !own.contains("removed"), "{own}");
    let report: Value = serde_json::from_str(&usage(&configs[1], "--by org --json")).unwrap();
    assert_eq!((&report["view"]["scope"], &report["complete_from"]), (&json!("fleet"), &Value::Null));
    assert_eq!(report["view"]["gateways"].as_array().unwrap().len(), 2);
}
