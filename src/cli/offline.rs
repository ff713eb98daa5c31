//! Performing an operation with no gateway running: the state and the journal are opened here, under their locks.

use std::sync::Arc;

use tracing::level_filters::LevelFilter;

use super::{Exit, Failure};
use crate::clock;
use crate::config::Config;
use crate::management::{Kind, Management, ManagementError, Operation, Reply};
use crate::metrics::Metrics;
use crate::state::embedded;
use crate::{app, audit, telemetry};

/// Performs one operation and closes everything again.
pub(super) async fn perform(config: &Config, operation: Operation) -> Result<Reply, Failure> {
    telemetry::init(telemetry::Settings { level: LevelFilter::WARN, ..config.telemetry });
    let metrics = Metrics::new();
    let (state, journal) = app::open(config, &metrics).map_err(|e| not_opened(config, e))?;
    let management = Management::new(Arc::clone(&state), journal.clone(), &metrics.state);
    let performed = management.perform(operation, clock::now()).await;
    journal.close().await;
    state.close().await;
    performed.map_err(refused)
}

/// Tells a state or a journal in use from one that cannot be opened.
fn not_opened(config: &Config, error: anyhow::Error) -> Failure {
    let state = matches!(error.downcast_ref(), Some(embedded::OpenError::Locked(_)));
    let journal = matches!(error.downcast_ref(), Some(audit::OpenError::InUse { .. }));
    if !state && !journal {
        return error.into();
    }
    let socket = config.admin.socket.display();
    let told = format!("nobody listens on {socket}, yet a gateway runs; is it starting or stopping? try again");
    Failure::new(Exit::Temporary, error.context(told))
}

fn refused(error: ManagementError) -> Failure {
    let exit = if error.kind() == Kind::Unavailable { Exit::Temporary } else { Exit::Failed };
    Failure::new(exit, error)
}
