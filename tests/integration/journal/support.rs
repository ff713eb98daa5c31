//! Fixtures for the tests of the journal: uses, settings, and reading what was written.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use domain::budget::Cost;
use domain::clock::{self, Micros};
use domain::identity::{AuthMethod, MANAGEMENT_METHOD, OrgId, UserId};
use domain::key::{KeyId, OrgTag};
use domain::management_token::TokenId;
use journal::audit::{
    ChangeUse, Durability, Filter, Journal, LowWater, OnUnavailable, Outcome, Reader, Record, Settings, Use, UseEnd,
    VerifyReport,
};
use platform::metrics::Metrics;
use tempfile::TempDir;
use uuid::Uuid;

use crate::support::eventually_by;

pub const END: UseEnd = UseEnd {
    outcome: Outcome::Completed,
    status: Some(200),
    duration_us: 1500,
    request_bytes: 0,
    response_bytes: 4096,
};

/// A key with its user and organization.
#[derive(Clone, Copy)]
pub struct Caller {
    pub key: KeyId,
    pub user: UserId,
    pub org: OrgId,
}

impl Caller {
    pub fn random() -> Self {
        let key = KeyId::generate(OrgTag::generate().unwrap()).unwrap();
        Self { key, user: UserId::generate(), org: OrgId::generate() }
    }

    pub fn opening(self) -> Use<'static> {
        self.opening_at(clock::now())
    }

    pub fn opening_at(self, time: Micros) -> Use<'static> {
        Use {
            id: Uuid::now_v7(),
            time,
            number: Some(1),
            key_id: Some(self.key),
            user_id: Some(self.user),
            org_id: Some(self.org),
            auth_method: AuthMethod::ApiKey,
            ip: Some(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 7))),
            user_agent: Some(b"curl/8.5.0"),
            action: "queries.list",
            method: "GET",
            path: "/api/queries",
            provisional: false,
            cost: Cost::ONE,
            budget: None,
            trace_id: None,
        }
    }
}

