//! `keygate audit verify`, `audit prove` and `audit key`: integrity of the journal, proofs, and the key of checkpoints.

use std::fmt::{self, Display};
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use clap::Subcommand;
use serde::Serialize;
use uuid::Uuid;

use super::service_user::ServiceUser;
use super::show::Format;
use super::{CliError, ExitStatus, checkpoint_file, output};
use crate::config::Config;
use ::journal::audit::{self as journal, Beginning, Defect, PublicKey, Reader, TreeReport, VerifyReport};
use domain::counted::Counted;

/// Arguments of `keygate audit verify`.
#[derive(Debug, clap::Args)]
pub(super) struct VerifyArgs {
    /// Also compare the journal with old checkpoints, all that are in a file: notes, or shipped
    /// lines; - for standard input
    #[arg(long, value_name = "FILE")]
    checkpoint: Option<PathBuf>,
    /// Public key of the checkpoint: NAME+ID+BASE64, or its file. Default: that of `audit.checkpoints.key_file`
    #[arg(long, value_name = "KEY", requires = "checkpoint")]
    public_key: Option<String>,
    /// Public key of a witness that must have cosigned each checkpoint; may be repeated
    #[arg(long, value_name = "KEY", requires = "checkpoint")]
    witness_key: Vec<String>,
}

/// Arguments of `keygate audit prove`.
#[derive(Debug, clap::Args)]
pub(super) struct ProveArgs {
    /// Id of the record: the value of X-Request-Id, or request_id of a refusal
    #[arg(value_name = "REQUEST_ID")]
    pub(super) id: Uuid,
    /// File of the checkpoint to prove it by. Default: the latest
    #[arg(long, value_name = "FILE")]
    checkpoint: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(super) enum KeyCommand {
    /// Generate a key, write it to a file and its public key to FILE.pub, and print the public key
    New {
        /// File of the private key, which must not exist. Default: `audit.checkpoints.key_file`
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        /// Name of the tree, such as example.org/audit/gw-1: one for each gateway. Default: keygate/
        /// and the gateway's name
        #[arg(long)]
        name: Option<String>,
    },
    /// Print the public key of a key file
    Show {
        /// File of the private key. Default: `audit.checkpoints.key_file`
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
    },
}

/// JSON form of a check against a checkpoint.
#[derive(Serialize)]
struct CheckpointReport<'a> {
    #[serde(flatten)]
    report: &'a VerifyReport,
    checkpoint: &'a TreeReport,
}

/// JSON form of a public key.
#[derive(Serialize)]
struct KeyReply {
    public_key: String,
}

impl VerifyArgs {
    pub(super) fn run(self, reader: &Reader, config: &Config, format: Format) -> Result<(), CliError> {
        let Some(file) = &self.checkpoint else {
            let report = reader.verify()?;
            if format.json {
                output::json(&report)?;
            } else {
                show_report(&report)?;
            }
            return conclude(report.problem_count);
        };
        let key = self.public_key(config)?;
        let witnesses = self.witness_key.iter().map(|text| parse_key(text)).collect::<Result<Vec<_>, _>>()?;
        let copies = checkpoint_file::read_copies(file, &key, &witnesses)?;
        let (report, tree) = reader.verify_copies(&copies, &key)?;
        if format.json {
            output::json(&CheckpointReport { report: &report, checkpoint: &tree })?;
        } else {
            show_report(&report)?;
            show_tree(&tree)?;
        }
        conclude(report.problem_count + tree.problems.len() as u64)
    }

    fn public_key(&self, config: &Config) -> Result<PublicKey, CliError> {
        match &self.public_key {
            Some(key) => parse_key(key),
            None => configured_key(config),
        }
    }
}

/// Shows the report of an integrity check.
fn show_report(report: &VerifyReport) -> io::Result<()> {
    let counts = RecordCounts { records: report.records, open: report.open, uses: report.uses };
    output::line(format_args!(
        "{}, {counts}, {}, {}",
        Counted(report.segments, "segment"),
        Counted(report.events, "event"),
        Counted(report.problem_count, "problem")
    ))?;
    if let Some(beginning) = beginning(report) {
        output::line(beginning)?;
    }
    show_defects(&report.problems)
}

fn show_defects(defects: &[Defect]) -> io::Result<()> {
    defects.iter().try_for_each(|Defect { segment, line, what }| {
        output::line(format_args!("segment {segment} line {line}: {what}"))
    })
}

/// A line about segments that are no longer there, for people.
fn beginning(report: &VerifyReport) -> Option<String> {
    let first = report.first_segment;
    match report.beginning {
        Beginning::Removed => Some(format!("it begins with segment {first}: retention has removed those before it")),
        Beginning::Complete | Beginning::Missing => None,
    }
}

fn conclude(problems: u64) -> Result<(), CliError> {
    match problems {
        0 => Ok(()),
        count => Err(CliError::new(ExitStatus::Failed, anyhow!("the journal has {}", Counted(count, "error")))),
    }
}

