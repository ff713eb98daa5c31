//! A journal with every kind of use, by several keys of two organizations, over 30 hours.

use std::collections::HashMap;
use std::time::Duration;

use domain::clock::{self, Micros};
use domain::identity::{AuthMethod, MANAGEMENT_METHOD, OrgId};
use domain::key::KeyId;
use domain::refusal::Refusal;
use journal::audit::{
    ACTIVITY_HOURS, AuditEntry, Filter, HourlyActivity, Journal, KeyActivity, LastUse, Outcome, Reader, Record,
    Settings, Use, UseEnd,
};
use tempfile::TempDir;

use super::support::{
    Caller, END, all_records, block_on, export_records, open_index, open_journal, open_reader, settings,
    wait_until_indexed,
};

pub const HOUR: u64 = 3_600_000_000;

pub const REFUSALS: [Outcome; 12] = [
    Outcome::Refused(Refusal::RateLimited),
    Outcome::Refused(Refusal::KeyTooManyInFlight),
    Outcome::Refused(Refusal::Forbidden),
    Outcome::Refused(Refusal::Revoked),
    Outcome::Refused(Refusal::Expired),
    Outcome::Refused(Refusal::UserRemoved),
    Outcome::Refused(Refusal::UserSuspended),
    Outcome::Refused(Refusal::KeyExpired),
    Outcome::Refused(Refusal::KeyDisabled),
    Outcome::Refused(Refusal::AddressRefused),
    Outcome::Refused(Refusal::OrgSuspended),
    Outcome::Refused(Refusal::NotFound),
];

/// A journal with every kind of use, by several keys of two organizations, over 30 hours.
pub struct MixedJournal {
    _directory: TempDir,
    pub settings: Settings,
    pub caller: Vec<Caller>,
    begun: Micros,
    written: u64,
}

