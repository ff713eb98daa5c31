//! `keygate quota`: units that a key, a user or an organization may spend in a day or a month.

use anyhow::anyhow;
use clap::Subcommand;
use clap::ValueEnum;
use serde_json::json;

use super::call::Call;
use super::installation::Installation;
use super::output::seconds;
use super::show::{self, Fields, Shown};
use super::{CliError, ExitStatus, RemoteCommand};
use ::control::management::{Key, Org, Quota, QuotaOwner, User};
use domain::budget::{Budget, OwnBudget, Period, Spender};
use domain::key::KeyId;

/// Commands of `keygate quota`.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Give an organization, a user or a key a quota of its own, before that of any plan, from the next request on
    Set {
        #[command(flatten)]
        owner: Owner,
        /// Units that may be spent in each period: a request costs one, or what its route says
        #[arg(long, value_name = "N", requires = "per", required_unless_present = "none")]
        units: Option<u64>,
        /// Period in UTC
        #[arg(long, value_enum)]
        per: Option<Per>,
        /// Take the quota away
        #[arg(long, conflicts_with_all = ["units", "per"])]
        none: bool,
    },
    /// Show what is spent of a quota
    Show {
        #[command(flatten)]
        owner: Owner,
    },
    /// Have nothing of a quota be spent from now to the end of the period
    Reset {
        #[command(flatten)]
        owner: Owner,
    },
}

/// The owner of a quota.
#[derive(Debug, clap::Args)]
pub(super) struct Owner {
    /// Id or name of the organization
    #[arg(long, value_name = "ORG", required_unless_present = "key")]
    org: Option<String>,
    /// Id or email address of a user of the organization, or name of a service
    #[arg(long, value_name = "USER", requires = "org")]
    user: Option<String>,
    /// Id of a key
    #[arg(long, value_name = "ID", conflicts_with_all = ["org", "user"])]
    key: Option<KeyId>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Per {
    /// From midnight to midnight
    Day,
    /// From the first of a month to that of the next
    Month,
}

impl RemoteCommand<Command> {
    pub(super) fn run(self, installation: &Installation) -> Result<(), CliError> {
        let format = self.format;
        match self.command {
            Command::Set { owner, units, per, .. } => {
                let quota = units.zip(per).map(|(units, per)| own_budget(units, per)).transpose()?;
                let patch = json!({ "quota": quota });
                match (&owner.org, &owner.user, owner.key) {
                    (_, _, Some(key)) => {
                        show::perform::<Key>(installation, &Call::patch(&["keys", key.as_str()], &patch), format)
                    }
                    (Some(org), Some(user), None) => {
                        show::perform::<User>(installation, &Call::patch(&["orgs", org, "users", user], &patch), format)
                    }
                    (org, _, None) => {
                        let org = org.as_deref().unwrap_or_default();
                        show::perform::<Org>(installation, &Call::patch(&["orgs", org], &patch), format)
                    }
                }
            }
            Command::Show { owner } => {
                show::perform::<Quota>(installation, &Call::get(&["quota"]).with_query(&owner.body()), format)
            }
            Command::Reset { owner } => {
                show::perform::<Quota>(installation, &Call::post(&["quota", "reset"]).with_body(&owner.body()), format)
            }
        }
    }
}

impl Owner {
    fn body(self) -> QuotaOwner {
        let Self { org, user, key } = self;
        QuotaOwner { org, user, key }
    }
}

/// The quota of these arguments.
fn own_budget(units: u64, per: Per) -> Result<OwnBudget, CliError> {
    let per = match per {
        Per::Day => Period::Day,
        Per::Month => Period::Month,
    };
    OwnBudget::new(units, per).map_err(|error| CliError::new(ExitStatus::Usage, anyhow!("--units: {error}")))
}

/// `2000000 units a month for the organization`, of a quota in force.
pub(super) fn quota_text(Budget { units, per, of }: &Budget) -> String {
    let whose = match of {
        Spender::Key => "key",
        Spender::User => "user",
        Spender::Org => "organization",
    };
    format!("{units} units a {} for the {whose}", per.as_str())
}

impl Shown for Quota {
    fn fields(&self) -> Fields {
        vec![
            ("subject", self.subject.clone()),
            ("quota", quota_text(&self.budget)),
            ("spent", self.used.to_string()),
            ("left", self.remaining.to_string()),
            ("since", seconds(self.start)),
            ("until", seconds(self.end)),
        ]
    }
}
