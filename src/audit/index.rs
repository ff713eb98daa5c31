//! The index: which blocks of which segments hold uses of a key, a user or an organization, and from when to when.
//!
//! - It can always be made again from the segments, and is when it is lost, damaged or does not fit them.
//! - It covers the journal from its beginning up to a point, which moves on in the same transaction as the rows before
//!   it; what lies beyond, a reader scans. So it is never wrong, only late, by about a second and a block.
//! - It is sparse: a row per block and id, not per record.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags, OptionalExtension as _, params};
use rustc_hash::FxHashSet;

use super::event::{Kind, Open};
use super::frame;
use super::reader::Filter;
use super::segment::{self, Block};
use crate::clock::Micros;
use crate::identity::{OrgId, UserId};
use crate::key::KeyId;

pub(super) const FILE: &str = "index.db";
const SCHEMA: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = NORMAL;
    CREATE TABLE IF NOT EXISTS block (
        id INTEGER PRIMARY KEY, segment INTEGER NOT NULL, start INTEGER NOT NULL, end INTEGER NOT NULL,
        first INTEGER, last INTEGER);
    CREATE TABLE IF NOT EXISTS member (id TEXT NOT NULL, block INTEGER NOT NULL, PRIMARY KEY (id, block)) WITHOUT ROWID;
";
/// Blocks indexed in one transaction: 16 MiB of journal, a fraction of a second.
const ROUND: usize = 64;

/// A point in the journal: a segment and an offset in it.
pub(super) type Point = (u64, u64);

/// The one who writes the index.
#[derive(Debug)]
pub(super) struct Indexer {
    directory: PathBuf,
    /// None after a failure: it is made anew in the next round.
    database: Option<Connection>,
    /// Up to where the index is complete.
    covered: Point,
}

impl Indexer {
    /// Opens the index of a journal that ends at `end`; nothing is read or written yet.
    pub(super) fn new(directory: &Path, end: Point) -> Self {
        let mut indexer = Self { directory: directory.to_owned(), database: None, covered: (0, 0) };
        indexer.reopen(end).unwrap_or_else(|error| indexer.give_up(&error));
        indexer
    }

    /// Opens it, and makes it anew when it does not fit the journal.
    fn reopen(&mut self, end: Point) -> rusqlite::Result<()> {
        let path = self.directory.join(FILE);
        let found = create(&path).and_then(|database| Ok((covered(&database)?, database)));
        let (covered, database) = match found {
            Ok((covered, database)) if covered.is_none_or(|covered| covered <= end) => (covered, database),
            _ => {
                discard(&path);
                (None, create(&path)?)
            }
        };
        self.covered = covered.unwrap_or((0, 0));
        self.database = Some(database);
        Ok(())
    }

    fn give_up(&mut self, error: &rusqlite::Error) {
        tracing::warn!(%error, path = %self.directory.display(), "the index of the audit journal is made anew");
        self.database = None;
        discard(&self.directory.join(FILE));
    }

    /// Indexes what is complete of a journal whose last segment is `current`, up to so many blocks; whether there is more.
    pub(super) fn catch_up(&mut self, current: u64, length: u64) -> bool {
        let round = match &self.database {
            Some(_) => Ok(()),
            None => self.reopen((current, length)),
        };
        round.and_then(|()| self.round(current, length)).unwrap_or_else(|error| {
            self.give_up(&error);
            false
        })
    }

    fn round(&mut self, current: u64, length: u64) -> rusqlite::Result<bool> {
        let Some(database) = &mut self.database else { return Ok(false) };
        let blocks = due(&self.directory, self.covered, current, length);
        if blocks.is_empty() {
            return Ok(false);
        }
        let transaction = database.transaction()?;
        let mut piece = Vec::new();
        let mut covered = self.covered;
        for block in &blocks {
            let Ok(start) = segment::read(&self.directory, *block, &mut piece) else { return Ok(false) };
            let end = start + piece.len() as u64;
            insert(&transaction, Block { segment: block.segment, start, end }, &Members::of(&piece))?;
            covered = (block.segment, end.max(block.end));
        }
        transaction.commit()?;
        self.covered = covered;
        Ok(blocks.len() == ROUND)
    }

    /// Removes the rows of a segment that is gone.
    pub(super) fn forget(&mut self, number: u64) {
        let Some(database) = &self.database else { return };
        let members = "DELETE FROM member WHERE block IN (SELECT id FROM block WHERE segment = ?1)";
        let forgotten = database
            .execute(members, [number.cast_signed()])
            .and_then(|_| database.execute("DELETE FROM block WHERE segment = ?1", [number.cast_signed()]));
        if let Err(error) = forgotten {
            self.give_up(&error);
        }
    }
}

/// The next blocks to index: those of closed segments, and the whole ones of the current.
fn due(directory: &Path, covered: Point, current: u64, length: u64) -> Vec<Block> {
    let segments = segment::list(directory).unwrap_or_default();
    let open = segments.into_iter().filter(|segment| segment.number >= covered.0 && segment.number <= current);
    let stretches = open.flat_map(|segment| {
        let from = if segment.number == covered.0 { covered.1 } else { 0 };
        let to = if segment.number == current {
            length - length.saturating_sub(from) % segment::BLOCK
        } else {
            segment.length
        };
        segment::blocks(segment.number, from, to.max(from))
    });
    stretches.take(ROUND).collect()
}

