//! Management tokens.

use super::Answer;
use super::call::Call;
use crate::json_input;
use crate::management;
use crate::management::{ManagementError, TokenSettings};

pub(super) async fn list(call: &Call<'_>) -> Result<Answer, ManagementError> {
    let org = call.org_of_query();
    Ok(Answer::new(
        &management::list_tokens(call.management(), call.actor, org.as_deref(), &call.page()?, call.now()).await?,
    ))
}

pub(super) async fn create(call: &Call<'_>) -> Result<Answer, ManagementError> {
    let settings: TokenSettings = json_input::body(call.request)?;
    // Of a signed-in person who names no organization, the token is one of the chosen organization.
    let settings = TokenSettings { org: settings.org.or_else(|| call.org_of_query()), ..settings };
    let new = management::create_token(call.management(), call.actor, settings, call.now()).await?;
    Ok(Answer::new(&new).created(format!("tokens/{}", new.token.id)))
}

pub(super) async fn revoke(call: &Call<'_>) -> Result<Answer, ManagementError> {
    let token = call.token()?;
    let with_descendants = json_input::boolean(call.request, "with_descendants")?.unwrap_or(false);
    Ok(Answer::new(
        &management::revoke_token(call.management(), call.actor, token, with_descendants, call.now()).await?,
    ))
}
