//! The table of keys.

use std::cmp::Reverse;

use super::{HandlerResult, PageContext, render};
use crate::clock::Micros;
use crate::dashboard::error::DashboardError;
use crate::dashboard::pages::{
    ActivityChart, AttemptCell, HourCounts, KeyFilter, KeyRow, KeyState, KeysPage, LastUseCell, NavEntry, OutcomeText,
    Paging, UseSource, link,
};
use crate::key::KeyId;
use crate::management::{Activity, ActivityReport, Hour, Key, KeyStatus};

/// Keys on a page.
const PAGE_SIZE: usize = 25;
/// Characters of a search text that are used.
const SEARCH_LENGTH: usize = 100;

impl PageContext<'_> {
    pub(super) async fn list_keys(&self) -> HandlerResult {
        let keys = self.management.list_keys(&self.actor, &self.org(), self.request.now).await?;
        let total = keys.len() as u64;
        let filter = self.key_filter();
        let mut matching: Vec<Key> = keys.into_iter().filter(|key| is_match(key, &filter)).collect();
        // Active keys first, and of equal state the newest: both sorts are stable.
        matching.sort_by_key(|key| Reverse(key.created));
        matching.sort_by_key(|key| key_state(key) != KeyState::Active);
        let paging = self.paging(matching.len() as u64, &filter);
        let from = usize::try_from(paging.page - 1).unwrap_or(0).saturating_mul(PAGE_SIZE);
        let shown: Vec<&Key> = matching.iter().skip(from).take(PAGE_SIZE).collect();
        let report = self.key_activity(shown.iter().map(|key| key.id).collect()).await?;
        let rows = shown.into_iter().map(|key| self.key_row(key, report.as_ref())).collect();
        render(&KeysPage {
            layout: self.layout(NavEntry::Keys).await?,
            all_owners: self.user.is_admin(),
            suspended: self.user.org.suspended,
            rows,
            filter,
            matching: matching.len() as u64,
            total,
            paging,
            gateway: report.map(|report| report.gateway),
        })
    }

    fn key_filter(&self) -> KeyFilter {
        let text = self.request.parameter("q").unwrap_or_default().trim().chars().take(SEARCH_LENGTH).collect();
        KeyFilter { text, state: self.request.parameter("state").and_then(KeyState::from_name) }
    }

    fn paging(&self, matching: u64, filter: &KeyFilter) -> Paging {
        let (path, state) = (format!("{}/keys", self.base), filter.state.map_or("", |state| state.name()));
        let href = |page: u64| {
            let page = if page == 1 { String::new() } else { page.to_string() };
            link(&path, &[("q", &filter.text), ("state", state), ("page", &page)])
        };
        Paging::new(self.page_number(), matching, PAGE_SIZE as u64, href)
    }

    /// The activity of keys in the last day; `None` when the journal cannot be read.
    pub(super) async fn key_activity(&self, keys: Vec<KeyId>) -> Result<Option<ActivityReport>, DashboardError> {
        let report = self.management.key_activity(&self.actor, &self.org(), keys, self.request.now).await;
        Ok(self.if_readable(report, "the activity of keys")?)
    }

    fn key_row(&self, key: &Key, report: Option<&ActivityReport>) -> KeyRow {
        let activity = report.and_then(|report| report.keys.get(&key.id));
        KeyRow {
            id: key.id.to_string(),
            name: key.name.clone(),
            owner: key.email.clone(),
            is_own: key.user == self.user.user.id,
            created: self.timestamp(key.created),
            last_use: self.last_use(key, activity),
            refused_attempt: self.refused_attempt(activity),
            state: key_state(key),
            marks: key.marks.iter().map(|mark| mark.text()).collect(),
            activity: activity.map(activity_chart),
        }
    }

    /// The last attempt to use a key, as this gateway's journal recorded it, when it was refused.
    pub(super) fn refused_attempt(&self, activity: Option<&Activity>) -> Option<AttemptCell> {
        let attempt = activity?.last_attempt.as_ref().filter(|attempt| attempt.outcome.is_refusal())?;
        Some(AttemptCell {
            time: self.timestamp(attempt.time),
            outcome: OutcomeText::from_name(attempt.outcome.name())?,
            ip: attempt.ip.map(|ip| ip.to_string()).unwrap_or_default(),
        })
    }

    /// The last use of a key. Its time is the state's, which counts the uses at all gateways; address and user agent
    /// are shown when this gateway's journal recorded that same use.
    pub(super) fn last_use(&self, key: &Key, activity: Option<&Activity>) -> Option<LastUseCell> {
        let time = key.last_used?;
        let recorded = activity.and_then(|activity| activity.last.as_ref());
        let source = recorded.filter(|last| is_same_use(last.time, time)).map(|last| UseSource {
            ip: last.ip.map(|ip| ip.to_string()).unwrap_or_default(),
            user_agent: last.user_agent.clone(),
        });
        Some(LastUseCell { time: self.timestamp(time), source })
    }
}

/// The chart of a key's last 24 hours.
pub(super) fn activity_chart(activity: &Activity) -> ActivityChart {
    let counts = |hour: &Hour| HourCounts { start: hour.start, requests: hour.requests, refusals: hour.refusals };
    ActivityChart::new(&activity.hours.iter().map(counts).collect::<Vec<_>>())
}

/// Returns `true` if the journal's last use is the state's last use. Their clocks may differ: with Redis, the state's
/// time is Redis's own.
fn is_same_use(recorded: Micros, counted: Micros) -> bool {
    /// Largest difference between the clocks of a gateway and its Redis, in microseconds.
    const MAX_SKEW_US: u64 = 2_000_000;
    recorded.since(counted).max(counted.since(recorded)) <= MAX_SKEW_US
}

pub(super) fn key_state(key: &Key) -> KeyState {
    match key.status {
        KeyStatus::Active => KeyState::Active,
        KeyStatus::Revoked => KeyState::Revoked,
        KeyStatus::UserRemoved => KeyState::OwnerRemoved,
        KeyStatus::OrgSuspended => KeyState::OrgSuspended,
    }
}

/// Returns `true` if a key matches a filter. Names and email addresses are compared without case, key ids with it.
fn is_match(key: &Key, filter: &KeyFilter) -> bool {
    let text = filter.text.to_lowercase();
    let contains = |field: &str| field.to_lowercase().contains(&text);
    let text_matches =
        text.is_empty() || contains(&key.name) || contains(&key.email) || key.id.to_string().contains(&filter.text);
    text_matches && filter.state.is_none_or(|state| state == key_state(key))
}
