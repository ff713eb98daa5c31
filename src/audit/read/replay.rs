//! Numbered uses of the journal, which the embedded state replays at start.

use std::io;
use std::path::Path;

use crate::audit::format::line::{self, EventKind};
use crate::audit::format::source::{self, Piece};
use crate::audit::format::{decode, open_uses, segment};
use crate::clock::Micros;
use crate::identity::{AuthMethod, UserId};
use crate::key::KeyId;

/// The credential of a numbered use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsedBy {
    /// This key.
    Key(KeyId),
    /// A session of this user.
    Session(UserId),
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
}

/// Reads the numbered uses at or after `since`, oldest first.
pub(crate) fn numbered_uses_since(directory: &Path, since: Micros) -> io::Result<Vec<ReplayEntry>> {
    let segments = segment::list(directory)?;
    let mut entries = Vec::new();
    let mut piece = Piece::default();
    for (i, segment) in segments.iter().enumerate() {
        // Everything in a segment was written before the next one was created, so an old segment is skipped whole.
        let next = segments.get(i + 1).map(|next| created_at(directory, next.number)).transpose()?.flatten();
        if next.is_some_and(|next| next < since) {
            continue;
        }
        for block in segment::blocks(segment.number, 0, segment.length) {
            if let Err(error) = source::read_block(directory, block, &mut piece) {
                skip_damage(segment.number, error)?;
                continue;
            }
            let numbered = line::split_lines(&piece).filter_map(|(_, line)| parse_numbered_use(line));
            entries.extend(numbered.filter(|entry| entry.time >= since));
        }
    }
    Ok(entries)
}

fn parse_numbered_use(line: &[u8]) -> Option<ReplayEntry> {
    matches!(line::event_kind(line)?, EventKind::Use | EventKind::Record | EventKind::Carried).then_some(())?;
    let begun = decode::verified_use(line)?;
    let by = match begun.auth_method {
        AuthMethod::ApiKey => UsedBy::Key(begun.key_id?),
        AuthMethod::Session => UsedBy::Session(begun.user_id?),
        // A change by management takes no token.
        AuthMethod::AdminSocket => return None,
    };
    Some(ReplayEntry { by, time: begun.time, number: begun.number? })
}

/// Passes over lines of a compressed segment that cannot be read; the gateway starts without them, as without damaged lines.
fn skip_damage(segment: u64, error: io::Error) -> io::Result<()> {
    if error.kind() != io::ErrorKind::InvalidData {
        return Err(error);
    }
    tracing::warn!(%error, segment, "uses in a damaged audit segment are not counted; run `keygate audit verify`");
    Ok(())
}

/// The time at which a segment was created, by its header.
fn created_at(directory: &Path, segment: u64) -> io::Result<Option<Micros>> {
    Ok(open_uses::read_header(directory, segment)?.map(|header| header.created))
}
