//! The table of keys.

use std::collections::BTreeMap;

use super::super::error::DashboardError;
use super::super::pages::{
    self, ActivityChart, HourCounts, KeyFilter, KeyRow, KeyState, KeysPage, LastUseCell, NavEntry, Paging, UseSource,
    link,
};
use super::super::response::DashboardResponse;
use super::{PageContext, page};
use crate::clock::Micros;
use crate::key::KeyId;
use crate::management::{self, Key, KeyStatus, Operation, Reply};

/// Keys on a page.
const PAGE: usize = 25;

/// What some keys did lately, and the gateway that recorded it.
pub(super) struct Lately {
    pub(super) keys: BTreeMap<KeyId, management::Activity>,
    pub(super) gateway: String,
}

impl PageContext<'_> {
    pub(super) async fn keys(&self) -> Result<DashboardResponse, DashboardError> {
        let Reply::Keys { keys } = self.perform(Operation::ListKeys { org: self.org() }).await? else {
            return Err(DashboardError::Internal);
        };
        let filter = self.filter();
        let total = keys.len() as u64;
        let mut found: Vec<Key> = keys.into_iter().filter(|key| is_found(key, &filter)).collect();
        // What works comes first, and of that the newest.
        found.sort_by(|a, b| b.created.cmp(&a.created));
        found.sort_by_key(|key| state(key) != KeyState::Active);
        let paging = self.paging(found.len() as u64, &filter);
        let from = usize::try_from(paging.page - 1).unwrap_or(0).saturating_mul(PAGE);
        let shown: Vec<&Key> = found.iter().skip(from).take(PAGE).collect();
        let lately = self.activity(shown.iter().map(|key| key.id).collect()).await?;
        let rows = shown.into_iter().map(|key| self.row(key, lately.as_ref())).collect();
        page(&KeysPage {
            layout: self.layout(NavEntry::Keys).await?,
            all: self.person.is_admin(),
            suspended: self.person.org.suspended,
            rows,
            filter,
            found: found.len() as u64,
            total,
            paging,
            gateway: lately.map(|lately| lately.gateway),
        })
    }

    fn filter(&self) -> KeyFilter {
        let text = self.request.parameter("q").unwrap_or_default().trim().chars().take(100).collect();
        KeyFilter { text, state: self.request.parameter("state").and_then(KeyState::named) }
    }

    fn paging(&self, found: u64, filter: &KeyFilter) -> Paging {
        let asked = self.request.parameter("page").and_then(|page| page.parse().ok()).unwrap_or(1);
        let (path, state) = (format!("{}/keys", self.base), filter.state.map_or("", |state| state.name()));
        let address = |page: u64| {
            let page = if page == 1 { String::new() } else { page.to_string() };
            link(&path, &[("q", &filter.text), ("state", state), ("page", &page)])
        };
        Paging::of(asked, found, PAGE as u64, address)
    }

    /// What happened with these keys lately; none when the journal cannot be read.
    pub(super) async fn activity(&self, keys: Vec<KeyId>) -> Result<Option<Lately>, DashboardError> {
        let asked = self.perform(Operation::Activity { org: self.org(), keys }).await;
        match self.if_readable(asked, "the activity of keys")? {
            Some(Reply::Activity { keys, gateway }) => Ok(Some(Lately { keys, gateway })),
            Some(_) => Err(DashboardError::Internal),
            None => Ok(None),
        }
    }

    fn row(&self, key: &Key, lately: Option<&Lately>) -> KeyRow {
        let activity = lately.and_then(|lately| lately.keys.get(&key.id));
        KeyRow {
            id: key.id.to_string(),
            name: key.name.clone(),
            owner: key.email.clone(),
            own: key.user == self.person.user.id,
            created: self.when(key.created),
            last_use: self.last_use(key, activity),
            state: state(key),
            activity: activity.map(day),
        }
    }

    /// The last use. The state knows when it was; the journal of this gateway may know more of it.
    pub(super) fn last_use(&self, key: &Key, activity: Option<&management::Activity>) -> Option<LastUseCell> {
        let time = key.last_used?;
        let recorded = activity.and_then(|activity| activity.last.as_ref());
        let details = recorded.filter(|last| is_same_use(last.time, time)).map(|last| UseSource {
            ip: last.ip.map(|ip| ip.to_string()).unwrap_or_default(),
            user_agent: last.user_agent.clone(),
        });
        Some(LastUseCell { when: self.when(time), details })
    }
}

/// The last 24 hours of a key.
pub(super) fn day(activity: &management::Activity) -> ActivityChart {
    let hour =
        |hour: &management::Hour| HourCounts { start: hour.start, requests: hour.requests, refusals: hour.refusals };
    ActivityChart::of(&activity.hours.iter().map(hour).collect::<Vec<_>>())
}

/// Whether the journal's last use is the state's, whose clock may be another one.
fn is_same_use(recorded: Micros, known: Micros) -> bool {
    /// How far the clocks of a gateway and its Redis may be apart.
    const APART_US: u64 = 2_000_000;
    recorded.since(known).max(known.since(recorded)) <= APART_US
}

pub(super) fn state(key: &Key) -> pages::KeyState {
    match key.status {
        KeyStatus::Active => KeyState::Active,
        KeyStatus::Revoked => KeyState::Revoked,
        KeyStatus::UserRemoved => KeyState::OwnerRemoved,
        KeyStatus::OrgSuspended => KeyState::OrgSuspended,
    }
}

fn is_found(key: &Key, filter: &KeyFilter) -> bool {
    let text = filter.text.to_lowercase();
    let holds = |field: &str| field.to_lowercase().contains(&text);
    let named = text.is_empty() || holds(&key.name) || holds(&key.email) || key.id.to_string().contains(&filter.text);
    named && filter.state.is_none_or(|wanted| wanted == state(key))
}
