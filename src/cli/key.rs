//! `keygate key`: manages API keys. A new key is printed once, as the only line on standard output.

use std::io::{self, Read as _};
use std::time::Duration;

use anyhow::anyhow;
use clap::Subcommand;
use data_encoding::HEXLOWER;
use serde_json::json;
use zeroize::Zeroizing;

use super::installation::Installation;
use super::key_id::KeyIdParser;
use super::show::{self, Format};
use super::{CliError, ExitStatus, control, list, output};
use ::control::admin::{Operation, Reply};
use ::control::management::{self, Key};
use domain::key::{KeyDigest, KeyId};
use journal::audit::LastUse;
use platform::settings::parse_duration;

/// Bytes of a key to hash, at most: far longer than any header that carries one.
const MAX_KEY: usize = 16 << 10;

/// Arguments of `keygate key`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Create a key for a user, and print it once
    Create {
        #[command(flatten)]
        owner: Owner,
        /// Name: what the key is used for
        name: String,
    },
    /// List all keys of an organization, including revoked ones
    List {
        /// Id or name of the organization
        #[arg(long)]
        org: String,
    },
    /// Show a key
    Show {
        /// Key id: the nine characters after sk_live_
        #[arg(value_parser = KeyIdParser)]
        key_id: KeyId,
    },
    /// Revoke a key: it is refused from the next request on; cannot be undone
    Revoke {
        /// Key id: the nine characters after sk_live_
        #[arg(value_parser = KeyIdParser)]
        key_id: KeyId,
    },
    /// Replace the secret of a key, and print the new key once; id, limits and history stay
    Rotate {
        /// Key id: the nine characters after sk_live_
        #[arg(value_parser = KeyIdParser)]
        key_id: KeyId,
        /// Time for which the old secret stays valid, such as 1h; default: none
        #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
        overlap: Option<Duration>,
    },
    /// Set the limits of a key; without options, show them
    Limits {
        /// Key id: the nine characters after sk_live_
        #[arg(value_parser = KeyIdParser)]
        key_id: KeyId,
        #[command(flatten)]
        limits: NewLimits,
        /// Use the configured limits again
        #[arg(long, conflicts_with_all = ["requests", "per", "burst"])]
        default: bool,
    },
    /// Print the SHA-256 of a key, read from standard input: as `import --sha256` and `apply` take it
    Digest,
    /// Import a key of an older system by its SHA-256
    Import {
        #[command(flatten)]
        owner: Owner,
        /// SHA-256 of the whole key, 64 hexadecimal digits
        #[arg(long, value_name = "HEX")]
        sha256: String,
        /// Name: what the key is used for
        name: String,
    },
}

#[derive(Debug, clap::Args)]
struct Owner {
    /// Id or name of the organization
    #[arg(long)]
    org: String,
    /// Id or email address of the user whose permissions the key has
    #[arg(long)]
    user: String,
}

/// Options that are not given keep their values, except `burst`, which follows a new `requests`.
#[derive(Clone, Copy, Debug, clap::Args)]
struct NewLimits {
    /// Number of requests admitted in the time of --per
    #[arg(long, value_name = "N")]
    requests: Option<u32>,
    /// Time in whole seconds, such as 1h
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    per: Option<Duration>,
    /// Maximum number of requests at once; default: the same as --requests
    #[arg(long, value_name = "N")]
    burst: Option<u32>,
}

impl Args {
    pub(super) fn run(self, installation: &Installation) -> Result<(), CliError> {
        match self.command {
            Command::Digest => print_digest(self.format),
            // Of a key, the last attempt to use it is shown as well; a journal that cannot be read hides it alone.
            Command::Show { key_id } => show_key(installation, key_id, self.format),
            command => list::print(installation, operation(command), self.format),
        }
    }
}

/// Prints the digest of the key on standard input, which neither the arguments nor the output show.
fn print_digest(format: Format) -> Result<(), CliError> {
    let mut key = Zeroizing::new(Vec::with_capacity(MAX_KEY));
    io::stdin().lock().take(MAX_KEY as u64).read_to_end(&mut key)?;
    // A key has no white space, and a line that was piped has an end.
    let trimmed = key.trim_ascii();
    if trimmed.is_empty() || key.len() == MAX_KEY {
        let message = anyhow!("pipe the key into the command, as in `printf %s \"$KEY\" | keygate key digest`");
        return Err(CliError::new(ExitStatus::Usage, message));
    }
    let digest = KeyDigest::of(trimmed);
    let hex = HEXLOWER.encode(digest.as_bytes());
    if format.json {
        output::json(&json!({ "sha256": hex }))?
    } else {
        output::line(hex)?
    }
    Ok(())
}

fn show_key(installation: &Installation, id: KeyId, format: Format) -> Result<(), CliError> {
    match control::perform(installation, &Operation::ShowKey { key: id })? {
        Reply::Key { key } => {
            let attempt = last_attempt(installation, &key);
            Ok(show::key(&key, attempt.as_ref(), format)?)
        }
        reply => Ok(show::reply(reply, format)?),
    }
}

/// The last attempt to use a key, as far as the journal of this gateway reaches.
fn last_attempt(installation: &Installation, key: &Key) -> Option<LastUse> {
    let operation = Operation::Activity { org: key.org.to_string(), keys: vec![key.id] };
    match control::perform(installation, &operation) {
        Ok(Reply::Activity(mut report)) => report.keys.remove(&key.id)?.last_attempt,
        _ => None,
    }
}

fn operation(command: Command) -> Operation {
    match command {
        Command::Create { owner: Owner { org, user }, name } => Operation::CreateKey { org, user, name },
        Command::List { org } => Operation::list_keys(org),
        Command::Show { key_id } => Operation::ShowKey { key: key_id },
        Command::Revoke { key_id } => Operation::RevokeKey { key: key_id },
        Command::Rotate { key_id, overlap } => Operation::RotateKey { key: key_id, overlap },
        Command::Limits { key_id, default: true, .. } => Operation::LimitKey { key: key_id, limits: None },
        Command::Limits { key_id, limits: NewLimits { requests: None, per: None, burst: None }, .. } => {
            Operation::ShowKey { key: key_id }
        }
        Command::Limits { key_id, limits: NewLimits { requests, per, burst }, .. } => {
            Operation::LimitKey { key: key_id, limits: Some(management::LimitUpdate { requests, per, burst }) }
        }
        Command::Import { owner: Owner { org, user }, sha256, name } => {
            Operation::ImportKey { org, user, sha256, name, limits: None }
        }
        Command::Digest => unreachable!("printed before"),
    }
}
