//! `keygate key set`, `key disable` and `key enable`: the policy of a key, and the flags that it has in `key create`.

use std::collections::BTreeMap;

use anyhow::anyhow;
use clap::ValueEnum;
use serde_json::json;

use super::call::Call;
use super::calls::{disable_key, patch_key};
use super::installation::Installation;
use super::key_target::{KeyTarget, KeyTargetParser, TargetArgs};
use super::plan_flags::PlanChange;
use super::show::{self, Format, Shown};
use super::{CliError, ExitStatus, control};
use ::control::management::expiry::parse_expiry;
use ::control::management::{Key, PolicyUpdate};
use domain::clock::Micros;
use domain::identity::Permission;
use domain::key::KeyId;
use domain::key::policy::Network;

/// The policy of a key, as far as it is given.
#[derive(Debug, clap::Args)]
pub(super) struct PolicyFlags {
    /// Permission of the key, as far as its user has it; may be repeated; default: all of the user's
    #[arg(long = "permission", value_name = "PERMISSION")]
    permissions: Vec<Permission>,
    /// Refuse the key after a time such as 90d, from a date such as 2027-01-31 (00:00 UTC) or from an RFC 3339 time on
    #[arg(long, value_name = "DURATION|DATE|TIME", value_parser = parse_expiry)]
    expires: Option<Micros>,
    /// Address, or network such as 10.0.0.0/8, that requests have to come from; may be repeated; default: any
    #[arg(long = "network", value_name = "CIDR")]
    networks: Vec<Network>,
    /// Maximum number of requests in flight with the key; default: that of the organization
    #[arg(long, value_name = "N")]
    concurrent: Option<u32>,
    /// Label for people and programs, which decides nothing; may be repeated
    #[arg(long = "tag", value_name = "NAME=VALUE", value_parser = parse_tag)]
    tags: Vec<(String, String)>,
}

/// Arguments of `keygate key set`.
#[derive(Debug, clap::Args)]
pub(super) struct SetArgs {
    /// Key id: the nine characters after sk_live_
    #[arg(value_name = "KEY_ID", value_parser = KeyTargetParser)]
    key: KeyTarget,
    /// Name, by which people know the key
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    flags: PolicyFlags,
    /// Remove a tag; may be repeated
    #[arg(long = "no-tag", value_name = "NAME")]
    removed_tags: Vec<String>,
    /// Clear a field, so that it narrows nothing; may be repeated
    #[arg(long, value_name = "FIELD", value_enum)]
    clear: Vec<PolicyField>,
    #[command(flatten)]
    plan: PlanChange,
}

/// Arguments of `keygate key disable`.
#[derive(Debug, clap::Args)]
pub(super) struct DisableArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Note as the cause that the key has leaked: then only the operator can enable it again
    #[arg(long)]
    leaked: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PolicyField {
    /// All permissions of the user
    Permissions,
    /// No expiry
    Expires,
    /// Any address
    Networks,
    /// Requests in flight up to the limit of the organization
    Concurrent,
    /// No tag
    Tags,
}

impl PolicyFlags {
    /// The policy of a new key.
    pub(super) fn into_policy(self) -> Result<PolicyUpdate, CliError> {
        self.into_update(Vec::new(), &[])
    }

    /// The change that sets what is given, removes these tags, and clears these fields.
    fn into_update(self, removed_tags: Vec<String>, clear: &[PolicyField]) -> Result<PolicyUpdate, CliError> {
        let Self { permissions, expires, networks, concurrent, tags } = self;
        let field = Clearing(clear);
        Ok(PolicyUpdate {
            permissions: field.set(PolicyField::Permissions, given(permissions))?,
            expires: field.set(PolicyField::Expires, expires)?,
            networks: field.set(PolicyField::Networks, given(networks))?,
            concurrent: field.set(PolicyField::Concurrent, concurrent)?,
            tags: field.set(PolicyField::Tags, tag_changes(tags, removed_tags)?)?,
        })
    }
}

impl SetArgs {
    pub(super) fn run(self, installation: &Installation, format: Format) -> Result<(), CliError> {
        let policy = self.flags.into_update(self.removed_tags, &self.clear)?;
        let mut patch = if policy.is_empty() { json!({}) } else { json!({ "policy": policy }) };
        let renames = self.name.is_some();
        if let Some(name) = self.name {
            patch["name"] = name.into();
        }
        if !self.plan.add_to(&mut patch) && policy.is_empty() && !renames {
            let flags = "--permission, --expires, --network, --concurrent, --tag, --no-tag, --clear, --plan, --no-plan \
                         or --name";
            return Err(usage(format!("nothing to set: give {flags}; `keygate key show` shows what holds")));
        }
        perform_on::<Key>(installation, self.key, |key| patch_key(key, &patch), format)
    }
}

impl DisableArgs {
    pub(super) fn run(self, installation: &Installation, format: Format) -> Result<(), CliError> {
        let leaked = self.leaked;
        perform_on::<Key>(installation, self.target.read()?, |key| disable_key(key, leaked), format)
    }
}

/// Performs a call on the key that an argument names, and prints the record that it answers with.
pub(super) fn perform_on<T: Shown>(
    installation: &Installation,
    target: KeyTarget,
    call: impl FnOnce(KeyId) -> Call,
    format: Format,
) -> Result<(), CliError> {
    let shown = control::with_server(installation, async |server| {
        let key = target.resolve(server).await?;
        server.perform::<T>(&call(key)).await
    });
    Ok(show::record(&shown?, format)?)
}

/// The fields that are cleared.
struct Clearing<'a>(&'a [PolicyField]);

impl Clearing<'_> {
    /// The change of a field to a value that may be given.
    fn set<T>(&self, field: PolicyField, value: Option<T>) -> Result<Option<Option<T>>, CliError> {
        match (value, self.0.contains(&field)) {
            (Some(_), true) => {
                let value = field.to_possible_value().expect("no field is hidden");
                let name = value.get_name();
                Err(usage(format!("--clear {name}, and a flag that sets {name}: keep one of the two")))
            }
            (Some(value), false) => Ok(Some(Some(value))),
            (None, true) => Ok(Some(None)),
            (None, false) => Ok(None),
        }
    }
}

fn given<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}

/// The changes of tags by their names; none without any.
fn tag_changes(
    set: Vec<(String, String)>,
    removed: Vec<String>,
) -> Result<Option<BTreeMap<String, Option<String>>>, CliError> {
    let mut changes = BTreeMap::new();
    let set = set.into_iter().map(|(name, value)| (name, Some(value)));
    for (name, value) in set.chain(removed.into_iter().map(|name| (name, None))) {
        if changes.contains_key(&name) {
            return Err(usage(format!("the tag `{name}` is there twice: keep one of the two")));
        }
        changes.insert(name, value);
    }
    Ok((!changes.is_empty()).then_some(changes))
}

fn parse_tag(text: &str) -> Result<(String, String), &'static str> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE, as in team=billing")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn usage(message: String) -> CliError {
    CliError::new(ExitStatus::Usage, anyhow!(message))
}
