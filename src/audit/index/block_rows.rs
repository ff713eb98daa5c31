//! Rows of blocks: the ids of the keys, users and organizations with uses in each block.

use rusqlite::{Connection, params};
use rustc_hash::FxHashMap;

use super::indexed_use::IndexedUse;
use super::usage_counts::UsageCounts;
use crate::audit::format::line::{self, EventKind};
use crate::audit::format::segment::Block;
use crate::clock::Micros;
use crate::identity::{OrgId, UserId};
use crate::key::KeyId;

/// Ids with uses in a block, each with whether one of these uses was refused.
#[derive(Default)]
pub(crate) struct BlockIds {
    keys: FxHashMap<KeyId, bool>,
    users: FxHashMap<UserId, bool>,
    orgs: FxHashMap<OrgId, bool>,
    /// Beginning of the first use in the block; `None` in a block without uses.
    earliest: Option<Micros>,
    /// Beginning of the last use in the block.
    latest: Option<Micros>,
}

impl BlockIds {
    /// Reads the lines of a block, and adds them to `counts`.
    pub(crate) fn from_lines(piece: &[u8], counts: &mut UsageCounts) -> Self {
        let mut ids = Self::default();
        for (_, line) in line::split_lines(piece) {
            match line::event_kind(line) {
                Some(EventKind::Use | EventKind::Record) => {
                    if let Some(indexed) = IndexedUse::from_line(line) {
                        ids.add(&indexed);
                        counts.count_use(&indexed, line);
                    }
                }
                // Counted where it began; found here once the segment in which it began is removed.
                Some(EventKind::Carried) => IndexedUse::from_line(line).iter().for_each(|indexed| ids.add(indexed)),
                Some(EventKind::Outcome) => counts.apply_outcome(line),
                _ => {}
            }
        }
        ids
    }

    fn add(&mut self, indexed: &IndexedUse) {
        let refused = indexed.is_refused();
        indexed.key_id.into_iter().for_each(|key| *self.keys.entry(key).or_default() |= refused);
        indexed.user_id.into_iter().for_each(|user| *self.users.entry(user).or_default() |= refused);
        indexed.org_id.into_iter().for_each(|org| *self.orgs.entry(org).or_default() |= refused);
        self.earliest = Some(self.earliest.map_or(indexed.time, |earliest| earliest.min(indexed.time)));
        self.latest = self.latest.max(Some(indexed.time));
    }

    fn texts(&self) -> impl Iterator<Item = (String, bool)> {
        let keys = self.keys.iter().map(|(id, refused)| (id.to_string(), *refused));
        let users = self.users.iter().map(|(id, refused)| (id.to_string(), *refused));
        keys.chain(users).chain(self.orgs.iter().map(|(id, refused)| (id.to_string(), *refused)))
    }
}

/// Inserts the rows of a block.
pub(crate) fn insert(database: &Connection, block: Block, ids: &BlockIds) -> rusqlite::Result<()> {
    let micros = |time: Option<Micros>| time.map(|time| time.0.cast_signed());
    let [segment, start, end] = [block.segment, block.start, block.end].map(u64::cast_signed);
    database
        .prepare_cached("INSERT INTO block (segment, start, end, earliest, latest) VALUES (?1, ?2, ?3, ?4, ?5)")?
        .execute(params![segment, start, end, micros(ids.earliest), micros(ids.latest)])?;
    let row = database.last_insert_rowid();
    let mut statement =
        database.prepare_cached("INSERT OR IGNORE INTO member (id, block, refused) VALUES (?1, ?2, ?3)")?;
    for (id, refused) in ids.texts() {
        statement.execute(params![id, row, refused])?;
    }
    Ok(())
}

/// Deletes the rows of the blocks of a segment.
pub(crate) fn delete_segment(database: &Connection, number: u64) -> rusqlite::Result<()> {
    let members = "DELETE FROM member WHERE block IN (SELECT id FROM block WHERE segment = ?1)";
    database.execute(members, [number.cast_signed()])?;
    database.execute("DELETE FROM block WHERE segment = ?1", [number.cast_signed()]).map(drop)
}
