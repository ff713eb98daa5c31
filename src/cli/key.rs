//! `keygate key`: manages API keys. A new key is printed once, as the only line on standard output.

use std::time::Duration;

use clap::{Subcommand, ValueEnum};
use serde_json::json;

use super::call::Call;
use super::calls::{enable_key, limit_key, revoke_key, show_key as call_of_key};
use super::installation::Installation;
use super::key_generate::{GenerateArgs, GivenSecret};
use super::key_policy::{DisableArgs, PolicyFlags, SetArgs, perform_on};
use super::key_target::{KeyTarget, KeyTargetParser, TargetArgs, read_key};
use super::plan_flags::NewPlan;
use super::show::{self, Format};
use super::{CliError, RemoteCommand, control, key_record, output};
use ::control::management::{Key, KeyQuery, KeySort, KeyStatus, LimitUpdate, NewKey};
use domain::key::{KeyDigest, KeyId};
use platform::settings::parse_duration;

/// Commands of `keygate key`.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Make a key offline, without a configuration or a gateway: prints its id, the key and its SHA-256
    ///
    /// `key create --id ID --sha256 HEX` creates it later, so that the gateway never sees the secret before it is used.
    Generate(GenerateArgs),
    /// Create a key for a user, and print it once
    Create {
        #[command(flatten)]
        owner: Owner,
        #[command(flatten)]
        policy: PolicyFlags,
        #[command(flatten)]
        plan: NewPlan,
        #[command(flatten)]
        secret: GivenSecret,
        /// Name: what the key is used for
        name: String,
    },
    /// Restrict a key further than its user, from the next request on; what is not given stays
    Set(SetArgs),
    /// List keys in the order of their creation, including revoked ones
    List {
        /// Only keys of the organization with this id or name; default: of all organizations
        #[arg(long)]
        org: Option<String>,
        #[command(flatten)]
        filter: ListFilter,
        /// Print CSV for spreadsheets, of the organization of --org; at most 10,000 keys
        #[arg(long, requires = "org", conflicts_with = "json")]
        csv: bool,
    },
    /// Find a key by its id, by the whole key, or by its SHA-256, and show it
    ///
    /// Also a key that is revoked, and by a secret that was replaced. Of a key that was leaked, pipe the secret:
    /// `printf %s "$KEY" | keygate key find --stdin`.
    Find {
        #[command(flatten)]
        target: TargetArgs,
    },
    /// Show a key
    Show {
        /// Key id: the nine characters after sk_live_
        #[arg(value_name = "KEY_ID", value_parser = KeyTargetParser)]
        key: KeyTarget,
    },
    /// Revoke a key: it is refused from the next request on; cannot be undone
    Revoke {
        #[command(flatten)]
        target: TargetArgs,
    },
    /// Disable a key: it is refused from the next request on, and its open requests end, until it is enabled
    Disable(DisableArgs),
    /// Enable a key that was disabled
    Enable {
        #[command(flatten)]
        target: TargetArgs,
    },
    /// Replace the secret of a key, and print the new key once; id, limits and history stay
    Rotate {
        /// Key id: the nine characters after sk_live_
        #[arg(value_name = "KEY_ID", value_parser = KeyTargetParser)]
        key: KeyTarget,
        /// Time for which the old secret stays valid, such as 1h; default: none
        #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
        overlap: Option<Duration>,
        /// SHA-256 of a new secret that `key generate --id` has made; default: one is made here, and printed
        #[arg(long, value_name = "HEX")]
        sha256: Option<String>,
    },
    /// Set the limits of a key; without options, show them
    Limits {
        /// Key id: the nine characters after sk_live_
        #[arg(value_name = "KEY_ID", value_parser = KeyTargetParser)]
        key: KeyTarget,
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
        #[command(flatten)]
        plan: NewPlan,
        /// Name: what the key is used for
        name: String,
    },
}

#[derive(Debug, clap::Args)]
pub(super) struct Owner {
    /// Id or name of the organization
    #[arg(long)]
    org: String,
    /// Id or email address of the user whose permissions the key has
    #[arg(long)]
    user: String,
}

/// Which keys are listed.
#[derive(Debug, clap::Args)]
pub(super) struct ListFilter {
    /// Only keys of the user with this id or email address
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// Only keys with this in their names, in any case
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    /// Only keys in this state
    #[arg(long, value_enum)]
    state: Option<KeyState>,
    /// Only keys that were not used for this time, such as 2160h; never used: since their creation
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    unused_for: Option<Duration>,
    /// Only keys that expire within this time, such as 30d
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    expires_within: Option<Duration>,
    /// Order: created, name, last_used or expires; with - before it, such as -last_used, descending. Several
    /// organizations are listed one after the other [default: created]
    #[arg(long, value_name = "FIELD", value_parser = parse_sort, allow_hyphen_values = true)]
    sort: Option<(KeySort, bool)>,
}

