//! The form that rotates a key: replaces its secret.

use std::time::Duration;

use askama::Template;

use super::layout::Layout;
use super::timestamp::Timestamp;

/// The form. Fields: `rotated`, `overlap`, and `name`, which must be the key's name, when it is asked for.
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
    /// The last rotation that the reader of the form knows of, as the form sends it back.
    pub rotated: String,
    /// The selected overlap.
    pub overlap: Overlap,
    /// True if the key was used in the last 24 hours, so a program probably needs it.
    pub is_in_use: bool,
    /// End of the time in which a secret from an earlier rotation is still valid.
    pub earlier_until: Option<Timestamp>,
    /// True if the name is asked for.
    pub asks_name: bool,
    /// Errors in what was submitted.
    pub errors: RotateErrors,
}

/// Errors in what was submitted, by field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RotateErrors {
    /// In the overlap.
    pub overlap: Option<&'static str>,
    /// In the name that was typed.
    pub name: Option<&'static str>,
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
    /// Returns `true` if anything is wrong in what was submitted.
    pub fn has_error(&self) -> bool {
        self.errors != RotateErrors::default()
    }

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
    use platform::settings::parse_duration;

    #[test]
    fn overlap_lasts_as_long_as_its_value_says() {
        for overlap in Overlap::ALL {
            assert_eq!(parse_duration(overlap.value()).unwrap(), overlap.duration());
            assert_eq!(Overlap::from_value(overlap.value()), Some(overlap));
        }
    }
}
