//! Failures in a row of one endpoint, by kind.

use super::settings::OutlierSettings;
use super::state::Reason;
use crate::endpoint::failure::Failure;

/// Failures in a row, a count of 16 bits for each kind, in one word that workers can exchange at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Streaks(pub(super) u64);

/// Kinds of failures, each with the place of its count.
const SERVER_ERRORS: u32 = 0;
const GATEWAY_ERRORS: u32 = 16;
const CONNECT_FAILURES: u32 = 32;
const TIMEOUTS: u32 = 48;

impl Streaks {
    /// Counts after one more failure.
    ///
    /// It ends the rows of the kinds that it does not belong to. A failed connection ends none: the endpoint has said
    /// nothing.
    pub(super) fn after(self, failure: Failure) -> Self {
        match failure {
            Failure::ServerError => Self::default().with(SERVER_ERRORS, self.count(SERVER_ERRORS) + 1),
            Failure::GatewayError => self.after_gateway_error(),
            Failure::Timeout => self.after_gateway_error().with(TIMEOUTS, self.count(TIMEOUTS) + 1),
            Failure::Connect => self.with(CONNECT_FAILURES, self.count(CONNECT_FAILURES) + 1),
        }
    }

    fn after_gateway_error(self) -> Self {
        let counted = Self::default().with(SERVER_ERRORS, self.count(SERVER_ERRORS) + 1);
        counted.with(GATEWAY_ERRORS, self.count(GATEWAY_ERRORS) + 1)
    }

    /// Counts after a connection was made.
    pub(super) fn after_connection(self) -> Self {
        self.with(CONNECT_FAILURES, 0)
    }

    /// The first threshold that is reached.
    pub(super) fn exceeded(self, settings: &OutlierSettings) -> Option<Reason> {
        let kinds = [
            (CONNECT_FAILURES, Reason::Unreachable),
            (TIMEOUTS, Reason::Timeouts),
            (GATEWAY_ERRORS, Reason::GatewayErrors),
            (SERVER_ERRORS, Reason::ServerErrors),
        ];
        let is_reached = |(kind, reason): &(u32, Reason)| {
            let threshold = settings.threshold(*reason);
            threshold > 0 && self.count(*kind) >= u64::from(threshold)
        };
        kinds.into_iter().find(is_reached).map(|(_, reason)| reason)
    }

    fn count(self, kind: u32) -> u64 {
        (self.0 >> kind) & u64::from(u16::MAX)
    }

    fn with(self, kind: u32, count: u64) -> Self {
        let most = u64::from(u16::MAX);
        Self(self.0 & !(most << kind) | count.min(most) << kind)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    use Failure::{Connect, GatewayError, ServerError, Timeout};

    /// Attempts; none is a success.
    fn attempts() -> impl Strategy<Value = Vec<Option<Failure>>> {
        let kinds = vec![None, Some(ServerError), Some(GatewayError), Some(Connect), Some(Timeout)];
        prop::collection::vec(prop::sample::select(kinds), 0..60)
    }

    /// Length of the row of these failures at the end of all attempts, over failed connections.
    fn row(attempts: &[Option<Failure>], kinds: &[Failure]) -> u64 {
        let belongs = |attempt: &Option<Failure>| attempt.is_some_and(|failure| kinds.contains(&failure));
        let row = attempts.iter().rev().filter(|attempt| belongs(attempt) || **attempt != Some(Connect));
        row.take_while(|attempt| belongs(attempt)).count() as u64
    }

    proptest! {
        #[test]
        fn counts_are_those_of_the_rows(attempts in attempts()) {
            let streaks = attempts.iter().fold(Streaks::default(), |streaks, attempt| match attempt {
                Some(failure) => streaks.after(*failure),
                None => Streaks::default(),
            });
            prop_assert_eq!(streaks.count(SERVER_ERRORS), row(&attempts, &[ServerError, GatewayError, Timeout]));
            prop_assert_eq!(streaks.count(GATEWAY_ERRORS), row(&attempts, &[GatewayError, Timeout]));
            prop_assert_eq!(streaks.count(TIMEOUTS), row(&attempts, &[Timeout]));
            prop_assert_eq!(streaks.count(CONNECT_FAILURES), row(&attempts, &[Connect]));
        }
    }

    #[test]
    fn count_stays_at_its_maximum() {
        let full = Streaks::default().with(SERVER_ERRORS, u64::from(u16::MAX));
        assert_eq!(full.after(Failure::ServerError), full);
    }

    #[test]
    fn threshold_of_zero_is_none() {
        let off = OutlierSettings { server_errors: 0, gateway_errors: 0, timeouts: 0, ..OutlierSettings::default() };
        let streaks = (0..100).fold(Streaks::default(), |streaks, _| streaks.after(Failure::Timeout));
        assert_eq!(streaks.exceeded(&off), None);
        assert_eq!(streaks.exceeded(&OutlierSettings::default()), Some(Reason::Timeouts));
    }
}
