//! Performing an operation with no gateway running: the state and the journal are opened here, under their locks.

use std::sync::Arc;

use anyhow::anyhow;
use tracing::level_filters::LevelFilter;

use super::{Exit, Failure};
use crate::audit::{self, Journal};
use crate::clock;
use crate::config::Config;
use crate::management::{Kind, Management, ManagementError, Operation, Reply};
use crate::metrics::Metrics;
use crate::state::State;
use crate::state::embedded::{self, Embedded, Replay};
use crate::telemetry;

/// Performs one operation and closes everything again.
pub(super) async fn perform(config: &Config, operation: Operation) -> Result<Reply, Failure> {
    telemetry::init(telemetry::Settings { level: LevelFilter::WARN, ..config.telemetry });
    let metrics = Metrics::new();
    let (state, journal) = open(config, &metrics)?;
    let state = Arc::new(state);
    let management = Management::new(Arc::clone(&state), journal.clone(), &metrics.state);
    let performed = management.perform(operation, clock::now()).await;
    state.close().await;
    journal.close().await;
    performed.map_err(refused)
}

/// Opens state and journal, and replays what the one does not know yet of the other.
fn open(config: &Config, metrics: &Metrics) -> Result<(State, Journal), Failure> {
    let state = Embedded::open(&config.state).map_err(|e| state_failure(config, e))?;
    let journal = Journal::open(config.audit.clone(), metrics.audit.clone()).map_err(journal_failure)?;
    let uses = journal.uses_since(state.written_back_at()).map_err(journal_failure)?;
    let uses = uses.into_iter().map(|seen| Replay { key: seen.key, time: seen.time, number: seen.number });
    state.replay(&uses.collect::<Vec<_>>());
    Ok((State::Embedded(state), journal))
}

fn state_failure(config: &Config, error: embedded::OpenError) -> Failure {
    match error {
        embedded::OpenError::Locked(_) => {
            let socket = config.admin.socket.display();
            let told = format!("nobody listens on {socket}, and {error}; is a gateway starting or stopping? try again");
            Failure::new(Exit::Temporary, anyhow!(told))
        }
        error => Failure::new(Exit::Failed, error),
    }
}

fn journal_failure(error: audit::OpenError) -> Failure {
    let exit = match error {
        audit::OpenError::InUse { .. } => Exit::Temporary,
        audit::OpenError::Io { .. } => Exit::Failed,
    };
    Failure::new(exit, error)
}

fn refused(error: ManagementError) -> Failure {
    let exit = if error.kind() == Kind::Unavailable { Exit::Temporary } else { Exit::Failed };
    Failure::new(exit, error)
}
