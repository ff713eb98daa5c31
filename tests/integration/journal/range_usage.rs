//! Usage in a range of time, by the index: the same as a naive count over all records.

use std::collections::BTreeMap;
use std::time::Duration;

use domain::budget::{BudgetSubject, BudgetTotal};
use domain::clock::{self, Micros};
use domain::identity::OrgId;
use domain::key::KeyId;
use domain::refusal::Refusal;
use journal::audit::{
    AuditEntry, AuditView, BillingPeriod, Filter, Journal, OrgUsage, Outcome, PeriodUsage, Record, RecordKind,
    Settings, Settled, UsageBy, UsageQuery, UsageRange, UsageSeries, UsageSums,
};

use super::mixed_journal::{HOUR, MixedJournal, covered_segment};
use super::support::{
    END, all_records, block_on, open_index, open_journal, open_reader, segment_files, wait_until_indexed,
};
use crate::support::eventually;

/// Requests, refusals, uses that are open, units and bytes; and the uses by outcome.
type Numbers = ([u64; 6], BTreeMap<&'static str, u64>);

fn numbers(sums: &UsageSums) -> Numbers {
    let UsageSums { requests, refusals, request_bytes, response_bytes, .. } = *sums;
    let outcomes = sums.outcomes().map(|(outcome, uses)| (outcome.name(), uses)).collect();
    ([requests, refusals, sums.open(), sums.units(), request_bytes, response_bytes], outcomes)
}

fn count<'a>(records: impl Iterator<Item = &'a Record>) -> Numbers {
    let mut found = Numbers::default();
    for record in records {
        let ([requests, refusals, open, units, request_bytes, response_bytes], outcomes) = &mut found;
        if record.outcome.is_refusal() {
            *refusals += record.uses();
        } else {
            *requests += record.uses();
            *units += record.cost.unwrap_or(1);
            *request_bytes += record.request_bytes.unwrap_or(0);
            *response_bytes += record.response_bytes.unwrap_or(0);
        }
        match record.outcome {
            Outcome::InProgress => *open += 1,
            outcome => *outcomes.entry(outcome.name()).or_default() += record.uses(),
        }
    }
    found
}

/// Compares the usage of an organization and its keys in all ranges with that of the records.
fn check(journal: &Journal, mixed: &MixedJournal, org: OrgId) {
    // A view writes the outcomes that wait to be written.
    AuditView::of_journal(journal.clone()).list(&Filter::default(), 1, None, u64::MAX).unwrap();
    let records = all_records(&mixed.settings);
    let (reader, now) = (journal.reader().unwrap(), clock::now());
    let of_org = |range| reader.org_usage(org, range, now, 100).unwrap();
    let of_key = |key, range| reader.key_usage(org, key, range, now).unwrap();
    check_usage(&records, (org, &mixed.keys()), now, of_org, of_key);
    // Usage to bill by is that of a reader without the index, which reads the records.
    let other = open_reader(&mixed.settings);
    let days = [None, Some(Micros(now.0 - now.0 % (24 * HOUR)))];
    for by in [UsageBy::Org, UsageBy::Key, UsageBy::Route] {
        for (per, since) in
            [BillingPeriod::Day, BillingPeriod::Month].into_iter().flat_map(|per| days.map(|day| (per, day)))
        {
            for (org, until) in [(None, None), (Some(org), None), (Some(org), days[1].filter(|_| since.is_none()))] {
                let query = UsageQuery { by, per, since, until, by_gateway: false, org, budget: None };
                assert_eq!(reader.usage(query, now).unwrap(), other.usage(query, now).unwrap(), "{query:?}");
            }
        }
    }
}

/// Compares the usage of an organization and its keys in all ranges, up to a time, with that of these records.
pub fn check_usage(
    records: &[Record],
    (org, keys): (OrgId, &[KeyId]),
    now: Micros,
    of_org: impl Fn(UsageRange) -> OrgUsage,
    of_key: impl Fn(KeyId, UsageRange) -> UsageSeries,
) {
    let is_usage = |record: &&Record| {
        record.org_id == Some(org)
            && record.kind() == RecordKind::Request
            && record.outcome != Outcome::Refused(Refusal::Unknown)
    };
    let records: Vec<&Record> = records.iter().filter(is_usage).collect();
    assert!(records.len() > 100, "there is something to count");
    for range in UsageRange::ALL {
        let usage = of_org(range);
        let in_range: Vec<&Record> = records.iter().filter(|record| record.time >= range.start(now)).copied().collect();
        let length = if range == UsageRange::Day { HOUR } else { 24 * HOUR };
        let compare = |periods: &[PeriodUsage], of: &dyn Fn(&Record) -> bool| {
            let mut expected: BTreeMap<u64, Vec<&Record>> = BTreeMap::new();
            for record in in_range.iter().filter(|record| of(record)) {
                expected.entry(record.time.0 / length * length).or_default().push(record);
            }
            for PeriodUsage { start, sums } in periods {
                let expected = expected.remove(&start.0).unwrap_or_default();
                assert_eq!(numbers(sums), count(expected.into_iter()), "{range:?} from {start}");
            }
            assert!(expected.is_empty(), "{range:?} has all periods");
        };
        compare(&usage.series.periods, &|_| true);
        assert_eq!(usage.series.complete_from, None, "{range:?}");
        let mut busy: BTreeMap<Option<KeyId>, [u64; 2]> = BTreeMap::new();
        let mut routes: BTreeMap<Option<String>, Vec<&Record>> = BTreeMap::new();
        for record in &in_range {
            let is_by_key = record.auth_method == domain::identity::AuthMethod::ApiKey;
            let counts = busy.entry(record.key_id.filter(|_| is_by_key)).or_default();
            counts[usize::from(record.outcome.is_refusal())] += record.uses();
            let route = Some(record.action.clone()).filter(|action| !action.contains(' '));
            routes.entry(route).or_default().push(record);
        }
        let found: BTreeMap<_, _> = usage.keys.iter().map(|busy| (busy.key, [busy.requests, busy.refusals])).collect();
        assert_eq!(found, busy, "{range:?}");
        let totals: Vec<u64> = usage.keys.iter().map(|busy| busy.requests + busy.refusals).collect();
        assert!(totals.is_sorted_by(|one, next| one >= next), "busiest first");
        let found: BTreeMap<_, _> = usage.routes.iter().map(|(route, sums)| (route.clone(), numbers(sums))).collect();
        let expected: BTreeMap<_, _> =
            routes.into_iter().map(|(route, records)| (route, count(records.into_iter()))).collect();
        assert_eq!(found, expected, "{range:?}");
        for key in keys {
            let usage = of_key(*key, range);
            compare(&usage.periods, &|record| {
                record.key_id == Some(*key) && record.auth_method == domain::identity::AuthMethod::ApiKey
            });
        }
    }
}

