//! `keygate state verify`: compares an export with a later one, or with the state as it is now.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;

use anyhow::{Context as _, anyhow};

use super::export::read_state;
use super::{VerifyArgs, journaled};
use crate::cli::installation::Installation;
use crate::cli::{CliError, ExitStatus, output};
use domain::clock;
use domain::counted::Counted;
use state::migration::{Comparison, Records, compare};

pub(crate) fn verify(installation: &Installation, args: &VerifyArgs, json: bool) -> Result<(), CliError> {
    let Some(file) = &args.file else { return journaled::verify(installation, json) };
    let first = read_file(file)?;
    let second = match &args.other {
        Some(path) => read_file(path)?,
        None => read_state(installation)?,
    };
    let comparison = compare(&first, &second, clock::now());
    if json {
        output::json(&comparison)?;
    } else {
        show(&comparison)?;
    }
    match comparison.differences.len() {
        0 => Ok(()),
        count => {
            let message = anyhow!("{} of {}", Counted(count, "difference"), file.display());
            Err(CliError::new(ExitStatus::Failed, message))
        }
    }
}

/// Reads a file that `keygate state export` wrote.
pub(crate) fn read_file(path: &Path) -> Result<Records, CliError> {
    let name = path.display();
    let file = File::open(path).with_context(|| format!("{name}: cannot be read"))?;
    let read = Records::read(BufReader::new(file)).with_context(|| name.to_string());
    read.map_err(|error| CliError::new(ExitStatus::Failed, error))
}

fn show(comparison: &Comparison) -> io::Result<()> {
    let Comparison { same, used_since, only_in_second, differences } = comparison;
    output::line(format_args!("the same: {}", Counted(*same, "record")))?;
    if *used_since > 0 {
        output::line(format_args!("the same, and used since: {}", Counted(*used_since, "record")))?;
    }
    if *only_in_second > 0 {
        output::line(format_args!("not in the first export: {}", Counted(*only_in_second, "record")))?;
    }
    differences.iter().try_for_each(|finding| output::line(format_args!("differs: {finding}")))
}
