//! Integrity check of a journal: detects lines that were changed, torn, removed or inserted, and
//! segments that are missing.
//!
//! - At the beginning, segments may be missing that retention has removed, by its own records
//!   ([`beginning`](super::beginning)).
//! - Uses that began in a removed segment have an outcome without a beginning.
//! - Segments that retention removes while the check runs are no problem: when it has overtaken the check, the report
//!   is that of the segments that are left.
//!
//! It cannot detect the loss of whole lines at the end of the journal, nor a change by someone who recomputes the
//! checksums, the numbers and the seals. A check against an old checkpoint finds both ([`super::verify_tree`]).

use std::io;
use std::mem;
use std::path::Path;

use rustc_hash::FxHashMap;
use uuid::Uuid;

use super::beginning::Removals;
use super::verify_report::{Defect, VerifyReport};
use super::verify_tree::OwnCheckpoints;
use crate::audit::format::event::{OutcomeEvent, UseEvent};
use crate::audit::format::line::{self, EventKind};
use crate::audit::format::open_uses::OpenUses;
use crate::audit::format::segment::{self, Segment};
use crate::audit::format::segment_event::{Damaged, Expired, ExpiryReason, Seal, SegmentHeader};
use crate::audit::format::source::{self, Piece, SegmentSource};
use crate::audit::format::{decode, frame, id_text, seal};
use crate::audit::index::database;
use crate::audit::tree::lines;
use domain::clock::Micros;

/// Microseconds by which the id of a use may be younger than the header of the segment after it: ids have milliseconds,
/// and the clock of ids and that of headers are read at different times.
const CLOCK_MARGIN: u64 = 1_000_000;

/// An integrity check in progress.
#[derive(Default)]
struct Verifier {
    report: VerifyReport,
    /// A gateway writes the journal.
    in_use: bool,
    /// Position of the check.
    segment: u64,
    line: u64,
    /// The number that the next line must have; `None` before the first good line.
    next: Option<u64>,
    /// Uses that are open at this position, with segment and line of each.
    open: FxHashMap<u128, (u64, u64)>,
    /// The uses that are open where the segment begins, by the headers.
    listed: OpenUses,
    /// Time at which the first segment was created, when there were others before it.
    created_after_removal: Option<Micros>,
    removals: Removals,
    /// Seals that were read, with segment and line of each.
    seals: Vec<(u64, u64, Seal<'static>)>,
    /// Checkpoints that were read.
    checkpoints: OwnCheckpoints,
}

/// Reads and checks every line of a journal.
pub(crate) fn verify(directory: &Path) -> io::Result<(VerifyReport, OwnCheckpoints)> {
    // In this order: a journal that is not in use when it is listed has all that was listed until the end.
    let in_use = segment::is_locked(directory);
    verify_segments(directory, &segment::list(directory)?, in_use)
}

/// Reads and checks the lines of these segments. Segments of a journal in use may be removed meanwhile.
fn verify_segments(directory: &Path, segments: &[Segment], in_use: bool) -> io::Result<(VerifyReport, OwnCheckpoints)> {
    let mut verifier = Verifier { in_use, ..Verifier::default() };
    // Opening a journal creates a segment, and retention never removes the last one.
    if segments.is_empty() && directory.join(database::FILE).exists() {
        verifier.report_at(0, 0, "there is an index but no segment: all segments were removed");
    }
    for (i, segment) in segments.iter().enumerate() {
        verifier.check_segment(directory, segment, i + 1 == segments.len())?;
    }
    verifier.check_beginning(directory, segments)?;
    verifier.check_seals(directory, segments)?;
    verifier.check_open_uses();
    Ok((verifier.report, verifier.checkpoints))
}

impl Verifier {
    fn check_segment(&mut self, directory: &Path, segment: &Segment, last: bool) -> io::Result<()> {
        let mut piece = Piece::default();
        // From here on it stays open, so that no removal cuts the reading short. Damage is reported where it is read.
        if piece.hold(directory, segment.number).is_ok_and(|is_there| !is_there) {
            return Ok(());
        }
        self.check_gap(directory, segment.number)?;
        if self.report.segments == 0 {
            self.report.first_segment = segment.number;
        }
        self.segment = segment.number;
        self.line = 0;
        self.report.segments += 1;
        let mut torn = 0;
        for block in segment::blocks(segment.number, 0, segment.length) {
            if let Err(error) = source::read_block(directory, block, &mut piece) {
                self.report_damage(segment.number, error)?;
                continue;
            }
            for (_, line) in line::split_lines(&piece) {
                self.line += 1;
                self.check_line(line);
            }
            torn = torn.max(piece.len() - line::whole_length(&piece));
        }
        // In a journal in use, the last line may be half written at this moment, and the next segment be empty.
        if (self.line == 0 && segment.length == 0 || torn > 0) && !(last && self.in_use) {
            self.report_at(segment.number, self.line + 1, "the last line is torn");
        }
        Ok(())
    }

