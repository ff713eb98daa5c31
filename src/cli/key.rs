//! `keygate key`: API keys. A new key is printed once, alone on its line of standard output.

use std::time::Duration;

use clap::Subcommand;

use super::key_id::KeyIdParser;
use super::show::{self, Format};
use super::{CliError, control};
use crate::admin::Operation;
use crate::config::Config;
use crate::key::KeyId;
use crate::management;
use crate::settings::parse_duration;

/// What can be done with keys.
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
        /// What the key is for
        name: String,
    },
    /// List all keys of an organization, revoked ones too
    List {
        /// The organization's id or name
        #[arg(long)]
        org: String,
    },
    /// Show a key
    Show {
        /// The nine characters after sk_live_
        #[arg(value_parser = KeyIdParser)]
        key_id: KeyId,
    },
    /// Refuse a key from the next request on, for good
    Revoke {
        /// The nine characters after sk_live_
        #[arg(value_parser = KeyIdParser)]
        key_id: KeyId,
    },
    /// Give a key a new secret, and print it once; id, limits and history stay
    Rotate {
        /// The nine characters after sk_live_
        #[arg(value_parser = KeyIdParser)]
        key_id: KeyId,
        /// How long the secret until now stays valid, such as 1h; default: not at all
        #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
        overlap: Option<Duration>,
    },
    /// Set a key's limits; without options, show them
    Limits {
        /// The nine characters after sk_live_
        #[arg(value_parser = KeyIdParser)]
        key_id: KeyId,
        #[command(flatten)]
        limits: NewLimits,
        /// Go back to the configured limits
        #[arg(long, conflicts_with_all = ["requests", "per", "burst"])]
        default: bool,
    },
    /// Take over a key of an older system by its SHA-256
    Import {
        #[command(flatten)]
        owner: Owner,
        /// The SHA-256 of the whole key, 64 hexadecimal digits
        #[arg(long, value_name = "HEX")]
        sha256: String,
        /// What the key is for
        name: String,
    },
}

#[derive(Debug, clap::Args)]
struct Owner {
    /// The organization's id or name
    #[arg(long)]
    org: String,
    /// The id or email address of the user whose permissions the key has
    #[arg(long)]
    user: String,
}

/// What is not given stays as it is, but for the burst, which follows new requests.
#[derive(Clone, Copy, Debug, clap::Args)]
struct NewLimits {
    /// Requests that are admitted in the time of --per
    #[arg(long, value_name = "N")]
    requests: Option<u32>,
    /// That time, in whole seconds, such as 1h
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    per: Option<Duration>,
    /// Requests that may come at once; default: as many as --requests
    #[arg(long, value_name = "N")]
    burst: Option<u32>,
}

impl Args {
    pub(super) fn run(self, config: &Config) -> Result<(), CliError> {
        let reply = control::perform(config, &operation(self.command))?;
        Ok(show::reply(reply, self.format)?)
    }
}

fn operation(command: Command) -> Operation {
    match command {
        Command::Create { owner: Owner { org, user }, name } => Operation::CreateKey { org, user, name },
        Command::List { org } => Operation::ListKeys { org },
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
            Operation::ImportKey { org, user, sha256, name }
        }
    }
}
