//! `keygate doctor`: diagnoses the running gateway and its environment, and recommends changes.

use std::io;
use std::path::Path;

use anyhow::anyhow;
use clap::builder::PossibleValuesParser;
use serde::Serialize;

use super::progress::ProgressLine;
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
        let mut progress = ProgressLine::new();
        let mut begun = 0;
        let begin = |check: Check| {
            begun += 1;
            progress.show_now(format_args!("[{begun}/{}] {}", checks.len(), check.name()));
        };
        let runtime = control::runtime()?;
        let mut findings = runtime.block_on(doctor::examine(file, &checks, begin));
        drop(progress);
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
