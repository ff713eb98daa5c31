//! The index: which blocks of which segments hold uses of a key, a user or an organization, and from when to when; how
//! often each key was used and refused in the last hours, and its last use.
//!
//! - It can always be made again from the segments, and is when it is lost, damaged or does not fit them.
//! - It covers the journal from its beginning up to a point, which moves on in the same transaction as the rows before
//!   it; what lies beyond, a reader scans. So it is never wrong, only late, by about a second and a block.
//! - It is sparse: a row per block and id, not per record; a row per key and hour, for 25 hours; a row per key.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension as _, params};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::audit::filter::Filter;
use crate::audit::format::event::Glance;
use crate::audit::format::line::{self, Kind};
use crate::audit::format::segment::{self, Block, Point};
use crate::audit::index::usage_counts::{Tally, Whose};
use crate::clock::Micros;
use crate::identity::{OrgId, UserId};
use crate::key::KeyId;

mod database;

use database as file;
mod usage_rows;
pub(crate) mod usage_counts;

pub(crate) const FILE: &str = "index.db";
/// Blocks indexed in one transaction: 16 MiB of journal, a fraction of a second.
const ROUND: usize = 64;
/// Hours whose counts are kept before the one that is going on: those that readers show, and one for a reader whose
/// hour has just ended.
const HOURS_KEPT: u64 = 24;

/// The one who writes the index.
#[derive(Debug)]
pub(crate) struct Indexer {
    directory: PathBuf,
    /// None after a failure: it is made anew in the next round.
    database: Option<Connection>,
    /// Up to where the index is complete.
    covered: Point,
    /// The uses that had not ended by then.
    open: FxHashMap<u128, Whose>,
    /// Counts of hours before this one have been removed.
    first_hour: u64,
}

impl Indexer {
    /// Opens the index of a journal that ends at `end`; nothing of the journal is read yet.
    pub(crate) fn new(directory: &Path, end: Point) -> Self {
        let directory = directory.to_owned();
        let mut indexer =
            Self { directory, database: None, covered: (0, 0), open: FxHashMap::default(), first_hour: 0 };
        indexer.reopen(end).unwrap_or_else(|error| indexer.give_up(&error));
        indexer
    }

    /// Opens it, and makes it anew when it does not fit the journal.
    fn reopen(&mut self, end: Point) -> rusqlite::Result<()> {
        let path = self.directory.join(FILE);
        let found =
            file::open(&path).and_then(|database| Ok((covered(&database)?, usage_rows::open(&database)?, database)));
        let (covered, open, database) = match found {
            Ok((covered, open, database)) if covered.is_none_or(|covered| covered <= end) => (covered, open, database),
            _ => (None, FxHashMap::default(), file::make(&path)?),
        };
        self.covered = covered.unwrap_or((0, 0));
        self.open = open;
        self.first_hour = 0;
        self.database = Some(database);
        Ok(())
    }

    fn give_up(&mut self, error: &rusqlite::Error) {
        tracing::warn!(%error, path = %self.directory.display(), "the index of the audit journal is made anew");
        self.database = None;
        file::discard(&self.directory.join(FILE));
    }

    /// Indexes what is complete of a journal that ends at `end`, up to so many blocks; whether there is more.
    pub(crate) fn catch_up(&mut self, end: Point, now: Micros) -> bool {
        let round = match &self.database {
            Some(_) => Ok(()),
            None => self.reopen(end),
        };
        round.and_then(|()| self.round(end, now)).unwrap_or_else(|error| {
            self.give_up(&error);
            false
        })
    }

    fn round(&mut self, end: Point, now: Micros) -> rusqlite::Result<bool> {
        let Some(database) = &mut self.database else { return Ok(false) };
        let blocks = due(&self.directory, self.covered, end);
        if blocks.is_empty() {
            return Ok(false);
        }
        let transaction = database.transaction()?;
        let first_hour = usage_counts::hour(now).saturating_sub(HOURS_KEPT);
        let mut tally = Tally::new(first_hour, self.open.clone());
        let mut piece = Vec::new();
        let mut covered = self.covered;
        for block in &blocks {
            let Ok(start) = segment::read(&self.directory, *block, &mut piece) else { return Ok(false) };
            let end = start + piece.len() as u64;
            insert(&transaction, Block { segment: block.segment, start, end }, &Members::of(&piece, &mut tally))?;
            covered = (block.segment, end.max(block.end));
        }
        usage_rows::add(&transaction, &tally)?;
        if first_hour > self.first_hour {
            usage_rows::forget_before(&transaction, first_hour)?;
        }
        cover(&transaction, covered)?;
        transaction.commit()?;
        self.covered = covered;
        self.open = tally.open;
        self.first_hour = first_hour;
        Ok(blocks.len() == ROUND)
    }

