//! State machine of an endpoint's ejection, as a pure function; the table is in the documentation of [`super`].

use std::time::Duration;

use super::settings::OutlierSettings;
use crate::endpoint::failure::Failure;
use domain::clock::Micros;

/// Part of an endpoint in the traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// Takes its whole share of the requests.
    #[default]
    In,
    /// Takes a share that grows: it was set aside until a moment ago.
    Returning,
    /// Set aside for what it answered.
    Ejected,
    /// Set aside because no connection can be made.
    Unreachable,
}

/// Reason of an ejection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Reason {
    #[default]
    ServerErrors,
    GatewayErrors,
    Unreachable,
    Timeouts,
}

/// Event that can change the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A threshold was reached, or the endpoint failed while it returned, or a probe failed to connect.
    Failed(Reason),
    /// A connection was made.
    Connected,
    /// The active checks pass again.
    Recovered,
    /// Time has passed.
    Tick,
}

/// State of one endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EjectionState {
    pub(crate) phase: Phase,
    /// Reason of the last ejection.
    pub(crate) reason: Reason,
    /// Beginning of the phase.
    pub(super) since: Micros,
    /// End of the phase. Of `In`: the time at which one of the ejections is forgotten.
    pub(crate) until: Micros,
    /// Ejections that are not forgotten: the next one is this many times doubled.
    pub(super) times: u32,
}

/// Jitter of the time of an ejection: a factor from 0.8 to 1.2, so that gateways do not return to an endpoint together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Jitter(f64);

impl Jitter {
    /// The time as it is.
    pub(super) const NONE: Self = Self(1.0);

    /// Jitter of a random number from 0 to 1.
    pub(crate) fn of(chance: f64) -> Self {
        Self(0.8 + 0.4 * chance)
    }
}

impl EjectionState {
    /// The state after an event.
    pub(super) fn after(self, event: Event, settings: &OutlierSettings, now: Micros, jitter: Jitter) -> Self {
        let is_due = now >= self.until;
        match (self.phase, event) {
            (Phase::In | Phase::Returning | Phase::Unreachable, Event::Failed(reason)) => {
                self.set_aside(reason, settings, now, jitter)
            }
            (Phase::Ejected, Event::Tick) if is_due => self.begin(Phase::Returning, now, settings.slow_start),
            (Phase::Unreachable, Event::Connected) => self.begin(Phase::Returning, now, settings.slow_start),
            (Phase::In, Event::Recovered) => self.begin(Phase::Returning, now, settings.slow_start),
            (Phase::Returning, Event::Tick) if is_due => self.begin(Phase::In, now, self.duration(settings)),
            (Phase::In, Event::Tick) if is_due && self.times > 0 => {
                let fewer = Self { times: self.times - 1, ..self };
                fewer.begin(Phase::In, now, fewer.duration(settings))
            }
            _ => self,
        }
    }

    fn set_aside(self, reason: Reason, settings: &OutlierSettings, now: Micros, jitter: Jitter) -> Self {
        let phase = if reason == Reason::Unreachable { Phase::Unreachable } else { Phase::Ejected };
        let next = Self { reason, times: self.times.saturating_add(1), ..self };
        let duration = match phase {
            // A probe costs no request anything, so a server that comes back is found soon: a fifth of the time.
            Phase::Unreachable => (next.duration(settings) / 5).min(settings.ejection),
            _ => next.duration(settings),
        };
        next.begin(phase, now, duration.mul_f64(jitter.0))
    }

    /// Time of an ejection after this many, without jitter.
    fn duration(self, settings: &OutlierSettings) -> Duration {
        let doubled = 2_u32.saturating_pow(self.times.saturating_sub(1).min(20));
        settings.ejection.saturating_mul(doubled).min(settings.max_ejection)
    }

    fn begin(self, phase: Phase, now: Micros, duration: Duration) -> Self {
        Self { phase, since: now, until: now.after(duration), ..self }
    }
}

impl Phase {
    /// Returns whether requests go to the endpoint.
    pub(crate) fn takes_requests(self) -> bool {
        matches!(self, Self::In | Self::Returning)
    }

    pub(super) fn from_byte(byte: u8) -> Self {
        [Self::In, Self::Returning, Self::Ejected, Self::Unreachable][usize::from(byte)]
    }
}

impl OutlierSettings {
    /// Number of failures in a row that is the reason of an ejection; 0 for none.
    pub(super) fn threshold(&self, reason: Reason) -> u16 {
        match reason {
            Reason::ServerErrors => self.server_errors,
            Reason::GatewayErrors => self.gateway_errors,
            Reason::Unreachable => self.connect_failures,
            Reason::Timeouts => self.timeouts,
        }
    }
}

impl Reason {
    /// Reason for which an endpoint that fails while it returns is set aside again.
    pub(super) fn of(failure: Failure) -> Self {
        match failure {
            Failure::ServerError => Self::ServerErrors,
            Failure::GatewayError => Self::GatewayErrors,
            Failure::Connect => Self::Unreachable,
            Failure::Timeout => Self::Timeouts,
        }
    }

    pub(super) const ALL: [Self; 4] = [Self::ServerErrors, Self::GatewayErrors, Self::Unreachable, Self::Timeouts];

    /// Name in logs, metrics and reports.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::ServerErrors => "server_errors",
            Self::GatewayErrors => "gateway_errors",
            Self::Unreachable => "connect_failures",
            Self::Timeouts => "timeouts",
        }
    }

    pub(super) fn from_byte(byte: u8) -> Self {
        Self::ALL[usize::from(byte)]
    }
}
