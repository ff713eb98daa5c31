//! `keygate doctor`: diagnoses the running gateway and its environment, and recommends changes.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;

use anyhow::anyhow;
use clap::builder::PossibleValuesParser;
use serde::Serialize;

use super::show::Format;
use super::{CliError, control, output};
use crate::doctor::{self, Check, Finding, Severity};
use domain::counted::Counted;

/// Arguments of `keygate doctor`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Run these checks only; can be given several times
    #[arg(long, value_name = "CHECK", value_parser = PossibleValuesParser::new(Check::ALL.map(Check::name)))]
    only: Vec<String>,
    /// Show findings that are worse than `ok` only
    #[arg(long)]
    problems: bool,
    #[command(flatten)]
    format: Format,
}

/// JSON form of the findings.
#[derive(Serialize)]
struct Report<'a> {
    /// Severity of the worst finding.
    worst: Severity,
    items: &'a [Finding],
}

impl Args {
    pub(super) fn run(self, file: &Path) -> Result<(), CliError> {
        let is_chosen = |check: &Check| self.only.is_empty() || self.only.iter().any(|name| name == check.name());
        let checks: Vec<Check> = Check::ALL.into_iter().filter(is_chosen).collect();
        let mut progress = Progress::new(checks.len());
        let runtime = control::runtime()?;
        let mut findings = runtime.block_on(doctor::examine(file, &checks, |check| progress.show(check)));
        progress.clear();
        // A reader of a file system that hangs must not keep the command from ending.
        runtime.shutdown_background();
        let worst = findings.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Ok);
        if self.problems {
            findings.retain(|finding| finding.severity > Severity::Ok);
        }
        if self.format.json {
            output::json(&Report { worst, items: &findings })?;
        } else {
            findings.iter().try_for_each(show)?;
        }
        if worst < Severity::Warning {
            return Ok(());
        }
        let of = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
        let count = |severity, noun| Counted(of(severity), noun);
        Err(anyhow!("{}, {}", count(Severity::Error, "error"), count(Severity::Warning, "warning")).into())
    }
}

/// Writes a finding: severity, check, subject and state in one line; the advice in another.
fn show(finding: &Finding) -> io::Result<()> {
    let Finding { severity, check, subject, found, advice } = finding;
    output::line(format_args!("{:<7}  {check:<13}  {subject}: {found}", output::word(severity)))?;
    match advice {
        Some(advice) => output::line(format_args!("{:24}-> {advice}", "")),
        None => Ok(()),
    }
}

/// Progress on a terminal: the check that runs.
struct Progress {
    count: usize,
    begun: usize,
    is_terminal: bool,
}

impl Progress {
    fn new(count: usize) -> Self {
        Self { count, begun: 0, is_terminal: io::stderr().is_terminal() }
    }

    fn show(&mut self, check: Check) {
        self.begun += 1;
        if self.is_terminal {
            self.write(&format!("\r\x1b[K[{}/{}] {}", self.begun, self.count, check.name()));
        }
    }

    /// Removes the line of progress, so that the findings begin at its place.
    fn clear(&self) {
        if self.is_terminal && self.begun > 0 {
            self.write("\r\x1b[K");
        }
    }

    /// A terminal that is gone is no reason to stop.
    fn write(&self, text: &str) {
        let mut stderr = io::stderr();
        let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
    }
}
