//! Policies of keys: set single fields, disable, enable.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::actor::AuditActor;
use super::audited_change::{Target, apply_change};
use super::authorization::{Access, authorize};
use super::owned_key::{OwnedKey, find_key, show_owned};
use super::{Actor, Key, Management, ManagementError, given};
use domain::clock::Micros;
use domain::identity::Permission;
use domain::key::KeyId;
use domain::key::policy::{Disabled, DisabledBy, Field, KeyPolicy, Network, PolicyPatch};
use domain::management_token::TokenScope;
use state::{Change, OrgPolicy};

/// Change of a policy as it travels: a merge patch (RFC 7396). What is absent stays, and `null` clears.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyUpdate {
    /// Permissions that the key has as far as its user has them.
    #[serde(default, deserialize_with = "given::deserialize", skip_serializing_if = "Option::is_none")]
    pub permissions: Option<Option<Vec<Permission>>>,
    /// Time from which it is refused.
    #[serde(default, with = "given::time", skip_serializing_if = "Option::is_none")]
    pub expires: Option<Option<Micros>>,
    /// Networks that requests with it have to come from; an empty list clears, too.
    #[serde(default, deserialize_with = "given::deserialize", skip_serializing_if = "Option::is_none")]
    pub networks: Option<Option<Vec<Network>>>,
    /// Requests in flight with it at most.
    #[serde(default, deserialize_with = "given::deserialize", skip_serializing_if = "Option::is_none")]
    pub concurrent: Option<Option<u32>>,
    /// Tags by their names: `null` removes one, and `null` in place of them all removes all.
    #[serde(default, deserialize_with = "given::deserialize", skip_serializing_if = "Option::is_none")]
    pub tags: Option<Option<BTreeMap<String, Option<String>>>>,
}

impl PolicyUpdate {
    /// Returns whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The change of the record.
    pub(super) fn into_patch(self) -> PolicyPatch {
        fn field<T>(value: Option<Option<T>>) -> Field<T> {
            value.map_or(Field::Keep, |value| value.map_or(Field::Clear, Field::Set))
        }
        fn sorted<T: Ord>(list: Option<Option<Vec<T>>>) -> Field<Vec<T>> {
            field(list.map(|list| {
                list.map(|mut list| {
                    list.sort_unstable();
                    list.dedup();
                    list
                })
            }))
        }
        PolicyPatch {
            permissions: sorted(self.permissions),
            expires: field(self.expires),
            networks: sorted(self.networks),
            concurrent: field(self.concurrent),
            disabled: Field::Keep,
            enabled: None,
            tags: field(self.tags),
        }
    }

    /// The change of the record of this key.
    ///
    /// # Errors
    /// [`ManagementError::BeyondOwner`].
    pub(super) fn into_patch_of(self, owned: &OwnedKey) -> Result<PolicyPatch, ManagementError> {
        let patch = self.into_patch();
        if let Field::Set(permissions) = &patch.permissions {
            check_permissions(Some(permissions), owned.user.as_ref().map_or(&[], |user| &user.permissions))?;
        }
        Ok(patch)
    }

    /// The policy of a key that is created `now` in an organization with the policy `of_org`.
    ///
    /// # Errors
    /// [`ManagementError::InvalidKeyPolicy`]; [`ManagementError::BeyondOwner`] for a permission that `of_user` lacks;
    /// [`ManagementError::TooLate`].
    pub(super) fn into_policy(
        self,
        of_user: &[Permission],
        of_org: &OrgPolicy,
        now: Micros,
    ) -> Result<Option<Box<KeyPolicy>>, ManagementError> {
        let mut policy = self.into_patch().apply(&KeyPolicy::default());
        policy.expires = of_org.expiry_of_new_key(policy.expires, now)?;
        policy.validate().map_err(ManagementError::InvalidKeyPolicy)?;
        check_permissions(policy.permissions.as_deref(), of_user)?;
        Ok(policy.boxed())
    }

    /// The policy of a key that the operator imports, and may import disabled.
    ///
    /// # Errors
    /// As [`PolicyUpdate::into_policy`].
    pub(super) fn into_imported(
        self,
        of_user: &[Permission],
        of_org: &OrgPolicy,
        disabled: bool,
        now: Micros,
    ) -> Result<Option<Box<KeyPolicy>>, ManagementError> {
        let mut policy = self.into_policy(of_user, of_org, now)?;
        if disabled {
            policy.get_or_insert_default().disabled = Some(Disabled { at: now, by: DisabledBy::Operator });
        }
        Ok(policy)
    }
}

