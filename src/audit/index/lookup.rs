//! Queries of readers to the index.

use std::path::Path;

use rustc_hash::FxHashSet;

use super::usage_counts::UsageCounts;
use super::{database, usage_rows};
use crate::audit::filter::Filter;
use crate::audit::format::segment::{Block, Point};
use crate::clock::Micros;
use crate::identity::OrgId;
use crate::key::KeyId;

/// Finds the blocks that may hold records for a filter, oldest first, and the point up to which these are all.
/// `None` when the index has another version or covers nothing yet.
///
/// # Errors
/// If there is no index, or it is damaged; the caller then scans everything.
pub(crate) fn candidate_blocks(directory: &Path, filter: &Filter) -> rusqlite::Result<Option<(Vec<Block>, Point)>> {
    let Some(mut connection) = database::open_for_reading(directory)? else { return Ok(None) };
    // One transaction, so that rows and covered point belong together.
    let transaction = connection.transaction()?;
    let Some(point) = database::load_covered(&transaction)? else { return Ok(None) };
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
    let mut statement = transaction.prepare(&query)?;
    let column = |row: &rusqlite::Row<'_>, i| row.get::<_, i64>(i).map(i64::cast_unsigned);
    let block =
        |row: &rusqlite::Row<'_>| Ok(Block { segment: column(row, 0)?, start: column(row, 1)?, end: column(row, 2)? });
    let parameters = rusqlite::params_from_iter(bounds.iter().chain(ids.iter().flatten()));
    let blocks = statement.query_map(parameters, block)?.collect::<Result<_, _>>()?;
    Ok(Some((blocks, point)))
}

/// Loads the usage of some keys of an organization, with the counts from `first_hour` on, and the point up to which the
/// usage is counted.
///
/// # Errors
/// As [`candidate_blocks`].
pub(crate) fn load_usage(
    directory: &Path,
    org: OrgId,
    keys: &FxHashSet<KeyId>,
    first_hour: u64,
) -> rusqlite::Result<Option<(UsageCounts, Point)>> {
    let Some(mut connection) = database::open_for_reading(directory)? else { return Ok(None) };
    let transaction = connection.transaction()?;
    let Some(point) = database::load_covered(&transaction)? else { return Ok(None) };
    Ok(Some((usage_rows::load(&transaction, org, keys, first_hour)?, point)))
}
