//! Usage in a range of time: numbers, a bar chart stacked by outcome with the table behind it, and the causes of
//! refusals.

use super::numbers::{format_count, format_counted};
use super::outcome::{OutcomeClass, OutcomeText};
use super::recorded::RecordSource;
use super::timestamp::Timestamp;
use super::use_row::UseRow;
use crate::management::{Count, Period, Series, Sums};
use domain::clock::Micros;
use journal::audit::{Outcome, UsageRange};

/// Height of the chart, and width of a column, of which the last tenth is blank; in SVG units.
const HEIGHT: f64 = 100.0;
const COLUMN: u32 = 10;
const BAR: u32 = 9;
/// Least height of a bar, so that one request is visible beside a thousand.
const MIN_BAR: f64 = 1.0;
/// Classes of outcomes, from the bottom of a bar to its top.
const STACK: [OutcomeClass; 3] = [OutcomeClass::Good, OutcomeClass::Failed, OutcomeClass::Refused];

/// The ranges to choose from, and the usage in the chosen one.
#[derive(Clone, Debug)]
pub struct UsagePart {
    /// The ranges.
    pub ranges: Vec<RangeLink>,
    /// The range as words: `the last 7 days`.
    pub words: String,
    /// The usage; `None` when it cannot be read.
    pub usage: Option<RangeUsage>,
}

/// A range to choose.
#[derive(Clone, Debug)]
pub struct RangeLink {
    /// Shown text: `24 hours`.
    pub label: String,
    /// Its address.
    pub href: String,
    /// True for the range that is shown.
    pub is_current: bool,
}

/// Usage in a range.
#[derive(Clone, Debug)]
pub struct RangeUsage {
    /// The numbers by hour or day.
    pub chart: UsageChart,
    /// The causes of refusals, most frequent first.
    pub causes: Vec<CauseRow>,
    /// The time from which on uses are counted; `None` when that is the whole range.
    pub complete_from: Option<Timestamp>,
    /// Whose records were counted.
    pub source: RecordSource,
}

/// A cause of refusals.
#[derive(Clone, Debug)]
pub struct CauseRow {
    /// The outcome of the refused requests.
    pub outcome: &'static OutcomeText,
    /// Number of them.
    pub count: u64,
    /// The last one; `None` where it was not looked for, or not found.
    pub last: Option<UseRow>,
}

/// A subject with its requests: a key, a route, an address or a user agent.
#[derive(Clone, Debug)]
pub struct ShareRow {
    /// Its name.
    pub name: String,
    /// Address of its page.
    pub href: Option<String>,
    /// Requests, admitted and refused.
    pub requests: u64,
    /// Requests that were refused.
    pub refusals: u64,
    /// Share of all requests in per cent.
    pub percent: u64,
}

/// A chart.
#[derive(Clone, Debug)]
pub struct UsageChart {
    /// Hours are shown, and not days.
    pub is_hourly: bool,
    /// Requests by class of outcome, from the bottom of a bar to its top.
    pub totals: [u64; 3],
    /// Share of successful requests among those that have ended; `None` without any.
    pub success: Option<String>,
    /// The number at the top of the chart.
    pub top: u64,
    /// The hours or days, oldest first.
    pub bars: Vec<UsageBar>,
    /// Outcomes that occur, as columns of the table.
    pub columns: Vec<&'static OutcomeText>,
    /// Rows of the table: hours or days with requests.
    pub rows: Vec<PeriodRow>,
}

/// One hour or day in the chart.
#[derive(Clone, Debug)]
pub struct UsageBar {
    /// Left edge.
    pub x: u32,
    /// Top edge and height by class of outcome, from the bottom to the top; the height is 0 without any.
    pub parts: [(f64, f64); 3],
    /// Its beginning.
    pub start: PeriodStart,
    /// Tooltip.
    pub title: String,
}

/// The beginning of an hour or day.
#[derive(Clone, Debug)]
pub struct PeriodStart {
    /// RFC 3339 of an hour, which a script may show in the reader's time zone; `None` of a day, which is one of UTC.
    pub iso: Option<String>,
    /// `21 Nov, 18:00 UTC`, or `21 Nov`.
    pub text: String,
}

