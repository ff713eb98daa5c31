//! Formatting of numbers and durations for pages.

/// Formats a number with thousands separators: `1,204`.
pub fn format_count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a number of things: `1 request`, `1,204 requests`. The plural is the noun with an `s`.
pub fn format_counted(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", format_count(number), if number == 1 { "" } else { "s" })
}

/// Formats a duration in microseconds in its largest whole unit: `7 minutes`. Months have 30 days, years 365.
pub fn format_duration(micros: u64) -> String {
    const UNITS: [(u64, &str); 6] = [
        (365 * 86_400, "year"),
        (30 * 86_400, "month"),
        (86_400, "day"),
        (3_600, "hour"),
        (60, "minute"),
        (1, "second"),
    ];
    let seconds = micros / 1_000_000;
    let (size, name) = UNITS.iter().find(|(size, _)| seconds >= *size).unwrap_or(&UNITS[5]);
    format_counted(seconds / size, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_thousands_separators() {
        for (number, text) in [
            (0, "0"),
            (7, "7"),
            (999, "999"),
            (1_000, "1,000"),
            (12_345, "12,345"),
            (123_456, "123,456"),
            (1_234_567, "1,234,567"),
            (u64::MAX, "18,446,744,073,709,551,615"),
        ] {
            assert_eq!(format_count(number), text);
        }
    }

    #[test]
    fn counted_noun_is_singular_for_one() {
        assert_eq!(format_counted(0, "refusal"), "0 refusals");
        assert_eq!(format_counted(1, "refusal"), "1 refusal");
        assert_eq!(format_counted(1_204, "request"), "1,204 requests");
    }

    #[test]
    fn durations_are_in_the_largest_whole_unit() {
        for (seconds, text) in [
            (0, "0 seconds"),
            (1, "1 second"),
            (59, "59 seconds"),
            (60, "1 minute"),
            (3_599, "59 minutes"),
            (3_600, "1 hour"),
            (86_399, "23 hours"),
            (86_400, "1 day"),
            (30 * 86_400 - 1, "29 days"),
            (30 * 86_400, "1 month"),
            (365 * 86_400 - 1, "12 months"),
            (365 * 86_400, "1 year"),
            (10 * 365 * 86_400, "10 years"),
        ] {
            assert_eq!(format_duration(seconds * 1_000_000), text, "{seconds}");
            assert_eq!(format_duration(seconds * 1_000_000 + 999_999), text, "{seconds}.999999");
        }
    }
}
