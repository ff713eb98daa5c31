//! Usage to bill by: the same as a naive count over all records, whatever is indexed, open, removed or carried on.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use domain::budget::{BudgetSubject, BudgetTotal, Cost, Period};
use domain::clock::{self, Micros};
use domain::identity::{AuthMethod, MANAGEMENT_METHOD, OrgId};
use domain::refusal::Refusal;
use journal::audit::{
    AuditEntry, AuditView, BillingPeriod, Filter, Journal, Outcome, Record, RecordKind, Settings, Settled, SpentBy,
    UsageBy, UsageQuery, UsageReport, UsageRow, UsageSubject, Use, UseEnd,
};
use tempfile::TempDir;

use super::support::{
    Caller, END, block_on, change_of, damage_index, export_records, keep_plain, new_directory, open_journal,
    open_reader, remove_index, segment_files, settings, wait_until_indexed,
};
use crate::support::{Random, eventually};

const DAY: u64 = 86_400_000_000;
const LIMITED: Outcome = Outcome::Refused(Refusal::RateLimited);
const ROUTES: [&str; 3] = ["queries.list", "queries.read", "GET /made-up"];

/// Label of the period and subject, as the command prints them.
type RowName = (String, String);

/// Requests, refusals, open uses, units, bytes of requests and of responses, and uses by outcome.
type Counts = (u64, u64, u64, u64, u64, u64, BTreeMap<&'static str, u64>);

fn query(by: UsageBy, per: BillingPeriod) -> UsageQuery {
    UsageQuery { by, per, since: None, until: None, by_gateway: false, org: None, budget: None }
}

fn read(settings: &Settings, query: UsageQuery) -> UsageReport {
    open_reader(settings).usage(query, clock::now()).unwrap()
}

fn by_name(report: &UsageReport) -> BTreeMap<RowName, Counts> {
    let counts = |row: &UsageRow| {
        let outcomes = row.outcomes.iter().map(|(outcome, count)| (outcome.name(), *count)).collect();
        (row.requests, row.refusals, row.open, row.units, row.request_bytes, row.response_bytes, outcomes)
    };
    let name = |row: &UsageRow| (report.query.per.label(row.period.start), row.subject.to_string());
    let rows: BTreeMap<RowName, Counts> = report.rows.iter().map(|row| (name(row), counts(row))).collect();
    assert_eq!(rows.len(), report.rows.len(), "a row for each period and subject");
    rows
}

/// The same by the definition: from all records, one by one.
fn count_naively(settings: &Settings, query: UsageQuery) -> BTreeMap<RowName, Counts> {
    let filter = Filter { since: query.since, until: query.until, ..Filter::default() };
    let mut rows: BTreeMap<RowName, Counts> = BTreeMap::new();
    for record in export_records(settings, filter) {
        let Some(subject) = subject(&record, query.by) else { continue };
        // The text of a time begins with its day, and that with its month.
        let length = if query.per == BillingPeriod::Day { 10 } else { 7 };
        let period = record.time.to_string()[..length].to_owned();
        let (requests, refusals, open, units, received, sent, outcomes) = rows.entry((period, subject)).or_default();
        if record.outcome.is_refusal() {
            *refusals += record.uses();
        } else {
            *requests += record.uses();
            *units += record.cost.unwrap_or(1);
            *received += record.request_bytes.unwrap_or(0);
            *sent += record.response_bytes.unwrap_or(0);
        }
        match record.outcome {
            Outcome::InProgress => *open += 1,
            outcome => *outcomes.entry(outcome.name()).or_default() += record.uses(),
        }
    }
    rows
}

fn subject(record: &Record, by: UsageBy) -> Option<String> {
    let is_usage = record.kind() == RecordKind::Request && record.outcome != Outcome::Refused(Refusal::Unknown);
    let org = record.org_id.filter(|_| is_usage)?;
    Some(match by {
        UsageBy::Org => org.to_string(),
        UsageBy::Key => format!("{org}/{}", record.key_id.map_or("-".to_owned(), |key| key.to_string())),
        UsageBy::Route if record.action.contains(' ') => "-".to_owned(),
        UsageBy::Route => record.action.clone(),
    })
}

/// Compares questions with the naive count. Returns the number of rows that were compared.
fn check(settings: &Settings, now: Micros) -> usize {
    let (long_ago, yesterday) = (Micros(now.0 - 3 * DAY - 1), Micros(now.0 - now.0 % DAY - DAY));
    let ranges = [(None, None), (Some(long_ago), None), (Some(long_ago), Some(yesterday))];
    let mut compared = 0;
    for by in [UsageBy::Org, UsageBy::Key, UsageBy::Route] {
        for (per, (since, until)) in
            [BillingPeriod::Day, BillingPeriod::Month, BillingPeriod::Day].into_iter().zip(ranges)
        {
            let query = UsageQuery { since, until, ..query(by, per) };
            let report = read(settings, query);
            assert_eq!(by_name(&report), count_naively(settings, query), "{query:?}");
            assert_eq!((report.complete_from, report.damaged_lines), (None, 0));
            compared += report.rows.len();
        }
    }
    compared + check_budgets(settings, now)
}

/// Compares the units of budgets with a sum over the costs of records. Returns the number of budgets.
fn check_budgets(settings: &Settings, now: Micros) -> usize {
    let mut budgets: BTreeMap<String, u64> = BTreeMap::new();
    for record in export_records(settings, Filter::default()) {
        if let Some(budget) = record.budget {
            *budgets.entry(budget).or_default() += record.cost.unwrap_or(1);
        }
    }
    let view = AuditView::of_directory(&settings.path).unwrap();
    for (text, units) in &budgets {
        let BudgetTotal { subject, start, .. } = format!("{text}/0").parse().unwrap();
        let spent = |from, before| view.units_of_gateway(&SpentBy { subject, from, before }, now).unwrap();
        let second = Duration::from_secs(1);
        assert_eq!(spent(start, start.after(second)), *units, "{text}");
        assert_eq!(spent(start.before(second), start) + spent(start.after(second), start.after(2 * second)), 0);
    }
    budgets.len()
}

/// Appends `count` uses, refusals, sessions, changes and unknown keys of the last days. Returns those left open.
async fn write(journal: &Journal, callers: &[Caller], random: &mut Random, count: u64, now: Micros) -> Vec<AuditEntry> {
    let mut open = Vec::new();
    for _ in 0..count {
        let caller = callers[random.index(callers.len())];
        // Two uses in three near a border of days.
        let border = (now.0 - now.0 % DAY).saturating_sub(DAY * random.below(40));
        let time = match random.below(3) {
            0 => now.0 - random.below(40 * DAY),
            1 => border,
            _ => border - 1,
        };
        let action = ROUTES[random.index(ROUTES.len())];
        let key = Use { action, ..caller.opening_at(Micros(time)) };
        let session = Use { key_id: None, auth_method: AuthMethod::Session, ..key.clone() };
        let month = Period::Month.around(Micros(time)).start;
        let budget = BudgetTotal { subject: BudgetSubject::Org(caller.org), start: month, units: 1 };
        let metered = Use { cost: Cost::at_most(100), budget: Some(budget), ..key.clone() };
        let key = Use { cost: [Cost::ONE, Cost::fixed(20)][random.index(2)], ..key };
        let end = UseEnd { request_bytes: random.below(1000), response_bytes: random.below(1000), ..END };
        let failed = UseEnd { outcome: Outcome::UpstreamError, status: Some(502), ..end };
        let limited = UseEnd { outcome: LIMITED, status: Some(429), ..end };
        match random.below(14) {
            10 => open.push(journal.begin(&metered).await.unwrap()),
            11 => journal.begin(&metered).await.unwrap().close(end),
            12.. => {
                let settled = Settled { cost: random.below(150), returned: budget };
                journal.begin(&metered).await.unwrap().close_settled(end, settled);
            }
            0 => open.push(journal.begin(&key).await.unwrap()),
            1 => open.push(journal.begin(&session).await.unwrap()),
            2 => assert!(journal.record_refusal(&key, limited).await.unwrap()),
            3 => assert!(journal.record(&key, failed).await.unwrap()),
            4 => {
                let change = Use { method: MANAGEMENT_METHOD, action: "key.create", ..session };
                journal.begin_change(&change_of(change), false).await.unwrap().close(END);
            }
            5 => {
                let unknown = Use { org_id: None, user_id: None, key_id: None, ..key };
                let end = UseEnd { outcome: Outcome::Refused(Refusal::Unknown), ..end };
                journal.record_unknown_key(&unknown, end);
            }
            _ => journal.begin(&key).await.unwrap().close(end),
        }
        // Some end long after they began, most of them soon.
        if random.below(10) == 0 {
            let rest = open.len() / 4;
            open.drain(rest..).for_each(|entry| entry.close(end));
        }
    }
    for _ in 0..5 {
        open.push(journal.begin(&callers[0].opening_at(now)).await.unwrap());
    }
    open
}

#[test]
fn usage_equals_a_count_over_all_records_with_any_index() {
    let directory = TempDir::new().unwrap();
    let settings = Settings { segment_size: 40_000, ..settings(directory.path()) };
    let callers: Vec<Caller> = (0..3).map(|_| Caller::random()).collect();
    let now = clock::now();
    let journal = open_journal(&settings);
    let mut open = block_on(write(&journal, &callers, &mut Random::new(7), 1200, now));
    assert!(segment_files(&settings).len() > 3 && open.len() > 2);
    // Counts of refusals are records when their second has ended; the outcomes are written every 10 ms.
    eventually("the index is complete", || {
        wait_until_indexed(&settings);
        count_naively(&settings, query(UsageBy::Org, BillingPeriod::Month)).values().map(|row| row.2).sum::<u64>()
            == open.len() as u64
    });
    eventually("nothing is left to be recorded", || {
        read(&settings, query(UsageBy::Org, BillingPeriod::Day)).settled_before.0 > now.0 - DAY
    });
    assert!(check(&settings, now) > 100);
    open.drain(1..).for_each(|entry| entry.close(END));
    block_on(journal.close());
    // The open uses belong to a gateway that was killed.
    std::mem::forget(open);
    check(&settings, now);
    damage_index(&settings);
    check(&settings, now);
    remove_index(&settings);
    check(&settings, now);
    // The next start closes it.
    block_on(open_journal(&settings).close());
    check(&settings, now);
    let open = read(&settings, query(UsageBy::Org, BillingPeriod::Day)).rows.iter().map(|row| row.open).sum::<u64>();
    assert_eq!(open, 0);
}

#[test]
fn coalesced_refusals_count_by_their_number_on_the_day_of_each() {
    let (_directory, settings) = new_directory();
    let caller = Caller::random();
    let midnight = clock::now().0 / DAY * DAY;
    let journal = open_journal(&settings);
    block_on(async {
        for (time, times) in [(midnight - 1, 30), (midnight, 40)] {
            for _ in 0..times {
                let end = UseEnd { outcome: LIMITED, status: Some(429), ..END };
                journal.record_refusal(&caller.opening_at(Micros(time)), end).await.unwrap();
            }
        }
        journal.close().await;
    });
    let report = read(&settings, query(UsageBy::Key, BillingPeriod::Day));
    let counts: Vec<_> = report.rows.iter().map(|row| (row.requests, row.refusals, row.outcomes.clone())).collect();
    assert_eq!(counts, [(0, 30, vec![(LIMITED, 30)]), (0, 40, vec![(LIMITED, 40)])]);
    assert_eq!(report.rows[0].period.end, Micros(midnight));
    assert!(export_records(&settings, Filter::default()).len() < 30, "they are coalesced");
}

/// Fails to sum up what an organization spent from a time on. Returns the reason.
fn refused_sum(settings: &Settings, org: OrgId, from: Micros) -> String {
    let spent = SpentBy { subject: BudgetSubject::Org(org), from, before: Micros(u64::MAX) };
    let view = AuditView::of_directory(&settings.path).unwrap();
    view.units_of_gateway(&spent, clock::now()).unwrap_err().to_string()
}

/// Small segments that stay uncompressed, and of which retention keeps few.
fn short_lived(directory: &Path) -> Settings {
    let settings = Settings { segment_size: 2_000, retention_size: Some(8_000), ..settings(directory) };
    keep_plain(&settings);
    settings
}

#[test]
fn removed_part_of_the_range_is_said_and_a_carried_use_counts_once() {
    let directory = TempDir::new().unwrap();
    let settings = short_lived(directory.path());
    let journal = open_journal(&settings);
    let (tunnel, caller) = (Caller::random(), Caller::random());
    let budget = BudgetTotal { subject: BudgetSubject::Org(tunnel.org), start: Micros(7_000_000), units: 100 };
    let metered = Use { cost: Cost::at_most(100), budget: Some(budget), ..tunnel.opening() };
    let open = block_on(journal.begin(&metered)).unwrap();
    let begun = clock::now();
    let mut written = 0_u64;
    eventually("retention has removed the segment of the open use", || {
        block_on(journal.begin(&caller.opening())).unwrap().close(END);
        written += 1;
        segment_files(&settings).first().is_some_and(|first| super::support::segment_number(first) > 2)
    });
    let report = read(&settings, query(UsageBy::Key, BillingPeriod::Month));
    assert!(report.complete_from.unwrap() > begun, "{report:?}");
    let of = |report: &UsageReport, caller: Caller| {
        let subject = UsageSubject::Key(caller.org, Some(caller.key));
        let rows: Vec<UsageRow> = report.rows.iter().filter(|row| row.subject == subject).cloned().collect();
        let sum = |number: fn(&UsageRow) -> u64| rows.iter().map(number).sum::<u64>();
        (sum(|row| row.requests), sum(|row| row.open), sum(|row| row.units))
    };
    assert_eq!(of(&report, tunnel), (1, 1, 100));
    let refused = refused_sum(&settings, tunnel.org, budget.start);
    assert!(refused.ends_with(" were removed"), "others may have spent it, too: {refused}");
    assert!(of(&report, caller).0 < written, "retention has removed some");
    assert!(report.rows.iter().all(|row| !report.is_final(row)));
    // Retention may go on meanwhile.
    eventually("from there on nothing is missing", || {
        let since = read(&settings, report.query).complete_from;
        read(&settings, UsageQuery { since, ..report.query }).complete_from.is_none()
    });
    open.close_settled(END, Settled { cost: 30, returned: budget });
    block_on(journal.close());
    let ended = read(&settings, query(UsageBy::Key, BillingPeriod::Month));
    assert_eq!(of(&ended, tunnel), (1, 0, 30));
    assert_eq!(by_name(&ended), count_naively(&settings, ended.query));
}

/// As after a crash between the record of a removal, with which open uses are carried on, and the removal.
#[test]
fn use_counts_once_where_its_beginning_and_its_copy_are_both_there() {
    let directory = TempDir::new().unwrap();
    let settings = short_lived(directory.path());
    let journal = open_journal(&settings);
    let (tunnel, caller) = (Caller::random(), Caller::random());
    let open = block_on(journal.begin(&tunnel.opening())).unwrap();
    let beginning = segment_files(&settings).remove(0);
    let mut kept = Vec::new();
    eventually("retention has removed the segment of the open use", || {
        block_on(journal.begin(&caller.opening())).unwrap().close(END);
        match fs::read(&beginning) {
            Ok(bytes) => {
                kept = bytes;
                false
            }
            Err(_) => true,
        }
    });
    open.close(END);
    block_on(journal.close());
    let requests = || -> u64 {
        let report = read(&settings, query(UsageBy::Key, BillingPeriod::Month));
        let subject = UsageSubject::Key(tunnel.org, Some(tunnel.key));
        report.rows.iter().filter(|row| row.subject == subject).map(|row| row.requests).sum()
    };
    assert_eq!(requests(), 1, "the copy alone");
    fs::write(&beginning, kept).unwrap();
    assert_eq!(requests(), 1, "both");
}

#[test]
fn segment_that_something_else_removed_is_said() {
    let directory = TempDir::new().unwrap();
    let settings = Settings { retention_size: None, ..short_lived(directory.path()) };
    super::support::write_uses(&settings, 60);
    let files = segment_files(&settings);
    assert!(files.len() > 4);
    fs::remove_file(&files[2]).unwrap();
    let report = read(&settings, query(UsageBy::Org, BillingPeriod::Day));
    assert!(report.complete_from.is_some());
    let requests = |rows: &BTreeMap<RowName, Counts>| rows.values().map(|row| row.0).sum::<u64>();
    assert_eq!(requests(&by_name(&report)), requests(&count_naively(&settings, report.query)));
    let text = fs::read_to_string(&files[1]).unwrap().replacen("curl", "wget", 1);
    fs::write(&files[1], text).unwrap();
    assert_eq!(read(&settings, query(UsageBy::Org, BillingPeriod::Day)).damaged_lines, 1);
    // From behind the gap on.
    let refused = refused_sum(&settings, Caller::random().org, clock::now().after(Duration::from_secs(60)));
    assert!(refused.starts_with("1 damaged line "), "{refused}");
}

#[test]
fn row_is_final_when_its_period_is_over_whole_and_closed() {
    let (_directory, settings) = new_directory();
    // Noon of yesterday: its day is not over two minutes later, at any time of the day that this runs.
    let (now, caller) = (Micros(clock::now().0 / DAY * DAY - DAY / 2), Caller::random());
    let yesterday = Micros(now.0 / DAY * DAY - 1);
    let journal = open_journal(&settings);
    block_on(async { journal.begin(&caller.opening_at(yesterday)).await.unwrap().close(END) });
    let open = block_on(journal.begin(&caller.opening_at(Micros(yesterday.0 - DAY)))).unwrap();
    block_on(async { journal.begin(&caller.opening_at(now)).await.unwrap().close(END) });
    let is_final = |since, until, at| {
        let query = UsageQuery { since, until, ..query(UsageBy::Key, BillingPeriod::Day) };
        let report = open_reader(&settings).usage(query, at).unwrap();
        report.rows.iter().map(|row| report.is_final(row)).collect::<Vec<_>>()
    };
    let soon = now.after(Duration::from_secs(120));
    eventually("the outcomes are written", || {
        read(&settings, query(UsageBy::Key, BillingPeriod::Day)).rows.iter().map(|row| row.open).sum::<u64>() == 1
    });
    assert_eq!(is_final(None, None, soon), [false, true, false], "open, final, not over");
    assert_eq!(is_final(Some(yesterday), None, soon), [false, false], "the day was not asked for as a whole");
    assert_eq!(is_final(None, Some(yesterday.after(Duration::from_micros(1))), soon), [false, true]);
    assert_eq!(is_final(None, None, yesterday.after(Duration::from_secs(30))), [false, false, false], "too soon");
    open.close(END);
    block_on(journal.close());
    assert_eq!(is_final(None, None, soon), [true, true, false]);
    // A gateway that was killed has counted a refusal beside the journal, and records it at the next start.
    let journal = open_journal(&settings);
    block_on(async {
        for _ in 0..11 {
            let end = UseEnd { outcome: LIMITED, status: Some(429), ..END };
            journal.record_refusal(&caller.opening_at(yesterday), end).await.unwrap();
        }
    });
    let copy = settings.path.with_extension("copy");
    fs::create_dir(&copy).unwrap();
    // The slots first: what is moved from them to a segment meanwhile is in both copies, as after a kill in between.
    for file in std::iter::once(settings.path.join("refusals")).chain(segment_files(&settings)) {
        fs::copy(&file, copy.join(file.file_name().unwrap())).unwrap();
    }
    let killed = Settings { path: copy, ..settings.clone() };
    let query = query(UsageBy::Key, BillingPeriod::Day);
    let report = open_reader(&killed).usage(query, soon).unwrap();
    if report.rows[1].refusals == 10 {
        assert!(!report.is_final(&report.rows[1]), "the eleventh is not recorded yet");
    }
    block_on(open_journal(&killed).close());
    let report = open_reader(&killed).usage(query, soon).unwrap();
    assert_eq!((report.rows[1].refusals, report.is_final(&report.rows[1])), (11, true));
    block_on(journal.close());
}
