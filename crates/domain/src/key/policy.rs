//! Policy of a key: what the key may do less than its user.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::clock::{self, Micros};
use crate::identity::Permission;

mod network;
mod patch;

pub use network::{InvalidNetwork, Network};
pub use patch::{Field, PolicyPatch};

/// Networks of a key at most.
pub const MAX_NETWORKS: usize = 32;
/// Tags of a key at most.
pub const MAX_TAGS: usize = 16;
/// Bytes of the name of a tag, and of its value, at most.
pub const MAX_TAG_BYTES: usize = 64;

/// Policy of a key.
///
/// - What is absent does not narrow: by default a key has its user's permissions, from every address, for ever.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyPolicy {
    /// Permissions that the key has as far as its user has them at the moment of the request; sorted, each once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permissions: Option<Vec<Permission>>,
    /// Time from which the key is refused.
    #[serde(default, with = "clock::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub expires: Option<Micros>,
    /// Networks that requests with the key have to come from, 1 to [`MAX_NETWORKS`]; sorted, each once; empty for any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<Network>,
    /// Requests in flight with the key at most, at least 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrent: Option<u32>,
    /// Present while the key is disabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled: Option<Disabled>,
    /// Time of the last enabling: a key that was enabled counts as used then.
    #[serde(default, with = "clock::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub enabled: Option<Micros>,
    /// Labels for people and programs, [`MAX_TAGS`] at most; they decide nothing.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
}

/// A key is disabled: refused until it is enabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disabled {
    /// Time of the first of several disablings.
    #[serde(with = "clock::rfc3339")]
    pub at: Micros,
    /// The cause.
    pub by: DisabledBy,
}

/// Cause of a key's being disabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DisabledBy {
    /// A person on the dashboard.
    Person,
    /// The operator.
    Operator,
    /// The sweep of unused keys.
    Unused,
    /// A report that the key has leaked.
    Leak,
}

/// Error: a policy is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKeyPolicy {
    /// More networks than [`MAX_NETWORKS`].
    #[error("a key has at most {MAX_NETWORKS} networks")]
    TooManyNetworks,
    /// No request in flight.
    #[error("a key has at least 1 request in flight; disable it to refuse all of its requests")]
    NoSlot,
    /// More tags than [`MAX_TAGS`].
    #[error("a key has at most {MAX_TAGS} tags")]
    TooManyTags,
    /// A tag without a name, or a longer one than [`MAX_TAG_BYTES`], or with a control character.
    #[error(
        "a tag is NAME=VALUE: the name has 1 to {MAX_TAG_BYTES} bytes, the value at most as many, without control \
        characters and without = in the name"
    )]
    Tag,
    /// The lists are not sorted, or have something twice.
    #[error("the permissions and networks of a key are sorted, each once")]
    NotSorted,
}

impl Disabled {
    /// The mark after another disabling: the time of the first; as the cause a leak before all others, and the operator
    /// before people and the sweep, who could otherwise enable what the operator disabled.
    #[must_use]
    pub fn and_then(self, other: Self) -> Self {
        let is_graver = other.by == DisabledBy::Leak || other.by.is_of_operator() && !self.by.is_of_operator();
        Self { at: self.at, by: if is_graver { other.by } else { self.by } }
    }
}

impl DisabledBy {
    /// Returns whether the operator alone can enable the key.
    pub fn is_of_operator(self) -> bool {
        matches!(self, Self::Operator | Self::Leak)
    }

    /// The name of the cause.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Person => "person",
            Self::Operator => "operator",
            Self::Unused => "unused",
            Self::Leak => "leak",
        }
    }

    /// The cause with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Person, Self::Operator, Self::Unused, Self::Leak].into_iter().find(|by| by.as_str() == name)
    }

    /// The cause in words that follow "disabled".
    pub fn text(self) -> &'static str {
        match self {
            Self::Person => "by a person on the dashboard",
            Self::Operator => "by the operator",
            Self::Unused => "because it was not used",
            Self::Leak => "because it has leaked",
        }
    }
}

