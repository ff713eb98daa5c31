//! The page of one key.

use std::time::Duration;

use super::super::error::DashboardError;
use super::super::pages::{
    AdmissionFilter, Gauge, KeyLimits, KeyPage, KeyState, LimitUsage, NavEntry, OutcomeText, RefusedUse, UseFilter,
    UseRow, Verdict, link,
};
use super::super::response::DashboardResponse;
use super::keys::{day, state};
use super::{PageContext, page};
use crate::audit::Record;
use crate::key::KeyId;
use crate::management::{self, Explanation, KeyStatus, Operation, Reply, UseQuery};
use crate::settings::WithUnit;

/// Uses on a page.
const PAGE: usize = 20;
/// Refusals that are shown.
const REFUSALS: usize = 5;

/// Some uses of a key, as its gateway recorded them.
#[derive(Default)]
struct Recorded {
    records: Vec<Record>,
    /// Where older ones begin, if there may be any.
    next: Option<String>,
    gateway: String,
}

impl PageContext<'_> {
    /// A key id of an address; one that cannot be is that of no key.
    pub(super) fn key_id(id: &str) -> Result<KeyId, DashboardError> {
        id.parse().map_err(|_| DashboardError::NotFound)
    }

    pub(super) async fn explanation(&self, id: &str) -> Result<Box<Explanation>, DashboardError> {
        match self.perform(Operation::Explain { key: Self::key_id(id)? }).await? {
            Reply::Explanation { explanation } => Ok(explanation),
            _ => Err(DashboardError::Internal),
        }
    }

    pub(super) async fn key(&self, id: &str) -> Result<DashboardResponse, DashboardError> {
        let Explanation { verdict, key, user, org, standing } = *self.explanation(id).await?;
        let lately = self.activity(vec![key.id]).await?;
        let own = lately.as_ref().and_then(|lately| lately.keys.get(&key.id));
        let filter = self.use_filter();
        let before = self.request.parameter("before").map(str::to_owned);
        let wanted = UseQuery { before: before.clone(), limit: Some(PAGE), ..asked(filter) };
        let uses = self.uses(key.id, wanted).await?;
        let refused = UseQuery { refused: Some(true), limit: Some(REFUSALS), ..UseQuery::default() };
        let refusals = self.uses(key.id, refused).await?.unwrap_or_default();
        let address = |filter: UseFilter, before: &str| self.address(&key.id.to_string(), filter, before);
        let gateway = uses.as_ref().map(|uses| uses.gateway.clone());
        let only_refused = UseFilter { show: AdmissionFilter::Refused, outcome: None };
        page(&KeyPage {
            layout: self.layout(NavEntry::Keys).await?,
            id: key.id.to_string(),
            name: key.name.clone(),
            owner: key.email.clone(),
            own: key.user == self.person.user.id,
            permissions: user.permissions.iter().map(ToString::to_string).collect(),
            state: state(&key),
            created: self.when(key.created),
            imported: key.imported,
            last_use: self.last_use(&key, own),
            uses_ever: key.uses,
            rotated: key.rotated.map(|time| self.when(time)),
            previous_until: self.overlap(&key),
            revoked: key.revoked.map(|time| self.when(time)),
            limits: limits(&key, &org),
            standing: (state(&key) != KeyState::Revoked).then(|| self.standing(&standing)),
            verdict: Verdict { admitted: is_admitted(&key, &standing), sentence: verdict },
            activity: own.map(day),
            refusals: refusals.records.iter().map(|record| self.refusal(record)).collect(),
            older_refusals: refusals.next.map(|cursor| address(only_refused, &cursor)),
            older: uses.as_ref().and_then(|uses| uses.next.as_ref()).map(|cursor| address(filter, cursor)),
            uses: uses.map(|uses| uses.records.iter().map(|record| self.use_(record)).collect()),
            filter,
            newer: before.map(|_| address(filter, "")),
            gateway: lately.map(|lately| lately.gateway).or(gateway),
        })
    }

    fn use_filter(&self) -> UseFilter {
        let parameter = |name| self.request.parameter(name).unwrap_or_default();
        let outcome = OutcomeText::named(parameter("outcome"));
        UseFilter { show: AdmissionFilter::named(parameter("show")).unwrap_or(AdmissionFilter::All), outcome }
    }

    fn address(&self, id: &str, filter: UseFilter, before: &str) -> String {
        let outcome = filter.outcome.map_or("", |outcome| outcome.name);
        let query = [("show", filter.show.name()), ("outcome", outcome), ("before", before)];
        format!("{}#uses", link(&format!("{}/keys/{id}", self.base), &query))
    }

    /// Uses; none when the journal cannot be read.
    async fn uses(&self, key: KeyId, uses: UseQuery) -> Result<Option<Recorded>, DashboardError> {
        let asked = self.perform(Operation::ListUses { key, uses }).await;
        match self.if_readable(asked, "what a key was used for")? {
            Some(Reply::Uses { uses, next, gateway }) => Ok(Some(Recorded { records: uses, next, gateway })),
            Some(_) => Err(DashboardError::Internal),
            None => Ok(None),
        }
    }

    /// Until when the secret before the last rotation works, while it does.
    fn overlap(&self, key: &management::Key) -> Option<super::super::pages::Timestamp> {
        let until = key.previous_until.filter(|until| *until > self.request.now)?;
        Some(self.when(until))
    }

    fn standing(&self, standing: &management::LimitStatus) -> LimitUsage {
        LimitUsage {
            bucket: Gauge::of(standing.remaining.into(), standing.burst.into()),
            next: standing.next_token.map(|time| self.when(time)),
            full: standing.full.map(|time| self.when(time)),
            in_flight: Gauge::of(standing.in_flight.into(), standing.concurrent.into()),
        }
    }

    fn refusal(&self, record: &Record) -> RefusedUse {
        RefusedUse {
            when: self.when(record.time),
            outcome: outcome(record),
            status: record.status,
            action: record.action.clone(),
            ip: ip(record),
        }
    }

    fn use_(&self, record: &Record) -> UseRow {
        UseRow {
            when: self.when(record.time),
            action: record.action.clone(),
            status: record.status,
            outcome: outcome(record),
            ip: ip(record),
            user_agent: record.user_agent.clone(),
        }
    }
}