    /// Checks that no segment is missing before this one. Retention removes the oldest ones: when it has overtaken the
    /// check, the segment before the gap is gone, too, and the check begins again with this one.
    fn check_gap(&mut self, directory: &Path, number: u64) -> io::Result<()> {
        let has_gap = self.report.segments > 0 && number != self.segment + 1;
        if !has_gap {
            return Ok(());
        }
        if self.in_use && SegmentSource::open(directory, self.segment)?.is_none() {
            *self = Self { report: mem::take(&mut self.report).into_problems(), in_use: true, ..Self::default() };
        } else {
            self.report_at(number, 0, "a segment before this one is missing");
        }
        Ok(())
    }

    /// Reports the lines of a compressed segment that cannot be read; fails with every other error.
    fn report_damage(&mut self, segment: u64, error: io::Error) -> io::Result<()> {
        if error.kind() != io::ErrorKind::InvalidData {
            return Err(error);
        }
        // It is not known how many lines are lost.
        self.next = None;
        self.report_at(segment, self.line + 1, "the compressed segment is damaged, and lines cannot be read");
        Ok(())
    }

    fn check_line(&mut self, line: &[u8]) {
        self.report.events += 1;
        let Some(n) = frame::verify_line(line) else {
            // The line is lost but its number is not: the next line must have the number after it.
            self.next = self.next.map(|next| next + 1);
            return self.report("the checksum does not match the line");
        };
        if self.next.is_some_and(|next| next != n) {
            self.report("the number does not follow that of the line before");
        }
        self.next = Some(n + 1);
        self.removals.first_number.get_or_insert(n);
        if (self.line == 1) != (line::event_kind(line) == Some(EventKind::Header)) {
            self.report("a segment must begin with its header, and have only one");
        }
        self.check_event(line).unwrap_or_else(|| self.report("the line is not an event"));
    }

