//! Policy of an organization: bounds of the keys that are created in it from now on, set by the operator.
//!
//! - It never changes a key that exists.
//! - The empty policy bounds nothing, and a record of an organization without a policy has no field for it.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::duration_text;
use domain::clock::Micros;
use platform::settings::{InvalidDuration, WithUnit, parse_duration};

/// Expiries that a policy may have: from a minute, below which no key is of use, to a hundred years.
const EXPIRY: RangeInclusive<Duration> = Duration::from_secs(60)..=Duration::from_secs(100 * 366 * 24 * 3600);
/// Shortest time without a use after which keys may be disabled: what runs once a week stays.
const MIN_UNUSED: Duration = Duration::from_secs(7 * 24 * 3600);

/// Policy of an organization. In JSON durations are texts such as `90d`, and absent fields are left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrgPolicy {
    /// Longest time from the creation of a key to its expiry; `None`: keys need not expire.
    #[serde(default, with = "duration_text::option", skip_serializing_if = "Option::is_none")]
    pub max_expiry: Option<Duration>,
    /// Time from the creation of a key to its expiry, where none is asked for; `None`: the longest.
    #[serde(default, with = "duration_text::option", skip_serializing_if = "Option::is_none")]
    pub default_expiry: Option<Duration>,
    /// Treatment of keys that are not used; `None`: the configured one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unused_keys: Option<UnusedKeys>,
}

/// Change of the policy of an organization. Absent values stay as they are; `Some(None)` takes a value away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "as in OrgPolicy")]
pub struct OrgPolicyPatch {
    pub max_expiry: Option<Option<Duration>>,
    pub default_expiry: Option<Option<Duration>>,
    pub unused_keys: Option<Option<UnusedKeys>>,
}

/// Treatment of keys that are not used. Its text is `never` or a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum UnusedKeys {
    /// They stay as they are.
    Never,
    /// They are disabled after this time without a use, at least 7 days.
    After(Duration),
}

/// Reason why a policy is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPolicy {
    /// An expiry is out of range.
    #[error("max_expiry and default_expiry must be 1m to 36600d, or none")]
    Expiry,
    /// The default expiry is later than the longest one.
    #[error("default_expiry must not be longer than max_expiry")]
    Default,
    /// The time without a use is out of range.
    #[error("unused_keys must be never, or a duration of 7d to 36600d")]
    UnusedKeys,
}

/// The expiry that is asked for is later than the policy of the organization allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("keys of this organization expire by {latest} at the latest; ask for an earlier time")]
pub struct TooLate {
    /// The latest time that is allowed.
    pub latest: Micros,
}

impl OrgPolicy {
    /// Returns true for the policy that bounds nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The policy in a record: JSON, or none when it bounds nothing.
    pub(crate) fn to_record(self) -> Option<String> {
        let json = || serde_json::to_string(&self).expect("durations are texts");
        (!self.is_empty()).then(json)
    }

    /// The policy of a record.
    ///
    /// # Errors
    /// The text is not the JSON of a policy.
    pub(crate) fn from_record(json: Option<&str>) -> serde_json::Result<Self> {
        json.map_or(Ok(Self::default()), serde_json::from_str)
    }

    /// Checks the values, and returns the policy.
    ///
    /// # Errors
    /// [`InvalidPolicy`].
    pub fn validate(self) -> Result<Self, InvalidPolicy> {
        if [self.max_expiry, self.default_expiry].into_iter().flatten().any(|expiry| !EXPIRY.contains(&expiry)) {
            return Err(InvalidPolicy::Expiry);
        }
        if self.max_expiry.is_some_and(|max| self.default_expiry.is_some_and(|default| default > max)) {
            return Err(InvalidPolicy::Default);
        }
        match self.unused_keys {
            Some(UnusedKeys::After(time)) if !(MIN_UNUSED..=*EXPIRY.end()).contains(&time) => {
                Err(InvalidPolicy::UnusedKeys)
            }
            _ => Ok(self),
        }
    }

    /// Checks the policy of a key that is created `at` this time.
    ///
    /// # Errors
    /// [`TooLate`].
    pub(crate) fn check_new_key(&self, expires: Option<Micros>, at: Micros) -> Result<(), TooLate> {
        match self.max_expiry.map(|max| at.after(max)) {
            Some(latest) if expires.is_none_or(|expires| expires > latest) => Err(TooLate { latest }),
            _ => Ok(()),
        }
    }

    /// The expiry of a key that is created `now`; `None`: it never expires. `asked` is the expiry that was asked for;
    /// without one, the default holds, or the longest.
    ///
    /// # Errors
    /// [`TooLate`] when the expiry that was asked for is later than the longest.
    pub fn expiry_of_new_key(&self, asked: Option<Micros>, now: Micros) -> Result<Option<Micros>, TooLate> {
        let latest = self.max_expiry.map(|max| now.after(max));
        match (asked, latest) {
            (Some(asked), Some(latest)) if asked > latest => Err(TooLate { latest }),
            (Some(asked), _) => Ok(Some(asked)),
            (None, _) => Ok(self.default_expiry.map(|default| now.after(default)).into_iter().chain(latest).min()),
        }
    }
}