impl MixedJournal {
    /// An empty journal, to be written with times of the last 30 hours. Activity covers the last 24 of them.
    pub fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let settings = Settings { segment_size: 50_000, ..settings(directory.path()) };
        let mut caller: Vec<Caller> = (0..8).map(|_| Caller::random()).collect();
        (2..8).for_each(|i| caller[i].org = caller[i % 2].org);
        let begun = clock::now().before(Duration::from_secs(30 * 3600));
        Self { _directory: directory, settings, caller, begun, written: 0 }
    }

    /// Writes `count` more of 6000 uses, the last of which begins now. Returns those that are still open.
    pub async fn write(&mut self, journal: &Journal, count: u64) -> Vec<AuditEntry> {
        let mut open = Vec::new();
        for n in self.written..self.written + count {
            let time = Micros(self.begun.0 + n * (30 * HOUR / 6000));
            let agent = format!("agent/{n}");
            let opening = Use { user_agent: Some(agent.as_bytes()), ..self.nth(n, time) };
            let refused = UseEnd { outcome: REFUSALS[(n / 10) as usize % 8], status: Some(403), ..END };
            match n % 10 {
                0 => assert!(journal.record(&opening, refused).await.unwrap()),
                1 => assert!(journal.record(&opening, END).await.unwrap()),
                2 => {
                    _ = journal
                        .record_unknown_key(&Use { key_id: None, user_id: None, org_id: None, ..opening }, refused)
                }
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

    /// The same, so much earlier.
    pub async fn write_before(&mut self, journal: &Journal, count: u64, earlier: Duration) -> Vec<AuditEntry> {
        let begun = self.begun;
        self.begun = begun.before(earlier);
        let open = self.write(journal, count).await;
        self.begun = begun;
        open
    }

    /// The nth use. Seven keys alternate; all uses of the eighth are refused; the first is unused
    /// after the first hours.
    pub fn nth(&self, n: u64, time: Micros) -> Use<'static> {
        let i = if n.is_multiple_of(30) { 7 } else { (n / 700 + n % 5) as usize % 7 };
        let i = if i == 0 && n > 700 { 1 } else { i };
        let uses = self.caller[i].opening_at(time);
        match n % 13 {
            3 => Use { auth_method: AuthMethod::Session, key_id: None, ..uses },
            4 => Use { auth_method: AuthMethod::AdminSocket, method: MANAGEMENT_METHOD, action: "key.limits", ..uses },
            5 => Use { auth_method: AuthMethod::Session, method: MANAGEMENT_METHOD, action: "key.rotate", ..uses },
            6 => Use { method: MANAGEMENT_METHOD, ..uses },
            _ => uses,
        }
    }

    /// Writes all 6000 uses and closes the journal.
    pub fn complete() -> Self {
        let mut mixed = Self::new();
        let journal = open_journal(&mixed.settings);
        block_on(async {
            drop(mixed.write(&journal, 6000).await);
            journal.close().await;
        });
        mixed
    }

    /// Indexes all segments but the last one.
    pub fn index(&self) {
        let journal = open_journal(&self.settings);
        wait_until_indexed(&self.settings);
        block_on(journal.close());
    }

    pub fn check(&self) {
        self.check_by(&open_reader(&self.settings));
    }

    pub fn check_by(&self, reader: &Reader) {
        let now = clock::now();
        let orgs = [self.caller[0].org, self.caller[1].org];
        let count = || {
            let records = all_records(&self.settings);
            orgs.map(|org| count_records(records.iter().filter(|record| record.org_id == Some(org)), now))
        };
        // Outcomes may be written meanwhile: the expectation must be the same before and after the calls.
        let mut expected = count();
        let found = loop {
            let found = orgs.map(|org| reader.activity(org, &self.keys(), now).unwrap());
            let after = count();
            if after == expected {
                break found;
            }
            expected = after;
        };
        for (found, expected) in found.into_iter().zip(expected) {
            assert!(expected.len() >= 3, "there is something to count");
            assert_eq!(found.len(), self.caller.len(), "every requested key is in the result");
            for (key, found) in found {
                assert_eq!(found, expected.get(&key).cloned().unwrap_or_else(|| no_activity(now)), "{key}");
            }
        }
    }

    pub fn keys(&self) -> Vec<KeyId> {
        self.caller.iter().map(|caller| caller.key).collect()
    }
}

/// The segment up to which usage is added up in the database of the index.
pub fn covered_segment(settings: &Settings) -> u64 {
    let query = "SELECT segment FROM covered";
    let number = open_index(settings).and_then(|database| database.query_row(query, [], |row| row.get::<_, i64>(0)));
    number.unwrap_or(0).cast_unsigned()
}

/// The activity of an unused key.
pub fn no_activity(now: Micros) -> KeyActivity {
    let first = now.0 / HOUR + 1 - ACTIVITY_HOURS as u64;
    let hour = |n| HourlyActivity { start: Micros((first + n as u64) * HOUR), requests: 0, refusals: 0 };
    KeyActivity { hours: std::array::from_fn(hour), last: None, last_attempt: None }
}

/// Counts activity over all records of an organization, one by one.
pub fn count_naively(settings: &Settings, org: OrgId, now: Micros) -> HashMap<KeyId, KeyActivity> {
    count_records(&export_records(settings, Filter { org: Some(org), ..Filter::default() }), now)
}

fn count_records<'a>(records: impl IntoIterator<Item = &'a Record>, now: Micros) -> HashMap<KeyId, KeyActivity> {
    let first = now.0 / HOUR + 1 - ACTIVITY_HOURS as u64;
    let (mut keys, mut refusals) = (HashMap::<KeyId, KeyActivity>::new(), HashMap::new());
    for record in records {
        let (Some(key), AuthMethod::ApiKey) = (record.key_id, record.auth_method) else { continue };
        let refused = REFUSALS.contains(&record.outcome);
        let hour = (record.time.0 / HOUR).checked_sub(first).filter(|hour| *hour < ACTIVITY_HOURS as u64);
        let activity = keys.entry(key).or_insert_with(|| no_activity(now));
        if let Some(hour) = hour {
            let hour = &mut activity.hours[hour as usize];
            *if refused { &mut hour.refusals } else { &mut hour.requests } += 1;
        }
        let last = LastUse {
            id: record.id,
            time: record.time,
            ip: record.ip,
            user_agent: record.user_agent.clone(),
            action: record.action.clone(),
            outcome: record.outcome,
            status: record.status,
        };
        if refused {
            refusals.insert(key, last);
        } else {
            activity.last = Some(last);
        }
    }
    for (key, activity) in &mut keys {
        let later = |refusal: &&LastUse| activity.last.as_ref().is_none_or(|last| refusal.time > last.time);
        activity.last_attempt = refusals.get(key).filter(later).or(activity.last.as_ref()).cloned();
    }
    keys
}
