//! The part of a journal that its clones share, and its end.

use std::sync::Arc;

use parking_lot::Mutex;

use super::mode::Event;
use super::open::{JournalThread, RunningThreads};
use super::writer::JournalWriter;
use crate::audit::format::record::Use;
use crate::audit::settings::Addresses;
use domain::quota::{ArrivalTime, Gcra};

/// The part of a journal that its clones share. Dropping the last clone writes all lines and stops the threads.
#[derive(Debug)]
pub(crate) struct Handle {
    /// Shared with the threads, which have ended before the last reference of a handle is dropped.
    pub(crate) writer: Arc<JournalWriter>,
    /// Limit of the records of attempts with unknown keys, so that an attacker cannot fill the disk, and its state.
    pub(crate) unknown_key_limit: Gcra,
    pub(crate) unknown_keys: ArrivalTime,
    /// Addresses in records.
    pub(crate) addresses: Addresses,
    /// `None` once the journal is closed.
    pub(crate) running: Mutex<Option<RunningThreads>>,
}

impl Handle {
    /// Records a use with the address as the settings show it.
    pub(crate) fn with_shown_address<'u, T>(&self, opening: &Use<'u>, record: impl FnOnce(&Use<'u>) -> T) -> T {
        match self.addresses {
            Addresses::Full => record(opening),
            addresses => record(&Use { ip: opening.ip.map(|ip| addresses.shown(ip)), ..opening.clone() }),
        }
    }

    /// Writes the outcomes that wait to be written with others: a reader would take their uses for ones in progress.
    pub(crate) fn write_pending(&self) {
        // Lines that cannot be written stay pending; those who wait for them learn it from their completion.
        let _ = self.writer.flush(&mut self.writer.lock_segment());
    }

    /// Closes the journal: takes no more lines, writes the pending ones, and unlocks the directory. Only the first call
    /// has an effect.
    pub(crate) fn stop(&self) {
        let Some(running) = self.running.lock().take() else { return };
        let RunningThreads { background, indexer: _, committer, timed_sync, lock } = running;
        // These end first: they append lines, which the committer then writes. There are none while another
        // process has the journal.
        let maintained = background.map(|background| background.stop(&self.writer)).transpose();
        let synced = timed_sync.map(JournalThread::stop).transpose();
        self.writer.apply(Event::Closed, None);
        let committed = committer.stop();
        match maintained {
            Ok(indexer) if committed.is_ok() && synced.is_ok() => {
                indexer.into_iter().for_each(|mut indexer| indexer.leave(&self.writer.live_index));
            }
            _ => tracing::error!("a thread of the audit journal has panicked"),
        }
        drop(lock);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.stop();
    }
}
