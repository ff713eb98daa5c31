//! Metering: usage by organization, key or route, added up by day or month from the records of a journal.
//!
//! - **Exact.** Each use within the range is counted once, at the time of its beginning: admitted uses by their
//!   outcome, or as open; of refusals the `count` of their records. A record of several refusals lies within one second
//!   of the clock, so no period divides it.
//! - **Nothing is left out silently.** A report names the time from which on the journal has every record: retention,
//!   or something else, has removed earlier segments. It has the number of damaged lines.
//! - The process that writes the journal answers by the sums of its index ([`indexed`]), where whole days are asked
//!   for. Else, the journal is read once, in order, and only where the index says that uses of the range are, or where
//!   the outcome of a use can still come.

pub(crate) mod period;
pub(crate) mod query;
pub(crate) mod tally;
pub(crate) mod report;
mod indexed;
mod scan;

use std::io;
use std::path::Path;

use super::stop::StopSignal;
use crate::audit::filter::Filter;
use crate::audit::format::segment;
use crate::audit::index::live_index::LiveIndex;
use crate::audit::index::lookup;
use crate::audit::write::refusals::slot_file;
use crate::audit::write::spool;
use domain::clock::Micros;

use query::UsageQuery;
use report::UsageReport;
use scan::MeteringScan;

/// Time within which the record of a request is in the journal of a gateway that runs: decisions and the counts of
/// refusals take seconds at most. In microseconds.
const SETTLING: u64 = 60_000_000;

/// Reads the usage of a journal; `live` is what the process that writes it has of its index in memory.
pub(crate) fn read_usage(
    (directory, live): (&Path, Option<&LiveIndex>),
    query: UsageQuery,
    now: Micros,
    stop: &StopSignal,
) -> io::Result<UsageReport> {
    // In this order: what is settled now is in the segments that are listed next.
    let settled_before = settled_before(directory, now)?;
    if let Some((live, hours)) = live.zip(indexed::hours(&query)) {
        match indexed::read_usage((directory, live), query, hours, settled_before, stop) {
            Err(error) => tracing::debug!(%error, "usage cannot be read from the index; reading the journal"),
            report => return report,
        }
    }
    let segments = segment::list(directory)?;
    let filter = Filter { org: query.org, since: query.since, until: query.until, ..Filter::default() };
    let candidates = lookup::candidate_blocks(directory, None, &segments, &filter);
    let mut scan = MeteringScan::new(directory, query, stop);
    for segment in &segments {
        let from = candidates.partition_point(|block| block.segment < segment.number);
        let to = candidates.partition_point(|block| block.segment <= segment.number);
        scan.read_segment(segment, &candidates[from..to])?;
    }
    let complete_from = scan.complete_from(now);
    Ok(UsageReport {
        query,
        settled_before,
        complete_from,
        damaged_lines: scan.damaged_lines,
        rows: scan.tally.into_rows(),
    })
}

/// The time before which a journal has all its records, when it is read after this call.
///
/// A gateway that was killed, or whose disk is full, has counts of refusals beside the journal. They have the times of
/// their requests, and are recorded later.
fn settled_before(directory: &Path, now: Micros) -> io::Result<Micros> {
    let settled = Micros(now.0.saturating_sub(SETTLING));
    // Lines of a process that was replaced: a gateway that runs merges them at once.
    if !segment::is_locked(directory) && !spool::list(directory)?.is_empty() {
        return Ok(Micros(0));
    }
    Ok(slot_file::oldest_group(directory)?.map_or(settled, |oldest| oldest.min(settled)))
}
