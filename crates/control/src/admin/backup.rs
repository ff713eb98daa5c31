//! Export and import of the whole state on the admin socket.
//!
//! - An export is sent as it is read: at most a few parts are in memory.
//! - An import is a part of a file, without its first and its last line. A part of which a line is not valid is refused
//!   whole.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use hyper::body::Incoming;
use tokio::sync::{mpsc, oneshot};

use super::response::{self, AdminResponse};
use crate::management;
use crate::management::{Actor, Management, STATE_MEDIA_TYPE, run_beside};
use domain::clock;
use state::StateRecord;
use state::migration::file::{MAX_LINE, parse_record};

/// Bytes of a part of an import at most: the longest line fits with many short ones.
const MAX_PART: usize = 2 * MAX_LINE;
/// Parts of an export that wait to be sent.
const PARTS_AHEAD: usize = 2;

/// Responds with the lines of an export.
pub(super) async fn export(management: Arc<Management>, actor: Actor) -> AdminResponse {
    let (sender, parts) = mpsc::channel(PARTS_AHEAD);
    let (begun, started) = oneshot::channel();
    run_beside(async move || {
        let mut export = match management::export_state(&management, &actor, clock::now()).await {
            Ok(export) => export,
            Err(error) => return drop(begun.send(Err(error))),
        };
        // An error says that the client has gone.
        let _ = begun.send(Ok(()));
        loop {
            let part = match export.next_lines().await {
                Ok(None) => return,
                Ok(Some(lines)) => Ok(Bytes::from(lines)),
                Err(error) => {
                    tracing::error!(error = error.in_full(), "an export of the state failed on its way");
                    Err(io::Error::other(error.to_string()))
                }
            };
            let is_last = part.is_err();
            if sender.send(part).await.is_err() || is_last {
                return;
            }
        }
    });
    match started.await {
        Ok(Ok(())) => response::pieces(STATE_MEDIA_TYPE, parts),
        Ok(Err(error)) => response::failed(&error),
        Err(_) => response::panicked("call"),
    }
}

/// Imports the lines of a request. A client that disconnects does not cancel it on its way.
pub(super) async fn import(body: Incoming, management: Arc<Management>, actor: Actor) -> AdminResponse {
    let invalid = |detail| response::problem(StatusCode::BAD_REQUEST, "invalid_records", detail);
    let body = match response::read_body(body, MAX_PART).await {
        Ok(body) => body,
        Err(error) => return invalid(format!("the records cannot be read: {error}")),
    };
    let records = match parse(&body) {
        Ok(records) => records,
        Err(detail) => return invalid(detail),
    };
    let import = async move || management::import_state(&management, &actor, &records, clock::now()).await;
    match run_beside(import).await {
        Ok(Ok(report)) => response::json(StatusCode::OK, &report),
        Ok(Err(error)) => response::failed(&error),
        Err(_) => response::panicked("call"),
    }
}

fn parse(body: &[u8]) -> Result<Vec<StateRecord>, String> {
    let lines = body.split(|byte| *byte == b'\n').enumerate().filter(|(_, line)| !line.is_empty());
    lines.map(|(index, line)| parse_record(line).map_err(|error| format!("line {}: {error}", index + 1))).collect()
}
