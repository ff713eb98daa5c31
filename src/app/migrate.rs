//! Copy of an embedded state to Redis, as `keygate state copy` makes it: opens both states and copies all records.
//!
//! - The state file and the journal stay locked until the end, so no gateway can serve from them meanwhile.
//! - Journaled uses are replayed first, as at every start: a crash before the copy loses none.

use anyhow::{Context as _, bail};

use super::recover::replay_journal;
use journal::audit::{self, Journal};
use platform::metrics::Metrics;
use state::migration::{Progress, Report, migrate};
use state::redis;
use state::{Bounds, Embedded, Redis, embedded};

/// Copies all records of the embedded state to the Redis state. `bounds` are those of what people create.
///
/// # Errors
/// The store that could not be opened, and its cause; [`embedded::OpenError`], [`audit::OpenError`],
/// [`redis::OpenError`] and [`state::migration::MigrationError`] are in the chain.
pub async fn copy_state(
    from: &embedded::Settings,
    to: &redis::Settings,
    bounds: Bounds,
    audit: &audit::Settings,
    progress: &Progress,
) -> anyhow::Result<Report> {
    // Opening creates a missing file, and the copy of an empty state would succeed.
    if !from.path.try_exists().with_context(|| format!("{}: cannot be read", from.path.display()))? {
        let path = from.path.display();
        bail!("{path}: there is no such file; is `state.embedded.path` the one that the gateway served from?");
    }
    let state = Embedded::open(from).context("cannot open the embedded state")?;
    let journal = Journal::open(audit.clone(), Metrics::new().audit).context("cannot open the audit journal")?;
    let copied = async {
        replay_journal(&state, &journal)?;
        copy_to_redis(&state, to, bounds, progress).await
    };
    let copied = copied.await;
    journal.close().await;
    state.close().await;
    copied
}

async fn copy_to_redis(
    from: &Embedded,
    to: &redis::Settings,
    bounds: Bounds,
    progress: &Progress,
) -> anyhow::Result<Report> {
    // No client waits for these commands, so each may take longer than a decision: a quarter of the lease, the most
    // that the configuration allows for a deadline.
    let settings = redis::Settings { deadline: to.deadline.max(to.lease / 4), ..to.clone() };
    let redis = Redis::open(settings).await.context("cannot open the Redis state")?;
    redis.set_bounds(bounds);
    let copied = migrate(&from.export().await, &redis, progress).await;
    redis.close().await;
    Ok(copied?)
}
