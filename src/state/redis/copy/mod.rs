//! Copying everything that another state holds into this one, while gateways may already serve from it.
//!
//! - Organizations come first, then the users of each, then its keys. The lists of one organization grow batch by
//!   batch, so that the order of creation stays; organizations are copied side by side.
//! - A batch is looked at, and what it lacks is written by one script, unless somebody was faster. So a copy that was
//!   interrupted anywhere is completed by another one, and what is there is left as it is.
//! - What is in the way is reported and never overwritten. Only a key that has fewer uses here than there takes over its
//!   uses and its bucket, which would be fuller than it was.
//! - Replicas are waited for at the end (`confirm`); then everything is read back and compared (`verify`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tokio::time::{sleep, timeout};

use crate::state::redis::client::ConnectError;
use crate::state::redis::directory::changes::CommitError;
use crate::state::redis::{FIRST, Redis};
use crate::state::{ChangeError, OrgExport, StateExport, Unavailable};

mod report;
mod orgs;
mod users;
mod keys;
mod confirm;
mod verify;

pub use report::{Count, Finding, LeftOut, Phase, Problem, Progress, Record, Report};

/// Records that are looked at together and written by one script, which the server does nothing beside: half a
/// millisecond, little enough for gateways that serve from it.
const BATCH: usize = 64;
/// Organizations that are copied side by side: with their batches, several hundred commands at a time.
const ORGS: usize = 8;
/// How long a batch is tried for while Redis is away: longer than a failover takes.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long to wait between two tries.
const PAUSE: Duration = Duration::from_millis(100);

/// Why a copy ended before its end. What it wrote stays; another one completes it.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// There is no server.
    #[error("Redis cannot be reached")]
    Unreachable(#[source] Arc<ConnectError>),
    /// It went away, for long.
    #[error("the copy was interrupted after Redis had failed it for {} s; it can be run again", PATIENCE.as_secs())]
    Interrupted(#[source] Unavailable),
    /// Too few replicas have it.
    #[error("everything was copied; run it again to have it confirmed")]
    NotReplicated(#[source] ChangeError),
}

/// How a record of the copy is found here.
enum Found<T> {
    /// There, and as it should be.
    Same,
    /// Not there, or not all of it; this is what it lacks.
    Lacking(T),
    /// Something else is where it should be.
    InTheWay(Problem),
    /// What it belongs to is not there.
    LeftOut,
}

/// What became of a batch.
struct Completed<T> {
    /// How its records were found at first.
    first: Vec<Found<T>>,
    /// What kept them from being copied.
    problems: Vec<Option<Problem>>,
}

/// How long failures are borne.
#[derive(Default)]
struct Patience {
    since: Option<Instant>,
}

impl Redis {
    /// Copies everything that another state held when nobody used it.
    ///
    /// # Errors
    /// [`CopyError`] when it could not be carried to its end. What is in the way, and what differs afterwards, is in the
    /// report.
    pub async fn copy(&self, export: &StateExport, progress: &Progress) -> Result<Report, CopyError> {
        if let Ok(Err(error)) = timeout(FIRST, self.servers.all_reached()).await {
            return Err(CopyError::Unreachable(error));
        }
        progress.begin(Phase::Copying, records(export));
        let mut report = Report::default();
        let usable = self.copy_orgs(&export.orgs, &mut report, progress).await?;
        let copies = stream::iter(usable.iter().map(|org| self.copy_org(org, progress))).buffered(ORGS);
        let copies: Vec<Report> = copies.try_collect().await?;
        copies.into_iter().for_each(|of_org| report.add(of_org));
        self.confirm(&usable).await?;
        progress.begin(Phase::Verifying, records(export));
        report.differences = self.verify(&export.orgs, &usable, &report, progress).await?;
        Ok(report)
    }

    /// Copies an organization that is there.
    async fn copy_org(&self, org: &OrgExport, progress: &Progress) -> Result<Report, CopyError> {
        let mut report = Report::default();
        self.copy_users(org, &mut report, progress).await?;
        self.copy_keys(org, &mut report, progress).await?;
        Ok(report)
    }

    /// Has a batch looked at, and what it lacks written; anew when somebody was faster, or Redis was away.
    async fn complete<T>(
        &self,
        look: impl AsyncFn() -> Result<Vec<Found<T>>, CommitError>,
        write: impl AsyncFn(&[Found<T>]) -> Result<(), CommitError>,
    ) -> Result<Completed<T>, CopyError> {
        let (mut first, mut patience) = (None, Patience::default());
        loop {
            let found = match look().await {
                Ok(found) => found,
                Err(obstacle) => {
                    patience.bear(obstacle).await?;
                    continue;
                }
            };
            let written = if found.iter().any(Found::is_lacking) { write(&found).await } else { Ok(()) };
            let problems = found.iter().map(Found::problem).collect();
            let first = first.get_or_insert(found);
            match written {
                Ok(()) => return Ok(Completed { first: std::mem::take(first), problems }),
                Err(obstacle) => patience.bear(obstacle).await?,
            }
        }
    }
}

impl<T> Found<T> {
    fn is_lacking(&self) -> bool {
        matches!(self, Self::Lacking(_))
    }

    fn problem(&self) -> Option<Problem> {
        match self {
            Self::InTheWay(problem) => Some(problem.clone()),
            Self::Same | Self::Lacking(_) | Self::LeftOut => None,
        }
    }
}

impl Patience {
    /// Waits a little; gives up when it was long enough.
    async fn bear(&mut self, obstacle: CommitError) -> Result<(), CopyError> {
        let over = self.since.get_or_insert_with(Instant::now).elapsed() > PATIENCE;
        let unavailable = match obstacle {
            CommitError::Final(error) => return Err(CopyError::NotReplicated(error)),
            CommitError::Conflict | CommitError::Randomness(_) => Unavailable::Overloaded,
            CommitError::Command(failure) => {
                if over {
                    let cause = std::error::Error::source(&failure).map(ToString::to_string);
                    tracing::warn!(%failure, cause, "the copy cannot go on");
                }
                failure.into()
            }
        };
        if over {
            return Err(CopyError::Interrupted(unavailable));
        }
        sleep(PAUSE).await;
        Ok(())
    }
}

/// How many records there are.
fn records(export: &StateExport) -> u64 {
    export.orgs.iter().map(|org| 1 + org.users.len() as u64 + org.keys.len() as u64).sum()
}
