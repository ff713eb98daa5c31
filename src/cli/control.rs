//! Performs management operations: on the running gateway through its admin socket, or on the stores when none runs.

use std::io;
use std::path::Path;

use anyhow::{Context as _, anyhow};
use http::{Method, StatusCode};
use tokio::net::UnixStream;

use super::{CliError, ExitStatus, client, offline};
use crate::admin::OPERATIONS_PATH;
use crate::admin::{Operation, Reply};
use crate::config::Config;
use crate::problem::Problem;

/// Performs one operation, on the running gateway if there is one.
pub(super) fn perform(config: &Config, operation: &Operation) -> Result<Reply, CliError> {
    runtime()?.block_on(async {
        match connect(&config.admin.socket).await? {
            Some(stream) => send_operation(config, stream, operation).await,
            None => offline::perform(config, operation.clone()).await,
        }
    })
}

/// Creates a runtime for one command.
pub(super) fn runtime() -> Result<tokio::runtime::Runtime, CliError> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// Connects to an admin socket; none when no process listens on it.
pub(super) async fn connect(path: &Path) -> Result<Option<UnixStream>, CliError> {
    match UnixStream::connect(path).await {
        Ok(stream) => Ok(Some(stream)),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => Ok(None),
        Err(e) => {
            let advice = match e.kind() {
                io::ErrorKind::PermissionDenied => "run this as the user that the gateway runs as",
                _ => "check the log of the gateway",
            };
            let error = anyhow!(e).context(format!("{}: cannot be reached; {advice}", path.display()));
            Err(CliError::new(ExitStatus::Unreachable, error))
        }
    }
}

/// Sends one operation to the running gateway.
async fn send_operation(config: &Config, stream: UnixStream, operation: &Operation) -> Result<Reply, CliError> {
    let body = serde_json::to_vec(operation).context("cannot serialize the operation")?;
    let (status, body) = client::exchange(stream, Method::POST, OPERATIONS_PATH, body).await.map_err(|e| {
        // The gateway may have performed the operation all the same, so the command must not be repeated blindly.
        let socket = config.admin.socket.display();
        let message =
            format!("{socket}: the gateway did not respond; check whether the change was made before you repeat");
        CliError::new(ExitStatus::Unreachable, e.context(message))
    })?;
    if status == StatusCode::OK {
        return Ok(
            serde_json::from_slice(&body).context("cannot parse the gateway's reply; is it of another version?")?
        );
    }
    let problem: Problem = serde_json::from_slice(&body).with_context(|| {
        format!("the gateway responded with {status}, and its problem cannot be parsed; is it of another version?")
    })?;
    let exit = match status {
        StatusCode::SERVICE_UNAVAILABLE => ExitStatus::Temporary,
        StatusCode::BAD_REQUEST => ExitStatus::Usage,
        _ => ExitStatus::Failed,
    };
    Err(CliError::new(exit, anyhow!(problem.detail)))
}
