//! Dates in fields of HTTP (RFC 9110, section 5.6.7).

use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use super::Micros;

/// Formats of a date: the one that is sent, and two obsolete ones that recipients must accept.
const FORMATS: [&str; 3] = ["%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"];

/// Parses a date; none when it is no date, or before the Unix epoch.
pub fn parse(text: &str) -> Option<Micros> {
    let date = FORMATS.iter().find_map(|format| DateTime::strptime(format, text).ok())?;
    let time = date.to_zoned(TimeZone::UTC).ok()?.timestamp();
    u64::try_from(time.as_microsecond()).ok().map(Micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_all_three_formats_are_parsed() {
        let example = Some(Micros(784_111_777_000_000));
        assert_eq!(parse("Sun, 06 Nov 1994 08:49:37 GMT"), example);
        assert_eq!(parse("Sunday, 06-Nov-94 08:49:37 GMT"), example);
        assert_eq!(parse("Sun Nov  6 08:49:37 1994"), example);
        for none in
            ["", "7", "Sun, 06 Nov 1994 08:49:37", "Mon, 06 Nov 1994 08:49:37 GMT", "Sun, 32 Nov 1994 08:49:37 GMT"]
        {
            assert_eq!(parse(none), None, "{none}");
        }
        assert_eq!(parse("Wed, 31 Dec 1969 23:59:59 GMT"), None);
    }
}
