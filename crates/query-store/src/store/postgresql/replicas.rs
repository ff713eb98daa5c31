//! Replicas of the database: they serve pages of snapshots that they have reached, and take that load off the primary.
//!
//! - A replica shows an earlier state of the primary. Content and registration of a snapshot are read in one
//!   statement together with the organization's version there, so a page is returned only from a state that
//!   contains the whole snapshot.
//! - A page that the replica cannot serve completely is read from the primary: a snapshot that it has not reached, a
//!   registration that must be extended, an error, a late answer.
//! - A replica that failed is left alone for some seconds, so that an unreachable one does not delay every page.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::database::Database;
use super::error::PostgresqlError;
use super::pages::{self, Judgement};
use crate::store::{Bookmark, Page, SnapshotExpiry};
use domain::identity::OrgId;
use platform::postgresql::{self, Connector};

/// Time for which a replica that failed is not asked again.
const PAUSE: Duration = Duration::from_secs(5);
/// Part of the deadline that a replica has; the rest is for the primary.
const SHARE_OF_DEADLINE: u32 = 4;

/// The replicas.
#[derive(Debug)]
pub(super) struct Replicas {
    replicas: Vec<Replica>,
    /// Number of pages asked for so far: the replicas take turns.
    turn: AtomicUsize,
}

#[derive(Debug)]
struct Replica {
    database: Database,
    /// Time until which it is not asked, after a failure.
    paused_until: Mutex<Option<Instant>>,
}

impl Replicas {
    pub(super) fn open(
        settings: &[postgresql::Settings],
        connections: usize,
        deadline: Duration,
    ) -> Result<Self, PostgresqlError> {
        let open = |settings: &postgresql::Settings| {
            let database = Database::open(settings.clone(), connections, deadline / SHARE_OF_DEADLINE)?;
            Ok::<_, PostgresqlError>(Replica { database, paused_until: Mutex::default() })
        };
        Ok(Self { replicas: settings.iter().map(open).collect::<Result<_, _>>()?, turn: AtomicUsize::new(0) })
    }

    /// Reads a page from the replica whose turn it is; `None` when the primary must serve it.
    pub(super) async fn page(&self, org: OrgId, after: Bookmark, limit: usize, expiry: SnapshotExpiry) -> Option<Page> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let replica = self.replicas.get(turn.checked_rem(self.replicas.len())?)?;
        replica.page(org, after, limit, expiry).await
    }

    pub(super) fn connectors(&self) -> impl Iterator<Item = Arc<Connector>> {
        self.replicas.iter().map(|replica| replica.database.connector())
    }

    pub(super) fn reload_tls(&self) {
        self.replicas.iter().for_each(|replica| replica.database.reload_tls());
    }
}

impl Replica {
    async fn page(&self, org: OrgId, after: Bookmark, limit: usize, expiry: SnapshotExpiry) -> Option<Page> {
        if self.is_paused(Instant::now()) {
            return None;
        }
        let read = self.database.run(async |client| pages::read(client, org, Some(after), limit).await).await;
        match read {
            Ok(Some(read)) if read.has_reached(after.snapshot) => match read.judge(Some(after), limit, expiry) {
                Judgement::Complete(page) => Some(page),
                Judgement::Unregistered(_) | Judgement::Gone => None,
            },
            Ok(_) => None,
            Err(error) => {
                self.pause(Instant::now(), &error);
                None
            }
        }
    }

    fn is_paused(&self, now: Instant) -> bool {
        self.paused_until.lock().is_some_and(|until| now < until)
    }

    fn pause(&self, now: Instant, error: &PostgresqlError) {
        *self.paused_until.lock() = Some(now + PAUSE);
        tracing::warn!(
            replica = self.database.server(),
            error = error as &dyn std::error::Error,
            "a replica failed; the primary serves its pages for 5 s"
        );
    }
}
