//! What keys did, by the hour and at last: the same as a naive count over all records says, whatever the index covers.

use keygate::audit::{ACTIVITY_HOURS, HourlyActivity, KeyActivity, LastUse, RecordKind};
use keygate::identity::MANAGEMENT_METHOD;
use keygate::refusal::Refusal;

use super::*;

const HOUR: u64 = 3_600_000_000;
const REFUSALS: [Outcome; 8] = [
    Outcome::Refused(Refusal::RateLimited),
    Outcome::Refused(Refusal::TooManyInFlight),
    Outcome::Refused(Refusal::Forbidden),
    Outcome::Refused(Refusal::Revoked),
    Outcome::Refused(Refusal::Expired),
    Outcome::Refused(Refusal::UserRemoved),
    Outcome::Refused(Refusal::OrgSuspended),
    Outcome::Refused(Refusal::NotFound),
];

/// A journal that is being written: all that can be in one, by several keys of two organizations, over 30 hours.
struct Lively {
    _directory: TempDir,
    settings: Settings,
    who: Vec<Who>,
    begun: Micros,
    written: u64,
}

impl Lively {
    /// The times are those of the last 30 hours: counts of older ones than a day are wanted by nobody.
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let settings = Settings { segment_size: 700_000, ..settings(directory.path()) };
        let mut who: Vec<Who> = (0..8).map(|_| Who::anyone()).collect();
        (2..8).for_each(|i| who[i].org = who[i % 2].org);
        let begun = clock::now().before(Duration::from_secs(30 * 3600));
        Self { _directory: directory, settings, who, begun, written: 0 }
    }

    /// Writes so many more uses, of 6000 that reach until now; some of them are still open when it returns.
    async fn write(&mut self, journal: &Journal, count: u64) -> Vec<keygate::audit::AuditEntry> {
        let mut open = Vec::new();
        for n in self.written..self.written + count {
            let time = Micros(self.begun.0 + n * (30 * HOUR / 6000));
            let agent = format!("agent/{n}");
            let opening = Use { user_agent: Some(agent.as_bytes()), ..self.nth(n, time) };
            let refused = UseEnd { outcome: REFUSALS[(n / 10) as usize % 8], status: Some(403), ..END };
            match n % 10 {
                0 => journal.record(&opening, refused).await.unwrap(),
                1 => journal.record(&opening, END).await.unwrap(),
                2 => journal.record_unknown_key(&Use { key_id: None, user_id: None, org_id: None, ..opening }, refused),
                _ => open.push(journal.begin(&opening).await.unwrap()),
            }
            if open.len() > 40 {
                let entry = open.swap_remove(n as usize * 7 % 40);
                let outcome = if n.is_multiple_of(3) { Outcome::UpstreamError } else { Outcome::Completed };
                entry.close(UseEnd { outcome, status: Some(200 + (n % 300) as u16), ..END });
            }
        }
        self.written += count;
        open
    }

    /// Seven keys come and go, the last is only ever refused, and the first is used no more after the first hours.
    fn nth(&self, n: u64, time: Micros) -> Use<'static> {
        let i = if n.is_multiple_of(30) { 7 } else { (n / 700 + n % 5) as usize % 7 };
        let i = if i == 0 && n > 700 { 1 } else { i };
        let uses = self.who[i].uses_at(time);
        match n % 13 {
            3 => Use { auth_method: AuthMethod::Session, key_id: None, ..uses },
            4 => Use { auth_method: AuthMethod::AdminSocket, method: MANAGEMENT_METHOD, action: "key.limits", ..uses },
            5 => Use { auth_method: AuthMethod::Session, method: MANAGEMENT_METHOD, action: "key.rotate", ..uses },
            6 => Use { method: MANAGEMENT_METHOD, ..uses },
            _ => uses,
        }
    }

    /// All that there is, with nothing open.
    fn whole() -> Self {
        let mut lively = Self::new();
        let journal = open(&lively.settings);
        run(async {
            drop(lively.write(&journal, 6000).await);
            journal.close().await;
        });
        lively
    }

    /// Has a gateway index what there is, up to the last segment.
    fn index(&self) {
        let journal = open(&self.settings);
        until("all closed segments are indexed", || {
            covered(&self.settings) >= segments(&self.settings).len() as u64 - 1
        });
        run(journal.close());
    }

    fn check(&self) {
        let now = clock::now();
        for org in [self.who[0].org, self.who[1].org] {
            // Outcomes may come in meanwhile: only what is the same before and after was so in between.
            let (found, expected) = loop {
                let before = naive(&self.settings, org, now);
                let found = reader(&self.settings).activity(org, &self.keys(), now).unwrap();
                if naive(&self.settings, org, now) == before {
                    break (found, before);
                }
            };
            assert!(expected.len() >= 3, "there is something to count");
            assert_eq!(found.len(), self.who.len(), "each key that was asked for is answered");
            for (key, found) in found {
                assert_eq!(found, expected.get(&key).cloned().unwrap_or_else(|| quiet(now)), "{key}");
            }
        }
    }

    fn keys(&self) -> Vec<KeyId> {
        self.who.iter().map(|who| who.key).collect()
    }
}

