//! Usage and audit records, as a gateway elsewhere has them.

use http::Method;
use serde_json::{Value, json};

use super::answer;
use super::args::RemoteServer;
use super::calls::{Call, ReplyOf};
use super::client::{LONG_TIMEOUT, Remote};
use crate::cli::CliError;
use crate::cli::control::{self, Cursors};
use ::control::management::{UsageScope, UsageSummary, UsePage};
use domain::page::PageLimit;
use journal::audit::{Filter, Record, RecordKind, UsageQuery, ViewStatus};

/// Adds usage up.
pub(in crate::cli) fn usage(
    server: &RemoteServer,
    query: UsageQuery,
    scope: Option<UsageScope>,
) -> Result<UsageSummary, CliError> {
    let UsageQuery { by, per, since, until, by_gateway, org } = query;
    let time = |time: Option<domain::clock::Micros>| time.map(|time| time.to_string());
    let members = json!({
        "by": by, "per": per, "since": time(since), "until": time(until), "org": org,
        "by_gateway": by_gateway.then_some(true), "scope": scope,
    });
    control::runtime()?.block_on(async { read(&mut Remote::new(server), "usage", members).await })
}

/// Lists up to `limit` records, newest first, and whose they are.
pub(in crate::cli) fn records(
    server: &RemoteServer,
    filter: &Filter,
    limit: usize,
) -> Result<(Vec<Record>, Option<ViewStatus>), CliError> {
    let mut remote = Remote::new(server);
    let mut records = Vec::new();
    let mut cursor = None;
    let mut cursors = Cursors::default();
    control::runtime()?.block_on(async {
        loop {
            let mut members = members(filter);
            members["limit"] = json!(PageLimit::of(limit - records.len()));
            members["cursor"] = json!(cursor);
            let page: UsePage = read(&mut remote, "audit", members).await?;
            records.extend(page.page.items);
            let Some(next) = page.page.next.filter(|_| records.len() < limit) else { return Ok((records, page.view)) };
            cursor = Some(cursors.add(next)?);
        }
    })
}

/// The parameters of a filter.
fn members(filter: &Filter) -> Value {
    let Filter { key, user, subject, org, since, until, id, outcome, kind, refused, token } = *filter;
    let kind = kind.map(|kind| match kind {
        RecordKind::Request => "request",
        RecordKind::Change => "change",
    });
    let [since, until] = [since, until].map(|time| time.map(|time| time.to_string()));
    json!({
        "key": key, "user": user, "subject": subject, "org": org, "since": since, "until": until, "id": id,
        "outcome": outcome, "kind": kind, "refused": refused, "token": token,
    })
}

async fn read<T: serde::de::DeserializeOwned>(
    remote: &mut Remote<'_>,
    path: &str,
    members: Value,
) -> Result<T, CliError> {
    let Value::Object(members) = members else { unreachable!("they are an object") };
    let call = Call::new(Method::GET, path, members, ReplyOf::List("records"));
    answer::parse(&remote.send(&call, LONG_TIMEOUT).await?)
}
