//! Settings of retries.

use std::time::Duration;

use http::StatusCode;

/// Settings of retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetrySettings {
    /// Retries in per cent of the requests; 0 is never.
    pub budget: u32,
    /// Tries of one request in all.
    pub attempts: u8,
    /// Time to the head of the response in a try that is not the last; none: `timeouts.response`.
    pub per_try_timeout: Option<Duration>,
    /// Statuses with which a request is sent again.
    pub statuses: RetryStatuses,
    /// Bytes of a request's body that are kept.
    pub max_body: usize,
}

/// Statuses of responses after which a repeatable request is sent again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetryStatuses {
    /// 502.
    pub bad_gateway: bool,
    /// 503.
    pub unavailable: bool,
    /// 504.
    pub gateway_timeout: bool,
}

impl RetrySettings {
    /// Returns whether any request is sent again.
    pub(crate) fn is_on(&self) -> bool {
        self.budget > 0 && self.attempts > 1
    }
}

impl RetryStatuses {
    pub(crate) fn contains(self, status: StatusCode) -> bool {
        match status {
            StatusCode::BAD_GATEWAY => self.bad_gateway,
            StatusCode::SERVICE_UNAVAILABLE => self.unavailable,
            StatusCode::GATEWAY_TIMEOUT => self.gateway_timeout,
            _ => false,
        }
    }
}

impl Default for RetrySettings {
    fn default() -> Self {
        Self {
            budget: 20,
            attempts: 2,
            per_try_timeout: None,
            statuses: RetryStatuses { unavailable: true, ..RetryStatuses::default() },
            max_body: 64 * 1024,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values that `config/keygate.yaml` and `docs/upstreams.md` state.
    #[test]
    fn defaults_are_those_of_the_documentation() {
        let RetrySettings { budget, attempts, per_try_timeout, statuses, max_body } = RetrySettings::default();
        assert_eq!((budget, attempts, per_try_timeout, max_body), (20, 2, None, 65_536));
        let retried = |status: &u16| statuses.contains(StatusCode::from_u16(*status).unwrap());
        assert_eq!((100..=599).filter(retried).collect::<Vec<_>>(), [503]);
    }
}