/// The segment that the index reaches.
fn covered(settings: &Settings) -> u64 {
    let query = "SELECT segment FROM covered";
    let number = database(settings).and_then(|database| database.query_row(query, [], |row| row.get::<_, i64>(0)));
    number.unwrap_or(0).cast_unsigned()
}

fn database(settings: &Settings) -> rusqlite::Result<rusqlite::Connection> {
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    rusqlite::Connection::open_with_flags(settings.path.join("index.db"), flags)
}

/// The activity of a key that did nothing.
fn quiet(now: Micros) -> KeyActivity {
    let first = now.0 / HOUR + 1 - ACTIVITY_HOURS as u64;
    let hour = |n| HourlyActivity { start: Micros((first + n as u64) * HOUR), requests: 0, refusals: 0 };
    KeyActivity { hours: std::array::from_fn(hour), last: None }
}

/// What all the records say, one by one.
fn naive(settings: &Settings, org: OrgId, now: Micros) -> HashMap<KeyId, KeyActivity> {
    let first = now.0 / HOUR + 1 - ACTIVITY_HOURS as u64;
    let mut keys = HashMap::new();
    for record in exported(settings, Filter { org: Some(org), ..Filter::default() }) {
        let (Some(key), AuthMethod::ApiKey) = (record.key_id, record.auth_method) else { continue };
        let refused = REFUSALS.contains(&record.outcome);
        let hour = (record.time.0 / HOUR).checked_sub(first).filter(|hour| *hour < ACTIVITY_HOURS as u64);
        if refused && hour.is_none() {
            continue;
        }
        let activity = keys.entry(key).or_insert_with(|| quiet(now));
        if let Some(hour) = hour {
            let hour = &mut activity.hours[hour as usize];
            *if refused { &mut hour.refusals } else { &mut hour.requests } += 1;
        }
        if !refused {
            activity.last = Some(LastUse {
                id: record.id,
                time: record.time,
                ip: record.ip,
                user_agent: record.user_agent,
                action: record.action,
                outcome: record.outcome,
                status: record.status,
            });
        }
    }
    keys
}

#[test]
fn it_is_what_a_count_over_all_records_says_with_any_index() {
    let lively = Lively::whole();
    assert!(segments(&lively.settings).len() > 3);
    lively.index();
    lively.check();
    let index = lively.settings.path.join("index.db");
    fs::remove_file(&index).unwrap();
    lively.check();
    fs::write(&index, "this is not a database").unwrap();
    lively.check();
    lively.index();
    lively.check();
}

#[test]
fn it_is_up_to_date_however_late_the_index_is() {
    let mut lively = Lively::new();
    let journal = open(&lively.settings);
    run(async {
        let mut open = Vec::new();
        for _ in 0..6 {
            open.extend(lively.write(&journal, 1000).await);
            lively.check();
            let closed = segments(&lively.settings).len() as u64 - 1;
            until("all closed segments are indexed", || covered(&lively.settings) >= closed);
            lively.check();
            // What began before the index got there ends behind it.
            open.drain(..open.len() / 2).for_each(|entry| entry.close(END));
            lively.check();
        }
        std::mem::forget(open);
        journal.close().await;
    });
    lively.check();
    lively.index();
    lively.check();
}

/// Those of others are not read for it: neither in the index nor beyond it.
#[test]
fn it_is_of_the_keys_that_were_asked_for() {
    let lively = Lively::whole();
    let now = clock::now();
    let (mine, stranger) = (lively.who[3], Who::anyone());
    let check = || {
        let all = naive(&lively.settings, mine.org, now);
        let of = |keys: &[KeyId]| reader(&lively.settings).activity(mine.org, keys, now).unwrap();
        assert!(all[&mine.key].last.is_some() && all.len() >= 3);
        assert_eq!(of(&[mine.key]), HashMap::from([(mine.key, all[&mine.key].clone())]));
        assert_eq!(of(&[mine.key, mine.key]).len(), 1, "asked twice");
        assert_eq!(of(&[]), HashMap::new());
        let elsewhere = lively.who.iter().find(|who| who.org != mine.org).unwrap();
        let none = HashMap::from([(stranger.key, quiet(now)), (elsewhere.key, quiet(now))]);
        assert_eq!(of(&[stranger.key, elsewhere.key]), none, "unknown keys, and those of another organization");
    };
    check();
    lively.index();
    check();
}

