//! The flags `--plan` and `--no-plan`, and the plan of a key in words.

use anyhow::anyhow;
use serde_json::{Value, json};

use super::{CliError, ExitStatus};
use ::control::management::{KeyLimits, PlanInForce};
use domain::plan_name::PlanName;
use state::LimitLevel;

/// The plan of a record that is there.
#[derive(Debug, clap::Args)]
pub(super) struct PlanChange {
    /// Plan, of those in `plans` of the configuration: its limits hold from the next request on
    #[arg(long, value_name = "NAME")]
    plan: Option<PlanName>,
    /// Take the plan away
    #[arg(long, conflicts_with = "plan")]
    no_plan: bool,
}

/// The plan of a new record.
#[derive(Debug, clap::Args)]
pub(super) struct NewPlan {
    /// Plan, of those in `plans` of the configuration; default: none of its own
    #[arg(long, value_name = "NAME")]
    plan: Option<PlanName>,
}

impl PlanChange {
    /// Adds the change to a patch; returns whether there is one.
    pub(super) fn add_to(&self, patch: &mut Value) -> bool {
        let is_given = self.plan.is_some() || self.no_plan;
        if is_given {
            patch["plan"] = json!(self.plan);
        }
        is_given
    }

    /// The patch that changes the plan alone.
    pub(super) fn patch(&self) -> Result<Value, CliError> {
        let mut patch = json!({});
        if self.add_to(&mut patch) {
            return Ok(patch);
        }
        Err(CliError::new(ExitStatus::Usage, anyhow!("nothing to set: give --plan or --no-plan")))
    }
}

impl NewPlan {
    /// Adds the plan to the body of a creation; a gateway of before knows no such member.
    pub(super) fn add_to(self, mut body: Value) -> Value {
        if let Some(plan) = self.plan {
            body["plan"] = json!(plan);
        }
        body
    }
}

/// The origin of the limits of a key, in words.
pub(super) fn limits_origin(limits: &KeyLimits) -> String {
    let Some(PlanInForce { name, of, concurrent, missing }) = &limits.plan else {
        return super::show::origin(limits.own).to_owned();
    };
    let of = match of {
        LimitLevel::Key => "of the key",
        LimitLevel::User => "of its user",
        LimitLevel::Org => "of its organization",
        LimitLevel::Own | LimitLevel::Plan | LimitLevel::Default => "of `limits.plan`",
    };
    let concurrent = concurrent.map(|concurrent| format!(", {concurrent} in flight")).unwrap_or_default();
    if *missing {
        format!("(as configured: there is no plan {name}, {of})")
    } else {
        format!("(plan {name} {of}{concurrent})")
    }
}
