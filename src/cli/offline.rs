//! Performing an operation with no gateway running: the state and the journal are opened here, under their locks.

use std::io;
use std::sync::Arc;

use tracing::level_filters::LevelFilter;

use super::{CliError, ExitStatus};
use crate::admin::{self, Operation, Reply};
use crate::clock;
use crate::config::Config;
use crate::management::{ErrorKind, Management, ManagementError};
use crate::metrics::Metrics;
use crate::state::embedded;
use crate::{app, audit, telemetry};

/// Performs one operation and closes everything again.
pub(super) async fn perform(config: &Config, operation: Operation) -> Result<Reply, CliError> {
    telemetry::init(telemetry::Settings { level: LevelFilter::WARN, ..config.telemetry });
    let metrics = Metrics::new();
    let (state, journal) = app::open_and_recover(config, &metrics).await.map_err(|e| not_opened(config, e))?;
    let management = Management::new(Arc::clone(&state), journal.clone(), &config.audit, &metrics.state);
    let management = management.with_sessions(config.sessions());
    let performed = admin::perform(&management, operation, clock::now()).await;
    journal.close().await;
    state.close().await;
    performed.map_err(refused)
}

/// Tells a state or a journal in use from one that cannot be opened.
fn not_opened(config: &Config, error: anyhow::Error) -> CliError {
    let state = matches!(error.downcast_ref(), Some(embedded::OpenError::Locked(_)));
    let journal = matches!(error.downcast_ref(), Some(audit::OpenError::InUse { .. }));
    if !state && !journal {
        let denied = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
        let denied = denied.map(io::Error::kind).any(|kind| kind == io::ErrorKind::PermissionDenied);
        return if denied {
            error.context("run this as the user that the gateway runs as").into()
        } else {
            error.into()
        };
    }
    let socket = &config.admin.socket;
    let advice = if socket.exists() {
        "is it starting or stopping? try again"
    } else {
        "try again; when its socket file was removed, restart the gateway"
    };
    let told = format!("nobody listens on {}, yet a gateway runs; {advice}", socket.display());
    CliError::new(ExitStatus::Temporary, error.context(told))
}

fn refused(error: ManagementError) -> CliError {
    let exit = match error.kind() {
        ErrorKind::Unavailable => ExitStatus::Temporary,
        ErrorKind::Invalid => ExitStatus::Usage,
        ErrorKind::NotFound | ErrorKind::NotAllowed | ErrorKind::Conflict => ExitStatus::Failed,
    };
    CliError::new(exit, error)
}