/// Disables a key: refused from the next decision on, and what is open ends, until it is enabled. Of several
/// disablings the first stands.
///
/// # Errors
/// [`ManagementError::NoKey`], [`ManagementError::Revoked`].
pub async fn disable_key(
    management: &Management,
    actor: &Actor,
    id: KeyId,
    has_leaked: bool,
    now: Micros,
) -> Result<Key, ManagementError> {
    let by_actor = if actor.is_operator() { DisabledBy::Operator } else { DisabledBy::Person };
    let cause = if has_leaked { DisabledBy::Leak } else { by_actor };
    let patch = PolicyPatch { disabled: Field::Set(Disabled { at: now, by: cause }), ..PolicyPatch::default() };
    let by = authorize(management, actor, Access::Key(id, TokenScope::KeysSet), now).await?;
    change_policy(management, "key.disable", &find_key(management, actor, id).await?, patch, by).await
}

/// Enables a key that was disabled. What the operator disabled only the operator can enable.
///
/// # Errors
/// [`ManagementError::NoKey`], [`ManagementError::Revoked`], [`ManagementError::DisabledByOperator`].
pub async fn enable_key(
    management: &Management,
    actor: &Actor,
    id: KeyId,
    now: Micros,
) -> Result<Key, ManagementError> {
    let patch = PolicyPatch { disabled: Field::Clear, enabled: Some(now), ..PolicyPatch::default() };
    let by = authorize(management, actor, Access::Key(id, TokenScope::KeysSet), now).await?;
    change_policy(management, "key.enable", &find_key(management, actor, id).await?, patch, by).await
}

/// Makes a change of a key for an actor who may see the key. The state refuses what exceeds the actor's scope.
async fn change_policy(
    management: &Management,
    operation: &'static str,
    owned: &OwnedKey,
    patch: PolicyPatch,
    by: AuditActor<'_>,
) -> Result<Key, ManagementError> {
    let key = owned.key.id;
    let change = Change::set_key_policy(key, Box::new(patch), by.actor.policy_scope(by.now));
    apply_change(management, operation, Target::of_key(&owned.key), change, by).await?;
    // Read again: others may have changed other fields.
    Ok(show_owned(management, &find_key(management, by.actor, key).await?, by.now))
}

fn check_permissions(of_key: Option<&[Permission]>, of_user: &[Permission]) -> Result<(), ManagementError> {
    let beyond = of_key.unwrap_or_default().iter().find(|permission| !of_user.contains(permission));
    beyond.map_or(Ok(()), |permission| Err(ManagementError::BeyondOwner(permission.clone())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn update_is_a_merge_patch() {
        let json = r#"{"expires":"2027-01-31T00:00:00.000000Z","networks":null,"tags":{"a":"1","b":null}}"#;
        let update: PolicyUpdate = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&update).unwrap(), json);
        let before = KeyPolicy {
            networks: vec!["10.0.0.0/8".parse().unwrap()],
            concurrent: Some(3),
            tags: [("b".to_owned(), "2".to_owned())].into(),
            ..KeyPolicy::default()
        };
        let after = update.into_patch().apply(&before);
        assert_eq!(
            (after.networks, after.concurrent, after.tags),
            (vec![], Some(3), [("a".into(), "1".into())].into())
        );
        assert!(after.expires.is_some());
        assert!(serde_json::from_str::<PolicyUpdate>("{}").unwrap().is_empty());
        assert!(serde_json::from_str::<PolicyUpdate>(r#"{"disabled":null}"#).is_err(), "it has operations of its own");
    }

    #[test]
    fn lists_of_a_new_policy_are_sorted_and_within_the_users_permissions() {
        let permissions = |names: &[&str]| names.iter().map(|name| name.parse().unwrap()).collect::<Vec<Permission>>();
        let update =
            |names: &[&str]| PolicyUpdate { permissions: Some(Some(permissions(names))), ..PolicyUpdate::default() };
        let policy = update(&["b", "a", "b"])
            .into_policy(&permissions(&["a", "b", "c"]), &OrgPolicy::default(), Micros(7))
            .unwrap()
            .unwrap();
        assert_eq!(policy.permissions, Some(permissions(&["a", "b"])));
        let error =
            update(&["a", "d"]).into_policy(&permissions(&["a"]), &OrgPolicy::default(), Micros(7)).unwrap_err();
        assert!(matches!(&error, ManagementError::BeyondOwner(d) if d.as_str() == "d"), "{error}");
        let of_org = |policy: OrgPolicy| PolicyUpdate::default().into_policy(&[], &policy, Micros(7)).unwrap();
        assert_eq!(of_org(OrgPolicy::default()), None);
        let hour = std::time::Duration::from_secs(3600);
        let bounded = of_org(OrgPolicy { max_expiry: Some(hour), ..OrgPolicy::default() });
        assert_eq!(bounded.unwrap().expires, Some(Micros(7).after(hour)));
    }
}
