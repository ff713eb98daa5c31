//! Transfer of the lines of a file: to and from the running gateway, or the stores of one that does not run; from a
//! gateway elsewhere.

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use http::StatusCode;
use http_body_util::BodyExt as _;

use crate::cli::client::ClientRequest;
use crate::cli::control::{self, Server};
use crate::cli::{CliError, ExitStatus, offline};
use ::control::admin::STATE_PATH;
use domain::problem::Problem;
use state::StateRecord;
use state::migration::Report;
use state::migration::file::Writer;

/// Time-out of the head of a response about the whole state: that of an export waits for an index to be read.
const STATE_TIMEOUT: Duration = Duration::from_secs(600);

/// Reads all lines of an export, and hands them over part by part.
pub(super) async fn read_export(
    server: &mut Server<'_>,
    mut take: impl FnMut(&[u8]) -> Result<(), CliError>,
) -> Result<(), CliError> {
    match server {
        Server::Stores(stores) => {
            let mut export = stores.export_state().await?;
            while let Some(lines) = export.next_lines().await.map_err(offline::refused)? {
                take(&lines)?;
            }
            Ok(())
        }
        Server::Gateway(installation, stream) => {
            let stream = control::take_stream(installation, stream).await?;
            let request = ClientRequest::get(STATE_PATH).with_timeout(STATE_TIMEOUT);
            let response = request.send(stream).await.map_err(gone)?;
            if response.status != StatusCode::OK {
                return Err(problem(response.status, &response.bytes().await.map_err(gone)?));
            }
            let mut body = response.into_body();
            while let Some(frame) = body.frame().await {
                let frame = frame.context("the export broke off; see the log of the gateway").map_err(gone)?;
                frame.data_ref().map_or(Ok(()), |part| take(part))?;
            }
            Ok(())
        }
        Server::Remote(remote) => take(&remote.export().await?),
    }
}

/// Imports some records.
pub(super) async fn send_records(server: &mut Server<'_>, records: &[StateRecord]) -> Result<Report, CliError> {
    match server {
        Server::Stores(stores) => stores.import_state(records).await,
        Server::Gateway(installation, stream) => {
            let stream = control::take_stream(installation, stream).await?;
            let lines = Writer::default().lines(records);
            let request = ClientRequest::post(STATE_PATH, lines).with_timeout(STATE_TIMEOUT);
            let (status, body) = control::exchange(stream, request).await.map_err(gone)?;
            match status {
                StatusCode::OK => Ok(serde_json::from_slice(&body).context("cannot parse the gateway's report")?),
                status => Err(problem(status, &body)),
            }
        }
        Server::Remote(_) => {
            let message = "an import can plant keys: run it on the machine of the gateway, without --server";
            Err(CliError::new(ExitStatus::Usage, anyhow!(message)))
        }
    }
}

fn gone(error: anyhow::Error) -> CliError {
    CliError::new(ExitStatus::Unreachable, error.context("the gateway did not respond"))
}

fn problem(status: StatusCode, body: &[u8]) -> CliError {
    let exit = match status {
        StatusCode::SERVICE_UNAVAILABLE => ExitStatus::Temporary,
        _ => ExitStatus::Failed,
    };
    let detail = serde_json::from_slice::<Problem>(body).map(|problem| problem.detail.into_owned());
    CliError::new(exit, anyhow!(detail.unwrap_or_else(|_| format!("the gateway responded with {status}"))))
}
