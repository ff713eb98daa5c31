//! The beginning of a journal: whether the segments before the first one are missing with a reason.

use std::io;
use std::path::Path;

use serde::Serialize;

use crate::audit::format::frame;
use crate::audit::format::line::{self, EventKind};
use crate::audit::format::segment::{self, Point, Segment};
use crate::audit::format::segment_event::{Expired, SegmentHeader};
use crate::audit::format::source::{self, Piece};

/// State of a journal's beginning: the reason why the segments before the first one are not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Beginning {
    /// There were none.
    #[default]
    Complete,
    /// Retention has removed them, and has recorded it.
    Removed,
    /// Some are missing without a record.
    Missing,
}

/// The removed segments of a journal, as the journal records them.
#[derive(Debug, Default)]
pub(crate) struct Removals {
    /// The first segment that should be there; 0 before the first header.
    first: u64,
    /// The last removed segments, each with the number of the line after it. Retention removes some at a time.
    next: Vec<(u64, u64)>,
    /// The number of the first line that is there.
    pub(crate) first_number: Option<u64>,
}

impl Removals {
    pub(crate) fn add_header(&mut self, header: &SegmentHeader<'_>) {
        self.first = self.first.max(header.first);
    }

    pub(crate) fn add(&mut self, expired: &Expired<'_>) {
        self.first = self.first.max(expired.segment.saturating_add(1));
        self.next.extend(expired.next.map(|next| (expired.segment, next)));
    }

    /// Adds what was recorded after these segments were listed. Retention may have removed a record of a removal, too;
    /// the headers after it still name the first segment that should be there.
    pub(crate) fn add_later(&mut self, directory: &Path, listed: &[Segment]) -> io::Result<()> {
        let last = listed.last().map_or(Point::START, |last| Point { segment: last.number, offset: last.length });
        let mut piece = Piece::default();
        for segment in segment::list_from(directory, last.segment)? {
            let from = if segment.number == last.segment { last.offset } else { 0 };
            for block in segment::blocks(segment.number, from, segment.length) {
                source::read_block(directory, block, &mut piece)?;
                for (_, line) in line::split_lines(&piece) {
                    self.add_line(line);
                }
            }
        }
        Ok(())
    }

    /// Adds a removal or a header that is whole.
    fn add_line(&mut self, line: &[u8]) {
        if frame::verify_line(line).is_none() {
            return;
        }
        match line::event_kind(line) {
            Some(EventKind::Header) => serde_json::from_slice(line).iter().for_each(|header| self.add_header(header)),
            Some(EventKind::Expired) => serde_json::from_slice(line).iter().for_each(|expired| self.add(expired)),
            _ => {}
        }
    }

    /// Judges the beginning of a journal by its first segment. Returns also what is wrong with it.
    pub(crate) fn judge(&self, present: u64) -> (Beginning, Option<String>) {
        // Segments are numbered from 1.
        let first = self.first.max(1);
        if present > first {
            let last = present - 1;
            let problem =
                format!("segments {first} to {last} are missing, and no record says that retention removed them");
            return (Beginning::Missing, Some(problem));
        }
        // The lines go on with the number that the removed segment ended with.
        let after =
            self.next.iter().find(|(segment, _)| segment.checked_add(1) == Some(present)).map(|(_, next)| *next);
        let problem = after.filter(|next| Some(*next) != self.first_number);
        let problem = problem
            .map(|next| format!("the line with the number {next}, the first after removed segments, is missing"));
        (if present <= 1 { Beginning::Complete } else { Beginning::Removed }, problem)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::format::frame::Line as _;
    use crate::audit::format::segment_event::ExpiryReason;
    use crate::audit::format::version::VERSION;
    use domain::clock::Micros;

    #[test]
    fn segments_may_be_missing_only_up_to_the_recorded_one() {
        let removals = |segments: &[u64]| {
            let mut removals = Removals { first: 1, first_number: Some(70), ..Removals::default() };
            let expired =
                |segment| Expired { next: Some(segment * 10), ..Expired::new(segment, ExpiryReason::Age, Micros(0)) };
            segments.iter().for_each(|segment| removals.add(&expired(*segment)));
            removals
        };
        assert_eq!(removals(&[]).judge(1), (Beginning::Complete, None));
        assert_eq!(removals(&[6, 7]).judge(8), (Beginning::Removed, removals(&[7]).judge(8).1));
        assert_eq!(removals(&[6, 7]).judge(8).1, None);
        assert_eq!(removals(&[6]).judge(8).0, Beginning::Missing);
        // A removal that a crash has interrupted.
        assert_eq!(removals(&[6, 7]).judge(7).0, Beginning::Removed);
        assert!(removals(&[7, 8]).judge(9).1.is_some(), "line 80 is missing");
        assert_eq!(Removals::default().judge(7).0, Beginning::Missing, "no header is whole");
    }
    #[test]
    fn header_stands_for_a_record_that_was_removed_after_its_segment() {
        let directory = tempfile::tempdir().unwrap();
        let listed = [Segment { number: 6, length: 1000 }];
        let mut line = Vec::new();
        let header = SegmentHeader {
            e: EventKind::Header,
            version: VERSION,
            segment: 9,
            created: Micros(0),
            gateway: "gw-1".into(),
            unsealed: [].as_slice().into(),
            first: 8,
            oldest: None,
            began: Vec::new(),
            ended: [].as_slice().into(),
        };
        frame::with_serialized(&header, |body| body.write_line(80, &mut line));
        std::fs::write(segment::path(directory.path(), 9), line).unwrap();
        let mut removals = Removals { first: 6, first_number: Some(70), ..Removals::default() };
        assert_eq!(removals.judge(8).0, Beginning::Missing);
        removals.add_later(directory.path(), &listed).unwrap();
        assert_eq!(removals.judge(8), (Beginning::Removed, None));
        assert_eq!(removals.judge(9).0, Beginning::Missing);
    }
}
