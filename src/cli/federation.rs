//! `keygate federation`: manages the rules by which tokens of a CI are exchanged for keys.

use std::time::Duration;

use anyhow::anyhow;
use clap::Subcommand;

use super::call::Call;
use super::calls::{RULES, create_rule, list_rules, remove_rule};
use super::installation::Installation;
use super::list::{self, Row};
use super::output::{joined, or_dash, seconds, texts};
use super::show::{self, Fields, Shown};
use super::table::Column;
use super::user::InOrg;
use super::{CliError, ExitStatus, RemoteCommand};
use ::control::management::policy_text::pairs;
use ::control::management::{FederationRule, NewFederationRule};
use domain::identity::Permission;
use platform::settings::{WithUnit, parse_duration};
use state::ClaimPattern;

/// Note for an empty list.
const EMPTY: &str = "this organization has no federation rules yet";

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
                list::print::<FederationRule>(installation, list_rules(&org), EMPTY, self.format),
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

impl Row for FederationRule {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("NAME", 1, |rule| rule.name.clone()),
        Column::new("SERVICE", 2, |rule| or_dash(rule.service.clone())),
        Column::new("ISSUER", 5, |rule| rule.issuer.clone()),
        Column::new("AUDIENCE", 6, |rule| rule.audience.clone()),
        Column::values("CLAIMS", 3, |rule| pairs(&rule.claims)),
        Column::values("PERMISSIONS", 4, |rule| texts(&rule.permissions)),
        Column::new("MAX", 7, |rule| WithUnit::Duration(rule.max).to_string()),
    ];
}

impl Shown for FederationRule {
    fn fields(&self) -> Fields {
        let mut fields = self.named(&["rule", "service", "issuer", "audience", "claims", "permissions", "max"]);
        fields[0].1.clone_from(&self.target);
        fields.push(("created", seconds(self.created)));
        if !self.audiences.is_empty() {
            fields.push(("audiences", joined(&self.audiences)));
        }
        if !self.tags.is_empty() {
            fields.push(("tags", joined(pairs(&self.tags))));
        }
        fields
    }
}
