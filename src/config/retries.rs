//! The block `upstream.retries`: which failed requests are sent again.

use std::time::Duration;

use platform::settings::{Reported, Section, Value};
use upstream::{RetrySettings, RetryStatuses};

/// Bytes of a body that may be kept at most: each request in flight may hold as many.
const MAX_BODY: u64 = 16 * 1024 * 1024;

/// Reads the block `retries`.
pub(super) fn retries(section: &mut Section<'_>) -> RetrySettings {
    let default = RetrySettings::default();
    let per_try = Duration::from_millis(1)..=Duration::from_hours(1);
    let max_body = section.value_or("max_body", default.max_body as u64, |value| value.size(0..=MAX_BODY));
    RetrySettings {
        budget: section.value_or("budget", default.budget, |value| value.integer(0..=100)),
        attempts: section.value_or("attempts", default.attempts, |value| value.integer(1..=5)),
        per_try_timeout: section.value_or("per_try_timeout", None, |value| value.duration(per_try).map(Some)),
        statuses: section.value_or("statuses", default.statuses, statuses),
        max_body: usize::try_from(max_body).expect("some MiB fit"),
    }
}

fn statuses(value: &Value<'_>) -> Result<RetryStatuses, Reported> {
    let mut statuses = RetryStatuses::default();
    value.list(|item| {
        let status = item.choice(&[("502", 502), ("503", 503), ("504", 504)])?;
        match status {
            502 => statuses.bad_gateway = true,
            503 => statuses.unavailable = true,
            _ => statuses.gateway_timeout = true,
        }
        Ok(())
    })?;
    Ok(statuses)
}
