//! A key as management shows it, and the limits that it has.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{KeyActor, KeyMark, KeyStatus, Responsible, UserKind, duration_text, given};
use crate::secret_text;
use domain::budget::{Budget, OwnBudget};
use domain::clock::{self, Micros};
use domain::identity::{OrgId, UserId};
use domain::key::policy::KeyPolicy;
use domain::key::{KeyId, PlainKey};
use domain::management_token::PlainToken;
use domain::plan_name::PlanName;
use domain::quota::{Quota, QuotaError};
use domain::secret::Secret;
use state::{ETag, KeyActors, KeyEvent, LimitLevel, LimitsInForce};

/// Key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "as in state::Key")]
pub struct Key {
    pub id: KeyId,
    pub name: String,
    pub org: OrgId,
    pub user: UserId,
    /// The user's email address, or name of a service.
    pub email: String,
    /// Kind of the user; left out for a person.
    #[serde(default, skip_serializing_if = "UserKind::is_person")]
    pub user_kind: UserKind,
    /// The person who is responsible for the user, a service. Lists of keys do not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub responsible: Option<Responsible>,
    pub status: KeyStatus,
    /// The effective limits.
    pub limits: KeyLimits,
    /// The key's own plan, before those of its user and its organization; left out when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanName>,
    /// The key's own quota of a period, before those of its user, its organization and plans; left out without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<OwnBudget>,
    /// Its policy: the restrictions that its user does not have.
    #[serde(default, skip_serializing_if = "KeyPolicy::is_empty")]
    pub policy: KeyPolicy,
    pub imported: bool,
    /// Number of admitted requests.
    #[serde(rename = "requests")]
    pub uses: u64,
    #[serde(with = "clock::rfc3339::option")]
    pub last_used: Option<Micros>,
    #[serde(with = "clock::rfc3339")]
    pub created: Micros,
    /// The actor who created or imported it; none when that is not known, as with the next two.
    #[serde(default)]
    pub created_by: Option<KeyActor>,
    #[serde(with = "clock::rfc3339::option")]
    pub rotated: Option<Micros>,
    /// The actor of the last rotation.
    #[serde(default)]
    pub rotated_by: Option<KeyActor>,
    #[serde(with = "clock::rfc3339::option")]
    pub previous_until: Option<Micros>,
    #[serde(with = "clock::rfc3339::option")]
    pub revoked: Option<Micros>,
    /// The actor who revoked it.
    #[serde(default)]
    pub revoked_by: Option<KeyActor>,
    /// Marks for the owner's attention.
    #[serde(default)]
    pub marks: Vec<KeyMark>,
    /// Entity tag of the record; none of one that came over a wire.
    #[serde(skip)]
    pub etag: Option<ETag>,
}

/// Effective quota for a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyLimits {
    /// Tokens that flow in during one `per`.
    pub requests: u32,
    /// The time in which they flow in; in JSON as text, such as `1h`.
    #[serde(with = "duration_text")]
    pub per: Duration,
    /// Tokens that the bucket holds when full.
    pub burst: u32,
    /// `true`: never more than `requests` in any window of `per`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strict: bool,
    /// `true`: the key's own quota; `false`: the configured one.
    pub own: bool,
    /// The quota of a period that the key spends: its own, that of its user or its organization, or that of the plan;
    /// left out when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<Budget>,
    /// The plan that gives the limits; left out when none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanInForce>,
}

/// The plan that gives a key its limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanInForce {
    /// Its name.
    pub name: PlanName,
    /// The level that has it: `key`, `user`, `org`, or `plan`, which is `limits.plan`.
    pub of: LimitLevel,
    /// Requests that each key may have in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrent: Option<u32>,
    /// `true`: the configuration does not have the plan, and `limits.key` holds.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub missing: bool,
}

/// New limits of a key. Values that are absent stay as they are in force, except `burst`, which follows new `requests`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitUpdate {
    /// Tokens that flow in during one `per`.
    pub requests: Option<u32>,
    /// The time in which they flow in; in JSON as text, such as `1h`.
    #[serde(default, with = "duration_text::option", skip_serializing_if = "Option::is_none")]
    pub per: Option<Duration>,
    /// Tokens that the bucket holds when full.
    pub burst: Option<u32>,
}

/// Patch of a key's limits (RFC 7396): what is absent stays as it is in force, `null` is the configured value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitPatch {
    /// Tokens that flow in during one `per`.
    #[serde(default, deserialize_with = "given::deserialize")]
    pub requests: Option<Option<u32>>,
    /// The time in which they flow in.
    #[serde(default, deserialize_with = "given::duration::deserialize")]
    pub per: Option<Option<Duration>>,
    /// Tokens that the bucket holds when full. `null` with other requests than the configured: as many as these.
    #[serde(default, deserialize_with = "given::deserialize")]
    pub burst: Option<Option<u32>>,
}

