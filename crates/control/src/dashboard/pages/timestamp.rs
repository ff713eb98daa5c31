//! A point in time, as pages show it.

use super::numbers::format_duration;
use domain::clock::Micros;

/// Difference in microseconds below which a time is shown as `just now`.
const NOW_US: u64 = 5_000_000;

/// A point in time in all the forms that pages show. The texts are in UTC; scripts replace them by the reader's time
/// zone and language.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timestamp {
    /// RFC 3339, to the second, for the attribute `datetime`.
    pub iso: String,
    /// To the second: `21 Nov 2026, 18:24:09 UTC`.
    pub exact: String,
    /// The day alone: `21 Nov 2026`.
    pub day: String,
    /// Relative to now: `3 minutes ago`, `in 2 hours`, `just now`.
    pub relative: String,
}

impl Timestamp {
    /// The forms of `time` for a page that is rendered at `now`.
    pub fn new(time: Micros, now: Micros) -> Self {
        let seconds = i64::try_from(time.0 / 1_000_000).unwrap_or(i64::MAX);
        let at = jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::MAX);
        Self {
            iso: at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            exact: at.strftime("%-d %b %Y, %H:%M:%S UTC").to_string(),
            day: at.strftime("%-d %b %Y").to_string(),
            relative: format_relative(time, now),
        }
    }
}

/// A sentence with its RFC 3339 times in the form of [`Timestamp::exact`].
pub fn with_exact_times(sentence: &str) -> String {
    let word = |word: &str| {
        let (time, end) = word.split_at(word.trim_end_matches([',', ';', '.', ')']).len());
        let exact = |time| Timestamp::new(time, time).exact + end;
        time.parse().map_or_else(|_| word.to_owned(), exact)
    };
    sentence.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

fn format_relative(time: Micros, now: Micros) -> String {
    let past = now.since(time);
    let future = time.since(now);
    if past.max(future) < NOW_US {
        "just now".into()
    } else if future > 0 {
        format!("in {}", format_duration(future))
    } else {
        format!("{} ago", format_duration(past))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Micros = Micros(1_700_000_000_000_042);

    #[test]
    fn exact_forms_are_in_utc_to_the_second() {
        let time = Timestamp::new(NOW, NOW);
        assert_eq!(time.iso, "2023-11-14T22:13:20Z");
        assert_eq!(time.exact, "14 Nov 2023, 22:13:20 UTC");
        assert_eq!(time.day, "14 Nov 2023");
        assert_eq!(Timestamp::new(Micros(0), NOW).exact, "1 Jan 1970, 00:00:00 UTC");
        assert!(Timestamp::new(Micros(u64::MAX), NOW).iso.starts_with("9999-"));
    }

    #[test]
    fn times_of_a_sentence_are_exact_forms() {
        for (sentence, shown) in [
            ("disabled, since 2023-11-14T22:13:20Z because", "disabled, since 14 Nov 2023, 22:13:20 UTC because"),
            ("(until 2023-11-14T22:13:20.5Z); a:b", "(until 14 Nov 2023, 22:13:20 UTC); a:b"),
            ("from 10.0.0.0/8, ::1/128", "from 10.0.0.0/8, ::1/128"),
            ("", ""),
        ] {
            assert_eq!(with_exact_times(sentence), shown);
        }
    }

    #[test]
    fn relative_form_counts_from_now() {
        let second = 1_000_000;
        for (later, text) in [(4, "just now"), (5, "in 5 seconds"), (420, "in 7 minutes"), (7_200, "in 2 hours")] {
            assert_eq!(format_relative(Micros(NOW.0 + later * second), NOW), text);
        }
        for (earlier, text) in [(0, "just now"), (4, "just now"), (180, "3 minutes ago"), (86_400, "1 day ago")] {
            assert_eq!(format_relative(Micros(NOW.0 - earlier * second), NOW), text);
        }
    }
}
