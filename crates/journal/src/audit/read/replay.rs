//! Numbered uses of the journal, which the embedded state replays at start.

use std::io;
use std::path::Path;

use crate::audit::format::line::{self, EventKind};
use crate::audit::format::segment;
use crate::audit::format::source::{self, Piece};
use crate::audit::format::{decode, frame, open_uses};
use domain::budget::{BudgetTotal, Cost};
use domain::clock::Micros;
use domain::identity::{AuthMethod, UserId};
use domain::key::KeyId;

/// The credential of a numbered use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsedBy {
    /// This key.
    Key(KeyId),
    /// A session of this user.
    Session(UserId),
}

/// Content of the journal for the replay at start.
#[derive(Debug, Default)]
pub struct Replay {
    /// The numbered uses, in the order of the journal.
    pub uses: Vec<ReplayEntry>,
    /// Units that had come back of budgets by the ends of uses.
    pub returned: Vec<BudgetTotal>,
}

/// A numbered use in the journal, for the replay at start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayEntry {
    /// The credential.
    pub by: UsedBy,
    /// Time of the decision.
    pub time: Micros,
    /// Number of the use among those of its key or session user.
    pub number: u64,
    /// Tokens that it took.
    pub cost: u32,
    /// Units that its subject had reserved of a budget by then.
    pub budget: Option<BudgetTotal>,
}

/// The part of a journal that is to be replayed: the uses from a line on, and those from a time on.
///
/// - The line is exact whatever the clock did. The time stands in for a state that knows none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayStart {
    /// Number of the first line with uses that may not be counted, over all segments; `None` when it is not known.
    pub line: Option<u64>,
    /// Time of the first such use.
    pub time: Micros,
}

impl From<Micros> for ReplayStart {
    fn from(time: Micros) -> Self {
        Self { line: None, time }
    }
}

impl ReplayStart {
    fn has(&self, line: u64, time: Micros) -> bool {
        time >= self.time || self.line.is_some_and(|from| line >= from)
    }

    /// Returns whether all lines before one were written before the start. Everything in a segment was written before
    /// the next one was created.
    fn is_after(&self, (line, created): (u64, Micros)) -> bool {
        created < self.time && self.line.is_none_or(|from| line <= from)
    }
}

/// Reads the numbered uses from a start on, in the order of the journal. `next` is the number of its next line: in a
/// journal with fewer lines than were counted, after a loss of power or in place of another one, the time alone counts.
pub(crate) fn numbered_uses(directory: &Path, start: ReplayStart, next: u64) -> io::Result<Replay> {
    let start = ReplayStart { line: start.line.filter(|line| *line <= next), ..start };
    let segments = segment::list(directory)?;
    let mut found = Replay::default();
    let mut piece = Piece::default();
    for (i, segment) in segments.iter().enumerate() {
        // An old segment is skipped whole.
        let next = segments.get(i + 1).map(|next| beginning(directory, next.number)).transpose()?.flatten();
        if next.is_some_and(|next| start.is_after(next)) {
            continue;
        }
        for block in segment::blocks(segment.number, 0, segment.length) {
            if let Err(error) = source::read_block(directory, block, &mut piece) {
                skip_damage(segment.number, error)?;
                continue;
            }
            for (_, line) in line::split_lines(&piece) {
                found.uses.extend(parse_numbered_use(line, start));
                found.returned.extend(parse_returned(line, start));
            }
        }
    }
    Ok(found)
}

/// Parses the line of a use; `None` for every other line, one that is damaged, and one before the start.
fn parse_numbered_use(line: &[u8], start: ReplayStart) -> Option<ReplayEntry> {
    matches!(line::event_kind(line)?, EventKind::Use | EventKind::Record | EventKind::Carried).then_some(())?;
    let n = frame::verify_line(line)?;
    let begun = decode::use_event(line).filter(|begun| start.has(n, begun.time))?;
    let by = match begun.auth_method {
        AuthMethod::ApiKey => UsedBy::Key(begun.key_id?),
        AuthMethod::Session => UsedBy::Session(begun.user_id?),
        // A change by management takes no token.
        AuthMethod::AdminSocket | AuthMethod::Token => return None,
    };
    Some(ReplayEntry {
        by,
        time: begun.time,
        number: begun.number?,
        cost: begun.cost.map_or(1, Cost::tokens),
        budget: begun.budget,
    })
}

/// Parses the line of an outcome that settled a budget; `None` for every other line. The time is not looked at: a total
/// that is counted already changes nothing.
fn parse_returned(line: &[u8], start: ReplayStart) -> Option<BudgetTotal> {
    // Nearly every outcome ends here, without its checksum.
    (line.first() == Some(&b'o') && memchr::memchr(b'/', line).is_some()).then_some(())?;
    let n = frame::verify_line(line)?;
    start.line.is_none_or(|from| n >= from).then_some(())?;
    Some(decode::outcome_event(line)?.settled?.returned)
}

/// Passes over lines of a compressed segment that cannot be read; the gateway starts without them, as
/// without damaged lines.
fn skip_damage(segment: u64, error: io::Error) -> io::Result<()> {
    if error.kind() != io::ErrorKind::InvalidData {
        return Err(error);
    }
    tracing::warn!(%error, segment, "requests in a damaged audit segment are not counted; run `keygate audit verify`");
    Ok(())
}

/// The number of the first line of a segment, and the time at which it was created, by its header.
fn beginning(directory: &Path, segment: u64) -> io::Result<Option<(u64, Micros)>> {
    Ok(open_uses::read_numbered_header(directory, segment)?.map(|(number, header)| (number, header.created)))
}
