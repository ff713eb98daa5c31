//! `keygate federation`: manages the rules by which tokens of a CI are exchanged for keys.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::anyhow;
use clap::Subcommand;

use super::call::Call;
use super::calls::{RULES, create_rule, list_rules, remove_rule};
use super::installation::Installation;
use super::output::{or_dash, seconds};
use super::show::joined;
use super::{CliError, ExitStatus, RemoteCommand, list, show};
use ::control::management::{FederationRule, NewFederationRule};
use domain::identity::Permission;
use platform::settings::{WithUnit, parse_duration};
use state::ClaimPattern;

/// Columns of a list of rules.
pub(super) const COLUMNS: [&str; 7] = ["NAME", "SERVICE", "ISSUER", "AUDIENCE", "CLAIMS", "PERMISSIONS", "MAX"];

/// Commands of `keygate federation`.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Create a rule: whose tokens are exchanged for keys of which service
    Create {
        #[command(flatten)]
        org: InOrg,
        /// Name of the rule: 1 to 40 of a-z, 0-9 and -; must be unique in the organization
        name: String,
        /// Id or name of the service whose keys it makes
        #[arg(long, value_name = "SERVICE")]
        user: String,
        /// Issuer (`iss`) of the tokens, to the letter, such as https://token.actions.githubusercontent.com
        #[arg(long, value_name = "URL")]
        issuer: String,
        /// Audience (`aud`) of the tokens, to the letter
        #[arg(long, value_name = "AUD")]
        audience: String,
        /// Further audience that is trusted: tokens for it besides are exchanged; may be repeated
        #[arg(long = "trusted-audience", value_name = "AUD")]
        audiences: Vec<String>,
        /// Claim that the tokens must have, such as sub=repo:acme/*:ref:refs/heads/main; may be repeated, and all must
        /// match. `*` stands for characters of one segment, between `/` and `:`; `**` at the end for the rest
        #[arg(long = "claim", value_name = "NAME=PATTERN", value_parser = claim, required = true)]
        claims: Vec<(String, ClaimPattern)>,
        /// Permission of the keys, as far as the service has it; may be repeated
        #[arg(long = "permission", value_name = "PERMISSION", required = true)]
        permissions: Vec<Permission>,
        /// Lifetime of the keys, 1m to 12h [default: 1h]
        #[arg(long, value_name = "TIME", value_parser = parse_duration)]
        max: Option<Duration>,
        /// Tag of the keys; may be repeated
        #[arg(long = "tag", value_name = "NAME=VALUE", value_parser = tag)]
        tags: Vec<(String, String)>,
    },
    /// List the rules of an organization
    List {
        #[command(flatten)]
        org: InOrg,
    },
    /// Show one rule
    Show {
        #[command(flatten)]
        org: InOrg,
        /// Name of the rule
        name: String,
    },
    /// Remove a rule: no token is exchanged by it any more; its keys stay until they end
    Remove {
        #[command(flatten)]
        org: InOrg,
        /// Name of the rule
        name: String,
    },
}

#[derive(Debug, clap::Args)]
pub(super) struct InOrg {
    /// Id or name of the organization
    #[arg(long, value_name = "ORG")]
    org: String,
}

impl RemoteCommand<Command> {
    #[rustfmt::skip]
    pub(super) fn run(self, installation: &Installation) -> Result<(), CliError> {
        match self.command {
            Command::Create {
                org: InOrg { org }, name, user, issuer, audience, audiences, claims, permissions, max, tags,
            } => {
                require_distinct("--claim", &claims)?;
                require_distinct("--tag", &tags)?;
                let (claims, tags) = (claims.into_iter().collect(), tags.into_iter().collect());
                let rule =
                    NewFederationRule { name, user, issuer, audience, audiences, claims, permissions, max, tags };
                show::perform::<FederationRule>(installation, &create_rule(&org, &rule), self.format)
            }
            Command::List { org: InOrg { org } } =>
                list::print::<FederationRule>(installation, list_rules(&org), self.format),
            Command::Show { org: InOrg { org }, name } => {
                let call = Call::get(&["orgs", &org, RULES, &name]);
                show::perform::<FederationRule>(installation, &call, self.format)
            }
            Command::Remove { org: InOrg { org }, name } =>
                show::perform::<FederationRule>(installation, &remove_rule(&org, &name), self.format),
        }
    }
}

/// Refuses a name that is given twice: one of the two would be left out, and the rule be wider than it was meant.
fn require_distinct<T>(flag: &str, pairs: &[(String, T)]) -> Result<(), CliError> {
    let is_repeated = |at: usize| pairs[..at].iter().any(|(name, _)| *name == pairs[at].0);
    match (0..pairs.len()).find(|at| is_repeated(*at)) {
        Some(at) => Err(CliError::new(ExitStatus::Usage, anyhow!("{flag} {} is given twice", pairs[at].0))),
        None => Ok(()),
    }
}

fn claim(text: &str) -> Result<(String, ClaimPattern), String> {
    let (name, pattern) = text.split_once('=').ok_or("a claim is NAME=PATTERN")?;
    Ok((name.to_owned(), pattern.parse().map_err(|error: state::federation::InvalidPattern| error.to_string())?))
}

fn tag(text: &str) -> Result<(String, String), &'static str> {
    let (name, value) = text.split_once('=').ok_or("a tag is NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// The names and values of a rule.
pub(super) fn rule_fields(rule: &FederationRule) -> Vec<(&'static str, String)> {
    let mut fields = vec![
        ("rule", rule.target.clone()),
        ("service", or_dash(rule.service.clone())),
        ("issuer", rule.issuer.clone()),
        ("audience", rule.audience.clone()),
        ("claims", claims_text(&rule.claims)),
        ("permissions", joined(&rule.permissions)),
        ("max", WithUnit::Duration(rule.max).to_string()),
        ("created", seconds(rule.created)),
    ];
    if !rule.audiences.is_empty() {
        fields.push(("audiences", rule.audiences.join(" ")));
    }
    if !rule.tags.is_empty() {
        let tags: Vec<String> = rule.tags.iter().map(|(name, value)| format!("{name}={value}")).collect();
        fields.push(("tags", tags.join(" ")));
    }
    fields
}

/// A rule as a row under [`COLUMNS`].
pub(super) fn rule_row(rule: &FederationRule) -> Vec<String> {
    vec![
        rule.name.clone(),
        or_dash(rule.service.clone()),
        rule.issuer.clone(),
        rule.audience.clone(),
        claims_text(&rule.claims),
        joined(&rule.permissions),
        WithUnit::Duration(rule.max).to_string(),
    ]
}

pub(super) fn claims_text(claims: &BTreeMap<String, ClaimPattern>) -> String {
    let claims: Vec<String> = claims.iter().map(|(name, pattern)| format!("{name}={pattern}")).collect();
    claims.join(" ")
}
