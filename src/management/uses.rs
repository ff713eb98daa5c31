//! What the audit journal says of keys: read where files may be waited for.
//!
//! A reading is bounded: in the bytes that it reads for uses, in the keys that it counts for, and in how many there are
//! at a time. So whoever asks a lot waits for their own answers, and requests do not.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Management, ManagementError, Reply};
use crate::audit::{self, Filter, JournalCursor, Outcome, Reader};
use crate::clock::Micros;
use crate::key::KeyId;

/// Records on a page, unless another number is asked for.
const PAGE: usize = 50;
/// Records on a page at most.
const LARGEST_PAGE: usize = 200;
/// Bytes of the journal that are read for a page: some tenths of a second.
const BUDGET: u64 = 64 << 20;
/// Keys whose activity is asked for at once, at most: more than a page of them.
const MOST_KEYS: usize = 200;
/// Readings at a time: what they cost comes from the same cores and the same disk that requests need.
pub(super) const READINGS: usize = 4;

/// Which uses are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UseQuery {
    /// Those that ended like this.
    pub outcome: Option<Outcome>,
    /// Only those that were refused, or only the others.
    pub refused: Option<bool>,
    /// Those older than the page that this came with.
    pub before: Option<String>,
    /// How many at most: 1 to 200. Default: 50.
    pub limit: Option<usize>,
}

/// What a key did in the last day.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activity {
    /// The hour that is going on, last, and the 23 before it, oldest first.
    pub hours: Vec<Hour>,
    /// The last use that was admitted, however long ago, as far as the journal reaches.
    pub last: Option<LastUse>,
}

/// How often a key was used within an hour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hour {
    /// When it began.
    pub start: String,
    /// Uses that were admitted.
    pub requests: u64,
    /// Uses that were refused.
    pub refusals: u64,
}

/// The last use of a key that was admitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "as in audit::Record")]
pub struct LastUse {
    pub id: Uuid,
    pub time: String,
    pub ip: Option<IpAddr>,
    pub user_agent: Option<String>,
    pub action: String,
    pub outcome: Outcome,
    pub status: Option<u16>,
}

impl Management {
    /// The uses of a key that this gateway has recorded, newest first. Where the wanted ones are rare, a page may have
    /// fewer than asked for, or none, and say where to go on.
    pub(super) async fn list_uses(&self, key: KeyId, uses: UseQuery) -> Result<Reply, ManagementError> {
        let before = uses.before.map(|before| before.parse::<JournalCursor>()).transpose()?;
        let limit = uses.limit.unwrap_or(PAGE);
        if !(1..=LARGEST_PAGE).contains(&limit) {
            return Err(ManagementError::PageSize);
        }
        let filter = Filter {
            key: Some(key),
            outcome: uses.outcome,
            refused: uses.refused,
            requests_only: true,
            ..Filter::default()
        };
        let page = self.read(move |reader| reader.list_within(&filter, limit, before, BUDGET)).await?;
        let next = page.next.map(|cursor| cursor.to_string());
        Ok(Reply::Uses { uses: page.records, next, gateway: self.gateway.clone() })
    }

    /// What happened with these keys of an organization in the last day, as far as this gateway has recorded it.
    pub(super) async fn activity(&self, org: &str, keys: Vec<KeyId>, now: Micros) -> Result<Reply, ManagementError> {
        check_number(&keys)?;
        let org = self.org(org).await?.id;
        let written = move |reader: &Reader| -> io::Result<BTreeMap<KeyId, Activity>> {
            let activity = reader.activity(org, &keys, now)?;
            Ok(activity.into_iter().map(|(key, activity)| (key, activity.into())).collect())
        };
        Ok(Reply::Activity { keys: self.read(written).await?, gateway: self.gateway.clone() })
    }

    /// Reads the journal, on a thread that may wait. The permit goes with the reading, which nobody breaks off.
    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Reader) -> io::Result<T> + Send + 'static,
    ) -> Result<T, ManagementError> {
        let permit = Arc::clone(&self.readings).acquire_owned().await.expect("nothing closes the semaphore");
        let directory = self.journal_directory.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            Reader::open(&directory).and_then(|reader| read(&reader))
        });
        match reading.await {
            Ok(read) => read.map_err(ManagementError::JournalUnread),
            Err(_) => Err(ManagementError::JournalUnread(io::Error::other("the reading broke off"))),
        }
    }
}

/// Whether so many keys are answered at once.
pub(super) fn check_number(keys: &[KeyId]) -> Result<(), ManagementError> {
    if keys.len() > MOST_KEYS { Err(ManagementError::TooManyAsked) } else { Ok(()) }
}

impl From<audit::KeyActivity> for Activity {
    fn from(activity: audit::KeyActivity) -> Self {
        let hour = |hour: audit::HourlyActivity| {
            let audit::HourlyActivity { start, requests, refusals } = hour;
            Hour { start: start.to_string(), requests, refusals }
        };
        let last = activity.last.map(|last| {
            let audit::LastUse { id, time, ip, user_agent, action, outcome, status } = last;
            LastUse { id, time: time.to_string(), ip, user_agent, action, outcome, status }
        });
        Self { hours: activity.hours.into_iter().map(hour).collect(), last }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use futures_util::future::join_all;

    use super::*;
    use crate::audit::{self, Durability, Journal, OnUnavailable};
    use crate::metrics::Metrics;
    use crate::quota::Quota;
    use crate::state::State;
    use crate::state::embedded::{self, Embedded};

    fn management(directory: &std::path::Path) -> Management {
        let metrics = Metrics::new();
        let state = embedded::Settings { path: directory.join("state.db"), quota: Quota::DEFAULT, concurrent: 100 };
        let settings = audit::Settings {
            path: directory.join("audit"),
            durability: Durability::Written,
            on_unavailable: OnUnavailable::Refuse,
            segment_size: 1 << 20,
            segment_age: Duration::from_secs(3600),
            retention_age: None,
            retention_size: None,
            unknown_per_second: 10,
            gateway: "gateway-1".into(),
        };
        let journal = Journal::open(settings.clone(), metrics.audit.clone()).unwrap();
        Management::new(Arc::new(State::Embedded(Embedded::open(&state).unwrap())), journal, &settings, &metrics.state)
    }

    #[tokio::test]
    async fn so_many_read_at_a_time_and_the_others_after_them() {
        let directory = tempfile::tempdir().unwrap();
        let management = management(directory.path());
        let together = Arc::new(Barrier::new(READINGS));
        let (reading, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let read = |_| {
            let (together, reading, most) = (Arc::clone(&together), Arc::clone(&reading), Arc::clone(&most));
            management.read(move |_| {
                most.fetch_max(reading.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                together.wait();
                reading.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            })
        };
        let done = join_all((0..READINGS * 8).map(read)).await;
        assert!(done.iter().all(Result::is_ok));
        assert_eq!(most.load(Ordering::SeqCst), READINGS);
    }
}
