//! The table of the checkpoints.
//!
//! - A checkpoint is inserted in the transaction of its batch, and one that is there already changes nothing.
//! - Retention keeps the last one of each day, for good: by it, every line before is compared.

use tokio_postgres::{Client, Transaction};
use uuid::Uuid;

use super::copy_format::LATEST;
use crate::audit::JournalCheckpoint;
use platform::postgresql::Error;

/// Inserts the checkpoints of a batch.
pub(super) async fn insert(
    transaction: &Transaction<'_>,
    journal: Uuid,
    checkpoints: &[JournalCheckpoint],
) -> Result<(), Error> {
    let texts = |text: fn(&JournalCheckpoint) -> &str| checkpoints.iter().map(text).collect::<Vec<&str>>();
    let sizes: Vec<i64> = checkpoints.iter().map(|one| i64::try_from(one.size).unwrap_or(i64::MAX)).collect();
    #[allow(clippy::cast_precision_loss, reason = "microseconds of these centuries are exact in 53 bits")]
    let times: Vec<f64> = checkpoints.iter().map(|one| one.time.min(LATEST).0 as f64 / 1e6).collect();
    transaction
        .execute(
            "INSERT INTO keygate.checkpoints (journal, gateway, time, origin, size, root, note)
             SELECT $1::text::uuid, gateway, to_timestamp(time), origin, size, root, note
             FROM unnest($2::text[], $3::float8[], $4::text[], $5::bigint[], $6::text[], $7::text[])
                 AS one (gateway, time, origin, size, root, note)
             ON CONFLICT DO NOTHING",
            &[
                &journal.to_string(),
                &texts(|one| &one.gateway),
                &times,
                &texts(|one| &one.origin),
                &sizes,
                &texts(|one| &one.root),
                &texts(|one| &one.note),
            ],
        )
        .await?;
    Ok(())
}

/// Removes those that were received before a day, but the last of each day and tree.
pub(super) async fn expire(client: &Client, first_day: u64) -> Result<u64, Error> {
    let removed = client
        .execute(
            "DELETE FROM keygate.checkpoints AS old
             WHERE received_at < to_timestamp($1::bigint * 86400) AND EXISTS (
                 SELECT FROM keygate.checkpoints AS later
                 WHERE later.origin = old.origin AND later.size > old.size
                     AND (later.received_at AT TIME ZONE 'UTC')::date = (old.received_at AT TIME ZONE 'UTC')::date)",
            &[&i64::try_from(first_day).unwrap_or(0)],
        )
        .await?;
    Ok(removed)
}