/// Ends some uses, every third one with other units than it had reserved.
fn end(entries: impl Iterator<Item = AuditEntry>) {
    for (n, entry) in (0..).zip(entries) {
        let returned =
            BudgetTotal { subject: BudgetSubject::Org(OrgId::from_bytes([1; 16])), start: Micros(0), units: 1 };
        match n % 3 {
            0 => entry.close_settled(END, Settled { cost: n % 7, returned }),
            _ => entry.close(END),
        }
    }
}

/// Uses end in later segments, after a restart in order and by a gateway that was killed.
#[test]
fn usage_in_a_range_is_that_of_the_records() {
    let mut mixed = MixedJournal::new();
    let orgs = [mixed.caller[0].org, mixed.caller[1].org];
    let mut journal = open_journal(&mixed.settings);
    block_on(async {
        for round in 0..4 {
            let check_all =
                |journal: &Journal, mixed: &MixedJournal| orgs.iter().for_each(|org| check(journal, mixed, *org));
            let mut open = mixed.write(&journal, 1500).await;
            wait_until_indexed(&mixed.settings);
            check_all(&journal, &mixed);
            end(open.drain(..open.len() / 2));
            check_all(&journal, &mixed);
            if round % 2 == 0 {
                // The next gateway records those that are open as aborted.
                std::mem::forget(open);
            } else {
                end(open.into_iter());
            }
            journal.close().await;
            journal = open_journal(&mixed.settings);
            // A killed gateway may have left closed segments that were not indexed.
            wait_until_indexed(&mixed.settings);
            check_all(&journal, &mixed);
        }
        journal.close().await;
    });
}

fn rows(settings: &Settings, condition: &str) -> u64 {
    let sql = format!("SELECT count(*) FROM usage WHERE {condition}");
    open_index(settings).unwrap().query_row(&sql, [], |row| row.get::<_, i64>(0)).unwrap().cast_unsigned()
}

/// Days that are over are one row, and stay for 91 days at least, also when the segments are removed.
#[test]
fn past_days_are_kept_as_one_row_and_old_ones_deleted() {
    let mut mixed = MixedJournal::new();
    let journal = open_journal(&mixed.settings);
    block_on(async {
        for days in [100, 40] {
            let open = mixed.write_before(&journal, 1500, Duration::from_secs(days * 86_400)).await;
            end(open.into_iter());
        }
        drop(mixed.write(&journal, 3000).await);
        journal.close().await;
    });
    mixed.index();
    let hour = clock::now().0 / HOUR;
    let settings = Settings { retention_size: Some(1), ..mixed.settings.clone() };
    for _ in 0..2 {
        // The second one starts with a journal that has lines of today alone.
        let journal = open_journal(&settings);
        eventually("old segments are removed", || segment_files(&settings).len() <= 1);
        eventually("the usage is added up", || covered_segment(&settings) + 1 >= segment_files(&settings).len() as u64);
        eventually("hours of past days are added up", || {
            rows(&settings, &format!("hour < {hour} - 48 AND hour % 24 > 0")) == 0
        });
        block_on(journal.close());
    }
    assert_eq!(rows(&settings, &format!("hour < {hour} - 92 * 24")), 0);
    assert!((1..50).contains(&rows(&settings, &format!("hour BETWEEN {hour} - 42 * 24 AND {hour} - 38 * 24"))));
    let journal = open_journal(&settings);
    let now = clock::now();
    let usage = journal.reader().unwrap().org_usage(mixed.caller[0].org, UsageRange::Days(90), now, 10).unwrap();
    let of_days = |from: u64, to: u64| -> u64 {
        let within = |period: &&PeriodUsage| (from..to).contains(&((now.0 - period.start.0) / HOUR / 24));
        usage.series.periods.iter().filter(within).map(|period| period.sums.requests).sum()
    };
    assert!(of_days(38, 43) > 100 && of_days(0, 3) > 100 && of_days(3, 38) == 0);
    assert!(usage.series.complete_from.is_none(), "all of its first segment was counted");
    block_on(journal.close());
}
