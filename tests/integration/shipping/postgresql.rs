//! The sink in PostgreSQL, with a real server.

use std::sync::Arc;
use std::time::Duration;

use domain::budget::{BudgetSubject, BudgetTotal, Cost};
use domain::clock::{self, Micros};
use journal::audit::{AuditEntry, Durability, Journal, Outcome, Record, Settings, Settled, Use, UseEnd};
use journal::shipping::{self, Destination, PostgresqlSettings, ShippedRecords, Shippers, SinkSettings, SinkState};
use platform::metrics::Metrics;

use crate::journal::support::{
    Caller, END, all_records, block_on, change_by_token, change_of, open_journal, settings, write_uses,
};
use crate::support::redis::Certificates;
use crate::support::{Postgresql, eventually};

const LONG: Duration = Duration::from_secs(60);

/// Settings of a sink in this server.
pub fn sink(server: &Postgresql) -> shipping::Settings {
    sink_with(&server.url(), None, None)
}

pub fn sink_with(
    url: &str,
    tls: Option<platform::tls::ClientSettings>,
    retention: Option<Duration>,
) -> shipping::Settings {
    let database = platform::postgresql::Settings::parse(url, tls).unwrap();
    let destination = Destination::Postgresql(PostgresqlSettings { database, retention });
    shipping::Settings {
        sinks: vec![SinkSettings { name: "central".into(), destination, records: ShippedRecords::All }],
    }
}

pub fn start(journal: &Journal, settings: &shipping::Settings) -> Arc<Shippers> {
    Shippers::start(journal.tap(), settings, &Metrics::new().shipping).unwrap()
}

/// Ships the whole journal in a directory, and ends.
pub fn ship_all(settings: &Settings, sinks: &shipping::Settings) {
    let journal = open_journal(settings);
    let shippers = start(&journal, sinks);
    block_on(journal.close());
    shippers.finish(LONG);
}

pub(super) fn count(server: &Postgresql) -> usize {
    server.try_sql("SELECT count(*) FROM keygate.records").map_or(0, |rows| rows[0].parse().unwrap())
}

/// The rows as records, in the order of their ids.
fn rows(server: &Postgresql) -> Vec<Record> {
    let fields = "id, to_char(time AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"') AS time, key_id, user_id, \
                  org_id, auth_method, host(ip) AS ip, user_agent, action, method, path, provisional, outcome, status, \
                  duration_us, request_bytes, response_bytes, gateway, count, to_char(last_time AT TIME ZONE 'UTC', \
                  'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"') AS last_time, addresses, (SELECT array_agg(host(ip)) FROM \
                  unnest(ips) AS ip) AS ips, trace_id, actor, subject, token_id, cost, budget";
    let lines = server.sql(&format!(
        "SELECT json_strip_nulls(row_to_json(r)) FROM (SELECT {fields} FROM keygate.records ORDER BY records.id) r"
    ));
    lines.iter().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

fn sorted(mut records: Vec<Record>) -> Vec<Record> {
    records.sort_by_key(|record| record.id);
    records
}

fn begin(journal: &Journal, caller: Caller) -> AuditEntry {
    block_on(journal.begin(&caller.opening())).unwrap()
}

#[test]
fn records_are_the_same_in_the_database() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Postgresql::start());
    let settings = Settings { segment_size: 4096, ..settings(dir.path()) };
    write_uses(&settings, 300);
    // Records of all shapes: what a request can bring, refusals that are counted, changes.
    let journal = open_journal(&settings);
    let caller = Caller::random();
    block_on(async {
        for (number, outcome) in Outcome::all().enumerate().skip(1) {
            let mut opening = caller.opening();
            opening.path = "/a\0b\t\"\\ é 💡";
            opening.user_agent = (number % 2 == 0).then_some(b"\x00\xff agent");
            opening.ip = (number % 3 != 0).then(|| "2001:db8::1".parse().unwrap());
            opening.trace_id = domain::trace_context::TraceId::from_bits(number as u128);
            opening.provisional = number % 2 == 1;
            let end = UseEnd { outcome, status: None, duration_us: u64::MAX >> 1, ..END };
            journal.record(&opening, end).await.unwrap();
        }
        let refused = UseEnd { outcome: Outcome::from_name("rate_limited").unwrap(), ..END };
        for _ in 0..100 {
            journal.record_refusal(&caller.opening(), refused).await.unwrap();
        }
        for opening in [caller.opening(), Use { user_id: None, ..caller.opening() }] {
            journal.begin_change(&change_of(opening), false).await.unwrap().close(END);
        }
        let change = change_by_token(caller.opening(), "AbcDEF1239".parse().unwrap());
        journal.begin_change(&change, false).await.unwrap().close(END);
        journal.close().await;
    });
    ship_all(&settings, &sink(&server));
    let expected = sorted(all_records(&settings));
    assert!(expected.iter().any(|record| record.count.is_some()), "refusals were counted");
    assert!(expected.iter().any(|record| record.subject == Some(caller.user)), "a user was acted on");
    assert!(expected.iter().any(|record| record.token_id.is_some()), "a program made a change");
    assert_eq!(rows(&server), expected);
}

