//! Reads the keys of the state file: in parts side by side, each of which makes the records of its keys.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rusqlite::{Connection, Row, Rows};

use super::directory::Directory;
use super::key::{KeyRecord, Secrets, StoredKey, Usage};
use super::retired::RetiredKey;
use super::sql::{Columns, invalid};
use super::usage_blocks;
use crate::Key;
use domain::identity::{OrgId, UserId};
use domain::key::KeyDigest;
use domain::quota::Quota;

/// The columns of a key, in the order in which [`key`] reads them. The usage comes last: it is not read when a block
/// has it.
pub(super) const COLUMNS: &str =
    "keys.rowid, keys.id, keys.name, keys.imported, keys.session_quota_key, keys.created, keys.digest, keys.rotated,
     keys.previous, keys.previous_until, keys.revoked, keys.requests, keys.per, keys.burst, keys.user,
     keys.plan, keys.budget, keys.last_used, keys.uses";

/// Reads all keys into a directory that has their users: retired ones as such, with their current digests.
pub(super) fn load(path: &Path, connection: &Connection, directory: &Directory) -> rusqlite::Result<()> {
    let last: Option<u32> = connection.query_row("SELECT max(rowid) FROM keys", [], |row| row.get(0))?;
    let rows = last.map_or(0, |last| last + 1);
    let readers = thread::available_parallelism().map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(1));
    // Parts begin with a block, so that no block is read twice.
    let part = rows.div_ceil(readers).next_multiple_of(usage_blocks::KEYS_PER_BLOCK).max(1);
    let parts = thread::scope(|scope| {
        let starts = (0..rows).step_by(part as usize);
        let readers: Vec<_> = starts
            .map(|start| scope.spawn(move || read_part(path, start..rows.min(start + part), directory)))
            .collect();
        let read = readers.into_iter().map(|reader| reader.join().expect("a reader does not panic"));
        read.collect::<rusqlite::Result<Vec<_>>>()
    })?;
    directory.add_records(&parts);
    Ok(())
}

/// Reads the keys of some rows. Returns the records of those that are not retired, which are in no index yet.
fn read_part(path: &Path, rows: Range<u32>, directory: &Directory) -> rusqlite::Result<Vec<Arc<KeyRecord>>> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(Duration::ZERO)?;
    let query = format!(
        "SELECT {COLUMNS}, keys.retired IS NOT NULL FROM keys WHERE keys.rowid >= ?1 AND keys.rowid < ?2 ORDER BY \
         keys.rowid"
    );
    let mut query = connection.prepare(&query)?;
    let retired = query.column_count() - 1;
    let mut found = query.query([rows.start, rows.end])?;
    let mut blocks = connection.prepare("SELECT block, content FROM usage WHERE block >= ?1 ORDER BY block")?;
    let mut blocks = Blocks { rows: blocks.query([usage_blocks::block_number(rows.start)])?, current: None };
    let tree = directory.tree();
    let mut records = Vec::new();
    while let Some(row) = found.next()? {
        let usage = blocks.find(row.get(0)?)?;
        let Some(stored) = key(row, usage, |user| tree.org_of(user))? else { continue };
        if row.get(retired)? {
            let Key { id, user, org, .. } = stored.key;
            directory.retired.add(stored.secrets.current, RetiredKey { id, user, org });
        } else {
            records.extend(tree.new_record(stored));
        }
    }
    Ok(records)
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

/// Reads a key from a row that begins with [`COLUMNS`], without its policy; none when its user is not known.
pub(super) fn key(
    row: &Row<'_>,
    usage: Option<Usage>,
    org_of: impl FnOnce(UserId) -> Option<OrgId>,
) -> rusqlite::Result<Option<StoredKey>> {
    let mut columns = Columns::new(row);
    let number = columns.value()?;
    let id = columns.text()?;
    let name = columns.value()?;
    let imported = columns.value()?;
    let session_quota_key = columns.value()?;
    let created = columns.time()?.unwrap_or_default();
    let secrets = secrets(&mut columns)?;
    let revoked = columns.time()?;
    let quota = quota(row, &mut columns)?;
    let user = columns.text()?;
    let plan = columns.optional_text()?;
    let budget = columns.optional_text()?;
    let (bucket, last_used, uses) = match usage {
        Some(usage) => (Some((usage.bucket, usage.per_us)), usage.last_used, usage.uses),
        None => (None, columns.time()?, columns.count()?.unwrap_or_default()),
    };
    let rotated = secrets.rotated;
    let previous_until = secrets.previous_until;
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
        plan,
        budget,
        policy: None,
        last_used,
        uses,
    };
    Ok(org_of(user).map(|org| StoredKey { key: key(org), row: number, secrets, bucket }))
}

fn secrets(columns: &mut Columns<'_>) -> rusqlite::Result<Secrets> {
    let current = columns.value()?;
    let rotated = columns.time()?;
    let previous = columns.value::<Option<[u8; 32]>>()?;
    let previous_until = columns.time()?;
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
    let requests = columns.value()?;
    let per = columns.count()?;
    let burst = columns.value::<Option<u32>>()?;
    let Some(requests) = requests else { return Ok(None) };
    let per = Duration::from_secs(per.unwrap_or_default());
    let quota = Quota { requests, per, burst: burst.unwrap_or_default(), strict: false };
    quota.validate().map(Some).map_err(|error| invalid(row, "requests", error))
}
