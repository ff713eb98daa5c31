//! The form that replaces the secret of a key.

use askama::Template;

use super::layout::Layout;

/// The form: field `overlap`.
#[derive(Clone, Debug, Template)]
#[template(path = "rotate.html")]
pub struct RotatePage {
    /// What is around it.
    pub layout: Layout,
    /// The key id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// The owner's email.
    pub owner: String,
    /// What is chosen.
    pub overlap: Overlap,
    /// What is wrong with what was sent.
    pub error: Option<String>,
}

/// How long both secrets work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlap {
    /// Not at all.
    None,
    /// One hour.
    Hour,
    /// 24 hours.
    Day,
    /// Seven days.
    Week,
}

impl RotatePage {
    /// What can be chosen.
    pub fn overlaps(&self) -> [Overlap; 4] {
        Overlap::ALL
    }
}

impl Overlap {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::None, Self::Hour, Self::Day, Self::Week];

    /// What is sent: a duration.
    pub fn value(self) -> &'static str {
        match self {
            Self::None => "0s",
            Self::Hour => "1h",
            Self::Day => "24h",
            Self::Week => "7d",
        }
    }

    /// For people.
    pub fn label(self) -> &'static str {
        match self {
            Self::None => "No overlap: it stops at once",
            Self::Hour => "1 hour",
            Self::Day => "24 hours",
            Self::Week => "7 days",
        }
    }

    /// The one that was sent.
    pub fn of(value: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|overlap| overlap.value() == value)
    }
}
