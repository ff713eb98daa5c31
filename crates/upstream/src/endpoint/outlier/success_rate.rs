//! Success rates of the endpoints in a window, compared with each other.

use super::settings::OutlierSettings;

/// Outcomes of one endpoint in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcomes {
    pub(super) requests: u32,
    pub(super) failures: u32,
}

impl Outcomes {
    fn successes(self) -> f64 {
        f64::from(self.requests - self.failures.min(self.requests))
    }
}

/// Finds the endpoint whose success rate is the lowest, if it is below the configured part of the rate of the others
/// together. Both must have had enough requests: a few say nothing.
///
/// Compared with the mean of the others, and not with the deviation of all (as Envoy does): of three endpoints none
/// can lie 1.9 deviations below their mean.
pub(super) fn find_outlier(all: &[Outcomes], settings: &OutlierSettings) -> Option<usize> {
    let rate = |outcomes: &Outcomes| outcomes.successes() / f64::from(outcomes.requests);
    let enough = |outcomes: &Outcomes| outcomes.requests >= settings.min_requests.max(1);
    let candidates = all.iter().enumerate().filter(|(_, outcomes)| enough(outcomes));
    let (index, worst) = candidates.min_by(|(_, a), (_, b)| rate(a).total_cmp(&rate(b)))?;
    let add = |sum: Outcomes, one: &Outcomes| Outcomes {
        requests: sum.requests.saturating_add(one.requests),
        failures: sum.failures.saturating_add(one.failures),
    };
    let others = all.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, outcomes)| outcomes);
    let others = others.fold(Outcomes::default(), add);
    let least = rate(&others) * f64::from(settings.success_rate) / 100.0;
    (enough(&others) && rate(worst) < least).then_some(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(counts: &[(u32, u32)]) -> Option<usize> {
        let all: Vec<Outcomes> =
            counts.iter().map(|(requests, failures)| Outcomes { requests: *requests, failures: *failures }).collect();
        find_outlier(&all, &OutlierSettings::default())
    }

    #[test]
    fn endpoint_far_below_the_others_is_found() {
        assert_eq!(of(&[(100, 0), (100, 30), (100, 0)]), Some(1));
        assert_eq!(of(&[(1000, 0), (60, 20)]), Some(1));
        assert_eq!(of(&[(100, 50), (100, 30), (100, 0)]), Some(0), "the worst one");
    }

    #[test]
    fn endpoints_that_fail_alike_or_a_little_are_not() {
        assert_eq!(of(&[(100, 30), (100, 30), (100, 30)]), None);
        assert_eq!(of(&[(100, 0), (100, 10)]), None);
        assert_eq!(of(&[(100, 100), (100, 100)]), None);
    }

    #[test]
    fn few_requests_say_nothing() {
        assert_eq!(of(&[(100, 0), (49, 49)]), None);
        assert_eq!(of(&[(49, 0), (100, 50)]), None);
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[(100, 100)]), None);
    }
}
