//! Counts of a report, as a table.

use std::io;

use crate::cli::output;
use domain::counted::Counted;
use state::migration::{Count, Report};

/// Shows the counts of a report; `copied` heads the column of new records.
pub(crate) fn show_counts(report: &Report, copied: &'static str) -> io::Result<()> {
    let row = |name: &str, count: Count| [name.to_owned(), count.copied.to_string(), count.already_there.to_string()];
    let rows = [
        row("organizations", report.orgs),
        row("users", report.users),
        row("keys", report.keys),
        row("digests", report.digests),
    ];
    output::table(&["", copied, "ALREADY THERE"], &rows, "")?;
    if report.caught_up > 0 {
        output::line(format_args!(
            "brought up to date with their uses: {}",
            Counted(report.caught_up, "existing key")
        ))?;
    }
    Ok(())
}
