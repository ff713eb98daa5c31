//! `keygate check`: reports all errors of the configuration file.

use super::installation::Installation;
use super::{CliError, output};

pub(super) fn run(installation: &Installation) -> Result<(), CliError> {
    installation.config()?.warnings().iter().for_each(output::note);
    Ok(output::line(format_args!("{}: ok", installation.file().display()))?)
}
