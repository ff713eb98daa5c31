//! Performs management operations while no gateway runs, on the state and the journal, which are
//! opened under their locks.

use std::io;
use std::sync::Arc;

use anyhow::Context as _;
use http::Request;
use http::header::CONTENT_TYPE;
use tracing::level_filters::LevelFilter;

use super::answer::Answer;
use super::call::Call;
use super::{CliError, ExitStatus, client, service_user};
use crate::app;
use crate::config::Config;
use ::control::admin::API_PATH;
use ::control::api::Api;
use ::control::management::{self, Actor, Management, ManagementError, StateExport, UnixUser};
use domain::clock;
use journal::audit;
use journal::audit::Journal;
use platform::metrics::Metrics;
use platform::telemetry;
use state::migration::Report;
use state::{State, StateRecord, embedded};

/// The stores of a gateway that does not run.
pub(super) struct Stores {
    management: Arc<Management>,
    api: Api,
    /// The user who runs this command.
    actor: Actor,
    state: Arc<State>,
    journal: Journal,
}

impl Stores {
    /// Opens the stores. Close them after the last operation.
    pub(super) async fn open(config: &Config) -> Result<Self, CliError> {
        service_user::check_owner(config)?;
        telemetry::init(telemetry::Settings { level: LevelFilter::WARN, ..config.telemetry });
        let metrics = Metrics::new();
        let (state, journal) = app::open_and_recover(config, &metrics).await.map_err(|e| open_error(config, e))?;
        let management = Management::new(Arc::clone(&state), journal.clone(), &config.audit, &metrics.state);
        let management = Arc::new(management.with_sessions(config.sessions()));
        management::end_left_changes_once(&management).await;
        let api = Api::new(&management, API_PATH);
        Ok(Self { management, api, actor: this_user(), state, journal })
    }

    /// Performs one call in this process.
    pub(super) async fn send(&self, call: &Call) -> anyhow::Result<Answer> {
        let body = call.body.as_ref().map(|body| body.to_string().into()).unwrap_or_default();
        let request = Request::builder().method(call.method.clone()).uri(call.target());
        let request =
            request.header(CONTENT_TYPE, "application/json").body(body).context("the call cannot be built")?;
        Ok(self.api.serve_operator(self.actor.clone(), request).await.into())
    }

    /// Begins an export of the whole state.
    pub(super) async fn export_state(&self) -> Result<StateExport<'_>, CliError> {
        management::export_state(&self.management, &self.actor, clock::now()).await.map_err(refused)
    }

    /// Imports records of an exported state.
    pub(super) async fn import_state(&self, records: &[StateRecord]) -> Result<Report, CliError> {
        management::import_state(&self.management, &self.actor, records, clock::now()).await.map_err(refused)
    }

    /// Writes everything back, and closes the stores.
    pub(super) async fn close(self) {
        self.journal.close().await;
        self.state.close().await;
    }
}

/// The user who runs this process, as the operator.
pub(super) fn this_user() -> Actor {
    Actor::operator(UnixUser::of_process(rustix::process::geteuid().as_raw(), client::sudo_uid()))
}

/// Classifies an error of opening: a store in use is a temporary failure, all other errors are permanent.
fn open_error(config: &Config, error: anyhow::Error) -> CliError {
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
    let message = format!("a gateway runs, but does not listen on {}; {advice}", socket.display());
    CliError::new(ExitStatus::Temporary, error.context(message))
}

pub(super) fn refused(error: ManagementError) -> CliError {
    CliError::new(ExitStatus::of_response(error.kind().status()), error)
}
