//! `keygate check`: every error of the configuration at once.

use std::path::Path;

use super::{Failure, load, output};

pub(super) fn run(path: &Path) -> Result<(), Failure> {
    load(path)?;
    Ok(output::line(format_args!("{}: ok", path.display()))?)
}
