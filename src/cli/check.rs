//! `keygate check`: reports all errors of the configuration file.

use std::path::Path;

use super::{CliError, load, output};

pub(super) fn run(path: &Path) -> Result<(), CliError> {
    load(path)?.warnings().iter().for_each(output::note);
    Ok(output::line(format_args!("{}: ok", path.display()))?)
}
