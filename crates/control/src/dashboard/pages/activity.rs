//! The requests and refusals of a key over 24 hours, as numbers and as a small bar chart of a list.

use super::numbers::{format_count, format_counted};
use journal::audit::HourlyActivity;

/// Size of the chart in SVG units: 24 columns of 5, the last unit of each being blank.
const WIDTH: u32 = 120;
const HEIGHT: f64 = 28.0;
const COLUMN: u32 = 5;
const BAR: u32 = 4;
/// Least height of a bar, so that one request is visible beside a thousand.
const MIN_BAR: f64 = 1.5;

/// The last 24 hours of a key, oldest first.
#[derive(Clone, Debug, PartialEq)]
pub struct ActivityChart {
    /// Requests admitted.
    pub requests: u64,
    /// Requests refused.
    pub refusals: u64,
    /// Most requests, admitted and refused, in one hour.
    pub most: u64,
    /// The hours.
    pub bars: Vec<Bar>,
}

/// One hour in the chart: refused requests on top of admitted ones. In SVG units, with one decimal.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// Left edge.
    pub x: u32,
    /// Top edge and height of the admitted requests. The height is 0 without any.
    pub admitted: (f64, f64),
    /// Top edge and height of the refused requests. The height is 0 without any.
    pub refused: (f64, f64),
}

impl ActivityChart {
    /// The chart of the last 24 of these hours, which are oldest first.
    pub fn new(hours: &[HourlyActivity]) -> Self {
        let hours = &hours[hours.len().saturating_sub(24)..];
        let most = hours.iter().map(|hour| hour.requests.saturating_add(hour.refusals)).max().unwrap_or(0);
        // With fewer hours, the columns at the left stay blank.
        let blank = 24 - hours.len() as u32;
        let bars = hours.iter().zip(blank..).map(|(hour, column)| Bar::new(hour, column * COLUMN, most)).collect();
        Self {
            requests: hours.iter().fold(0, |sum, hour| sum.saturating_add(hour.requests)),
            refusals: hours.iter().fold(0, |sum, hour| sum.saturating_add(hour.refusals)),
            most,
            bars,
        }
    }

    /// Width of the chart.
    pub fn width(&self) -> u32 {
        WIDTH
    }

    /// Height of the chart.
    pub fn height(&self) -> u32 {
        HEIGHT as u32
    }

    /// Width of a bar.
    pub fn bar_width(&self) -> u32 {
        BAR
    }

    /// The chart as one sentence, for screen readers.
    pub fn summary(&self) -> String {
        format!("{}, {} in the last 24 hours", self.requests_text(), self.refusals_text())
    }

    /// The number of requests admitted, in digits.
    pub fn requests_count(&self) -> String {
        format_count(self.requests)
    }

    /// The number of requests refused, in digits.
    pub fn refusals_count(&self) -> String {
        format_count(self.refusals)
    }

    /// The number of requests admitted: `7 requests`.
    pub fn requests_text(&self) -> String {
        format_counted(self.requests, "request")
    }

    /// The number of requests refused: `7 refusals`.
    pub fn refusals_text(&self) -> String {
        format_counted(self.refusals, "refusal")
    }

    /// Returns `true` if there were no requests.
    pub fn is_empty(&self) -> bool {
        self.most == 0
    }
}

impl Bar {
    fn new(hour: &HourlyActivity, x: u32, most: u64) -> Self {
        let refused = bar_height(hour.refusals, most);
        // Both may have the least height, which together must not exceed the chart's.
        let admitted = bar_height(hour.requests, most).min(HEIGHT - refused);
        Self {
            x,
            admitted: (round(HEIGHT - admitted), round(admitted)),
            refused: (round(HEIGHT - admitted - refused), round(refused)),
        }
    }
}

/// The height of a bar for `number` where `most` is as high as the chart.
fn bar_height(number: u64, most: u64) -> f64 {
    if number == 0 { 0.0 } else { (HEIGHT * number as f64 / most as f64).max(MIN_BAR) }
}

/// Rounds to one decimal, which keeps pages small.
fn round(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::clock::Micros;

    fn hours(counts: &[(u64, u64)]) -> Vec<HourlyActivity> {
        let hour = |(index, (requests, refusals)): (usize, &(u64, u64))| HourlyActivity {
            start: Micros(1_699_999_200_000_000 + index as u64 * 3_600_000_000),
            requests: *requests,
            refusals: *refusals,
        };
        counts.iter().enumerate().map(hour).collect()
    }

    #[test]
    fn summary_adds_up_the_hours() {
        let activity = ActivityChart::new(&hours(&[(1_200, 0), (4, 3)]));
        assert_eq!(activity.summary(), "1,204 requests, 3 refusals in the last 24 hours");
        assert_eq!(ActivityChart::new(&hours(&[(1, 1)])).summary(), "1 request, 1 refusal in the last 24 hours");
        assert!(ActivityChart::new(&[]).is_empty());
    }

    #[test]
    fn bars_are_visible_and_within_the_chart() {
        let many: Vec<(u64, u64)> = (0..30).map(|hour| (hour * 1_000_000, hour % 3)).chain([(u64::MAX, 9)]).collect();
        let activity = ActivityChart::new(&hours(&many));
        assert_eq!(activity.bars.len(), 24);
        for (bar, (requests, refusals)) in activity.bars.iter().zip(&many[7..]) {
            assert!(bar.x + BAR <= WIDTH);
            assert!(bar.refused.0 >= 0.0 && bar.admitted.0 + bar.admitted.1 <= HEIGHT + 0.1, "{bar:?}");
            assert_eq!(bar.admitted.1 > 0.0, *requests > 0, "{bar:?}");
            assert_eq!(bar.refused.1 > 0.0, *refusals > 0, "{bar:?}");
        }
        let newest = ActivityChart::new(&hours(&[(1, 0)]));
        assert_eq!(newest.bars[0].x, WIDTH - COLUMN, "the newest hour is at the right");
    }
}
