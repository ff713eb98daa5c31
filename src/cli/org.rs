//! `keygate org`: manages organizations.

use std::time::Duration;

use clap::Subcommand;
use serde_json::{Value, json};

use super::call::Call;
use super::installation::Installation;
use super::list::{self, Row};
use super::output::{or_dash, seconds};
use super::plan_flags::{NewPlan, PlanChange};
use super::quota::quota_text;
use super::show::{self, Fields, OWN_LIMIT, Shown, asterisk, origin};
use super::table::Column;
use super::{CliError, RemoteCommand};
use ::control::management::{Org, OrgPolicyUpdate};
use domain::budget::Spender;
use platform::settings::{InvalidDuration, WithUnit, parse_duration};
use state::{OrgPolicy, UnusedKeys};

/// Commands of `keygate org`.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Create an organization
    Create {
        /// Name; must be unique
        name: String,
        #[command(flatten)]
        plan: NewPlan,
    },
    /// List all organizations
    List,
    /// Show an organization
    Show {
        /// Id or name of the organization
        org: String,
    },
    /// Refuse all requests of an organization from now on, until it is resumed
    Suspend {
        /// Id or name of the organization
        org: String,
    },
    /// Admit requests of a suspended organization again
    Resume {
        /// Id or name of the organization
        org: String,
    },
    /// Set the plan of an organization, for its keys from the next request on
    Set {
        /// Id or name of the organization
        org: String,
        #[command(flatten)]
        plan: PlanChange,
    },
    /// Set the limits of an organization; without options, show them
    Limits {
        /// Id or name of the organization
        org: String,
        /// Maximum number of requests in flight
        #[arg(long, value_name = "N")]
        concurrent: Option<u32>,
        /// Use the configured limits again
        #[arg(long, conflicts_with = "concurrent")]
        default: bool,
    },
    /// Set bounds of keys that are created from now on; without options, show them
    Policy {
        /// Id or name of the organization
        org: String,
        /// Longest time from the creation of a key to its expiry, such as 90d; none: keys need not expire
        #[arg(long, value_name = "DURATION", value_parser = duration_or_none)]
        max_expiry: Option<Setting<Duration>>,
        /// Time from the creation of a key to its expiry where none is asked for; none: the longest
        #[arg(long, value_name = "DURATION", value_parser = duration_or_none)]
        default_expiry: Option<Setting<Duration>>,
        /// Time without a request after which a key may be disabled, at least 7d; never; or default: as configured
        #[arg(long, value_name = "DURATION", value_parser = unused_keys)]
        unused_keys: Option<Setting<UnusedKeys>>,
    },
}

/// A value of the policy, or none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting<T>(Option<T>);

fn duration_or_none(text: &str) -> Result<Setting<Duration>, InvalidDuration> {
    let none = (text == "none").then_some(Setting(None));
    none.map_or_else(|| parse_duration(text).map(|duration| Setting(Some(duration))), Ok)
}

fn unused_keys(text: &str) -> Result<Setting<UnusedKeys>, InvalidDuration> {
    let default = (text == "default").then_some(Setting(None));
    default.map_or_else(|| text.parse().map(|unused| Setting(Some(unused))), Ok)
}

impl RemoteCommand<Command> {
    pub(super) fn run(self, installation: &Installation) -> Result<(), CliError> {
        match self.command {
            Command::List => {
                let empty = "there are no organizations yet";
                list::print::<Org>(installation, Call::get(&["orgs"]), empty, self.format)
            }
            Command::Set { org, plan } => {
                show::perform::<Org>(installation, &Call::patch(&["orgs", &org], &plan.patch()?), self.format)
            }
            command => show::perform::<Org>(installation, &call(command), self.format),
        }
    }
}

fn call(command: Command) -> Call {
    let show = |org: &str| Call::get(&["orgs", org]);
    let patch = |org: &str, patch: Value| Call::patch(&["orgs", org], &patch);
    match command {
        Command::List | Command::Set { .. } => unreachable!("performed before"),
        Command::Create { name, plan } => Call::post(&["orgs"]).with_body(&plan.add_to(json!({ "name": name }))),
        Command::Show { org } | Command::Limits { org, concurrent: None, default: false } => show(&org),
        Command::Suspend { org } => patch(&org, json!({ "suspended": true })),
        Command::Resume { org } => patch(&org, json!({ "suspended": false })),
        Command::Limits { org, concurrent, .. } => patch(&org, json!({ "concurrent": concurrent })),
        Command::Policy { org, max_expiry, default_expiry, unused_keys } => {
            let policy = OrgPolicyUpdate {
                max_expiry: max_expiry.map(|setting| setting.0),
                default_expiry: default_expiry.map(|setting| setting.0),
                unused_keys: unused_keys.map(|setting| setting.0),
            };
            if policy == OrgPolicyUpdate::default() { show(&org) } else { patch(&org, json!({ "policy": policy })) }
        }
    }
}

impl Row for Org {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("NAME", 1, |org| org.name.clone()),
        Column::new("ID", 3, |org| org.id.to_string()),
        Column::new("TAG", 4, |org| org.tag.to_string()),
        Column::new("STATUS", 2, |org| status(org).to_owned()),
        Column::starred("CONCURRENT", 5, OWN_LIMIT, |org| {
            format!("{}{}", org.concurrent_in_force, asterisk(org.concurrent.is_some()))
        }),
        Column::new("PLAN", 6, |org| or_dash(org.plan.as_ref())),
        Column::new("CREATED", 7, |org| seconds(org.created)),
    ];
}

impl Shown for Org {
    fn fields(&self) -> Fields {
        vec![
            ("id", self.id.to_string()),
            ("name", self.name.clone()),
            ("status", status(self).to_owned()),
            ("concurrent", format!("{} {}", self.concurrent_in_force, origin(self.concurrent.is_some()))),
            ("plan", or_dash(self.plan.as_ref())),
            ("quota", or_dash(self.quota.map(|quota| quota_text(&quota.of(Spender::Org))))),
            ("policy", policy(&self.policy)),
            ("tag", self.tag.to_string()),
            ("created", seconds(self.created)),
        ]
    }
}

pub(super) fn status(org: &Org) -> &'static str {
    if org.suspended { "suspended" } else { "active" }
}

/// `max expiry 90d, default expiry 30d, unused keys never`; a dash for a policy that bounds nothing.
fn policy(policy: &OrgPolicy) -> String {
    let expiry = |name: &str, expiry: Option<Duration>| Some(format!("{name} {}", WithUnit::Duration(expiry?)));
    let bounds = [
        expiry("max expiry", policy.max_expiry),
        expiry("default expiry", policy.default_expiry),
        policy.unused_keys.map(|unused| format!("unused keys {unused}")),
    ];
    let bounds: Vec<String> = bounds.into_iter().flatten().collect();
    or_dash(Some(bounds.join(", ")).filter(|bounds| !bounds.is_empty()))
}