#[test]
fn second_delivery_changes_nothing() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Postgresql::start());
    let settings = settings(dir.path());
    write_uses(&settings, 50);
    ship_all(&settings, &sink(&server));
    let first = rows(&server);
    assert_eq!(first.len(), 50);
    // The position is lost, as with a database that was restored from a backup.
    server.sql("DELETE FROM keygate.journals");
    write_uses(&settings, 5);
    ship_all(&settings, &sink(&server));
    let second = rows(&server);
    assert_eq!((second.len(), &second[..50]), (55, &first[..]));
    assert_eq!(server.sql("SELECT records FROM keygate.journals"), ["55"]);
}

#[test]
fn open_use_is_there_and_gets_its_outcome() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Postgresql::start());
    let journal = open_journal(&settings(dir.path()));
    let shippers = start(&journal, &sink(&server));
    let caller = Caller::random();
    let budget = BudgetTotal { subject: BudgetSubject::Org(caller.org), start: Micros(7_000_000), units: 100 };
    let opening = Use { cost: Cost::at_most(100), budget: Some(budget), ..caller.opening() };
    let entry = block_on(journal.begin(&opening)).unwrap();
    let outcomes = || server.try_sql("SELECT outcome FROM keygate.records").unwrap_or_default();
    eventually("the open use is shipped", || outcomes() == ["in_progress"]);
    assert_eq!(server.sql("SELECT cost, budget FROM keygate.audit"), [format!("100|org:{}/7", caller.org)]);
    // A restart of the shipper finds it in the journal again.
    shippers.suspend();
    shippers.resume();
    entry.close_settled(END, Settled { cost: 30, returned: budget });
    eventually("its outcome is shipped", || outcomes() == ["completed"]);
    shippers.finish(LONG);
    let records = all_records(&settings(dir.path()));
    assert_eq!((&rows(&server), records[0].cost), (&records, Some(30)));
}

#[test]
fn use_of_a_gateway_that_died_is_aborted_in_the_database() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Postgresql::start());
    let settings = settings(dir.path());
    let journal = open_journal(&settings);
    let shippers = start(&journal, &sink(&server));
    let entry = begin(&journal, Caller::random());
    let outcomes = || server.try_sql("SELECT outcome FROM keygate.records").unwrap_or_default();
    eventually("the open use is shipped", || outcomes() == ["in_progress"]);
    shippers.finish(LONG);
    block_on(journal.close());
    drop(entry);
    ship_all(&settings, &sink(&server));
    assert_eq!(outcomes(), ["aborted"]);
}

#[test]
fn database_that_dies_gets_everything_once_it_is_back() {
    let (dir, mut server) = (tempfile::tempdir().unwrap(), Postgresql::start());
    let settings = settings(dir.path());
    let journal = open_journal(&settings);
    let shippers = start(&journal, &sink(&server));
    let caller = Caller::random();
    let mut written = 0;
    let mut write = |count: usize| {
        for _ in 0..count {
            begin(&journal, caller).close(END);
        }
        written += count;
        written
    };
    let first = write(20);
    eventually("the first records are shipped", || count(&server) == first);
    server.crash();
    write(20);
    eventually("the sink fails", || shippers.reports()[0].state == SinkState::Failing);
    let report = shippers.reports().remove(0);
    assert!(report.lag_records >= 20 && report.error.is_some(), "{report:?}");
    server.restart();
    let all = write(20);
    eventually("the rest is shipped", || count(&server) == all);
    eventually("the sink has caught up", || {
        let report = shippers.reports().remove(0);
        report.state == SinkState::CaughtUp && report.lag_records == 0 && report.error.is_none()
    });
    shippers.finish(LONG);
    block_on(journal.close());
    assert_eq!(rows(&server), sorted(all_records(&settings)));
}

