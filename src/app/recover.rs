//! State recovery: opens the state and the audit journal, and replays journaled uses that the state has not counted.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;

use super::handover::{Locks, Takeover};
use crate::config::Config;
use journal::audit::{Journal, ReplayStart, UsedBy};
use platform::metrics::Metrics;
use state::embedded::{JournalProgress, JournaledUse, UsedKey};
use state::{self, Embedded, Redis, State};

/// Time before the state's last write-back from which the journal is replayed. The write-back notes its time when it
/// ends, and a use may be recorded a little after it was decided. Uses are numbered, so an overlap counts none twice.
const REPLAY_MARGIN: Duration = Duration::from_secs(60);

/// Opens the state and the journal for a command, under their locks, and replays into an embedded state the uses that
/// it lost in a crash.
///
/// # Errors
/// The store that could not be opened, and its cause; [`state::embedded::OpenError`] and
/// [`journal::audit::OpenError`] are in the chain.
pub async fn open_and_recover(config: &Config, metrics: &Metrics) -> anyhow::Result<(Arc<State>, Journal)> {
    open_stores(config, metrics, Opener::Command).await
}

/// The process that opens the stores.
#[derive(Clone, Copy)]
pub(super) enum Opener<'a> {
    /// A gateway; with a process to take over from, under its locks.
    Gateway(Option<&'a Takeover>),
    /// A command while no gateway runs here. Others may run on the same Redis.
    Command,
}

/// As [`open_and_recover`].
pub(super) async fn open_stores(
    config: &Config,
    metrics: &Metrics,
    opener: Opener<'_>,
) -> anyhow::Result<(Arc<State>, Journal)> {
    let takeover = match opener {
        Opener::Gateway(takeover) => takeover,
        Opener::Command => None,
    };
    let (state, journal) = open_both(config, metrics, opener, takeover).await?;
    let remembered = state.remember_in(&config.audit.path).await;
    match opener {
        Opener::Gateway(_) => remembered.context(
            "this is not the state that was served; restore it, or accept it by `keygate state accept` \
             (docs/procedures.md)",
        )?,
        // A command may be the way out: what it may not do, it is refused.
        Opener::Command => {}
    }
    Ok((state, journal))
}

async fn open_both(
    config: &Config,
    metrics: &Metrics,
    opener: Opener<'_>,
    takeover: Option<&Takeover>,
) -> anyhow::Result<(Arc<State>, Journal)> {
    match &config.state {
        state::Settings::Embedded(settings) => {
            let mut locks = takeover.map(Takeover::locks).transpose()?;
            let state = match locks.as_mut().and_then(|locks| locks.state.take()) {
                Some(lock) => Embedded::open_with_lock(settings, lock),
                None => Embedded::open(settings),
            };
            let state = state.context("cannot open the state")?;
            let journal = open_journal(config, metrics, takeover.zip(locks))?;
            replay_journal(config, &state, &journal)?;
            follow_journal(&state, &journal);
            hold_slots(&state, &journal);
            state.set_bounds(config.bounds);
            Ok((Arc::new(State::Embedded(state)), journal))
        }
        // Redis counts every use as it decides it: there is nothing to replay, and slots are those of their gateway.
        state::Settings::Redis(settings) => {
            let settings = (**settings).clone();
            let state = match opener {
                Opener::Gateway(_) => Redis::open(settings).await,
                Opener::Command => Redis::open_for_changes(settings).await,
            };
            let state = state.context("cannot open the state")?;
            let locks = takeover.map(Takeover::locks).transpose()?;
            let journal = open_journal(config, metrics, takeover.zip(locks))?;
            state.set_bounds(config.bounds);
            Ok((Arc::new(State::Redis(state)), journal))
        }
    }
}

/// Opens the journal. From a process to take over from, it is taken now, as the last thing that can be given back.
fn open_journal(config: &Config, metrics: &Metrics, from: Option<(&Takeover, Locks)>) -> anyhow::Result<Journal> {
    let settings = config.audit.clone();
    let metrics = metrics.audit.clone();
    let opened = match from {
        Some((takeover, locks)) => {
            takeover.commit()?;
            Journal::open_with_lock(settings, metrics, locks.journal)
        }
        None => Journal::open(settings, metrics),
    };
    opened.context("cannot open the audit journal")
}

/// Holds the slots of requests that a process which handed its state over still serves.
fn hold_slots(state: &Embedded, journal: &Journal) {
    let held = journal.hold_for_predecessor(|org, key| {
        let slots: Box<dyn std::fmt::Debug + Send> = Box::new(state.hold_slots(org, key)?);
        Some(slots)
    });
    if held > 0 {
        tracing::info!(held, "holding the slots of requests that another process still serves");
    }
}

/// Replays the journaled uses that the state may not have written back, so that no bucket comes back fuller than it
/// was.
fn replay_journal(config: &Config, state: &Embedded, journal: &Journal) -> anyhow::Result<()> {
    let start = ReplayStart { line: state.written_back_line(), time: state.written_back_at().before(REPLAY_MARGIN) };
    let recorded = journal.uses_since(start).context("cannot read the audit journal")?;
    let used = |by| match by {
        UsedBy::Key(key) => UsedKey::Key(key),
        UsedBy::Session(user) => UsedKey::SessionQuotaKey(user),
    };
    state.replay_budgets(recorded.uses.iter().filter_map(|entry| entry.budget), recorded.returned);
    let uses: Vec<JournaledUse> = recorded
        .uses
        .iter()
        .map(|entry| JournaledUse { key: used(entry.by), time: entry.time, number: entry.number, cost: entry.cost })
        .collect();
    let replayed = state.replay(&uses, config.largest_cost());
    if replayed > 0 {
        tracing::info!(replayed, "replayed requests from the audit journal that the state had not written back");
    }
    Ok(())
}

/// Has the state write usage back at checkpoints: what lies between them is in the journal.
fn follow_journal(state: &Embedded, journal: &Journal) {
    let position = journal.position_probe();
    state.follow_journal(move || {
        let position = position()?;
        Some(JournalProgress { segment: position.segment, lines: position.line, lost: position.lost })
    });
}
