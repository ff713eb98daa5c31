//! Names of plans: what a key, a user or an organization is given, and what the configuration gives limits to.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Characters of the longest name.
const MAX_NAME: usize = 40;

/// Name of a plan: up to 40 of letters, digits and `. _ -`, so that it needs no quotes in a file, a command or a label.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PlanName(Box<str>);

/// Error: the text is not the name of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not the name of a plan: up to {MAX_NAME} of letters, digits and . _ -")]
pub struct InvalidPlanName;

impl PlanName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for PlanName {
    type Err = InvalidPlanName;

    fn from_str(text: &str) -> Result<Self, InvalidPlanName> {
        let is_plain = |c: u8| c.is_ascii_alphanumeric() || b"._-".contains(&c);
        let is_name = (1..=MAX_NAME).contains(&text.len()) && text.bytes().all(is_plain);
        if is_name { Ok(Self(text.into())) } else { Err(InvalidPlanName) }
    }
}

impl fmt::Display for PlanName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for PlanName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl Serialize for PlanName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for PlanName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|error| serde::de::Error::custom(format_args!("`{}` {error}", text.escape_debug())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_plain() {
        for name in ["free", "Pro-2026.1_b", &"a".repeat(40)] {
            assert_eq!(name.parse::<PlanName>().unwrap().as_str(), name);
        }
        for text in ["", "a b", "a/b", "ä", &"a".repeat(41)] {
            assert_eq!(text.parse::<PlanName>(), Err(InvalidPlanName), "{text}");
            assert!(serde_json::from_value::<PlanName>(text.into()).is_err());
        }
    }
}
