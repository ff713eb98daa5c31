//! The form that rotates a key: replaces its secret.

use std::time::Duration;

use askama::Template;

use super::layout::Layout;

/// The form. Field: `overlap`.
#[derive(Clone, Debug, Template)]
#[template(path = "rotate.html")]
pub struct RotatePage {
    /// Page frame.
    pub layout: Layout,
    /// Key id.
    pub id: String,
    /// Name.
    pub name: String,
    /// The owner's email address.
    pub owner: String,
    /// The selected overlap.
    pub overlap: Overlap,
    /// Error in what was submitted.
    pub error: Option<String>,
}

/// Time in which the old and the new secret are both valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlap {
    /// None.
    None,
    /// One hour.
    Hour,
    /// 24 hours.
    Day,
    /// Seven days.
    Week,
}

impl RotatePage {
    /// The choices.
    pub fn overlaps(&self) -> [Overlap; 4] {
        Overlap::ALL
    }
}

impl Overlap {
    /// All overlaps.
    pub const ALL: [Self; 4] = [Self::None, Self::Hour, Self::Day, Self::Week];

    /// Submitted value.
    pub fn value(self) -> &'static str {
        match self {
            Self::None => "0s",
            Self::Hour => "1h",
            Self::Day => "24h",
            Self::Week => "7d",
        }
    }

    /// Shown text.
    pub fn label(self) -> &'static str {
        match self {
            Self::None => "No overlap: it stops at once",
            Self::Hour => "1 hour",
            Self::Day => "24 hours",
            Self::Week => "7 days",
        }
    }

    /// Its length.
    pub fn duration(self) -> Duration {
        const HOUR: Duration = Duration::from_secs(3600);
        match self {
            Self::None => Duration::ZERO,
            Self::Hour => HOUR,
            Self::Day => 24 * HOUR,
            Self::Week => 7 * 24 * HOUR,
        }
    }

    /// The overlap with this submitted value.
    pub fn from_value(value: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|overlap| overlap.value() == value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::parse_duration;

    #[test]
    fn overlap_lasts_as_long_as_its_value_says() {
        for overlap in Overlap::ALL {
            assert_eq!(parse_duration(overlap.value()).unwrap(), overlap.duration());
            assert_eq!(Overlap::from_value(overlap.value()), Some(overlap));
        }
    }
}
