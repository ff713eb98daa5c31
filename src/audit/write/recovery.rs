//! Where a journal goes on after its gateway ended, however it ended.
//!
//! The last segment is enough: its header says what was open when it began. A torn tail (whatever follows the last good
//! line) is cut off; damage before it is left as it is, for `verify` to find.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

use rustc_hash::FxHashMap;

use crate::audit::format::event::{Header, Open, Seal};
use crate::audit::format::frame;
use crate::audit::format::line::{self, Kind};
use crate::audit::format::segment;
use crate::clock::Micros;

/// Where a journal goes on.
#[derive(Debug, Default)]
pub(crate) struct Recovered {
    /// The last segment, open for writing; none in a new journal.
    pub(crate) file: Option<File>,
    pub(crate) number: u64,
    pub(crate) length: u64,
    pub(crate) created: Micros,
    pub(crate) gateway: String,
    /// The number of the next line.
    pub(crate) next: u64,
    /// Whether there are lines beyond the header.
    pub(crate) has_events: bool,
    pub(crate) open: FxHashMap<u128, Open>,
    pub(crate) unsealed: Vec<u64>,
}

/// Finds the end of the journal in a directory and cuts off what is torn.
pub(crate) fn recover(directory: &Path) -> io::Result<Recovered> {
    for last in segment::list(directory)?.iter().rev() {
        let path = segment::path(directory, last.number);
        let bytes = std::fs::read(&path)?;
        let Some(mut found) = read(last.number, &bytes) else {
            pass_over(&path, &bytes)?;
            continue;
        };
        let file = OpenOptions::new().write(true).open(&path)?;
        let torn = bytes.len() as u64 - found.length;
        if torn > 0 {
            tracing::warn!(path = %path.display(), bytes = torn, "cut a torn tail off the audit journal");
            file.set_len(found.length)?;
        }
        found.file = Some(file);
        return Ok(found);
    }
    Ok(Recovered { next: 1, ..Recovered::default() })
}

/// A segment without a good line: one whose creation was torn is removed, anything else is kept under another name.
fn pass_over(path: &Path, bytes: &[u8]) -> io::Result<()> {
    tracing::warn!(path = %path.display(), bytes = bytes.len(), "passed over a segment without a good line");
    if bytes.contains(&b'\n') {
        return std::fs::rename(path, path.with_extension("jsonl.damaged"));
    }
    std::fs::remove_file(path)
}

/// What the last segment says; none when it has no good line.
fn read(number: u64, bytes: &[u8]) -> Option<Recovered> {
    let mut found = Recovered { number, ..Recovered::default() };
    // Most uses have ended: their lines are looked at again only if they have not.
    let mut begun: FxHashMap<u128, &[u8]> = FxHashMap::default();
    for (at, line) in line::lines(bytes) {
        let Some(n) = frame::check(line) else { continue };
        found.next = n + 1;
        found.length = (at + line.len() + 1) as u64;
        found.has_events |= at > 0;
        match (line::kind(line), line::id(line)) {
            (Some(Kind::Use), Some(id)) => drop(begun.insert(id, line)),
            (Some(Kind::Outcome), Some(id)) => {
                begun.remove(&id);
                found.open.remove(&id);
            }
            (Some(Kind::Header), _) => found.header(line),
            (Some(Kind::Seal), _) => found.sealed(line),
            _ => {}
        }
    }
    for (id, line) in begun {
        if let Ok(open) = serde_json::from_slice::<Open>(line) {
            found.open.insert(id, Open { segment: number, ..open });
        }
    }
    (found.length > 0).then_some(found)
}

impl Recovered {
    fn header(&mut self, line: &[u8]) {
        if let Ok(header) = serde_json::from_slice::<Header<'_>>(line) {
            self.created = header.created;
            self.gateway = header.gateway.into_owned();
            self.unsealed = header.unsealed.into_owned();
            self.open = header.open.into_iter().map(|open| (open.id.as_u128(), open)).collect();
        }
    }

    fn sealed(&mut self, line: &[u8]) {
        if let Ok(seal) = serde_json::from_slice::<Seal<'_>>(line) {
            self.unsealed.retain(|number| *number != seal.segment);
        }
    }
}
