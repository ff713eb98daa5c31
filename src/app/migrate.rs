//! Copying the embedded state to the Redis state: opens the one and the other, and hands over what is held.
//!
//! - The state file and the journal stay locked until the end: no gateway can begin to serve from them meanwhile.
//! - The uses that the journal knows of are replayed first, as at every start: nothing is lost after a crash.

use anyhow::{Context as _, bail};

use super::recover::replay_journal;
use crate::audit::{self, Journal};
use crate::metrics::Metrics;
use crate::state::redis::{self, Progress, Report};
use crate::state::{Embedded, Redis, embedded};

/// Copies everything from one state to the other.
///
/// # Errors
/// What could not be opened, and why; [`embedded::OpenError`], [`audit::OpenError`], [`redis::OpenError`] and
/// [`redis::CopyError`] are among the causes.
pub async fn copy_state(
    from: &embedded::Settings,
    to: &redis::Settings,
    audit: &audit::Settings,
    progress: &Progress,
) -> anyhow::Result<Report> {
    // Opening makes what is missing, and an empty directory would be copied in a wink.
    if !from.path.try_exists().with_context(|| format!("{}: cannot be read", from.path.display()))? {
        let path = from.path.display();
        bail!("{path}: there is no such file; is `state.embedded.path` the one that the gateway served from?");
    }
    let state = Embedded::open(from).context("cannot open the embedded state")?;
    let journal = Journal::open(audit.clone(), Metrics::new().audit).context("cannot open the audit journal")?;
    let copied = async {
        replay_journal(&state, &journal)?;
        hand_over(&state, to, progress).await
    };
    let copied = copied.await;
    journal.close().await;
    state.close().await;
    copied
}

async fn hand_over(from: &Embedded, to: &redis::Settings, progress: &Progress) -> anyhow::Result<Report> {
    // No client waits for an answer: it may take as long as the lease allows.
    let settings = redis::Settings { deadline: to.deadline.max(to.lease / 4), ..to.clone() };
    let redis = Redis::open(settings).await.context("cannot open the Redis state")?;
    let copied = redis.copy(&from.export(), progress).await;
    redis.close().await;
    Ok(copied?)
}
