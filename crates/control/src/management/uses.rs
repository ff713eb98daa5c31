//! Uses and activity of keys, read from the audit: from PostgreSQL for all gateways, when the audit is shipped there,
//! else from the journal of this gateway.
//!
//! A read is bounded: in the bytes that it reads for uses, in the keys that it counts for, and in how many run at a
//! time ([`read_queue`](super::read_queue)). A caller who asks for much waits for their own result, and requests do
//! not. A read whose caller is gone stops.

use std::collections::BTreeMap;
use std::io;

use serde::{Deserialize, Serialize};

use super::authorization::{Access, authorize};
use super::cursor::cursor_sealer;
use super::operands::find_org;
use super::{Actor, Management, ManagementError, operands};
use domain::clock::{self, Micros};
use domain::key::KeyId;
use domain::management_token::TokenScope;
use domain::page::{Page, PageQuery};
use journal::audit::{
    ActionName, AuditView, Filter, Fleet, HourlyActivity, JournalWalk, KeyActivity, LastUse, MissingRecord, Outcome,
    Record, RecordKind, RecordPlace, StopSignal, ViewActivity, ViewCursor, ViewPage, ViewStatus,
};

/// Bytes of the journal that are read for a page: some tenths of a second.
const MAX_BYTES_PER_PAGE: u64 = 64 << 20;

/// Filter of a list of uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UseFilter {
    /// Only uses that ended with this outcome.
    pub outcome: Option<Outcome>,
    /// Only uses with this action: the name of their route, or `METHOD /path` of no listed route.
    pub action: Option<ActionName>,
    /// `true`: only refused uses; `false`: only the others.
    pub refused: Option<bool>,
    /// Uses from this time on.
    #[serde(with = "clock::rfc3339::option")]
    pub since: Option<Micros>,
    /// Uses before this time.
    #[serde(with = "clock::rfc3339::option")]
    pub until: Option<Micros>,
}

/// Page of the uses of a key, newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsePage {
    /// The uses. Where matching ones are rare, there may be fewer than the limit, or none, although more follow.
    #[serde(flatten)]
    pub page: Page<Record>,
    /// The name of this gateway.
    pub gateway: String,
    /// Whose records these are; `None`: this gateway's, and no others are configured to be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view: Option<ViewStatus>,
    /// Explanation of the id that was asked for, which no record has; only of a first page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<MissingRecord>,
}

/// Activity of some keys in the last day.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActivityReport {
    /// The activity of each key.
    pub keys: BTreeMap<KeyId, Activity>,
    /// The name of this gateway.
    pub gateway: String,
    /// As in [`UsePage`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view: Option<ViewStatus>,
}

/// Activity of a key in the last day.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activity {
    /// The 23 hours before the current one, oldest first, then the current hour.
    pub hours: Vec<HourlyActivity>,
    /// The last use that was admitted, however long ago, as far as the journal reaches.
    pub last: Option<LastUse>,
    /// The last attempt, admitted or refused, as far.
    pub last_attempt: Option<LastUse>,
}

/// Reads the uses of all gateways from here on; `None`: those of this gateway.
pub fn set_fleet(management: &Management, fleet: Option<Fleet>) {
    management.view.set_fleet(fleet);
}

/// Lists the uses of a key, newest first, a page at a time.
///
/// # Errors
/// [`ManagementError::NoKey`], [`ManagementError::Cursor`], [`ManagementError::JournalUnreadable`],
/// [`ManagementError::TooManyReads`].
pub async fn list_uses(
    management: &Management,
    actor: &Actor,
    key: KeyId,
    filter: UseFilter,
    page: &PageQuery,
    now: Micros,
) -> Result<UsePage, ManagementError> {
    authorize(management, actor, Access::Key(key, TokenScope::UsageRead), now).await?;
    let UseFilter { outcome, action, refused, since, until } = filter;
    let query = ("uses", key, filter);
    let kind = Some(RecordKind::Request);
    let filter = Filter { key: Some(key), outcome, action, refused, since, until, kind, ..Filter::default() };
    page_of_records(management, actor, &query, filter, page).await
}

/// A page of the records of a filter, newest first. `query` is what its cursors are bound to.
pub(super) async fn page_of_records(
    management: &Management,
    actor: &Actor,
    query: &(impl Serialize + Sync),
    filter: Filter,
    page: &PageQuery,
) -> Result<UsePage, ManagementError> {
    // Each gateway has a journal of its own, in which the positions of another one mean nothing; a place in the
    // order of the records of all gateways is the same at each of them.
    let own = cursor_sealer(management, &(query, &management.gateway)).await?;
    let fleet = cursor_sealer(management, query).await?;
    let cursor = page.cursor.as_deref();
    let before = match own.open::<JournalWalk>(cursor) {
        Ok(walk) => walk.map(ViewCursor::Journal),
        Err(_) => fleet.open::<RecordPlace>(cursor)?.map(ViewCursor::Fleet),
    };
    let limit = page.limit.get();
    let read = move |view: &AuditView| view.list(&filter, limit, before, MAX_BYTES_PER_PAGE);
    let ViewPage { records: items, next, status: view, missing } = read_audit(management, actor, read).await?;
    let page = match next {
        None => Page { items, next: None },
        Some(ViewCursor::Journal(walk)) => own.seal(Page { items, next: Some(walk) })?,
        Some(ViewCursor::Fleet(place)) => fleet.seal(Page { items, next: Some(place) })?,
    };
    Ok(UsePage { page, gateway: management.gateway.clone(), view, missing })
}

