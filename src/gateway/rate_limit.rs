//! Response fields of the rate limits: `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers-11), whose
//! values are lists of RFC 9651.

use std::io::Write as _;

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderName, HeaderValue};
use uuid::Uuid;

use crate::identity::AuthMethod;
use crate::quota::RateLimitStatus;
use crate::refusal::Limit;

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
/// Bytes of the longest value, with every number at its largest, and some room.
const MAX_VALUE: usize = 128;
const MICROS_PER_SECOND: u64 = 1_000_000;
/// Most seconds until a retry when no slot is left; the fewest are 1. Exchanges end at any time, so no better value is
/// known; a random one keeps the refused clients from coming back together.
const MAX_SLOT_RETRY: u128 = 3;

/// Rate-limit status of a caller, as response fields show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RateLimitFields {
    status: RateLimitStatus,
    method: AuthMethod,
}

impl RateLimitFields {
    pub(super) fn new(status: RateLimitStatus, method: AuthMethod) -> Self {
        Self { status, method }
    }

    /// Authentication method of the caller.
    pub(super) fn method(&self) -> AuthMethod {
        self.method
    }

    /// Writes `RateLimit` and `RateLimit-Policy`.
    pub(super) fn write(&self, headers: &mut HeaderMap) {
        self.write_with(headers, None, Uuid::nil());
    }

    /// Writes `RateLimit` and `RateLimit-Policy`, and `Retry-After` for the limit that the request exceeded, if any.
    pub(super) fn write_with(&self, headers: &mut HeaderMap, exceeded: Option<Limit>, request_id: Uuid) {
        let Self { status, method } = self;
        let name = policy_name(Limit::Rate, *method);
        let next_token = whole_seconds(status.token_in_us).max(1);
        let mut remaining = (status.remaining, whole_seconds(status.full_in_us));
        let mut slots = status.concurrent.saturating_sub(status.in_flight);
        match exceeded {
            None => {}
            Some(Limit::Rate) => {
                remaining = (0, next_token);
                headers.insert(RETRY_AFTER, HeaderValue::from(next_token));
            }
            Some(Limit::Concurrency) => {
                // Slots may have been given back since the decision; the refused caller must not see them.
                slots = 0;
                headers.insert(RETRY_AFTER, HeaderValue::from(slot_retry(request_id)));
            }
        }
        let (tokens, seconds) = remaining;
        headers.insert(RATELIMIT, value(format_args!("\"{name}\";r={tokens};t={seconds}, \"org\";r={slots}")));
        headers.insert(RATELIMIT_POLICY, policy(name, status));
    }
}

/// Seconds until a retry when no slot is left, 1 to 3: by the random bits that a request's id ends with.
fn slot_retry(request_id: Uuid) -> u16 {
    let spread = u16::try_from(request_id.as_u128() % MAX_SLOT_RETRY).expect("a remainder below 3");
    1 + spread
}

/// Name of a limit in `RateLimit-Policy`: a key has a bucket of its own, all sessions of a user share one.
pub(super) fn policy_name(limit: Limit, method: AuthMethod) -> &'static str {
    match (limit, method) {
        (Limit::Concurrency, _) => "org",
        (Limit::Rate, AuthMethod::Session) => "user",
        (Limit::Rate, AuthMethod::ApiKey | AuthMethod::AdminSocket) => "key",
    }
}

fn policy(name: &str, status: &RateLimitStatus) -> HeaderValue {
    let quota = status.quota;
    value(format_args!(
        "\"{name}\";q={};w={}, \"org\";q={};qu=\"concurrent-requests\"",
        quota.requests,
        quota.per.as_secs(),
        status.concurrent
    ))
}

fn value(text: std::fmt::Arguments<'_>) -> HeaderValue {
    let mut buffer = [0; MAX_VALUE];
    let mut rest = &mut buffer[..];
    rest.write_fmt(text).expect("the longest value fits");
    let written = MAX_VALUE - rest.len();
    HeaderValue::from_bytes(&buffer[..written]).expect("digits and quotes are visible ASCII")
}

fn whole_seconds(micros: u64) -> u64 {
    micros.div_ceil(MICROS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::Quota;

    fn fields(status: &RateLimitStatus, exceeded: Option<Limit>) -> [String; 3] {
        let mut headers = HeaderMap::new();
        RateLimitFields::new(*status, AuthMethod::ApiKey).write_with(&mut headers, exceeded, Uuid::nil());
        [RATELIMIT, RATELIMIT_POLICY, RETRY_AFTER]
            .map(|name| headers.get(name).map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default())
    }

    #[test]
    fn rate_limit_fields_are_those_of_the_contract() {
        let quota = Quota::DEFAULT;
        let mut status = RateLimitStatus {
            quota,
            remaining: 873,
            full_in_us: 456_300_000,
            token_in_us: 0,
            concurrent: 100,
            in_flight: 59,
        };
        let policy = "\"key\";q=1000;w=3600, \"org\";q=100;qu=\"concurrent-requests\"";
        let shown = fields(&status, None);
        assert_eq!(shown, ["\"key\";r=873;t=457, \"org\";r=41", policy, ""]);
        status = RateLimitStatus { remaining: 0, full_in_us: 3_600_000_000, token_in_us: 3_500_001, ..status };
        let shown = fields(&status, Some(Limit::Rate));
        assert_eq!(shown, ["\"key\";r=0;t=4, \"org\";r=41", policy, "4"]);
        let shown = fields(&status, Some(Limit::Concurrency));
        assert_eq!(shown, ["\"key\";r=0;t=3600, \"org\";r=0", policy, "1"]);
        let mut headers = HeaderMap::new();
        RateLimitFields::new(status, AuthMethod::Session).write_with(&mut headers, Some(Limit::Rate), Uuid::nil());
        assert_eq!(headers[RATELIMIT], "\"user\";r=0;t=4, \"org\";r=41");
        assert_eq!(headers[RATELIMIT_POLICY], policy.replace("key", "user"));
    }

    #[test]
    fn retry_after_a_refusal_for_slots_is_random_from_1_to_3_seconds() {
        let mut counts = [0_u32; 4];
        let ids = uuid::ContextV7::new();
        for _ in 0..3000 {
            counts[usize::from(slot_retry(Uuid::new_v7(uuid::Timestamp::now(&ids))))] += 1;
        }
        assert!(counts[0] == 0 && counts[1..].iter().all(|count| *count > 800), "{counts:?}");
    }
}