#[test]
fn position_of_a_journal_is_not_that_of_the_next_one_under_its_name() {
    let server = Postgresql::start();
    for total in [30, 60] {
        // A machine with an empty disk takes the place of the one before.
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(dir.path());
        write_uses(&settings, 30);
        ship_all(&settings, &sink(&server));
        assert_eq!(count(&server), total);
    }
    assert_eq!(server.sql("SELECT count(*), count(DISTINCT gateway) FROM keygate.journals"), ["2|1"]);
}

#[test]
fn connection_is_encrypted_and_verified() {
    let certificates = Certificates::generate();
    let (dir, server) = (tempfile::tempdir().unwrap(), Postgresql::with_tls(&certificates));
    let settings = settings(dir.path());
    write_uses(&settings, 3);
    let journal = open_journal(&settings);
    let wrong = start(&journal, &sink_with(&server.url(), None, None));
    eventually("the unknown authority is refused", || wrong.reports()[0].state == SinkState::Failing);
    wrong.finish(Duration::ZERO);
    block_on(journal.close());
    let tls = platform::tls::ClientSettings { ca: Some(certificates.ca()), identity: None };
    ship_all(&settings, &sink_with(&server.url(), Some(tls), None));
    assert_eq!(count(&server), 3);
    assert_eq!(server.sql("SELECT outcome FROM keygate.records GROUP BY 1"), ["completed"]);
}

#[test]
fn finish_ships_what_is_left_and_gives_up_at_its_deadline() {
    let (dir, mut server) = (tempfile::tempdir().unwrap(), Postgresql::start());
    let settings = Settings { durability: Durability::Written, ..settings(dir.path()) };
    let journal = open_journal(&settings);
    let shippers = start(&journal, &sink(&server));
    eventually("the sink has caught up", || shippers.reports()[0].state == SinkState::CaughtUp);
    let caller = Caller::random();
    (0..100).for_each(|_| begin(&journal, caller).close(END));
    block_on(journal.close());
    shippers.finish(LONG);
    assert_eq!(count(&server), 100);
    // Now with a sink that is away: it is tried, and given up.
    server.crash();
    let journal = open_journal(&settings);
    let shippers = start(&journal, &sink(&server));
    begin(&journal, caller).close(END);
    block_on(journal.close());
    shippers.finish(LONG);
    server.restart();
    assert_eq!(count(&server), 100);
    ship_all(&settings, &sink(&server));
    assert_eq!(count(&server), 101);
}

#[test]
fn finish_tries_again_when_the_connection_has_ended() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Postgresql::start());
    let journal = open_journal(&settings(dir.path()));
    let shippers = start(&journal, &sink(&server));
    eventually("the sink has caught up", || shippers.reports()[0].state == SinkState::CaughtUp);
    server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'keygate-audit'");
    begin(&journal, Caller::random()).close(END);
    block_on(journal.close());
    shippers.finish(LONG);
    assert_eq!(count(&server), 1);
}

#[test]
fn batch_is_taken_back_when_another_process_has_moved_the_position() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Postgresql::start());
    let journal = open_journal(&settings(dir.path()));
    let shippers = start(&journal, &sink(&server));
    begin(&journal, Caller::random()).close(END);
    eventually("it is shipped", || count(&server) == 1);
    server.sql("UPDATE keygate.journals SET \"offset\" = 0, line = 0, last_line = 0, checksum = 0");
    begin(&journal, Caller::random()).close(END);
    eventually("the next one is shipped", || count(&server) == 2);
    block_on(journal.close());
    shippers.finish(LONG);
    // The position was read again, and follows the journal.
    assert_eq!(server.sql("SELECT \"offset\" > 0 AND line > 0 FROM keygate.journals"), ["t"]);
}

