//! The block `plans`: limits under names, which keys, users and organizations are given.

use super::limits::{self, Plans};
use domain::budget::{Budget, MAX_UNITS, Period, Spender};
use domain::plan_name::PlanName;
use domain::quota::Quota;
use platform::settings::{Reported, Section, Value};
use state::LimitPlan;

/// Reads the block `plans` of the file; none without one.
pub(super) fn of_file(file: &mut Section<'_>) -> Result<Plans, Reported> {
    let plans = file.optional("plans", |value| {
        value.named(|name, value| {
            let name = name.parse::<PlanName>().map_err(|error| value.report_key(error))?;
            Ok((name, value.section(plan)?))
        })
    })?;
    Ok(plans.unwrap_or_default().into_iter().collect())
}

/// Reads the budget of a plan.
fn budget(section: &mut Section<'_>) -> Result<Budget, Reported> {
    let units = section.required("units", |value| value.integer(1..=MAX_UNITS));
    let periods = [Period::Day, Period::Month];
    let per = section.required("per", |value| value.name_of("a period", &periods.map(Period::as_str)));
    let spenders = [Spender::Key, Spender::User, Spender::Org];
    let of = section.required("of", |value| value.name_of("whose budget it is", &spenders.map(Spender::as_str)));
    Ok(Budget { units: units?, per: periods[per?], of: spenders[of?] })
}

/// Reads a plan: what it is sold by is written, and never a default that may change.
fn plan(section: &mut Section<'_>) -> Result<LimitPlan, Reported> {
    let missing = ["requests", "per"].into_iter().find(|key| !section.contains(key));
    let missing = missing.map(|key| section.report(key, "is required"));
    let strict = section.value_or("strict", false, Value::boolean);
    let quota = limits::quota(section, Quota { strict, ..Quota::DEFAULT });
    let concurrent = section.optional("concurrent", limits::concurrent)?;
    let budget = section.optional("quota", |value| value.section(budget))?;
    missing.map_or(Ok(LimitPlan { quota, concurrent, budget }), Err)
}
