//! Performing an operation: by the running gateway over its admin socket, or, when none runs, right here.

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

/// Performs one operation, wherever it can be performed.
pub(super) fn perform(config: &Config, operation: &Operation) -> Result<Reply, CliError> {
    runtime()?.block_on(async {
        match connect(&config.admin.socket).await? {
            Some(stream) => ask(config, stream, operation).await,
            None => offline::perform(config, operation.clone()).await,
        }
    })
}

/// A runtime for one command.
pub(super) fn runtime() -> Result<tokio::runtime::Runtime, CliError> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// A gateway's socket, or none when nobody listens on it.
pub(super) async fn connect(path: &Path) -> Result<Option<UnixStream>, CliError> {
    match UnixStream::connect(path).await {
        Ok(stream) => Ok(Some(stream)),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => Ok(None),
        Err(e) => {
            let advice = match e.kind() {
                io::ErrorKind::PermissionDenied => "run this as the user that the gateway runs as",
                _ => "is the gateway well?",
            };
            let error = anyhow!(e).context(format!("{}: cannot be reached; {advice}", path.display()));
            Err(CliError::new(ExitStatus::Unreachable, error))
        }
    }
}

async fn ask(config: &Config, stream: UnixStream, operation: &Operation) -> Result<Reply, CliError> {
    let body = serde_json::to_vec(operation).context("the operation cannot be written")?;
    let (status, body) = client::exchange(stream, Method::POST, OPERATIONS_PATH, body).await.map_err(|e| {
        let told = format!("{}: the gateway did not answer; look before you repeat", config.admin.socket.display());
        CliError::new(ExitStatus::Unreachable, e.context(told))
    })?;
    if status == StatusCode::OK {
        return Ok(serde_json::from_slice(&body).context("the gateway's reply is of another version")?);
    }
    let problem: Problem = serde_json::from_slice(&body)
        .with_context(|| format!("the gateway answered {status}, in words of another version"))?;
    let exit = match status {
        StatusCode::SERVICE_UNAVAILABLE => ExitStatus::Temporary,
        StatusCode::BAD_REQUEST => ExitStatus::Usage,
        _ => ExitStatus::Failed,
    };
    Err(CliError::new(exit, anyhow!(problem.detail)))
}
