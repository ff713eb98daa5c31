//! Known addresses of the sources that are looked up, and the time of each next look-up.
//!
//! | state of a source | event | next state |
//! |---|---|---|
//! | new, or due | [`Known::begin`] | a look-up runs |
//! | a look-up runs | an answer | the addresses are those of the answer; due when its TTL has passed |
//! | a look-up runs | a failure | the addresses stay; due after a pause that doubles with each failure in a row |

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::families::Trial;
use super::lookup::Answer;
use super::source::{Source, SourceKind};
use super::weights::Weights;
use crate::settings::Endpoint;

/// Pause after a first failure. It doubles up to [`MAX_PAUSE`].
const MIN_PAUSE: Duration = Duration::from_secs(1);

/// Longest pause between two look-ups that fail: a name that appears is used within this time.
const MAX_PAUSE: Duration = Duration::from_secs(8);

/// Known addresses by source.
#[derive(Debug, Default)]
pub(super) struct Known(HashMap<Source, Entry>);

#[derive(Debug)]
struct Entry {
    /// Addresses of the last answer; none before the first.
    trial: Option<Trial>,
    /// Weights of the addresses in use.
    weights: Weights,
    /// Time of the next look-up; none while one runs.
    due: Option<Instant>,
    /// Failed look-ups in a row.
    failures: u32,
    /// True if a look-up has ended, in whatever way.
    is_settled: bool,
}

/// Change that a look-up brought.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// The same as before.
    None,
    /// Other addresses: these came and these went.
    Addresses { added: Vec<SocketAddr>, removed: Vec<SocketAddr> },
    /// The same addresses with other weights.
    Weights,
    /// The same addresses, after look-ups that failed.
    Recovered,
    /// The first failure in a row.
    Failing,
}

impl Known {
    /// Begins a look-up of a source that is new or due, and returns the last trial of its families. None: there is
    /// nothing to look up now.
    pub(super) fn begin(&mut self, source: &Source, now: Instant) -> Option<Option<Trial>> {
        if source.kind == SourceKind::Fixed {
            return None;
        }
        let new = || Entry { trial: None, weights: Weights::new(), due: Some(now), failures: 0, is_settled: false };
        let entry = self.0.entry(source.clone()).or_insert_with(new);
        entry.due.take_if(|due| *due <= now).map(|_| entry.trial.clone())
    }

    /// Takes the result of a look-up; none: it failed.
    pub(super) fn record(&mut self, source: &Source, answer: Option<Answer>, now: Instant) -> Change {
        let Some(entry) = self.0.get_mut(source) else { return Change::None };
        entry.is_settled = true;
        let Some(Answer { trial, weights, interval }) = answer else {
            entry.failures = entry.failures.saturating_add(1);
            entry.due = Some(now + pause(entry.failures));
            return if entry.failures == 1 { Change::Failing } else { Change::None };
        };
        let had_failed = std::mem::take(&mut entry.failures) > 0;
        entry.due = Some(now + interval);
        let before = entry.trial.replace(trial.clone()).map_or_else(BTreeSet::new, |before| before.used);
        let has_same_weights = std::mem::replace(&mut entry.weights, weights) == entry.weights;
        let difference = |a: &BTreeSet<SocketAddr>, b: &BTreeSet<SocketAddr>| a.difference(b).copied().collect();
        match (before == trial.used, had_failed) {
            (true, _) if !has_same_weights => Change::Weights,
            (true, false) => Change::None,
            (true, true) => Change::Recovered,
            (false, _) => {
                Change::Addresses { added: difference(&trial.used, &before), removed: difference(&before, &trial.used) }
            }
        }
    }

    /// Has all sources looked up again at once.
    pub(super) fn expire(&mut self, now: Instant) {
        self.0.values_mut().for_each(|entry| entry.due = entry.due.map(|_| now));
    }

    /// Time of the next look-up of any of these sources.
    pub(super) fn next_due<'a>(&self, sources: impl IntoIterator<Item = &'a Source>) -> Option<Instant> {
        sources.into_iter().filter_map(|source| self.0.get(source)?.due).min()
    }

    /// Returns whether a look-up of each of these sources has ended.
    pub(super) fn is_settled(&self, sources: &[Source]) -> bool {
        let is_settled = |source: &Source| self.0.get(source).is_some_and(|entry| entry.is_settled);
        sources.iter().all(|source| source.kind == SourceKind::Fixed || is_settled(source))
    }

    /// Forgets all sources but these.
    pub(super) fn retain(&mut self, keep: impl Fn(&Source) -> bool) {
        self.0.retain(|source, _| keep(source));
    }

    /// Endpoints of these sources, each once, in their order.
    pub(super) fn endpoints(&self, sources: &[Source]) -> Vec<Endpoint> {
        let mut endpoints = Vec::new();
        for source in sources {
            match self.0.get(source).filter(|entry| entry.trial.is_some()) {
                Some(Entry { weights, .. }) => {
                    endpoints.extend(weights.iter().map(|(address, weight)| source.endpoint_at(*address, *weight)));
                }
                None => endpoints.push(source.endpoint()),
            }
        }
        let mut seen = HashSet::new();
        endpoints.retain(|endpoint| seen.insert(endpoint.clone()));
        endpoints
    }
}

