//! Check of plans and limits: keys, users and organizations that were given a plan which the configuration does not
//! have, and keys whose own burst is below the cost of a route.
//!
//! - Requests of such keys get `limits.key`: a plan that was removed too early, or a file that a gateway has not yet.
//! - The records are read over the API, page by page. An installation without plans is not read.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;
use tokio::net::UnixStream;

use super::client;
use super::environment::Environment;
use super::finding::Findings;
use crate::config::Config;
use control::admin::API_PATH;
use domain::counted::counted;
use domain::page::Page;
use domain::plan_name::PlanName;
use state::LimitPlans;

/// Metric of decisions about keys of missing plans.
const METRIC: &str = "keygate_missing_plan_decisions_total";
/// Pages that the check reads at most: those of 100,000 records.
const MAX_PAGES: usize = 1000;
/// Records that a finding names.
const NAMED: usize = 20;

/// A record whose plan the configuration does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingPlan {
    /// The plan.
    pub plan: PlanName,
    /// The record in words, such as "key aB3xYz123 of acme".
    pub record: String,
}

impl fmt::Display for MissingPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} has the plan {}, which `plans` does not have", self.record, self.plan)
    }
}

/// A key whose own burst is below the cost of a route, which it can never call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SmallBurst {
    /// The key in words, such as "key aB3xYz123 of acme".
    pub record: String,
    /// Its burst.
    pub burst: u64,
}

impl fmt::Display for SmallBurst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} has a burst of its own of {}, below the cost of a route", self.record, self.burst)
    }
}

/// Records that no configuration of today would make so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OddLimits {
    /// Those of missing plans.
    pub missing: Vec<MissingPlan>,
    /// Those whose own burst is too small.
    pub small: Vec<SmallBurst>,
}

/// Finds records whose plan is none of `plans`: organizations, users and keys that are not revoked; and keys whose own
/// burst is below `largest_cost`. `fetch` reads the page of a list behind a cursor; the list is named by its path below
/// that of the API.
///
/// # Errors
/// Those of `fetch`.
pub async fn find_odd_limits<E>(
    plans: &LimitPlans,
    largest_cost: u32,
    mut fetch: impl AsyncFnMut(&[&str], Option<String>) -> Result<Page<Value>, E>,
) -> Result<OddLimits, E> {
    let OddLimits { mut missing, mut small } = OddLimits::default();
    let mut add = |record: &Value, words: String| {
        let plan = record["plan"].as_str().and_then(|plan| plan.parse().ok());
        missing.extend(plan.filter(|plan| !plans.contains(plan)).map(|plan| MissingPlan { plan, record: words }));
    };
    let mut orgs = Vec::new();
    read_pages(&mut fetch, &["orgs"], |org| orgs.push(org)).await?;
    for org in orgs {
        let (id, name) = (text(&org, "id"), text(&org, "name"));
        add(&org, format!("organization {name}"));
        read_pages(&mut fetch, &["orgs", id, "users"], |user| {
            if user["removed"].is_null() {
                add(&user, format!("user {} of {name}", text(&user, "email")));
            }
        })
        .await?;
        read_pages(&mut fetch, &["orgs", id, "keys"], |key| {
            if key["revoked"].is_null() {
                let words = format!("key {} of {name}", text(&key, "id"));
                let limits = &key["limits"];
                let own = limits["burst"].as_u64().filter(|_| limits["own"] == true);
                if let Some(burst) = own.filter(|burst| *burst < u64::from(largest_cost)) {
                    small.push(SmallBurst { record: words.clone(), burst });
                }
                add(&key, words);
            }
        })
        .await?;
    }
    Ok(OddLimits { missing, small })
}

/// Reads all pages of a list.
async fn read_pages<E>(
    fetch: &mut impl AsyncFnMut(&[&str], Option<String>) -> Result<Page<Value>, E>,
    path: &[&str],
    mut each: impl FnMut(Value),
) -> Result<(), E> {
    let mut cursor = None;
    loop {
        let Page { items, next } = fetch(path, cursor).await?;
        items.into_iter().for_each(&mut each);
        if next.is_none() {
            return Ok(());
        }
        cursor = next;
    }
}

fn text<'a>(record: &'a Value, name: &str) -> &'a str {
    record[name].as_str().unwrap_or_default()
}

/// Looks for such records, if there are plans, decisions about missing ones, or routes that cost several tokens.
pub(super) async fn check(environment: &Environment, findings: &mut Findings) {
    let Ok(gateway) = &environment.gateway else { return };
    let plans = environment.config.state.defaults().plans;
    let decisions = gateway.metric(METRIC).unwrap_or(0.0);
    if plans.names().next().is_none() && decisions == 0.0 && environment.config.largest_cost() == 1 {
        return;
    }
    match read_from_socket(&environment.config, &plans).await {
        Ok(odd) => judge(&odd, findings),
        Err(error) => findings.note("plans", format!("cannot be looked at: {error}"), "see `keygate check --state`"),
    }
}