/// One hour or day in the table.
#[derive(Clone, Debug)]
pub struct PeriodRow {
    /// Its beginning.
    pub start: PeriodStart,
    /// Requests, admitted and refused.
    pub requests: String,
    /// Number of requests by outcome, in the order of the columns.
    pub counts: Vec<String>,
}

impl UsagePart {
    /// The choice of ranges, whose addresses `href` makes of their names.
    pub fn new(chosen: UsageRange, href: impl Fn(&str) -> String, usage: Option<RangeUsage>) -> Self {
        let link = |range: UsageRange| RangeLink {
            label: label(range),
            href: href(&range.name()),
            is_current: range == chosen,
        };
        Self {
            ranges: UsageRange::ALL.into_iter().map(link).collect(),
            words: format!("the last {}", label(chosen)),
            usage,
        }
    }
}

fn label(range: UsageRange) -> String {
    match range {
        UsageRange::Day => "24 hours".to_owned(),
        UsageRange::Days(days) => format_counted(days.into(), "day"),
    }
}

impl RangeUsage {
    /// The usage of a series; `last` has the last refusals of some causes.
    pub fn new(series: &Series, last: Vec<UseRow>, source: RecordSource, now: Micros) -> Self {
        let chart = UsageChart::new(series);
        let cause = |(outcome, count): (&'static OutcomeText, u64)| CauseRow {
            outcome,
            count,
            last: last.iter().find(|last| last.outcome == outcome).cloned(),
        };
        let refused = by_outcome(&series.total).into_iter().filter(|(outcome, _)| outcome.is_refused());
        let mut causes: Vec<CauseRow> = refused.map(cause).collect();
        causes.sort_by_key(|cause| std::cmp::Reverse(cause.count));
        let complete_from = series.complete_from.map(|from| Timestamp::new(from, now));
        Self { chart, causes, complete_from, source }
    }
}

impl CauseRow {
    /// The number of refusals: `16 times`.
    pub fn times(&self) -> String {
        format_counted(self.count, "time")
    }
}

impl ShareRow {
    /// Values with their counts, as shares of a number of requests.
    pub fn of_counts(counts: &[Count], all: u64) -> Vec<Self> {
        let row = |count: &Count| Self {
            name: count.value.clone(),
            href: None,
            requests: count.requests,
            refusals: 0,
            percent: percent(count.requests, all),
        };
        counts.iter().map(row).collect()
    }

    /// The number of requests, in digits.
    pub fn requests_count(&self) -> String {
        format_count(self.requests)
    }

    /// The number of refused requests, in digits.
    pub fn refusals_count(&self) -> String {
        format_count(self.refusals)
    }
}

/// A part in whole per cent of all.
pub fn percent(part: u64, all: u64) -> u64 {
    u64::try_from(u128::from(part) * 100 / u128::from(all.max(1))).unwrap_or(100)
}

impl UsageChart {
    fn new(series: &Series) -> Self {
        let is_hourly = series.periods.len() == 24;
        let most = series.periods.iter().map(|period| all(&period.sums)).max().unwrap_or(0);
        let top = round_up(most);
        let columns: Vec<&'static OutcomeText> =
            by_outcome(&series.total).into_iter().map(|(outcome, _)| outcome).collect();
        let used = series.periods.iter().filter(|period| all(&period.sums) > 0);
        Self {
            is_hourly,
            totals: by_class(&series.total),
            success: success(&series.total),
            top,
            bars: series.periods.iter().zip(0..).map(|(period, n)| UsageBar::new(period, n, top, is_hourly)).collect(),
            rows: used.map(|period| PeriodRow::new(period, &columns, is_hourly)).collect(),
            columns,
        }
    }

    /// Width of the chart.
    pub fn width(&self) -> u32 {
        u32::try_from(self.bars.len()).unwrap_or(0) * COLUMN
    }

    /// Height of the chart.
    pub fn height(&self) -> u32 {
        HEIGHT as u32
    }

    /// Width of a column.
    pub fn column(&self) -> u32 {
        COLUMN
    }

