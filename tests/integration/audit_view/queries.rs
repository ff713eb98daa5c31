//! The SQL of docs/audit/queries.md, against a real server with real records.

use std::collections::BTreeMap;
use std::time::Duration;

use domain::clock::{self, Micros};
use domain::identity::{AuthMethod, UserId};
use domain::management_token::TokenId;
use domain::refusal::Refusal;
use journal::audit::{Outcome, Use, UseEnd};

use super::fixture::{Event, Recorder};
use crate::journal::support::{Caller, END, block_on};
use crate::support::Postgresql;
use crate::support::page::{Block, blocks};

/// Microseconds of an hour.
const HOUR: u64 = 3_600_000_000;

/// The statements that make the role which only reads.
const ROLE: &str = "CREATE ROLE auditor";

/// The questions of the page, by the heading above each.
fn statements() -> BTreeMap<String, String> {
    let mut statements = BTreeMap::new();
    let questions = blocks().into_iter().filter(|block| block.language == "sql" && !block.text.starts_with(ROLE));
    for Block { heading, text, .. } in questions {
        assert!(statements.insert(heading.clone(), text).is_none(), "one statement: {heading}");
    }
    statements
}

/// Names for the texts that differ from run to run, such as ids and times.
struct Names(Vec<(String, &'static str)>);

impl Names {
    /// A row with names in place of these texts.
    fn shown(&self, row: &str) -> String {
        self.0.iter().fold(row.to_owned(), |row, (text, name)| row.replace(text, name))
    }
}

/// The text that the server shows for an expression.
fn text(server: &Postgresql, expression: &str, time: Micros) -> String {
    let time = format!("'epoch'::timestamptz + {} * '1 microsecond'::interval", time.0);
    server.sql(&format!("SELECT {}", expression.replace("TIME", &time))).remove(0)
}

#[test]
fn documented_queries_answer_their_questions() {
    let server = Postgresql::start();
    let [ada, idle] = [Caller::random(), Caller::random()];
    let (admin, second) = (UserId::generate(), Duration::from_secs(1));
    let token: TokenId = "AbcDEF1239".parse().unwrap();
    // In the middle of an hour, so that all of it is within one.
    let time = Micros((clock::now().0 / HOUR - 1) * HOUR + HOUR / 2);
    let times: Vec<Micros> = (0..8).map(|number| time.after(second * number)).collect();
    let mut recorder = Recorder::new("gateway-1");
    // Refused twice, completed, revoked by the operator, and still open.
    for (place, kind) in [0, 1, 2, 3, 4].into_iter().enumerate() {
        recorder.record(&[ada], Event { caller: 0, time: times[place], kind });
    }
    let session = |time| Use { auth_method: AuthMethod::Session, number: None, ..ada.opening_at(time) };
    let by_admin = Use { user_id: Some(admin), ..session(times[5]) };
    recorder.change(by_admin, "key.rotate", &admin.to_string(), Some(ada.user));
    let by_ada = Use { key_id: None, ..session(times[6]) };
    recorder.change(by_ada, "session.end", &ada.user.to_string(), Some(ada.user));
    let by_program = Use { user_agent: Some(b"terraform/1.9"), ..session(times[7]) };
    recorder.change_by_token(by_program, "key.set", token);
    let unknown = UseEnd { outcome: Outcome::Refused(Refusal::Unknown), status: Some(401), ..END };
    let opening = Use { key_id: None, user_id: None, org_id: None, number: None, ..ada.opening_at(times[7]) };
    block_on(recorder.journal.begin(&opening)).unwrap().close(unknown);
    // After the revocation, by a clock that is wrong.
    let late = time.after(second * 60);
    recorder.record(&[ada], Event { caller: 0, time: late, kind: 2 });
    let long_ago = clock::now().before(Duration::from_secs(120 * 86_400));
    recorder.record(&[idle], Event { caller: 0, time: long_ago, kind: 2 });
    recorder.ship(&server);

    let mut names = vec![
        (ada.key.to_string(), "KEY"),
        (ada.user.to_string(), "ADA"),
        (ada.org.to_string(), "ORG"),
        (admin.to_string(), "ADMIN"),
        (idle.key.to_string(), "IDLE"),
        (text(&server, "TIME", late), "LATE"),
        (text(&server, "TIME", long_ago), "LONG AGO"),
        (text(&server, "date_trunc('hour', TIME)", time), "HOUR"),
    ];
    for (time, name) in times.iter().zip(["T0", "T1", "T2", "T3", "T4", "T5", "T6", "T7"]) {
        names.push((text(&server, "TIME", *time), name));
    }
    let names = Names(names);
    let role: Vec<Block> = blocks().into_iter().filter(|block| block.text.starts_with(ROLE)).collect();
    server.sql(&role[0].text);
    let answers: BTreeMap<String, Vec<String>> = statements()
        .iter()
        .map(|(heading, statement)| {
            let org = if heading.starts_with('8') { idle.org } else { ada.org };
            let sql = statement
                .replace(":'key'", &format!("'{}'", ada.key))
                .replace(":'user'", &format!("'{}'", ada.user))
                .replace(":'org'", &format!("'{org}'"))
                .replace(":'network'", "'203.0.113.0/24'");
            let number = heading.split('.').next().expect("there is a first part").to_owned();
            // By the role of the page.
            let sql = format!("SET ROLE auditor; {sql}");
            (number, server.sql(&sql).iter().map(|row| names.shown(row)).collect())
        })
        .collect();
    for (number, expected) in ANSWERS {
        assert_eq!(answers[*number], *expected, "question {number}");
    }
    // Its times are those of the server.
    let complete = &answers["10"];
    assert!(
        complete.len() == 1 && complete[0].starts_with("gateway-1|") && complete[0].ends_with("|1"),
        "{complete:?}"
    );
    let panel = &answers["The view `keygate"];
    assert!(panel.len() == 2 && panel[0].ends_with("|3|2") && panel[1].ends_with("|1|"), "{panel:?}");
    assert_eq!(answers.len(), ANSWERS.len() + 2, "each statement of the page has an answer here");
}

/// The answers that are the same in each run.
const ANSWERS: &[(&str, &[&str])] = &[
    (
        "1",
        &[
            "LATE|ADA|203.0.113.7|curl/8.5.0|queries.list|completed|200|1|gateway-1",
            "T4|ADA|203.0.113.7|curl/8.5.0|queries.list|in_progress||1|gateway-1",
            "T2|ADA|203.0.113.7|curl/8.5.0|queries.list|completed|200|1|gateway-1",
            "T1|ADA|203.0.113.7|curl/8.5.0|queries.list|forbidden|429|1|gateway-1",
            "T0|ADA|203.0.113.7|curl/8.5.0|queries.list|rate_limited|429|1|gateway-1",
        ],
    ),
    ("2", &["203.0.113.7|T0|LATE|5|2"]),
    ("3", &["KEY|ORG|T0|LATE|7"]),
    // Not what the operator and the administrator have changed of her.
    (
        "4",
        &[
            "LATE|KEY|api-key|queries.list|/api/queries|completed|200|203.0.113.7",
            "T6||session|session.end|session.end|completed|200|203.0.113.7",
            "T4|KEY|api-key|queries.list|/api/queries|in_progress||203.0.113.7",
            "T2|KEY|api-key|queries.list|/api/queries|completed|200|203.0.113.7",
            "T1|KEY|api-key|queries.list|/api/queries|forbidden|429|203.0.113.7",
            "T0|KEY|api-key|queries.list|/api/queries|rate_limited|429|203.0.113.7",
        ],
    ),
    ("5", &["HOUR|ORG|KEY|forbidden|1", "HOUR|ORG|KEY|rate_limited|1"]),
    (
        "6",
        &[
            "T7|token:AbcDEF1239|key.set|KEY||token|203.0.113.7|completed",
            "T6|ADA|session.end||ADA|session|203.0.113.7|completed",
            "T5|ADMIN|key.rotate|KEY|ADA|session|203.0.113.7|completed",
            "T3|unix:ada(1000)|key.revoke|KEY|ADA|admin-socket||completed",
        ],
    ),
    ("7", &["LATE|203.0.113.7|queries.list|completed|T3"]),
    ("8", &["IDLE|LONG AGO"]),
    ("9", &["203.0.113.7|HOUR|1|1"]),
];

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
