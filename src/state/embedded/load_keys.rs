//! Reads the keys of the state file: in parts side by side, while the keys that are read already are put into the
//! directory.

use std::ops::Range;
use std::path::Path;
use std::sync::mpsc::{self, SyncSender};
use std::thread;
use std::time::Duration;

use rusqlite::{Connection, Row, Rows};
use rustc_hash::FxHashMap;

use super::directory::Directory;
use super::entitlements::Secrets;
use super::key_state::Usage;
use super::sql::{Columns, invalid};
use super::stored_key::StoredKey;
use super::usage_blocks;
use crate::clock::Micros;
use crate::identity::{OrgId, UserId};
use crate::key::KeyDigest;
use crate::quota::Quota;
use crate::state::Key;
use crate::state::bucket::Bucket;

/// The columns of a key, in the order in which [`key`] reads them.
pub(super) const COLUMNS: &str =
    "keys.rowid, keys.id, keys.name, keys.imported, keys.seat, keys.created, keys.digest, keys.rotated,
     keys.previous, keys.previous_until, keys.revoked, keys.requests, keys.per, keys.burst,
     keys.level, keys.level_at, keys.level_per, keys.last_used, keys.uses, keys.user";
/// Keys that a reader hands over together: a hand-over costs little beside them.
const KEYS_PER_BATCH: usize = 1000;
/// Batches that may wait for the directory: so few that memory does not grow when it is slower than the readers.
const WAITING_BATCHES: usize = 8;

/// Some keys, or the error that ended their reader.
type Batch = rusqlite::Result<Vec<StoredKey>>;

/// Reads all keys that are not retired into a directory that has their users.
pub(super) fn load(path: &Path, connection: &Connection, directory: &Directory) -> rusqlite::Result<()> {
    let last: Option<u32> = connection.query_row("SELECT max(rowid) FROM keys", [], |row| row.get(0))?;
    let rows = last.map_or(0, |last| last + 1);
    let owners = directory.orgs_of_users();
    let readers = thread::available_parallelism().map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(1));
    // Parts begin with a block, so that no block is read twice.
    let part = rows.div_ceil(readers).next_multiple_of(usage_blocks::KEYS_PER_BLOCK).max(1);
    thread::scope(|scope| {
        let (sender, batches) = mpsc::sync_channel(WAITING_BATCHES);
        for start in (0..rows).step_by(part as usize) {
            let (sender, owners) = (sender.clone(), &owners);
            scope.spawn(move || read_part(path, start..rows.min(start + part), owners, &sender));
        }
        drop(sender);
        directory.add_stored_keys(batches)
    })
}

/// Reads the keys of some rows, until the receiver is gone.
fn read_part(path: &Path, rows: Range<u32>, owners: &FxHashMap<UserId, OrgId>, sender: &SyncSender<Batch>) {
    let read = Connection::open(path).and_then(|connection| {
        connection.busy_timeout(Duration::ZERO)?;
        read_batches(&connection, rows, owners, |batch| sender.send(Ok(batch)).is_ok())
    });
    if let Err(error) = read {
        // The receiver is gone when another reader has failed before.
        let _ = sender.send(Err(error));
    }
}

fn read_batches(
    connection: &Connection,
    rows: Range<u32>,
    owners: &FxHashMap<UserId, OrgId>,
    mut take: impl FnMut(Vec<StoredKey>) -> bool,
) -> rusqlite::Result<()> {
    let query = format!(
        "SELECT {COLUMNS} FROM keys WHERE keys.rowid >= ?1 AND keys.rowid < ?2 AND keys.retired IS NULL ORDER BY keys.rowid"
    );
    let mut query = connection.prepare(&query)?;
    let mut found = query.query([rows.start, rows.end])?;
    let mut blocks = connection.prepare("SELECT block, content FROM usage WHERE block >= ?1 ORDER BY block")?;
    let mut blocks = Blocks { rows: blocks.query([usage_blocks::block_number(rows.start)])?, current: None };
    let mut batch = Vec::with_capacity(KEYS_PER_BATCH);
    while let Some(row) = found.next()? {
        let number: u32 = row.get(0)?;
        let usage = blocks.find(number)?;
        if let Some(stored) = key(row, usage, |user| owners.get(&user).copied())? {
            batch.push(stored);
        }
        if batch.len() == KEYS_PER_BATCH && !take(std::mem::replace(&mut batch, Vec::with_capacity(KEYS_PER_BATCH))) {
            return Ok(());
        }
    }
    take(batch);
    Ok(())
}