/// The beginning of a change by the operator, of the user of this opening.
pub fn change_of(opening: Use<'static>) -> ChangeUse<'static> {
    let subject = opening.user_id;
    ChangeUse { opening: Use { user_id: None, ..opening }, actor: "unix:root(0)", subject, token_id: None }
}

/// The beginning of a change by a program with this token, of the user of this opening.
pub fn change_by_token(opening: Use<'static>, token: TokenId) -> ChangeUse<'static> {
    let opening = Use { auth_method: AuthMethod::Token, method: MANAGEMENT_METHOD, number: None, ..opening };
    ChangeUse { actor: "token:…", token_id: Some(token), ..change_of(opening) }
}

pub fn settings(directory: &Path) -> Settings {
    Settings {
        path: directory.join("audit"),
        durability: Durability::Written,
        on_unavailable: OnUnavailable::Refuse,
        segment_size: 64 << 20,
        segment_age: Duration::from_secs(86_400),
        retention_age: None,
        retention_size: None,
        retention_by_volume: false,
        retention_unshipped: 0,
        // Not the disk of the machine decides what is recorded.
        low_water: LowWater::Percent(0),
        unknown_per_second: 10,
        refusals: journal::audit::RefusalRecords::Coalesced,
        addresses: journal::audit::Addresses::Full,
        gateway: "gw-1".into(),
        checkpoints: None,
    }
}

/// A directory for a journal, and its settings.
pub fn new_directory() -> (TempDir, Settings) {
    let directory = TempDir::new().unwrap();
    let settings = settings(directory.path());
    (directory, settings)
}

pub fn open_journal(settings: &Settings) -> Journal {
    Journal::open(settings.clone(), Metrics::new().audit).unwrap()
}

pub fn open_reader(settings: &Settings) -> Reader {
    Reader::open(&settings.path).unwrap()
}

pub fn export_records(settings: &Settings, filter: Filter) -> Vec<Record> {
    let mut records = Vec::new();
    let mut each = |record| {
        records.push(record);
        Ok(())
    };
    open_reader(settings).export(&filter, &mut each).unwrap();
    records
}

pub fn all_records(settings: &Settings) -> Vec<Record> {
    export_records(settings, Filter::default())
}

pub fn assert_intact(settings: &Settings) -> VerifyReport {
    let report = open_reader(settings).verify().unwrap();
    assert_eq!(report.problems, [], "in {}", settings.path.display());
    report
}

pub fn segment_files(settings: &Settings) -> Vec<PathBuf> {
    let files = fs::read_dir(&settings.path).unwrap().map(|entry| entry.unwrap().path());
    let is_segment = |path: &PathBuf| [".jsonl", ".jsonl.zst"].iter().any(|end| path.to_str().unwrap().ends_with(end));
    let mut files: Vec<PathBuf> = files.filter(is_segment).collect();
    files.sort();
    // Both are there for a moment.
    files.dedup_by_key(|path| segment_number(path));
    files
}

/// The number of the segment in a file.
pub fn segment_number(path: &Path) -> u64 {
    path.file_name().unwrap().to_str().unwrap().split('.').next().unwrap().parse().unwrap()
}

/// The numbers of all segments. A start begins another one where the last is nearly full.
pub fn segment_numbers(settings: &Settings) -> Vec<u64> {
    segment_files(settings).iter().map(|path| segment_number(path)).collect()
}

/// Keeps the first segments from being compressed, as versions before left them.
pub fn keep_plain(settings: &Settings) {
    keep_numbers_plain(settings, 1..200);
}

/// Keeps segments with these numbers from being compressed.
pub fn keep_numbers_plain(settings: &Settings, numbers: Range<u64>) {
    for number in numbers {
        // A directory has the name of the file, which a journal that was closed may have left.
        let path = settings.path.join(format!("{number:010}.jsonl.zst.tmp"));
        drop(fs::remove_file(&path));
        fs::create_dir_all(&path).unwrap();
    }
}

pub fn all_files(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// Sizes of all files of a journal, which change while it works.
fn sizes(settings: &Settings) -> Vec<(PathBuf, u64)> {
    let sized = |path: PathBuf| fs::metadata(&path).ok().map(|file| (path, file.len()));
    all_files(&settings.path).into_iter().filter_map(sized).collect()
}

/// Waits until a running gateway has compressed all closed segments.
pub fn wait_until_compressed(settings: &Settings) {
    let is_plain = |path: &&PathBuf| path.extension().is_some_and(|extension| extension == "jsonl");
    let is_done = || segment_files(settings).iter().filter(is_plain).count() <= 1;
    eventually_by("all closed segments are compressed", || sizes(settings), is_done);
}

pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Writes a journal of `count` uses, one after the other, and closes it. Returns their ids.
pub fn write_uses(settings: &Settings, count: usize) -> Vec<Uuid> {
    block_on(async {
        let journal = open_journal(settings);
        let caller = Caller::random();
        let mut ids = Vec::new();
        for _ in 0..count {
            let opening = caller.opening();
            journal.begin(&opening).await.unwrap().close(END);
            ids.push(opening.id);
        }
        journal.close().await;
        ids
    })
}

/// The database of the index.
pub fn index_file(settings: &Settings) -> PathBuf {
    settings.path.join("index.db")
}

/// Opens the index for reading.
pub fn open_index(settings: &Settings) -> rusqlite::Result<rusqlite::Connection> {
    rusqlite::Connection::open_with_flags(index_file(settings), rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY)
}

/// Changes the index by a statement; returns the number of rows.
pub fn change_index(settings: &Settings, statement: &str) -> usize {
    rusqlite::Connection::open(index_file(settings)).unwrap().execute(statement, []).unwrap()
}

/// The numbers of the segments whose parts are in the index; none without one.
pub fn indexed_segments(settings: &Settings) -> Vec<u64> {
    let read = || {
        let index = open_index(settings)?;
        let mut numbers = index.prepare("SELECT number FROM segment ORDER BY number")?;
        numbers.query_map([], |row| row.get(0).map(i64::cast_unsigned))?.collect::<rusqlite::Result<_>>()
    };
    read().unwrap_or_default()
}

/// Removes the index.
pub fn remove_index(settings: &Settings) {
    fs::remove_file(index_file(settings)).unwrap();
}

/// Replaces the index by other bytes.
pub fn damage_index(settings: &Settings) {
    assert!(indexed_segments(settings).len() > 1, "there is an index to damage");
    fs::write(index_file(settings), "this is not an index").unwrap();
}

/// Waits until a running gateway has indexed all closed segments.
pub fn wait_until_indexed(settings: &Settings) {
    let is_done = || {
        let closed = segment_files(settings).len() - 1;
        indexed_segments(settings).len() >= closed
    };
    eventually_by("all closed segments are indexed", || sizes(settings), is_done);
}