async fn read_from_socket(config: &Config, plans: &LimitPlans) -> Result<OddLimits, String> {
    let mut pages = 0;
    find_odd_limits(plans, config.largest_cost(), async |path, cursor| {
        pages += 1;
        if pages > MAX_PAGES {
            return Err(format!("there are more than {}", counted(&(MAX_PAGES as u64 * 100), "record")));
        }
        let stream = UnixStream::connect(&config.admin.socket).await.map_err(|error| error.to_string())?;
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("limit", "100").extend_pairs(cursor.iter().map(|cursor| ("cursor", cursor)));
        // Names of lists and ids, which need no encoding.
        let target = format!("{API_PATH}/{}?{}", path.join("/"), query.finish());
        let (status, body) = client::get(stream, "keygate", &target).await.map_err(|error| client::in_full(&error))?;
        serde_json::from_slice(&body).map_err(|_| format!("the admin socket answers {status}"))
    })
    .await
}

/// Adds a finding for each missing plan, and one for small bursts.
fn judge(OddLimits { missing, small }: &OddLimits, findings: &mut Findings) {
    let mut by_plan: BTreeMap<&PlanName, Vec<&str>> = BTreeMap::new();
    for MissingPlan { plan, record } in missing {
        by_plan.entry(plan).or_default().push(record);
    }
    if !small.is_empty() {
        let keys: Vec<&str> = small.iter().map(|key| &*key.record).collect();
        let found =
            format!("a route costs more than the burst of their own of {}: 403 `cost_over_limit`", named(&keys));
        findings.warning(
            "limits of keys",
            found,
            "raise them by `keygate key limits`, or lower the `cost` of the route",
        );
    }
    if by_plan.is_empty() {
        findings.ok("plans", "the configuration has all that records name");
    }
    for (plan, records) in by_plan {
        let found = format!("`plans` does not have it, and `limits.key` holds for {}", named(&records));
        let advice = "add the plan to the configuration, or give these another one with --plan; \
                      `keygate check --state` lists all";
        findings.warning(format!("plan {plan}"), found, advice);
    }
}

/// The first of these records, and how many more there are.
fn named(records: &[&str]) -> String {
    let more = records.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    format!("{}{more}", records[..records.len().min(NAMED)].join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::finding::Severity::Warning;
    use super::*;

    #[tokio::test]
    async fn records_of_odd_limits_are_found_on_all_pages() {
        let plan = |_: &str| state::LimitPlan { quota: domain::quota::Quota::DEFAULT, concurrent: None, budget: None };
        let plans = ["free"].map(|name| (name.parse().unwrap(), plan(name)));
        let plans = LimitPlans::new(plans.into(), None);
        let fetch = async |path: &[&str], cursor: Option<String>| {
            let (items, next) = match (path, cursor.as_deref()) {
                (["orgs"], None) => (json!([{ "id": "org_1", "name": "acme", "plan": "gone" }]), None),
                ([.., "users"], None) => (
                    json!([{ "email": "a", "plan": "free" }, { "email": "b", "removed": "2030", "plan": "gone" }]),
                    None,
                ),
                ([.., "keys"], None) => (
                    json!([
                        { "id": "one", "revoked": null, "limits": { "burst": 3, "own": true } },
                        { "id": "six", "limits": { "burst": 3, "own": false } },
                        { "id": "ten", "revoked": "2030", "limits": { "burst": 3, "own": true } },
                    ]),
                    Some("next".to_owned()),
                ),
                ([.., "keys"], Some("next")) => (json!([{ "id": "two", "plan": "gone" }]), None),
                other => panic!("{other:?}"),
            };
            Ok::<_, String>(Page { items: items.as_array().unwrap().clone(), next })
        };
        let odd = find_odd_limits(&plans, 4, fetch).await.unwrap();
        let texts: Vec<&str> = odd.missing.iter().map(|missing| &*missing.record).collect();
        assert_eq!(texts, ["organization acme", "key two of acme"]);
        assert_eq!(odd.small, [SmallBurst { record: "key one of acme".to_owned(), burst: 3 }]);
        let mut findings = Findings::new("plans");
        judge(&odd, &mut findings);
        let problems = ["limits of keys", "plan gone"].map(|name| (Warning, name.to_owned()));
        assert_eq!(findings.problems(), problems);
    }
}
