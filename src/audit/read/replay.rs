//! The replay at start: which numbered uses the journal holds since a time.

use std::io;
use std::path::Path;

use serde::Deserialize;

use crate::audit::format::event::Header;
use crate::audit::format::frame;
use crate::audit::format::line::{self, Kind};
use crate::audit::format::segment::{self, Block};
use crate::clock::Micros;
use crate::identity::{AuthMethod, UserId};
use crate::key::KeyId;

/// The credential with which a numbered use was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsedBy {
    /// This key.
    Key(KeyId),
    /// A session of this user.
    Session(UserId),
}

/// A numbered use that the journal holds, for the replay at start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayEntry {
    /// The key or session user.
    pub by: UsedBy,
    /// When.
    pub time: Micros,
    /// The number of the use.
    pub number: u64,
}

/// The numbered uses at or after `since`, oldest first.
pub(crate) fn since(directory: &Path, since: Micros) -> io::Result<Vec<ReplayEntry>> {
    let segments = segment::list(directory)?;
    let mut seen = Vec::new();
    let mut piece = Vec::new();
    for (i, segment) in segments.iter().enumerate() {
        // All that a segment holds was written before the next one was created.
        let next = segments.get(i + 1).map(|next| created(directory, next.number)).transpose()?.flatten();
        if next.is_some_and(|next| next < since) {
            continue;
        }
        for block in segment::blocks(segment.number, 0, segment.length) {
            segment::read(directory, block, &mut piece)?;
            seen.extend(line::lines(&piece).filter_map(|(_, line)| numbered(line)).filter(|seen| seen.time >= since));
        }
    }
    Ok(seen)
}

/// What the replay needs of the beginning of a use.
#[derive(Deserialize)]
struct Opening {
    time: Micros,
    number: Option<u64>,
    auth_method: AuthMethod,
    key_id: Option<KeyId>,
    user_id: Option<UserId>,
}

fn numbered(line: &[u8]) -> Option<ReplayEntry> {
    matches!(line::kind(line)?, Kind::Use | Kind::Record).then_some(())?;
    frame::check(line)?;
    let opening: Opening = serde_json::from_slice(line).ok()?;
    let by = match opening.auth_method {
        AuthMethod::ApiKey => UsedBy::Key(opening.key_id?),
        AuthMethod::Session => UsedBy::Session(opening.user_id?),
        AuthMethod::AdminSocket => return None,
    };
    Some(ReplayEntry { by, time: opening.time, number: opening.number? })
}

/// When a segment was created, by its header.
fn created(directory: &Path, segment: u64) -> io::Result<Option<Micros>> {
    let mut piece = Vec::new();
    segment::read(directory, Block { segment, start: 0, end: 1 }, &mut piece)?;
    let line = line::lines(&piece).next();
    Ok(line.and_then(|(_, line)| serde_json::from_slice::<Header<'_>>(line).ok()).map(|header| header.created))
}
