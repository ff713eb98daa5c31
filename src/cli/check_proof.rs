//! `keygate audit check-proof`: verifies a proof of a record where there is neither a journal nor a gateway.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::audit_proofs::parse_key;
use super::output::{self, fields, word};
use super::show::Format;
use super::{CliError, ExitStatus};
use domain::counted::Counted;
use journal::audit::{Outcome, ProvenRecord, Record};

/// Bytes of a proof at most: a record has two lines of a few hundred bytes, and each has some thirty hashes.
const MAX_LENGTH: u64 = 1 << 20;

/// Arguments of `keygate audit check-proof`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// File with the proof, as text or JSON; - for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Public key of the journal: NAME+ID+BASE64, or its file. Take it from where the owner of the gateway's machine
    /// cannot have changed it
    #[arg(long, value_name = "KEY")]
    public_key: String,
}

impl Args {
    pub(super) fn run(&self, format: Format) -> Result<(), CliError> {
        let key = parse_key(&self.public_key)?;
        let text = read(&self.file).with_context(|| format!("{}: cannot be read", self.file.display()))?;
        let proven = ProvenRecord::check(&text, &key)
            .map_err(|error| CliError::new(ExitStatus::Failed, error).context(self.file.display().to_string()))?;
        if format.json {
            return Ok(output::json(&proven)?);
        }
        output::line(format_args!(
            "proven: the record is in the journal {}, as it was when its key signed {}",
            proven.origin,
            Counted(proven.size, "line")
        ))?;
        Ok(fields(&in_words(&proven))?)
    }
}

fn read(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    if file == Path::new("-") {
        io::stdin().lock().take(MAX_LENGTH).read_to_string(&mut text)?;
    } else {
        File::open(file)?.take(MAX_LENGTH).read_to_string(&mut text)?;
    }
    Ok(text)
}

/// A record in words: who did what, when, and how it ended.
fn in_words(ProvenRecord { record, lines, .. }: &ProvenRecord) -> [(&'static str, String); 6] {
    // People count lines from 1.
    let lines: Vec<String> = lines.iter().map(|index| (index + 1).to_string()).collect();
    [
        ("request", record.id.to_string()),
        ("when", record.time.to_string()),
        ("who", who(record)),
        ("what", what(record)),
        ("outcome", outcome(record)),
        ("lines", lines.join(", ")),
    ]
}

fn who(record: &Record) -> String {
    let parts = [
        record.actor.clone(),
        record.key_id.map(|key| format!("key {key}")),
        record.user_id.map(|user| format!("user {user}")),
        record.org_id.map(|org| format!("organization {org}")),
        record.ip.map(|ip| format!("from {ip}")),
        record.user_agent.as_ref().map(|agent| format!("with {agent}")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn what(record: &Record) -> String {
    let subject = record.subject.map(|user| format!(", on user {user}")).unwrap_or_default();
    format!("{}: {} {}{subject}", record.action, record.method, record.path)
}

fn outcome(record: &Record) -> String {
    if record.outcome == Outcome::InProgress {
        return "not in this proof: the request was in progress at the checkpoint, or the proof of its end is missing"
            .to_owned();
    }
    let parts = [
        Some(word(record.outcome)),
        record.status.map(|status| format!("status {status}")),
        record.duration_us.map(|micros| format!("after {}.{:03} ms", micros / 1000, micros % 1000)),
        record.request_bytes.map(|bytes| format!("{} received", Counted(bytes, "byte"))),
        record.response_bytes.map(|bytes| format!("{} sent", Counted(bytes, "byte"))),
        record.count.map(|count| Counted(count, "request").to_string()),
        record.last_time.map(|last| format!("the last one at {last}")),
        record.addresses.map(|addresses| format!("number of addresses: {addresses}")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
