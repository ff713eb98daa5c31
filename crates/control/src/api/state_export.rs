//! The state as a whole: its export, for programs with the scope `state:export`, and its acceptance by the operator.
//!
//! - It is read beside the requests, on a thread of its own, one at a time, and answered when it is whole: a program
//!   never takes a part for all of it.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::Answer;
use super::call::Call;
use crate::management;
use crate::management::{Actor, Management, ManagementError, STATE_MEDIA_TYPE, run_beside};
use domain::clock::Micros;

/// Bytes of an export at most: hundreds of thousands of keys.
const MAX_BYTES: usize = 128 << 20;

/// Turns to export, shared by all workers.
#[derive(Clone, Debug)]
pub(super) struct ExportTurns(Arc<Semaphore>);

impl Default for ExportTurns {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }
}

/// Exports the state for a program.
///
/// # Errors
/// [`ManagementError::Exporting`] while another export is made; [`ManagementError::ExportTooLarge`]; those of the
/// export.
pub(super) async fn export(call: &Call<'_>) -> Result<Answer, ManagementError> {
    let turn = Arc::clone(&call.api.exports.0).try_acquire_owned().map_err(|_| ManagementError::Exporting)?;
    let (management, actor, now) = (Arc::clone(call.api.management()), call.actor.clone(), call.now());
    let reading = async move || {
        let _turn = turn;
        read(&management, &actor, now).await
    };
    Ok(Answer::other(STATE_MEDIA_TYPE, run_beside(reading).await.map_err(|_| ManagementError::Internal)??))
}

/// Accepts the state as it is, in place of the one that gateways remember.
pub(super) async fn accept(call: &Call<'_>) -> Result<Answer, ManagementError> {
    Ok(Answer::new(&management::accept_state(call.management(), call.actor, call.now()).await?))
}

async fn read(management: &Management, actor: &Actor, now: Micros) -> Result<Vec<u8>, ManagementError> {
    let mut export = management::export_state(management, actor, now).await?;
    let mut lines = Vec::new();
    while let Some(part) = export.next_lines().await? {
        append(&mut lines, &part, MAX_BYTES)?;
    }
    Ok(lines)
}

/// Appends a part, unless there would be more than `max` bytes.
fn append(lines: &mut Vec<u8>, part: &[u8], max: usize) -> Result<(), ManagementError> {
    if lines.len() + part.len() > max {
        return Err(ManagementError::ExportTooLarge);
    }
    lines.extend_from_slice(part);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn export_of_more_bytes_is_refused_and_not_cut() {
        let mut lines = Vec::new();
        append(&mut lines, b"1234", 7).unwrap();
        append(&mut lines, b"567", 7).unwrap();
        assert!(matches!(append(&mut lines, b"8", 7), Err(ManagementError::ExportTooLarge)));
    }
}
