//! Journals that are shipped when a test says so, and what a view of them must show.

use std::collections::HashMap;
use std::time::Duration;

use domain::clock::Micros;
use domain::identity::{AuthMethod, MANAGEMENT_METHOD, UserId};
use domain::management_token::TokenId;
use domain::refusal::Refusal;
use journal::audit::{
    AuditEntry, AuditView, ChangeUse, Filter, Fleet, Journal, Outcome, Reader, Record, Settings, Use, UseEnd, ViewScope,
};
use journal::shipping::{self, Destination, PostgresqlSettings, ShippedRecords, Shippers, SinkSettings};
use platform::metrics::Metrics;
use platform::postgresql;
use tempfile::TempDir;

use crate::journal::support::{Caller, END, block_on, open_journal, settings};
use crate::support::Postgresql;

/// Time that a test gives PostgreSQL: far more than it needs, also on a slow machine.
const DEADLINE: Duration = Duration::from_secs(60);

/// A gateway: its journal, and the uses that are open.
pub struct Recorder {
    pub settings: Settings,
    pub journal: Journal,
    open: Vec<AuditEntry>,
    _directory: TempDir,
}

/// One use, as a test describes it.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub caller: usize,
    pub time: Micros,
    pub kind: u8,
}

pub fn database(server: &Postgresql) -> postgresql::Settings {
    postgresql::Settings::parse(&server.url(), None).unwrap()
}

/// Reads the records of all gateways from this server.
pub fn fleet(server: &Postgresql) -> Fleet {
    Fleet::open(database(server), DEADLINE).unwrap()
}

impl Recorder {
    pub fn new(name: &str) -> Self {
        let directory = TempDir::new().unwrap();
        let settings = Settings { gateway: name.into(), segment_size: 20_000, ..settings(directory.path()) };
        let journal = open_journal(&settings);
        Self { settings, journal, open: Vec::new(), _directory: directory }
    }

    /// Goes on with the same journal under another name.
    pub fn rename(&mut self, name: &str) {
        block_on(self.journal.close());
        self.settings.gateway = name.into();
        self.journal = open_journal(&self.settings);
    }

    /// Records a use of one of the callers.
    pub fn record(&mut self, callers: &[Caller], event: Event) {
        let opening = callers[event.caller % callers.len()].opening_at(event.time);
        let refused = |refusal| UseEnd { outcome: Outcome::Refused(refusal), status: Some(429), ..END };
        match event.kind % 8 {
            0 => self.record_at_once(&opening, refused(Refusal::RateLimited)),
            1 => self.record_at_once(&opening, refused(Refusal::Forbidden)),
            2 => self.record_at_once(&opening, END),
            3 => {
                let auth_method = AuthMethod::AdminSocket;
                let client = Use { auth_method, number: None, user_id: None, ip: None, user_agent: None, ..opening };
                self.change(client, "key.revoke", "unix:ada(1000)", opening.user_id);
            }
            _ => {
                let entry = block_on(self.journal.begin(&opening)).unwrap();
                self.open.push(entry);
            }
        }
    }

    /// Records a change by management.
    pub fn change(&self, opening: Use<'_>, action: &str, actor: &str, subject: Option<UserId>) {
        let opening = Use { method: MANAGEMENT_METHOD, action, path: action, ..opening };
        let change = ChangeUse { opening, actor, subject, token_id: None };
        self.record_change(&change);
    }

    /// Records a change by a program with a management token.
    pub fn change_by_token(&self, opening: Use<'_>, action: &str, token: TokenId) {
        let auth_method = AuthMethod::Token;
        let opening = Use { method: MANAGEMENT_METHOD, auth_method, user_id: None, action, path: action, ..opening };
        let actor = format!("token:{token}");
        self.record_change(&ChangeUse { opening, actor: &actor, subject: None, token_id: Some(token) });
    }

    fn record_change(&self, change: &ChangeUse<'_>) {
        block_on(self.journal.begin_change(change, false)).unwrap().close(END);
    }

    fn record_at_once(&self, opening: &Use<'_>, end: UseEnd) {
        assert!(block_on(self.journal.record(opening, end)).unwrap());
    }

    /// Ends one of the open uses.
    pub fn end_one(&mut self, number: usize) {
        if !self.open.is_empty() {
            let outcome = if number.is_multiple_of(3) { Outcome::UpstreamError } else { Outcome::Completed };
            let place = number % self.open.len();
            self.open.swap_remove(place).close(UseEnd { outcome, ..END });
        }
    }

    /// Ships all that is recorded by now.
    pub fn ship(&self, server: &Postgresql) {
        let destination = Destination::Postgresql(PostgresqlSettings { database: database(server), retention: None });
        let settings = shipping::Settings {
            sinks: vec![SinkSettings { name: "central".into(), destination, records: ShippedRecords::All }],
        };
        self.settle();
        let shippers = Shippers::start(self.journal.tap(), &settings, &Metrics::new().shipping).unwrap();
        shippers.finish(DEADLINE);
    }

    /// Waits until the outcomes are written.
    pub fn settle(&self) {
        let expected = self.open.len();
        crate::support::eventually("the outcomes are written", || {
            let open = self.export(&Filter { outcome: Some(Outcome::InProgress), ..Filter::default() });
            open.len() == expected
        });
    }

    pub fn export(&self, filter: &Filter) -> Vec<Record> {
        let mut records = Vec::new();
        let mut each = |record| {
            records.push(record);
            Ok(())
        };
        Reader::open(&self.settings.path).unwrap().export(filter, &mut each).unwrap();
        records
    }

    /// The view of this gateway.
    pub fn view(&self, server: &Postgresql) -> AuditView {
        let view = AuditView::of_journal(self.journal.clone());
        view.set_fleet(Some(fleet(server)));
        view
    }
}

/// The records of several journals, newest first.
pub fn merge(records: impl IntoIterator<Item = Record>) -> Vec<Record> {
    let mut records: Vec<Record> = records.into_iter().collect();
    records.sort_by_key(|record| std::cmp::Reverse((record.time, record.id)));
    records
}

/// All pages of a list.
pub fn list(view: &AuditView, filter: &Filter, limit: usize) -> Vec<Record> {
    let (mut records, mut cursor) = (Vec::new(), None);
    loop {
        let page = view.list(filter, limit, cursor, 64 << 20).unwrap();
        assert_eq!(page.status.unwrap().scope, ViewScope::Fleet);
        assert!(page.records.len() <= limit);
        records.extend(page.records);
        cursor = page.next;
        if cursor.is_none() {
            return records;
        }
    }
}

pub fn export(view: &AuditView, filter: &Filter) -> Vec<Record> {
    let mut records = Vec::new();
    let mut each = |record| {
        records.push(record);
        Ok(())
    };
    let status = view.export(filter, &mut each).unwrap();
    assert_eq!(status.unwrap().scope, ViewScope::Fleet);
    records
}

/// Counts by key: uses that were admitted and that were refused.
pub fn count(records: &[Record]) -> HashMap<String, (u64, u64)> {
    let mut counts: HashMap<String, (u64, u64)> = HashMap::new();
    for record in records.iter().filter(|record| record.auth_method == AuthMethod::ApiKey) {
        let Some(key) = record.key_id else { continue };
        let counts = counts.entry(key.to_string()).or_default();
        *if record.outcome.is_refusal() { &mut counts.1 } else { &mut counts.0 } += record.uses();
    }
    counts
}
