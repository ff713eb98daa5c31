//! Circuit breaker of one upstream: caps the requests in flight of all workers. What exceeds the cap is refused at
//! once, so that an upstream that has become slow is not buried, and its callers learn of it soon.
//!
//! - The bound is exact: a request is counted from before an endpoint is chosen to the last byte of its response or
//!   tunnel, once, however often it is sent.
//! - The log has the beginning and the end of an episode of refusals ([`Episode`]).

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use super::episode::Episode;
use domain::clock::{self, Micros};

/// Bound of the requests in flight, and their number. Clones share the number.
#[derive(Clone, Debug)]
pub(crate) struct Circuit {
    /// Requests at most; none: any number, which is not counted.
    limit: Option<usize>,
    state: Arc<CircuitState>,
}

#[derive(Debug)]
struct CircuitState {
    /// Name of the upstream, in the log.
    upstream: Arc<str>,
    in_flight: AtomicUsize,
    /// Refusals.
    refusals: Episode,
}

/// Permit of one request in flight. Given back when dropped.
#[derive(Debug)]
pub(crate) struct RequestPermit(Arc<CircuitState>);

/// Refusal: as many requests are in flight as may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl Circuit {
    pub(crate) fn new(limit: Option<usize>, upstream: &Arc<str>) -> Self {
        let upstream = Arc::clone(upstream);
        let state = CircuitState { upstream, in_flight: AtomicUsize::default(), refusals: Episode::default() };
        Self { limit, state: Arc::new(state) }
    }

    /// The same requests in flight with another bound.
    #[must_use]
    pub(crate) fn changed(&self, limit: Option<usize>) -> Self {
        Self { limit, state: Arc::clone(&self.state) }
    }

    /// Takes a permit; none where there is no bound.
    pub(crate) fn acquire(&self) -> Result<Option<RequestPermit>, Full> {
        let Some(limit) = self.limit else { return Ok(None) };
        let one_more = |in_flight: usize| (in_flight < limit).then_some(in_flight + 1);
        match self.state.in_flight.fetch_update(Relaxed, Relaxed, one_more) {
            Ok(_) => Ok(Some(RequestPermit(Arc::clone(&self.state)))),
            Err(_) => {
                self.state.note_refusal(limit);
                Err(Full)
            }
        }
    }

    /// Logs the end of refusals. To be called now and then.
    pub(crate) fn tick(&self, now: Micros) {
        if let Some(refused) = self.state.refusals.end_if_quiet(now) {
            tracing::info!(upstream = %self.state.upstream, refused, "the upstream has room for requests again");
        }
    }
}

impl CircuitState {
    fn note_refusal(&self, limit: usize) {
        if self.refusals.note(clock::steady()) {
            tracing::warn!(
                upstream = %self.upstream,
                limit,
                "the upstream has as many requests in flight as it may have; further ones are refused with 503"
            );
        }
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        let before = self.0.in_flight.fetch_sub(1, Relaxed);
        debug_assert_ne!(before, 0, "each permit is counted once");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circuit(limit: usize) -> Circuit {
        Circuit::new(Some(limit), &"default".into())
    }

    #[test]
    fn permits_are_as_many_as_the_bound() {
        let circuit = circuit(3);
        let mut permits: Vec<_> = (0..3).map(|_| circuit.acquire().unwrap()).collect();
        assert_eq!(circuit.acquire().unwrap_err(), Full);
        permits.pop();
        permits.push(circuit.clone().acquire().unwrap());
        assert_eq!(circuit.acquire().unwrap_err(), Full);
        drop(permits);
        assert_eq!(circuit.state.in_flight.load(Relaxed), 0);
    }

    #[test]
    fn refusals_are_one_episode_however_often_there_is_room_between_them() {
        let circuit = circuit(1);
        for _ in 0..100 {
            let _permit = circuit.acquire().unwrap();
            assert_eq!(circuit.acquire().unwrap_err(), Full);
        }
        let later = clock::steady().after(std::time::Duration::from_secs(1));
        assert_eq!(circuit.state.refusals.end_if_quiet(later), Some(100));
    }

    #[test]
    fn bound_changes_with_requests_in_flight() {
        let circuit = circuit(2);
        let permits = [circuit.acquire().unwrap(), circuit.acquire().unwrap()];
        let lower = circuit.changed(Some(1));
        drop(permits);
        let one = lower.acquire().unwrap();
        assert_eq!(lower.acquire().unwrap_err(), Full);
        let none = lower.changed(None);
        assert!((0..100).all(|_| none.acquire().unwrap().is_none()));
        drop(one);
        assert_eq!(circuit.state.in_flight.load(Relaxed), 0);
    }

    #[test]
    fn workers_never_exceed_the_bound_together() {
        let circuit = circuit(5);
        let most = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..5_000 {
                        let permits: Vec<_> = (0..3).filter_map(|_| circuit.acquire().ok()).collect();
                        most.fetch_max(circuit.state.in_flight.load(Relaxed), Relaxed);
                        drop(permits);
                    }
                });
            }
        });
        assert!(most.into_inner() <= 5);
        assert_eq!(circuit.state.in_flight.load(Relaxed), 0);
    }
}
