//! Users of an organization: people and services.

use serde::Deserialize;

use super::Answer;
use super::call::Call;
use crate::json_input;
use crate::management;
use crate::management::{ManagementError, User, UserGrants, UserKind};
use domain::identity::Permission;
use domain::plan_name::PlanName;

/// Body of a creation.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewUser {
    /// Email address of a person, name of a service.
    email: String,
    #[serde(default)]
    kind: UserKind,
    #[serde(default)]
    permissions: Vec<Permission>,
    /// Id or email address of the person who is responsible for a service.
    responsible: Option<String>,
    plan: Option<PlanName>,
}

pub(super) async fn list(call: &Call<'_>) -> Result<Answer, ManagementError> {
    Ok(Answer::new(
        &management::list_users(call.management(), call.actor, &call.org()?, &call.page()?, call.now()).await?,
    ))
}

pub(super) async fn create(call: &Call<'_>) -> Result<Answer, ManagementError> {
    let NewUser { email, kind, permissions, responsible, plan } = json_input::body(call.request)?;
    let grants = UserGrants { permissions, plan };
    let (management, actor, org, now) = (call.management(), call.actor, &call.org()?, call.now());
    let invalid = |what: &str| Err(ManagementError::InvalidBody(what.to_owned()));
    let user = match (kind, responsible) {
        (UserKind::Person, None) => management::create_user(management, actor, org, &email, grants, now).await?,
        (UserKind::Service, Some(person)) => {
            management::create_service(management, actor, org, &email, &person, grants, now).await?
        }
        (UserKind::Person, Some(_)) => return invalid("only a service has a responsible person"),
        (UserKind::Service, None) => return invalid("a service needs a responsible person"),
    };
    Ok(answer(&user).created(format!("orgs/{}/users/{}", user.org, user.id)))
}

pub(super) async fn show(call: &Call<'_>) -> Result<Answer, ManagementError> {
    Ok(answer(&management::show_user(call.management(), call.actor, &call.org()?, &call.member()?, call.now()).await?))
}

pub(super) async fn update(call: &Call<'_>) -> Result<Answer, ManagementError> {
    let update = json_input::body(call.request)?;
    let (org, user) = (call.org()?, call.member()?);
    Ok(answer(&management::update_user(call.management(), call.actor, &org, &user, update, call.now()).await?))
}

pub(super) async fn remove(call: &Call<'_>) -> Result<Answer, ManagementError> {
    Ok(answer(
        &management::remove_user(call.management(), call.actor, &call.org()?, &call.member()?, call.now()).await?,
    ))
}

fn answer(user: &User) -> Answer {
    Answer::new(user).with_tag(user.etag)
}
