//! Why a key is, or would be, refused.

use super::{Explanation, Key, KeyStatus, LimitStatus, Management, ManagementError, Reply, User};
use crate::clock::Micros;
use crate::key::KeyId;
use crate::quota;

impl Management {
    /// What a request with the key would meet now. Takes nothing.
    pub(super) async fn explain(&self, id: KeyId, now: Micros) -> Result<Reply, ManagementError> {
        let missing = || ManagementError::NoKey(id);
        let owned = self.owned(id).await?;
        let standing = self.state.rate_limit_status(id, now).await?.ok_or_else(missing)?;
        let key = self.shown(&owned);
        let org = self.shown_org(owned.org.ok_or_else(missing)?);
        let user = User::from(owned.user.ok_or_else(missing)?);
        let verdict = verdict(&key, &user, &standing);
        let standing = LimitStatus::of(&standing, now);
        Ok(Reply::Explanation { explanation: Box::new(Explanation { verdict, key, user, org, standing }) })
    }
}

/// The answer in one sentence, in the order in which requests are checked.
fn verdict(key: &Key, user: &User, standing: &quota::RateLimitStatus) -> String {
    match key.status {
        KeyStatus::Revoked => "requests are refused (401): the key is revoked".into(),
        KeyStatus::UserRemoved => "requests are refused (401): the key's user was removed".into(),
        KeyStatus::OrgSuspended => "requests are refused (403): the organization is suspended".into(),
        KeyStatus::Active if standing.remaining == 0 => {
            let seconds = standing.token_in_us.div_ceil(1_000_000);
            format!("requests are refused (429): the key's bucket is empty; the next token comes in {seconds} s")
        }
        KeyStatus::Active if standing.in_flight >= standing.concurrent => {
            "requests are refused (429): the organization has all its slots in flight".into()
        }
        KeyStatus::Active if user.permissions.is_empty() => {
            "requests are admitted to routes without a permission only (else 403): the user has no permissions".into()
        }
        KeyStatus::Active => {
            let permissions: Vec<&str> = user.permissions.iter().map(|permission| permission.as_str()).collect();
            format!("requests are admitted, to routes with these permissions: {}", permissions.join(", "))
        }
    }
}
