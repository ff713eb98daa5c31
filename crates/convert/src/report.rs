//! Findings of a conversion: errors, after which nothing is converted, and what has no counterpart and is left.
//!
//! - A finding names its place, never the value: a key may stand anywhere, also where a name is expected.
//! - Both lists are bounded, whatever the file has: further findings are counted.

use std::collections::HashMap;
use std::fmt::{self, Display};

use domain::counted::Counted;
use platform::settings::Location;

/// Errors that are kept to be shown.
const MAX_ERRORS: usize = 1000;
/// Places that are kept of what is left for one reason.
const MAX_PLACES: usize = 5;
/// Reasons that are told apart: those of a source, and names of fields that it does not know.
const MAX_REASONS: usize = 200;

/// Characters of a key below which it may be guessed.
pub(crate) const MIN_LENGTH: usize = 16;

/// A place in the file: its line, and the path of the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) at: Location,
    /// Such as `consumers[3].acls[0].group`.
    pub(crate) path: Box<str>,
}

/// Findings so far.
#[derive(Debug, Default)]
pub struct Report {
    errors: Vec<(Place, String)>,
    more_errors: usize,
    left: HashMap<String, Left>,
    /// Remarks on what is converted otherwise than one might expect.
    notes: Vec<(Place, String)>,
    more_notes: usize,
    /// Keys that may be guessed, with the line of the first.
    short_keys: Option<(usize, usize)>,
}

/// Values that are left for one reason.
#[derive(Debug, Default)]
struct Left {
    /// The first places.
    places: Vec<Place>,
    count: usize,
}

impl Report {
    /// Reports an error of the value at this place.
    pub(crate) fn error(&mut self, place: &Place, what: impl Display) {
        if self.errors.len() < MAX_ERRORS {
            self.errors.push((place.clone(), what.to_string()));
        } else {
            self.more_errors += 1;
        }
    }

    /// Reports that the value at this place has no counterpart.
    pub(crate) fn leave(&mut self, place: Place, why: impl Into<String>) {
        let why = why.into();
        let why = if self.left.len() < MAX_REASONS || self.left.contains_key(&why) {
            why
        } else {
            "has no counterpart".to_owned()
        };
        let left = self.left.entry(why).or_default();
        left.count += 1;
        if left.places.len() < MAX_PLACES {
            left.places.push(place);
        }
    }

    /// Reports what is converted, and otherwise than one might expect.
    pub(crate) fn note(&mut self, place: &Place, what: impl Display) {
        if self.notes.len() < MAX_ERRORS {
            self.notes.push((place.clone(), what.to_string()));
        } else {
            self.more_notes += 1;
        }
    }

    /// Counts a key that may be guessed.
    pub(crate) fn warn_short_key(&mut self, place: &Place) {
        let (count, first) = self.short_keys.unwrap_or((0, usize::MAX));
        self.short_keys = Some((count + 1, first.min(place.at.line)));
    }

    /// Number of errors.
    pub(crate) fn errors(&self) -> usize {
        self.errors.len() + self.more_errors
    }

    /// Number of values that are left.
    pub fn left(&self) -> usize {
        self.left.values().map(|left| left.count).sum()
    }

    /// The findings of a file, one a line: its errors, or when it has none, what is left, and warnings.
    pub fn lines(&self, file: &str) -> Vec<String> {
        let line = |place: &Place, what: &dyn Display| {
            format!("{file}:{}:{}: {}: {what}", place.at.line, place.at.column, place.path)
        };
        if !self.errors.is_empty() {
            let mut errors: Vec<&(Place, String)> = self.errors.iter().collect();
            errors.sort_by_key(|(place, _)| place.at);
            let more = (self.more_errors > 0).then(|| format!("{file}: and {} more errors", self.more_errors));
            return errors.into_iter().map(|(place, what)| line(place, what)).chain(more).collect();
        }
        let mut left: Vec<(&String, &Left)> = self.left.iter().collect();
        left.sort_by_key(|(_, left)| left.places[0].at);
        let mut lines = Vec::new();
        for (why, Left { places, count }) in left {
            lines.extend(places.iter().map(|place| line(place, &format_args!("left out: {why}"))));
            if *count > places.len() {
                lines.push(format!("{file}: and {} more of these: {why}", count - places.len()));
            }
        }
        lines.extend(self.warnings(file, line));
        lines
    }

    fn warnings(&self, file: &str, line: impl Fn(&Place, &dyn Display) -> String) -> Vec<String> {
        let mut lines: Vec<String> = self.notes.iter().map(|(place, what)| line(place, what)).collect();
        if self.more_notes > 0 {
            lines.push(format!("{file}: and {} more notes", self.more_notes));
        }
        if let Some((count, first)) = self.short_keys {
            lines.push(format!(
                "{file}: warning: {} of fewer than {} characters may be guessed, the first in line {first}; rotate \
                 them after the move",
                Counted(count, "key"),
                MIN_LENGTH
            ));
        }
        lines
    }
}

/// `3 errors`, `2 values`.
impl Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.errors() {
            0 => Counted(self.left(), "value").fmt(f),
            errors => Counted(errors, "error").fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(line: usize) -> Place {
        Place { at: Location { line, column: 1 }, path: format!("consumers[{line}]").into() }
    }

    #[test]
    fn findings_are_in_the_order_of_the_file_and_bounded() {
        let mut report = Report::default();
        for line in (1..=100_000).rev() {
            report.leave(place(line), format!("field {}", line % 1000));
        }
        assert_eq!(report.left(), 100_000);
        let lines = report.lines("f");
        assert!(lines.len() <= (MAX_REASONS + 1) * (MAX_PLACES + 1), "{}", lines.len());
        assert!(lines.iter().any(|line| line.ends_with("more of these: has no counterpart")), "{lines:#?}");
        for line in (1..=2000).rev() {
            report.error(&place(line), "is wrong");
        }
        let lines = report.lines("f");
        assert_eq!((lines.len(), report.errors()), (MAX_ERRORS + 1, 2000));
        assert_eq!(lines[0], "f:1001:1: consumers[1001]: is wrong");
        assert_eq!(lines[MAX_ERRORS], "f: and 1000 more errors");
    }
}
