//! The requests and refusals of a key over 24 hours, in numbers and as a picture.

use super::numbers::{count, counted};
use crate::clock::Micros;

/// The picture's size, in its own units: 24 columns of 5, the last of each five left blank.
const WIDTH: u32 = 120;
const HEIGHT: f64 = 28.0;
const COLUMN: u32 = 5;
const BAR: u32 = 4;
/// What is seen of one request beside a thousand.
const LEAST: f64 = 1.5;

/// One hour of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HourCounts {
    /// When it began.
    pub start: Micros,
    /// Requests admitted in it.
    pub requests: u64,
    /// Requests refused in it.
    pub refusals: u64,
}

/// The last hours of a key, oldest first.
#[derive(Clone, Debug, PartialEq)]
pub struct ActivityChart {
    /// Requests admitted.
    pub requests: u64,
    /// Requests refused.
    pub refusals: u64,
    /// The most requests, admitted or refused, in one hour.
    pub most: u64,
    /// The hours, for the table.
    pub rows: Vec<HourRow>,
    /// The hours, for the picture.
    pub bars: Vec<Bar>,
}

/// One hour, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HourRow {
    /// When it began, for programs.
    pub iso: String,
    /// When it began: `21 Nov, 18:00 UTC`.
    pub start: String,
    /// Requests admitted.
    pub requests: String,
    /// Requests refused.
    pub refusals: String,
}

/// One hour, drawn: the refused on top of the admitted. In the picture's units, one digit of fraction.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// Its left edge.
    pub x: u32,
    /// Where the admitted begin, from above, and how high they are; nothing at zero.
    pub admitted: (f64, f64),
    /// Where the refused begin, from above, and how high they are; nothing at zero.
    pub refused: (f64, f64),
    /// What is said of it when it is pointed at.
    pub title: String,
}

impl ActivityChart {
    /// The last 24 of these hours, which are in their order.
    pub fn of(hours: &[HourCounts]) -> Self {
        let hours = &hours[hours.len().saturating_sub(24)..];
        let most = hours.iter().map(|hour| hour.requests.saturating_add(hour.refusals)).max().unwrap_or(0);
        let blank = 24 - hours.len() as u32;
        let bars = hours.iter().zip(blank..).map(|(hour, column)| Bar::of(hour, column * COLUMN, most)).collect();
        Self {
            requests: hours.iter().fold(0, |sum, hour| sum.saturating_add(hour.requests)),
            refusals: hours.iter().fold(0, |sum, hour| sum.saturating_add(hour.refusals)),
            most,
            rows: hours.iter().map(HourRow::of).collect(),
            bars,
        }
    }

    /// The picture's width.
    pub fn width(&self) -> u32 {
        WIDTH
    }

    /// The picture's height.
    pub fn height(&self) -> u32 {
        HEIGHT as u32
    }

    /// A bar's width.
    pub fn bar(&self) -> u32 {
        BAR
    }

    /// All of it in one sentence, for those who do not see the picture.
    pub fn sentence(&self) -> String {
        format!("{}, {} in the last 24 hours", self.requests_named(), self.refusals_named())
    }

    /// The requests refused, in digits.
    pub fn refusals_counted(&self) -> String {
        count(self.refusals)
    }

    /// The most in one hour, in digits.
    pub fn most_counted(&self) -> String {
        count(self.most)
    }

    /// The requests admitted, as a number of them.
    pub fn requests_named(&self) -> String {
        counted(self.requests, "request")
    }

    /// The requests refused, as a number of them.
    pub fn refusals_named(&self) -> String {
        counted(self.refusals, "refusal")
    }

    /// Whether nothing happened.
    pub fn is_quiet(&self) -> bool {
        self.most == 0
    }
}

impl HourRow {
    fn of(hour: &HourCounts) -> Self {
        let seconds = i64::try_from(hour.start.0 / 1_000_000).unwrap_or(i64::MAX);
        let start = jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::MAX);
        Self {
            iso: start.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            start: start.strftime("%-d %b, %H:%M UTC").to_string(),
            requests: count(hour.requests),
            refusals: count(hour.refusals),
        }
    }
}

impl Bar {
    fn of(hour: &HourCounts, x: u32, most: u64) -> Self {
        let refused = high(hour.refusals, most);
        let admitted = high(hour.requests, most).min(HEIGHT - refused);
        let (requests, refusals) = (counted(hour.requests, "request"), counted(hour.refusals, "refusal"));
        Self {
            x,
            admitted: (tenth(HEIGHT - admitted), tenth(admitted)),
            refused: (tenth(HEIGHT - admitted - refused), tenth(refused)),
            title: format!("{}: {requests}, {refusals}", HourRow::of(hour).start),
        }
    }
}

/// How high so many are; whoever is there can be seen.
fn high(number: u64, most: u64) -> f64 {
    if number == 0 { 0.0 } else { (HEIGHT * number as f64 / most as f64).max(LEAST) }
}

fn tenth(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hours(counts: &[(u64, u64)]) -> Vec<HourCounts> {
        let hour = |(index, (requests, refusals)): (usize, &(u64, u64))| HourCounts {
            start: Micros(1_699_999_200_000_000 + index as u64 * 3_600_000_000),
            requests: *requests,
            refusals: *refusals,
        };
        counts.iter().enumerate().map(hour).collect()
    }

    #[test]
    fn hours_are_summed_and_said() {
        let activity = ActivityChart::of(&hours(&[(1_200, 0), (4, 3)]));
        assert_eq!(activity.sentence(), "1,204 requests, 3 refusals in the last 24 hours");
        assert_eq!(activity.bars[1].title, "14 Nov, 23:00 UTC: 4 requests, 3 refusals");
        assert_eq!(ActivityChart::of(&hours(&[(1, 1)])).sentence(), "1 request, 1 refusal in the last 24 hours");
        assert!(ActivityChart::of(&[]).is_quiet());
    }

    #[test]
    fn bars_stay_in_the_picture_and_can_be_seen() {
        let many: Vec<(u64, u64)> = (0..30).map(|hour| (hour * 1_000_000, hour % 3)).chain([(u64::MAX, 9)]).collect();
        let activity = ActivityChart::of(&hours(&many));
        assert_eq!(activity.bars.len(), 24);
        for (bar, (requests, refusals)) in activity.bars.iter().zip(&many[7..]) {
            assert!(bar.x + BAR <= WIDTH);
            assert!(bar.refused.0 >= 0.0 && bar.admitted.0 + bar.admitted.1 <= HEIGHT + 0.1, "{bar:?}");
            assert_eq!(bar.admitted.1 > 0.0, *requests > 0, "{bar:?}");
            assert_eq!(bar.refused.1 > 0.0, *refusals > 0, "{bar:?}");
        }
        let newest = ActivityChart::of(&hours(&[(1, 0)]));
        assert_eq!(newest.bars[0].x, WIDTH - COLUMN, "the newest hour is at the right");
    }
}
