//! Opening state and journal, and handing the one's uses to the other.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;

use crate::audit::{Journal, UsedBy};
use crate::config::Config;
use crate::metrics::Metrics;
use crate::state::embedded::{Replay, Used};
use crate::state::{self, Embedded, Redis, State};

/// How far before the state's last write-back the journal is read: the write-back notes its time when it ends, and a
/// use may be recorded a little after it was decided. Uses have numbers, so reading too far replays nothing twice.
const REPLAY_MARGIN: Duration = Duration::from_secs(60);

/// Opens state and journal under their locks, and hands the one's uses to the other.
///
/// # Errors
/// What could not be opened, and why; [`crate::state::embedded::OpenError`] and [`crate::audit::OpenError`] are among
/// the causes.
pub async fn open_and_recover(config: &Config, metrics: &Metrics) -> anyhow::Result<(Arc<State>, Journal)> {
    let journal =
        || Journal::open(config.audit.clone(), metrics.audit.clone()).context("cannot open the audit journal");
    match &config.state {
        state::Settings::Embedded(settings) => {
            let state = Embedded::open(settings).context("cannot open the state")?;
            let journal = journal()?;
            replay_journal(&state, &journal)?;
            Ok((Arc::new(State::Embedded(state)), journal))
        }
        state::Settings::Redis(settings) => {
            let journal = journal()?;
            let state = Redis::open((**settings).clone()).await.context("cannot open the state")?;
            Ok((Arc::new(State::Redis(state)), journal))
        }
    }
}

/// Hands the uses that the journal knows of to the state.
pub(super) fn replay_journal(state: &Embedded, journal: &Journal) -> anyhow::Result<()> {
    let since = state.written_back_at().before(REPLAY_MARGIN);
    let seen = journal.uses_since(since).context("cannot read the audit journal")?;
    let used = |by| match by {
        UsedBy::Key(key) => Used::Key(key),
        UsedBy::Session(user) => Used::SessionQuotaKey(user),
    };
    let uses: Vec<Replay> =
        seen.iter().map(|seen| Replay { used: used(seen.by), time: seen.time, number: seen.number }).collect();
    let replayed = state.replay(&uses);
    if replayed > 0 {
        tracing::info!(replayed, "uses since the last write-back were replayed from the audit journal");
    }
    Ok(())
}