/// Pause after so many failures in a row.
fn pause(failures: u32) -> Duration {
    MIN_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(8)).min(MAX_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> Source {
        "http://store:81".parse().unwrap()
    }

    fn answer(addresses: &[&str]) -> Option<Answer> {
        weighted(&addresses.iter().map(|address| (*address, 1000)).collect::<Vec<_>>())
    }

    fn weighted(addresses: &[(&str, u32)]) -> Option<Answer> {
        let weights: Weights = addresses.iter().map(|(address, weight)| (address.parse().unwrap(), *weight)).collect();
        let trial = Trial::untried(weights.keys().copied().collect());
        Some(Answer { trial, weights, interval: Duration::from_secs(5) })
    }

    fn labels(known: &Known) -> Vec<String> {
        known.endpoints(&[name()]).iter().map(Endpoint::label).collect()
    }

    #[test]
    fn last_known_addresses_stay_when_a_name_fails() {
        let mut known = Known::default();
        let now = Instant::now();
        assert!(known.begin(&name(), now).is_some() && known.begin(&name(), now).is_none(), "one look-up at a time");
        assert_eq!(labels(&known), ["store:81"], "a place without an address");
        assert!(!known.is_settled(&[name()]));
        assert_eq!(known.record(&name(), None, now), Change::Failing);
        assert!(known.is_settled(&[name()]));
        assert_eq!(labels(&known), ["store:81"]);
        let added = vec!["10.0.0.1:81".parse().unwrap()];
        let first = known.record(&name(), answer(&["10.0.0.1:81"]), now);
        assert_eq!(first, Change::Addresses { added, removed: vec![] });
        assert_eq!(known.record(&name(), None, now), Change::Failing);
        assert_eq!(known.record(&name(), None, now), Change::None, "told once");
        assert_eq!(labels(&known), ["store:81@10.0.0.1:81"]);
        assert_eq!(known.record(&name(), answer(&["10.0.0.1:81"]), now), Change::Recovered);
    }

    #[test]
    fn source_is_due_when_its_answer_expires_and_after_pauses() {
        let mut known = Known::default();
        let now = Instant::now();
        let second = Duration::from_secs(1);
        known.begin(&name(), now);
        assert_eq!(known.next_due([&name()]), None, "it runs");
        known.record(&name(), answer(&["10.0.0.1:81"]), now);
        assert_eq!(known.next_due([&name()]), Some(now + 5 * second));
        assert!(known.begin(&name(), now + 4 * second).is_none());
        assert!(known.begin(&name(), now + 5 * second).is_some());
        let mut pauses = Vec::new();
        for _ in 0..6 {
            known.record(&name(), None, now);
            pauses.push(known.next_due([&name()]).unwrap() - now);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 8, 8].map(|seconds| seconds * second));
        known.expire(now);
        assert!(known.begin(&name(), now).is_some());
    }

    #[test]
    fn changed_weights_are_a_change_of_the_endpoints() {
        let mut known = Known::default();
        let now = Instant::now();
        let weights = |known: &Known| known.endpoints(&[name()]).iter().map(|one| one.weight).collect::<Vec<_>>();
        known.begin(&name(), now);
        known.record(&name(), weighted(&[("10.0.0.1:81", 500), ("10.0.0.2:81", 1500)]), now);
        assert_eq!(weights(&known), [500, 1500]);
        let other = weighted(&[("10.0.0.1:81", 1500), ("10.0.0.2:81", 500)]);
        assert_eq!(known.record(&name(), other.clone(), now), Change::Weights);
        assert_eq!(weights(&known), [1500, 500]);
        assert_eq!(known.record(&name(), other, now), Change::None);
    }

    #[test]
    fn every_address_is_an_endpoint_once() {
        let mut known = Known::default();
        let now = Instant::now();
        known.begin(&name(), now);
        known.record(&name(), answer(&["10.0.0.2:81", "10.0.0.1:81", "[::1]:81"]), now);
        let twice = [name(), name(), "http://10.0.0.1:81".parse().unwrap()];
        let labels: Vec<String> = known.endpoints(&twice).iter().map(Endpoint::label).collect();
        assert_eq!(
            labels,
            ["store:81@10.0.0.1:81", "store:81@10.0.0.2:81", "store:81@[::1]:81", "10.0.0.1:81"],
            "the same address with another host is another endpoint"
        );
    }
}
