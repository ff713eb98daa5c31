//! Explanation of a key: what a request with it would meet now, and why.

use serde::{Deserialize, Serialize};

use super::authorization::Access;
use super::{Actor, Key, KeyStatus, Management, ManagementError, Org, User};
use domain::clock::{self, Micros};
use domain::key::KeyId;
use domain::quota;

/// Explanation of why a key is, or would be, refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// The result of a request now, in one sentence.
    pub verdict: String,
    /// The key.
    pub key: Key,
    /// Its user.
    pub user: User,
    /// Its organization.
    pub org: Org,
    /// The key's bucket and the organization's slots.
    pub standing: LimitStatus,
}

/// Bucket of a key and slots of its organization, at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitStatus {
    /// Whole tokens in the bucket.
    pub remaining: u32,
    /// Tokens that the bucket holds when full.
    pub burst: u32,
    /// Time of the next whole token; none when there is one now.
    #[serde(with = "clock::rfc3339::option")]
    pub next_token: Option<Micros>,
    /// Time at which the bucket is full; none when it is full now.
    #[serde(with = "clock::rfc3339::option")]
    pub full: Option<Micros>,
    /// Requests that the organization has in flight.
    pub in_flight: u32,
    /// Requests that the organization may have in flight.
    pub concurrent: u32,
}

impl Management {
    /// Explains what a request with the key would meet now. Takes no token and no slot.
    ///
    /// # Errors
    /// [`ManagementError::NoKey`].
    pub async fn explain_key(&self, actor: &Actor, id: KeyId, now: Micros) -> Result<Explanation, ManagementError> {
        self.authorize(actor, Access::Key(id), now).await?;
        let missing = || ManagementError::NoKey(id);
        let owned = self.find_key(actor, id).await?;
        let standing = self.state.rate_limit_status(id, now).await?.ok_or_else(missing)?;
        let key = self.show_owned(&owned, now);
        let org = Org::new(owned.org.ok_or_else(missing)?, self.state.concurrent());
        let user = User::new(owned.user.ok_or_else(missing)?, owned.responsible);
        let verdict = verdict(&key, &user, &standing);
        Ok(Explanation { verdict, key, user, org, standing: LimitStatus::new(&standing, now) })
    }
}

impl LimitStatus {
    fn new(standing: &quota::RateLimitStatus, now: Micros) -> Self {
        let later = |micros: u64| (micros > 0).then(|| Micros(now.0.saturating_add(micros)));
        Self {
            remaining: standing.remaining,
            burst: standing.quota.burst,
            next_token: later(standing.token_in_us),
            full: later(standing.full_in_us),
            in_flight: standing.in_flight,
            concurrent: standing.concurrent,
        }
    }
}

/// The result of a request now in one sentence, by the checks in their order.
fn verdict(key: &Key, user: &User, standing: &quota::RateLimitStatus) -> String {
    match key.status {
        KeyStatus::Revoked => "requests are refused (401): the key is revoked".into(),
        KeyStatus::Expired => "requests are refused (401): the key has expired".into(),
        KeyStatus::Disabled => "requests are refused (401): the key is disabled".into(),
        KeyStatus::UserRemoved => "requests are refused (401): the key's user was removed".into(),
        KeyStatus::UserSuspended => "requests are refused (401): the key's user is suspended".into(),
        KeyStatus::OrgSuspended => "requests are refused (403): the organization is suspended".into(),
        KeyStatus::Active if user.withdrawn.is_some() => {
            let provider = user.provider.as_deref().unwrap_or("of the sign-in");
            format!(
                "requests are refused (403): the provider {provider} no longer vouches for the user in this \
                 organization"
            )
        }
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