    /// Removes the rows of a segment that is gone. What it says of keys stays counted.
    pub(crate) fn forget(&mut self, number: u64) {
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
fn due(directory: &Path, covered: Point, (current, length): Point) -> Vec<Block> {
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

/// Who has uses in a block, each with whether one of them was refused.
#[derive(Default)]
struct Members {
    keys: FxHashMap<KeyId, bool>,
    users: FxHashMap<UserId, bool>,
    orgs: FxHashMap<OrgId, bool>,
    earliest: Option<Micros>,
    latest: Option<Micros>,
}

impl Members {
    /// Reads a block, which follows on what was counted.
    fn of(piece: &[u8], tally: &mut Tally) -> Self {
        let mut members = Self::default();
        for (_, line) in line::lines(piece) {
            match line::kind(line) {
                Some(Kind::Use | Kind::Record) => {
                    if let Some(glance) = Glance::at(line) {
                        members.add(&glance);
                        tally.begun(&glance, line);
                    }
                }
                Some(Kind::Outcome) => tally.ended(line),
                _ => {}
            }
        }
        members
    }

    fn add(&mut self, glance: &Glance) {
        let refused = glance.is_refused();
        glance.key_id.into_iter().for_each(|key| *self.keys.entry(key).or_default() |= refused);
        glance.user_id.into_iter().for_each(|user| *self.users.entry(user).or_default() |= refused);
        glance.org_id.into_iter().for_each(|org| *self.orgs.entry(org).or_default() |= refused);
        self.earliest = Some(self.earliest.map_or(glance.time, |earliest| earliest.min(glance.time)));
        self.latest = self.latest.max(Some(glance.time));
    }

    fn ids(&self) -> impl Iterator<Item = (String, bool)> {
        let keys = self.keys.iter().map(|(id, refused)| (id.to_string(), *refused));
        let users = self.users.iter().map(|(id, refused)| (id.to_string(), *refused));
        keys.chain(users).chain(self.orgs.iter().map(|(id, refused)| (id.to_string(), *refused)))
    }
}

fn insert(database: &Connection, block: Block, members: &Members) -> rusqlite::Result<()> {
    let micros = |time: Option<Micros>| time.map(|time| time.0.cast_signed());
    database
        .prepare_cached("INSERT INTO block (segment, start, end, earliest, latest) VALUES (?1, ?2, ?3, ?4, ?5)")?
        .execute(params![
        block.segment.cast_signed(),
        block.start.cast_signed(),
        block.end.cast_signed(),
        micros(members.earliest),
        micros(members.latest)
    ])?;
    let row = database.last_insert_rowid();
    let mut statement =
        database.prepare_cached("INSERT OR IGNORE INTO member (id, block, refused) VALUES (?1, ?2, ?3)")?;
    for (id, refused) in members.ids() {
        statement.execute(params![id, row, refused])?;
    }
    Ok(())
}

fn covered(database: &Connection) -> rusqlite::Result<Option<Point>> {
    let point =
        |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?.cast_unsigned(), row.get::<_, i64>(1)?.cast_unsigned()));
    database.query_row("SELECT segment, end FROM covered", [], point).optional()
}

fn cover(database: &Connection, (segment, end): Point) -> rusqlite::Result<()> {
    let point = params![segment.cast_signed(), end.cast_signed()];
    database.execute("INSERT OR REPLACE INTO covered (one, segment, end) VALUES (1, ?1, ?2)", point).map(drop)
}

/// The blocks that may hold what a filter asks for, oldest first, and up to where that is all there is.
///
/// # Errors
/// When there is no index, or it is damaged: everything is to be scanned then.
pub(crate) fn candidates(directory: &Path, filter: &Filter) -> rusqlite::Result<Option<(Vec<Block>, Point)>> {
    let Some(mut database) = file::open_for_reading(directory)? else { return Ok(None) };
    let transaction = database.transaction()?;
    let Some(point) = covered(&transaction)? else { return Ok(None) };
    let ids = [
        filter.key.map(|id| id.to_string()),
        filter.user.map(|id| id.to_string()),
        filter.org.map(|id| id.to_string()),
    ];
    let mut query = "SELECT segment, start, end FROM block WHERE latest >= ?1 AND earliest < ?2".to_owned();
    let refused = if filter.refused == Some(true) { " AND refused" } else { "" };
    for (n, _) in ids.iter().flatten().enumerate() {
        query.push_str(&format!(" AND id IN (SELECT block FROM member WHERE id = ?{}{refused})", n + 3));
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

/// What the index has of the activity of these keys of an organization, from an hour on, and up to where that is all
/// there is.
///
/// # Errors
/// As [`candidates`].
pub(crate) fn counted(
    directory: &Path,
    org: OrgId,
    keys: &FxHashSet<KeyId>,
    first: u64,
) -> rusqlite::Result<Option<(Tally, Point)>> {
    let Some(mut database) = file::open_for_reading(directory)? else { return Ok(None) };
    let transaction = database.transaction()?;
    let Some(point) = covered(&transaction)? else { return Ok(None) };
    Ok(Some((usage_rows::of(&transaction, org, keys, first)?, point)))
}