impl KeyPolicy {
    /// Returns true when it narrows nothing and labels nothing, as that of most keys.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The policy, in a box; none of an empty one.
    pub fn boxed(self) -> Option<Box<Self>> {
        (!self.is_empty()).then(|| Box::new(self))
    }

    /// The policy as records have it: JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a policy is texts, numbers, and lists of them")
    }

    /// Returns true when a key with this policy may be used from an address. One that is not known is in no network.
    pub fn allows_address(&self, client: Option<&IpAddr>) -> bool {
        self.networks.is_empty() || client.is_some_and(|client| self.networks.iter().any(|net| net.contains(*client)))
    }

    /// The permissions of requests with the key, of a user with these.
    pub fn effective_permissions(&self, of_user: &[Permission]) -> Vec<Permission> {
        let is_granted = |permission: &&Permission| self.allows_permission(permission);
        of_user.iter().filter(is_granted).cloned().collect()
    }

    /// Returns true when the policy leaves the key a permission of its user.
    pub fn allows_permission(&self, permission: &Permission) -> bool {
        self.permissions.as_ref().is_none_or(|own| own.binary_search(permission).is_ok())
    }

    /// Checks the bounds of every field.
    ///
    /// # Errors
    /// [`InvalidKeyPolicy`].
    pub fn validate(&self) -> Result<(), InvalidKeyPolicy> {
        let is_sorted = self.permissions.as_ref().is_none_or(|own| own.is_sorted_by(|a, b| a < b))
            && self.networks.is_sorted_by(|a, b| a < b);
        if !is_sorted {
            Err(InvalidKeyPolicy::NotSorted)
        } else if self.networks.len() > MAX_NETWORKS {
            Err(InvalidKeyPolicy::TooManyNetworks)
        } else if self.concurrent == Some(0) {
            Err(InvalidKeyPolicy::NoSlot)
        } else if self.tags.len() > MAX_TAGS {
            Err(InvalidKeyPolicy::TooManyTags)
        } else if self.tags.iter().all(|(name, value)| is_tag(name, value)) {
            Ok(())
        } else {
            Err(InvalidKeyPolicy::Tag)
        }
    }

    /// Returns true when a key with this policy may do no more than one with `other`. Tags decide nothing.
    pub fn is_within(&self, other: &Self) -> bool {
        let permissions = match (&self.permissions, &other.permissions) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(own), Some(_)) => own.iter().all(|permission| other.allows_permission(permission)),
        };
        let is_bounded =
            |own: Option<u64>, bound: Option<u64>| bound.is_none_or(|bound| own.is_some_and(|own| own <= bound));
        let number = |number: Option<u32>| number.map(u64::from);
        let time = |time: Option<Micros>| time.map(|time| time.0);
        let networks = other.networks.is_empty()
            || !self.networks.is_empty() && self.networks.iter().all(|own| own.is_in_one_of(&other.networks));
        permissions
            && networks
            && is_bounded(time(self.expires), time(other.expires))
            && is_bounded(number(self.concurrent), number(other.concurrent))
            && (self.disabled.is_some() || other.disabled.is_none())
    }
}