/// Key with a new secret: the only time that the secret is shown, if it was made here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewKey {
    /// Its record.
    #[serde(flatten)]
    pub key: Key,
    /// The key in the clear; none (in JSON `null`) of a secret that was made elsewhere, and given by its digest.
    #[serde(rename = "key")]
    pub api_key: Option<ApiKey>,
    /// Reason for which the new key may be lost again; none as a rule. The key is shown all the same: without it,
    /// it could be neither used nor revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

/// API key or management token in the clear, on its way to its owner. It serializes as the key itself; `Debug` does
/// not show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiKey(#[serde(with = "secret_text")] Secret);

/// Good practice with keys, and the lines that put a key into the environment.
#[derive(Clone, Copy, Debug)]
pub struct GoodPractice;

impl GoodPractice {
    /// Variable of the environment for the key.
    pub const VARIABLE: &str = "KEYGATE_API_KEY";

    /// Good practice: a sentence each.
    pub const LINES: [&'static str; 4] = [
        "Use one key for each application and environment, so that each can be revoked on its own.",
        "Never put a key into version control, nor into anything that a browser or an app store delivers.",
        "Keep it in an environment variable or a vault, and let the program read it at its start.",
        "Rotate it regularly, and watch Last Used for requests that you do not expect.",
    ];

    /// Lines for a POSIX shell. Keys are letters, digits and `_`, and origins have no quotes, so nothing is escaped.
    pub fn exports(api_key: &str, origin: &str) -> String {
        let variable = Self::VARIABLE;
        format!("export {variable}='{api_key}'\nexport KEYGATE_API_URL='{origin}'")
    }

    /// The line for a POSIX shell that has only the key.
    pub fn export_key(api_key: &str) -> String {
        format!("export {}='{api_key}'", Self::VARIABLE)
    }
}

impl Key {
    /// The key with those of its actors who made the changes that it shows.
    pub(super) fn with_actors(self, actors: &KeyActors<KeyActor>) -> Self {
        let find = |event, at| actors.find(event, at).cloned();
        Self {
            created_by: find(KeyEvent::Created, Some(self.created)),
            rotated_by: find(KeyEvent::Rotated, self.rotated),
            revoked_by: find(KeyEvent::Revoked, self.revoked),
            ..self
        }
    }

    /// From the record, the user and organization that own it (none: removed or gone), and the limits in force; its
    /// marks are as of `now`. It names no actors: see [`Key::with_actors`].
    pub(super) fn new(
        key: &state::Key,
        user: Option<&state::User>,
        org: Option<&state::Org>,
        limits: LimitsInForce<'_>,
        now: Micros,
    ) -> Self {
        Self {
            id: key.id,
            name: key.name.clone(),
            org: key.org,
            user: key.user,
            email: user.map(|user| user.email.clone()).unwrap_or_default(),
            user_kind: user.map(UserKind::of).unwrap_or_default(),
            responsible: None,
            status: KeyStatus::new(key, user, org, now),
            limits: limits.into(),
            plan: key.plan.clone(),
            quota: key.budget,
            // The time of the last enabling is the sweep's.
            policy: KeyPolicy { enabled: None, ..key.policy.as_deref().cloned().unwrap_or_default() },
            imported: key.imported,
            uses: key.uses,
            last_used: key.last_used,
            created: key.created,
            created_by: None,
            rotated: key.rotated,
            rotated_by: None,
            previous_until: key.previous_until,
            revoked: key.revoked,
            revoked_by: None,
            marks: KeyMark::of(key, now),
            etag: Some(key.etag()),
        }
    }

    /// With the person who is responsible for the key's user.
    pub(super) fn with_responsible(self, responsible: Option<Responsible>) -> Self {
        Self { responsible, ..self }
    }
}

impl From<LimitsInForce<'_>> for KeyLimits {
    fn from(limits: LimitsInForce<'_>) -> Self {
        let LimitsInForce { quota, concurrent, budget, level, plan, is_missing } = limits;
        let Quota { requests, per, burst, strict } = quota;
        let plan = plan.map(|name| PlanInForce { name: name.clone(), of: level, concurrent, missing: is_missing });
        Self { requests, per, burst, strict, own: level == LimitLevel::Own, quota: budget, plan }
    }
}

impl LimitUpdate {
    /// The quota of a key that is created with these limits, where this one is configured.
    ///
    /// # Errors
    /// [`QuotaError`].
    pub fn quota_from(self, configured: Quota) -> Result<Quota, QuotaError> {
        self.apply_to(configured).validate()
    }

    /// Applies these limits to the effective quota.
    pub(super) fn apply_to(self, quota: Quota) -> Quota {
        Quota {
            requests: self.requests.unwrap_or(quota.requests),
            per: self.per.unwrap_or(quota.per),
            burst: self.burst.or(self.requests).unwrap_or(quota.burst),
            // Own quotas are stored as they were chosen; a strict configuration makes them strict when
            // they come into force.
            strict: false,
        }
    }
}