    /// Width of a bar.
    pub fn bar(&self) -> u32 {
        BAR
    }

    /// Returns `true` if there were no requests.
    pub fn is_empty(&self) -> bool {
        self.top == 0
    }

    /// All requests, in digits.
    pub fn all_count(&self) -> String {
        format_count(self.totals.iter().sum())
    }

    /// Requests of a class of outcomes, in digits.
    pub fn count(&self, class: &usize) -> String {
        format_count(self.totals[*class])
    }

    /// Names of the classes for readers and in the style sheet, with their numbers.
    pub fn classes(&self) -> [(usize, &'static str, &'static str); 3] {
        [(0, "succeeded", "admitted"), (1, "failed", "failed"), (2, "refused", "refused")]
    }

    /// The number at the top of the axis, in digits.
    pub fn top_count(&self) -> String {
        format_count(self.top)
    }

    /// The number at the middle of the axis, in digits; `None` when it is not a whole one.
    pub fn middle_count(&self) -> Option<String> {
        (self.top > 0 && self.top.is_multiple_of(2)).then(|| format_count(self.top / 2))
    }

    /// `hour` or `day`.
    pub fn unit(&self) -> &'static str {
        if self.is_hourly { "hour" } else { "day" }
    }

    /// The beginnings that are named below the chart: of the first, the middle and the last bar.
    pub fn ticks(&self) -> Vec<&PeriodStart> {
        let last = self.bars.len().saturating_sub(1);
        [0, last / 2, last].into_iter().filter_map(|place| self.bars.get(place)).map(|bar| &bar.start).collect()
    }

    /// The chart as one sentence, for screen readers.
    pub fn summary(&self) -> String {
        let [succeeded, failed, refused] = self.totals.map(format_count);
        format!("Requests by {}: {succeeded} succeeded, {failed} failed, {refused} were refused", self.unit())
    }
}

impl UsageBar {
    fn new(period: &Period, number: u32, top: u64, is_hourly: bool) -> Self {
        let counts = by_class(&period.sums);
        let mut edge = HEIGHT;
        let parts = counts.map(|count| {
            let height = if count == 0 { 0.0 } else { (HEIGHT * count as f64 / top as f64).max(MIN_BAR) };
            // Parts of the least height must not make a bar higher than the chart.
            edge = (edge - height).max(0.0);
            (round(edge), round(height))
        });
        let start = PeriodStart::new(period.start, is_hourly);
        let [succeeded, failed, refused] = counts.map(format_count);
        let title = format!("{}: {succeeded} succeeded, {failed} failed, {refused} refused", start.text);
        Self { x: number * COLUMN, parts, start, title }
    }
}

impl UsageBar {
    /// Top edge and height of the requests of a class of outcomes; `None` without any.
    pub fn part(&self, class: &usize) -> Option<(f64, f64)> {
        Some(self.parts[*class]).filter(|(_, height)| *height > 0.0)
    }
}

impl PeriodStart {
    fn new(time: Micros, is_hourly: bool) -> Self {
        let seconds = i64::try_from(time.0 / 1_000_000).unwrap_or(i64::MAX);
        let start = jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::MAX);
        if !is_hourly {
            return Self { iso: None, text: start.strftime("%-d %b").to_string() };
        }
        let iso = start.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        Self { iso: Some(iso), text: start.strftime("%-d %b, %H:%M UTC").to_string() }
    }
}

impl PeriodRow {
    fn new(period: &Period, columns: &[&'static OutcomeText], is_hourly: bool) -> Self {
        let counts = by_outcome(&period.sums);
        let count = |column: &&'static OutcomeText| {
            let found = counts.iter().find(|(outcome, _)| outcome == column);
            format_count(found.map_or(0, |(_, count)| *count))
        };
        Self {
            start: PeriodStart::new(period.start, is_hourly),
            requests: format_count(all(&period.sums)),
            counts: columns.iter().map(count).collect(),
        }
    }
}

fn all(sums: &Sums) -> u64 {
    sums.requests.saturating_add(sums.refusals)
}

