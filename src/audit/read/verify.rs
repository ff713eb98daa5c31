//! Checking a journal: that nothing in it was changed, torn, taken out or put in.
//!
//! What it cannot see is the loss of the newest lines, as long as whole lines are gone, and a change by someone who makes
//! the checksums, the numbers and the seals fit: send the seals elsewhere to guard against that.

use std::fs::File;
use std::io;
use std::path::Path;

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::audit::format::event::{Header, OutcomeEvent, Seal, UseEvent};
use crate::audit::format::frame;
use crate::audit::format::line::{self, Kind};
use crate::audit::format::seal;
use crate::audit::format::segment::LOCK;
use crate::audit::format::segment::{self, Segment};
use crate::audit::index;

/// Problems reported one by one; the rest is only counted, as a journal may have as many as lines.
const REPORTED: usize = 1000;

/// What a check has found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    /// Segments read.
    pub segments: u64,
    /// Uses and attempts, ended or not.
    pub records: u64,
    /// Lines read.
    pub events: u64,
    /// Uses that are going on, in a journal that a gateway writes.
    pub open: u64,
    /// What is wrong, the first thousand.
    pub problems: Vec<Defect>,
    /// How many problems there are.
    pub problem_count: u64,
}

/// Something that should not be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Defect {
    /// The segment.
    pub segment: u64,
    /// The line in it, from 1; 0 for the segment as a whole.
    pub line: u64,
    /// What is wrong, for people.
    pub what: String,
}

/// The check, under way.
#[derive(Default)]
struct Check {
    report: VerifyReport,
    /// A gateway writes the journal.
    in_use: bool,
    /// Where the check is.
    segment: u64,
    line: u64,
    /// The number the next line must have.
    next: Option<u64>,
    /// The uses open here, with their places.
    open: FxHashMap<u128, (u64, u64)>,
    seals: Vec<(u64, u64, Seal<'static>)>,
}

/// Reads and checks every line of a journal.
pub(crate) fn verify(directory: &Path) -> io::Result<VerifyReport> {
    let mut check = Check { in_use: in_use(directory), ..Check::default() };
    let segments = segment::list(directory)?;
    // Writing begins with a segment, and the last one is never removed.
    if segments.is_empty() && directory.join(index::FILE).exists() {
        check.problem_at(0, 0, "there is no segment, but an index: all segments were removed");
    }
    for (i, segment) in segments.iter().enumerate() {
        if i > 0 && segment.number != check.segment + 1 {
            check.problem_at(segment.number, 0, "a segment before this one is missing");
        }
        check.segment(directory, segment, i + 1 == segments.len())?;
    }
    check.seals(directory, &segments)?;
    check.finish();
    Ok(check.report)
}

/// Whether a process holds the journal's lock.
fn in_use(directory: &Path) -> bool {
    let Ok(file) = File::open(directory.join(LOCK)) else { return false };
    matches!(file.try_lock_shared(), Err(std::fs::TryLockError::WouldBlock))
}

impl Check {
    fn segment(&mut self, directory: &Path, segment: &Segment, last: bool) -> io::Result<()> {
        (self.segment, self.line) = (segment.number, 0);
        self.report.segments += 1;
        let mut piece = Vec::new();
        let mut torn = 0;
        for block in segment::blocks(segment.number, 0, segment.length) {
            segment::read(directory, block, &mut piece)?;
            for (_, line) in line::lines(&piece) {
                self.line += 1;
                self.line(line);
            }
            let whole = piece.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
            torn = torn.max(piece.len() - whole);
        }
        if self.line == 0 && segment.length == 0 || torn > 0 && !(last && self.in_use) {
            self.problem_at(segment.number, self.line + 1, "the last line is torn");
        }
        Ok(())
    }

    fn line(&mut self, line: &[u8]) {
        self.report.events += 1;
        let Some(n) = frame::check(line) else {
            // The line is lost, its number is not: the next one is expected to go on after it.
            self.next = self.next.map(|next| next + 1);
            return self.problem("the checksum does not fit the line");
        };
        if self.next.is_some_and(|next| next != n) {
            self.problem("the number does not follow that of the line before");
        }
        self.next = Some(n + 1);
        if (self.line == 1) != (line::kind(line) == Some(Kind::Header)) {
            self.problem("a segment begins with its header, and has only one");
        }
        self.event(line).unwrap_or_else(|_| self.problem("the line is not an event"));
    }

    fn event(&mut self, line: &[u8]) -> serde_json::Result<()> {
        match line::kind(line) {
            Some(Kind::Header) => self.header(&serde_json::from_slice(line)?),
            Some(Kind::Use) => self.begun(&serde_json::from_slice(line)?),
            Some(Kind::Outcome) => self.ended(&serde_json::from_slice(line)?),
            Some(Kind::Record) => {
                let record: UseEvent<'_> = serde_json::from_slice(line)?;
                self.report.records += 1;
                if record.outcome.is_none() {
                    self.problem("a record has no outcome");
                }
            }
            Some(Kind::Seal) => self.seals.push((self.segment, self.line, serde_json::from_slice(line)?)),
            None => self.problem("the line is not an event"),
        }
        Ok(())
    }

    fn header(&mut self, header: &Header<'_>) {
        if header.segment != self.segment {
            self.problem("the header is that of another segment");
        }
        let said = header.open.iter().map(|open| (open.id.as_u128(), (open.segment, 0)));
        if self.report.segments == 1 {
            self.open = said.collect();
        } else if said.len() != self.open.len() || !said.into_iter().all(|(id, _)| self.open.contains_key(&id)) {
            self.problem("the header does not list the uses that are open");
        }
    }

    fn begun(&mut self, begun: &UseEvent<'_>) {
        self.report.records += 1;
        if self.open.insert(begun.id.as_u128(), (self.segment, self.line)).is_some() {
            self.problem("a use with the same id is open");
        }
    }

    fn ended(&mut self, ended: &OutcomeEvent) {
        if self.open.remove(&ended.id.as_u128()).is_none() {
            self.problem("the outcome's use is not open: it is missing, or has ended before");
        }
    }

    fn seals(&mut self, directory: &Path, segments: &[Segment]) -> io::Result<()> {
        for (segment, line, said) in std::mem::take(&mut self.seals) {
            let present = segments.iter().any(|segment| segment.number == said.segment);
            if present && seal::of(directory, said.segment)?.is_some_and(|found| found != said) {
                self.problem_at(segment, line, "the sealed segment was changed");
            }
        }
        Ok(())
    }

    fn finish(&mut self) {
        if self.in_use {
            self.report.open = self.open.len() as u64;
            return;
        }
        let mut open: Vec<(u64, u64)> = self.open.drain().map(|(_, place)| place).collect();
        open.sort_unstable();
        for (segment, line) in open {
            self.problem_at(segment, line, "the use has no outcome");
        }
    }

    fn problem(&mut self, what: &str) {
        self.problem_at(self.segment, self.line, what);
    }

    fn problem_at(&mut self, segment: u64, line: u64, what: &str) {
        self.report.problem_count += 1;
        if self.report.problems.len() < REPORTED {
            self.report.problems.push(Defect { segment, line, what: what.to_owned() });
        }
    }
}