/// Reports the activity of these keys of an organization, at most 200, in the last day.
///
/// # Errors
/// [`ManagementError::TooManyKeyIds`], [`ManagementError::NoOrg`], [`ManagementError::JournalUnreadable`]; for
/// signed-in users [`ManagementError::NoKey`].
pub async fn key_activity(
    management: &Management,
    actor: &Actor,
    org: &str,
    keys: Vec<KeyId>,
    now: Micros,
) -> Result<ActivityReport, ManagementError> {
    authorize(management, actor, Access::Keys { org, keys: &keys }, now).await?;
    operands::check_key_count(&keys)?;
    let org = find_org(management, org).await?.id;
    let read = move |view: &AuditView| view.activity(org, &keys, now, MAX_BYTES_PER_PAGE);
    let ViewActivity { keys, status } = read_audit(management, actor, read).await?;
    let keys = keys.into_iter().map(|(key, activity)| (key, activity.into())).collect();
    Ok(ActivityReport { keys, gateway: management.gateway.clone(), view: status })
}

/// Reads the audit on a blocking thread, when it is the turn of the actor. Dropping the future leaves the queue, or
/// stops the read. The permit goes with the read: as long as it costs, it counts.
pub(super) async fn read_audit<T: Send + 'static>(
    management: &Management,
    actor: &Actor,
    read: impl FnOnce(&AuditView) -> io::Result<T> + Send + 'static,
) -> Result<T, ManagementError> {
    let permit = management.reads.acquire(actor.person()).await?;
    let stop = StopSignal::default();
    let _stop = stop.on_drop();
    let view = management.view.clone().with_stop(stop);
    let reading = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        read(&view)
    });
    match reading.await {
        Ok(read) => read.map_err(ManagementError::JournalUnreadable),
        Err(_) => Err(ManagementError::JournalUnreadable(io::Error::other("the read did not finish"))),
    }
}

impl From<KeyActivity> for Activity {
    fn from(activity: KeyActivity) -> Self {
        let KeyActivity { hours, last, last_attempt } = activity;
        Self { hours: hours.to_vec(), last, last_attempt }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use futures_util::FutureExt as _;

    use super::*;
    use domain::quota::Quota;
    use journal::audit::{self, Durability, Journal, LowWater, OnUnavailable};
    use platform::metrics::Metrics;
    use state::State;
    use state::embedded::{self, Embedded};

    pub(in crate::management) const OPERATOR: &Actor = &Actor::operator(crate::management::UnixUser::ROOT);

    /// Management of new stores in a directory.
    pub(in crate::management) fn management(directory: &std::path::Path) -> Management {
        let metrics = Metrics::new();
        let state = embedded::Settings {
            path: directory.join("state.db"),
            quota: Quota::DEFAULT,
            concurrent: 100,
            plans: state::LimitPlans::NONE,
        };
        let settings = audit::Settings {
            path: directory.join("audit"),
            durability: Durability::Written,
            on_unavailable: OnUnavailable::Refuse,
            segment_size: 1 << 20,
            segment_age: Duration::from_secs(3600),
            retention_age: None,
            retention_size: None,
            retention_by_volume: false,
            retention_unshipped: 0,
            low_water: LowWater::Percent(10),
            unknown_per_second: 10,
            addresses: journal::audit::Addresses::Full,
            refusals: journal::audit::RefusalRecords::Coalesced,
            checkpoints: None,
            gateway: "gateway-1".into(),
        };
        let journal = Journal::open(settings.clone(), metrics.audit.clone()).unwrap();
        Management::new(Arc::new(State::Embedded(Embedded::open(&state).unwrap())), journal, &settings, &metrics.state)
    }

    /// The first page of the uses of a key: a read of the whole journal, whose index is not built yet.
    fn list<'a>(management: &'a Management, who: &'a Actor) -> impl Future<Output = Result<(), ManagementError>> + 'a {
        let reads = move |view: &AuditView| view.list(&Filter::default(), 1, None, u64::MAX).map(drop);
        read_audit(management, who, reads)
    }

    #[tokio::test]
    async fn abandoned_read_stops_and_leaves_the_queue() {
        let directory = tempfile::tempdir().unwrap();
        let management = management(directory.path());
        let (began, begun) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel();
        let read = move |view: &AuditView| {
            began.send(()).unwrap();
            // As a read of many blocks: each is checked for the signal.
            let stopped =
                std::iter::repeat_with(|| view.list(&Filter::default(), 1, None, u64::MAX)).find(Result::is_err);
            end.send(stopped).unwrap();
            Ok(())
        };
        let mut reading = Box::pin(read_audit(&management, OPERATOR, read));
        let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(list(&management, OPERATOR))).collect();
        assert!((&mut reading).now_or_never().is_none());
        begun.recv().unwrap();
        for read in &mut waiting {
            assert!(read.now_or_never().is_none(), "one read at a time for each person");
        }
        drop(reading);
        assert_eq!(ended.recv().unwrap().unwrap().unwrap_err().kind(), io::ErrorKind::Interrupted);
        let mut last = waiting.pop().unwrap();
        drop(waiting);
        (&mut last).await.unwrap();
    }
}
