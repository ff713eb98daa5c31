//! `keygate state import`: checks a file whole, then imports it part by part.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use anyhow::{Context as _, anyhow};

use super::ImportArgs;
use super::parts::{Part, Parts};
use super::transfer::send_records;
use crate::cli::control;
use crate::cli::installation::Installation;
use crate::cli::progress::ProgressLine;
use crate::cli::{CliError, ExitStatus, output};
use domain::counted::Counted;
use state::migration::file::{self, FileError, Reader};
use state::migration::{Count, LeftOut, Report};

/// Findings that are kept to be shown; the others are counted.
const MAX_FINDINGS: usize = 1000;

/// Result of the parts so far.
#[derive(Default)]
struct Imported {
    report: Report,
    /// Number of the last line that is imported.
    line: u64,
    /// Findings that are not in the report.
    more: usize,
}

pub(crate) fn import(installation: &Installation, args: &ImportArgs, json: bool) -> Result<(), CliError> {
    let is_stdin = args.file == Path::new("-");
    let name = if is_stdin { "standard input".into() } else { args.file.display().to_string() };
    let open = || File::open(&args.file).map(BufReader::new).with_context(|| format!("{name}: cannot be read"));
    let mut imported = Imported::default();
    let result = if is_stdin {
        import_lines(installation, BufReader::new(io::stdin()), None, &mut imported)
    } else {
        let (_, summary) = file::verify(open()?).map_err(|errors| invalid(&name, &errors))?;
        import_lines(installation, open()?, Some(summary.counts.records()), &mut imported)
    };
    result.map_err(|error| stopped(error, &name, imported.line))?;
    show(&imported, json)?;
    check(&imported)
}

fn import_lines(
    installation: &Installation,
    input: impl BufRead + Send + 'static,
    all: Option<u64>,
    imported: &mut Imported,
) -> Result<(), CliError> {
    let mut progress = ProgressLine::new();
    let (reader, _) = Reader::begin(input).map_err(file_error)?;
    let mut parts = Parts::read(reader)?;
    control::with_server(installation, async |server| {
        loop {
            let Part { records, line, is_last } = parts.next().await?.map_err(file_error)?;
            if !records.is_empty() {
                imported.add(send_records(server, &records).await?);
                imported.line = line;
                let lines = imported.line.saturating_sub(1).min(all.unwrap_or(u64::MAX));
                progress.show(|| match all {
                    Some(all) => format!("imported {lines} of {}", Counted(all, "record")),
                    None => format!("imported {}", Counted(lines, "record")),
                });
            }
            if is_last {
                return Ok(());
            }
        }
    })
}

impl Imported {
    fn add(&mut self, mut report: Report) {
        let room = MAX_FINDINGS.saturating_sub(self.report.conflicts.len()).min(report.conflicts.len());
        self.more += report.conflicts.len() - room;
        report.conflicts.truncate(room);
        self.report.add(report);
    }
}

pub(super) fn file_error(error: FileError) -> CliError {
    CliError::new(ExitStatus::Failed, error)
}

/// The errors of a file of which nothing was imported.
fn invalid(name: &str, errors: &[FileError]) -> CliError {
    for error in errors {
        output::note(format_args!("{name}: {error}"));
    }
    let message = anyhow!("{name}: {}, so nothing was imported", Counted(errors.len(), "error"));
    CliError::new(ExitStatus::Failed, message)
}

/// Says how far an import came that stopped on its way.
fn stopped(error: CliError, name: &str, line: u64) -> CliError {
    let far = match line {
        0 => format!("{name}: nothing was imported"),
        line => format!("{name}: imported up to line {line}, and not further; import the whole file again"),
    };
    error.context(far)
}

fn show(imported: &Imported, json: bool) -> io::Result<()> {
    let report = &imported.report;
    if json {
        return output::json(report);
    }
    show_counts(report)?;
    if report.withdrawn > 0 {
        output::line(format_args!(
            "revoked, removed, withdrawn or suspended, as in the file: {}",
            Counted(report.withdrawn, "record")
        ))?;
    }
    if report.expired > 0 {
        output::line(format_args!("not imported, because expired: {}", Counted(report.expired, "token")))?;
    }
    for finding in &report.conflicts {
        output::line(format_args!("conflict: {finding}"))?;
    }
    if imported.more > 0 {
        output::line(format_args!("and {} more of these", imported.more))?;
    }
    let LeftOut { users, keys, rules, tokens, spent } = report.left_out;
    let left_out = [(users, "user"), (keys, "key"), (rules, "rule"), (tokens, "token"), (spent, "budget counter")];
    let left_out: Vec<String> = left_out
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, noun)| Counted(*count, noun).to_string())
        .collect();
    if !left_out.is_empty() {
        output::line(format_args!("left out, because their organization or user was: {}", left_out.join(", ")))?;
    }
    Ok(())
}

/// Shows the counts of a report, as a table.
fn show_counts(report: &Report) -> io::Result<()> {
    let row = |name: &str, count: Count| [name.to_owned(), count.copied.to_string(), count.already_there.to_string()];
    let rows = [
        row("organizations", report.orgs),
        row("users", report.users),
        row("keys", report.keys),
        row("digests", report.digests),
        row("rules", report.rules),
        row("tokens", report.tokens),
        row("budget counters", report.spent),
    ];
    output::table(&["", "IMPORTED", "ALREADY THERE"], &rows, "")
}

fn check(imported: &Imported) -> Result<(), CliError> {
    let report = &imported.report;
    if report.is_complete() {
        return Ok(());
    }
    let message = anyhow!("the import is incomplete: what is in conflict stays as it was; all else was imported");
    Err(CliError::new(ExitStatus::Incomplete, message))
}
