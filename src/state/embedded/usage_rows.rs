//! Write-back of usage: the columns of a key that uses change.

use rusqlite::Connection;

use crate::clock::Micros;
use crate::key::KeyId;

use super::key_state::Usage;
use super::sql::integer;

/// Writes back the usage of keys in one transaction. With `at`, the file then has counted every use up to that time.
pub(super) fn write_back(
    connection: &mut Connection,
    used: impl IntoIterator<Item = (KeyId, Usage)>,
    at: Option<Micros>,
) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    {
        let mut update = transaction.prepare_cached(
            "UPDATE keys SET level = ?2, level_per = ?3, level_at = ?4, last_used = ?5, uses = ?6 WHERE id = ?1",
        )?;
        for (key, usage) in used {
            let Usage { bucket, per_us, last_used, uses } = usage;
            let (level, at) = (bucket.level, integer(bucket.at.0));
            let last_used = last_used.map(|at| integer(at.0));
            update.execute((key.as_str(), level, integer(per_us), at, last_used, integer(uses)))?;
        }
    }
    if let Some(at) = at {
        transaction.execute("INSERT OR REPLACE INTO meta VALUES ('written_back_at', ?1)", [integer(at.0)])?;
    }
    transaction.commit()
}