impl LimitPatch {
    /// Applies the patch to the quota in force, where this one is configured.
    pub(super) fn apply_to(self, in_force: Quota, configured: Quota) -> Quota {
        let requests = self.requests.map_or(in_force.requests, |given| given.unwrap_or(configured.requests));
        let per = self.per.map_or(in_force.per, |given| given.unwrap_or(configured.per));
        let default_burst = if requests == configured.requests { configured.burst } else { requests };
        let burst = self.burst.map_or(in_force.burst, |given| given.unwrap_or(default_burst));
        Quota { requests, per, burst, strict: false }
    }
}

impl From<LimitUpdate> for LimitPatch {
    fn from(LimitUpdate { requests, per, burst }: LimitUpdate) -> Self {
        Self { requests: requests.map(Some), per: per.map(Some), burst: burst.or(requests).map(Some) }
    }
}

impl ApiKey {
    /// The key itself, to be shown once.
    pub fn expose(&self) -> &str {
        self.0.expose()
    }

    /// A management token, which travels to its creator in the same way.
    pub(super) fn from_token(token: &PlainToken) -> Self {
        Self(token.expose().clone())
    }

    /// The key out of a text that was sealed.
    pub(super) fn from_sealed(text: &str) -> Self {
        Self(Secret::new(text.to_owned()))
    }
}

impl From<&PlainKey> for ApiKey {
    fn from(key: &PlainKey) -> Self {
        Self(key.expose().clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::key::OrgTag;

    #[test]
    fn limits_that_are_absent_stay_as_they_are() {
        let quota = Quota { requests: 10, per: Duration::from_secs(60), burst: 5, strict: false };
        assert_eq!(LimitUpdate::default().apply_to(quota), quota);
        let faster = LimitUpdate { requests: Some(20), ..LimitUpdate::default() }.apply_to(quota);
        assert_eq!((faster.requests, faster.per, faster.burst), (20, quota.per, 20));
        let bursty = LimitUpdate { requests: Some(20), burst: Some(1), ..LimitUpdate::default() }.apply_to(quota);
        assert_eq!((bursty.requests, bursty.burst), (20, 1));
    }

    #[test]
    fn patch_of_limits_loosens_nothing_unasked() {
        let minute = Duration::from_secs(60);
        let in_force = Quota { requests: 10, per: minute, burst: 5, strict: false };
        let configured = Quota { requests: 1000, per: 60 * minute, burst: 100, strict: false };
        for (patch, (requests, per, burst)) in [
            ("{}", (10, minute, 5)),
            (r#"{"requests":20}"#, (20, minute, 5)),
            (r#"{"requests":20,"burst":null}"#, (20, minute, 20)),
            (r#"{"requests":null,"burst":null}"#, (1000, minute, 100)),
            (r#"{"per":null}"#, (10, 60 * minute, 5)),
            (r#"{"per":"1s","burst":7}"#, (10, Duration::from_secs(1), 7)),
        ] {
            let read: LimitPatch = serde_json::from_str(patch).unwrap();
            let expected = Quota { requests, per, burst, strict: false };
            assert_eq!(read.apply_to(in_force, configured), expected, "{patch}");
        }
        let update = LimitUpdate { requests: Some(20), ..LimitUpdate::default() };
        assert_eq!(LimitPatch::from(update).apply_to(in_force, configured), update.apply_to(in_force));
    }

    #[test]
    fn unused_and_old_keys_are_marked() {
        let day = |day: u64| Micros(day * 24 * 3_600_000_000);
        let tag = OrgTag::generate().unwrap();
        let marks = |last_used: Option<u64>, rotated: Option<u64>, revoked: Option<u64>, now| {
            let key = state::Key {
                rotated: rotated.map(day),
                revoked: revoked.map(day),
                last_used: last_used.map(day),
                ..state::Key::new(KeyId::generate(tag).unwrap(), OrgId::generate(), UserId::generate(), "ci", day(1000))
            };
            KeyMark::of(&key, day(now))
        };
        assert_eq!(marks(None, None, None, 1089), []);
        assert_eq!(marks(None, None, None, 1090), [KeyMark::Unused], "never used");
        assert_eq!(marks(Some(1300), None, None, 1389), [KeyMark::Old]);
        assert_eq!(marks(Some(1300), None, None, 1390), [KeyMark::Unused, KeyMark::Old]);
        assert_eq!(marks(Some(1300), Some(1200), None, 1389), [], "a rotated key has a young secret");
        assert_eq!(marks(None, None, Some(1001), 2000), [], "a revoked key needs nothing");
    }

    #[test]
    fn api_key_is_serialized_in_the_clear_and_hidden_by_debug() {
        let id = KeyId::generate(OrgTag::generate().unwrap()).unwrap();
        let plain = PlainKey::generate(id).unwrap();
        let api_key = ApiKey::from(&plain);
        assert_eq!(format!("{api_key:?}"), "ApiKey(Secret(…))");
        let json = serde_json::to_string(&api_key).unwrap();
        assert_eq!(json, format!("{:?}", plain.expose().expose()));
        assert_eq!(serde_json::from_str::<ApiKey>(&json).unwrap(), api_key);
    }
}
