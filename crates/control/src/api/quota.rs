//! Quotas of a period.

use super::Answer;
use super::call::Call;
use crate::json_input;
use crate::management::{self, ManagementError, QuotaOwner, QuotaRecount};

pub(super) async fn show(call: &Call<'_>) -> Result<Answer, ManagementError> {
    let text = |name| call.request.parameter(name).map(str::to_owned);
    let key = text("key").map(|key| key.parse().map_err(|_| ManagementError::NotKeyId)).transpose()?;
    let org = if key.is_none() { call.org_of_query() } else { text("org") };
    let owner = QuotaOwner { org, user: text("user"), key };
    let shown = management::show_quota(call.management(), call.actor, &owner, call.now()).await;
    let shown = shown.map_err(|error| match error {
        ManagementError::InvalidBody(reason) => ManagementError::InvalidQuery(reason),
        error => error,
    });
    Ok(Answer::new(&shown?))
}

pub(super) async fn reset(call: &Call<'_>) -> Result<Answer, ManagementError> {
    let owner: QuotaOwner = json_input::body(call.request)?;
    Ok(Answer::new(&management::reset_quota(call.management(), call.actor, &owner, call.now()).await?))
}

pub(super) async fn recount(call: &Call<'_>) -> Result<Answer, ManagementError> {
    let recount: QuotaRecount = json_input::body(call.request)?;
    Ok(Answer::new(&management::recount_quota(call.management(), call.actor, &recount, call.now()).await?))
}
