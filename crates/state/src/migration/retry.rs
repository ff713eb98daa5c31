//! Retries of single steps while Redis is away or another writer is faster.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::import::ImportError;
use crate::{ChangeError, Unavailable};

/// Time for which a step is retried: longer than a failover takes.
const RETRY_FOR: Duration = Duration::from_secs(30);
/// Time between two tries.
const PAUSE: Duration = Duration::from_millis(100);

/// Reason why an import ended early. Everything written stays; another run completes it.
#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    /// Redis failed for longer than a step is retried.
    #[error("the import was interrupted after Redis had failed it for {} s; it can be run again", RETRY_FOR.as_secs())]
    Interrupted(#[source] Unavailable),
    /// The state refused a record, and would again: its disk is full, for instance.
    #[error("the state refused the records")]
    Refused(#[source] ChangeError),
    /// Too few replicas confirmed the records.
    #[error("everything was imported; run it again to have it confirmed")]
    NotReplicated(#[source] ChangeError),
}

/// The retries of one step, which end [`RETRY_FOR`] after its first failure.
#[derive(Default)]
pub(super) struct Retries {
    first_failure: Option<Instant>,
}

impl Retries {
    /// Waits before the next try.
    ///
    /// # Errors
    /// [`MigrationError`] when there is no next try: the error is final, or the time is over.
    pub(super) async fn wait_after(&mut self, error: ImportError) -> Result<(), MigrationError> {
        let over = self.first_failure.get_or_insert_with(Instant::now).elapsed() > RETRY_FOR;
        let reason = match error {
            ImportError::NotReplicated(error) => return Err(MigrationError::NotReplicated(error)),
            ImportError::Refused(error) => return Err(MigrationError::Refused(error)),
            // Gateways serve from the target and change records all the time: read again, write again.
            ImportError::Conflict => Unavailable::Overloaded,
            ImportError::Unavailable { reason, failure } => {
                if over {
                    let cause = failure.source().map(ToString::to_string);
                    tracing::warn!(%failure, cause, "cannot continue the import: Redis failed for too long");
                }
                reason
            }
        };
        if over {
            return Err(MigrationError::Interrupted(reason));
        }
        sleep(PAUSE).await;
        Ok(())
    }
}

/// Runs a step until it succeeds.
pub(super) async fn retry<T>(step: impl AsyncFn() -> Result<T, ImportError>) -> Result<T, MigrationError> {
    let mut retries = Retries::default();
    loop {
        match step().await {
            Ok(done) => return Ok(done),
            Err(error) => retries.wait_after(error).await?,
        }
    }
}
