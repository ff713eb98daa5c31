//! Retries: pauses with jitter (against a thundering herd), `Retry-After`, and when a delivery is given up. Pure: time
//! is a value.

use std::time::Duration;

use tokio::time::Instant;

/// First and longest pause of a sink of the audit, before their jitter: one that is back is noticed within 15 s.
const SINK_PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));
/// Longest `Retry-After` that is waited for.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(30);

/// Pauses that double, each jittered to 50 % to 150 %: gateways that lost a destination together do
/// not come back together.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    /// The longest pause before its jitter.
    longest: Duration,
    next: Duration,
}

/// Answer to the question when a failed delivery may be tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Never: it would be refused again.
    Never,
    /// After a pause.
    Later,
    /// After the time for which the server asks (`Retry-After`).
    After(Duration),
}

/// Retries of a worker.
#[derive(Clone, Debug)]
pub(crate) struct RetryPolicy {
    /// Pauses between the tries.
    pub(crate) pauses: Backoff,
    /// Time of a part with all its tries; then it is given up. None: it is tried while the queue is open.
    pub(crate) give_up_after: Option<Duration>,
    /// Time for what is left when the queue is closed.
    pub(crate) flush: Duration,
    /// True if what is left is tried again in this time, after a failure.
    pub(crate) retries_when_closed: bool,
}

/// Tries of one part.
#[derive(Debug)]
pub(super) struct Tries {
    pauses: Backoff,
    retries_when_closed: bool,
    /// Time at which the part is given up.
    pub(super) deadline: Option<Instant>,
}

/// Next step after a failed try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Retry(Duration),
    /// Give the part up, and wait for this time before the next one.
    GiveUp(Duration),
}

impl Default for Backoff {
    fn default() -> Self {
        Self::between(SINK_PAUSES.0, SINK_PAUSES.1)
    }
}

impl Backoff {
    /// Pauses from the first to the longest one, before their jitter.
    pub(crate) fn between(first: Duration, longest: Duration) -> Self {
        Self { first, longest, next: first }
    }

    /// The next pause, whose jitter is this part of [`u32::MAX`].
    fn next_pause(&mut self, jitter: u32) -> Duration {
        debug_assert!(self.first <= self.next && self.next <= self.longest, "a pause is within its bounds");
        let pause = self.next;
        self.next = (pause * 2).min(self.longest);
        pause / 2 + pause.mul_f64(f64::from(jitter) / f64::from(u32::MAX))
    }

    /// The pause after a failure: that for which the server asks, within bounds, or the next one, whose jitter is this
    /// part of [`u32::MAX`] ([`random_jitter`]).
    pub fn pause_after(&mut self, retry: Retry, jitter: u32) -> Duration {
        let pause = self.next_pause(jitter);
        match retry {
            Retry::After(asked) => asked.min(LONGEST_RETRY_AFTER),
            Retry::Never | Retry::Later => pause,
        }
    }

    /// Begins anew, after a success.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

/// Jitter of one pause, as a part of [`u32::MAX`]. Without randomness an unjittered pause will do.
pub fn random_jitter() -> u32 {
    getrandom::u32().unwrap_or(u32::MAX / 2)
}

impl Tries {
    /// Begins with a part.
    pub(super) fn new(policy: &RetryPolicy, now: Instant) -> Self {
        let RetryPolicy { pauses, give_up_after, retries_when_closed, .. } = policy.clone();
        Self { pauses, retries_when_closed, deadline: give_up_after.map(|time| now + time) }
    }

    /// The next step after a failed try.
    pub(super) fn after_failure(&mut self, retry: Retry, is_closed: bool, now: Instant) -> Next {
        let pause = self.pauses.pause_after(retry, random_jitter());
        let asked = match retry {
            Retry::After(asked) => Some(asked),
            Retry::Never | Retry::Later => None,
        };
        let is_too_late = self.deadline.is_some_and(|deadline| now + asked.unwrap_or(pause) >= deadline);
        if retry == Retry::Never || is_closed && !self.retries_when_closed {
            Next::GiveUp(Duration::ZERO)
        } else if is_too_late {
            // The next part must wait as well for as long as the server asks.
            Next::GiveUp(if asked.is_some() { pause } else { Duration::ZERO })
        } else {
            Next::Retry(pause)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = SINK_PAUSES.0;
    const LONGEST: Duration = SINK_PAUSES.1;

    #[test]
    fn pauses_double_up_to_the_longest_and_begin_anew() {
        let mut backoff = Backoff::default();
        let mut expected = FIRST;
        let mut pauses = Vec::new();
        for _ in 0..10 {
            let pause = backoff.next_pause(random_jitter());
            assert!(pause >= expected / 2 && pause <= expected * 3 / 2, "{pause:?} for {expected:?}");
            pauses.push(pause);
            expected = (expected * 2).min(LONGEST);
        }
        assert!(pauses[9] >= LONGEST / 2);
        backoff.reset();
        assert!(backoff.next_pause(u32::MAX) <= FIRST * 3 / 2);
    }

    #[test]
    fn longest_pause_holds_with_its_jitter() {
        let mut backoff = Backoff::default();
        let pauses: Vec<Duration> = (0..20).map(|_| backoff.next_pause(u32::MAX)).collect();
        assert_eq!(pauses.iter().max(), Some(&Duration::from_secs(15)));
        assert_eq!(pauses[19], Duration::from_secs(15));
    }

    #[test]
    fn part_is_given_up_when_it_is_refused_too_late_or_at_the_end() {
        let seconds = Duration::from_secs;
        let pause = Duration::from_millis(100);
        let spans = RetryPolicy {
            pauses: Backoff::between(pause, seconds(5)),
            give_up_after: Some(seconds(10)),
            flush: seconds(3),
            retries_when_closed: true,
        };
        let lines = RetryPolicy { give_up_after: None, retries_when_closed: false, ..spans.clone() };
        let (now, late) = (Instant::now(), Instant::now() + seconds(11));
        let after = |policy: &RetryPolicy, retry, is_closed, time| {
            Tries::new(policy, now).after_failure(retry, is_closed, time)
        };
        let is_retry = |next| matches!(next, Next::Retry(time) if time >= pause / 2 && time <= pause * 3 / 2);
        let given_up = Next::GiveUp(Duration::ZERO);
        assert_eq!(after(&spans, Retry::Never, false, now), given_up);
        assert!(is_retry(after(&spans, Retry::Later, false, now)));
        assert!(is_retry(after(&spans, Retry::Later, true, now)));
        assert_eq!(after(&spans, Retry::Later, false, late), given_up);
        assert_eq!(after(&spans, Retry::After(seconds(2)), false, now), Next::Retry(seconds(2)));
        assert_eq!(after(&spans, Retry::After(seconds(60)), false, now), Next::GiveUp(seconds(30)));
        assert_eq!(Backoff::default().pause_after(Retry::After(seconds(60)), 0), seconds(30));
        assert!(is_retry(after(&lines, Retry::Later, false, late)));
        assert_eq!(after(&lines, Retry::Later, true, now), given_up);
    }
}
