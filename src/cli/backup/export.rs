//! `keygate state export`: writes a file that appears under its name when it is complete, and was read back.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use serde_json::json;

use super::ExportArgs;
use super::transfer::read_export;
use crate::cli::control;
use crate::cli::installation::Installation;
use crate::cli::progress::ProgressLine;
use crate::cli::{CliError, ExitStatus, output};
use domain::counted::Counted;
use state::migration::Records;
use state::migration::file::{self, FileError, Summary};

pub(crate) fn export(installation: &Installation, args: &ExportArgs, json: bool) -> Result<(), CliError> {
    match &args.out {
        Some(path) => {
            let summary = export_to_file(installation, path)?;
            Ok(show(path, &summary, json)?)
        }
        None if json => {
            let message = anyhow!("--json needs --out FILE: without it, standard output is the export itself");
            Err(CliError::new(ExitStatus::Usage, message))
        }
        None => {
            let mut out = BufWriter::new(io::stdout().lock());
            write_lines(installation, &mut out)?;
            Ok(out.flush()?)
        }
    }
}

/// Writes a file of another name, reads it back, and renames it.
fn export_to_file(installation: &Installation, path: &Path) -> Result<Summary, CliError> {
    let partial = Partial::new(path);
    let failed = |what: &str| format!("{}: {what}", partial.path.display());
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial.path);
    let mut out = BufWriter::new(file.with_context(|| failed("cannot be created"))?);
    write_lines(installation, &mut out)?;
    let file = out.into_inner().map_err(io::IntoInnerError::into_error).with_context(|| failed("cannot be written"))?;
    file.sync_all().with_context(|| failed("cannot be written"))?;
    let written = BufReader::new(File::open(&partial.path)?);
    let (_, summary) = file::verify(written).map_err(|errors| incomplete(path, &errors))?;
    partial.rename_to(path).with_context(|| format!("{}: cannot be replaced", path.display()))?;
    Ok(summary)
}

/// Exports the state, in memory.
pub(crate) fn read_state(installation: &Installation) -> Result<Records, CliError> {
    let mut lines = Vec::new();
    write_lines(installation, &mut lines)?;
    let read = Records::read(&*lines).context("the export of the state is not complete");
    read.map_err(|error| CliError::new(ExitStatus::Failed, error))
}

/// Writes all lines. Without the last one an export is incomplete, and the reader of the file finds that.
pub(super) fn write_lines(installation: &Installation, out: &mut impl io::Write) -> Result<(), CliError> {
    let mut progress = ProgressLine::new();
    let mut lines = 0_usize;
    control::with_server(installation, async |server| {
        let take = |part: &[u8]| {
            out.write_all(part)?;
            lines += part.iter().filter(|byte| **byte == b'\n').count();
            progress.show(|| format!("exported {}", Counted(lines, "record")));
            Ok(())
        };
        read_export(server, take).await
    })
}

fn incomplete(path: &Path, errors: &[FileError]) -> CliError {
    let first = errors.first().map_or_else(String::new, ToString::to_string);
    anyhow!("{}: the export is not complete, so it was removed: {first}", path.display()).into()
}

fn show(path: &Path, summary: &Summary, json: bool) -> io::Result<()> {
    let Summary { counts, sha256 } = summary;
    if json {
        return output::json(&json!({
            "file": path, "orgs": counts.orgs, "users": counts.users, "keys": counts.keys, "digests": counts.digests,
            "rules": counts.rules, "tokens": counts.tokens, "spent": counts.spent, "sha256": sha256,
        }));
    }
    let [orgs, users, keys, digests, rules, tokens] = [
        Counted(counts.orgs, "organization"),
        Counted(counts.users, "user"),
        Counted(counts.keys, "key"),
        Counted(counts.digests, "digest"),
        Counted(counts.rules, "rule"),
        Counted(counts.tokens, "token"),
    ];
    let path = path.display();
    output::line(format_args!("exported {orgs}, {users}, {keys} with {digests}, {rules} and {tokens} to {path}"))
}

/// A file under another name; removed on drop unless it was renamed.
struct Partial {
    path: PathBuf,
}

impl Partial {
    fn new(path: &Path) -> Self {
        let mut name = path.as_os_str().to_owned();
        name.push(OsString::from(format!(".{}.partial", std::process::id())));
        Self { path: name.into() }
    }

    fn rename_to(&self, path: &Path) -> io::Result<()> {
        fs::rename(&self.path, path)?;
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(directory)?.sync_all()
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // After the rename there is nothing to remove.
        let _ = fs::remove_file(&self.path);
    }
}