fn is_tag(name: &str, value: &str) -> bool {
    let is_plain = |text: &str| text.len() <= MAX_TAG_BYTES && !text.chars().any(char::is_control);
    !name.is_empty() && !name.contains('=') && is_plain(name) && is_plain(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn permissions(names: &[&str]) -> Vec<Permission> {
        names.iter().map(|name| name.parse().unwrap()).collect()
    }

    fn networks(names: &[&str]) -> Vec<Network> {
        names.iter().map(|name| name.parse().unwrap()).collect()
    }

    fn narrow() -> KeyPolicy {
        KeyPolicy {
            permissions: Some(permissions(&["a", "c"])),
            expires: Some(Micros(1_000_000)),
            networks: networks(&["10.0.0.0/8"]),
            concurrent: Some(3),
            ..KeyPolicy::default()
        }
    }

    #[test]
    fn permissions_are_those_of_key_and_user() {
        let of_user = permissions(&["a", "b"]);
        assert_eq!(narrow().effective_permissions(&of_user), permissions(&["a"]));
        assert_eq!(KeyPolicy::default().effective_permissions(&of_user), of_user);
        let none = KeyPolicy { permissions: Some(Vec::new()), ..KeyPolicy::default() };
        assert_eq!(none.effective_permissions(&of_user), []);
        assert!(!none.is_empty(), "a key without permissions is not one with all of its user's");
    }

    #[test]
    fn unknown_address_is_in_no_network() {
        assert!(KeyPolicy::default().allows_address(None));
        assert!(!narrow().allows_address(None));
        for inside in ["10.1.2.3", "::ffff:10.1.2.3"] {
            assert!(narrow().allows_address(Some(&inside.parse().unwrap())), "{inside}");
        }
    }

    #[test]
    fn each_field_makes_a_policy_wider_or_narrower() {
        let (all, base) = (KeyPolicy::default(), narrow());
        assert!(base.is_within(&all) && !all.is_within(&base) && base.is_within(&base));
        let wider = [
            KeyPolicy { permissions: Some(permissions(&["a", "b", "c"])), ..narrow() },
            KeyPolicy { permissions: None, ..narrow() },
            KeyPolicy { expires: Some(Micros(1_000_001)), ..narrow() },
            KeyPolicy { expires: None, ..narrow() },
            KeyPolicy { networks: networks(&["10.0.0.0/7"]), ..narrow() },
            KeyPolicy { networks: Vec::new(), ..narrow() },
            KeyPolicy { concurrent: Some(4), ..narrow() },
            KeyPolicy { concurrent: None, ..narrow() },
        ];
        for wider in wider {
            assert!(!wider.is_within(&base) && base.is_within(&wider), "{wider:?}");
        }
        let disabled = Some(Disabled { at: Micros(7), by: DisabledBy::Leak });
        let disabled = KeyPolicy { disabled, ..narrow() };
        assert!(disabled.is_within(&base) && !base.is_within(&disabled));
    }

    #[test]
    fn bounds_are_those_of_the_contract() {
        let tag = |name: &str, value: &str| KeyPolicy {
            tags: [(name.to_owned(), value.to_owned())].into(),
            ..KeyPolicy::default()
        };
        assert_eq!(tag("team", "billing").validate(), Ok(()));
        assert_eq!(tag(&"n".repeat(64), &"v".repeat(64)).validate(), Ok(()));
        for (name, value) in [("", "v"), ("a=b", "v"), ("a\n", "v"), (&*"n".repeat(65), "v"), ("n", &*"v".repeat(65))] {
            assert_eq!(tag(name, value).validate(), Err(InvalidKeyPolicy::Tag), "{name} {value}");
        }
        let tags = (0..17).map(|number| (number.to_string(), String::new())).collect();
        assert_eq!(KeyPolicy { tags, ..KeyPolicy::default() }.validate(), Err(InvalidKeyPolicy::TooManyTags));
        let many: Vec<Network> = (0..33).map(|net| format!("10.0.{net}.0/24").parse().unwrap()).collect();
        let of = |networks: &[Network]| KeyPolicy { networks: networks.to_vec(), ..KeyPolicy::default() }.validate();
        assert_eq!((of(&many), of(&many[..32])), (Err(InvalidKeyPolicy::TooManyNetworks), Ok(())));
        assert_eq!(KeyPolicy { concurrent: Some(0), ..narrow() }.validate(), Err(InvalidKeyPolicy::NoSlot));
        let twice = Some(permissions(&["a", "a"]));
        assert_eq!(KeyPolicy { permissions: twice, ..narrow() }.validate(), Err(InvalidKeyPolicy::NotSorted));
    }

    #[test]
    fn stored_policy_with_an_unknown_field_is_refused() {
        let text = serde_json::to_string(&narrow()).unwrap();
        assert_eq!(serde_json::from_str::<KeyPolicy>(&text).unwrap(), narrow());
        assert_eq!(serde_json::to_string(&KeyPolicy::default()).unwrap(), "{}");
        assert!(serde_json::from_str::<KeyPolicy>(r#"{"hours":"9-17"}"#).is_err(), "it could narrow");
    }
}
