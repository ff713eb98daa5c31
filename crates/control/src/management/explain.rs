//! Explanation of a key: what a request with it would meet now, and why.

use serde::{Deserialize, Serialize};

use super::authorization::{Access, authorize};
use super::owned_key::{find_key, show_owned};
use super::{Actor, Key, KeyStatus, Management, ManagementError, Org, User};
use domain::budget::BudgetStatus;
use domain::clock::{self, Micros};
use domain::identity::Permission;
use domain::key::KeyId;
use domain::key::policy::KeyPolicy;
use domain::management_token::TokenScope;
use domain::quota::{self, SlotStatus};

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
    /// The key's bucket and slots, and the organization's slots.
    pub standing: LimitStatus,
}

/// Bucket of a key, its slots, and those of its organization, at one moment.
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
    /// Requests in flight of the key, if it has a limit of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<SlotStatus>,
    /// The budget, if the key's plan has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<BudgetStatus>,
}

/// Explains what a request with the key would meet now. Takes no token and no slot.
///
/// # Errors
/// [`ManagementError::NoKey`].
pub async fn explain_key(
    management: &Management,
    actor: &Actor,
    id: KeyId,
    now: Micros,
) -> Result<Explanation, ManagementError> {
    authorize(management, actor, Access::Key(id, TokenScope::KeysRead), now).await?;
    let missing = || ManagementError::NoKey(id);
    let owned = find_key(management, actor, id).await?;
    let standing = management.state.rate_limit_status(id, now).await?.ok_or_else(missing)?;
    let key = show_owned(management, &owned, now);
    let org = Org::new(owned.org.ok_or_else(missing)?, management.state.concurrent());
    let user = User::new(owned.user.ok_or_else(missing)?, owned.responsible);
    let verdict = verdict(&key, &user, &standing);
    Ok(Explanation { verdict, key, user, org, standing: LimitStatus::new(&standing, now) })
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
            key: standing.key_slots,
            quota: standing.budget.as_deref().copied(),
        }
    }
}

/// The result of a request now in one sentence, by the checks in their order.
fn verdict(key: &Key, user: &User, standing: &quota::RateLimitStatus) -> String {
    match key.status {
        KeyStatus::Revoked => "requests are refused (401): the key is revoked".into(),
        KeyStatus::Expired => {
            let at = key.policy.expires.map(|at| format!(", at {}", seconds(at))).unwrap_or_default();
            format!("requests are refused (401): the key has expired{at}")
        }
        KeyStatus::Disabled => {
            let disabled = key.policy.disabled;
            let by = disabled.map(|disabled| format!(", since {} {}", seconds(disabled.at), disabled.by.text()));
            format!("requests are refused (401): the key is disabled{}", by.unwrap_or_default())
        }
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
            format!(
                "requests are refused (429): the rate limit is reached; the next request is admitted in {seconds} s"
            )
        }
        KeyStatus::Active if standing.budget.as_deref().is_some_and(|budget| budget.remaining() == 0) => {
            let until = standing.budget.as_deref().map(|budget| seconds(budget.end)).unwrap_or_default();
            format!("requests are refused (429): the budget of the period is spent; the next one begins at {until}")
        }
        KeyStatus::Active if standing.key_slots.is_some_and(|slots| slots.free() == 0) => {
            "requests are refused (429): the key has all its slots in flight".into()
        }
        KeyStatus::Active if standing.in_flight >= standing.concurrent => {
            "requests are refused (429): the organization has all its slots in flight".into()
        }
        KeyStatus::Active => admitted(&key.policy, &user.permissions),
    }
}

/// The verdict on a key that is not refused: what it may do, from where, and until when.
fn admitted(policy: &KeyPolicy, of_user: &[Permission]) -> String {
    let permissions = policy.effective_permissions(of_user);
    let names: Vec<&str> = permissions.iter().map(Permission::as_str).collect();
    let mut verdict = match (of_user, &names[..]) {
        ([], _) => {
            "requests are admitted to routes without a permission only (else 403): the user has no permissions".into()
        }
        (_, []) => "requests are admitted to routes without a permission only (else 403): the key has none of the \
                    permissions of its user"
            .into(),
        (_, names) => format!("requests are admitted, to routes with these permissions: {}", names.join(", ")),
    };
    if !policy.networks.is_empty() {
        let networks: Vec<String> = policy.networks.iter().map(ToString::to_string).collect();
        verdict += &format!("; from these networks only (else 401): {}", networks.join(", "));
    }
    if let Some(expires) = policy.expires {
        verdict += &format!("; until {}", seconds(expires));
    }
    verdict
}

/// A time to the second.
fn seconds(time: Micros) -> String {
    let time = time.to_string();
    time.split_once('.').map_or(time.clone(), |(seconds, _)| format!("{seconds}Z"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdict_names_permissions_of_key_and_user_networks_and_expiry() {
        let permissions = |names: &[&str]| names.iter().map(|name| name.parse().unwrap()).collect::<Vec<Permission>>();
        let of_user = permissions(&["a", "b"]);
        let all = "requests are admitted, to routes with these permissions: a, b";
        assert_eq!(admitted(&KeyPolicy::default(), &of_user), all);
        let policy = KeyPolicy {
            permissions: Some(permissions(&["b", "c"])),
            expires: Some(Micros(1_800_000_000_123_456)),
            networks: vec!["10.0.0.0/8".parse().unwrap(), "::1".parse().unwrap()],
            ..KeyPolicy::default()
        };
        let narrow = "requests are admitted, to routes with these permissions: b; from these networks only (else \
                      401): 10.0.0.0/8, ::1/128; until 2027-01-15T08:00:00Z";
        assert_eq!(admitted(&policy, &of_user), narrow);
        let none = KeyPolicy { permissions: Some(Vec::new()), ..KeyPolicy::default() };
        assert!(admitted(&none, &of_user).ends_with("(else 403): the key has none of the permissions of its user"));
        assert!(admitted(&none, &[]).ends_with("(else 403): the user has no permissions"));
    }
}