fn show_tree(tree: &TreeReport) -> io::Result<()> {
    let TreeReport { origin, checkpoints, other_trees, covered, not_comparable, lines, proven, .. } = tree;
    let TreeReport { removed_lines, removed_segments, problems, .. } = tree;
    output::line(format_args!(
        "{} of {origin}: {}; the journal has {lines}, of which {proven} are proven",
        Counted(*checkpoints, "checkpoint"),
        Counted(*covered, "line")
    ))?;
    if *other_trees > 0 {
        output::line(format_args!("{} of other trees: left out", Counted(*other_trees, "checkpoint")))?;
    }
    if *not_comparable > 0 {
        output::line(format_args!(
            "{} in removed segments cannot be compared; later ones cover the same lines",
            Counted(*not_comparable, "checkpoint")
        ))?;
    }
    if *removed_segments > 0 {
        output::line(format_args!(
            "{} of {} no longer there: the hashes prove that these lines were there, and not what they said; copies of \
             removed segments can still be compared with `merkle.tree`",
            Counted(*removed_lines, "line"),
            Counted(*removed_segments, "segment")
        ))?;
    }
    show_defects(problems)
}

impl ProveArgs {
    pub(super) fn run(self, reader: &Reader, format: Format) -> Result<(), CliError> {
        let note = match &self.checkpoint {
            Some(file) => checkpoint_file::read_last(file)?,
            None => {
                let latest = reader.latest_checkpoint()?;
                latest.context("the journal has no checkpoint; see `audit.checkpoints` in the configuration")?.note
            }
        };
        let proof = reader.prove(self.id, &note).map_err(anyhow::Error::from)?;
        if format.json {
            return Ok(output::json(&proof)?);
        }
        Ok(output::lines(proof.to_string().trim_end())?)
    }
}

impl KeyCommand {
    pub(super) fn run(self, config: &Config, format: Format) -> Result<(), CliError> {
        let key = match self {
            Self::New { out, name } => {
                let name = name.unwrap_or_else(|| default_name(&config.gateway));
                generate(&key_file(out, config)?, &name, ServiceUser::of(config))?
            }
            Self::Show { file } => read_key(&key_file(file, config)?)?,
        };
        let public_key = key.to_string();
        if format.json {
            return Ok(output::json(&KeyReply { public_key })?);
        }
        Ok(output::line(public_key)?)
    }
}

/// The name of a key, of the name of a gateway, which may have characters that a key's name cannot have.
fn default_name(gateway: &str) -> String {
    let name: String =
        gateway.chars().map(|c| if c.is_whitespace() || c.is_control() || c == '+' { '-' } else { c }).collect();
    format!("keygate/{name}")
}

fn key_file(given: Option<PathBuf>, config: &Config) -> Result<PathBuf, CliError> {
    let configured = config.audit.checkpoints.as_ref().map(|checkpoints| checkpoints.key_file.clone());
    given.or(configured).ok_or_else(|| {
        CliError::new(
            ExitStatus::Usage,
            anyhow!("name the file of the key, as `audit.checkpoints.key_file` is not configured"),
        )
    })
}

fn generate(file: &Path, name: &str, user: ServiceUser) -> Result<PublicKey, CliError> {
    let (private, public) = journal::generate_key(name).map_err(anyhow::Error::from)?;
    write_new(file, 0o600, &private, user)?;
    write_new(&public_file(file), 0o644, &format!("{public}\n"), user)?;
    Ok(public)
}

/// Writes a file that must not exist, for the user of the gateway: a key that is replaced would end its tree.
fn write_new(path: &Path, mode: u32, text: &str, user: ServiceUser) -> anyhow::Result<()> {
    let written = OpenOptions::new().write(true).create_new(true).mode(mode).open(path).and_then(|mut file| {
        user.take_over(&file)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.with_context(|| format!("{}: cannot be written", path.display()))
}

fn public_file(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".pub");
    name.into()
}

/// The public key of the configured key file; its copy beside it may be read by more users.
fn configured_key(config: &Config) -> Result<PublicKey, CliError> {
    let file = key_file(None, config).map_err(|_| {
        CliError::new(
            ExitStatus::Usage,
            anyhow!("give --public-key, as `audit.checkpoints.key_file` is not configured"),
        )
    })?;
    match fs::read_to_string(public_file(&file)) {
        Ok(text) => parse_key_text(&text),
        Err(_) => read_key(&file),
    }
}

fn read_key(file: &Path) -> Result<PublicKey, CliError> {
    let text = fs::read_to_string(file).with_context(|| format!("{}: cannot be read", file.display()))?;
    let key = journal::derive_public_key(&text);
    Ok(key.map_err(|error| anyhow!("{}: the private key {error}", file.display()))?)
}

/// A public key, or the file of one.
pub(super) fn parse_key(text: &str) -> Result<PublicKey, CliError> {
    match fs::read_to_string(text) {
        Ok(content) => parse_key_text(&content),
        Err(_) => parse_key_text(text),
    }
}

fn parse_key_text(text: &str) -> Result<PublicKey, CliError> {
    text.parse().map_err(|error| CliError::new(ExitStatus::Usage, anyhow!("the public key {error}")))
}

/// Numbers of records, as `audit verify` and `audit export` tell them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecordCounts {
    pub(super) records: u64,
    /// Those that have not ended.
    pub(super) open: u64,
    /// Requests and changes that they stand for: more than records, where one has several refusals.
    pub(super) uses: u64,
}

impl Display for RecordCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { records, open, uses } = *self;
        write!(f, "{} ({open} open)", Counted(records, "record"))?;
        if uses == records { Ok(()) } else { write!(f, " of {}", Counted(uses, "request")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_name_is_one_that_a_key_may_have() {
        assert_eq!(default_name("gw-1"), "keygate/gw-1");
        assert_eq!(default_name("my gate+way"), "keygate/my-gate-way");
        journal::generate_key(&default_name(" + ")).unwrap();
    }
}
