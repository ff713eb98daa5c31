//! Web sessions and sign-in links: credentials of people, which no program makes or ends.

use serde::Deserialize;
use serde_json::json;

use super::Answer;
use super::call::Call;
use crate::json_input;
use crate::management;
use crate::management::{Actor, ManagementError, Session, SignedInUser, User};
use domain::page::Page;

/// Body of the choice of an organization.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OrgChoice {
    /// Its id.
    org: String,
}

pub(super) async fn list(call: &Call<'_>) -> Result<Answer, ManagementError> {
    let org = call.org_of_query();
    let page = call.page()?;
    Ok(Answer::new(
        &management::list_sessions(call.management(), call.actor, org.as_deref(), false, &page, call.now()).await?,
    ))
}

pub(super) async fn end(call: &Call<'_>) -> Result<Answer, ManagementError> {
    Ok(Answer::new(&management::end_session(call.management(), call.actor, call.session()?, call.now()).await?))
}

pub(super) async fn end_of_user(call: &Call<'_>) -> Result<Answer, ManagementError> {
    let items =
        management::end_sessions(call.management(), call.actor, &call.org()?, &call.member()?, call.now()).await?;
    Ok(Answer::new(&Page::<Session> { items, next: None }))
}

/// Ends all sessions of the person but this one.
pub(super) async fn end_others(call: &Call<'_>) -> Result<Answer, ManagementError> {
    Ok(Answer::new(
        &json!({ "ended": management::end_other_sessions(call.management(), signed_in(call)?, call.now()).await? }),
    ))
}

pub(super) async fn create_link(call: &Call<'_>) -> Result<Answer, ManagementError> {
    let link =
        management::create_link(call.management(), call.actor, &call.org()?, &call.member()?, call.now()).await?;
    Ok(Answer::new(&link))
}

/// The signed-in person: their session, role, and chosen and other organizations.
pub(super) async fn show(call: &Call<'_>) -> Result<Answer, ManagementError> {
    of_session(call, signed_in(call)?).await
}

pub(super) async fn choose_org(call: &Call<'_>) -> Result<Answer, ManagementError> {
    let OrgChoice { org } = json_input::body(call.request)?;
    let user = signed_in(call)?;
    management::choose_org(call.management(), user, &org, call.now()).await?;
    // The user differs in each organization: their record there has other permissions.
    let digest = call.request.session.ok().flatten().ok_or(ManagementError::SignedOut)?;
    let user = management::authenticate_session(call.management(), &digest, user.client.clone(), call.now()).await?;
    of_session(call, &user.ok_or(ManagementError::SessionEnded)?).await
}

pub(super) async fn sign_out(call: &Call<'_>) -> Result<Answer, ManagementError> {
    management::sign_out(call.management(), signed_in(call)?, call.now()).await?;
    Ok(Answer::signed_out())
}

async fn of_session(call: &Call<'_>, user: &SignedInUser) -> Result<Answer, ManagementError> {
    let management = call.management();
    let actor = Actor::User(Box::new(user.clone()));
    Ok(Answer::new(&json!({
        "orgs": management::member_orgs(management, user).await?,
        "org": management::show_org(management, &actor, &user.org.id.to_string(), call.now()).await?,
        "session": Session::from(user.session.clone()),
        // A service never signs in.
        "user": User::new(user.user.clone(), None),
        "role": if user.is_admin() { "admin" } else { "member" },
    })))
}

/// The signed-in person, by whom alone the rows of a session are called.
fn signed_in<'a>(call: &Call<'a>) -> Result<&'a SignedInUser, ManagementError> {
    call.actor.signed_in().ok_or(ManagementError::SignedOut)
}