/// What management is asked for.
fn asked(filter: UseFilter) -> UseQuery {
    let refused = match filter.show {
        AdmissionFilter::All => None,
        AdmissionFilter::Admitted => Some(false),
        AdmissionFilter::Refused => Some(true),
    };
    let outcome = filter.outcome.and_then(|outcome| serde_json::from_value(outcome.name.into()).ok());
    UseQuery { refused, outcome, ..UseQuery::default() }
}

fn outcome(record: &Record) -> &'static OutcomeText {
    let name = serde_json::to_value(record.outcome).ok();
    let named = name.as_ref().and_then(serde_json::Value::as_str).and_then(OutcomeText::named);
    named.expect("every outcome has words; a test holds it")
}

fn ip(record: &Record) -> String {
    record.ip.map(|ip| ip.to_string()).unwrap_or_default()
}

fn limits(key: &management::Key, org: &management::Org) -> KeyLimits {
    KeyLimits {
        requests: key.limits.requests.into(),
        per: per(key.limits.per),
        burst: key.limits.burst.into(),
        own: key.limits.own,
        concurrent: org.concurrent_in_force.into(),
    }
}

/// The unit of a usual period as a word; any other period as text, such as `2h`.
fn per(time: Duration) -> String {
    match time.as_secs() {
        1 => "second".to_owned(),
        60 => "minute".to_owned(),
        3600 => "hour".to_owned(),
        86_400 => "day".to_owned(),
        _ => WithUnit::Duration(time).to_string(),
    }
}

fn is_admitted(key: &management::Key, standing: &management::LimitStatus) -> bool {
    key.status == KeyStatus::Active && standing.remaining > 0 && standing.in_flight < standing.concurrent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_has_words() {
        for outcome in crate::audit::Outcome::all() {
            let name = serde_json::to_value(outcome).unwrap();
            let words = OutcomeText::named(name.as_str().unwrap()).unwrap();
            assert_eq!(words.is_refused(), outcome.is_refusal() || words.name == "unknown", "{name}");
        }
    }
}
