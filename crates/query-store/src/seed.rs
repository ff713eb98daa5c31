//! Sample queries, such as a team of analysts might have stored. Each run stores the same ones, under new ids.
//!
//! Ten measures in five periods by five dimensions make 250 different queries; beyond that they repeat with a number.

use std::time::Duration;

use crate::query::QueryDraft;
use crate::service::{Caller, QueryService};
use crate::store::StoreError;
use domain::clock::Micros;

/// Time between the creation of two queries: 250 of them reach back a little over six days.
const SPACING: Duration = Duration::from_secs(37 * 60);
/// Queries per transaction: all of a demo, yet few enough that a running service does not notice.
const BATCH: usize = 1000;

/// Measures: name, table, expression, condition.
const MEASURES: [(&str, &str, &str, &str); 10] = [
    ("Revenue", "orders", "sum(total_cents) / 100.0", "status = 'paid'"),
    ("Orders", "orders", "count(*)", "status <> 'cancelled'"),
    ("Average basket", "orders", "avg(total_cents) / 100.0", "status = 'paid'"),
    ("Refunds", "refunds", "sum(amount_cents) / 100.0", "approved"),
    ("New customers", "customers", "count(*)", "verified_at IS NOT NULL"),
    ("Active users", "events", "count(DISTINCT user_id)", "kind = 'session_start'"),
    ("Failed payments", "payments", "count(*)", "state = 'failed'"),
    ("Support tickets", "tickets", "count(*)", "NOT spam"),
    ("Median time to ship", "shipments", "percentile_cont(0.5) WITHIN GROUP (ORDER BY hours)", "delivered"),
    ("Churned subscriptions", "subscriptions", "count(*)", "ended_reason = 'cancelled'"),
];

/// Periods: name, beginning.
const PERIODS: [(&str, &str); 5] = [
    ("today", "current_date"),
    ("last 7 days", "current_date - interval '7 days'"),
    ("last 30 days", "current_date - interval '30 days'"),
    ("this quarter", "date_trunc('quarter', current_date)"),
    ("this year", "date_trunc('year', current_date)"),
];

/// Dimensions: name, column.
const DIMENSIONS: [(&str, &str); 5] = [
    ("country", "country"),
    ("channel", "acquisition_channel"),
    ("plan", "plan"),
    ("device", "device_kind"),
    ("weekday", "extract(isodow FROM created_at)"),
];

/// Stores the first `count` sample queries, oldest first, with creation times in the days before `now`.
/// Existing queries stay.
///
/// # Errors
/// [`StoreError`]. Queries are stored in batches of 1000, each as a whole or not at all.
pub async fn seed(service: &QueryService, caller: Caller, count: u32, now: Micros) -> Result<(), StoreError> {
    let created = |number| now.before(SPACING.saturating_mul(count - 1 - number));
    for first in (0..count).step_by(BATCH) {
        let batch = (first..count).take(BATCH).map(|number| (draft(number), created(number))).collect();
        service.store().import(caller.org, caller.user, batch).await?;
    }
    Ok(())
}

/// The sample query of a number.
fn draft(number: u32) -> QueryDraft {
    let number = usize::try_from(number).expect("32 bits are an index");
    let (measure, table, expression, condition) = MEASURES[number % MEASURES.len()];
    let rest = number / MEASURES.len();
    let (dimension, column) = DIMENSIONS[rest % DIMENSIONS.len()];
    let rest = rest / DIMENSIONS.len();
    let (period, since) = PERIODS[rest % PERIODS.len()];
    let repeat = match rest / PERIODS.len() {
        0 => String::new(),
        repeat => format!(" ({})", repeat + 1),
    };
    let sql = format!(
        "SELECT {column} AS {dimension}, {expression} AS value\nFROM {table}\n\
         WHERE {condition}\n  AND created_at >= {since}\nGROUP BY 1\nORDER BY value DESC"
    );
    QueryDraft::new(format!("{measure} by {dimension}, {period}{repeat}"), sql)
        .expect("the parts above make valid drafts")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn two_hundred_and_fifty_queries_differ_in_name_and_text() {
        let names: HashSet<String> = (0..1000).map(|number| draft(number).name().to_owned()).collect();
        let texts: HashSet<String> = (0..250).map(|number| draft(number).sql().to_owned()).collect();
        assert_eq!((names.len(), texts.len()), (1000, 250));
        assert_eq!(draft(0).name(), "Revenue by country, today");
        assert_eq!(draft(250).name(), "Revenue by country, today (2)");
    }
}
