//! Trial of a sink: one record goes to it by its own delivery, as from a shipper.
//!
//! - Neither the journal nor a position is read or written: a gateway that ships meanwhile goes on as before.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use tokio::time::timeout;
use uuid::Uuid;

use super::batch::Batch;
use super::rejected_file::RejectedFile;
use super::settings::{Destination, SinkSettings};
use super::shipper::DELIVER_WITHIN;
use super::sink::{OpenError, Sink};
use super::sink_error::SinkError;
use super::status::Status;
use crate::audit::{Record, StreamPosition};
use platform::metrics::Metrics;

/// Reason why a sink has not taken the record of a trial.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// Its records are the audit's, so that none may be of a trial.
    #[error("a sink of the kind `{0}` is a copy of the audit, and takes no test; see `keygate audit ship status`")]
    IsCopy(&'static str),
    /// A file that it needs cannot be used.
    #[error("the sink cannot be used")]
    Open(#[from] OpenError),
    /// It cannot be reached, or refuses the record.
    #[error("not accepted")]
    Delivery(#[source] Box<dyn Error + Send + Sync>),
}

/// Delivers a record to a sink, marked as a test.
///
/// # Errors
/// [`TrialError`]
pub async fn try_sink(settings: &SinkSettings, record: Record) -> Result<(), TrialError> {
    let kind = settings.destination.kind();
    if matches!(settings.destination, Destination::Postgresql(_) | Destination::Files(_)) {
        return Err(TrialError::IsCopy(kind));
    }
    let mut sink = Sink::open(&settings.destination)?;
    let status = Arc::new(Status::new(&settings.name, kind, sink.target(), StreamPosition::START));
    // Nothing is set aside: a sink that has taken no other record refuses all.
    let mut rejected =
        RejectedFile::new(Path::new(""), &settings.name, status, Metrics::new().shipping.sink(&settings.name));
    let batch = Batch {
        journal: Uuid::nil(),
        gateway: record.gateway.clone(),
        complete_until: record.time,
        records: vec![Record { test: true, ..record }],
        checkpoints: Vec::new(),
        from: StreamPosition::START,
        to: StreamPosition::START,
    };
    let delivered = timeout(DELIVER_WITHIN, sink.deliver(&batch, &mut rejected)).await;
    match delivered.unwrap_or(Err(SinkError::TimedOut(DELIVER_WITHIN))) {
        Ok(()) if rejected.end_batch() == 0 => Ok(()),
        Ok(()) => Err(TrialError::Delivery("the collector has rejected it".into())),
        Err(SinkError::AllRefused(refusal)) => Err(TrialError::Delivery(refusal)),
        Err(error) => Err(TrialError::Delivery(error.into())),
    }
}
