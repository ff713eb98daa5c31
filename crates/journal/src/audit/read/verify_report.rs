//! Report of an integrity check.

use serde::Serialize;

use super::beginning::Beginning;

/// Number of defects that are listed; further ones are only counted, since a journal may have as many as lines.
const MAX_LISTED: usize = 1000;

/// Result of an integrity check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    /// Number of segments.
    pub segments: u64,
    /// Number of records: those that an export of the same directory has.
    pub records: u64,
    /// Number of uses and attempts that they stand for: a record of several refusals counts by its `count`.
    #[serde(rename = "requests")]
    pub uses: u64,
    /// Number of lines.
    pub events: u64,
    /// Number of records without an outcome. In a journal that no gateway writes, each of them is a defect, too.
    pub open: u64,
    /// The first segment.
    pub first_segment: u64,
    /// The segments before the first one.
    pub beginning: Beginning,
    /// The first 1000 defects.
    pub problems: Vec<Defect>,
    /// Number of all defects.
    pub problem_count: u64,
}

/// A defect of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Defect {
    /// Number of the segment.
    pub segment: u64,
    /// Number of the line in the segment, from 1; 0 for the segment as a whole.
    pub line: u64,
    /// Description, for people.
    pub what: String,
}

impl VerifyReport {
    /// Adds a defect.
    pub(super) fn add(&mut self, defect: Defect) {
        self.problem_count += 1;
        if self.problems.len() < MAX_LISTED {
            self.problems.push(defect);
        }
    }

    /// The report of a check that begins again: of what was found, it has the defects only.
    pub(super) fn into_problems(self) -> Self {
        Self { problems: self.problems, problem_count: self.problem_count, ..Self::default() }
    }
}
