//! The SQL of docs/audit-queries.md, against a real server with real records.

use std::collections::BTreeMap;
use std::time::Duration;

use domain::clock;
use domain::refusal::Refusal;
use journal::audit::{Outcome, UseEnd};

use super::fixture::{Event, Recorder};
use crate::journal::support::{Caller, END, block_on};
use crate::support::Postgresql;

/// The statements of the page, by the heading above each.
fn statements() -> BTreeMap<String, String> {
    let page = std::fs::read_to_string("docs/audit-queries.md").unwrap();
    let (mut heading, mut statements) = (String::new(), BTreeMap::new());
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(title) = line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#')) {
            heading = title.to_owned();
        }
        if line == "```sql" {
            let statement: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            assert!(statements.insert(heading.clone(), statement.join("\n")).is_none(), "one statement: {heading}");
        }
    }
    statements
}

#[test]
fn documented_queries_answer_their_questions() {
    let server = Postgresql::start();
    let [used, other] = [Caller::random(), Caller::random()];
    let mut recorder = Recorder::new("gateway-1");
    let time = clock::now().before(Duration::from_secs(600));
    // Refused twice, completed, changed by the operator, and open.
    for kind in [0, 1, 2, 3, 4] {
        recorder.record(&[used], Event { caller: 0, time, kind });
    }
    let unknown = UseEnd { outcome: Outcome::Refused(Refusal::Unknown), status: Some(401), ..END };
    let opening = used.opening_at(time);
    let opening = journal::audit::Use { key_id: None, user_id: None, org_id: None, number: None, ..opening };
    block_on(recorder.journal.begin(&opening)).unwrap().close(unknown);
    // After the revocation, by a clock that is wrong.
    let late = time.after(Duration::from_secs(60));
    recorder.record(&[used], Event { caller: 0, time: late, kind: 2 });
    let long_ago = clock::now().before(Duration::from_secs(120 * 86_400));
    recorder.record(&[other], Event { caller: 0, time: long_ago, kind: 2 });
    recorder.ship(&server);
    let rows = |heading: &str, statement: &str| {
        let mut sql = statement.to_owned();
        let org = if heading.starts_with('8') { other.org } else { used.org };
        for (name, value) in [
            ("key", used.key.to_string()),
            ("user", used.user.to_string()),
            ("org", org.to_string()),
            ("network", "203.0.113.0/24".to_owned()),
        ] {
            sql = sql.replace(&format!(":'{name}'"), &format!("'{value}'"));
        }
        server.sql(&sql)
    };
    let statements = statements();
    let found: BTreeMap<&str, Vec<String>> =
        statements.iter().map(|(heading, statement)| (heading.as_str(), rows(heading, statement))).collect();
    let counts: Vec<(&str, usize)> =
        found.iter().map(|(heading, rows)| (heading.split('.').next().unwrap(), rows.len())).collect();
    let expected =
        [("1", 5), ("10", 1), ("2", 1), ("3", 1), ("4", 6), ("5", 2), ("6", 1), ("7", 1), ("8", 1), ("9", 1)];
    assert_eq!(counts[..10], expected, "{found:#?}");
    assert_eq!(counts[10].0, "The view `keygate");
    assert!(counts[10].1 >= 1, "{found:#?}");
    let of = |number: &str| &found.iter().find(|(heading, _)| heading.starts_with(number)).unwrap().1[0];
    assert!(of("2.").starts_with("203.0.113.7|") && of("2.").ends_with("|5|2"), "{}", of("2."));
    assert!(of("6.").contains("|key.revoke|"), "{}", of("6."));
    assert!(of("8.").starts_with(&format!("{}|", other.key)), "{}", of("8."));
    assert!(of("10.").starts_with("gateway-1|") && of("10.").ends_with("|1"), "{}", of("10."));
}

#[test]
fn view_knows_every_refusal() {
    let server = Postgresql::start();
    let mut recorder = Recorder::new("gateway-1");
    recorder.record(&[Caller::random()], Event { caller: 0, time: clock::now(), kind: 2 });
    recorder.ship(&server);
    let listed = server.sql("SELECT pg_get_viewdef('keygate.audit'::regclass)").join(" ");
    for outcome in Outcome::all() {
        let is_listed = listed.contains(&format!("'{}'::text", outcome.name()));
        assert_eq!(is_listed, outcome.is_refusal(), "{}: {listed}", outcome.name());
    }
}
