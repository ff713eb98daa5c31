//! Rows of blocks, which versions before wrote: the ids of the keys, users and organizations with uses in each block of
//! 256 KiB. They are read for the segments that have them, and deleted with these.

use rusqlite::{Connection, Row};
use rustc_hash::FxHashMap;

use crate::audit::filter::Filter;
use crate::audit::format::segment::Block;
use crate::clock::Micros;

/// Loads the offset up to which each segment has rows, for the segments that have some.
pub(crate) fn load_ends(database: &Connection) -> rusqlite::Result<FxHashMap<u64, u64>> {
    let row = |row: &Row<'_>| Ok((column(row, 0)?, column(row, 1)?));
    database.prepare("SELECT segment, max(end) FROM block GROUP BY segment")?.query_map([], row)?.collect()
}

/// Finds the blocks that may hold records for a filter, oldest first, by segment.
pub(crate) fn load_candidates(database: &Connection, filter: &Filter) -> rusqlite::Result<FxHashMap<u64, Vec<Block>>> {
    let ids = [
        filter.key.map(|id| id.to_string()),
        filter.user.map(|id| id.to_string()),
        filter.org.map(|id| id.to_string()),
    ];
    let mut query = "SELECT segment, start, end FROM block WHERE latest >= ?1 AND earliest < ?2".to_owned();
    // The flag tells blocks with a refused use; every block may hold admitted ones.
    let refused = if filter.refused == Some(true) { " AND refused" } else { "" };
    for (n, _) in ids.iter().flatten().enumerate() {
        query.push_str(&format!(" AND id IN (SELECT block FROM member WHERE id = ?{}{refused})", n + 3));
    }
    query.push_str(" ORDER BY id");
    let time = |time: Option<Micros>, or| time.map_or(or, |time| i64::try_from(time.0).unwrap_or(i64::MAX));
    let bounds = [time(filter.since, 0).to_string(), time(filter.until, i64::MAX).to_string()];
    let mut statement = database.prepare(&query)?;
    let mut rows = statement.query(rusqlite::params_from_iter(bounds.iter().chain(ids.iter().flatten())))?;
    let mut found: FxHashMap<u64, Vec<Block>> = FxHashMap::default();
    while let Some(row) = rows.next()? {
        let block = Block { segment: column(row, 0)?, start: column(row, 1)?, end: column(row, 2)? };
        found.entry(block.segment).or_default().push(block);
    }
    Ok(found)
}

/// Deletes the rows of the blocks of a segment.
pub(crate) fn delete_segment(database: &Connection, number: u64) -> rusqlite::Result<()> {
    let members = "DELETE FROM member WHERE block IN (SELECT id FROM block WHERE segment = ?1)";
    database.execute(members, [number.cast_signed()])?;
    database.execute("DELETE FROM block WHERE segment = ?1", [number.cast_signed()]).map(drop)
}

fn column(row: &Row<'_>, i: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(i).map(i64::cast_unsigned)
}