/// What a block holds.
#[derive(Default)]
struct Members {
    keys: FxHashSet<KeyId>,
    users: FxHashSet<UserId>,
    orgs: FxHashSet<OrgId>,
    first: Option<Micros>,
    last: Option<Micros>,
}

impl Members {
    fn of(piece: &[u8]) -> Self {
        let mut members = Self::default();
        for (_, line) in frame::lines(piece) {
            if !matches!(frame::kind(line), Some(Kind::Use | Kind::Record)) {
                continue;
            }
            let Ok(open) = serde_json::from_slice::<Open>(line) else { continue };
            members.keys.extend(open.key_id);
            members.users.extend(open.user_id);
            members.orgs.extend(open.org_id);
            members.first = Some(members.first.map_or(open.time, |first| first.min(open.time)));
            members.last = members.last.max(Some(open.time));
        }
        members
    }

    fn ids(&self) -> impl Iterator<Item = String> {
        let keys = self.keys.iter().map(ToString::to_string);
        let users = self.users.iter().map(ToString::to_string);
        keys.chain(users).chain(self.orgs.iter().map(ToString::to_string))
    }
}

fn insert(database: &Connection, block: Block, members: &Members) -> rusqlite::Result<()> {
    let micros = |time: Option<Micros>| time.map(|time| time.0.cast_signed());
    database
        .prepare_cached("INSERT INTO block (segment, start, end, first, last) VALUES (?1, ?2, ?3, ?4, ?5)")?
        .execute(params![
            block.segment.cast_signed(),
            block.start.cast_signed(),
            block.end.cast_signed(),
            micros(members.first),
            micros(members.last)
        ])?;
    let row = database.last_insert_rowid();
    let mut statement = database.prepare_cached("INSERT OR IGNORE INTO member (id, block) VALUES (?1, ?2)")?;
    for id in members.ids() {
        statement.execute(params![id, row])?;
    }
    Ok(())
}

/// SQLite gives its own files the mode of the first, so that one is made here. When it cannot be, SQLite says why.
fn create(path: &Path) -> rusqlite::Result<Connection> {
    let made = File::options().append(true).create(true).mode(0o600).open(path);
    made.map_or_else(|error| tracing::debug!(%error, "the index cannot be made"), drop);
    let database = Connection::open(path)?;
    database.execute_batch(SCHEMA)?;
    Ok(database)
}

fn discard(path: &Path) {
    for suffix in ["", "-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        let removed = std::fs::remove_file(name);
        removed.unwrap_or_else(|error| tracing::debug!(%error, "nothing of the old index to remove"));
    }
}

fn covered(database: &Connection) -> rusqlite::Result<Option<Point>> {
    let last = "SELECT segment, end FROM block ORDER BY id DESC LIMIT 1";
    let point =
        |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?.cast_unsigned(), row.get::<_, i64>(1)?.cast_unsigned()));
    database.query_row(last, [], point).optional()
}

/// The blocks that may hold what a filter asks for, oldest first, and up to where that is all there is.
///
/// # Errors
/// When there is no index, or it is damaged: everything is to be scanned then.
pub(super) fn candidates(directory: &Path, filter: &Filter) -> rusqlite::Result<Option<(Vec<Block>, Point)>> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut database = Connection::open_with_flags(directory.join(FILE), flags)?;
    let transaction = database.transaction()?;
    let Some(point) = covered(&transaction)? else { return Ok(None) };
    let ids = [
        filter.key.map(|id| id.to_string()),
        filter.user.map(|id| id.to_string()),
        filter.org.map(|id| id.to_string()),
    ];
    let mut query = "SELECT segment, start, end FROM block WHERE last >= ?1 AND first < ?2".to_owned();
    for (n, _) in ids.iter().flatten().enumerate() {
        query.push_str(&format!(" AND id IN (SELECT block FROM member WHERE id = ?{})", n + 3));
    }
    query.push_str(" ORDER BY id");
    let time = |time: Option<Micros>, or| time.map_or(or, |time| i64::try_from(time.0).unwrap_or(i64::MAX));
    let bounds = [time(filter.since, 0).to_string(), time(filter.until, i64::MAX).to_string()];
    let mut statement = transaction.prepare(&query)?;
    let column = |row: &rusqlite::Row<'_>, i| row.get::<_, i64>(i).map(i64::cast_unsigned);
    let block =
        |row: &rusqlite::Row<'_>| Ok(Block { segment: column(row, 0)?, start: column(row, 1)?, end: column(row, 2)? });
    let parameters = rusqlite::params_from_iter(bounds.iter().chain(ids.iter().flatten()));
    let blocks = statement.query_map(parameters, block)?.collect::<Result<_, _>>()?;
    Ok(Some((blocks, point)))
}
