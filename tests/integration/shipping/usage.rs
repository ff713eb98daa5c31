//! `keygate usage` where the audit is shipped to PostgreSQL: the usage in PostgreSQL is that of the journals.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use domain::budget::{BudgetSubject, BudgetTotal, Cost};
use domain::clock::{self, Micros};
use domain::identity::AuthMethod;
use domain::refusal::Refusal;
use journal::audit::{
    AuditView, BillingPeriod, Fleet, Outcome, Settings, Settled, SpentBy, UsageBy, UsageQuery, Use, UseEnd,
};
use journal::shipping::Shippers;
use platform::metrics::Metrics;
use serde_json::{Value, json};

use super::postgresql::sink;
use crate::journal::support::{Caller, END, block_on, open_journal, settings};
use crate::support::Postgresql;

const DAY: u64 = 86_400_000_000;

/// The budget of a caller, whose total starts 30 days ago.
fn budget_of(caller: &Caller, now: Micros) -> BudgetTotal {
    let start = Micros(now.0 / 1_000_000 * 1_000_000 - 30 * DAY);
    BudgetTotal { subject: BudgetSubject::Org(caller.org), start, units: 0 }
}

/// Writes uses of two days to the journal of a gateway, and ships them.
fn write_and_ship(settings: &Settings, server: &Postgresql, callers: &[Caller], now: Micros) {
    let journal = open_journal(settings);
    let budget_of = |caller: Caller| budget_of(&caller, now);
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
                2 => {
                    let metered = Use { cost: Cost::at_most(100), budget: Some(budget_of(caller)), ..opening };
                    let settled = Settled { cost: number, returned: budget_of(caller) };
                    journal.begin(&metered).await.unwrap().close_settled(END, settled);
                }
                _ => journal.begin(&Use { cost: Cost::fixed(20), ..opening }).await.unwrap().close(END),
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
    let query = UsageQuery { by, per, since: None, until: None, by_gateway: false, org, budget: None };
    let (reports, _) = view.usage_of_fleet(query).unwrap();
    let rows = reports.iter().flat_map(|report| &report.rows);
    let all: u64 = rows.map(|row| row.requests + row.refusals).sum();
    let own = by_org.iter().filter(|item| item["org_id"] == caller.org.to_string());
    let number = |item: &Value, name: &str| item[name].as_u64().unwrap();
    let expected: u64 = own.map(|item| number(item, "requests") + number(item, "refusals")).sum();
    assert!(all == expected && all > 0, "{all} of {expected}");
}

/// The units of a budget, in the database and in both journals.
fn compare_units_of(caller: &Caller, now: Micros, server: &Postgresql, gateways: &[PathBuf; 2]) {
    let journals = gateways.each_ref().map(|gateway| AuditView::of_directory(&gateway.join("audit")).unwrap());
    let database = platform::postgresql::Settings::parse(&server.url(), None).unwrap();
    journals[0].set_fleet(Some(Fleet::open(database, Duration::from_secs(60)).unwrap()));
    let BudgetTotal { subject, start, .. } = budget_of(caller, now);
    let second = Duration::from_secs(1);
    let units = |from, before| {
        let spent = SpentBy { subject, from, before };
        let own: u64 = journals.iter().map(|journal| journal.units_of_gateway(&spent, now).unwrap()).sum();
        let (fleet, gateways) = journals[0].units_of_fleet(&spent).unwrap();
        assert_eq!((fleet, gateways.len()), (own, 2));
        fleet
    };
    // 2 + 12 + … + 52, and 7 + 17 + … + 57, at each gateway.
    assert!([2 * 162, 2 * 192].contains(&units(start, start.after(second))));
    assert_eq!(units(start.before(second), start) + units(start.after(second), Micros(u64::MAX)), 0);
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
            for name in ["requests", "refusals", "open", "units", "request_bytes", "response_bytes"] {
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
        compare_units_of(caller, now, &server, &["gw-1", "gw-2"].map(|name| directory.path().join(name)));
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
