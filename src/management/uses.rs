//! Uses and activity of keys, read from the audit journal of this gateway.
//!
//! A read is bounded: in the bytes that it reads for uses, in the keys that it counts for, and in how many run at a time.
//! A caller who asks for much waits for their own result, and requests do not.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::authorization::Access;
use super::{Actor, Management, ManagementError, operands};
use crate::audit::{self, Filter, JournalCursor, Outcome, Reader, Record, RecordKind};
use crate::clock::{self, Micros};
use crate::key::KeyId;

/// Records on a page by default.
const DEFAULT_PAGE: usize = 50;
/// Records on a page at most.
const MAX_PAGE: usize = 200;
/// Bytes of the journal that are read for a page: some tenths of a second.
const MAX_BYTES_PER_PAGE: u64 = 64 << 20;
/// Reads of the journal at a time: what they cost comes from the same cores and the same disk that requests need.
pub(super) const CONCURRENT_READS: usize = 4;

/// Filter and position of a page of uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UseQuery {
    /// Only uses that ended with this outcome.
    pub outcome: Option<Outcome>,
    /// `true`: only refused uses; `false`: only the others.
    pub refused: Option<bool>,
    /// Only uses older than those of the page that returned this cursor.
    pub before: Option<String>,
    /// Records on the page at most: 1 to 200. Default: 50.
    pub limit: Option<usize>,
}

/// Page of the uses of a key, newest first, as one gateway recorded them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsePage {
    /// The uses. Where matching ones are rare, there may be fewer than the query's limit, or none, although more follow.
    pub uses: Vec<Record>,
    /// Cursor of the next page; none when there are no older uses.
    pub next: Option<String>,
    /// The name of the gateway.
    pub gateway: String,
}

/// Activity of some keys in the last day, as one gateway recorded it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActivityReport {
    /// The activity of each key.
    pub keys: BTreeMap<KeyId, Activity>,
    /// The name of the gateway.
    pub gateway: String,
}

/// Activity of a key in the last day.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activity {
    /// The 23 hours before the current one, oldest first, then the current hour.
    pub hours: Vec<Hour>,
    /// The last use that was admitted, however long ago, as far as the journal reaches.
    pub last: Option<LastUse>,
    /// The last attempt, admitted or refused, as far.
    pub last_attempt: Option<LastUse>,
}

/// Counts of a key's uses within an hour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hour {
    /// Begin of the hour.
    #[serde(with = "clock::rfc3339")]
    pub start: Micros,
    /// Uses that were admitted.
    pub requests: u64,
    /// Uses that were refused.
    pub refusals: u64,
}

/// Last use of a key that was admitted, or the last attempt to use it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "as in audit::Record")]
pub struct LastUse {
    pub id: Uuid,
    #[serde(with = "clock::rfc3339")]
    pub time: Micros,
    pub ip: Option<IpAddr>,
    pub user_agent: Option<String>,
    pub action: String,
    pub outcome: Outcome,
    pub status: Option<u16>,
}

impl Management {
    /// Lists the uses of a key that this gateway recorded, newest first.
    ///
    /// # Errors
    /// [`ManagementError::NoKey`], [`ManagementError::PageSize`], [`ManagementError::Cursor`],
    /// [`ManagementError::JournalUnreadable`].
    pub async fn list_uses(
        &self,
        actor: &Actor,
        key: KeyId,
        query: UseQuery,
        now: Micros,
    ) -> Result<UsePage, ManagementError> {
        self.authorize(actor, Access::Key(key), now).await?;
        let before = query.before.map(|before| before.parse::<JournalCursor>()).transpose()?;
        let limit = query.limit.unwrap_or(DEFAULT_PAGE);
        if !(1..=MAX_PAGE).contains(&limit) {
            return Err(ManagementError::PageSize);
        }
        let filter = Filter {
            key: Some(key),
            outcome: query.outcome,
            refused: query.refused,
            kind: Some(RecordKind::Request),
            ..Filter::default()
        };
        let page =
            self.read_journal(move |reader| reader.list_within(&filter, limit, before, MAX_BYTES_PER_PAGE)).await?;
        let next = page.next.map(|cursor| cursor.to_string());
        Ok(UsePage { uses: page.records, next, gateway: self.gateway.clone() })
    }

    /// Reports the activity of these keys of an organization, at most 200, in the last day, as far as this gateway recorded
    /// it.
    ///
    /// # Errors
    /// [`ManagementError::TooManyKeyIds`], [`ManagementError::NoOrg`], [`ManagementError::JournalUnreadable`]; for signed-in
    /// users [`ManagementError::NoKey`].
    pub async fn key_activity(
        &self,
        actor: &Actor,
        org: &str,
        keys: Vec<KeyId>,
        now: Micros,
    ) -> Result<ActivityReport, ManagementError> {
        self.authorize(actor, Access::Keys { org, keys: &keys }, now).await?;
        operands::check_key_count(&keys)?;
        let org = self.find_org(org).await?.id;
        let activity = self.read_journal(move |reader| reader.activity(org, &keys, now)).await?;
        let keys = activity.into_iter().map(|(key, activity)| (key, activity.into())).collect();
        Ok(ActivityReport { keys, gateway: self.gateway.clone() })
    }

    /// Reads the journal on a blocking thread. The permit goes with the read, which runs to its end also when the caller is
    /// gone: as long as it costs, it counts.
    async fn read_journal<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Reader) -> io::Result<T> + Send + 'static,
    ) -> Result<T, ManagementError> {
        let permit = Arc::clone(&self.journal_reads).acquire_owned().await.expect("nothing closes the semaphore");
        let directory = self.journal_directory.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            Reader::open(&directory).and_then(|reader| read(&reader))
        });
        match reading.await {
            Ok(read) => read.map_err(ManagementError::JournalUnreadable),
            Err(_) => Err(ManagementError::JournalUnreadable(io::Error::other("the read did not finish"))),
        }
    }
}

impl From<audit::KeyActivity> for Activity {
    fn from(activity: audit::KeyActivity) -> Self {
        let hour = |hour: audit::HourlyActivity| {
            let audit::HourlyActivity { start, requests, refusals } = hour;
            Hour { start, requests, refusals }
        };
        let last = |last: audit::LastUse| {
            let audit::LastUse { id, time, ip, user_agent, action, outcome, status } = last;
            LastUse { id, time, ip, user_agent, action, outcome, status }
        };
        Self {
            hours: activity.hours.into_iter().map(hour).collect(),
            last: activity.last.map(last),
            last_attempt: activity.last_attempt.map(last),
        }
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
    async fn journal_reads_are_bounded_and_the_others_wait() {
        let directory = tempfile::tempdir().unwrap();
        let management = management(directory.path());
        let together = Arc::new(Barrier::new(CONCURRENT_READS));
        let (reading, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let read = |_| {
            let (together, reading, most) = (Arc::clone(&together), Arc::clone(&reading), Arc::clone(&most));
            management.read_journal(move |_| {
                most.fetch_max(reading.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                together.wait();
                reading.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            })
        };
        let done = join_all((0..CONCURRENT_READS * 8).map(read)).await;
        assert!(done.iter().all(Result::is_ok));
        assert_eq!(most.load(Ordering::SeqCst), CONCURRENT_READS);
    }
}
