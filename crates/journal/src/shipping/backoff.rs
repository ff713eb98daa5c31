//! Pauses between tries to reach a sink.

use std::time::Duration;

/// The first pause.
const FIRST: Duration = Duration::from_millis(250);
/// The longest pause, jitter included: a sink that is back is noticed within it.
const LONGEST: Duration = Duration::from_secs(15);
/// The longest pause before its jitter, which adds up to a half.
const LONGEST_UNJITTERED: Duration = Duration::from_secs(10);

/// Pauses that double, each jittered to 50 % to 150 %: gateways that lost a sink together do not come back together.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { next: FIRST }
    }
}

impl Backoff {
    /// The next pause.
    pub(super) fn next_pause(&mut self) -> Duration {
        // Without randomness an unjittered pause will do.
        self.next_pause_by(getrandom::u32().unwrap_or(u32::MAX / 2))
    }

    /// The next pause, whose jitter is this part of [`u32::MAX`].
    pub fn next_pause_by(&mut self, random: u32) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(LONGEST_UNJITTERED);
        let jittered = pause / 2 + pause.mul_f64(f64::from(random) / f64::from(u32::MAX));
        jittered.min(LONGEST)
    }

    /// Begins anew, after a success.
    pub fn reset(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_begin_anew() {
        let mut backoff = Backoff::default();
        let (mut expected, mut pauses) = (FIRST, Vec::new());
        for _ in 0..10 {
            let pause = backoff.next_pause();
            assert!(pause >= expected / 2 && pause <= expected * 3 / 2, "{pause:?} for {expected:?}");
            pauses.push(pause);
            expected = (expected * 2).min(LONGEST_UNJITTERED);
        }
        assert!(pauses[9] >= LONGEST_UNJITTERED / 2);
        backoff.reset();
        assert!(backoff.next_pause() <= FIRST * 3 / 2);
    }

    #[test]
    fn longest_pause_holds_with_its_jitter() {
        let mut backoff = Backoff::default();
        let pauses: Vec<Duration> = (0..20).map(|_| backoff.next_pause_by(u32::MAX)).collect();
        assert_eq!(pauses.iter().max(), Some(&LONGEST));
        assert_eq!(pauses[19], LONGEST);
    }
}
