//! Export and import of the whole state: for the operator, audited.
//!
//! - An export is one audit record, open until its last line was handed over: a file that was not
//!   completed is `aborted`.
//! - An import comes in parts, each with an audit record of its own. The parts are in the order of the file. A
//!   client may stop after any of them, and begin again.

use std::time::Instant;

use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::audited_change::{Target, begin_change, use_end};
use super::authorization::{Access, authorize};
use super::{Actor, Management, ManagementError};
use domain::clock::Micros;
use domain::management_token::TokenScope;
use journal::audit::{AuditEntry, Outcome, UseEnd};
use state::migration::file::Writer;
use state::migration::{self, Report};
use state::{Exporter, State, StateId, StateIdentity, StateRecord};

/// Media type of an export: JSON lines.
pub(crate) const STATE_MEDIA_TYPE: &str = "application/x-ndjson";

/// Export under way: the lines of its file, some at a time.
pub struct StateExport<'a> {
    exporter: Exporter<'a>,
    /// The first line, until it is handed over.
    first: Option<Vec<u8>>,
    /// None after the last line.
    writer: Option<Writer>,
    entry: Option<AuditEntry>,
    started: Instant,
}

/// Runs an export or an import on a thread of its own: it is long, and must not keep other requests waiting. Also when
/// its handle is dropped, it is done to its end.
pub(crate) fn run_beside<T: Send + 'static>(work: impl AsyncFnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let runtime = Handle::current();
    tokio::task::spawn_blocking(move || runtime.block_on(work()))
}

/// Begins to export the whole state: organizations, users, federation rules, keys with their digests and buckets,
/// management tokens. For the operator.
///
/// # Errors
/// [`ManagementError::ExportFailed`].
pub async fn export_state<'a>(
    management: &'a Management,
    actor: &Actor,
    now: Micros,
) -> Result<StateExport<'a>, ManagementError> {
    let by = authorize(management, actor, Access::AllOrgs(TokenScope::StateExport), now).await?;
    // Of a read, too, there is a record first: the file has the digests of all keys. A backup of a gateway whose
    // disk is full may use the space that is kept for such records.
    let entry = begin_change(management, "state.export", "state.export", Target::STATE, true, by).await?;
    // An empty file must not take the place of the last good one.
    if management.state.identity().is_broken() && !management.state.has_orgs().await? {
        entry.close(use_end(&Err::<(), _>(ManagementError::StateLost), Instant::now()));
        return Err(ManagementError::StateLost);
    }
    let started = Instant::now();
    let exporter = Exporter::begin(&management.state).await.map_err(ManagementError::ExportFailed)?;
    let (writer, first) = Writer::begin(now, variant(&management.state));
    Ok(StateExport { exporter, first: Some(first), writer: Some(writer), entry: Some(entry), started })
}

/// Imports records of an exported state, in their order. Of what is there already, only withdrawals are taken over.
/// For the operator.
///
/// # Errors
/// [`ManagementError::ImportFailed`]; some of the records may be imported then. Repeating it does no harm.
pub async fn import_state(
    management: &Management,
    actor: &Actor,
    records: &[StateRecord],
    now: Micros,
) -> Result<Report, ManagementError> {
    let by = authorize(management, actor, Access::Operator, now).await?;
    let path = format!("state.import/{}", records.len());
    let entry = begin_change(management, "state.import", &path, Target::STATE, false, by).await?;
    let started = Instant::now();
    let imported = import_records(management, records).await;
    entry.close_change(use_end(&imported, started)).await;
    imported
}

/// Imports records. A state that was lost, or is another one, is accepted with what is imported into it.
async fn import_records(management: &Management, records: &[StateRecord]) -> Result<Report, ManagementError> {
    match management.state.identity().discontinuity() {
        None => {}
        Some(found) if found.has_records() => return Err(ManagementError::StateLost),
        Some(_) => drop(management.state.accept().await?),
    }
    migration::import(records, &management.state).await.map_err(ManagementError::ImportFailed)
}

/// Accepts the state as it is, in place of the one that gateways remember: after a loss, when this is what is left,
/// or a file that was put back. For the operator.
///
/// # Errors
/// [`ManagementError::NotAcknowledged`]: the state is not accepted.
pub async fn accept_state(
    management: &Management,
    actor: &Actor,
    now: Micros,
) -> Result<AcceptedState, ManagementError> {
    let by = authorize(management, actor, Access::Operator, now).await?;
    let entry = begin_change(management, "state.accept", "state.accept", Target::STATE, true, by).await?;
    let started = Instant::now();
    let accepted = management.state.accept().await.map_err(ManagementError::from);
    entry.close_change(use_end(&accepted, started)).await;
    let StateIdentity { id, replaces, changes, .. } = accepted?;
    Ok(AcceptedState { id, replaces, changes })
}

/// A state that was accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcceptedState {
    /// Its new identity.
    pub id: StateId,
    /// Identities that it replaces: a gateway that remembers one of them serves this state.
    pub replaces: Vec<StateId>,
    /// Number of its changes by management.
    pub changes: u64,
}

impl StateExport<'_> {
    /// The next lines; none after the last one.
    ///
    /// # Errors
    /// [`ManagementError::ExportFailed`]; the file is not complete then.
    pub async fn next_lines(&mut self) -> Result<Option<Vec<u8>>, ManagementError> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        let Some(writer) = &mut self.writer else { return Ok(None) };
        if let Some(records) = self.exporter.next().await.map_err(ManagementError::ExportFailed)? {
            return Ok(Some(writer.lines(&records)));
        }
        let last = self.writer.take().map(Writer::end);
        if let Some(entry) = self.entry.take() {
            entry.close_change(use_end(&Ok(()), self.started)).await;
        }
        Ok(last)
    }
}

impl Drop for StateExport<'_> {
    fn drop(&mut self) {
        if let Some(entry) = self.entry.take() {
            // Nothing is in doubt: an export changes nothing.
            entry.close(UseEnd { outcome: Outcome::Aborted, status: None, ..use_end(&Ok(()), self.started) });
        }
    }
}

fn variant(state: &State) -> &'static str {
    match state {
        State::Embedded(_) => "embedded",
        State::Redis(_) => "redis",
    }
}