/// A whole journal is not read for a page: while an index is made anew, it is said that it is.
#[test]
fn a_long_journal_is_not_counted_without_its_index() {
    let lively = Lively::whole();
    lively.index();
    let who = lively.who[3];
    let activity = || reader(&lively.settings).activity(who.org, &[who.key], clock::now());
    assert!(activity().is_ok());
    let large = fs::File::create(lively.settings.path.join("0000000999.jsonl")).unwrap();
    large.set_len((256 << 20) + 1).unwrap();
    let refused = activity().unwrap_err().to_string();
    assert!(refused.contains("index is being built") && refused.contains("256 MiB"), "{refused}");
    large.set_len(0).unwrap();
    assert!(activity().is_ok());
}

/// What is rare in a long journal is found in several calls, each of which reads a little.
#[test]
fn a_budget_ends_a_look_that_goes_on_at_its_cursor() {
    let lively = Lively::whole();
    let key = Some(lively.who[1].key);
    let rare = Filter { key, outcome: Some(Outcome::Refused(Refusal::OrgSuspended)), ..Filter::default() };
    let (none, all) = (Filter { outcome: Some(Outcome::Aborted), ..rare }, Filter { key, ..Filter::default() });
    let check = || {
        for (filter, limit, budget) in [(rare, 7, 1), (none, 7, 1), (all, 7, 1), (all, 5000, 600_000), (rare, 3, 0)] {
            let whole = reader(&lively.settings).list(&filter, usize::MAX, None).unwrap();
            assert_eq!(whole.next, None, "without a budget, it is all");
            let (mut found, mut before, mut short) = (Vec::new(), None, 0);
            loop {
                let page = reader(&lively.settings).list_within(&filter, limit, before, budget).unwrap();
                assert!(page.records.len() <= limit);
                short += usize::from(page.records.len() < limit && page.next.is_some());
                found.extend(page.records);
                let Some(next) = page.next else { break };
                assert!(before.is_none_or(|before| next < before), "it gets on");
                before = Some(next);
            }
            assert!(short > 0, "no page was short: the budget of {budget} ended nothing");
            assert_eq!(found, whole.records, "{filter:?}");
        }
    };
    check();
    lively.index();
    check();
}

#[test]
fn it_outlives_the_segments_it_was_counted_from() {
    let lively = Lively::whole();
    lively.index();
    let now = clock::now();
    let activity =
        || [0, 1].map(|i| reader(&lively.settings).activity(lively.who[i].org, &lively.keys(), now).unwrap());
    let before = activity();
    assert!(before[0][&lively.who[0].key].last.is_some());
    // A gateway that keeps little removes segments and their blocks.
    let journal = open(&Settings { retention_size: Some(1), ..lively.settings.clone() });
    until("old segments are removed", || segments(&lively.settings).len() <= 1);
    run(journal.close());
    assert!(activity() == before, "the counts of what is gone stay");
    assert_ne!(naive(&lively.settings, lively.who[0].org, now), before[0]);
}

#[test]
fn counts_of_hours_that_nobody_asks_for_are_removed() {
    let lively = Lively::whole();
    lively.index();
    let stale = clock::now().0 / HOUR - 25;
    let hours =
        |query: &str| -> i64 { database(&lively.settings).unwrap().query_row(query, [], |row| row.get(0)).unwrap() };
    let older = format!("SELECT count(*) FROM hour WHERE hour < {stale}");
    assert_eq!(hours(&older), 0, "they are not counted");
    assert!(hours("SELECT count(DISTINCT hour) FROM hour") >= 24);
    let writable = rusqlite::Connection::open(lively.settings.path.join("index.db")).unwrap();
    writable.execute("UPDATE hour SET hour = hour - 26", []).unwrap();
    drop(writable);
    // Something new is indexed, and the old is swept out.
    let journal = open(&lively.settings);
    run(async {
        let who = lively.who[0];
        while covered(&lively.settings) < segments(&lively.settings).len() as u64 {
            journal.begin(&who.uses()).await.unwrap().close(END);
        }
    });
    run(journal.close());
    assert_eq!(hours(&older), 0);
}