#[test]
fn outcome_stays_when_its_use_is_delivered_as_open_again() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Postgresql::start());
    let journal = open_journal(&settings(dir.path()));
    let shippers = start(&journal, &sink(&server));
    let _open = begin(&journal, Caller::random());
    let outcomes = || server.try_sql("SELECT outcome FROM keygate.records").unwrap_or_default();
    eventually("the open use is shipped", || outcomes() == ["in_progress"]);
    shippers.suspend();
    // As another process has delivered it; and the position is that of before.
    server.sql("UPDATE keygate.records SET outcome = 'completed'; DELETE FROM keygate.journals");
    shippers.resume();
    eventually("it is delivered again", || {
        server.sql("SELECT coalesce(sum(records), 0) > 0 FROM keygate.journals") == ["t"]
    });
    assert_eq!(outcomes(), ["completed"]);
    shippers.finish(LONG);
}

#[test]
fn sinks_change_while_the_gateway_runs() {
    let (dir, first, second) = (tempfile::tempdir().unwrap(), Postgresql::start(), Postgresql::start());
    let journal = open_journal(&settings(dir.path()));
    let named = |name: &str, server: &Postgresql| SinkSettings { name: name.into(), ..sink(server).sinks.remove(0) };
    let shippers = start(&journal, &shipping::Settings::default());
    assert_eq!(shippers.reports(), []);
    let caller = Caller::random();
    begin(&journal, caller).close(END);
    shippers.apply(&shipping::Settings { sinks: vec![named("one", &first)] }).unwrap();
    eventually("the first sink has it", || count(&first) == 1);
    shippers.apply(&shipping::Settings { sinks: vec![named("one", &first), named("two", &second)] }).unwrap();
    eventually("the second sink has it", || count(&second) == 1);
    let names: Vec<String> = shippers.reports().into_iter().map(|report| report.sink).collect();
    assert_eq!(names, ["one", "two"]);
    shippers.apply(&shipping::Settings { sinks: vec![named("two", &second)] }).unwrap();
    begin(&journal, caller).close(END);
    eventually("the second sink has both", || count(&second) == 2);
    shippers.finish(LONG);
    assert_eq!(count(&first), 1, "it was taken away");
}

#[test]
fn sinks_that_change_during_a_hand_over_start_when_nothing_comes_of_it() {
    let (dir, first, second) = (tempfile::tempdir().unwrap(), Postgresql::start(), Postgresql::start());
    let journal = open_journal(&settings(dir.path()));
    let named = |name: &str, server: &Postgresql| SinkSettings { name: name.into(), ..sink(server).sinks.remove(0) };
    let shippers = start(&journal, &shipping::Settings { sinks: vec![named("one", &first)] });
    begin(&journal, Caller::random()).close(END);
    eventually("the first sink has it", || count(&first) == 1);
    shippers.suspend();
    shippers.apply(&shipping::Settings { sinks: vec![named("one", &first), named("two", &second)] }).unwrap();
    assert_eq!(shippers.reports(), [], "another process ships");
    begin(&journal, Caller::random()).close(END);
    shippers.resume();
    eventually("both sinks have both", || (count(&first), count(&second)) == (2, 2));
    shippers.finish(LONG);
}

#[test]
fn freshness_of_a_catch_up_is_that_of_its_records() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Postgresql::start());
    let settings = settings(dir.path());
    write_uses(&settings, 1);
    ship_all(&settings, &sink(&server));
    server.sql(
        "CREATE TABLE public.seen (number bigserial, complete_until timestamptz);
         CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN INSERT INTO public.seen (complete_until) VALUES (NEW.complete_until); RETURN NEW; END $$;
         CREATE TRIGGER note AFTER UPDATE ON keygate.journals FOR EACH ROW EXECUTE FUNCTION public.note()",
    );
    // More than a batch, of an hour ago.
    let (journal, caller) = (open_journal(&settings), Caller::random());
    let then = clock::now().before(Duration::from_secs(3600));
    block_on(async {
        for _ in 0..10_000 {
            journal.begin(&caller.opening_at(then)).await.unwrap().close(END);
        }
        journal.close().await;
    });
    ship_all(&settings, &sink(&server));
    let ages = server.sql("SELECT now() - complete_until > interval '30 minutes' FROM public.seen ORDER BY number");
    assert_eq!((ages.first().unwrap().as_str(), ages.last().unwrap().as_str()), ("t", "f"), "{ages:?}");
    assert_eq!(count(&server), 10_001);
}
