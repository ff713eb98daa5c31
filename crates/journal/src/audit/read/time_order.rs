//! Order of exported records by time.
//!
//! The journal has them in the order of their lines, and a record of several refusals has its line when the second of
//! its first one is over: behind the records of a second that were later. So records wait here until all that were
//! earlier are known.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use crate::audit::format::record::Record;
use domain::clock::Micros;

/// Time by which the line of a record may be late: the second of the refusals, and as long for its writing. Later ones,
/// such as refusals that a full disk had kept from being written, come where their lines are.
const WINDOW: Duration = Duration::from_secs(2);

/// The records of the last two seconds. Those of one time are in the order of their lines.
#[derive(Debug, Default)]
pub(crate) struct TimeOrder {
    held: BTreeMap<(Micros, u64), Record>,
    newest: Micros,
    count: u64,
}

impl TimeOrder {
    /// Adds the next record of the journal, and passes those on to `each` before which none will come.
    ///
    /// # Errors
    /// Those of `each`.
    pub(crate) fn add(&mut self, record: Record, each: &mut dyn FnMut(Record) -> io::Result<()>) -> io::Result<()> {
        self.newest = self.newest.max(record.time);
        self.held.insert((record.time, self.count), record);
        self.count += 1;
        let until = self.newest.before(WINDOW);
        while let Some(first) = self.held.first_entry().filter(|first| first.key().0 <= until) {
            each(first.remove())?;
        }
        Ok(())
    }

    /// Passes the last records on.
    ///
    /// # Errors
    /// Those of `each`.
    pub(crate) fn finish(self, each: &mut dyn FnMut(Record) -> io::Result<()>) -> io::Result<()> {
        self.held.into_values().try_for_each(each)
    }
}