/// The blocks of usage, read once in their order.
struct Blocks<'a> {
    rows: Rows<'a>,
    current: Option<(u32, Vec<u8>)>,
}

impl Blocks<'_> {
    /// The usage of the key in a row. Rows are asked for in their order.
    fn find(&mut self, row: u32) -> rusqlite::Result<Option<Usage>> {
        let number = usage_blocks::block_number(row);
        while self.current.as_ref().is_none_or(|(current, _)| *current < number) {
            let Some(next) = self.rows.next()? else { return Ok(None) };
            self.current = Some((next.get(0)?, next.get(1)?));
        }
        let current = self.current.as_ref().filter(|(current, _)| *current == number);
        Ok(current.and_then(|(_, block)| usage_blocks::read_entry(block, row)))
    }
}

/// Reads a key from a row that begins with [`COLUMNS`]; none when its user is not known.
pub(super) fn key(
    row: &Row<'_>,
    usage: Option<Usage>,
    org_of: impl FnOnce(UserId) -> Option<OrgId>,
) -> rusqlite::Result<Option<StoredKey>> {
    let mut columns = Columns::new(row);
    let number = columns.value()?;
    let (id, name, imported, session_quota_key) =
        (columns.text()?, columns.value()?, columns.value()?, columns.value()?);
    let created = columns.time()?.unwrap_or_default();
    let secrets = secrets(&mut columns)?;
    let (revoked, quota) = (columns.time()?, quota(row, &mut columns)?);
    let (bucket, last_used, uses) = usage_of_row(&mut columns, usage)?;
    let user = columns.text()?;
    let (rotated, previous_until) = (secrets.rotated, secrets.previous_until);
    let key = |org| Key {
        id,
        org,
        user,
        name,
        imported,
        session_quota_key,
        created,
        rotated,
        previous_until,
        revoked,
        quota,
        last_used,
        uses,
    };
    Ok(org_of(user).map(|org| StoredKey { key: key(org), row: number, secrets, bucket }))
}

fn secrets(columns: &mut Columns<'_>) -> rusqlite::Result<Secrets> {
    let (current, rotated, previous, previous_until) =
        (columns.value()?, columns.time()?, columns.value::<Option<[u8; 32]>>()?, columns.time()?);
    // An overlap that was over when the rotation began is none: the replaced secret never was valid beside the new one.
    let until = previous_until.filter(|until| Some(*until) > rotated);
    Ok(Secrets {
        current: KeyDigest::from_bytes(current),
        replaced: Vec::new(),
        previous: previous.map(KeyDigest::from_bytes).zip(until),
        rotated,
        previous_until,
    })
}

fn quota(row: &Row<'_>, columns: &mut Columns<'_>) -> rusqlite::Result<Option<Quota>> {
    let (requests, per, burst) = (columns.value()?, columns.count()?, columns.value::<Option<u32>>()?);
    let Some(requests) = requests else { return Ok(None) };
    let per = Duration::from_secs(per.unwrap_or_default());
    let quota = Quota { requests, per, burst: burst.unwrap_or_default(), strict: false };
    quota.validate().map(Some).map_err(|error| invalid(row, "requests", error))
}

/// A bucket, and the `per` in microseconds that its level is measured in.
type StoredBucket = Option<(Bucket, u64)>;

/// The bucket, the last use and the number of uses of a key: of its entry in a block, else of its row.
fn usage_of_row(
    columns: &mut Columns<'_>,
    usage: Option<Usage>,
) -> rusqlite::Result<(StoredBucket, Option<Micros>, u64)> {
    let (level, at, per) = (columns.value::<Option<i64>>()?, columns.time()?, columns.count()?);
    let (last_used, uses) = (columns.time()?, columns.count()?.unwrap_or_default());
    Ok(match usage {
        Some(usage) => (Some((usage.bucket, usage.per_us)), usage.last_used, usage.uses),
        None => (level.zip(at).zip(per).map(|((level, at), per)| (Bucket { level, at }, per)), last_used, uses),
    })
}
