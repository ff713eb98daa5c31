//! Number of requests admitted in any window of time.

use std::time::Duration;

/// An admitted request. The admission was at some moment between sending the request and receiving its response.
#[derive(Clone, Copy, Debug)]
pub(super) struct Admission {
    pub(super) sent: Duration,
    pub(super) answered: Duration,
}

/// The largest excess of any window over `rate` per second, in tokens. Only requests that were certainly admitted in
/// the window count: those that were sent and answered in it.
pub(super) fn most_above_rate(admissions: &[Admission], rate: f64) -> f64 {
    let mut by_answer = admissions.to_vec();
    by_answer.sort_unstable_by_key(|admission| admission.answered);
    let excess = |from: Duration| {
        let within = by_answer.iter().filter(move |admission| admission.sent >= from);
        let counted = (1..).zip(within);
        counted.map(move |(count, last)| f64::from(count) - rate * (last.answered - from).as_secs_f64())
    };
    by_answer.iter().flat_map(|first| excess(first.sent)).fold(0.0, f64::max)
}

#[test]
fn fullest_window_is_found() {
    let at =
        |sent, answered| Admission { sent: Duration::from_millis(sent), answered: Duration::from_millis(answered) };
    // Three within 100 ms, of which one may have been admitted earlier.
    let admissions = [at(0, 1000), at(900, 1100), at(1000, 1100), at(2000, 2100)];
    let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found}");
    near(most_above_rate(&admissions, 10.0), 0.0);
    near(most_above_rate(&admissions, 5.0), 1.0);
    near(most_above_rate(&admissions, 0.0), 4.0);
    near(most_above_rate(&[], 1.0), 0.0);
}