impl OrgPolicyPatch {
    /// Returns whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The policy that it makes of the one before.
    ///
    /// # Errors
    /// [`InvalidPolicy`].
    pub fn apply_to(self, before: OrgPolicy) -> Result<OrgPolicy, InvalidPolicy> {
        let after = OrgPolicy {
            max_expiry: self.max_expiry.unwrap_or(before.max_expiry),
            default_expiry: self.default_expiry.unwrap_or(before.default_expiry),
            unused_keys: self.unused_keys.unwrap_or(before.unused_keys),
        };
        after.validate()
    }
}

impl From<OrgPolicy> for OrgPolicyPatch {
    fn from(policy: OrgPolicy) -> Self {
        let OrgPolicy { max_expiry, default_expiry, unused_keys } = policy;
        Self { max_expiry: Some(max_expiry), default_expiry: Some(default_expiry), unused_keys: Some(unused_keys) }
    }
}

impl fmt::Display for UnusedKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Never => f.write_str("never"),
            Self::After(time) => WithUnit::Duration(*time).fmt(f),
        }
    }
}

impl FromStr for UnusedKeys {
    type Err = InvalidDuration;

    fn from_str(text: &str) -> Result<Self, InvalidDuration> {
        if text == "never" { Ok(Self::Never) } else { parse_duration(text).map(Self::After) }
    }
}

impl From<UnusedKeys> for String {
    fn from(unused: UnusedKeys) -> Self {
        unused.to_string()
    }
}

impl TryFrom<String> for UnusedKeys {
    type Error = InvalidDuration;

    fn try_from(text: String) -> Result<Self, InvalidDuration> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);
    const NOW: Micros = Micros(1_800_000_000_000_000);

    fn policy(max: Option<u32>, default: Option<u32>) -> OrgPolicy {
        OrgPolicy {
            max_expiry: max.map(|days| days * DAY),
            default_expiry: default.map(|days| days * DAY),
            ..OrgPolicy::default()
        }
    }

    fn days(days: u32) -> Micros {
        NOW.after(days * DAY)
    }

    #[test]
    fn expiry_of_a_new_key_is_the_asked_one_else_the_default_else_the_longest() {
        // Longest, default, asked, and what holds.
        let cases = [
            (None, None, None, None),
            (None, None, Some(9999), Some(9999)),
            (None, Some(30), None, Some(30)),
            (None, Some(30), Some(9999), Some(9999)),
            (Some(90), None, None, Some(90)),
            (Some(90), None, Some(90), Some(90)),
            (Some(90), Some(30), None, Some(30)),
            (Some(90), Some(30), Some(1), Some(1)),
            (Some(90), Some(30), Some(60), Some(60)),
            // No valid policy is so; the longest holds all the same.
            (Some(30), Some(90), None, Some(30)),
        ];
        for (max, default, asked, expected) in cases {
            let expiry = policy(max, default).expiry_of_new_key(asked.map(days), NOW);
            assert_eq!(expiry, Ok(expected.map(days)), "{max:?} {default:?} {asked:?}");
        }
    }

    #[test]
    fn expiry_after_the_longest_is_refused_with_the_latest_time() {
        let latest = days(90);
        for default in [None, Some(30)] {
            let asked = Micros(latest.0 + 1);
            let refused = policy(Some(90), default).expiry_of_new_key(Some(asked), NOW);
            assert_eq!(refused, Err(TooLate { latest }));
        }
        assert!(TooLate { latest }.to_string().contains(&latest.to_string()));
    }

    #[test]
    fn policy_is_valid_within_its_ranges() {
        let unused = |unused_keys| OrgPolicy { unused_keys: Some(unused_keys), ..OrgPolicy::default() }.validate();
        for valid in [policy(None, None), policy(Some(1), Some(1)), policy(Some(36_600), None)] {
            assert_eq!(valid.validate(), Ok(valid));
        }
        assert_eq!(policy(Some(36_601), None).validate(), Err(InvalidPolicy::Expiry));
        assert_eq!(policy(None, Some(0)).validate(), Err(InvalidPolicy::Expiry));
        assert_eq!(policy(Some(1), Some(2)).validate(), Err(InvalidPolicy::Default));
        assert!(unused(UnusedKeys::Never).is_ok() && unused(UnusedKeys::After(7 * DAY)).is_ok());
        assert_eq!(unused(UnusedKeys::After(7 * DAY - Duration::from_secs(1))), Err(InvalidPolicy::UnusedKeys));
    }

    #[test]
    fn policy_is_json_with_durations_as_texts() {
        let whole = OrgPolicy { unused_keys: Some(UnusedKeys::After(90 * DAY)), ..policy(Some(365), Some(30)) };
        let never = OrgPolicy { unused_keys: Some(UnusedKeys::Never), ..OrgPolicy::default() };
        for (policy, json) in [
            (whole, r#"{"max_expiry":"365d","default_expiry":"30d","unused_keys":"90d"}"#),
            (never, r#"{"unused_keys":"never"}"#),
            (OrgPolicy::default(), "{}"),
        ] {
            assert_eq!(serde_json::to_string(&policy).unwrap(), json);
            assert_eq!(serde_json::from_str::<OrgPolicy>(json).unwrap(), policy);
        }
        assert!(serde_json::from_str::<OrgPolicy>(r#"{"unused_keys":"sometimes"}"#).is_err());
    }
}