fn parse_sort(text: &str) -> Result<(KeySort, bool), String> {
    let names = || KeySort::ALL.map(KeySort::name).join(", ");
    KeySort::from_parameter(text).ok_or_else(|| format!("it is one of {}, or one with - before it", names()))
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum KeyState {
    /// Requests are authenticated
    Active,
    /// The key was revoked
    Revoked,
    /// The key has expired
    Expired,
    /// The key is disabled
    Disabled,
    /// The user of the key was removed
    UserRemoved,
    /// The user of the key is suspended
    UserSuspended,
    /// The organization of the key is suspended
    OrgSuspended,
}

/// Options that are not given keep their values, except `burst`, which follows a new `requests`.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct NewLimits {
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

impl RemoteCommand<Command> {
    pub(super) fn run(self, installation: &Installation) -> Result<(), CliError> {
        let format = self.format;
        match self.command {
            Command::Digest => print_digest(format),
            Command::Show { key } => show_key(installation, key, format),
            Command::Find { target } => show_key(installation, target.read()?, format),
            Command::Generate(args) => args.run(format),
            Command::Create { owner: Owner { org, user }, policy, plan, secret: GivenSecret { id, sha256 }, name } => {
                let makes_secret = sha256.is_none();
                let body = json!({
                    "user": user, "name": name, "policy": policy.into_policy()?, "id": id, "sha256": sha256,
                });
                let call = Call::post(&["orgs", &org, "keys"]).with_body(&plan.add_to(body));
                show::perform::<NewKey>(installation, &if makes_secret { call.with_secret() } else { call }, format)
            }
            Command::Set(args) => args.run(installation, format),
            Command::Disable(args) => args.run(installation, format),
            Command::Enable { target } => perform_on::<Key>(installation, target.read()?, enable_key, format),
            Command::Revoke { target } => perform_on::<Key>(installation, target.read()?, revoke_key, format),
            Command::List { org: Some(org), filter, csv: true } => {
                key_record::print_csv(installation, &org, &filter.query())
            }
            Command::List { org, filter, .. } => key_record::print_list(installation, org, &filter.query(), format),
            Command::Rotate { key, overlap, sha256 } => {
                perform_on::<NewKey>(installation, key, |key| rotate_key(key, overlap, sha256), format)
            }
            Command::Limits { key, limits, default } => {
                perform_on::<Key>(installation, key, |key| limits.call(key, default), format)
            }
            Command::Import { owner: Owner { org, user }, sha256, plan, name } => {
                let body = plan.add_to(json!({ "user": user, "sha256": sha256, "name": name }));
                let call = Call::post(&["orgs", &org, "keys", "import"]).with_body(&body);
                show::perform::<Key>(installation, &call, format)
            }
        }
    }
}

fn rotate_key(key: KeyId, overlap: Option<Duration>, sha256: Option<String>) -> Call {
    // A part of a second is a whole one.
    let seconds = overlap.map(|overlap| overlap.as_secs() + u64::from(overlap.subsec_nanos() > 0));
    let body = json!({ "overlap_seconds": seconds, "sha256": sha256 });
    let call = Call::post(&["keys", &key.to_string(), "rotate"]).with_body(&body);
    if sha256.is_none() { call.with_secret() } else { call }
}

impl NewLimits {
    /// The change of a key's limits, or a look at them. `default`: the configured ones hold again.
    fn call(self, key: KeyId, default: bool) -> Call {
        let Self { requests, per, burst } = self;
        let is_look = requests.is_none() && per.is_none() && burst.is_none();
        match (default, is_look) {
            (true, _) => limit_key(key, None),
            (false, true) => call_of_key(key),
            (false, false) => limit_key(key, Some(LimitUpdate { requests, per, burst })),
        }
    }
}

impl ListFilter {
    fn query(self) -> KeyQuery {
        let (sort, descending) = self.sort.unwrap_or_default();
        KeyQuery {
            sort,
            descending,
            user: self.user.unwrap_or_default(),
            name: self.name.unwrap_or_default(),
            status: self.state.map(KeyState::status),
            unused_for: self.unused_for,
            expires_within: self.expires_within,
            ..KeyQuery::default()
        }
    }
}

impl KeyState {
    fn status(self) -> KeyStatus {
        match self {
            Self::Active => KeyStatus::Active,
            Self::Revoked => KeyStatus::Revoked,
            Self::Expired => KeyStatus::Expired,
            Self::Disabled => KeyStatus::Disabled,
            Self::UserRemoved => KeyStatus::UserRemoved,
            Self::UserSuspended => KeyStatus::UserSuspended,
            Self::OrgSuspended => KeyStatus::OrgSuspended,
        }
    }
}

/// Prints the digest of the key on standard input, which neither the arguments nor the output show.
fn print_digest(format: Format) -> Result<(), CliError> {
    let hex = KeyDigest::of(&read_key()?).to_hex();
    if format.json {
        output::json(&json!({ "sha256": hex }))?
    } else {
        output::line(hex)?
    }
    Ok(())
}

/// Shows a key, with the last attempt to use it as far as the journal of this gateway reaches; a journal that cannot be
/// read hides that alone.
fn show_key(installation: &Installation, target: KeyTarget, format: Format) -> Result<(), CliError> {
    let (key, attempt) = control::with_server(installation, async |server| {
        let id = target.resolve(server).await?;
        let key: Key = server.perform(&call_of_key(id)).await?;
        let mut activity = server.activity(std::slice::from_ref(&key)).await;
        Ok((key, activity.remove(&id).and_then(|activity| activity.last_attempt)))
    })?;
    Ok(key_record::show_with_attempt(&key, attempt.as_ref(), format)?)
}
