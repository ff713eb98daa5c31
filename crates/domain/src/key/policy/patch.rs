//! Changes of single fields of a policy, so that two people who change different fields both have their way.

use std::collections::BTreeMap;

use super::{Disabled, KeyPolicy, Network};
use crate::clock::Micros;
use crate::identity::Permission;

/// Change of one field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Field<T> {
    /// It stays.
    #[default]
    Keep,
    /// It is as in a new policy: it narrows nothing.
    Clear,
    /// It is this one.
    Set(T),
}

/// Change of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyPatch {
    /// See [`KeyPolicy::permissions`].
    pub permissions: Field<Vec<Permission>>,
    /// See [`KeyPolicy::expires`].
    pub expires: Field<Micros>,
    /// See [`KeyPolicy::networks`].
    pub networks: Field<Vec<Network>>,
    /// See [`KeyPolicy::concurrent`].
    pub concurrent: Field<u32>,
    /// Disables the key, or enables it. Of several disablings the first stands ([`Disabled::and_then`]).
    pub disabled: Field<Disabled>,
    /// Time of the enabling; none leaves that of before.
    pub enabled: Option<Micros>,
    /// Sets these tags, and removes those without a value; the others stay.
    pub tags: Field<BTreeMap<String, Option<String>>>,
}

impl<T: Clone> Field<T> {
    /// The field after the change.
    pub fn apply(&self, before: Option<T>) -> Option<T> {
        match self {
            Self::Keep => before,
            Self::Clear => None,
            Self::Set(value) => Some(value.clone()),
        }
    }

    fn is_kept(&self) -> bool {
        matches!(self, Self::Keep)
    }
}

impl PolicyPatch {
    /// Returns true when it changes nothing.
    pub fn is_empty(&self) -> bool {
        let Self { permissions, expires, networks, concurrent, disabled, enabled, tags } = self;
        permissions.is_kept()
            && expires.is_kept()
            && networks.is_kept()
            && concurrent.is_kept()
            && disabled.is_kept()
            && enabled.is_none()
            && tags.is_kept()
    }

    /// The policy after the change.
    pub fn apply(&self, before: &KeyPolicy) -> KeyPolicy {
        let disabled = match (&self.disabled, before.disabled) {
            (Field::Set(another), Some(first)) => Some(first.and_then(*another)),
            (change, before) => change.apply(before),
        };
        KeyPolicy {
            permissions: self.permissions.apply(before.permissions.clone()),
            expires: self.expires.apply(before.expires),
            networks: self.networks.apply(Some(before.networks.clone())).unwrap_or_default(),
            concurrent: self.concurrent.apply(before.concurrent),
            disabled,
            enabled: self.enabled.or(before.enabled),
            tags: self.apply_tags(&before.tags),
        }
    }

    fn apply_tags(&self, before: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let changes = match &self.tags {
            Field::Keep => return before.clone(),
            Field::Clear => return BTreeMap::new(),
            Field::Set(changes) => changes,
        };
        let kept = before.iter().filter(|(name, _)| !changes.contains_key(*name));
        let kept = kept.map(|(name, value)| (name.clone(), value.clone()));
        kept.chain(changes.iter().filter_map(|(name, value)| Some((name.clone(), value.clone()?)))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::DisabledBy;
    use super::super::tests::permissions;
    use super::*;

    #[test]
    fn changes_of_different_fields_leave_each_other() {
        let expiry = PolicyPatch { expires: Field::Set(Micros(9)), ..PolicyPatch::default() };
        let narrower = PolicyPatch { permissions: Field::Set(permissions(&["a"])), ..PolicyPatch::default() };
        let both = expiry.apply(&narrower.apply(&KeyPolicy::default()));
        assert_eq!((both.expires, both.permissions.clone()), (Some(Micros(9)), Some(permissions(&["a"]))));
        let cleared = PolicyPatch { permissions: Field::Clear, ..PolicyPatch::default() }.apply(&both);
        assert_eq!((cleared.expires, cleared.permissions.clone()), (Some(Micros(9)), None));
        assert!(PolicyPatch::default().is_empty() && !expiry.is_empty());
    }

    #[test]
    fn tags_are_changed_one_by_one() {
        let tags = |tags: &[(&str, &str)]| KeyPolicy {
            tags: tags.iter().map(|(name, value)| (String::from(*name), String::from(*value))).collect(),
            ..KeyPolicy::default()
        };
        let before = tags(&[("a", "1"), ("b", "2")]);
        let change = [("b".to_owned(), None), ("c".to_owned(), Some("3".to_owned()))];
        let patch = PolicyPatch { tags: Field::Set(change.into()), ..PolicyPatch::default() };
        assert_eq!(patch.apply(&before), tags(&[("a", "1"), ("c", "3")]));
        assert_eq!(PolicyPatch { tags: Field::Clear, ..PolicyPatch::default() }.apply(&before), KeyPolicy::default());
    }

    #[test]
    fn first_disabling_stands() {
        let disable =
            |at, by| PolicyPatch { disabled: Field::Set(Disabled { at: Micros(at), by }), ..PolicyPatch::default() };
        let first = disable(1, DisabledBy::Unused).apply(&KeyPolicy::default());
        let mark = |by| Some(Disabled { at: Micros(1), by });
        let second = disable(2, DisabledBy::Person).apply(&first);
        assert_eq!(second.disabled, mark(DisabledBy::Unused));
        let third = disable(3, DisabledBy::Leak).apply(&second);
        assert_eq!(third.disabled, mark(DisabledBy::Leak), "the operator's, whom people cannot overrule");
        assert_eq!(disable(4, DisabledBy::Person).apply(&third).disabled, third.disabled);
        let operator = disable(1, DisabledBy::Operator).apply(&KeyPolicy::default());
        assert_eq!(disable(5, DisabledBy::Leak).apply(&operator).disabled, mark(DisabledBy::Leak), "the leak is noted");
        assert_eq!(disable(5, DisabledBy::Operator).apply(&third).disabled, third.disabled);
    }
}
