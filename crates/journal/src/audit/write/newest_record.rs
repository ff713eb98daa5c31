//! Time of the newest record of a journal that is opened: against it retention judges ages until a
//! request brings another one.

use std::io;
use std::os::unix::fs::FileExt as _;

use super::active_segment::RecoveredSegment;
use crate::audit::format::decode;
use crate::audit::format::line::{self, EventKind};
use crate::audit::format::segment::BLOCK;
use domain::clock::Micros;

/// Reads the time of the last record in the last block of the last segment; that of the segment's
/// beginning when there is none.
pub(crate) fn read_time(segment: &RecoveredSegment) -> io::Result<Micros> {
    let Some(file) = &segment.file else { return Ok(segment.created) };
    let from = segment.length.saturating_sub(BLOCK);
    let mut block = vec![0; usize::try_from(segment.length - from).unwrap_or_default()];
    file.read_exact_at(&mut block, from)?;
    let is_record = |line: &&[u8]| matches!(line::event_kind(line), Some(EventKind::Use | EventKind::Record));
    // The first line of the block is perhaps the end of one, which no checksum fits.
    let records = line::split_lines(&block).map(|(_, line)| line).filter(is_record).filter_map(decode::verified_use);
    Ok(records.last().map_or(segment.created, |record| record.time))
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::audit::format::record::Use;
    use crate::audit::settings::Durability;
    use crate::audit::write::journal::Journal;
    use crate::audit::write::journal::tests::{END, opening, settings};
    use platform::metrics::Metrics;

    #[tokio::test]
    async fn journal_that_is_opened_again_has_the_time_of_its_newest_record() {
        let directory = TempDir::new().unwrap();
        let time = Micros(1_600_000_000_000_000);
        let open = || Journal::open(settings(&directory, Durability::Written), Metrics::new().audit).unwrap();
        let newest = |journal: &Journal| journal.handle.writer.lock_pending().newest;
        let journal = open();
        assert_eq!(newest(&journal), Micros(0));
        journal.begin(&Use { time, ..opening() }).await.unwrap().close(END);
        assert_eq!(newest(&journal), time);
        journal.close().await;
        let journal = open();
        assert_eq!(newest(&journal), time);
        journal.close().await;
    }
}
