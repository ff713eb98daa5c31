//! The fields that tell callers where they stand: draft-ietf-httpapi-ratelimit-headers-11, in RFC 9651 lists.

use std::io::Write as _;

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::identity::AuthMethod;
use crate::quota::RateLimitStatus;

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
/// The longest of the values, with every number at its largest, and some room.
const LONGEST: usize = 128;
const MICROS_PER_SECOND: u64 = 1_000_000;

/// Where a caller stands: a key with its own bucket, or the user of a session with theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RateLimitFields {
    status: RateLimitStatus,
    method: AuthMethod,
}

impl RateLimitFields {
    pub(super) fn new(status: RateLimitStatus, method: AuthMethod) -> Self {
        Self { status, method }
    }

    /// Whether the caller has a session.
    pub(super) fn is_session(&self) -> bool {
        self.method == AuthMethod::Session
    }

    /// The name of the policy that the bucket keeps.
    pub(super) fn policy(&self) -> &'static str {
        policy_of(self.method)
    }
}

/// The name of the policy that the bucket of such a caller keeps.
pub(super) fn policy_of(method: AuthMethod) -> &'static str {
    match method {
        AuthMethod::ApiKey | AuthMethod::AdminSocket => "key",
        AuthMethod::Session => "user",
    }
}

/// What a caller should wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// Nothing.
    None,
    /// The next token.
    Token,
    /// A slot: nobody knows when, so a second.
    Slot,
}

/// Sets `RateLimit` and `RateLimit-Policy`, and `Retry-After` when there is something to wait for.
pub(super) fn set(headers: &mut HeaderMap, fields: &RateLimitFields, wait: Wait) {
    let RateLimitFields { status, .. } = fields;
    let name = fields.policy();
    let token = whole_seconds(status.token_in_us).max(1);
    let (remaining, seconds) = match wait {
        Wait::Token => (0, token),
        Wait::None | Wait::Slot => (status.remaining, whole_seconds(status.full_in_us)),
    };
    let slots = status.concurrent.saturating_sub(status.in_flight);
    let slots = if wait == Wait::Slot { 0 } else { slots };
    headers.insert(RATELIMIT, value(format_args!("\"{name}\";r={remaining};t={seconds}, \"org\";r={slots}")));
    headers.insert(RATELIMIT_POLICY, policy(name, status));
    match wait {
        Wait::None => {}
        Wait::Token => drop(headers.insert(RETRY_AFTER, HeaderValue::from(token))),
        Wait::Slot => drop(headers.insert(RETRY_AFTER, HeaderValue::from(1))),
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
    let mut buffer = [0; LONGEST];
    let mut rest = &mut buffer[..];
    rest.write_fmt(text).expect("the longest value fits");
    let written = LONGEST - rest.len();
    HeaderValue::from_bytes(&buffer[..written]).expect("digits and quotes are visible ASCII")
}

fn whole_seconds(micros: u64) -> u64 {
    micros.div_ceil(MICROS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::Quota;

    fn fields(status: &RateLimitStatus, wait: Wait) -> [String; 3] {
        let mut headers = HeaderMap::new();
        set(&mut headers, &RateLimitFields::new(*status, AuthMethod::ApiKey), wait);
        [RATELIMIT, RATELIMIT_POLICY, RETRY_AFTER]
            .map(|name| headers.get(name).map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default())
    }

    #[test]
    fn reads_as_the_contract_shows_it() {
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
        let shown = fields(&status, Wait::None);
        assert_eq!(shown, ["\"key\";r=873;t=457, \"org\";r=41", policy, ""]);
        status = RateLimitStatus { remaining: 0, full_in_us: 3_600_000_000, token_in_us: 3_500_001, ..status };
        let shown = fields(&status, Wait::Token);
        assert_eq!(shown, ["\"key\";r=0;t=4, \"org\";r=41", policy, "4"]);
        let shown = fields(&status, Wait::Slot);
        assert_eq!(shown, ["\"key\";r=0;t=3600, \"org\";r=0", policy, "1"]);
        let mut headers = HeaderMap::new();
        set(&mut headers, &RateLimitFields::new(status, AuthMethod::Session), Wait::Token);
        assert_eq!(headers[RATELIMIT], "\"user\";r=0;t=4, \"org\";r=41");
        assert_eq!(headers[RATELIMIT_POLICY], policy.replace("key", "user"));
    }
}
