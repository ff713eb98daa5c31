//! Organizations, and their federation rules.

use serde::Deserialize;

use super::Answer;
use super::call::Call;
use crate::json_input;
use crate::management;
use crate::management::{ManagementError, Org};
use domain::plan_name::PlanName;

/// Body of a creation.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewOrg {
    name: String,
    plan: Option<PlanName>,
}

pub(super) async fn list(call: &Call<'_>) -> Result<Answer, ManagementError> {
    Ok(Answer::new(&management::list_orgs(call.management(), call.actor, &call.page()?, call.now()).await?))
}

pub(super) async fn create(call: &Call<'_>) -> Result<Answer, ManagementError> {
    let NewOrg { name, plan } = json_input::body(call.request)?;
    let org = management::create_org(call.management(), call.actor, &name, plan, call.now()).await?;
    Ok(answer(&org).created(format!("orgs/{}", org.id)))
}

pub(super) async fn show(call: &Call<'_>) -> Result<Answer, ManagementError> {
    Ok(answer(&management::show_org(call.management(), call.actor, &call.org()?, call.now()).await?))
}

pub(super) async fn update(call: &Call<'_>) -> Result<Answer, ManagementError> {
    let update = json_input::body(call.request)?;
    Ok(answer(&management::update_org(call.management(), call.actor, &call.org()?, update, call.now()).await?))
}

pub(super) async fn list_rules(call: &Call<'_>) -> Result<Answer, ManagementError> {
    let rules =
        management::list_federation_rules(call.management(), call.actor, &call.org()?, &call.page()?, call.now())
            .await?;
    Ok(Answer::new(&rules))
}

pub(super) async fn create_rule(call: &Call<'_>) -> Result<Answer, ManagementError> {
    let rule = json_input::body(call.request)?;
    let rule =
        management::create_federation_rule(call.management(), call.actor, &call.org()?, rule, call.now()).await?;
    Ok(Answer::new(&rule).created(format!("orgs/{}/federation-rules/{}", rule.org, rule.name)))
}

pub(super) async fn show_rule(call: &Call<'_>) -> Result<Answer, ManagementError> {
    let rule =
        management::show_federation_rule(call.management(), call.actor, &call.org()?, &call.member()?, call.now())
            .await?;
    Ok(Answer::new(&rule))
}

pub(super) async fn remove_rule(call: &Call<'_>) -> Result<Answer, ManagementError> {
    let rule =
        management::remove_federation_rule(call.management(), call.actor, &call.org()?, &call.member()?, call.now())
            .await?;
    Ok(Answer::new(&rule))
}

fn answer(org: &Org) -> Answer {
    Answer::new(org).with_tag(org.etag)
}