    /// Checks the content of a line; `None` when it is no event.
    fn check_event(&mut self, line: &[u8]) -> Option<()> {
        match line::event_kind(line)? {
            EventKind::Header => self.check_header(&serde_json::from_slice(line).ok()?),
            EventKind::Use => self.check_use(&decode::use_event(line)?),
            EventKind::Carried => self.check_carried(&decode::use_event(line)?),
            EventKind::Expired => self.check_expired(&serde_json::from_slice(line).ok()?),
            EventKind::Damaged => self.report(&serde_json::from_slice::<Damaged<'_>>(line).ok()?.to_string()),
            EventKind::Outcome => self.check_outcome(&decode::outcome_event(line)?),
            EventKind::Record => self.check_record(&decode::use_event(line)?),
            EventKind::Seal if lines::is_checkpoint(line) => {
                self.checkpoints.insert(self.segment, (self.line, serde_json::from_slice(line).ok()?));
            }
            EventKind::Seal => self.seals.push((self.segment, self.line, serde_json::from_slice(line).ok()?)),
        }
        Some(())
    }

    /// Counts a record of so many uses, as an export shows it.
    fn count_record(&mut self, uses: u64) {
        self.report.records += 1;
        self.report.uses = self.report.uses.saturating_add(uses);
    }

    fn check_header(&mut self, header: &SegmentHeader<'_>) {
        if header.segment != self.segment {
            self.report("the header is that of another segment");
        }
        self.removals.add_header(header);
        self.listed.apply(header);
        if self.report.segments == 1 {
            // Of the uses that began in segments before the first one, its header may list some.
            self.open = self.listed.uses.iter().map(|(id, open)| (*id, (open.segment, 0))).collect();
            self.created_after_removal = (header.segment > 1).then_some(header.created);
        } else if self.listed.uses.len() != self.open.len()
            || !self.listed.uses.keys().all(|id| self.open.contains_key(id))
        {
            self.report("the header does not list the requests that are open");
        }
    }

    fn check_use(&mut self, begun: &UseEvent<'_>) {
        self.count_record(1);
        if self.open.insert(begun.id.as_u128(), (self.segment, self.line)).is_some() {
            self.report("a request with the same id is open");
        }
    }

    /// Checks a beginning that is repeated. Where the segment that held it is gone, this is the beginning.
    fn check_carried(&mut self, carried: &UseEvent<'_>) {
        let place = (self.segment, self.line);
        let was_open = self.open.insert(carried.id.as_u128(), place).is_some();
        if carried.from.is_some_and(|from| from < self.report.first_segment) {
            self.count_record(1);
        } else if !was_open {
            self.report("a use that is carried on is not open");
        }
    }

    fn check_expired(&mut self, expired: &Expired<'_>) {
        self.removals.add(expired);
        if expired.reason == ExpiryReason::Missing {
            self.report(&format!("segment {} was missing before retention removed it", expired.segment));
        }
    }

    fn check_beginning(&mut self, directory: &Path, segments: &[Segment]) -> io::Result<()> {
        if self.in_use && self.removals.judge(self.report.first_segment).1.is_some() {
            // Removals by retention since the segments were listed are recorded after them.
            self.removals.add_later(directory, segments)?;
        }
        let (beginning, problem) = self.removals.judge(self.report.first_segment);
        self.report.beginning = beginning;
        if let Some(problem) = problem {
            self.report_at(self.report.first_segment, 0, &problem);
        }
        Ok(())
    }

    /// True for a use that may have begun in a segment that was removed: request ids carry the time of their creation.
    fn may_have_begun_before(&self, id: Uuid) -> bool {
        let latest = self.created_after_removal.map(|first| Micros(first.0 + CLOCK_MARGIN));
        latest.is_some_and(|latest| id_text::time_of(id).is_none_or(|created| created <= latest))
    }

    fn check_record(&mut self, record: &UseEvent<'_>) {
        self.count_record(record.uses());
        if record.outcome.is_none() {
            self.report("a record has no outcome");
        }
        let is_plausible = record.uses() > 0
            && record.last.is_none_or(|last| last >= record.time)
            && record.addresses.unwrap_or(0) >= record.ips.len() as u64;
        if !is_plausible {
            self.report("the count, times and addresses of a record of several refusals contradict each other");
        }
    }

    fn check_outcome(&mut self, ended: &OutcomeEvent) {
        if self.open.remove(&ended.id.as_u128()).is_none() && !self.may_have_begun_before(ended.id) {
            self.report("the request of this outcome is not open: it is missing, or has ended before");
        }
    }

    fn check_seals(&mut self, directory: &Path, segments: &[Segment]) -> io::Result<()> {
        for (segment, line, written) in mem::take(&mut self.seals) {
            if segments.iter().any(|segment| segment.number == written.segment) {
                match seal::compute(directory, written.segment, None) {
                    Ok(computed) if computed.as_ref().is_none_or(|computed| *computed == written) => {}
                    Err(error) if error.kind() != io::ErrorKind::InvalidData => return Err(error),
                    _ => self.report_at(segment, line, "the sealed segment was changed"),
                }
            }
        }
        Ok(())
    }

    /// Checks the uses that are left open. In a journal in use they are in progress; in any other one they should have
    /// been closed.
    fn check_open_uses(&mut self) {
        self.report.open = self.open.len() as u64;
        if self.in_use {
            return;
        }
        let mut open: Vec<(u64, u64)> = self.open.drain().map(|(_, place)| place).collect();
        open.sort_unstable();
        for (segment, line) in open {
            self.report_at(segment, line, "the use has no outcome");
        }
    }

    fn report(&mut self, what: &str) {
        self.report_at(self.segment, self.line, what);
    }

    fn report_at(&mut self, segment: u64, line: u64, what: &str) {
        self.report.add(Defect { segment, line, what: what.to_owned() });
    }
}