#[test]
fn an_index_of_before_there_were_counts_is_made_anew() {
    let lively = Lively::whole();
    let index = lively.settings.path.join("index.db");
    fs::remove_file(&index).unwrap();
    let last = segments(&lively.settings).len() as i64;
    let old = rusqlite::Connection::open(&index).unwrap();
    let schema = "
        CREATE TABLE block (
            id INTEGER PRIMARY KEY, segment INTEGER NOT NULL, start INTEGER NOT NULL, end INTEGER NOT NULL,
            first INTEGER, last INTEGER);
        CREATE TABLE member (id TEXT NOT NULL, block INTEGER NOT NULL, PRIMARY KEY (id, block)) WITHOUT ROWID;";
    old.execute_batch(schema).unwrap();
    // It claims to cover all but the last byte of it.
    let length = fs::metadata(segments(&lively.settings).last().unwrap()).unwrap().len() as i64 - 1;
    old.execute("INSERT INTO block (segment, start, end) VALUES (?1, 0, ?2)", [last, length]).unwrap();
    drop(old);
    lively.check();
    lively.index();
    lively.check();
    let version: i64 =
        database(&lively.settings).unwrap().query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    assert_eq!(version, 1);
}

/// A machine that dies can leave an index that covers what the journal has lost since.
#[test]
fn an_index_that_covers_more_than_the_journal_has_is_made_anew() {
    let mut lively = Lively::new();
    lively.settings.segment_size = 64 << 20;
    let journal = open(&lively.settings);
    let end = run(async {
        let open = lively.write(&journal, 2000).await;
        until("blocks are indexed", || indexed(&lively.settings.path.join("index.db")) >= 3);
        std::mem::forget(open);
        journal.close().await;
        let query = "SELECT end FROM covered";
        database(&lively.settings).unwrap().query_row(query, [], |row| row.get::<_, i64>(0)).unwrap()
    });
    let path = segments(&lively.settings).remove(0);
    fs::File::options().write(true).open(&path).unwrap().set_len(end.cast_unsigned() - 1500).unwrap();
    // The aborted outcomes that it writes first bring the journal beyond that point again.
    let journal = open(&lively.settings);
    assert!(fs::metadata(&path).unwrap().len() > end.cast_unsigned());
    lively.check();
    until("blocks are indexed", || indexed(&lively.settings.path.join("index.db")) >= 2);
    lively.check();
    run(journal.close());
}

#[test]
fn refusals_and_requests_are_found_by_themselves() {
    let lively = Lively::whole();
    lively.index();
    let records = all(&lively.settings);
    let change = |record: &Record| record.kind() == RecordKind::Change;
    assert!(records.iter().filter(|record| change(record)).count() > 100);
    let who = |i: usize| lively.who[i];
    let (key, user, org) = (Some(who(3).key), Some(who(4).user), Some(who(1).org));
    let filters = [
        Filter::default(),
        Filter { key, ..Filter::default() },
        Filter { key: Some(who(0).key), ..Filter::default() },
        Filter { user, ..Filter::default() },
        Filter { org, ..Filter::default() },
        Filter { user, org, ..Filter::default() },
    ];
    let check = || {
        for filter in filters {
            let of = |record: &&Record| {
                (filter.key.is_none() || filter.key == record.key_id)
                    && (filter.user.is_none() || filter.user == record.user_id)
                    && (filter.org.is_none() || filter.org == record.org_id)
            };
            let expected = |wanted: &dyn Fn(&Record) -> bool| -> Vec<Record> {
                records.iter().filter(of).filter(|record| wanted(record)).cloned().collect()
            };
            let refused = |record: &Record| REFUSALS.contains(&record.outcome);
            let refusals = Filter { refused: Some(true), ..filter };
            assert_eq!(exported(&lively.settings, refusals), expected(&refused));
            let requests = Filter { kind: Some(RecordKind::Request), ..filter };
            assert_eq!(exported(&lively.settings, requests), expected(&|record| !change(record)));
            let both = Filter { kind: Some(RecordKind::Request), refused: Some(true), ..filter };
            let listed = reader(&lively.settings).list(&both, 20, None).unwrap().records;
            let newest = expected(&|record| refused(record) && !change(record)).into_iter().rev().take(20);
            assert_eq!(listed, newest.collect::<Vec<_>>());
        }
    };
    check();
    fs::remove_file(lively.settings.path.join("index.db")).unwrap();
    check();
}
