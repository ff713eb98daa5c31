//! Usage and audit records, as a gateway elsewhere has them.

use serde::Serialize;
use serde_json::json;

use super::args::RemoteServer;
use super::client::{LONG_TIMEOUT, Remote};
use crate::cli::CliError;
use crate::cli::call::Call;
use crate::cli::control::{self, Cursors};
use ::control::management::{UsageScope, UsageSummary, UsePage};
use domain::clock::Micros;
use domain::page::PageLimit;
use journal::audit::{Filter, RecordKind, UsageQuery, ViewPage};

/// Adds usage up.
pub(in crate::cli) fn usage(
    server: &RemoteServer,
    query: UsageQuery,
    scope: Option<UsageScope>,
) -> Result<UsageSummary, CliError> {
    let UsageQuery { by, per, since, until, by_gateway, org, budget: _ } = query;
    let [since, until] = [since, until].map(text);
    let by_gateway = by_gateway.then_some(true);
    let call = Call::get(&["usage"]).with_query(&json!({
        "by": by, "per": per, "since": since, "until": until, "org": org, "by_gateway": by_gateway, "scope": scope,
    }));
    control::runtime()?.block_on(async { read(&mut Remote::new(server), &call).await })
}

/// Lists up to `limit` records, newest first, and whose they are.
pub(in crate::cli) fn records(server: &RemoteServer, filter: &Filter, limit: usize) -> Result<ViewPage, CliError> {
    let mut remote = Remote::new(server);
    let mut records = Vec::new();
    let mut missing = None;
    let mut cursor = None;
    let mut cursors = Cursors::default();
    control::runtime()?.block_on(async {
        loop {
            let page = json!({ "limit": PageLimit::of(limit - records.len()), "cursor": cursor });
            let call = Call::get(&["audit"]).with_query(&parameters(filter)).with_query(&page);
            let page: UsePage = read(&mut remote, &call).await?;
            records.extend(page.page.items);
            // The first page explains an id, and a later one may have its record all the same. Where records cover the
            // time of the id, it is not searched for in the whole journal: the explanation says how far it was.
            missing = missing.or(page.missing).filter(|_| records.is_empty());
            let is_covered = missing.as_ref().is_some_and(|missing| !missing.records.is_empty());
            let Some(next) = page.page.next.filter(|_| records.len() < limit && !is_covered) else {
                return Ok(ViewPage { records, next: None, status: page.view, missing });
            };
            cursor = Some(cursors.add(next)?);
        }
    })
}

/// The parameters of a filter.
fn parameters(filter: &Filter) -> impl Serialize {
    let Filter { key, user, subject, org, since, until, id, outcome, kind, refused, token, covers: _, action: _ } =
        *filter;
    let kind = kind.map(|kind| match kind {
        RecordKind::Request => "request",
        RecordKind::Change => "change",
    });
    let [since, until] = [since, until].map(text);
    json!({
        "key": key, "user": user, "subject": subject, "org": org, "since": since, "until": until, "id": id,
        "outcome": outcome, "kind": kind, "refused": refused, "token": token,
    })
}

fn text(time: Option<Micros>) -> Option<String> {
    time.map(|time| time.to_string())
}

async fn read<T: serde::de::DeserializeOwned>(remote: &mut Remote<'_>, call: &Call) -> Result<T, CliError> {
    remote.send_within(call, LONG_TIMEOUT).await?.read(call)
}