/// The outcomes that occur, in the order of the filter; requests that have not ended among them.
fn by_outcome(sums: &Sums) -> Vec<(&'static OutcomeText, u64)> {
    let count = |text: &'static OutcomeText| {
        let ended = sums.outcomes.0.iter().find(|(outcome, _)| outcome.name() == text.name);
        let open = if text.name == Outcome::InProgress.name() { sums.open } else { 0 };
        (text, ended.map_or(open, |(_, count)| *count))
    };
    OutcomeText::all().iter().map(count).filter(|(_, count)| *count > 0).collect()
}

fn by_class(sums: &Sums) -> [u64; 3] {
    let outcomes = by_outcome(sums);
    STACK.map(|class| outcomes.iter().filter(|(outcome, _)| outcome.class == class).map(|(_, count)| count).sum())
}

/// The share of the requests that have succeeded among those that have ended: `99.9 %`. Never `100 %` when one has not.
fn success(sums: &Sums) -> Option<String> {
    let [good, failed, refused] = by_class(sums);
    let succeeded = good.saturating_sub(sums.open);
    let ended = succeeded + failed + refused;
    let permille = u128::from(succeeded) * 1000 / u128::from(ended.max(1));
    (ended > 0).then(|| match (permille / 10, permille % 10) {
        (whole, 0) => format!("{whole} %"),
        (whole, tenth) => format!("{whole}.{tenth} %"),
    })
}

/// The smallest number not below this one with one digit that is even, or 1, 5 and zeros.
fn round_up(most: u64) -> u64 {
    let mut unit = 1_u64;
    while most > unit.saturating_mul(10) {
        unit = unit.saturating_mul(10);
    }
    let steps = [1, 2, 4, 5, 6, 8, 10].map(|step| unit.saturating_mul(step));
    if most == 0 { 0 } else { steps.into_iter().find(|step| *step >= most).unwrap_or(most) }
}

/// Rounds to one decimal, which keeps pages small.
fn round(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::management::Outcomes;
    use domain::refusal::Refusal;

    fn sums(completed: u64, failed: u64, refused: u64, open: u64) -> Sums {
        let outcomes = vec![
            (Outcome::Completed, completed),
            (Outcome::UpstreamError, failed),
            (Outcome::Refused(Refusal::RateLimited), refused),
        ];
        Sums {
            requests: completed + failed + open,
            refusals: refused,
            open,
            outcomes: Outcomes(outcomes.into_iter().filter(|(_, count)| *count > 0).collect()),
            units: 0,
            request_bytes: 0,
            response_bytes: 0,
        }
    }

    #[test]
    fn success_is_of_what_has_ended_and_not_whole_when_one_failed() {
        assert_eq!(success(&sums(0, 0, 0, 7)), None);
        assert_eq!(success(&sums(7, 0, 0, 9)).as_deref(), Some("100 %"));
        assert_eq!(success(&sums(99_999, 1, 0, 0)).as_deref(), Some("99.9 %"));
        assert_eq!(success(&sums(1, 0, 2, 0)).as_deref(), Some("33.3 %"));
    }

    /// Bars are within the chart, and every class that occurs is visible.
    #[test]
    fn bars_are_visible_and_within_the_chart() {
        for scale in [0, 1, 2, 3, 7, 10, 11, 99, 4_321, u64::MAX / 64] {
            let period = |n: u64| Period {
                start: Micros(n * 86_400_000_000),
                sums: sums(scale / (n + 1), n % 3, (n % 2) * scale / 4, n % 4),
            };
            let periods: Vec<Period> = (0..7).map(period).collect();
            let most = periods.iter().map(|period| all(&period.sums)).max().unwrap();
            let top = round_up(most);
            assert!(top >= most && (most == 0 || top / 2 <= most), "{most}: {top}");
            for (number, period) in (0..).zip(&periods) {
                let bar = UsageBar::new(period, number, top, false);
                for ((edge, height), count) in bar.parts.into_iter().zip(by_class(&period.sums)) {
                    assert!(edge >= 0.0 && edge + height <= HEIGHT + 0.2, "{bar:?}");
                    assert_eq!(height > 0.0, count > 0, "{bar:?}");
                }
            }
        }
    }
}
